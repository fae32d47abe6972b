package jinja_test

import (
	"fmt"

	"github.com/dynago/dynago/chattemplate/jinja"
)

func Example() {
	tmpl, err := jinja.Compile(`
{%- for m in messages %}
<|{{ m.role }}|>
{{ m.content | trim }}
    {%- if m.args is defined %}{{ m.args | tojson }}{% endif %}

{% endfor %}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := jinja.FromJSON([]byte(`[
		{"role": "user", "content": " How warm is it? "},
		{"role": "assistant", "content": "", "args": {"place": "Paris", "id": 12345678901234567890}}
	]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	vars := jinja.NewDict(1)
	vars.Set("messages", messages)
	out, err := tmpl.Render(vars, jinja.Env{})
	fmt.Print(out, err)
	// Output:
	// <|user|>
	// How warm is it?
	// <|assistant|>
	// {"place": "Paris", "id": 12345678901234567890}
	// <nil>
}

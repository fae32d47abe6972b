package main

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/ollama"
)

// Ollama is attached as it is: all APIs speak to its model, whose thoughts, calls and
// refusals are those of any other, and what it would cut is refused.
func TestAttachOllama(t *testing.T) {
	t.Parallel()
	script, err := mock.LoadScript(strings.NewReader(`
rules:
  - when: {user: weather, offers: sky}
    emit: "<think>Look.</think><tool_call>{\"name\":\"sky\",\"arguments\":{\"at\":\"Rome\"}}</tool_call>"
  - when: {user: Once}
    emit: " upon a time"
default:
  emit: "<think>Hm.</think>Hello."
`))
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	f, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "tiny", Args: args, Script: script}, Others: []string{"big:8b"}, Made: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	url := host(t, f).URL
	for _, kind := range []string{"ollama", "auto"} {
		p := serve(t, "--engine", kind+"="+url+",model=tiny,context_length=512,load.interval=20ms")
		p.ready("tiny")
		if n := f.Context(); n != 512 {
			t.Errorf("loaded with a context of %d", n)
		}
		for name, c := range map[string]struct {
			path, body string
			status     int
			want       []string
		}{
			"chat":        {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}`, 200, []string{`"content":"Hello."`, `"reasoning_content":"Hm."`, `"finish_reason":"stop"`}},
			"a call":      {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"weather"}],"tools":[{"type":"function","function":{"name":"sky"}}]}`, 200, []string{`"name":"sky"`, `Rome`, `"finish_reason":"tool_calls"`}},
			"completions": {"/v1/completions", `{"model":"tiny","prompt":"Once"}`, 200, []string{`"text":" upon a time"`, `"prompt_tokens":4`}},
			"messages":    {"/v1/messages", `{"model":"tiny","max_tokens":99,"messages":[{"role":"user","content":"Hi"}]}`, 200, []string{`"text":"Hello."`, `"thinking":"Hm."`, `"end_turn"`}},
			"responses":   {"/v1/responses", `{"model":"tiny","input":"Hi"}`, 200, []string{`"text":"Hello."`}},
			"too long":    {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"` + strings.Repeat("x", 600) + `"}]}`, 400, []string{"context length"}},
			"a must":      {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"sky"}}],"tool_choice":"required"}`, 400, []string{"calls that the model has to make are not available on Ollama"}},
			"log probs":   {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"logprobs":true}`, 400, []string{"logprobs is not supported"}},
		} {
			r := p.send(c.path, c.body)
			if r.status != c.status {
				t.Errorf("%s, %s: %d %s", kind, name, r.status, r.body)
			}
			for _, want := range c.want {
				if !strings.Contains(string(r.body), want) {
					t.Errorf("%s, %s: %s lacks %s", kind, name, r.body, want)
				}
			}
		}
	}
}

package guided_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
)

func schema(s string) *chat.OutputFormat {
	return &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(s)}
}

func regex(s string) *chat.OutputFormat {
	return &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: s}
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		format *chat.OutputFormat
		says   string
	}{
		{"type that is none", schema(`{"type":"strin"}`), "'/type'"},
		{"properties that are none", schema(`{"properties":[]}`), "'/properties'"},
		{"reference to nothing", schema(`{"$ref":"#/$defs/A"}`), "$defs/A"},
		{"reference to a file", schema(`{"$ref":"file:///etc/passwd"}`), "only references inside the schema"},
		{"reference to a server", schema(`{"$ref":"http://localhost/x.json"}`), "only references inside the schema"},
		{"bad pattern inside", schema(`{"type":"string","pattern":"("}`), "'/pattern'"},
		{"bad expression", regex(`a(`), "no regular expression"},
		{"expression that closes the wrapper", regex(`a)|(?:b`), "no regular expression"},
		{"huge", schema(`{"title":"` + strings.Repeat("x", 1<<20) + `"}`), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := guided.Compile(c.format)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 {
				t.Errorf("got %v, want one line with %q", err, c.says)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	person := schema(`{"type":"object","properties":{"name":{"type":"string","pattern":"^(?!X)"},"age":{"type":"integer"}},"required":["name"],"additionalProperties":false}`)
	choice := &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"yes", "no"}}
	object := &chat.OutputFormat{Kind: chat.FormatJSONObject}
	for _, c := range []struct {
		format *chat.OutputFormat
		text   string
		keeps  bool
	}{
		{person, `{"name":"Ada","age":36}`, true},
		{person, ` {"name":"Ada"} `, true},
		{person, `{"name":"Xavier"}`, false},
		{person, `{"name":"Ada","age":3.5}`, false},
		{person, `{"name":"Ada","age":12345678901234567890123}`, true},
		{person, `{"age":3}`, false},
		{person, `{"name":"Ada"} and more`, false},
		{person, `Ada`, false},
		{object, `{}`, true},
		{object, `[]`, false},
		{object, `{`, false},
		{regex(`\d{3}|x`), "123", true},
		{regex(`\d{3}|x`), "x", true},
		{regex(`\d{3}|x`), "1234", false},
		{regex(`\d{3}|x`), "123\n", false},
		{regex(`(a+)+b`), strings.Repeat("a", 64) + "c", false},
		{choice, "yes", true},
		{choice, "yes ", false},
		{&chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: "root ::= x"}, "anything", true},
	} {
		form, err := guided.Compile(c.format)
		if err != nil {
			t.Fatal(err)
		}
		if err := form.Check(c.text); (err == nil) != c.keeps {
			t.Errorf("%s %s%s: %q: got %v, want it to keep the form: %v", c.format.Kind, c.format.Schema, c.format.Pattern, c.text, err, c.keeps)
		}
	}
}

func TestSample(t *testing.T) {
	tree := `{"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer","minimum":3,"exclusiveMaximum":5},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"]}},"$ref":"#/$defs/node"}`
	for _, f := range []*chat.OutputFormat{
		schema(tree),
		schema(`{}`), schema(`true`),
		schema(`{"type":["null","number"]}`),
		schema(`{"const":{"a":[1,2]}}`), schema(`{"enum":["a",1,null]}`),
		schema(`{"type":"array","items":{"type":"boolean"},"minItems":3,"maxItems":3}`),
		schema(`{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false}`),
		schema(`{"type":"string","minLength":40,"maxLength":45}`),
		schema(`{"type":"string","pattern":"^[A-Z]{2}-\\d+$"}`),
		schema(`{"type":"string","format":"date-time"}`),
		schema(`{"type":"number","multipleOf":0.25,"minimum":10,"maximum":11}`),
		schema(`{"type":"integer","minimum":-7,"maximum":-7}`),
		schema(`{"type":"object","required":["a<b","c"],"properties":{"c":{"oneOf":[{"type":"string"},{"type":"integer"}]}}}`),
		schema(`{"allOf":[{"type":"object","required":["a"]},{"properties":{"a":{"const":1},"b":{"const":2}}}]}`),
		regex(`(yes|no), \w+ (and \d{2,}){1,2}[^a-z]?`), regex(`.*`), regex(`^$`),
		{Kind: chat.FormatChoice, Choices: []string{"only"}},
		{Kind: chat.FormatJSONObject},
	} {
		form, err := guided.Compile(f)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for seed := range uint64(50) {
			s, err := guided.Sample(f, seed)
			if err != nil {
				t.Fatalf("%s%s: %v", f.Schema, f.Pattern, err)
			}
			if err := form.Check(s); err != nil {
				t.Errorf("%s%s: sample %q: %v", f.Schema, f.Pattern, s, err)
			}
			if again, _ := guided.Sample(f, seed); again != s {
				t.Errorf("seed %d gave %q and then %q", seed, s, again)
			}
			seen[s] = true
		}
		if string(f.Schema) == tree && len(seen) < 5 {
			t.Errorf("50 seeds gave %d texts", len(seen))
		}
	}
	for _, f := range []*chat.OutputFormat{
		schema(`false`),
		schema(`{"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"},"minItems":1}},"$ref":"#/$defs/a"}`),
		schema(`{"type":"object","required":["a"],"properties":{"a":{"type":"object","minProperties":9}}}`),
		regex(`(?=a)b`),
		{Kind: chat.FormatGrammar, Pattern: "root ::= x"},
	} {
		if s, err := guided.Sample(f, 1); err == nil {
			t.Errorf("%s%s: got a sample %q", f.Schema, f.Pattern, s)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"a":{}}`)
	f.Add(`{"anyOf":[{"type":"string","pattern":"a{3}"},{"enum":[1]}]}`, `"aaa"`)
	f.Add(`[a-f]+(x|y)?`, `abc`)
	f.Fuzz(func(t *testing.T, form, text string) {
		for _, format := range []*chat.OutputFormat{schema(form), regex(form)} {
			compiled, err := guided.Compile(format)
			if err != nil {
				continue
			}
			compiled.Check(text) //nolint:errcheck // whatever it says, it must say it
			if s, err := guided.Sample(format, 1); err == nil && compiled.Check(s) != nil {
				t.Errorf("sample %q does not keep %q", s, form)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	format := schema(`{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","tags"]}`)
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, err := guided.Compile(format); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		form, err := guided.Compile(format)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := form.Check(`{"name":"Ada","tags":["a","b","c"]}`); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func Example() {
	format := &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}
	form, err := guided.Compile(format)
	fmt.Println(err)
	fmt.Println(form.Check(`{"city":"Rome"}`))
	fmt.Println(form.Check(`{"city":7}`))
	// Output:
	// <nil>
	// <nil>
	// at '/city': got number, want string
}

func TestCompilePart(t *testing.T) {
	schema := []byte(`{"$defs":{"a b/c":{"type":"string","minLength":2},"d":{"$ref":"#/$defs/a b~1c"}},"type":"object"}`)
	for _, pointer := range []string{"/$defs/a b~1c", "/$defs/d"} {
		form, err := guided.CompilePart(schema, pointer)
		if err != nil {
			t.Fatal(err)
		}
		if err := form.Check(`"ab"`); err != nil {
			t.Errorf("%s: %v", pointer, err)
		}
		if form.Check(`"a"`) == nil {
			t.Errorf("%s: a text that is too short was taken", pointer)
		}
	}
	form, err := guided.CompilePart([]byte(`{"format":"date"}`), "")
	if err != nil || form.Check(`"2024-02-30"`) == nil || form.Check(`"2024-02-29"`) != nil {
		t.Error("formats are not checked")
	}
	if _, err := guided.CompilePart(schema, "/$defs/none"); err == nil {
		t.Error("a part that is not there was compiled")
	}
}

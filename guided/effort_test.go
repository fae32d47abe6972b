package guided_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
)

// twice is a schema of n definitions, each of which asks for the next one twice.
func twice(n int, how, last string) chat.OutputFormat {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `"d%d":`+how+`,`, i, next, next)
	}
	fmt.Fprintf(&b, `"d%d":%s}}`, n, last)
	return chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(b.String())}
}

// Sixty doublings would take longer than the machine lives; a few cost nothing.
func TestSchemaThatDoubles(t *testing.T) {
	const all, any, member = `{"allOf":[%s,%s]}`, `{"anyOf":[%s,%s]}`, `{"allOf":[{"properties":{"a":%s}},{"properties":{"a":%s}}]}`
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	cases := []struct{ name, how, last, answer string }{
		{"all hold", all, `{"type":"string"}`, `"x"`},
		{"no one holds", any, `{"type":"integer"}`, `"x"`},
		{"in members", member, `{"type":"integer"}`, deep},
		{"of an older draft", all[:1] + `"$comment":"","format":"regex",` + all[1:], `{"type":"string"}`, `"x"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bomb := twice(60, c.how, c.last)
			if c.name == "of an older draft" {
				bomb.Schema = []byte(`{"$schema":"http://json-schema.org/draft-07/schema#","allOf":[{"$ref":"#/$defs/d0"}],` + strings.TrimPrefix(string(bomb.Schema), `{"$ref":"#/$defs/d0",`))
			}
			f, err := guided.Compile(&bomb)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Check(c.answer); err == nil || !strings.Contains(err.Error(), "too long") {
				t.Errorf("Check() = %v; want that it takes too long", err)
			}
			few := twice(5, c.how, c.last)
			if f, err = guided.Compile(&few); err != nil {
				t.Fatal(err)
			}
			if err := f.Check(c.answer); err != nil && strings.Contains(err.Error(), "too long") {
				t.Errorf("five doublings: %v", err)
			}
		})
	}
	for _, schema := range []string{
		string(twice(25, all, `{"type":"string"}`).Schema), `{"type":"string","minLength":1e9}`,
	} {
		format := chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(schema)}
		if s, err := guided.Sample(&format, 1); err == nil || !strings.Contains(err.Error(), "too much") && !strings.Contains(err.Error(), "no small instance") {
			t.Errorf("Sample() = %d bytes, %v; want that it asks for too much", len(s), err)
		}
	}
}

// What one answer has used up is there again for the next.
func TestChecksDoNotShareTheirSteps(t *testing.T) {
	format := chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"array","items":{"type":"integer"}}`)}
	f, err := guided.Compile(&format)
	if err != nil {
		t.Fatal(err)
	}
	answer := "[1" + strings.Repeat(",1", 100_000) + "]"
	for range 3 {
		if err := f.Check(answer); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSchemaTooLargeToCompile(t *testing.T) {
	cases := []struct{ name, schema, want string }{
		{"deep", strings.Repeat(`{"properties":{"a":`, 400) + "{}" + strings.Repeat("}}", 400), "nested more than 128 levels"},
		{"wide", `{"anyOf":[{}` + strings.Repeat(`,{}`, 20_000) + `]}`, "more than 4096 parts"},
		{"as deep as people write", strings.Repeat(`{"properties":{"a":`, 30) + "{}" + strings.Repeat("}}", 30), ""},
	}
	for _, c := range cases {
		_, err := guided.Compile(&chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(c.schema)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// A pattern that takes too long says so, and only once.
func TestPatternOfSchemaThatTakesTooLong(t *testing.T) {
	format := chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"array","items":{"type":"string","pattern":"^(a+)+$"}}`)}
	f, err := guided.Compile(&format)
	if err != nil {
		t.Fatal(err)
	}
	evil := `"` + strings.Repeat("a", 40) + `!"`
	answer := "[" + evil + strings.Repeat(","+evil, 30) + "]"
	if err := f.Check(answer); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("Check() = %v; want that it takes too long", err)
	}
}

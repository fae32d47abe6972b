package anthropic_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/anthropic"
)

// The description is whole: schemas are JSON, what they refer to is there, and what
// must be there is what a body is refused for.
func TestSchemas(t *testing.T) {
	all := anthropic.Schemas()
	request, err := json.Marshal(anthropic.RequestSchema(false))
	if err != nil {
		t.Fatal(err)
	}
	all["request"] = string(request)
	for name, schema := range all {
		if !json.Valid([]byte(schema)) {
			t.Errorf("%s is no JSON: %s", name, schema)
		}
		for _, ref := range regexp.MustCompile(`#/components/schemas/([A-Za-z]+)`).FindAllStringSubmatch(schema, -1) {
			if _, ok := all[ref[1]]; !ok && !strings.HasPrefix(ref[1], "NVExt") { // which all APIs share
				t.Errorf("%s refers to %s", name, ref[1])
			}
		}
	}
	body := map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "Hi"}}, "max_tokens": 1}
	for count, want := range map[bool][]string{true: {"model", "messages"}, false: {"model", "messages", "max_tokens"}} {
		if got := anthropic.RequestSchema(count)["required"].([]string); !slices.Equal(got, want) {
			t.Errorf("count %v: required %v", count, got)
		}
	}
	for name := range body {
		less := map[string]any{}
		for k, v := range body {
			if k != name {
				less[k] = v
			}
		}
		raw, err := json.Marshal(less)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := anthropic.Decode(raw, anthropic.Dialect{}, anthropic.Options{}); err == nil {
			t.Errorf("a body without %s is accepted", name)
		}
	}
}

// A message has the members that its schema tells of, and no others.
func TestAnswerFitsItsSchema(t *testing.T) {
	var schema struct {
		Required   []string
		Properties map[string]struct {
			Required   []string
			Properties map[string]any
		}
	}
	if err := json.Unmarshal([]byte(anthropic.Schemas()["AnsweredMessage"]), &schema); err != nil {
		t.Fatal(err)
	}
	for _, g := range generations {
		m := object(t, g.encoder(t).AppendAnswer(nil, fold(t, g.events([]string{g.text}))))
		for _, name := range schema.Required {
			if _, ok := m[name]; !ok {
				t.Errorf("%s: no %s", g.name, name)
			}
		}
		for name := range m {
			if _, ok := schema.Properties[name]; !ok {
				t.Errorf("%s: %s is not told of", g.name, name)
			}
		}
		for name := range m["usage"].(map[string]any) {
			if _, ok := schema.Properties["usage"].Properties[name]; !ok {
				t.Errorf("%s: usage.%s is not told of", g.name, name)
			}
		}
	}
}

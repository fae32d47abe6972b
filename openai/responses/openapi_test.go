package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/openai/responses"
)

// TestDescription holds that the document is whole: every reference resolves, and
// the decoder knows each member that it names.
func TestDescription(t *testing.T) {
	raw := openai.OpenAPI("d", "1", 0, responses.Description())
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema struct{ Properties map[string]any }
				}
			}
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(raw), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is not there", name)
		}
	}
	if doc.Paths["/v1/chat/completions"] == nil || doc.Paths["/v1/responses/{id}"]["delete"].RequestBody.Content != nil {
		t.Errorf("paths %v", doc.Paths)
	}
	members := doc.Paths["/v1/responses"]["post"].RequestBody.Content["application/json"].Schema.Properties
	if len(members) < 30 {
		t.Errorf("%d members", len(members))
	}
	for name := range members {
		body := `{"model":"m","input":"a","` + name + `":null}`
		if name == "model" || name == "input" {
			body = `{"model":"m","input":"a"}`
		}
		c, err := responses.Decode([]byte(body), responses.Options{})
		if err != nil || len(c.Unknown) > 0 {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/openai"
)

func TestModels(t *testing.T) {
	got := string(openai.AppendModels(nil, []openai.Model{
		{ID: "acme/chat-8b", Created: 1790000000, OwnedBy: "dynago", ContextWindow: 32768, MaxOutputTokens: 4096},
		{ID: `a"b`, OwnedBy: "x"},
	}))
	const want = `{"object":"list","data":[{"id":"acme/chat-8b","object":"model","created":1790000000,"owned_by":"dynago","context_window":32768,"max_output_tokens":4096},` +
		`{"id":"a\"b","object":"model","created":0,"owned_by":"x"}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(openai.AppendModels(nil, nil)); got != `{"object":"list","data":[]}` {
		t.Errorf("no models: %s", got)
	}
}

// TestOpenAPI holds that the document is whole: every reference resolves, every
// operation lists the statuses it may answer, and bodies name known members.
func TestOpenAPI(t *testing.T) {
	var doc struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Properties map[string]any
						Required   []string
					}
				}
			}
		}
		Components struct{ Schemas map[string]any }
	}
	raw := openai.OpenAPI("dynago", "1.2.3", 0)
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Title != "dynago" || doc.Info.Version != "1.2.3" {
		t.Errorf("got %s, %+v", doc.OpenAPI, doc.Info)
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if ids[op.OperationID] {
				t.Errorf("operation %s is there twice", op.OperationID)
			}
			ids[op.OperationID] = true
			for _, status := range []string{"200", "400", "404", "503", "529"} {
				if op.Responses[status] == nil {
					t.Errorf("%s %s does not list %s", method, path, status)
				}
			}
			if method == "post" && len(op.RequestBody.Content["application/json"].Schema.Properties) == 0 {
				t.Errorf("%s %s has no body", method, path)
			}
		}
	}
	body := doc.Paths["/v1/chat/completions"]["post"].RequestBody.Content["application/json"].Schema
	for _, name := range []string{"model", "messages", "tools", "temperature", "nvext", "stream_options"} {
		if body.Properties[name] == nil {
			t.Errorf("chat completions lack %s", name)
		}
	}
	if strings.Join(body.Required, " ") != "model messages" {
		t.Errorf("required: %v", body.Required)
	}
	for _, part := range strings.Split(string(raw), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is not there", name)
		}
	}
	if !strings.Contains(string(openai.OpenAPI("d", "1", 429)), `"429"`) {
		t.Error("the overload status is not listed")
	}
}

// TestOpenAPIMatchesDecoder holds that the decoder knows each member that the
// document names.
func TestOpenAPIMatchesDecoder(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema struct{ Properties map[string]any }
				}
			}
		}
	}
	if err := json.Unmarshal(openai.OpenAPI("d", "1", 0), &doc); err != nil {
		t.Fatal(err)
	}
	for path, decode := range map[string]func(string) ([]string, error){
		"/v1/chat/completions": func(m string) ([]string, error) {
			c, err := openai.DecodeChat([]byte(ask(m)), openai.Options{})
			if err != nil {
				return nil, err
			}
			return c.Unknown, nil
		},
		"/v1/completions": func(m string) ([]string, error) {
			c, err := openai.DecodeCompletion([]byte(complete(m)), openai.Options{})
			if err != nil {
				return nil, err
			}
			return c.Unknown, nil
		},
	} {
		for name := range doc.Paths[path]["post"].RequestBody.Content["application/json"].Schema.Properties {
			if name == "model" || name == "messages" || name == "prompt" {
				continue
			}
			// null is absent for every member.
			unknown, err := decode(`"` + name + `":null`)
			if err != nil || len(unknown) > 0 {
				t.Errorf("%s: %s: null: %v, unknown %v", path, name, err, unknown)
			}
		}
	}
}

// TestDeltaAllocatesNothing holds what the benchmark shows.
func TestDeltaAllocatesNothing(t *testing.T) {
	enc := newStream(t, `"stream_options":{"include_usage":true}`)
	buf := make([]byte, 0, 4096)
	e := delta(0, 0, 0, "")
	for _, e := range plain {
		buf = enc.AppendEvent(buf[:0], e)
	}
	e = delta(plain[2].Kind, 0, 0, "a \"quoted\" ü\n")
	if n := testing.AllocsPerRun(100, func() { buf = enc.AppendEvent(buf[:0], e) }); n != 0 {
		t.Errorf("%v allocations per delta", n)
	}
}

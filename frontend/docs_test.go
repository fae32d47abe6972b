package frontend_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/frontend"
)

// The document tells of the caches where they can be looked after, of all members that
// a prefetch may have, and of nothing that is not there.
func TestDocumentOfCaches(t *testing.T) {
	type document struct {
		Paths map[string]map[string]struct {
			Responses   map[string]any `json:"responses"`
			RequestBody struct {
				Content map[string]struct {
					Schema struct{ Properties map[string]any }
				}
			} `json:"requestBody"`
		}
		Components struct{ Schemas map[string]any }
	}
	read := func(set func(c *frontend.Config)) (d document, raw string) {
		raw = start(t, newFake(), set).do("GET", "/openapi.json", "").body
		if err := json.Unmarshal([]byte(raw), &d); err != nil {
			t.Fatal(err)
		}
		return d, raw
	}
	all, raw := read(func(c *frontend.Config) {
		c.Prefetcher, c.Caretaker, c.Roster, c.Inventory = &caches{}, &caches{}, &roster{}, inventory{}
	})
	for _, part := range strings.Split(raw, `"$ref":"#/components/schemas/`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); all.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	for _, c := range []struct{ method, path, status string }{
		{"post", "/v1/kv/prefetch", "202"},
		{"get", "/v1/kv/prefetch/{id}", "200"},
		{"delete", "/v1/kv/prefetch/{id}", "404"},
		{"get", "/v1/kv/stats", "200"},
		{"get", "/v1/kv/sessions", "200"},
		{"get", "/v1/kv/pins", "400"},
		{"get", "/v1/kv/keys/{hash}", "404"},
		{"post", "/v1/kv/flush", "200"},
		{"post", "/v1/kv/retain", "400"},
		{"post", "/clear_kv_blocks", "403"},
	} {
		if all.Paths[c.path][c.method].Responses[c.status] == nil {
			t.Errorf("%s %s: no %s", c.method, c.path, c.status)
		}
	}
	members := all.Paths["/v1/kv/prefetch"]["post"].RequestBody.Content["application/json"].Schema.Properties
	for field := range frontend.PrefetchFields.Fields() {
		if name := field.Tag.Get("json"); members[name] == nil {
			t.Errorf("a prefetch is said to have no %s", name)
		}
	}
	none, _ := read(func(*frontend.Config) {})
	apart, _ := read(func(c *frontend.Config) { c.Caretaker, c.Inventory, c.SeparateAdmin = &caches{}, inventory{}, true })
	for path := range all.Paths {
		if !strings.Contains(path, "kv") {
			continue
		}
		if apart.Paths[path] != nil || none.Paths[path] != nil && path != "/v1/kv/stats" {
			t.Errorf("%s is told of where it is not", path)
		}
	}
}

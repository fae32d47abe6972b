package frontend_test

import (
	"fmt"
	"strings"
	"testing"
)

// Names that clients make up, of models, agents, sessions, tools, classes and paths, make
// no series of metrics: a page does not grow with what it is asked.
func TestSeriesDoNotGrow(t *testing.T) {
	s := start(t, newFake())
	ask := func(i int) {
		name := fmt.Sprintf("invented-%d", i)
		body := `{"model":%q,"messages":[{"role":"user","content":"Hello"}],"user":%q,"tools":[{"type":"function","function":{"name":%q}}],` +
			`"nvext":{"agent_context":{"session_type_id":%q,"session_id":%q,"trajectory_id":%q}}}`
		for model, status := range map[string]int{"demo": 200, name: 404} {
			got := s.do("POST", "/v1/chat/completions", fmt.Sprintf(body, model, name, name, name, name, name),
				"User-Agent", name, "X-Request-Id", name, "X-Dynamo-Session-Id", name, "X-Dynamo-Meta-Policy-Class", name, "X-"+name, name)
			if got.status != status {
				t.Fatalf("%s: %d %s", model, got.status, got.body)
			}
		}
		s.do("GET", "/v1/models/"+name, "")
		s.do("GET", "/"+name, "")
		s.do(strings.ToUpper(name), "/v1/chat/completions", "")
	}
	series := func() map[string]bool {
		names := map[string]bool{}
		for line := range strings.Lines(s.do("GET", "/metrics", "").body) {
			if !strings.HasPrefix(line, "#") {
				names[line[:strings.LastIndexByte(line, ' ')]] = true
			}
		}
		return names
	}
	ask(0)
	series() // there is one of the page itself
	before := series()
	for i := range 1000 {
		ask(1 + i)
	}
	for name := range series() {
		if !before[name] {
			t.Errorf("%s is new", name)
		}
		if strings.Contains(name, "invented") {
			t.Errorf("%s has an invented name", name)
		}
	}
	if len(before) < 50 {
		t.Errorf("%d series", len(before))
	}
}

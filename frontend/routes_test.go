package frontend_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
)

func TestUnmatchedRoutes(t *testing.T) {
	s := start(t, newFake())
	for _, c := range []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/v1/nothing", 404, `"message":"Route not found: GET /v1/nothing","type":"Not Found","code":404}`, ""},
		{"POST", "/", 405, "", "GET"},
		{"GET", "/v1/chat/completions", 405, "", "POST"},
		{"DELETE", "/v1/models/a/b", 405, "", "GET"},
		{"POST", "/health", 405, "", "GET"},
		{"PUT", "/metrics", 405, "", "GET"},
		{"GET", "/debug/pprof/", 404, "Route not found", ""},
	} {
		a := s.do(c.method, c.path, "")
		if a.status != c.status || !strings.HasSuffix(a.body, c.body) && !strings.Contains(a.body, c.body) || a.header.Get("Allow") != c.allow || a.header.Get("Request-Id") == "" {
			t.Errorf("%s %s: %d %v %s", c.method, c.path, a.status, a.header, a.body)
		}
		if c.status == 405 && a.body != "" {
			t.Errorf("%s %s: body %s", c.method, c.path, a.body)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	s := start(t, newFake())
	const id = "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001"
	for _, c := range []struct{ name, value, want string }{
		{"Request-Id", id, id},
		{"Request-Id", strings.ToUpper(id), id},
		{"X-Dynamo-Request-Id", id, id},
		{"Request-Id", "not a uuid", ""},
		{"Request-Id", strings.Repeat("1", 1000), ""},
	} {
		a := s.do("GET", "/live", "", c.name, c.value)
		got := a.header.Get("Request-Id")
		if c.want != "" && got != c.want || c.want == "" && (len(got) != 36 || got == c.value) || a.header.Get("X-Request-Id") != got {
			t.Errorf("%s %s: %v", c.name, c.value, a.header)
		}
	}
	if a := s.do("GET", "/live", "", "X-Request-Id", "mine", "Request-Id", id); a.header.Get("X-Request-Id") != "mine" || a.header.Get("Request-Id") != id {
		t.Errorf("%v", a.header)
	}
	if a := s.do("GET", "/live", "", "X-Request-Id", strings.Repeat("x", 1000)); a.header.Get("X-Request-Id") != a.header.Get("Request-Id") {
		t.Errorf("a long id is echoed: %v", a.header)
	}
}

func TestSystemRoutes(t *testing.T) {
	s := start(t, newFake())
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
		want         []string
	}{
		{"GET", "/live", 200, "application/json", []string{`{"status":"live","message":"Service is live"}`}},
		{"GET", "/ready", 200, "application/json", []string{`"ready"`}},
		{"GET", "/health", 200, "application/json", []string{`"status":"healthy"`, `"endpoints":["dyn://dynamo.backend.generate"]`, `"instance_id":42`, `"namespace":"dynamo","component":"backend","endpoint":"generate"`}},
		{"GET", "/", 200, "application/json", nil},
		{"HEAD", "/", 200, "", nil},
		{"HEAD", "/live", 200, "application/json", nil},
		{"GET", "/docs", 200, "text/html; charset=utf-8", []string{"openapi.json"}},
		{"GET", "/openapi.json", 200, "application/json", []string{`"/v1/chat/completions"`, `"529"`}},
		{"GET", "/v1/models", 200, "application/json", []string{`"object":"list"`, `"id":"acme/demo"`, `"id":"demo"`, `"context_window":4096`, `"owned_by":"dynago"`}},
		{"GET", "/v1/models/acme/demo", 200, "application/json", []string{`"id":"acme/demo"`, `"object":"model"`}},
		{"GET", "/v1/models/demo", 200, "application/json", []string{`"id":"demo"`}},
		{"GET", "/v1/models/sleepy", 503, "application/json", []string{"is not ready to serve requests yet"}},
		{"GET", "/v1/models/nobody", 404, "application/json", []string{`"code":"model_not_found"`}},
		{"GET", "/v1/models/acme/demo/ready", 200, "application/json", []string{`"ready":true`, `"model":"acme/demo"`, `"workers":2`}},
		{"GET", "/v1/models/sleepy/ready", 200, "application/json", []string{`"ready":false`, `"reason":"no worker is ready"`}},
		{"GET", "/v1/models/sleepy/ready?probe=1", 503, "application/json", []string{`"ready":false`}},
		{"GET", "/v1/models/acme/demo/ready?probe=1", 200, "application/json", nil},
		{"GET", "/v1/models/nobody/ready", 404, "application/json", nil},
	} {
		a := s.do(c.method, c.path, "")
		if a.status != c.status || a.header.Get("Content-Type") != c.contentType {
			t.Errorf("%s %s: %d %q %s", c.method, c.path, a.status, a.header.Get("Content-Type"), a.body)
		}
		for _, want := range c.want {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s %s: no %s in %s", c.method, c.path, want, a.body)
			}
		}
		if c.method == "HEAD" && a.body != "" {
			t.Errorf("%s %s: body %s", c.method, c.path, a.body)
		}
	}
	if a := s.do("GET", "/v1/models", ""); strings.Contains(a.body, "sleepy") {
		t.Errorf("a model that is not ready is listed: %s", a.body)
	}
	if a := s.do("GET", "/openapi.json", ""); !json.Valid([]byte(a.body)) {
		t.Error("openapi.json is not JSON")
	}
}

// A model whose own name ends in /ready is not mistaken for a probe.
func TestModelNamedReady(t *testing.T) {
	backend := newFake()
	backend.models = append(backend.models, pipeline.ModelInfo{ID: "acme/ready", Ready: true})
	s := start(t, backend)
	if a := s.do("GET", "/v1/models/acme/ready", ""); !strings.Contains(a.body, `"object":"model"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models/acme/ready/ready", ""); !strings.Contains(a.body, `"ready":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestNoModels(t *testing.T) {
	backend := newFake()
	backend.models = nil
	s := start(t, backend)
	if a := s.do("GET", "/ready", ""); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
	if a := s.do("GET", "/v1/models", ""); a.body != `{"object":"list","data":[]}` {
		t.Errorf("/v1/models: %s", a.body)
	}
}

func TestModelListOverrides(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) {
		c.ContextWindow, c.MaxOutputTokens, c.OwnedBy = 1000, 50, "me"
	})
	a := s.do("GET", "/v1/models/demo", "")
	for _, want := range []string{`"context_window":1000`, `"max_output_tokens":50`, `"owned_by":"me"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s in %s", want, a.body)
		}
	}
}

func TestPathOverrides(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) {
		c.Paths = map[string]string{
			frontend.PathChat: "/chat", frontend.PathCompletions: "/cmp", frontend.PathModels: "/models/",
			frontend.PathHealth: "/h", frontend.PathLive: "/l", frontend.PathMetrics: "/m",
		}
	})
	for _, c := range [][3]string{
		{"POST", "/chat", ask},
		{"POST", "/cmp", `{"model":"demo","prompt":"x"}`},
		{"GET", "/models", ""},
		{"GET", "/models/acme/demo", ""},
		{"GET", "/h", ""},
		{"GET", "/l", ""},
		{"GET", "/m", ""},
	} {
		if a := s.do(c[0], c[1], c[2]); a.status != 200 {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.status, a.body)
		}
	}
	if a := s.do("POST", "/v1/chat/completions", ask); a.status != 404 {
		t.Errorf("the old path still answers %d", a.status)
	}
	for _, c := range [][2]string{
		{frontend.PathHealth, "/live"},
		{frontend.PathChat, "/tokenize"},
		{frontend.PathLive, "live"},
		{frontend.PathModels, "/{x}"},
		{frontend.PathChat, "/"},
		{frontend.PathModels, "//"},
		{frontend.PathChat, "/a/../b"},
		{frontend.PathChat, "/a b"},
		{frontend.PathLive, "/a?b"},
		{frontend.PathLive, "/a%20b"},
	} {
		_, err := frontend.New(frontend.Config{Backend: newFake(), Paths: map[string]string{c[0]: c[1]}})
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s at %s: %v", c[0], c[1], err)
		}
	}
	// The same path under another method is no conflict.
	if _, err := frontend.New(frontend.Config{Backend: newFake(), Paths: map[string]string{frontend.PathChat: "/v1/models/chat"}}); err != nil {
		t.Error(err)
	}
}

func TestAdminPort(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.SeparateAdmin = true })
	if a := s.do("GET", "/metrics", ""); a.status != 404 {
		t.Errorf("public /metrics: %d", a.status)
	}
	for path, want := range map[string]int{"/metrics": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/v1/models": 404} {
		w := &recorder{header: http.Header{}}
		r, _ := http.NewRequest("GET", "http://x"+path, http.NoBody)
		s.AdminHandler().ServeHTTP(w, r)
		if w.status != want {
			t.Errorf("admin %s: %d, want %d", path, w.status, want)
		}
	}
	bare, err := frontend.New(frontend.Config{Backend: newFake(), SeparateAdmin: true, NoAdmin: true})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/metrics": 200, "/debug/pprof/": 404} {
		w := &recorder{header: http.Header{}}
		r, _ := http.NewRequest("GET", "http://x"+path, http.NoBody)
		bare.AdminHandler().ServeHTTP(w, r)
		if w.status != want {
			t.Errorf("admin without admin routes, %s: %d, want %d", path, w.status, want)
		}
	}
}

func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# ours\nsk-one team-a\n\nsk-two\n")
	keys, err := frontend.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, newFake(), func(c *frontend.Config) { c.Keys = keys })
	try := func(want int, header ...string) {
		t.Helper()
		for _, path := range []string{"/live", "/v1/models", "/metrics", "/nowhere"} {
			got := s.do("GET", path, "", header...).status
			if want == 401 && got != 401 || want != 401 && got == 401 {
				t.Errorf("%s with %q: %d", path, header, got)
			}
		}
		if a := s.do("POST", "/v1/chat/completions", ask, header...); a.status != want {
			t.Errorf("chat with %q: %d %s", header, a.status, a.body)
		}
	}
	try(401)
	try(401, "Authorization", "Bearer sk-three")
	try(401, "Authorization", "Bearer ")
	try(401, "Authorization", "Basic sk-one")
	try(401, "Authorization", "sk-one")
	try(401, "X-Api-Key", "sk-one team-a")
	try(401, "X-Api-Key", "#")
	try(200, "Authorization", "Bearer sk-one")
	try(200, "Authorization", "bearer  sk-two")
	try(200, "X-Api-Key", "sk-two")

	a := s.do("GET", "/live", "")
	if !strings.Contains(a.body, `"code":"invalid_api_key"`) || a.header.Get("WWW-Authenticate") != "Bearer" || a.header.Get("Request-Id") == "" {
		t.Errorf("%v %s", a.header, a.body)
	}
	if log := s.log.String(); !strings.Contains(log, `"tenant":"team-a"`) || strings.Contains(log, "sk-") {
		t.Errorf("log:\n%s", log)
	}

	write("sk-three\n")
	if err := keys.Reload(); err != nil {
		t.Fatal(err)
	}
	try(401, "X-Api-Key", "sk-one")
	try(200, "X-Api-Key", "sk-three")
	write("one two three\n")
	if err := keys.Reload(); err == nil || !strings.Contains(err.Error(), "line 1") || strings.Contains(err.Error(), "one") {
		t.Errorf("a broken file: %v", err)
	}
	try(200, "X-Api-Key", "sk-three")
}

func TestKeysFileErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "comments": "# nothing\n", "twice": "a\na x\n", "three": "a b c\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := frontend.ReadKeys(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := frontend.ReadKeys(filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent file is accepted")
	}
}

// A keys file that changes is read again without being asked to.
func TestKeysFollowTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := frontend.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	var late time.Duration
	frontend.SetClock(keys, func() time.Time { return time.Now().Add(late) })
	s := start(t, newFake(), func(c *frontend.Config) { c.Keys = keys })
	if err := os.WriteFile(path, []byte("new key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.do("GET", "/live", "", "X-Api-Key", "new").status; got != 401 {
		t.Errorf("looked at the file at once: %d", got)
	}
	late = time.Minute
	if got := s.do("GET", "/live", "", "X-Api-Key", "new").status; got != 200 {
		t.Errorf("the new key: %d", got)
	}
}

package frontend_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/nvext"
)

// asks are bodies of all APIs, by their paths; the verb is for more members.
var asks = map[string]string{
	"/v1/chat/completions": `{"model":"demo","messages":[{"role":"user","content":"Hi"}]%s}`,
	"/v1/completions":      `{"model":"demo","prompt":"Hi"%s}`,
	"/v1/responses":        `{"model":"demo","input":"Hi"%s}`,
	"/v1/messages":         `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]%s}`,
}

func TestMetadata(t *testing.T) {
	many := func(n, bytes int) (h []string) {
		for i := range n {
			h = append(h, fmt.Sprintf("x-dynamo-meta-%02d", i), strings.Repeat("v", bytes/n-2))
		}
		return h
	}
	for name, c := range map[string]struct {
		prefix string
		header []string
		want   map[string]string
		says   string // of a refusal
	}{
		"nothing":      {"", []string{"x-other", "1"}, nil, ""},
		"some":         {"", []string{"X-Dynamo-Meta-Trace", " a b ", "x-dynamo-meta-empty", ""}, map[string]string{"trace": "a b", "empty": ""}, ""},
		"no name":      {"", []string{"x-dynamo-meta-", "x"}, nil, ""},
		"secrets":      {"", []string{"x-dynamo-meta-authorization", "me", "x-dynamo-meta-key", "BEARER x", "x-dynamo-meta-ok", "bearer"}, map[string]string{"ok": "bearer"}, ""},
		"not UTF-8":    {"", []string{"x-dynamo-meta-a", "\xff"}, nil, ""},
		"other prefix": {"x-acme-", []string{"x-acme-a", "1", "x-dynamo-meta-b", "2"}, map[string]string{"a": "1"}, ""},
		"the most":     {"", many(64, 64*3), nil, ""},
		"too many":     {"", many(65, 65*3), nil, "metadata headers exceed the limit of 64 entries"},
		"too long":     {"", many(2, 64<<10+2), nil, "metadata headers exceed the limit of 65536 bytes"},
	} {
		backend := newFake()
		s := start(t, backend, func(f *frontend.Config) { f.MetadataHeader = c.prefix })
		for path, body := range asks {
			before := len(backend.requests())
			a := s.do("POST", path, fmt.Sprintf(body, ""), append(c.header, "content-type", "application/json")...)
			seen := backend.requests()[before:]
			switch {
			case c.says != "":
				if a.status != 431 || !strings.Contains(a.body, c.says) || len(seen) != 0 {
					t.Errorf("%s: %s: %d %s, and %d requests came down", name, path, a.status, a.body, len(seen))
				}
			case a.status != 200:
				t.Errorf("%s: %s: %d %s", name, path, a.status, a.body)
			case name == "the most":
				if len(seen[0].Meta) != 64 {
					t.Errorf("%s: %s: %d", name, path, len(seen[0].Meta))
				}
			case !maps.Equal(seen[0].Meta, c.want):
				t.Errorf("%s: %s: %q, want %q", name, path, seen[0].Meta, c.want)
			}
		}
	}
}

// Where nvext is off nothing of it has any effect, and one line tells of it.
func TestTurnedOff(t *testing.T) {
	off := func(c *frontend.Config) {
		c.OpenAI.DisableNVExt, c.Responses.DisableNVExt, c.Anthropic.DisableNVExt = true, true, true
		c.OpenAI.StrictNVExt, c.Responses.StrictNVExt, c.Anthropic.StrictNVExt = true, true, true
	}
	const (
		full   = `,"nvext":{"agent_hints":{"priority":7},"session_control":{"session_id":"s","action":"close"},"cache_salt":"x","greed_sampling":true,"max_thinking_tokens":3,"novel":1}`
		broken = `,"nvext":{"agent_hints":{"osl":"many"},"token_data":[]}`
	)
	headers := []string{"x-worker-instance-id", "7", "x-tenant-id", "t", "x-dynamo-request-priority", "9", "x-dynamo-meta-policy-class", "nightly", "x-dynago-debug", "1"}
	for path, body := range asks {
		for name, c := range map[string]struct {
			member string
			header []string
			warns  bool
		}{
			"nothing":    {"", nil, false},
			"the member": {full, nil, true},
			"a bad one":  {broken, nil, true},
			"null":       {`,"nvext":null`, nil, false},
			"headers":    {"", headers, true},
			"both":       {full, headers, true},
		} {
			backend := newFake()
			s := start(t, backend, off)
			a := s.do("POST", path, fmt.Sprintf(body, c.member), append(c.header, "content-type", "application/json", "x-dynamo-session-id", "kept")...)
			if a.status != 200 || a.header.Get("x-dynago-debug") != "" {
				t.Errorf("%s: %s: %d %s", path, name, a.status, a.body)
				continue
			}
			r := backend.requests()[0]
			if r.Ext != nil || r.Meta != nil || r.Class != "" || r.Debug || r.KV.Priority != nil || r.KV.Namespace.Salt != "" ||
				r.Chat.Sampling.Temperature != nil || r.Chat.Thinking.Budget != nil || r.Identity != (nvext.Identity{Chain: "kept", Key: "kept"}) {
				t.Errorf("%s: %s: %+v, sampling %+v", path, name, r, r.Chat.Sampling)
			}
			want := 0
			if c.warns {
				want = 1
			}
			if n := strings.Count(s.log.String(), "nvext is turned off"); n != want {
				t.Errorf("%s: %s: %d warnings, want %d", path, name, n, want)
			}
		}
	}
}

// What nobody knows is told of once, however often it comes, and no more names are
// kept than there is room for.
func TestStrangers(t *testing.T) {
	s := start(t, newFake())
	ask := func(members string) {
		t.Helper()
		if a := s.do("POST", "/v1/chat/completions", fmt.Sprintf(asks["/v1/chat/completions"], `,"nvext":{`+members+`}`), "content-type", "application/json"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for range 3 {
		ask(`"mood":1,"agent_hints":{"mood":2,"priority":1}`)
	}
	for _, member := range []string{`"nvext.mood"`, `"nvext.agent_hints.mood"`} {
		if n := strings.Count(s.log.String(), member); n != 1 {
			t.Errorf("%s is told of %d times", member, n)
		}
	}
	for i := range 70 {
		var members []string
		for k := range 16 {
			members = append(members, fmt.Sprintf(`"made_up_%d_%d":0`, i, k))
		}
		ask(strings.Join(members, ","))
	}
	if n := strings.Count(s.log.String(), "nvext.made_up_"); n != 1022 {
		t.Errorf("%d names are told of, want 1022", n)
	}
}

// What a tenant asks for beyond its caps it gets as far as they go, and is counted.
func TestCapped(t *testing.T) {
	backend := newFake()
	s := start(t, backend, withKeys(t, "k1 acme\nk2 blue\n"), func(c *frontend.Config) {
		c.Tenants = map[string]*nvext.Caps{"acme": {MaxPriority: new(int32(5)), MaxStrictPriority: new(uint32(1))}}
	})
	for key, want := range map[string][2]int64{"k1": {5, 1}, "k2": {9, 4}} {
		for path, body := range asks {
			before := len(backend.requests())
			a := s.do("POST", path, fmt.Sprintf(body, `,"nvext":{"agent_hints":{"strict_priority":4}}`), "content-type", "application/json", "x-api-key", key, "x-dynamo-request-priority", "9")
			if a.status != 200 {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
			r := backend.requests()[before]
			if h := r.Ext.AgentHints; [2]int64{int64(*h.Priority), int64(*h.StrictPriority)} != want || int64(*r.KV.Priority) != want[0] {
				t.Errorf("%s of %s: %d, %d, and %d for what it caches; want %v", path, key, *h.Priority, *h.StrictPriority, *r.KV.Priority, want)
			}
			if (r.Caps != nil) != (key == "k1") {
				t.Errorf("%s of %s: caps %+v", path, key, r.Caps)
			}
		}
	}
	page := s.do("GET", "/metrics", "", "x-api-key", "k1").body
	for _, line := range []string{`dynago_tenant_capped_total{cap="max_priority",tenant="acme"} 4`, `dynago_tenant_capped_total{cap="max_strict_priority",tenant="acme"} 4`} {
		if !strings.Contains(page, line) {
			t.Errorf("the page has no %s", line)
		}
	}
	if strings.Contains(page, `tenant="blue"`) {
		t.Error("a tenant without caps was capped")
	}
}

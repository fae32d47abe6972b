package frontend_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// caches are those of a fleet that write down what is wanted of them.
type caches struct {
	asked    *pipeline.PrefetchRequest
	tenant   string
	model    string
	retained engine.RetentionUpdate
	none     bool
}

func (c *caches) Prefetch(_ context.Context, q *pipeline.PrefetchRequest) (pipeline.Prefetch, error) {
	c.asked = q
	return pipeline.Prefetch{Worker: 7, PrefetchState: engine.PrefetchState{ID: "pf_1", State: "running", Requested: 500, Already: 120, Scheduled: 380}}, nil
}

func (c *caches) PrefetchState(_ context.Context, tenant, id string) (pipeline.Prefetch, error) {
	c.tenant = tenant
	if id != "pf_1" {
		return pipeline.Prefetch{}, &engine.Error{Kind: engine.NotFound, Message: "There is no prefetch", Code: "prefetch_not_found"}
	}
	return pipeline.Prefetch{Worker: 7, PrefetchState: engine.PrefetchState{ID: id, State: "running", Loaded: 300, Failed: 1}}, nil
}

func (c *caches) CancelPrefetch(ctx context.Context, tenant, id string) (pipeline.Prefetch, error) {
	p, err := c.PrefetchState(ctx, tenant, id)
	p.State = "cancelled"
	return p, err
}

func (c *caches) Flush(_ context.Context, model string) []pipeline.Upkeep {
	if c.model = model; c.none {
		return nil
	}
	return []pipeline.Upkeep{
		{Worker: 7, Name: "w0", Model: "acme/demo", Answer: json.RawMessage(`{"ok":true}`)},
		{Worker: 8, Name: "w1", Model: "acme/demo", Err: engine.Errorf(engine.Unsupported, "it cannot")},
	}
}

func (c *caches) Retain(_ context.Context, model string, u engine.RetentionUpdate) []pipeline.Upkeep {
	c.model, c.retained = model, u
	return []pipeline.Upkeep{{Worker: 7, Name: "w0", Model: "acme/demo", Updated: 2}}
}

// Agents have blocks brought up, ask about it and end it.
func TestPrefetchRoutes(t *testing.T) {
	c := &caches{}
	s := start(t, newFake(), func(f *frontend.Config) { f.Prefetcher = c })
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := `{"model":"demo","session_id":" s-42 ","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"target_tier":"g2","deadline":"` + soon + `","worker":"7","cache_salt":"blue"}`
	got := s.do("POST", "/v1/kv/prefetch", body)
	if got.status != 202 || got.body != `{"prefetch_id":"pf_1","worker_id":7,"state":"running","blocks":{"requested":500,"already":120,"scheduled":380,"missing":0}}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	q := c.asked
	if q.Session != "s-42" || q.Worker != 7 || q.Target != kv.TierHost || q.Namespace.Salt != "blue" || q.In < 59*time.Minute || q.In > time.Hour ||
		len(q.Chat.Turns) != 1 || len(q.Chat.Tools) != 1 || q.Chat.Model != "demo" || q.Hashes != nil {
		t.Errorf("asked %+v, %+v", q, q.Chat)
	}
	s.do("POST", "/v1/kv/prefetch", `{"model":"demo","block_hashes":[1,"18446744073709551615"],"worker":null}`, "X-Tenant-Id", "red")
	if q := c.asked; len(q.Hashes) != 2 || q.Hashes[1] != 1<<64-1 || q.Namespace.Salt != "red" || q.Target != kv.TierDevice || q.In != 0 || q.Worker != 0 {
		t.Errorf("asked %+v", q)
	}
	for _, tc := range []struct {
		method, path string
		want         int
		says         string
	}{
		{"GET", "/v1/kv/prefetch/pf_1", 200, `{"state":"running","loaded":300,"failed":1}`},
		{"DELETE", "/v1/kv/prefetch/pf_1", 200, `{"state":"cancelled","loaded":300,"failed":1}`},
		{"GET", "/v1/kv/prefetch/pf_2", 404, "prefetch_not_found"},
		{"GET", "/v1/kv/prefetch", 405, ""},
	} {
		if got := s.do(tc.method, tc.path, ""); got.status != tc.want || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, got.status, got.body)
		}
	}
}

// Whose blocks are meant, and whose worker, is said as it is of requests: headers win
// over the extension, and that over what stands beside it.
func TestPrefetchIdentity(t *testing.T) {
	const hashes = `"model":"demo","block_hashes":[1]`
	for _, tc := range []struct {
		more          string
		header        []string
		off           bool
		salt, session string
	}{
		{more: `,"cache_salt":"a"`, salt: "a"},
		{more: `,"cache_salt":"a","nvext":null`, salt: "a"},
		{more: `,"cache_salt":"a","nvext":{"cache_salt":"b"}`, salt: "b"},
		{more: `,"nvext":{"cache_salt":"b","session_control":{"session_id":"s"}}`, salt: "b", session: "s"},
		{more: `,"nvext":{"cache_salt":"b"}`, header: []string{"x-tenant-id", "c", "x-dynamo-session-id", "h"}, salt: "c", session: "h"},
		{more: `,"session_id":"own","nvext":{"session_control":{"session_id":"s"}}`, header: []string{"x-dynamo-session-id", "h"}, session: "own"},
		{more: `,"cache_salt":"a","nvext":{"cache_salt":"b","session_control":{"session_id":"s"}}`, header: []string{"x-tenant-id", "c"}, off: true, salt: "a"},
	} {
		c := &caches{}
		s := start(t, newFake(), func(f *frontend.Config) { f.Prefetcher, f.OpenAI.DisableNVExt = c, tc.off })
		if got := s.do("POST", "/v1/kv/prefetch", "{"+hashes+tc.more+"}", tc.header...); got.status != 202 {
			t.Fatalf("%s: %d %s", tc.more, got.status, got.body)
		}
		if q := c.asked; q.Namespace.Salt != tc.salt || q.Session != tc.session {
			t.Errorf("%s: salt %q and session %q, want %q and %q", tc.more, q.Namespace.Salt, q.Session, tc.salt, tc.session)
		}
	}
	s := start(t, newFake(), func(f *frontend.Config) { f.Prefetcher, f.OpenAI.StrictNVExt = &caches{}, true })
	for more, says := range map[string]string{
		`,"nvext":{"cache_salt":1}`: `"param":"nvext.cache_salt"`,
		`,"nvext":7`:                "nvext: expected an object",
		`,"nvext":{"salt":"b"}`:     "nvext.salt: unknown field",
		`,"cache_salt":"` + strings.Repeat("x", 1025) + `"`: "at most 1024 bytes",
	} {
		if got := s.do("POST", "/v1/kv/prefetch", "{"+hashes+more+"}"); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s, want %s", more, got.status, got.body, says)
		}
	}
}

// Operators let caches forget, and change what blocks are worth.
func TestCacheRoutes(t *testing.T) {
	c := &caches{}
	s := start(t, newFake(), func(f *frontend.Config) { f.Caretaker = c })
	for _, tc := range []struct {
		path, body string
		want       int
		says       string
	}{
		{"/v1/kv/flush?model=demo", "", 200, `"flushed":[{"worker_id":7,"worker":"w0","model":"acme/demo"}]`},
		{"/v1/kv/flush", "", 200, `"failed":[{"worker_id":8,"worker":"w1","model":"acme/demo","error":`},
		{"/clear_kv_blocks", "", 200, `{"name":"acme/demo-instance-7","endpoint":"dynamo/backend/clear_kv_blocks","status":"Successfully cleared kv blocks for instance","response":"{\"ok\":true}"}`},
		{"/clear_kv_blocks", "", 200, `"status":"No instances found for clear_kv_blocks endpoint"`},
		{"/v1/kv/retain", `{"priority":5}`, 400, "block_hashes"},
		{"/v1/kv/retain", `{"block_hashes":[1]}`, 400, "priority must be given"},
		{"/v1/kv/retain", `{"block_hashes":[1],"priority":101}`, 400, "priority must be from 0 to 100"},
		{"/v1/kv/retain", `{"block_hashes":[1],"priority":-1}`, 400, "priority"},
		{"/v1/kv/retain", `{"block_hashes":[1.5],"priority":1}`, 400, "block_hashes[0]"},
		{"/v1/kv/retain", `{"block_hashes":"1","priority":1}`, 400, "block_hashes: expected an array"},
		{"/v1/kv/retain", `{"block_hashes":null,"priority":1}`, 400, "at least one hash"},
		{"/v1/kv/retain", `{"block_hashes":[` + strings.Repeat("1,", 1<<20) + `{}],"priority":1}`, 400, "at most 1048576 elements"},
		{"/v1/kv/retain", `{"block_hashes":[1],"priority":1,"ttl":"soon"}`, 400, "ttl"},
		{"/v1/kv/retain", `{"block_hashes":[1],"priority":1,"ttl":0}`, 400, "ttl"},
		{"/v1/kv/retain", `{"model":"demo","block_hashes":["18446744073709551615"],"priority":80,"ttl":"5m"}`, 200, `"retained":[{"worker_id":7,"worker":"w0","model":"acme/demo","updated":2}]`},
	} {
		if got := s.do("POST", tc.path, tc.body); got.status != tc.want || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s %s: %d %s, want %d and %s", tc.path, tc.body, got.status, got.body, tc.want, tc.says)
		}
	}
	if u := c.retained; c.model != "demo" || len(u.Hashes) != 1 || u.Hashes[0] != 1<<64-1 || u.Priority != 80 || u.TTL != 5*time.Minute {
		t.Errorf("retained %+v of %q", u, c.model)
	}
	c.none = true
	if got := s.do("POST", "/clear_kv_blocks", ""); got.body != `{"message":"No active worker groups found"}` {
		t.Errorf("without workers: %s", got.body)
	}
	apart := start(t, newFake(), func(f *frontend.Config) { f.Caretaker, f.SeparateAdmin = c, true })
	if got := apart.do("POST", "/v1/kv/flush", ""); got.status != 404 {
		t.Errorf("with a listener for operators the public one answers %d", got.status)
	}
}

// Whatever a body is, it is a prefetch or an error of the client's.
func FuzzPrefetch(f *testing.F) {
	for _, body := range []string{`{"model":"demo","prompt":"a"}`, `{"model":"demo","token_ids":[1],"deadline":"2030-01-01T00:00:00Z"}`, `{"model":"demo","block_hashes":["1",2],"worker":3}`, `[]`, `{"messages":null}`, `{"model":"demo","prompt":"a","nvext":{"cache_salt":"b"}}`} {
		f.Add(body)
	}
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body string) {
		q, ext, err := frontend.DecodePrefetch(new(frontend.Server), []byte(body), now)
		if err != nil {
			return
		}
		if q.Chat == nil || q.Chat.Model == "" || q.In < 0 || q.Target > kv.TierHost || len(q.Session) > 256 || ext != nil && len(ext.CacheSalt) > nvext.MaxSalt || q.Hashes == nil && q.Chat.Prompt == nil && len(q.Chat.Turns) == 0 {
			t.Errorf("%q is %+v", body, q)
		}
	})
}

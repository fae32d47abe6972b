package frontend_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// What headers say comes down with the request, over what its body says.
func TestHeadersComeDown(t *testing.T) {
	const (
		plain = `{"model":"demo","messages":[{"role":"user","content":"Hi"}]}`
		full  = `{"model":"demo","messages":[{"role":"user","content":"Hi"}],"prompt_cache_key":"family",
			"nvext":{"agent_hints":{"priority":1,"osl":9},"session_control":{"session_id":"control"},"decode_worker_id":3,"cache_salt":"body"}}`
	)
	for name, c := range map[string]struct {
		change func(*frontend.Config)
		body   string
		header []string
		ok     func(*pipeline.Request) bool
	}{
		"nothing": {nil, plain, nil, func(r *pipeline.Request) bool {
			return r.Ext == nil && r.Identity == nvext.Identity{} && r.Class == "" && r.KV.Session == kv.Session{}
		}},
		"session": {nil, plain, []string{"x-dynamo-session-id", "s", "x-dynamo-parent-session-id", "p"}, func(r *pipeline.Request) bool {
			return r.Identity == nvext.Identity{Chain: "s", Key: "s", Parent: "p"} && r.KV.Session == kv.Session{ID: "s", Parent: "p"} && !r.KV.EvictSession
		}},
		"last of a session": {nil, plain, []string{"thread-id", "t", "x-dynamo-session-final", "true"}, func(r *pipeline.Request) bool {
			return r.Identity.Final && r.KV.EvictSession
		}},
		"session of the body": {nil, full, []string{"x-session-id", "other"}, func(r *pipeline.Request) bool {
			return r.Identity == nvext.Identity{Chain: "control", Key: "control"}
		}},
		"terms of a session": {nil, `{"model":"demo","messages":[{"role":"user","content":"Hi"}],"nvext":{"session_control":{"session_id":"c","action":"bind","timeout":7,"ephemeral":true}}}`, nil, func(r *pipeline.Request) bool {
			return r.KV.Session == kv.Session{ID: "c", Timeout: 7 * time.Second, Ephemeral: true} && !r.KV.EvictSession
		}},
		"close of a session": {nil, `{"model":"demo","messages":[{"role":"user","content":"Hi"}],"nvext":{"session_control":{"session_id":"c","action":"close"}}}`, nil, func(r *pipeline.Request) bool {
			return r.KV.Session == kv.Session{ID: "c"} && r.KV.EvictSession
		}},
		"last of a trajectory": {nil, `{"model":"demo","messages":[{"role":"user","content":"Hi"}],"nvext":{"agent_context":{"session_type_id":"a","session_id":"b","trajectory_id":"c","trajectory_final":true}}}`, nil, func(r *pipeline.Request) bool {
			return r.Identity.Final && r.KV.EvictSession
		}},
		"prompt cache key": {nil, `{"model":"demo","messages":[{"role":"user","content":"Hi"}],"prompt_cache_key":"family"}`, nil, func(r *pipeline.Request) bool {
			return r.Identity.Key == "family"
		}},
		"priority": {nil, full, []string{"x-dynamo-request-priority", "-5", "x-dynamo-request-strict-priority", "2"}, func(r *pipeline.Request) bool {
			h := r.Ext.AgentHints
			return *h.Priority == -5 && *r.KV.Priority == -5 && *h.StrictPriority == 2 && *h.OSL == 9
		}},
		"worker": {nil, full, []string{"x-worker-instance-id", "7", "x-dp-rank", "1"}, func(r *pipeline.Request) bool {
			return *r.Ext.DecodeWorkerID == 7 && *r.Ext.BackendInstanceID == 7 && *r.Ext.DPRank == 1
		}},
		"tenant": {nil, full, []string{"x-tenant-id", "t"}, func(r *pipeline.Request) bool {
			return r.Ext.CacheSalt == "t" && r.KV.Namespace.Salt == "t"
		}},
		"class": {nil, plain, []string{"x-dynamo-meta-policy-class", " nightly "}, func(r *pipeline.Request) bool {
			return r.Class == "nightly" && r.Ext == nil
		}},
		"without extension": {
			func(c *frontend.Config) { c.OpenAI.DisableNVExt = true }, full,
			[]string{"x-worker-instance-id", "7", "x-dynamo-request-priority", "4", "x-session-id", "s"},
			func(r *pipeline.Request) bool { return r.Ext == nil && r.Identity.Key == "s" },
		},
	} {
		backend := newFake()
		var change []func(*frontend.Config)
		if c.change != nil {
			change = append(change, c.change)
		}
		s := start(t, backend, change...)
		if a := s.do("POST", "/v1/chat/completions", c.body, append(c.header, "content-type", "application/json")...); a.status != 200 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
			continue
		}
		if r := backend.requests()[0]; !c.ok(r) {
			t.Errorf("%s: identity %+v, directives %+v, extension %+v, class %q", name, r.Identity, r.KV, r.Ext, r.Class)
		}
	}
}

// A client is told what became of its session where that may surprise it.
func TestSessionIsTold(t *testing.T) {
	for want, notes := range map[string]pipeline.Notes{
		"":         {Session: router.SessionFollowed},
		"pinned":   {Session: router.SessionPinned},
		"unknown":  {Session: router.SessionUnknown},
		"degraded": {Session: router.SessionBound, Degraded: true},
	} {
		backend := newFake()
		backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
			return func(yield func(chat.Event, error) bool) {
				n := requests[0].Notes
				n.Session, n.Degraded = notes.Session, notes.Degraded // as late as it may come
				hello(1)(yield)
			}
		}
		s := start(t, backend)
		for _, stream := range []string{"true", "false"} {
			a := s.do("POST", "/v1/chat/completions", `{"model":"demo","stream":`+stream+`,"messages":[{"role":"user","content":"Hi"}]}`)
			if got := a.header.Get("x-dynago-session"); a.status != 200 || got != want {
				t.Errorf("stream %s: %d, told %q, want %q", stream, a.status, got, want)
			}
		}
	}
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// routingRows are what is promised about where and when a request runs.
var routingRows = slices.Concat(pinRows, pairRows, constraintRows, saltRows, hintRows)

// on checks that one worker did it all.
func on(worker int) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		t.Helper()
		if w := c.only(t).worker; w != worker {
			t.Errorf("on worker %d, want %d", w, worker)
		}
	}
}

// onRank checks that the worker with two ranks was told one.
func onRank(rank uint32) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		t.Helper()
		if s := c.only(t); s.worker != 2 || s.DPRank == nil || *s.DPRank != rank {
			t.Errorf("on worker %d, rank %v", s.worker, s.DPRank)
		}
	}
}

// comeBack checks that the client is told when to try again.
func comeBack(t *testing.T, c *crossing) {
	t.Helper()
	if len(c.sent) != 0 || c.header.Get("Retry-After") == "" {
		t.Errorf("workers were asked %d times; headers %q", len(c.sent), c.header)
	}
}

var pinRows = []row{
	{field: "backend_instance_id", nvext: `{"backend_instance_id":{other}}`, check: on(1)},
	{field: "backend_instance_id as text", nvext: `{"backend_instance_id":"{other}"}`, check: on(1)},
	{field: "decode_worker_id", nvext: `{"decode_worker_id":{other}}`, check: on(1)},
	{field: "decode_worker_id before backend_instance_id", nvext: `{"decode_worker_id":{other},"backend_instance_id":{worker}}`, check: on(1)},
	{field: "prefill_worker_id where there are no legs", nvext: `{"prefill_worker_id":1,"decode_worker_id":{worker}}`, check: on(0)},
	{field: "x-dynamo-worker-instance-id", header: []string{"x-dynamo-worker-instance-id", " {other} "}, check: on(1)},
	{field: "x-worker-instance-id", header: []string{"X-Worker-Instance-ID", "{other}"}, check: on(1)},
	{field: "x-worker-instance-id before the body", header: []string{"x-worker-instance-id", "{other}"}, nvext: `{"backend_instance_id":{worker},"decode_worker_id":{worker}}`, check: on(1)},
	{field: "x-worker-instance-id that is bad", header: []string{"x-worker-instance-id", "w"}, nvext: `{"decode_worker_id":{other}}`, check: on(1)},
	{field: "a bad name keeps its alias out", header: []string{"x-dynamo-worker-instance-id", "w", "x-worker-instance-id", "{worker}"}, nvext: `{"decode_worker_id":{other}}`, check: on(1)},
	{field: "dp_rank", nvext: `{"backend_instance_id":{ranked},"dp_rank":1}`, check: onRank(1)},
	{field: "dp_rank by header", header: []string{"x-worker-instance-id", "{ranked}", "x-dynamo-dp-rank", "1"}, nvext: `{"dp_rank":0}`, check: onRank(1)},
	{field: "dp_rank by an older header", header: []string{"x-worker-instance-id", "{ranked}", "x-data-parallel-rank", "1"}, check: onRank(1)},
	{field: "dp_rank that is unset", nvext: `{"backend_instance_id":{other},"dp_rank":4294967295}`, check: on(1)},
	{field: "dp_rank that is not there", nvext: `{"backend_instance_id":{ranked},"dp_rank":2}`, status: 400, says: "the worker has ranks 0 to 1, not 2"},
	{field: "a worker that has gone", nvext: `{"backend_instance_id":4242}`, status: 503, check: comeBack},
	{field: "a worker that has gone, by header", header: []string{"x-worker-instance-id", "4242"}, status: 503, check: comeBack},
	{field: "worker 0", nvext: `{"decode_worker_id":0}`, status: 503, check: comeBack},
	{field: "the largest id", nvext: `{"decode_worker_id":18446744073709551615}`, status: 503, check: comeBack},
	{
		field: "a worker that is busy", nvext: `{"backend_instance_id":{worker}}`, flags: []string{"--active-decode-blocks-threshold", "0.02"}, status: 529,
		before: func(t *testing.T, c *crossing) { c.occupy(t) }, check: comeBack,
	},
	{
		field: "another one beside it", nvext: `{"backend_instance_id":{other}}`, flags: []string{"--active-decode-blocks-threshold", "0.02"},
		before: func(t *testing.T, c *crossing) { c.occupy(t) }, check: on(1),
	},
}

// occupy keeps the first worker busy until the crossing ends: of its 1024 blocks it
// takes more than 20.
func (c *crossing) occupy(t *testing.T) {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	body := c.fill(`{"model":"dynago/demo","messages":[{"role":"user","content":"hold the line` + strings.Repeat(", and the next one", 200) + `"}],"nvext":{"backend_instance_id":{worker}}}`)
	ask := func() <-chan reply { return later(c.request(ctx, "POST", c.url+"/v1/chat/completions", body)) }
	left := ask()
	until(t, "the worker is at it", func() bool {
		select {
		case <-left: // it has not heard yet that the one before has left
			left = ask()
		default:
		}
		return len(c.seen.take()) > 0
	})
	c.after = func() {
		leave()
		<-left
		until(t, "empty books", func() bool { return c.nothingBooked() })
	}
}

// legs checks where the prompt was computed and where the answer was made.
func legs(prefill, decode int) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		t.Helper()
		if len(c.sent) != 2 || c.sent[0].worker != prefill || c.sent[1].worker != decode {
			t.Errorf("workers were asked: %v, want %d and %d", c.sent, prefill, decode)
		}
	}
}

var pairRows = []row{
	{pair: true, field: "prefill_worker_id and decode_worker_id", nvext: `{"prefill_worker_id":{prefill},"decode_worker_id":{other}}`, check: legs(2, 1)},
	{pair: true, field: "prefill_worker_id alone", nvext: `{"prefill_worker_id":{prefill}}`, check: func(t *testing.T, c *crossing) {
		if len(c.sent) != 2 || c.sent[0].worker != 2 || c.sent[1].worker > 1 {
			t.Errorf("workers were asked: %v", c.sent)
		}
	}},
	{
		pair: true, field: "prefill_dp_rank", nvext: `{"prefill_worker_id":{prefill2},"decode_worker_id":{worker},"prefill_dp_rank":1}`,
		check: func(t *testing.T, c *crossing) {
			legs(3, 0)(t, c)
			if rank := c.sent[0].DPRank; rank == nil || *rank != 1 {
				t.Errorf("rank %v", rank)
			}
		},
	},
	{
		pair: true, field: "legs by headers", header: []string{"x-worker-instance-id", "{other}", "x-prefill-instance-id", "{prefill2}", "x-prefill-dp-rank", "1"},
		check: func(t *testing.T, c *crossing) {
			legs(3, 1)(t, c)
			if rank := c.sent[0].DPRank; rank == nil || *rank != 1 {
				t.Errorf("rank %v", rank)
			}
		},
	},
	{pair: true, field: "a prefill worker that has gone", nvext: `{"prefill_worker_id":4242}`, status: 503, check: comeBack},
	{pair: true, field: "a prefill worker's rank that is not there", nvext: `{"prefill_worker_id":{prefill2},"prefill_dp_rank":7}`, status: 400, says: "the worker has ranks 0 to 1, not 7"},
}

var constraintRows = []row{
	{field: "required_taints", nvext: `{"routing_constraints":{"required_taints":["w1","all","w1"]}}`, check: on(1)},
	{field: "required_taints that nobody has", nvext: `{"routing_constraints":{"required_taints":["all","gold"]}}`, status: 503, says: `no worker that is ready has the required taints \[\\"gold\\"\]`, check: comeBack},
	{field: "preferred_taints", nvext: `{"routing_constraints":{"preferred_taints":{"w1":1e6,"gold":3}}}`, check: on(1)},
	{field: "required_taints against a pin", nvext: `{"backend_instance_id":{worker},"routing_constraints":{"required_taints":["w1"]}}`, status: 503, says: `pinned to a worker that lacks the required taints \[\\"w1\\"\]`, check: comeBack},
}

// salted are rows by which one text is asked for twice, under these salts: first is
// how a client says the first one.
func salted(field string, first, then row, hit bool) row {
	then.field, then.prompt = field, "{mark} is the mark of a text that is long enough to fill some blocks of the cache: the Seine, the Loire, the Rhône, the Garonne, the Meuse, the Rhine and all of the streams that feed them on their way to the sea."
	first.prompt, first.field = then.prompt, field
	then.before = func(t *testing.T, c *crossing) {
		t.Helper()
		earlier := *c
		earlier.row = &first
		if earlier.run(t); earlier.status != 200 {
			t.Fatalf("before: %d %s", earlier.status, earlier.reply.body)
		}
		if _, cached := earlier.usage(t); cached != 0 {
			t.Fatalf("before: %d tokens were cached", cached)
		}
		if salt := earlier.only(t).KV.Namespace.Salt; salt == "" {
			t.Fatal("before: no salt at the worker")
		}
	}
	then.check = func(t *testing.T, c *crossing) {
		t.Helper()
		if prompt, cached := c.usage(t); (cached > 0) != hit || cached > prompt {
			t.Errorf("%d of %d tokens were cached, shared %t", cached, prompt, hit)
		}
	}
	return then
}

const atHome = `"backend_instance_id":{worker}`

var saltRows = []row{
	salted("cache_salt of another", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":"red-{here}"}`}, false),
	salted("cache_salt and none", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `}`}, false),
	salted("cache_salt and an empty one", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":""}`}, false),
	salted("cache_salt that is the same", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, true),
	salted("cache_salt beside nvext", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `}`, more: `"cache_salt":"blue-{here}"`}, true),
	salted("cache_salt before the one beside nvext", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`, more: `"cache_salt":"red"`}, true),
	salted("x-tenant-id", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `}`, header: []string{"x-tenant-id", " blue-{here} "}}, true),
	salted("x-tenant-id before cache_salt", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":"red"}`, header: []string{"x-tenant-id", "blue-{here}"}}, true),
	salted("x-tenant-id that is blank", row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`}, row{nvext: `{` + atHome + `,"cache_salt":"blue-{here}"}`, header: []string{"x-tenant-id", " "}}, true),
	{field: "cache_salt that is too long", nvext: `{"cache_salt":"` + strings.Repeat("s", 1025) + `"}`, status: 400, says: `nvext\.cache_salt: must have at most 1024 bytes, got 1025`},
	{field: "cache_salt that is too long, beside nvext", more: `"cache_salt":"` + strings.Repeat("s", 1025) + `"`, status: 400, says: `cache_salt must have at most 1024 bytes, got 1025`},
	{field: "cache_salt that is no text, beside nvext", more: `"cache_salt":7`, status: 400, says: "cache_salt.*(must be|expected) a string"},
}

// urgent checks what an engine is told of a request's priority; nil is nothing.
func urgent(want *int32) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		t.Helper()
		s := c.only(t)
		if got := s.Priority; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("the worker is told %v, want %v", got, want)
		}
	}
}

var hintRows = []row{
	{field: "priority", nvext: `{"agent_hints":{"priority":7}}`, check: urgent(new(int32(7)))},
	{field: "priority below 0", nvext: `{"agent_hints":{"priority":-2147483648}}`, check: urgent(new(int32(-2147483648)))},
	{field: "x-dynamo-request-priority", header: []string{"x-dynamo-request-priority", "-3"}, nvext: `{"agent_hints":{"priority":7}}`, check: urgent(new(int32(-3)))},
	{field: "x-dynamo-request-priority that is bad", header: []string{"x-dynamo-request-priority", "high"}, nvext: `{"agent_hints":{"priority":7}}`, check: urgent(new(int32(7)))},
	{field: "strict_priority", nvext: `{"agent_hints":{"strict_priority":9}}`, check: urgent(nil)},
	{field: "latency_sensitivity", nvext: `{"agent_hints":{"latency_sensitivity":2.5}}`, check: urgent(nil)},
	{
		field: "osl", nvext: `{"agent_hints":{"osl":300}}`,
		check: func(t *testing.T, c *crossing) {
			if s := c.only(t); s.Expected != 300 || s.Stop.MaxTokens != 32 {
				t.Errorf("%d tokens are expected, %d the most", s.Expected, s.Stop.MaxTokens)
			}
		},
	},
}

// Latencies that a client hopes for reach the policy that picks.
func TestTargetsReachPolicies(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	policy := host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Request json.RawMessage }
		if json.NewDecoder(r.Body).Decode(&q) == nil && q.Request != nil {
			mu.Lock()
			asked = append(asked, string(q.Request))
			mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choice":1}`)
	}))
	s := newStage(t, nil, []string{"--router-policy", policy.URL + "/pick", "--router-policy-timeout", "5s"}, false)
	r := row{
		field: "router", nvext: `{"router":{"ttft_target":400.0,"itl_target":25.5}}`,
		check: func(t *testing.T, c *crossing) {
			mu.Lock()
			defer mu.Unlock()
			if len(asked) != 1 || !strings.Contains(asked[0], `"ttft_target":400`) || !strings.Contains(asked[0], `"itl_target":25.5`) {
				t.Errorf("the policy was asked %s", asked)
			}
			asked = nil
		},
	}
	r.cross(t, s)
}

// Tenants of the file of keys get what their caps leave of what they ask for.
func TestTenantCaps(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	config := filepath.Join(t.TempDir(), "dynago.yaml")
	for path, text := range map[string]string{
		keys:   "k-acme acme\nk-blue blue\n",
		config: "tenants:\n  acme: {max_priority: 5, max_strict_priority: 0, max_ttl: 1m, pin_share: 0.1}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(t, "--config", config, "--api-keys-file", keys, "--speedup-ratio", "0")
	for _, key := range []string{"k-acme", "k-blue"} {
		for _, api := range carriers {
			for _, stream := range []bool{false, true} {
				c := &crossing{stage: &stage{program: p, ids: make([]uint64, stageWorkers)}, api: api, stream: stream, row: &row{field: "caps", nvext: `{"agent_hints":{"strict_priority":4}}`}}
				if r := p.send(paths[api], c.body(), "x-dynamo-request-priority", "9", "x-api-key", key); r.status != 200 {
					t.Fatalf("%s: %d %s", api, r.status, r.body)
				}
			}
		}
	}
	_, page := p.get(p.url+"/metrics", "x-api-key", "k-blue")
	for _, line := range []string{`dynago_tenant_capped_total{cap="max_priority",tenant="acme"} 8`, `dynago_tenant_capped_total{cap="max_strict_priority",tenant="acme"} 8`} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("the page has no %s", line)
		}
	}
	if strings.Contains(page, `tenant="blue"`) {
		t.Error("a tenant without caps was capped")
	}
}

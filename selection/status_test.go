package selection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// policyFunc is a policy made of a function.
type policyFunc func() (int, error)

func (f policyFunc) Pick(context.Context, *router.Query, []router.Candidate) (int, error) { return f() }

// Each reason for which a request has no place has its own status.
func TestStatuses(t *testing.T) {
	const prompt = `{"token_ids":[1,2,3,4]}`
	pinned := `{"token_ids":[1,2,3,4],"pinned_worker":{"worker_id":1}}`
	failing := func(_ *selection.Config, rc *router.Config) {
		rc.Policy = policyFunc(func() (int, error) { return 0, errors.New("no idea") })
	}
	panicking := func(_ *selection.Config, rc *router.Config) {
		rc.Policy = policyFunc(func() (int, error) { panic("no idea") })
	}
	nothing := func(*selection.Config, *router.Config) {}
	for name, tt := range map[string]struct {
		config func(*selection.Config, *router.Config)
		set    func(h *house)
		body   string
		want   int
		says   string
	}{
		"nobody":      {nothing, func(*house) {}, prompt, 503, "does not exist"},
		"draining":    {nothing, func(h *house) { h.register(1); h.fleet.Drain(1) }, prompt, 503, "not ready"},
		"filtered":    {nothing, func(h *house) { h.register(1) }, `{"token_ids":[1],"routing_constraints":{"required_taints":["gpu"]}}`, 503, `{"error":"no worker that is ready has the required taints [\"gpu\"]"`},
		"not allowed": {nothing, func(h *house) { h.register(1) }, `{"token_ids":[1],"allowed_worker_ids":[2]}`, 503, "allows"},
		"overloaded": {nothing, func(h *house) {
			h.register(1)
			h.fleet.Worker(1).Inhibit(time.Now(), engine.WorkerOverloaded)
		}, prompt, 429, "overloaded"},
		"pinned to one that is": {nothing, func(h *house) {
			h.register(1)
			h.register(2)
			h.fleet.Worker(1).Inhibit(time.Now(), engine.WorkerOverloaded)
		}, pinned, 429, "overloaded"},
		"too long":         {nothing, func(h *house) { h.register(1, `"context_length":4`) }, prompt, 400, "context"},
		"policy fails":     {failing, func(h *house) { h.register(1) }, prompt, 500, "no idea"},
		"policy panics":    {panicking, func(h *house) { h.register(1) }, prompt, 500, "panicked"},
		"pinned elsewhere": {nothing, func(h *house) { h.register(2) }, pinned, 503, "pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, tt.config)
			tt.set(h)
			for _, path := range []string{"/select", "/select_and_reserve"} {
				status, text := h.do("POST", path, tt.body)
				if status != tt.want || !strings.Contains(text, tt.says) {
					t.Errorf("%s: status %d, want %d with %q in it: %s", path, status, tt.want, tt.says, text)
				}
			}
			for _, l := range h.router.Loads() {
				if l.Requests != 0 {
					t.Errorf("something is booked on %v", l.Target)
				}
			}
		})
	}
}

// queueing parks requests while a worker computes a prompt, one of them at most.
func queueing(t *testing.T) func(*selection.Config, *router.Config) {
	t.Helper()
	file, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: chat-all, policy_family: chat, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}
  - {name: impatient, quantum: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *selection.Config, rc *router.Config) { rc.PolicyFile, rc.QueueTimeout = file, 240*time.Second }
}

// A request waits for room, is told when there is none even to wait in, and gives
// its place back if its client leaves.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(t))
		h.register(1)
		reserve := func(ctx context.Context, id string) *httptest.ResponseRecorder {
			body := strings.NewReader(fmt.Sprintf(`{"selection_id":%q,"token_ids":[1,2,3,4,%d]}`, id, id[0]))
			w := httptest.NewRecorder()
			h.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/select_and_reserve", body))
			return w
		}
		if w := reserve(t.Context(), "a"); w.Code != 200 {
			t.Fatalf("the first: %d %s", w.Code, w.Body)
		}
		var waiting sync.WaitGroup
		var second *httptest.ResponseRecorder
		waiting.Go(func() { second = reserve(t.Context(), "b") })
		synctest.Wait()

		// What waits is told of, and no more may.
		loads := h.list("GET", "/loads", "")
		if loads[0]["pending_count"] != 1.0 || loads[0]["pending_isl_tokens"] != 5.0 {
			t.Errorf("loads %v", loads)
		}
		w := reserve(t.Context(), "c")
		var refused struct {
			Error   string
			Details struct {
				Class   string `json:"policy_class"`
				Kind    string `json:"limit_kind"`
				Current int
				Limit   int
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil {
			t.Fatal(err)
		}
		if d := refused.Details; w.Code != 503 || refused.Error == "" || d.Class != "chat-all" || d.Kind != "requests" || d.Current != 1 || d.Limit != 1 {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if w.Header().Get("Retry-After") == "" {
			t.Error("nobody says when to come back")
		}

		// A class that has no threshold waits for nothing.
		h.object(200, "POST", "/select_and_reserve", `{"selection_id":"i","token_ids":[1]}`, "X-Dynamo-Meta-Policy-Class", "impatient")
		h.object(200, "DELETE", "/reservations/i", "")

		// An advisory selection waits for nothing, and neither does what is settled.
		h.object(200, "POST", "/select", `{"token_ids":[1]}`)
		h.object(201, "POST", "/reservations", `{"selection_id":"d","worker_id":1,"token_ids":[1]}`)
		h.object(200, "DELETE", "/reservations/d", "")

		h.object(200, "POST", "/reservations/a/prefill_complete", "")
		waiting.Wait()
		if second.Code != 200 {
			t.Errorf("the second: %d %s", second.Code, second.Body)
		}

		// One who leaves while he waits leaves nothing behind.
		ctx, leave := context.WithCancel(t.Context())
		waiting.Go(func() { second = reserve(ctx, "e") })
		synctest.Wait()
		leave()
		waiting.Wait()
		if second.Code != 499 {
			t.Errorf("a client that has left is told %d", second.Code)
		}
		h.object(404, "DELETE", "/reservations/e", "")

		// And one who waits for too long is told so.
		waiting.Go(func() { second = reserve(t.Context(), "f") })
		synctest.Wait()
		time.Sleep(240 * time.Second) // of the bubble
		h.router.Tick(time.Now())
		waiting.Wait()
		if second.Code != http.StatusTooManyRequests {
			t.Errorf("one who has waited for too long is told %d %s", second.Code, second.Body)
		}
		h.fleet.Close()
	})
}

// Workers come, change and go while requests are placed; nothing is left of any.
func TestChurn(t *testing.T) {
	h := newHouse(t)
	h.register(100)
	var all sync.WaitGroup
	for id := range 4 {
		all.Go(func() {
			for n := range 20 {
				status, text := h.do("POST", "/workers", fmt.Sprintf(`{"worker_id":%d,"endpoint":"e","block_size":4,"taints":["%d"],"data_parallel_size":%d}`, id, n, 1+n%3))
				if status != 201 {
					t.Errorf("status %d: %s", status, text)
				}
				if n%4 == 3 {
					h.do("DELETE", fmt.Sprintf("/workers/%d", id), "")
				}
			}
		})
		all.Go(func() {
			for n := range 50 {
				path := fmt.Sprintf("%d-%d", id, n)
				status, text := h.do("POST", "/select_and_reserve", `{"selection_id":"`+path+`","token_ids":[1,2,3,4,5,6,7,8]}`)
				if status != 200 {
					t.Errorf("status %d: %s", status, text)
				}
				h.do("POST", "/reservations/"+path+"/output_block", "")
				h.do("GET", "/loads", "")
				h.do("DELETE", "/reservations/"+path, "")
			}
		})
	}
	all.Wait()
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("something is left on %v: %+v", l.Target, l)
		}
	}
}

// Requests of one session go where the first of them went.
func TestSessions(t *testing.T) {
	h := newHouse(t, func(_ *selection.Config, rc *router.Config) { rc.Mode, rc.SessionTTL = router.RoundRobin, time.Minute })
	h.register(1)
	h.register(2)
	for name, member := range map[string]string{"s": `"session_id":"s"`, "t": `"session_id":"other","session_context":{"session_id":"t","input_trigger":"tool_result"}`} {
		var first any
		for n := range 6 {
			out := h.object(200, "POST", "/select_and_reserve", fmt.Sprintf(`{"selection_id":"%s%d","token_ids":[1],%s}`, name, n, member))
			if n == 0 {
				first = out["worker_id"]
			} else if out["worker_id"] != first {
				t.Fatalf("request %d of session %s went to worker %v, the first to %v", n, name, out["worker_id"], first)
			}
		}
	}
}

package selection_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// A worker is schedulable once all is known that routing needs.
func TestLifecycle(t *testing.T) {
	h := newHouse(t, func(c *selection.Config, rc *router.Config) { c.KVEvents, rc.QueueThreshold = true, new(1.0) })
	reasons := func(out map[string]any) string { return fmt.Sprint(out["not_schedulable_reasons"]) }

	out := h.object(201, "POST", "/workers", `{"worker_id":7}`)
	if out["lifecycle"] != "incomplete" {
		t.Errorf("a worker of which nothing is known is %v", out["lifecycle"])
	}
	for _, word := range []string{"endpoint is required", "block_size", "max_num_batched_tokens", "dp_rank 0"} {
		if !strings.Contains(reasons(out), word) {
			t.Errorf("reasons %s do not name %s", reasons(out), word)
		}
	}
	if out["model_name"] != "default" || out["routing_group"] != "default" || out["endpoint"] != nil {
		t.Errorf("record %v", out)
	}
	h.object(503, "GET", "/ready", "")

	out = h.object(200, "PATCH", "/workers/7", `{"endpoint":"http://w7:8000","block_size":16,"max_num_batched_tokens":8192}`)
	if got := reasons(out); out["lifecycle"] != "incomplete" || got != "[kv_events endpoint is required for dp_rank 0]" {
		t.Errorf("%v: %s", out["lifecycle"], got)
	}
	out = h.object(200, "PATCH", "/workers/7", `{"kv_events_endpoint":"tcp://127.0.0.1:1"}`)
	if out["lifecycle"] != "schedulable" || out["not_schedulable_reasons"] != nil {
		t.Errorf("a complete worker is %v: %s", out["lifecycle"], reasons(out))
	}
	ready := h.object(200, "GET", "/ready", "")
	if ready["schedulable_workers"] != 1.0 || ready["ready"] != true {
		t.Errorf("ready says %v", ready)
	}

	// A worker that no longer is complete gets nothing.
	out = h.object(200, "PATCH", "/workers/7", `{"data_parallel_size":2}`)
	if out["lifecycle"] != "incomplete" || h.fleet.Worker(7) != nil {
		t.Errorf("with two ranks and one endpoint the worker is %v", out["lifecycle"])
	}
	h.object(200, "PATCH", "/workers/7", `{"kv_events_endpoints":{"0":"tcp://127.0.0.1:1","1":"tcp://127.0.0.1:2"}}`)
	if got := len(h.router.Loads()); got != 2 {
		t.Errorf("%d ranks, want 2", got)
	}

	if out = h.object(200, "DELETE", "/workers/7", ""); out["lifecycle"] != "unschedulable" {
		t.Errorf("a worker that was deleted is %v", out["lifecycle"])
	}
	h.object(404, "DELETE", "/workers/7", "")
	h.object(404, "PATCH", "/workers/7", "{}")
	if n := len(h.list("GET", "/workers", "")); n != 0 {
		t.Errorf("%d workers are left", n)
	}
}

// New details of a worker leave what is booked on it, another model does not.
func TestUpdateKeepsBookings(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	_, prompt := count(0, 8)
	h.object(200, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":`+prompt+`}`)
	requests := func() int { return h.router.Loads()[0].Requests }

	h.register(1, `"taints":["fast"]`, `"total_kv_blocks":100`)
	if requests() != 1 {
		t.Error("the booking was lost with new taints")
	}
	h.object(200, "POST", "/select", `{"token_ids":[1],"routing_constraints":{"required_taints":["fast"]}}`)

	h.register(1, `"model_name":"other"`)
	if requests() != 0 {
		t.Error("the booking is still there under another model")
	}
	h.object(404, "DELETE", "/reservations/a", "")
	h.object(503, "POST", "/select", `{"token_ids":[1]}`)
	h.object(200, "POST", "/select", `{"token_ids":[1],"model_name":"other"}`)
}

// Worker 0 is a worker like any other.
func TestWorkerZero(t *testing.T) {
	h := newHouse(t)
	h.register(0)
	h.register(1)
	for _, id := range []float64{0, 1} {
		out := h.object(200, "POST", "/select", fmt.Sprintf(`{"token_ids":[1],"pinned_worker":{"worker_id":%v,"dp_rank":0}}`, id))
		if out["worker_id"] != id || out["endpoint"] != fmt.Sprintf("http://w%v", id) {
			t.Errorf("pinned to worker %v, got %v", id, out)
		}
	}
	out := h.object(200, "POST", "/select", `{"token_ids":[1],"allowed_worker_ids":["0"]}`)
	if out["worker_id"] != 0.0 {
		t.Errorf("worker 0 alone was allowed, got %v", out["worker_id"])
	}
	h.object(503, "POST", "/select", `{"token_ids":[1],"allowed_worker_ids":[]}`)
}

// Groups of a model have nothing to do with each other.
func TestRoutingGroups(t *testing.T) {
	h := newHouse(t)
	h.register(1, `"model_name":"m"`)
	h.register(2, `"model_name":"m"`, `"routing_group":"blue"`)
	for group, want := range map[string]float64{"": 1, "default": 1, "blue": 2} {
		body := `{"model_name":"m","token_ids":[1]`
		if group != "" {
			body += `,"routing_group":"` + group + `"`
		}
		for range 8 {
			if out := h.object(200, "POST", "/select", body+"}"); out["worker_id"] != want {
				t.Fatalf("group %q: worker %v, want %v", group, out["worker_id"], want)
			}
		}
	}
	h.object(503, "POST", "/select", `{"model_name":"m","routing_group":"red","token_ids":[1]}`)
	var ids []any
	for _, r := range h.list("GET", "/workers?model_name=m&routing_group=blue", "") {
		ids = append(ids, r["worker_id"])
	}
	if !slices.Equal(ids, []any{2.0}) {
		t.Errorf("workers of the group: %v", ids)
	}
	// A model whose name is that of a group's partition would be the same.
	h.object(409, "POST", "/workers", `{"worker_id":3,"model_name":"m:blue"}`)
}

// What the process serves itself is listed, chosen, and cannot be changed.
func TestOwnWorkers(t *testing.T) {
	h := newHouse(t)
	h.engines(5, func(c *engine.Card) { c.Model, c.Aliases = "m", []string{"alias"} })
	workers := h.list("GET", "/workers", "")
	if len(workers) != 1 || workers[0]["worker_id"] != 5.0 || workers[0]["lifecycle"] != "schedulable" || workers[0]["block_size"] != 4.0 {
		t.Fatalf("workers %v", workers)
	}
	out := h.object(200, "POST", "/select", `{"model_name":"alias","token_ids":[1]}`)
	if out["worker_id"] != 5.0 || out["endpoint"] != "own-5" {
		t.Errorf("selected %v", out)
	}
	h.object(409, "POST", "/workers", `{"worker_id":5}`)
	h.object(409, "DELETE", "/workers/5", "")
	h.object(409, "PATCH", "/workers/5", "{}")
	h.fleet.Drain(5)
	if got := h.list("GET", "/workers", "")[0]["lifecycle"]; got != "draining" {
		t.Errorf("a drained worker is %v", got)
	}
}

func TestBadWorkers(t *testing.T) {
	h := newHouse(t, func(c *selection.Config, _ *router.Config) { c.MostWorkers = 1 })
	for name, tt := range map[string]struct {
		body string
		want int
		says string
	}{
		"no id":                {`{}`, 400, "worker_id is required"},
		"not JSON":             {`{`, 400, "body"},
		"id as text":           {`{"worker_id":"seven"}`, 400, "worker id"},
		"id too large":         {`{"worker_id":9007199254740992}`, 400, "worker id"},
		"negative id":          {`{"worker_id":-1}`, 400, "worker id"},
		"block size":           {`{"worker_id":1,"block_size":1000000}`, 400, "block_size"},
		"block size as text":   {`{"worker_id":1,"block_size":"16"}`, 400, "block_size"},
		"ranks":                {`{"worker_id":1,"data_parallel_size":100000}`, 400, "data_parallel_size"},
		"last rank":            {`{"worker_id":1,"data_parallel_start_rank":4294967295}`, 400, "data_parallel_start_rank"},
		"foreign rank":         {`{"worker_id":1,"kv_events_endpoints":{"3":"tcp://a:1"}}`, 400, "no rank 3"},
		"wildcard":             {`{"worker_id":1,"kv_events_endpoint":"tcp://*:5557"}`, 400, "connect to"},
		"no scheme":            {`{"worker_id":1,"kv_events_endpoint":"a:5557"}`, 400, "tcp://"},
		"replay port":          {`{"worker_id":1,"data_parallel_size":8,"replay_endpoint":"tcp://a:65530"}`, 400, "65535"},
		"empty model":          {`{"worker_id":1,"model_name":""}`, 201, ""},
		"enforcement":          {`{"worker_id":1,"kv_transfer_enforcement":"maybe"}`, 400, "required or preferred"},
		"duplicate member":     {`{"worker_id":1,"worker_id":2}`, 400, "duplicate"},
		"unknown member is ok": {`{"worker_id":1,"metadata":{"a":"b"}}`, 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := h.do("POST", "/workers", tt.body)
			if status != tt.want || !strings.Contains(text, tt.says) {
				t.Errorf("status %d, want %d, with %q in it:\n%s", status, tt.want, tt.says, text)
			}
		})
	}
	if status, text := h.do("POST", "/workers", `{"worker_id":2}`); status != http.StatusTooManyRequests {
		t.Errorf("one worker too many: status %d %s", status, text)
	}
	large := `{"worker_id":1,"endpoint":"` + strings.Repeat("x", 200_000) + `"}`
	if status, _ := h.do("POST", "/workers", large); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large record: status %d", status)
	}
	if status, _ := h.do("POST", "/workers", `{}`, "Content-Type", "text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("text: status %d", status)
	}
	if status, _ := h.do("PUT", "/workers", `{}`); status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: status %d", status)
	}
	if status, text := h.do("GET", "/nothing", ``); status != 404 || !strings.Contains(text, `"error"`) {
		t.Errorf("no such route: status %d %s", status, text)
	}
}

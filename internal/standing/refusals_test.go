package standing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// manners is how workers behave who are told to.
const manners = `
rules:
  - when: {user: hold}
    pace: {ttft: 1h}
    emit: never
  - when: {user: overload}
    cut: {after: 0, as: worker_overloaded}
    emit: never
  - when: {user: vanish}
    cut: {after: 0, as: disconnected}
    emit: never
  - when: {user: stall}
    cut: {after: 2, as: stall}
    emit: only a part of it
default:
  emit: Here you are.
`

// broken is a policy that cannot decide.
type broken struct{}

func (broken) Pick(context.Context, *router.Query, []router.Candidate) (int, error) {
	return 0, errors.New("the secret inside")
}

// picky is a filter that keeps nobody.
type picky struct{}

func (picky) Inputs() router.Inputs { return 0 }

func (picky) Keep(context.Context, *router.Query, *router.Candidate) (bool, error) {
	return false, nil
}

// One table for all that can keep a request from being served: nobody can, and it
// may be tried elsewhere (503); who can is busy, and it should be tried later
// (529); it means nothing (400); or it is our fault (500). Whoever may come again
// is told when.
func TestRefusals(t *testing.T) {
	zero := 0.0
	nothing := uint64(0)
	busy := router.Thresholds{ActivePrefillTokens: &nothing}
	full, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes: [{name: chat-all, policy_family: chat, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}]
`))
	check(t, err)
	direct := func(worker uint64) object { return object{"backend_instance_id": worker} }
	first := func(_ *testing.T, h *house) any { return direct(h.fleet.Snapshot()[0].ID()) }
	vanished := func(_ *testing.T, h *house) any {
		id := h.fleet.Snapshot()[0].ID()
		h.fleet.Remove(id)
		return direct(id)
	}
	hold := func(t *testing.T, h *house) any {
		h.hold(t, nil, 1)
		return nil
	}
	for _, tc := range []struct {
		name   string
		plan   plan
		user   string                                 // what the request says; "" = hello
		before func(t *testing.T, h *house) (ext any) // brings it about, and returns the request's nvext
		status int
		code   string
		says   string // in the message
	}{
		{"too few workers yet", plan{routing: router.Config{MinInitialWorkers: 9}}, "", nil, 503, "", ""},
		{"all have failed just now", plan{inhibit: time.Hour, migration: 5}, "", func(t *testing.T, h *house) any {
			if status, body := h.post(t, "/v1/chat/completions", chatOf("vanish", nil)); status != 503 {
				t.Errorf("the one before: %d %s", status, body)
			}
			return nil
		}, 503, "", ""},
		{"the policy's filters leave nobody", plan{routing: router.Config{Policy: router.Compose(router.Parts{Filters: []router.Filter{picky{}}})}}, "", nil, 503, "", ""},
		{"pinned to nobody", plan{}, "", func(*testing.T, *house) any { return direct(4711) }, 503, "", ""},
		{"pinned to one that has left", plan{}, "", vanished, 503, "", ""},
		{"the worker vanishes", plan{}, "vanish", nil, 503, "", ""},

		{"all are busy", plan{workers: 1, routing: router.Config{Thresholds: busy}}, "", hold, 529, "overloaded", ""},
		{"pinned to a busy one", plan{routing: router.Config{Thresholds: busy}}, "", func(t *testing.T, h *house) any {
			ext := first(t, h)
			h.hold(t, ext, 1)
			return ext
		}, 529, "overloaded", ""},
		{"the worker is full", plan{}, "overload", nil, 529, "overloaded", ""},
		{"too much waits", plan{workers: 1, routing: router.Config{PolicyFile: full}}, "", func(t *testing.T, h *house) any {
			h.hold(t, nil, 1)
			h.send(t, chatOf("hold, and wait", nil))
			waitFor(t, "it waits", func() bool { return h.router.Queues()[0].Classes[0].Requests == 1 })
			return nil
		}, 529, "overloaded", ""},
		{"waits in vain", plan{workers: 1, routing: router.Config{QueueThreshold: &zero, QueueTimeout: time.Millisecond}}, "", func(t *testing.T, h *house) any {
			h.hold(t, nil, 1)
			go h.router.Run(t.Context())
			return nil
		}, 529, "overloaded", ""},

		{"its workers have left, and the model with them", plan{}, "", func(_ *testing.T, h *house) any {
			for _, w := range h.fleet.Snapshot() {
				h.fleet.Remove(w.ID())
			}
			return nil
		}, 404, "model_not_found", ""},
		{"no worker is named", plan{routing: router.Config{Mode: router.Direct}}, "", nil, 400, "", ""},
		{"the extension means nothing", plan{}, "", func(*testing.T, *house) any { return object{"backend_instance_id": "everyone"} }, 400, "invalid_value", "nvext.backend_instance_id"},
		{"the policy fails", plan{routing: router.Config{Policy: broken{}}}, "", nil, 500, "server_error", ""},
		{"no first token", plan{limits: pipeline.Limits{FirstItem: 20 * time.Millisecond}}, "hold", nil, 504, "timeout", ""},
		{"the answer stalls", plan{limits: pipeline.Limits{Inactivity: 20 * time.Millisecond}}, "stall", nil, 504, "timeout", ""},

		{"pinned to one that is there", plan{}, "", first, 200, "", ""},
		{"another one lives", plan{migration: 1, script: strings.Replace(manners, "when: {user: vanish}", "when: {user: vanish}\n    times: 1", 1)}, "vanish", nil, 200, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.plan.script == "" {
				tc.plan.script = manners
			}
			h := build(t, tc.plan)
			var ext any
			if tc.before != nil {
				ext = tc.before(t, h)
			}
			if tc.user == "" {
				tc.user = "hello"
			}
			resp, err := http.Post(h.url+"/v1/chat/completions", "application/json", encoded(t, chatOf(tc.user, ext)))
			check(t, err)
			defer resp.Body.Close()
			var got struct {
				Error struct{ Message, Code string }
			}
			body, err := io.ReadAll(resp.Body)
			check(t, err)
			check(t, json.Unmarshal(body, &got))
			if resp.StatusCode != tc.status || tc.code != "" && got.Error.Code != tc.code || !strings.Contains(got.Error.Message, tc.says) {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if bytes.Contains(body, []byte("secret")) {
				t.Errorf("the inside is told: %s", body)
			}
			again, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if comes := tc.status == 503 || tc.status == 529; comes != (err == nil) || comes && again < 1 {
				t.Errorf("status %d tells to come again after %q", tc.status, resp.Header.Get("Retry-After"))
			}
		})
	}
}

// chatOf is a request that says one thing.
func chatOf(text string, ext any) object {
	body := object{"model": demo.Name, "messages": []object{{"role": "user", "content": text}}}
	if ext != nil {
		body["nvext"] = ext
	}
	return body
}

func encoded(t testing.TB, body object) io.Reader {
	t.Helper()
	raw, err := json.Marshal(body)
	check(t, err)
	return bytes.NewReader(raw)
}

// send sends a request whose client leaves with the test.
func (h *house) send(t testing.TB, body object) {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/chat/completions", encoded(t, body))
	check(t, err)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	t.Cleanup(func() {
		leave()
		<-gone
	})
}

// hold keeps a worker busy until the test ends: with so many requests in all.
func (h *house) hold(t testing.TB, ext any, n int) {
	t.Helper()
	h.send(t, chatOf("hold", ext))
	waitFor(t, "it is in the books", func() bool {
		booked := 0
		for _, l := range h.router.Loads() {
			booked += l.Requests
		}
		return booked == n
	})
}

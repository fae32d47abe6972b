package router_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// A worker beyond the thresholds of its model is nobody to go to either: who
// waits is sent neither there nor, because of it, to one that is busy.
func TestThresholdsWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := 0.5
		h := newHouse(t, queueing(0, func(c *router.Config) { c.Thresholds.ActiveDecodeBlocks = &half }))
		defer h.fleet.Close()
		blocks := func(c *engine.Card) { c.TotalBlocks = 10 }
		h.join(1, card(hundred, blocks))
		h.join(2, card(hundred, blocks))
		a := h.arrivals()
		a.submit(t.Context(), router.Query{ID: "long", Tokens: count(0, 24), PinWorker: 1}) // 6 blocks
		a.submit(t.Context(), router.Query{ID: "short", Tokens: count(100, 8), PinWorker: 2})
		a.submit(t.Context(), router.Query{ID: "waits", Tokens: count(200, 8)})
		a.expect("two run", "long", "short")
		a.bookings["long"].Prefilled()
		a.expect("no room where too many blocks are in use")
		a.bookings["long"].Release()
		a.expect("room", "waits")
		if b := a.bookings["waits"]; b == nil || b.Worker().ID() != 1 {
			t.Errorf("got %v, %v", b, a.errs["waits"])
		}
	})
}

// Limits count for each worker that serves the model and role, and for no other.
func TestLimitsCountWhoServes(t *testing.T) {
	file, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: chat-all, policy_family: chat, cache_bucket: all, quantum: 10, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{PolicyFile: file})
		defer h.fleet.Close()
		h.join(1, card(hundred))
		h.join(2, card(hundred, func(c *engine.Card) { c.Model, c.Aliases = "other", nil }))
		h.join(3, card(hundred, func(c *engine.Card) { c.Role = engine.Prefill }))
		a := h.arrivals()
		for i, id := range []string{"runs", "waits", "refused"} {
			a.submit(t.Context(), router.Query{ID: id, Tokens: count(uint32(100*i), 8)})
		}
		a.expect("one worker", "runs", "refused")
		rejection, ok := errors.AsType[*router.QueueRejection](a.errs["refused"])
		if !ok || rejection.Limit != 1 {
			t.Errorf("got %v", a.errs["refused"])
		}
	})
}

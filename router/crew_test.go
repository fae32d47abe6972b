package router_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// Whatever happens to the fleet, a request that wants nothing in particular finds
// the same rows as one that allows all workers by name, for which each of them is
// looked at.
func TestCrewIsWhoMayServe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := uint64(30)
		h := newHouse(t, router.Config{Seed: 1})
		defer h.fleet.Close()
		const workers = 5
		next := map[uint64]uint64{} // number of the next KV event
		for id := range uint64(workers) {
			h.join(id+1, card(func(c *engine.Card) { c.DPSize = uint32(id%2) + 1 }))
			next[id+1] = 1
		}
		everybody := []uint64{1, 2, 3, 4, 5}
		var open []*router.Booking
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			id := rapid.Uint64Range(1, workers).Draw(rt, "worker")
			w := h.fleet.Worker(id)
			switch step := rapid.IntRange(0, 7).Draw(rt, "step"); {
			case step == 0 && w != nil:
				h.fleet.Remove(id)
			case step == 0:
				h.join(id, card())
				next[id] = 1
			case w == nil, w.Status().State == engine.Draining:
			case step == 1:
				w.Inhibit(time.Now(), rapid.SampledFrom([]engine.ErrorKind{engine.Disconnected, engine.WorkerOverloaded}).Draw(rt, "kind"))
			case step == 2:
				h.become(id, engine.Status{Epoch: w.Status().Epoch + 1, Revision: 1, State: engine.Ready, Card: card().Card})
				next[id] = 1
			case step == 3:
				s := card(func(c *engine.Card) { c.ContextLength, c.BlockSize = 20, 8 })
				s.Epoch = w.Status().Epoch
				h.become(id, s)
			case step == 4:
				h.fleet.Drain(id)
			case step == 5 && w.Status().Epoch == 1 && w.Card().BlockSize == 4:
				h.caches(id, next[id], kv.TierDevice, count(0, 16))
				next[id]++
			case step == 6:
				if _, err := h.router.SetThresholds("m", router.Thresholds{ActivePrefillTokens: &limit}); err != nil {
					rt.Fatal(err)
				}
				limit = 70 - limit
			default:
				if b, err := h.router.Route(t.Context(), &router.Query{Model: "m", Tokens: count(0, 18)}); err == nil {
					open = append(open, b)
				}
			}
			for _, n := range []int{18, 24} {
				q := router.Query{Model: "m", Tokens: count(0, n)}
				got, err := h.router.Explain(t.Context(), &q)
				q.Allow = everybody
				want, wantErr := h.router.Explain(t.Context(), &q)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) && len(want) > 0 {
					rt.Fatalf("%v, want %v", err, wantErr)
				}
				if !slices.EqualFunc(got, want, func(a, b router.Row) bool { return a.Candidate == b.Candidate && a.Terms == b.Terms }) {
					rt.Fatalf("%d tokens: got  %+v\nwant %+v", n, got, want)
				}
			}
		}
		for _, b := range open {
			b.Release()
		}
	})
}

// What was sent to an earlier life of a worker is no load of the next, and its end
// changes nothing there.
func TestEarlierLifeIsNoLoad(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	q := router.Query{Model: "m", Tokens: count(0, 40)}
	old := h.route(q)
	h.become(1, engine.Status{Epoch: 2, Revision: 1, State: engine.Ready, Card: card().Card})
	look := func(requests, tokens, blocks int) {
		t.Helper()
		rows, err := h.router.Explain(t.Context(), &q)
		if err != nil || rows[0].Requests != requests || rows[0].PrefillTokens != tokens || rows[0].ActiveBlocks != blocks {
			t.Errorf("%+v, %v; want %d requests, %d tokens, %d blocks", rows, err, requests, tokens, blocks)
		}
	}
	look(0, 0, 0)
	now := h.route(q)
	look(1, 40, 10)
	old.Prefilled()
	old.Release()
	look(1, 40, 10)
	now.Release()
	look(0, 0, 0)
}

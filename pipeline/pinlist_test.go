package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
)

// Operators see what was pinned, until it ends by itself, is let go, or its session
// ends. Equal prompts are one entry of their tenant.
func TestPinList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{features: engine.Features{engine.FeaturePins}, change: func(c *engine.Card) { c.TotalBlocks = 1000 }}
		h := newHouse(t, pipeline.Config{}, e)
		defer h.Close()
		e.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: 1}, Pinned: &engine.PinResult{Requested: 7, Pinned: 7}}, nil)
		}
		ask := func(tenant, session, ttl string, final bool) {
			r := asks(cached(ttl))
			r.Tenant, r.KV.Session.ID, r.KV.EvictSession = tenant, session, final
			r.ID = fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(e.sent()))
			run(t, h, r)
		}
		has := func(what string, want ...string) {
			t.Helper()
			var got []string
			for _, p := range h.PinList("") {
				got = append(got, p.Tenant+"/"+p.Session)
				if p.Hash == 0 || p.Blocks < 7 || p.Target != (kv.Target{Worker: 1}) || p.By != "nvext" || p.Warm || p.Model != "test/model" {
					t.Errorf("%s: %+v", what, p)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v are pinned, want %v", what, got, want)
			}
		}
		ask("a", "s", "1h", false)
		ask("a", "s", "1m", false)
		ask("b", "s", "10m", false)
		has("pinned", "a/s", "b/s")
		if n := len(h.PinList("another")); n != 0 {
			t.Errorf("%d are of another model", n)
		}
		time.Sleep(10 * time.Minute)
		has("ten minutes later", "a/s")
		ask("b", "t", "10m", false)
		ask("b", "u", "0", false)
		has("let go by another session", "a/s", "b/t")
		ask("b", "t", "0", false)
		has("let go", "a/s")
		r := asks(nil)
		r.Tenant, r.KV.Session.ID, r.KV.EvictSession = "a", "s", true
		r.ID = "90000000-0000-4000-8000-000000000000"
		run(t, h, r)
		has("at the end of the session")
	})
}

// The list is bounded, and who fills it loses its own entries, those that end first.
func TestPinListIsBounded(t *testing.T) {
	l := pipeline.NewPinList()
	now := time.Now()
	l.Add(pipeline.PinInfo{Tenant: "small", Hash: 1, Until: now.Add(time.Minute)})
	const most = 8192
	for i := range 2 * most {
		l.Add(pipeline.PinInfo{Tenant: "big", Hash: kv.SeqHash(i), Until: now.Add(time.Hour + time.Duration(i)*time.Second)})
	}
	list := l.List(now)
	if n := len(list); n > most || n < most*7/8 {
		t.Errorf("%d entries, want about %d", n, most)
	}
	small, newest := false, false
	for _, p := range list {
		small = small || p.Tenant == "small"
		newest = newest || p.Tenant == "big" && p.Hash == 2*most-1
	}
	if !small || !newest {
		t.Errorf("the other tenant's is there: %v, and the newest: %v", small, newest)
	}
	if n := len(l.List(now.Add(100 * time.Hour))); n != 0 {
		t.Errorf("%d have not ended", n)
	}
}

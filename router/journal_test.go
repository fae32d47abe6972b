package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dynago/dynago/router"
)

// A journal keeps the newest decisions, says what decided, and shows the cheapest
// candidates and the one taken.
func TestJournal(t *testing.T) {
	now := time.Unix(1000, 0)
	journal := router.NewJournal(3, 4, func() time.Time { return now })
	h := newHouse(t, router.Config{Seed: 1, Observer: router.Observers{journal}})
	defer h.fleet.Close()
	for id := range uint64(6) {
		h.join(id+1, card())
	}
	p := count(0, 40)
	h.caches(3, 1, 0, p)
	for i := range 5 {
		q := router.Query{ID: fmt.Sprint("r", i), Model: "m", Tokens: p}
		if i == 2 {
			q.PinWorker = 6
		}
		defer h.route(q).Release()
	}
	entries, missed := journal.Entries(10, "")
	if missed != 1 {
		t.Errorf("%d decisions of one second are missing, want 1", missed)
	}
	var ids string
	for _, e := range entries {
		ids += e.ID + " "
	}
	if ids != "r3 r2 r1 " {
		t.Fatalf("the journal has %s", ids)
	}
	if e := entries[2]; e.Target.Worker != 3 || e.Reason != router.ReasonCache || e.CachedTokens != 36 || e.Candidates != 6 ||
		e.Worker == "" || e.PromptTokens != 40 || !e.At.Equal(now) {
		t.Errorf("the second went %+v", e)
	}
	pinned := entries[1]
	if pinned.Reason != router.ReasonPin || pinned.Target.Worker != 6 || len(pinned.Best) != 1 {
		t.Errorf("the pinned one went %+v", pinned)
	}
	free := entries[0]
	if len(free.Best) != 4 || free.Best[0].Target != free.Target {
		t.Errorf("the fourth had the choice of %+v", free.Best)
	}
	for i := 1; i < len(free.Best); i++ {
		if a, b := free.Best[i-1], free.Best[i]; a.Cost > b.Cost || a.Cost != a.Terms.Total {
			t.Errorf("price %d is %+v, and the next %+v", i-1, a, b)
		}
	}
	if some, _ := journal.Entries(1, "m"); len(some) != 1 || some[0].ID != "r3" {
		t.Errorf("the newest is %+v", some)
	}
	for id, kept := range map[string]bool{"r0": false, "r1": true, "r3": true, "r4": false} {
		if e, ok := journal.Find(id, now); ok != kept || ok && e.ID != id {
			t.Errorf("of %s there is %+v, %v", id, e, ok)
		}
	}
	if e, ok := journal.Find("r3", now.Add(time.Nanosecond)); ok {
		t.Errorf("of a request that came later there is %+v", e)
	}
	if none, _ := journal.Entries(10, "another"); len(none) != 0 {
		t.Errorf("of another model there is %+v", none)
	}
	now = now.Add(time.Second)
	defer h.route(router.Query{ID: "late", Model: "m", Tokens: p}).Release()
	if list, _ := journal.Entries(1, ""); list[0].ID != "late" {
		t.Errorf("the newest of the next second is %s", list[0].ID)
	}
}

// watcher is an observer that writes down what it is told.
type watcher struct {
	routed []router.Decision
	work   []router.Work
	ended  []router.Outcome
}

func (w *watcher) Routed(d *router.Decision, k *router.Work) {
	w.routed, w.work = append(w.routed, *d), append(w.work, *k)
}

func (w *watcher) Ended(o *router.Outcome) { w.ended = append(w.ended, *o) }

// An observer hears of each booking once, and of its end once.
func TestObserver(t *testing.T) {
	w := &watcher{}
	h := newHouse(t, router.Config{Observer: w})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 40)
	h.caches(1, 1, 0, p)
	a := h.route(router.Query{ID: "a", Model: "m", Tokens: p})
	b := h.route(router.Query{ID: "b", Model: "m", Tokens: p, Exclude: []uint64{1}})
	if len(w.routed) != 2 || w.routed[0] != a.Decision() || w.work[1].ID != "b" {
		t.Fatalf("heard of %+v", w.routed)
	}
	if k := w.work[0]; k.Candidates != 2 || k.LostBlocks != 0 || k.PromptTokens != 40 || k.Hashing <= 0 || k.Matching <= 0 || k.Scheduling <= 0 {
		t.Errorf("the first took %+v", k)
	}
	a.Prefilled()
	a.Output(3)
	a.Transferred(time.Second)
	a.Transferred(time.Minute)
	a.Completed()
	for range 2 {
		a.Release()
		b.Release()
	}
	if len(w.ended) != 2 || w.ended[0].ID != "a" || w.ended[0].OutputTokens != 3 || w.ended[0].End != router.Completed || w.ended[1].End != router.Abandoned {
		t.Errorf("heard of the ends %+v", w.ended)
	}
	if w.ended[0].Transfer != time.Second || w.ended[1].Transfer != 0 {
		t.Errorf("transfers took %v and %v, want the one that was told first, and none", w.ended[0].Transfer, w.ended[1].Transfer)
	}
}

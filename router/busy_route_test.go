package router_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// loaded makes a worker tell how many blocks of each rank are in use, and waits
// until that is known.
func (h *house) loaded(id uint64, used ...int64) {
	h.t.Helper()
	l := engine.Load{Ranks: make([]engine.RankLoad, len(used))}
	for i, n := range used {
		l.Ranks[i] = engine.RankLoad{Rank: uint32(i), UsedBlocks: n, TotalBlocks: 1000}
	}
	h.engines[id].loads <- l
	h.engines[id].loads <- l // taken only when the one before is known
}

func TestBusyWorkersAreLeftAlone(t *testing.T) {
	h := newHouse(t, router.Config{Thresholds: router.Thresholds{ActivePrefillTokens: new(uint64(20))}})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	// The first has the prompt cached, and 24 tokens to compute.
	busy := h.route(router.Query{Model: "m", Tokens: count(100, 24), PinWorker: 1})
	q := router.Query{Model: "m", Tokens: count(0, 8)}
	for range 8 {
		b := h.route(q)
		if got := b.Worker().ID(); got != 2 {
			t.Fatalf("on %d", got)
		}
		b.Release()
	}
	_, err := h.router.Route(t.Context(), &router.Query{Model: "m", Tokens: count(0, 8), PinWorker: 1})
	if e, ok := err.(*engine.Error); !ok || e.Kind != engine.WorkerOverloaded || e.Worker != 1 {
		t.Errorf("pinned: %v", err)
	}
	also := h.route(router.Query{Model: "m", Tokens: count(200, 21)})
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("all are busy: %v", err)
	}
	if barred := h.router.Barred(&q); len(barred) != 2 || barred[0].Code != "overloaded" {
		t.Errorf("%+v", barred)
	}
	busy.Prefilled()
	if got := h.route(q).Worker().ID(); got != 1 {
		t.Errorf("on %d, which is still busy", got)
	}
	also.Release()
}

func TestBusyByWhatTheEngineTells(t *testing.T) {
	h := newHouse(t, router.Config{Thresholds: router.Thresholds{ActiveDecodeBlocks: new(0.5)}})
	defer h.fleet.Close()
	h.join(1, card(fourRanks))
	q := router.Query{Model: "m", Tokens: count(0, 8)}
	h.loaded(1, 900, 900, 900, 100)
	h.route(q).Release()
	h.loaded(1, 900, 900, 900, 501)
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("%v", err)
	}
	h.loaded(1, 900, 900, 900, 500) // at the bound, after having been above it
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("%v", err)
	}
	h.loaded(1, 900, 900, 900, 499)
	h.route(q).Release()
}

// Blocks in use by our own books count, too.
func TestBusyByTheBooks(t *testing.T) {
	h := newHouse(t, router.Config{Thresholds: router.Thresholds{ActiveDecodeBlocks: new(0.5)}})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.TotalBlocks = 10 }))
	first := h.route(router.Query{Model: "m", Tokens: count(0, 20)}) // 5 of 10
	second := h.route(router.Query{Model: "m", Tokens: count(100, 4)})
	q := router.Query{Model: "m", Tokens: count(200, 4)}
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("6 of 10: %v", err)
	}
	second.Release() // 5, at the bound
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("5 of 10 after 6: %v", err)
	}
	first.Release()
	h.route(q).Release()
}

// Prefill workers are held to the thresholds of their model as well.
func TestBusyPrefillPool(t *testing.T) {
	h := newHouse(t, router.Config{Thresholds: router.Thresholds{ActivePrefillTokensFrac: new(1.0)}})
	defer h.fleet.Close()
	h.join(1, card(prefill, func(c *engine.Card) { c.MaxBatchedTokens = 39 }))
	h.join(2, card(decode))
	first := h.place(someone, router.Legs{})
	if _, err := h.router.Place(t.Context(), &someone, router.Legs{}); engine.KindOf(err) != engine.ResourceExhausted {
		t.Errorf("%v", err)
	}
	first.Prefill.Release()
	h.place(someone, router.Legs{}).Prefill.Release()
}

func TestThresholdsChange(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card(func(c *engine.Card) { c.Model, c.Aliases = "n", nil }))
	h.route(router.Query{Model: "m", Tokens: count(0, 40)})
	h.route(router.Query{Model: "n", Tokens: count(0, 40)})
	q := router.Query{Model: "m", Tokens: count(100, 8)}
	takes := func(want bool) {
		t.Helper()
		b, err := h.router.Route(t.Context(), &q)
		if (err == nil) != want {
			t.Fatalf("%v", err)
		}
		if err == nil {
			b.Release()
		}
	}
	takes(true)
	if got := h.router.AllThresholds(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	after, err := h.router.SetThresholds("alias", router.Thresholds{ActivePrefillTokens: new(uint64(39))})
	if err != nil || *after.ActivePrefillTokens != 39 || after.ActiveDecodeBlocks != nil {
		t.Fatalf("%+v, %v", after, err)
	}
	takes(false)
	h.route(router.Query{Model: "n", Tokens: count(100, 8)}).Release() // another model
	if got := h.router.Thresholds("m"); *got.ActivePrefillTokens != 39 {
		t.Errorf("%+v", got)
	}
	for model, kind := range map[string]engine.ErrorKind{"m": engine.InvalidArgument, "x": engine.InvalidArgument} {
		if _, err := h.router.SetThresholds(model, router.Thresholds{ActiveDecodeBlocks: new(2.0)}); engine.KindOf(err) != kind {
			t.Errorf("%s: %v", model, err)
		}
	}
	if _, err := h.router.SetThresholds("x", router.Thresholds{ActiveDecodeBlocks: new(1.0)}); engine.KindOf(err) != engine.NotFound {
		t.Errorf("%v", err)
	}
	if got := h.router.Thresholds("x"); got != (router.Thresholds{}) {
		t.Errorf("%+v", got)
	}
	if _, err := h.router.SetThresholds("m", router.Thresholds{ActivePrefillTokens: new(uint64(40))}); err != nil {
		t.Fatal(err)
	}
	takes(true)
	h.router.SetThresholds("m", router.Thresholds{ActivePrefillTokens: new(uint64(1)), ActiveDecodeBlocks: new(0.9)}) //nolint:errcheck // seen below
	takes(false)
	if after, err := h.router.SetThresholds("m", router.Thresholds{}, router.ThresholdPrefillTokens); err != nil || after.ActivePrefillTokens != nil || *after.ActiveDecodeBlocks != 0.9 {
		t.Errorf("%+v, %v", after, err)
	}
	takes(true)
	var names []string
	for _, m := range h.router.AllThresholds() {
		names = append(names, m.Model)
	}
	if !slices.Equal(names, []string{"m"}) {
		t.Errorf("models with thresholds: %v", names)
	}
}

// Thresholds for all models are those of each, until it has its own.
func TestThresholdsOfAll(t *testing.T) {
	h := newHouse(t, router.Config{Thresholds: router.Thresholds{ActiveDecodeBlocks: new(0.25)}})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Model, c.Aliases = "z", nil }))
	h.join(2, card())
	if _, err := h.router.SetThresholds("m", router.Thresholds{ActivePrefillTokensFrac: new(3.0)}); err != nil {
		t.Fatal(err)
	}
	all := h.router.AllThresholds()
	if len(all) != 2 || all[0].Model != "m" || all[1].Model != "z" || *all[0].ActiveDecodeBlocks != 0.25 ||
		*all[0].ActivePrefillTokensFrac != 3 || all[1].ActivePrefillTokensFrac != nil || *all[1].ActiveDecodeBlocks != 0.25 {
		t.Errorf("%+v", all)
	}
}

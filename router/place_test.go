package router_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func prefill(c *engine.Card)   { c.Role = engine.Prefill }
func decode(c *engine.Card)    { c.Role = engine.Decode }
func fourRanks(c *engine.Card) { c.DPSize = 4 }

func bootstraps(c *engine.Card) { c.Disagg.Host, c.Disagg.Port = "10.0.0.7", 8998 }

func (h *house) place(q router.Query, l router.Legs) *router.Plan {
	h.t.Helper()
	p, err := h.router.Place(h.t.Context(), &q, l)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *house) answers(p *router.Plan) *router.Booking {
	h.t.Helper()
	b, err := p.Decode(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

var someone = router.Query{ID: "r", Model: "m", Tokens: count(0, 40)}

func TestTwoLegs(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(decode))
	q := someone
	q.Choices, q.Expected = 3, 500 // of answers, and of one leg alone
	p := h.place(q, router.Legs{})
	if p.Why != router.TwoLegs || p.Prefill == nil || p.Prefill.Worker().ID() != 1 || p.Meeting != nil {
		t.Fatalf("%+v", p)
	}
	// While it computes, only the prompt counts; there are no blocks to speak of.
	if l := h.router.Loads()[0]; l.PrefillTokens != 40 || l.ActiveBlocks != 0 || l.Requests != 1 {
		t.Errorf("prefill: %+v", l)
	}
	b := h.answers(p)
	if b.Worker().ID() != 2 {
		t.Errorf("the answer is made by %d", b.Worker().ID())
	}
	if l := h.router.Loads()[1]; l.PrefillTokens != 0 || l.ActiveBlocks != 10 || l.Requests != 3 {
		t.Errorf("decode: %+v", l)
	}
	p.Prefill.Release()
	b.Release()
	for _, l := range h.router.Loads() {
		if l.PrefillTokens+l.ActiveBlocks+l.Requests != 0 {
			t.Errorf("left over: %+v", l)
		}
	}
}

// A pool of prefill workers comes, goes, and comes again. Without it the decode
// workers do all.
func TestPrefillPool(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(2, card(decode))
	whole := func(want router.Pool) {
		t.Helper()
		if got := h.router.PrefillPool("alias"); got != want {
			t.Errorf("the pool is %v, not %v", got, want)
		}
		p := h.place(someone, router.Legs{})
		b := h.answers(p)
		defer b.Release()
		if want == router.Active {
			if p.Why != router.TwoLegs {
				t.Errorf("%v", p.Why)
			}
			p.Prefill.Release()
			return
		}
		if p.Prefill != nil || p.Why != router.WholeNoPool || b.Worker().ID() != 2 {
			t.Errorf("%v: %+v", want, p)
		}
		if l := h.router.Loads()[len(h.router.Loads())-1]; l.PrefillTokens != 40 {
			t.Errorf("%v: the decode worker computes the prompt: %+v", want, l)
		}
	}
	whole(router.Pending)
	h.join(1, engine.Status{Epoch: 1, Revision: 1, State: engine.Loading, Card: card(prefill).Card})
	whole(router.Pending)
	h.become(1, card(prefill))
	whole(router.Active)
	h.fleet.Remove(1)
	whole(router.Unavailable)
	h.join(1, card(prefill))
	whole(router.Active)
	h.fleet.Drain(1)
	whole(router.Unavailable)
	// Those who cannot take a request just now are there all the same, and the
	// request fails rather than being computed elsewhere.
	h.join(3, card(prefill, func(c *engine.Card) { c.Taints = nil }))
	q := someone
	q.Exclude = []uint64{3}
	if _, err := h.router.Place(t.Context(), &q, router.Legs{}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("%v", err)
	}
}

// A worker that needs another kind of worker takes nothing while there is none.
func TestNeeds(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(2, card(decode, func(c *engine.Card) { c.Needs = []engine.Role{engine.Prefill} }))
	if _, err := h.router.Place(t.Context(), &someone, router.Legs{}); err != nil {
		t.Fatal(err)
	}
	q := someone
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("%v", err)
	}
	h.join(1, card(prefill))
	h.answers(h.place(someone, router.Legs{}))
	// Whoever computes prompts is there now, and computes none for a whole request.
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a whole request: %v", err)
	}
}

// The roles that may do what is asked for.
func TestRolesOfLegs(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	takes := func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureHandoff) }
	h.join(1, card())
	h.join(2, card(takes))
	h.join(3, card(decode))
	h.join(4, card(prefill))
	h.join(5, card(func(c *engine.Card) { c.Role = engine.Encode }))
	for role, want := range map[engine.Role][]uint64{
		engine.Aggregated: {1, 2, 3}, engine.Decode: {2, 3}, engine.Prefill: {4}, engine.Encode: {5},
	} {
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Role: role, Tokens: count(0, 4)})
		if err != nil || len(rows) != len(want) {
			t.Errorf("%q: %d rows, %v", role, len(rows), err)
			continue
		}
		for i := range rows {
			if rows[i].Target.Worker != want[i] {
				t.Errorf("%q: worker %d, want %d", role, rows[i].Target.Worker, want[i])
			}
		}
	}
}

func TestLegsOfPins(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 5})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(prefill, fourRanks))
	h.join(3, card(decode))
	h.join(4, card(decode, fourRanks))
	rank := func(r uint32) *uint32 { return &r }
	at := func(worker uint64, rank uint32) kv.Target { return kv.Target{Worker: worker, Rank: rank} }
	for name, c := range map[string]struct {
		legs            router.Legs
		prefill, decode kv.Target
		param           string // of the error, if one leg cannot be placed
	}{
		"one rank is implied":             {router.Legs{Prefill: 1, Decode: 3}, at(1, 0), at(3, 0), ""},
		"ranks of their own":              {router.Legs{Prefill: 2, Decode: 4, PrefillRank: rank(3), Rank: rank(1)}, at(2, 3), at(4, 1), ""},
		"one rank for both":               {router.Legs{Prefill: 2, Decode: 4, Rank: rank(2)}, at(2, 2), at(4, 2), ""},
		"the prefill rank is missing":     {router.Legs{Prefill: 2, Decode: 3}, at(0, 0), at(0, 0), "nvext.prefill_dp_rank"},
		"the decode rank is missing":      {router.Legs{Prefill: 1, Decode: 4}, at(1, 0), at(0, 0), "nvext.dp_rank"},
		"the prefill rank is not there":   {router.Legs{Prefill: 2, PrefillRank: rank(4)}, at(0, 0), at(0, 0), "nvext.prefill_dp_rank"},
		"the decode rank is not there":    {router.Legs{Prefill: 1, Decode: 3, Rank: rank(7), PrefillRank: rank(0)}, at(1, 0), at(0, 0), "nvext.dp_rank"},
		"a rank is of the pinned leg":     {router.Legs{Decode: 4, Rank: rank(3)}, kv.Target{}, at(4, 3), ""},
		"the pin wins over the other one": {router.Legs{Backend: 9, Prefill: 1, Decode: 3}, at(1, 0), at(3, 0), ""},
	} {
		p, err := h.router.Place(t.Context(), &someone, c.legs)
		if err == nil {
			if got := p.Prefill.Decision().Target; c.prefill.Worker != 0 && got != c.prefill {
				t.Errorf("%s: prefill on %v", name, got)
			}
			var b *router.Booking
			if b, err = p.Decode(t.Context()); err == nil {
				if got := b.Decision().Target; got != c.decode {
					t.Errorf("%s: decode on %v", name, got)
				}
				b.Release()
			}
			p.Prefill.Release()
		}
		e, _ := err.(*engine.Error)
		if (err != nil) != (c.param != "") || e != nil && (e.Kind != engine.InvalidArgument || e.Param != c.param) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Ranks are those of a certain worker, and without one they mean nothing.
	h.answers(h.place(someone, router.Legs{Rank: rank(9), PrefillRank: rank(8)}))
	// One instance for both is in one pool only, unless it does whole requests.
	if _, err := h.router.Place(t.Context(), &someone, router.Legs{Backend: 3}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a decode worker is to compute the prompt: %v", err)
	}
	h.join(5, card())
	p := h.place(someone, router.Legs{Backend: 5})
	if got := h.answers(p).Worker().ID(); p.Why != router.WholeOnly || got != 5 {
		t.Errorf("an aggregated worker: %q, on %d", p.Why, got)
	}
}

func TestMeeting(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 2})
	defer h.fleet.Close()
	h.join(1, card(prefill, fourRanks, bootstraps))
	h.join(2, card(decode))
	rooms, ids, ranks := map[uint64]bool{}, map[string]bool{}, map[uint32]bool{}
	for range 50 {
		p := h.place(someone, router.Legs{})
		m := p.Meeting
		if m == nil || m.Host != "10.0.0.7" || m.Port != 8998 || len(m.Handoff) != 36 {
			t.Fatalf("%+v", m)
		}
		rank := p.Prefill.Decision().Target.Rank
		if m.Room >= 1<<63-1 || uint32(m.Room%4) != rank {
			t.Errorf("room %d for rank %d", m.Room, rank)
		}
		rooms[m.Room], ids[m.Handoff], ranks[rank] = true, true, true
		h.answers(p)
	}
	if len(rooms) != 50 || len(ids) != 50 || len(ranks) != 4 {
		t.Errorf("%d rooms, %d ids, %d ranks", len(rooms), len(ids), len(ranks))
	}
	h.become(1, card(prefill, bootstraps, func(c *engine.Card) { c.Disagg.SmallRooms = true }))
	for range 50 {
		if m := h.place(someone, router.Legs{}).Meeting; m.Room >= 1<<31-1 {
			t.Errorf("room %d", m.Room)
		}
	}
	h.become(1, card(prefill, func(c *engine.Card) { c.Disagg.Host = "10.0.0.7" }))
	if p := h.place(someone, router.Legs{}); p.Meeting != nil {
		t.Errorf("a meeting without a port: %+v", p.Meeting)
	}
}

// What the second leg is decided by: no credit for what is cached, for the blocks
// come from elsewhere, and no prefill.
func TestSecondLeg(t *testing.T) {
	for _, conditional := range []bool{false, true} {
		c := router.Config{}
		if conditional {
			c.Conditional = new(router.DefaultConditional())
			c.Conditional.ISL = 0 // never
		}
		h := newHouse(t, c)
		h.join(1, card(prefill))
		h.join(2, card(decode))
		h.join(3, card(decode))
		h.caches(2, 1, kv.TierDevice, someone.Tokens)
		// The worker with the cache has one block more in use.
		h.route(router.Query{Model: "m", Tokens: count(9000, 4), PinWorker: 2}).Prefilled()
		p := h.place(someone, router.Legs{})
		want := uint64(3)
		if conditional { // the credit is left, and goes against the blocks in use
			want = 2
		}
		b := h.answers(p)
		if got := b.Worker().ID(); got != want {
			t.Errorf("conditional %v: on %d, want %d", conditional, got, want)
		}
		// Its blocks are its own, whoever has the same prompt.
		h.route(router.Query{Model: "m", Tokens: someone.Tokens, PinWorker: want})
		for _, l := range h.router.Loads() {
			if l.Target.Worker == want && l.ActiveBlocks < 20 {
				t.Errorf("conditional %v: the blocks are shared: %+v", conditional, l)
			}
		}
		h.fleet.Close()
	}
}

// The client's own overrides stay, but for those that make no sense there.
func TestSecondLegOverrides(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(decode))
	q := someone
	q.Overrides = &router.Overrides{OverlapScoreCredit: new(9.0), Temperature: new(-1.0)}
	if _, err := h.router.Place(t.Context(), &q, router.Legs{}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("%v", err)
	}
	q.Overrides.Temperature = new(0.5)
	p := h.place(q, router.Legs{})
	h.answers(p)
	if o := q.Overrides; *o.OverlapScoreCredit != 9 || o.TrackPrefillTokens != nil {
		t.Errorf("the caller's overrides have changed: %+v", o)
	}
}

func TestWholeRequests(t *testing.T) {
	h := newHouse(t, router.Config{Conditional: new(router.DefaultConditional())})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(decode))
	told := uint64(0)
	for name, c := range map[string]struct {
		cached int
		legs   router.Legs
		want   router.Wholeness
	}{
		"nothing cached":          {0, router.Legs{}, router.TwoLegs},
		"asked for":               {0, router.Legs{Whole: true}, router.WholeAsked},
		"most is still to be had": {12, router.Legs{}, router.TwoLegs},      // 28 of 40
		"little is left":          {16, router.Legs{}, router.WholeCheaper}, // 24 of 40
	} {
		prompt := count(uint32(1000*c.cached+7), 40)
		told++
		h.caches(2, told, kv.TierDevice, prompt[:c.cached])
		q := router.Query{Model: "m", Tokens: prompt}
		before := h.router.Counters().Decisions
		p := h.place(q, c.legs)
		if p.Why != c.want || (p.Prefill == nil) != (c.want != router.TwoLegs) {
			t.Errorf("%s: %q, %+v", name, p.Why, p.Prefill)
		}
		booked := uint64(0)
		if p.Prefill != nil {
			p.Prefill.Release()
			booked = 1
		}
		if got := h.router.Counters().Decisions - before; got != booked {
			t.Errorf("%s: looking has booked: %d", name, got)
		}
	}
}

// Where prefill is busy, decode workers help, unless they are busy as well.
func TestWholeByLoad(t *testing.T) {
	conditional := router.DefaultConditional()
	conditional.Policy, conditional.PrefillBusy, conditional.DecodeBusy = router.ByLoad, new(1.0), new(0.5)
	h := newHouse(t, router.Config{Conditional: &conditional})
	defer h.fleet.Close()
	h.join(1, card(prefill, func(c *engine.Card) { c.MaxBatchedTokens = 40 }))
	h.join(2, card(decode, func(c *engine.Card) { c.TotalBlocks = 40 }))
	if p := h.place(someone, router.Legs{}); p.Why != router.TwoLegs { // 0 tokens wait
		t.Errorf("%q", p.Why)
	}
	if p := h.place(someone, router.Legs{}); p.Why != router.TwoLegs { // 40
		t.Errorf("%q", p.Why)
	}
	p := h.place(someone, router.Legs{}) // 80
	if p.Why != router.WholeCheaper {
		t.Errorf("%q", p.Why)
	}
	b := h.answers(p) // 10 of 40 blocks
	other := someone
	other.Tokens = count(5000, 40)
	if p := h.place(other, router.Legs{}); p.Why != router.WholeCheaper { // 20 of 40 with it
		t.Errorf("%q", p.Why)
	}
	other.Tokens = count(5000, 44)
	if p := h.place(other, router.Legs{}); p.Why != router.TwoLegs { // 21
		t.Errorf("%q", p.Why)
	}
	b.Release()
}

// To weigh two legs against one is to ask for advice that nobody will follow by an
// id: a policy that learns is not left to wait for what never comes.
func TestWeighingIsAdvice(t *testing.T) {
	conditional := router.DefaultConditional()
	conditional.Policy, conditional.PrefillBusy = router.ByISLOrLoad, new(1.0)
	var advice, real []router.Query
	h := newHouse(t, router.Config{
		Conditional: &conditional,
		Policy: policyFunc(func(_ context.Context, q *router.Query, _ []router.Candidate) (int, error) {
			if q.Advisory {
				advice = append(advice, *q)
			} else {
				real = append(real, *q)
			}
			return 0, nil
		}),
	})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(decode))
	q := someone
	q.ID = "r"
	p := h.place(q, router.Legs{})
	if len(advice) != 2 || advice[0].ID != "" || advice[1].ID != "" {
		t.Errorf("asked for advice on %+v, want one question for each leg, and no id", advice)
	}
	h.answers(p).Release()
	if len(real) != 2 || real[0].ID != "r" || real[1].ID != "r" {
		t.Errorf("asked about %+v, want both legs", real)
	}
}

func TestSecondLegStaysNear(t *testing.T) {
	in := func(rack string) func(*engine.Card) {
		return func(c *engine.Card) { c.Topology = map[string]string{"rack": rack} }
	}
	firmly := func(c *engine.Card) { c.Disagg.Domain, c.Disagg.Enforcement = "rack", engine.TransferRequired }
	gladly := func(c *engine.Card) {
		c.Disagg.Domain, c.Disagg.Enforcement, c.Disagg.PreferredWeight = "rack", engine.TransferPreferred, new(1.0)
	}
	build := func(how func(*engine.Card)) *house {
		h := newHouse(t, router.Config{Seed: 1})
		h.join(1, card(prefill, in("r1"), how, func(c *engine.Card) { c.Taints = []string{"gpu"} }))
		h.join(2, card(decode, in("r2")))
		h.join(3, card(decode, in("r1")))
		// Near is busier.
		h.route(router.Query{Model: "m", Tokens: count(9000, 40), PinWorker: 3}).Prefilled()
		return h
	}
	h := build(firmly)
	if got := h.answers(h.place(someone, router.Legs{})).Worker().ID(); got != 3 {
		t.Errorf("required: on %d", got)
	}
	q := someone
	q.Require = []string{"gpu"} // the client's own stays
	if b, err := h.place(q, router.Legs{}).Decode(t.Context()); err == nil {
		t.Errorf("on %d, which lacks a taint", b.Worker().ID())
	}
	h.fleet.Remove(3)
	p := h.place(someone, router.Legs{})
	if _, err := p.Decode(t.Context()); engine.KindOf(err) != engine.Unavailable || !strings.Contains(err.Error(), "dynamo.topology/rack=r1") {
		t.Errorf("required, and nobody near: %v", err)
	} else if missing, ok := errors.AsType[*router.MissingTaints](err); ok {
		t.Errorf("clients are told of taints that none asked for: %v", missing)
	}
	_, err := h.place(q, router.Legs{}).Decode(t.Context())
	if missing, ok := errors.AsType[*router.MissingTaints](err); !ok || !slices.Equal(missing.Missing, q.Require) {
		t.Errorf("nobody near, and none with the client's taint: %v, want to be told of %q", err, q.Require)
	}
	h.become(1, card(prefill, firmly))
	if _, err := h.router.Place(t.Context(), &someone, router.Legs{}); engine.KindOf(err) != engine.Internal {
		t.Errorf("a domain without value: %v", err)
	}
	if l := h.router.Loads()[0]; l.Requests != 4 { // the plans above
		t.Errorf("a request that failed is still booked: %+v", l)
	}
	h.fleet.Close()

	// Near costs 20 blocks, times 1/e^tanh(1) that is 9.3; far costs 10.
	h = build(gladly)
	q = someone
	q.Prefer = map[string]float64{"other": 1}
	if got := h.answers(h.place(q, router.Legs{})).Worker().ID(); got != 3 {
		t.Errorf("preferred: on %d", got)
	}
	if len(q.Prefer) != 1 {
		t.Errorf("the caller's preferences have changed: %v", q.Prefer)
	}
	h.fleet.Remove(3)
	if got := h.answers(h.place(someone, router.Legs{})).Worker().ID(); got != 2 {
		t.Errorf("preferred, and nobody near: on %d", got)
	}
	h.fleet.Close()
}

// Sessions are bound in both pools, and not to the same worker.
func TestSessionsOfTwoLegs(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.RoundRobin, SessionTTL: 1e9 * 60})
	defer h.fleet.Close()
	for id := range uint64(3) {
		h.join(id+1, card(prefill))
		h.join(id+11, card(decode))
	}
	q := someone
	q.Session.ID = "s"
	var first, second uint64
	for turn := range 4 {
		p := h.place(q, router.Legs{})
		b := h.answers(p)
		if turn == 0 {
			first, second = p.Prefill.Worker().ID(), b.Worker().ID()
		}
		if p.Prefill.Worker().ID() != first || b.Worker().ID() != second {
			t.Errorf("turn %d: %d and %d, not %d and %d", turn, p.Prefill.Worker().ID(), b.Worker().ID(), first, second)
		}
		p.Prefill.Release()
		b.Release()
	}
	// Whole requests go where their answers were made.
	if got := h.answers(h.place(q, router.Legs{Whole: true})).Worker().ID(); got != second {
		t.Errorf("a whole request: %d, not %d", got, second)
	}
}

// A pool of prefill workers is of no use where nobody takes their blocks.
func TestNobodyTakesBlocks(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card())
	p := h.place(someone, router.Legs{})
	if got := h.answers(p).Worker().ID(); p.Why != router.WholeOnly || got != 2 {
		t.Errorf("%q, on %d", p.Why, got)
	}
	h.join(3, card(func(c *engine.Card) { c.Features = engine.Features{engine.FeatureHandoff} }))
	p = h.place(someone, router.Legs{})
	if got := h.answers(p).Worker().ID(); p.Why != router.TwoLegs || got != 3 {
		t.Errorf("%q, on %d", p.Why, got)
	}
}

// Without anybody who waits, plans are made as well.
func TestSubmitPlan(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(prefill, bootstraps))
	h.join(2, card(decode))
	var plan *router.Plan
	var answers *router.Booking
	h.router.SubmitPlan(t.Context(), &someone, router.Legs{}, func(p *router.Plan, err error) {
		if plan = p; err != nil {
			t.Fatal(err)
		}
		p.SubmitDecode(t.Context(), func(b *router.Booking, err error) {
			if answers = b; err != nil {
				t.Fatal(err)
			}
		})
	})
	if plan.Prefill.Worker().ID() != 1 || plan.Meeting == nil || answers.Worker().ID() != 2 {
		t.Errorf("%+v, %+v", plan, answers)
	}
	h.fleet.Drain(2)
	plan.SubmitDecode(t.Context(), func(b *router.Booking, err error) {
		if engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%+v, %v", b, err)
		}
	})
	h.router.SubmitPlan(t.Context(), &someone, router.Legs{Prefill: 7}, func(p *router.Plan, err error) {
		if p != nil || engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestQueryPrefill(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(prefill, fourRanks))
	rank := uint32(2)
	got, err := h.router.QueryPrefill(t.Context(), &someone, router.Legs{Prefill: 2, PrefillRank: &rank})
	if err != nil || got != (kv.Target{Worker: 2, Rank: 2}) {
		t.Errorf("%v, %v", got, err)
	}
	if c := h.router.Counters(); c.Decisions != 0 {
		t.Errorf("%d bookings", c.Decisions)
	}
	h.fleet.Remove(1)
	h.fleet.Remove(2)
	if _, err := h.router.QueryPrefill(t.Context(), &someone, router.Legs{}); engine.KindOf(err) != engine.NotFound {
		t.Errorf("%v", err)
	}
}

// Blocks go to a worker that takes them in the way of the one that has them.
func TestStylesOfLegs(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	style := func(role engine.Role, name string) func(*engine.Card) {
		return func(c *engine.Card) { c.Role, c.Disagg.Style = role, name }
	}
	h.join(1, card(style(engine.Prefill, "nixl")))
	h.join(2, card(style(engine.Decode, "bootstrap")))
	if _, err := h.place(someone, router.Legs{}).Decode(t.Context()); engine.KindOf(err) != engine.Unavailable || !strings.Contains(err.Error(), "in the way of the prefill worker") {
		t.Errorf("%v", err)
	}
	h.join(3, card(style(engine.Decode, "nixl")))
	h.join(4, card(style(engine.Decode, ""))) // takes any
	seen := map[uint64]bool{}
	for range 20 {
		seen[h.answers(h.place(someone, router.Legs{})).Worker().ID()] = true
	}
	if seen[2] || !seen[3] || !seen[4] {
		t.Errorf("blocks went to %v", seen)
	}
}

// A prompt that is computed may go to another decode worker, when the first was never
// reached.
func TestElsewhere(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(prefill))
	h.join(2, card(decode))
	h.join(3, card(decode))
	p := h.place(someone, router.Legs{})
	first := h.answers(p)
	p = p.Elsewhere([]uint64{first.Worker().ID()})
	second := h.answers(p)
	if p.Prefill != nil || second.Worker().ID() != 5-first.Worker().ID() {
		t.Errorf("from %d to %d", first.Worker().ID(), second.Worker().ID())
	}
	if l := h.router.Loads()[second.Worker().ID()-1]; l.PrefillTokens != 0 || l.ActiveBlocks != 10 {
		t.Errorf("%+v", l)
	}
	if _, err := p.Elsewhere([]uint64{2, 3}).Decode(t.Context()); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("nobody is left: %v", err)
	}
}

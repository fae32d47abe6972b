package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// Who may serve a request, of four workers that differ; the last has two ranks.
func TestEligible(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Adapters = []string{"poet"} }))
	h.join(2, card(func(c *engine.Card) { c.Adapters = []string{} }))
	h.join(3, card())
	h.join(4, card(func(c *engine.Card) { c.DPStart, c.DPSize, c.Adapters = 4, 2, []string{"lawyer", "poet"} }))
	rank := func(n uint32) *uint32 { return &n }
	for name, tc := range map[string]struct {
		query router.Query
		want  []string
		code  string // if nobody may
	}{
		"all":                      {router.Query{}, []string{"1/0", "2/0", "3/0", "4/4", "4/5"}, ""},
		"some":                     {router.Query{Allow: []uint64{3, 1}}, []string{"1/0", "3/0"}, ""},
		"some, and strangers":      {router.Query{Allow: []uint64{99, 4, 0, 2, 4}}, []string{"2/0", "4/4", "4/5"}, ""},
		"strangers":                {router.Query{Allow: []uint64{99}}, nil, router.CodeAllFiltered},
		"nobody":                   {router.Query{Allow: []uint64{}}, nil, router.CodeAllFiltered},
		"some, less one":           {router.Query{Allow: []uint64{3, 1}, Exclude: []uint64{1}}, []string{"3/0"}, ""},
		"a rank":                   {router.Query{PinRank: rank(0)}, []string{"1/0", "2/0", "3/0"}, ""},
		"another rank":             {router.Query{PinRank: rank(5)}, []string{"4/5"}, ""},
		"a rank that nobody has":   {router.Query{PinRank: rank(1)}, nil, router.CodeAllFiltered},
		"an adapter":               {router.Query{Namespace: kv.Namespace{LoRA: "poet"}}, []string{"1/0", "4/4", "4/5"}, ""},
		"an adapter of some":       {router.Query{Namespace: kv.Namespace{LoRA: "poet"}, Allow: []uint64{1, 2}}, []string{"1/0"}, ""},
		"an adapter of others":     {router.Query{Namespace: kv.Namespace{LoRA: "poet"}, Allow: []uint64{2, 3}}, nil, router.CodeAllFiltered},
		"an adapter nobody serves": {router.Query{Namespace: kv.Namespace{LoRA: "x"}}, nil, router.CodeAllFiltered},
		"a pin":                    {router.Query{PinWorker: 3}, []string{"3/0"}, ""},
		"a pin that is allowed":    {router.Query{PinWorker: 3, Allow: []uint64{3}}, []string{"3/0"}, ""},
		"a pin that is not":        {router.Query{PinWorker: 3, Allow: []uint64{2}}, nil, router.CodePinnedNotAllowed},
		"a pin without adapter":    {router.Query{PinWorker: 3, Namespace: kv.Namespace{LoRA: "poet"}}, nil, router.CodePinnedFiltered},
	} {
		t.Run(name, func(t *testing.T) {
			tc.query.Model = "m"
			allow := slices.Clone(tc.query.Allow)
			rows, err := h.router.Explain(t.Context(), &tc.query)
			var got []string
			for _, r := range rows {
				got = append(got, r.Target.String())
			}
			if !slices.Equal(got, tc.want) || code(err) != tc.code {
				t.Errorf("got %v, %v; want %v, %s", got, err, tc.want, tc.code)
			}
			if !slices.Equal(tc.query.Allow, allow) {
				t.Error("the query was changed")
			}
		})
	}
}

// Without a word about adapters from anybody, everybody may serve them.
func TestAdaptersUntold(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card(func(c *engine.Card) { c.Model, c.Aliases, c.Adapters = "another", nil, []string{"x"} }))
	h.route(router.Query{Model: "m", Namespace: kv.Namespace{LoRA: "poet"}}).Release()
}

// Everybody who is left out is told of, with a reason.
func TestBarred(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	for id := range uint64(8) {
		h.join(id+1, card(func(c *engine.Card) { c.Taints = []string{"gpu"} }))
	}
	h.become(1, engine.Status{Epoch: 1, Revision: 1, State: engine.Draining, Card: card().Card})
	h.fleet.Worker(3).Inhibit(time.Now(), engine.Disconnected)
	h.fleet.Worker(4).Inhibit(time.Now(), engine.WorkerOverloaded)
	h.become(5, card())
	h.become(6, card(func(c *engine.Card) { c.Taints, c.ContextLength = []string{"gpu"}, 10 }))
	h.become(8, card(func(c *engine.Card) { c.Model, c.Aliases = "another", nil }))
	got := map[uint64]string{}
	for _, b := range h.router.Barred(&router.Query{
		Model: "m", Tokens: count(0, 20), Allow: []uint64{1, 3, 4, 5, 6, 7}, Require: []string{"gpu"}, Exclude: []uint64{7},
	}) {
		got[b.Worker.ID()] = b.Code
		if b.Reason == "" {
			t.Errorf("%d: no reason", b.Worker.ID())
		}
	}
	for id, want := range map[uint64]string{1: "not_ready", 2: "not_allowed", 3: "failed_lately", 4: "overloaded", 5: "taints", 6: "context_length", 7: "tried"} {
		if got[id] != want {
			t.Errorf("worker %d: %q, want %q", id, got[id], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("got %v; the one of another model has no place there", got)
	}
}

// Preferred taints multiply the cost, however many there are, but not of a worker
// that the request names.
func TestPreferences(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1, Tuning: new(router.Unscaled())})
	defer h.fleet.Close()
	for id, taints := range map[uint64][]string{1: {"fast"}, 2: {"fast", "near", "fast"}, 3: {"slow"}, 4: {"other"}, 5: nil} {
		h.join(id, card(func(c *engine.Card) { c.Taints = taints }))
	}
	q := router.Query{Model: "m", Tokens: count(0, 40), Prefer: map[string]float64{"fast": 0.5, "near": 99, "slow": -1}}
	rows, err := h.router.Explain(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	for i, sum := range []float64{0.5, 99.5, -1, 0, 0} {
		m := math.Exp(-math.Tanh(sum))
		if got := rows[i]; math.Abs(got.Preference-m) > 1e-12 || math.Abs(got.Cost-20*m) > 1e-9 {
			t.Errorf("worker %d: %v, cost %v; want %v, %v", i+1, got.Preference, got.Cost, m, 20*m)
		}
	}
	b := h.route(q)
	defer b.Release()
	if b.Decision().Target.Worker != 2 {
		t.Errorf("went to %v", b.Decision().Target)
	}
	q.Prefer = map[string]float64{"fast": math.MaxFloat64, "near": math.MaxFloat64, "slow": -math.MaxFloat64}
	if rows, err = h.router.Explain(t.Context(), &q); err != nil || rows[1].Preference != math.Exp(-1) || rows[2].Preference != math.Exp(1) {
		t.Errorf("weights beyond all measure: %+v, %v", rows, err)
	}
	q.Prefer = map[string]float64{"fast": math.Inf(1), "near": math.Inf(-1)}
	if rows, err = h.router.Explain(t.Context(), &q); err != nil || rows[1].Preference != 1 {
		t.Errorf("endless weights for and against: %+v, %v", rows, err)
	}
	h.become(4, card(func(c *engine.Card) {
		c.Topology, c.Taints = map[string]string{"zone": "b"}, []string{"dynamo.topology/zone=b", "fast"}
	}))
	q.Prefer = map[string]float64{"fast": 0.25, "dynamo.topology/zone=b": 0.25, "dynamo.topology/zone=c": 9}
	if rows, err = h.router.Explain(t.Context(), &q); err != nil || rows[3].Preference != math.Exp(-math.Tanh(0.5)) {
		t.Errorf("where it stands, said twice: %+v, %v", rows, err)
	}
	q.PinWorker = 3
	rows, err = h.router.Explain(t.Context(), &q)
	if err != nil || rows[0].Preference != 1 || rows[0].Cost != 20 {
		t.Errorf("pinned: %+v, %v", rows, err)
	}
}

// Nobody is told that the last block of a prompt is cached: the engine computes it
// again, for the first token of the answer.
func TestLastBlockIsComputedAgain(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	h.caches(1, 1, kv.TierDevice, count(0, 40))
	for length, want := range map[int]int{1: 0, 4: 0, 5: 4, 39: 36, 40: 36, 41: 40, 44: 40} {
		b := h.route(router.Query{Model: "m", Tokens: count(0, length)})
		if got := b.Decision().CachedTokens; got != want {
			t.Errorf("of %d tokens %d count as cached, want %d", length, got, want)
		}
		b.Release()
	}
}

// A prompt of which only the hashes are known is routed as its tokens would be.
func TestPromptByHashes(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 42)
	h.caches(2, 1, kv.TierDevice, p[:40])
	local := kv.AppendLocalHashes(nil, p, 4, kv.HashSeed)
	hashes := &router.Hashes{Local: local, Seq: kv.AppendSeqHashes(nil, local), Tokens: 42}
	b := h.route(router.Query{Model: "m", Hashes: hashes})
	if d := b.Decision(); d.Target.Worker != 2 || d.Overlap != 10 || d.CachedTokens != 40 || d.Blocks != 11 {
		t.Errorf("%+v", d)
	}
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil || rows[1].PrefillTokens != 2 || rows[1].ActiveBlocks != 10 || rows[1].DecodeBlocks != 10 {
		t.Errorf("%+v, %v", rows, err)
	}
	b.Release()
	for name, q := range map[string]router.Query{
		"both":          {Tokens: p, Hashes: hashes},
		"half":          {Hashes: &router.Hashes{Local: local, Tokens: 42}},
		"too few":       {Hashes: &router.Hashes{Local: local, Seq: hashes.Seq, Tokens: 9}},
		"less than few": {Hashes: &router.Hashes{Tokens: -1}},
	} {
		q.Model = "m"
		if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is advised is what would be done, and leaves no trace.
func TestAdvise(t *testing.T) {
	for _, mode := range []router.Mode{router.KV, router.RoundRobin, router.LeastLoaded} {
		h := newHouse(t, router.Config{Seed: 1, Mode: mode})
		for id := range uint64(3) {
			h.join(id+1, card())
		}
		h.caches(2, 1, kv.TierDevice, count(0, 40))
		for i := range 12 {
			q := router.Query{Model: "m", Tokens: count(uint32(i%3)*100, 40)}
			before, loads := h.router.Counters(), h.router.Loads()
			d, err := h.router.Advise(t.Context(), &q)
			if err != nil {
				t.Fatal(err)
			}
			if after := h.router.Counters(); after != before || !slices.Equal(loads, h.router.Loads()) {
				t.Errorf("%s: %+v became %+v", mode, before, after)
			}
			b := h.route(q)
			if got := b.Decision().Target; mode == router.RoundRobin && got != d.Target {
				t.Errorf("advised %v, went to %v", d.Target, got)
			}
			b.Release()
		}
		h.fleet.Close()
	}
}

// A policy can tell advice from a request that goes where it says.
func TestPolicyKnowsAdvice(t *testing.T) {
	var asked []router.Query
	h := newHouse(t, router.Config{Policy: policyFunc(func(_ context.Context, q *router.Query, _ []router.Candidate) (int, error) {
		asked = append(asked, *q)
		return 0, nil
	})})
	defer h.fleet.Close()
	h.join(1, card())
	q := router.Query{ID: "r", Model: "m", Tokens: count(0, 40)}
	if _, err := h.router.Advise(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	h.route(q).Release()
	if len(asked) != 2 || !asked[0].Advisory || asked[0].ID != "r" || asked[1].Advisory || q.Advisory {
		t.Errorf("the policy was asked %+v", asked)
	}
}

func TestPotentialLoads(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 42)
	h.caches(2, 1, kv.TierDevice, p[:20])
	defer h.route(router.Query{Model: "m", Tokens: p, PinWorker: 1}).Release()
	got, err := h.router.PotentialLoads(t.Context(), &router.Query{Model: "m", Tokens: p})
	want := []router.PotentialLoad{
		{Target: kv.Target{Worker: 1}, PrefillTokens: 84, DecodeBlocks: 10, Requests: 1},
		{Target: kv.Target{Worker: 2}, PrefillTokens: 22, DecodeBlocks: 10},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// The preset leaves nothing that looks at caches.
func TestLoadAware(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.PredictedTTL, tuning.SharedCacheMultiplier, tuning.TrackPrefillTokens = time.Second, 0.5, false
	router.LoadAware(&tuning)
	h := newHouse(t, router.Config{Seed: 1, Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 40)
	h.caches(2, 1, kv.TierDevice, p)
	first := h.route(router.Query{Model: "m", Tokens: p})
	second := h.route(router.Query{Model: "m", Tokens: p})
	if a, b := first.Decision().Target, second.Decision().Target; a == b {
		t.Errorf("both went to %v", a)
	}
	third := h.route(router.Query{Model: "m", Tokens: p})
	if l := h.router.Loads(); l[0].ActiveBlocks+l[1].ActiveBlocks != 30 {
		t.Errorf("requests share blocks: %+v", l)
	}
	first.Release()
	second.Release()
	third.Release()
}

// Who requires taints that nobody has is told which, and nothing of those that are
// required for reasons of the router's own.
func TestMissingTaints(t *testing.T) {
	tainted := func(taints ...string) func(*engine.Card) {
		return func(c *engine.Card) { c.Taints = taints }
	}
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(tainted("west", "gpu")))
	h.join(2, card(tainted("east")))
	for name, tc := range map[string]struct {
		query router.Query
		want  []string
		says  string
	}{
		"one that nobody has":         {router.Query{Require: []string{"gold"}}, []string{"gold"}, `no worker that is ready has the required taints ["gold"]`},
		"some beside one that is":     {router.Query{Require: []string{"a", "gpu", "b"}}, []string{"a", "b"}, `no worker that is ready has the required taints ["a" "b"]`},
		"each is there, none has all": {router.Query{Require: []string{"east", "west"}}, []string{"east", "west"}, `no worker that is ready has all of the required taints ["east" "west"]`},
		"what the others lack":        {router.Query{Require: []string{"east"}, Exclude: []uint64{2}}, []string{"east"}, `no worker that is ready has the required taints ["east"]`},
		"against a pin":               {router.Query{Require: []string{"east", "gpu"}, PinWorker: 1}, []string{"east"}, `the request is pinned to a worker that lacks the required taints ["east"]`},
	} {
		t.Run(name, func(t *testing.T) {
			tc.query.Model = "m"
			require := slices.Clone(tc.query.Require)
			_, err := h.router.Route(t.Context(), &tc.query)
			missing, ok := errors.AsType[*router.MissingTaints](err)
			if !ok || engine.KindOf(err) != engine.Unavailable || missing.Error() != tc.says || !slices.Equal(missing.Missing, tc.want) {
				t.Fatalf("got %v, want %s", err, tc.says)
			}
			if details, err := json.Marshal(missing.ClientDetails()); err != nil || !strings.Contains(string(details), `{"missing_taints":["`) {
				t.Errorf("clients are told %s, %v", details, err)
			}
			if !slices.Equal(tc.query.Require, require) {
				t.Errorf("the query was changed: it requires %q", tc.query.Require)
			}
		})
	}
}

package enginetest

import (
	"context"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

func oneEnd(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	for n := 1; n < 40; n += 7 {
		generate(t, e, s.request(uint64(n), n, n)) // collect watches the ends
	}
	r := s.request(1, 10, int(st.Card.ContextLength)+1)
	if a := collect(context.Background(), t, e, r); engine.KindOf(a.err) != engine.InvalidArgument || len(a.deltas) > 0 {
		t.Errorf("too long a request: %d deltas, %v, want invalid_argument", len(a.deltas), a.err)
	}
}

func sameEveryTime(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	zero := 0.0
	r := s.request(1, 40, 30)
	r.Sampling.Temperature = &zero
	want := generate(t, e, r).ids
	for range 3 {
		if got := generate(t, e, r).ids; !slices.Equal(got, want) {
			t.Fatalf("%v, the first time %v", got, want)
		}
	}
	other := s.New(t)
	ready(t, other)
	if got := generate(t, other, r).ids; !slices.Equal(got, want) {
		t.Errorf("another engine gave %v, the first one %v", got, want)
	}
}

// What others have given of an answer counts as its beginning, wherever it goes on.
func goesOn(t *testing.T, s *Subject) {
	one, other := s.New(t), s.New(t)
	ready(t, one)
	ready(t, other)
	const most, least = 40, 25
	for _, temperature := range []float64{0, 1} {
		r := s.request(5, 30, most)
		r.Stop.MinTokens = least
		r.Sampling = engine.Sampling{
			Temperature: &temperature, Seed: new(int64(11)),
			FrequencyPenalty: new(1.5), PresencePenalty: new(-0.5), RepetitionPenalty: new(1.3),
		}
		want := generate(t, one, r).ids
		for _, given := range []int{0, 1, 17, least, most - 1} {
			rest := *r
			rest.TokenIDs, rest.Answered = slices.Concat(r.TokenIDs, want[:given]), given
			rest.Stop.MaxTokens, rest.Stop.MinTokens = most-given, max(0, least-given)
			if got := generate(t, other, &rest).ids; !slices.Equal(got, want[given:]) {
				t.Errorf("temperature %v: behind %d tokens another engine gave %v, want %v", temperature, given, got, want[given:])
			}
		}
	}
}

func logprobs(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	for _, k := range []int{0, 1, 5} {
		r := s.request(1, 20, 12)
		r.Logprobs = &k
		for _, d := range generate(t, e, r).deltas {
			for i, lp := range d.Logprobs {
				if lp.ID != d.TokenIDs[i] || !(lp.Logprob <= 0) {
					t.Errorf("%+v for id %d", lp, d.TokenIDs[i])
				}
				checkTop(t, lp.Top, k)
			}
		}
	}
	for d := range e.Generate(context.Background(), s.request(1, 20, 3)) {
		if d.Logprobs != nil {
			t.Errorf("log probabilities that nobody asked for: %+v", d)
		}
	}
}

func checkTop(t *testing.T, top []engine.Logprob, k int) {
	t.Helper()
	falling := slices.IsSortedFunc(top, func(a, b engine.Logprob) int {
		switch {
		case a.Logprob > b.Logprob:
			return -1
		case a.Logprob < b.Logprob:
			return 1
		}
		return 0
	})
	if len(top) > k || !falling {
		t.Errorf("alternatives %+v, want at most %d in falling order", top, k)
	}
}

func promptLogprobs(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	k := 2
	r := s.request(1, 15, 4)
	r.PromptLogprobs = &k
	var all [][]engine.Logprob
	for _, d := range generate(t, e, r).deltas {
		if d.PromptLogprobs != nil {
			all = append(all, d.PromptLogprobs)
		}
	}
	if len(all) != 1 || len(all[0]) != len(r.TokenIDs) {
		t.Fatalf("%d lists of prompt log probabilities, want one of %d", len(all), len(r.TokenIDs))
	}
	for i, lp := range all[0] {
		if lp.ID != r.TokenIDs[i] || math.IsNaN(lp.Logprob) != (i == 0) {
			t.Errorf("position %d: %+v, want id %d", i, lp, r.TokenIDs[i])
		}
		checkTop(t, lp.Top, k)
	}
}

func limits(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	for _, n := range []int{1, 2, 33} {
		a := generate(t, e, s.request(3, 20, n))
		if len(a.ids) != n || a.last.Finish != engine.FinishLength || a.last.Usage.Output != n {
			t.Errorf("max_tokens %d: %d ids, finish %s, usage %+v", n, len(a.ids), a.last.Finish, a.last.Usage)
		}
	}
	if !st.Card.Features.Has(engine.FeatureMinTokens) {
		return
	}
	r := s.request(3, 20, 40)
	free := generate(t, e, r)
	r.Stop.IDs, r.Stop.MinTokens = free.ids, 25
	if a := generate(t, e, r); len(a.ids) < 25 {
		t.Errorf("min_tokens 25: stopped after %d", len(a.ids))
	}
	if len(st.Card.EOS) > 0 {
		r = s.request(3, 20, 400)
		r.Stop.Hidden, r.Stop.MinTokens = st.Card.EOS, 300
		if a := generate(t, e, r); len(a.ids) < 300 {
			t.Errorf("min_tokens 300: ended after %d", len(a.ids))
		}
	}
}

func stopIDs(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	r := s.request(4, 20, 20)
	free := generate(t, e, r).ids
	at := slices.Index(free, free[12]) // where it comes first
	r.Stop.IDs = []uint32{4_000_000, free[12]}
	a := generate(t, e, r)
	if !slices.Equal(a.ids, free[:at+1]) || a.last.Finish != engine.FinishStop || !slices.Equal(a.last.MatchedIDs, free[12:13]) || a.last.Usage.Output != at+1 {
		t.Errorf("listed stop id: %v, %s, matched %v, usage %+v; want %v", a.ids, a.last.Finish, a.last.MatchedIDs, a.last.Usage, free[:at+1])
	}
	r.Stop.IDs, r.Stop.Hidden = nil, []uint32{free[12]}
	a = generate(t, e, r)
	if !slices.Equal(a.ids, free[:at]) || a.last.Finish != engine.FinishEOS || a.last.Usage.Output != at+1 {
		t.Errorf("hidden stop id: %v, %s, usage %+v; want %v, counted %d", a.ids, a.last.Finish, a.last.Usage, free[:at], at+1)
	}
	r.Stop.IDs = r.Stop.Hidden
	if a = generate(t, e, r); !slices.Equal(a.ids, free[:at+1]) || a.last.Finish != engine.FinishStop {
		t.Errorf("listed and hidden: %v, %s; want %v", a.ids, a.last.Finish, free[:at+1])
	}
	if len(st.Card.EOS) == 0 {
		return
	}
	r = s.request(4, 20, 400)
	r.Stop.Hidden = st.Card.EOS
	natural := generate(t, e, r)
	r.Stop.Hidden = nil
	if a = generate(t, e, r); len(a.ids) != 400 || a.last.Finish != engine.FinishLength || len(natural.ids) < 400 && natural.last.Finish != engine.FinishEOS {
		t.Errorf("ignoring the end: %d ids, %s; with it: %d ids, %s", len(a.ids), a.last.Finish, len(natural.ids), natural.last.Finish)
	}
}

func usage(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	a := generate(t, e, s.request(5, 37, 9))
	u := a.last.Usage
	if u.Prompt != 37 || u.Output != 9 {
		t.Errorf("usage %+v, want 37 and 9", u)
	}
	if has := st.Card.Features.Has(engine.FeatureCachedTokens); has != (u.Cached != nil) {
		t.Errorf("cached_tokens is %v in the card and %v in the usage", has, u.Cached)
	}
}

func cachedTokens(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	size := int(st.Card.BlockSize)
	for _, n := range []int{size - 1, size, size + 1, 4 * size, 4*size + 3} {
		r := s.onZero(st.Card, s.request(uint64(n)+100, n, 1))
		generate(t, e, r)
		a := generate(t, e, r)
		want := (n - 1) / size * size
		if got := a.last.Usage.Cached; got == nil || *got != want {
			t.Errorf("second run of %d tokens: cached %v, want %d", n, got, want)
		}
		cache := s.settle(t, e)
		if st.Card.HashScheme != engine.SchemeXXH3 {
			continue
		}
		for i, l := range kv.AppendLocalHashes(nil, r.TokenIDs[:n-1], size, r.KV.Namespace.Seed()) {
			if !cache.has(l) {
				t.Errorf("block %d of the prompt is not among the events", i)
			}
		}
	}
}

func doNotMix(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	const streams = 64
	want := make([][]uint32, streams)
	for i := range want {
		want[i] = generate(t, e, s.request(uint64(i), 10+i, 20)).ids
	}
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			r := s.request(uint64(i), 10+i, 20)
			before := *r
			before.TokenIDs = slices.Clone(r.TokenIDs)
			if a := collect(context.Background(), t, e, r); !slices.Equal(a.ids, want[i]) {
				t.Errorf("stream %d: %v, %v; alone %v", i, a.ids, a.err, want[i])
			}
			if !reflect.DeepEqual(*r, before) {
				t.Errorf("stream %d: the request was changed", i)
			}
		})
	}
	wg.Wait()
}

func refusals(t *testing.T, s *Subject) {
	e := s.New(t)
	card := ready(t, e).Card
	refused := func(what string, f engine.Feature, change func(*engine.Request)) {
		if card.Features.Has(f) {
			return
		}
		r := s.request(1, 10, 5)
		change(r)
		if a := collect(context.Background(), t, e, r); engine.KindOf(a.err) != engine.Unsupported || len(a.deltas) > 0 {
			t.Errorf("%s without the feature: %d deltas, %v, want unsupported", what, len(a.deltas), a.err)
		}
	}
	refused("guided output", engine.FeatureGuidedObject, func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject} })
	refused("an adapter", engine.FeatureLoRA, func(r *engine.Request) { r.KV.Namespace.LoRA = "some" })
	refused("a salt", engine.FeatureCacheSalt, func(r *engine.Request) { r.KV.Namespace.Salt = "some" })
	refused("stop strings", engine.FeatureStopStrings, func(r *engine.Request) { r.Stop.Strings = []string{"x"} })

	want := generate(t, e, s.request(1, 10, 5)).ids
	r := s.request(1, 10, 5)
	seed := int64(7)
	r.KV.Session = kv.Session{ID: "s"}
	if !card.Features.Has(engine.FeatureSeed) {
		r.Sampling.Seed = &seed
	}
	if got := generate(t, e, r).ids; !slices.Equal(got, want) {
		t.Errorf("a session changed the answer: %v, want %v", got, want)
	}
}

package enginetest

import (
	"context"
	"errors"
	"io"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

var tests = []test{
	{name: "01-construction", run: construction},
	{name: "02-ready-has-a-card", run: readyHasCard},
	{name: "03-restart-is-another-epoch", hook: "restart", run: restartEpoch},
	{name: "04-drain", hook: "slow drain", run: drain},
	{name: "05-one-end", run: oneEnd},
	{name: "06-same-every-time", run: sameEveryTime},
	{name: "07-logprobs", needs: engine.Features{engine.FeatureLogprobs}, run: logprobs},
	{name: "07-prompt-logprobs", needs: engine.Features{engine.FeaturePromptLogprobs}, run: promptLogprobs},
	{name: "08-limits", run: limits},
	{name: "09-stop-ids", needs: engine.Features{engine.FeatureStopIDs}, run: stopIDs},
	{name: "10-usage", run: usage},
	{name: "11-cached-tokens", needs: engine.Features{engine.FeatureEvents, engine.FeatureCachedTokens}, run: cachedTokens},
	{name: "12-streams-do-not-mix", run: doNotMix},
	{name: "13-one-loop", run: oneLoop},
	{name: "14-refusals", run: refusals},
	{name: "15-leaving", hook: "slow", run: leaving},
	{name: "16-cancelled", hook: "slow", run: cancelled},
	{name: "17-deadline", hook: "slow", run: deadline},
	{name: "19-killed", hook: "slow restart", run: killed},
	{name: "21-slow-consumer", run: slowConsumer},
	{name: "22-nothing-left", run: nothingLeft},
	{name: "25-events-fold", needs: engine.Features{engine.FeatureEvents}, run: eventsFold},
	{name: "25-namespaces", needs: engine.Features{engine.FeatureEvents, engine.FeatureCacheSalt, engine.FeatureLoRA, engine.FeatureCachedTokens}, run: namespaces},
	{name: "26-resume", needs: engine.Features{engine.FeatureEvents}, run: resume},
	{name: "27-restart", needs: engine.Features{engine.FeatureEvents}, hook: "restart", run: restart},
	{name: "28-load", hook: "slow", run: load},
}

func construction(t *testing.T, s *Subject) {
	e := s.New(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for st, err := range e.Card(ctx) {
		if err != nil || st.Epoch == 0 || st.State != engine.Ready && st.Reason == "" {
			t.Errorf("first status %+v, %v", st, err)
		}
		return
	}
	t.Error("no status within 5 s")
}

func readyHasCard(t *testing.T, s *Subject) {
	st := ready(t, s.New(t))
	c := st.Card
	switch {
	case c == nil:
		t.Fatal("ready without a card")
	case c.Model == "" || len(c.Accepts) == 0 || c.ContextLength == 0 || c.Ranks() < 1:
		t.Errorf("card %+v", c)
	case c.Features.Has(engine.FeatureEvents) && (c.BlockSize == 0 || c.HashScheme == ""):
		t.Errorf("events without block size or hash scheme: %+v", c)
	}
}

func restartEpoch(t *testing.T, s *Subject) {
	e := s.New(t)
	before := ready(t, e).Epoch
	generate(t, e, s.request(1, 20, 5))
	if now := ready(t, e).Epoch; now != before {
		t.Errorf("epoch %d became %d without a restart", before, now)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	seen := []uint64{}
	for st := range e.Card(ctx) {
		if len(seen) == 0 {
			s.Restart(e)
		}
		if len(seen) == 0 || seen[len(seen)-1] != st.Epoch {
			seen = append(seen, st.Epoch)
		}
	}
	if len(seen) != 2 || seen[0] != before {
		t.Errorf("epochs %v over one restart, want %d and one other", seen, before)
	}
}

func drain(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	r := s.request(1, 20, 10)
	want := generate(t, e, r).ids
	var got []uint32
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatalf("a running stream did not survive the drain: %v", err)
		}
		if got == nil {
			s.Drain(e)
		}
		got = append(got, d.TokenIDs...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("drained stream gave %v, want %v", got, want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	draining := false
	for st := range e.Card(ctx) {
		if draining = st.State == engine.Draining; draining {
			break
		}
	}
	if a := collect(context.Background(), t, e, r); !draining || engine.KindOf(a.err) != engine.Unavailable {
		t.Errorf("draining seen: %v; a newcomer got %v, want unavailable", draining, a.err)
	}
}

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
	zero := uint32(0)
	for _, n := range []int{size - 1, size, size + 1, 4 * size, 4*size + 3} {
		r := s.request(uint64(n)+100, n, 1)
		r.DPRank = &zero
		generate(t, e, r)
		a := generate(t, e, r)
		want := (n - 1) / size * size
		if got := a.last.Usage.Cached; got == nil || *got != want {
			t.Errorf("second run of %d tokens: cached %v, want %d", n, got, want)
		}
		cache := fold(t, e, 0, nil)
		seq := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, r.TokenIDs[:n-1], size, r.KV.Namespace.Seed()))
		for i, h := range seq {
			if _, ok := cache[kv.EngineHash(h)]; !ok && st.Card.HashScheme == engine.SchemeXXH3 {
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

func oneLoop(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	e.Generate(context.Background(), s.request(1, 10, 5)) // never ranged over
	awaitLoad(t, e, time.Second, "nothing was begun", idle)
	seq := e.Generate(context.Background(), s.request(1, 10, 5))
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for d, err := range seq {
		if n++; engine.KindOf(err) != engine.Internal || !zero(d) || err == nil {
			t.Errorf("second loop: %+v, %v, want an error of kind internal", d, err)
		}
	}
	if n != 1 {
		t.Errorf("second loop: %d items", n)
	}
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

func leaving(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	var left time.Time
	for _, err := range e.Generate(context.Background(), s.request(1, 10, 400)) {
		if err != nil {
			t.Fatal(err)
		}
		left = time.Now()
		break
	}
	s.soon(t, "leaving the loop", left)
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func cancelled(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	check := func(what string, err error, at time.Time) {
		t.Helper()
		s.soon(t, what, at)
		if engine.KindOf(err) != engine.Cancelled || !errors.Is(err, engine.ErrClientGone) {
			t.Errorf("%s: %v, want the context's kind and cause", what, err)
		}
	}
	begin := func() (context.Context, func() time.Time) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return ctx, func() time.Time { at := time.Now(); cancel(engine.ErrClientGone); return at }
	}

	ctx, cancel := begin()
	at := cancel()
	check("cancelled before it began", collect(ctx, t, e, s.request(1, 10, 5)).err, at)

	// Between items, and, while that one runs, in the queue.
	ctx, cancel = begin()
	first := make(chan struct{})
	running := make(chan error, 1)
	go func() {
		var once sync.Once
		for _, err := range e.Generate(ctx, s.request(2, 10, 400)) {
			once.Do(func() { close(first) })
			if err != nil {
				running <- err
			}
		}
	}()
	<-first
	queued, cancelQueued := begin()
	waiting := make(chan error, 1)
	go func() { waiting <- collect(queued, t, e, s.request(3, 10, 5)).err }()
	awaitLoad(t, e, time.Second, "one waits", func(_, waiting int64) bool { return waiting == 1 })
	at = cancelQueued()
	check("cancelled in the queue", <-waiting, at)
	at = cancel()
	check("cancelled between items", <-running, at)
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func deadline(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 40*time.Millisecond, engine.ErrDeadline)
	defer cancel()
	at := time.Now().Add(40 * time.Millisecond)
	a := collect(ctx, t, e, s.request(1, 10, 400))
	s.soon(t, "the deadline", at)
	if engine.KindOf(a.err) != engine.DeadlineExceeded {
		t.Errorf("ended with %v, want deadline_exceeded", a.err)
	}
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func killed(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	const most = 30
	r := s.request(1, 21, most)
	want := generate(t, e, r).ids
	for _, after := range []int{1, 7, 18} {
		var got []uint32
		var end error
		for d, err := range e.Generate(context.Background(), r) {
			before := len(got)
			got, end = append(got, d.TokenIDs...), err
			if before < after && len(got) >= after {
				s.Restart(e)
			}
		}
		if end == nil || engine.KindOf(end).Retry() != engine.RetryMigrate {
			t.Fatalf("killed after %d tokens: %v, want a kind that migrates", after, end)
		}
		ready(t, e)
		rest := *r
		rest.TokenIDs = append(slices.Clone(r.TokenIDs), got...)
		rest.Stop.MaxTokens = most - len(got)
		if got = append(got, generate(t, e, &rest).ids...); !slices.Equal(got, want) {
			t.Errorf("killed after %d tokens and carried on: %v\nwant %v", after, got, want)
		}
	}
}

func slowConsumer(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	pause := 200 * time.Millisecond
	if s.Virtual {
		pause = 10 * time.Second
	}
	r := s.request(1, 10, 400)
	want := generate(t, e, r).ids
	var got []uint32
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			until := time.After(pause)
			if other := generate(t, e, s.request(2, 10, 400)); len(other.ids) != 400 {
				t.Errorf("another stream gave %d of 400", len(other.ids))
			}
			<-until
		}
		got = append(got, d.TokenIDs...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("a consumer that paused got %d ids, want the same %d", len(got), len(want))
	}
}

func nothingLeft(t *testing.T, s *Subject) {
	before := runtime.NumGoroutine()
	for _, use := range []bool{false, true} {
		e := s.New(t)
		if use {
			ready(t, e)
			for _, n := range []int{1, 100} {
				generate(t, e, s.request(1, 10, n))
			}
			for range e.Generate(context.Background(), s.request(1, 10, 400)) {
				break
			}
		}
		c, ok := e.(io.Closer)
		if !ok {
			return
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if a := collect(context.Background(), t, e, s.request(1, 10, 5)); a.err == nil {
			t.Error("a closed engine answers")
		}
	}
	for deadline := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		<-time.After(time.Millisecond)
	}
}

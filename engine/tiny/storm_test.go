package tiny_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/kv"
)

// Under preemption, eviction and cancellation every answer that comes to its end is
// that of a plain loop, and nothing is left behind; with host memory below the device,
// what was preempted comes back from there.
func TestStorm(t *testing.T) {
	for _, tc := range []struct {
		name        string
		host, ranks int
	}{
		{"device alone", 0, 1},
		{"host", 400, 1},
		{"two ranks", 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			storm(t, open(t, small(), func(a *mock.Args) {
				a.BlockSize, a.MaxNumBatchedTokens, a.PreemptOnPriority = 4, 24, true
				a.NumGPUBlocks = 60 / tc.ranks // room for five requests out of dozens
				a.HostBlocks, a.DPSize = tc.host, tc.ranks
			}))
		})
	}
}

func storm(t *testing.T, e *tiny.Engine) {
	type asked struct {
		request *engine.Request
		want    []uint32
	}
	var all []asked
	for i := range 24 {
		p := prompt(i%5, 9+7*(i%5)) // some share a beginning
		if i%2 == 0 {
			p = append(p, prompt(100+i, 6)...)
		}
		r := ask(p, 24)
		r.Priority = new(int32(i % 3))
		all = append(all, asked{r, plain(t, small(), p, 24)})
	}
	var running sync.WaitGroup
	for round := range 3 {
		for i, a := range all {
			leave := 0 // after so many tokens; 0: stay
			if (i+round)%4 == 0 {
				leave = 1 + i%5
			}
			running.Go(func() {
				var got []uint32
				for d, err := range e.Generate(context.Background(), a.request) {
					if err != nil {
						t.Error(err)
						return
					}
					if got = append(got, d.TokenIDs...); leave > 0 && len(got) >= leave {
						break
					}
				}
				if want := a.want[:min(len(got), len(a.want))]; !slices.Equal(got, want) || leave == 0 && len(got) != 24 {
					t.Errorf("request %d: %v, want %v", i, got, a.want)
				}
			})
		}
	}
	running.Wait()
	host := e.CacheStats()[0].Tiers[kv.TierHost]
	for l := range e.Load(t.Context()) {
		for _, l := range l.Ranks {
			if l.Preemptions == 0 || l.PrefixHits == 0 || l.Running+l.Waiting != 0 || host.Blocks == 0 && l.UsedBlocks != 0 {
				t.Errorf("%+v, want preemptions and hits, and nothing that runs", l)
			}
		}
		break
	}
	if host.Blocks > 0 && host.HitTokens == 0 {
		t.Errorf("%+v, want hits", host)
	}
}

// Log probabilities are those of the model, of answers and of prompts, whatever of
// these is cached and however their passes are cut.
func TestLogprobs(t *testing.T) {
	const size = 4
	p := prompt(3, 41)
	want := plainRows(t, small(), append(slices.Clone(p), plain(t, small(), p, 11)...))
	for _, batch := range []int{7, 256} {
		e := open(t, small(), func(a *mock.Args) { a.BlockSize, a.MaxNumBatchedTokens = size, batch })
		for range 2 {
			k := 3
			r := ask(p, 12)
			r.Logprobs, r.PromptLogprobs = &k, &k
			var got []engine.Logprob
			for d, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, d.PromptLogprobs...), d.Logprobs...)
			}
			if len(got) != len(p)+12 {
				t.Fatalf("%d log probabilities, want %d", len(got), len(p)+12)
			}
			for i, lp := range got[1:] {
				row := want[i]
				if at := row[lp.ID]; lp.Logprob != at || len(lp.Top) != k || lp.Top[0].Logprob != slices.Max(row) {
					t.Errorf("position %d: %+v, want %v, at most %v", i+1, lp, at, slices.Max(row))
				}
			}
		}
		// A request that asks for no more than its answer finds the prompt cached.
		if _, last := generate(t, e, ask(p, 1)); *last.Usage.Cached != 40 {
			t.Errorf("%d tokens were cached, want 40", *last.Usage.Cached)
		}
	}
}

// plainRows returns for each token what a plain loop thinks of all that might follow.
func plainRows(t testing.TB, m *llama.Model, tokens []uint32) (rows [][]float64) {
	t.Helper()
	cache := m.NewCache(1, len(tokens))
	vocab := m.Config().Vocab
	logits := make([]float32, vocab)
	for at := range tokens {
		if err := m.Forward(cache, []llama.Span{{Tokens: tokens[at : at+1], Start: at, Blocks: []int32{0}, Logits: logits}}); err != nil {
			t.Fatal(err)
		}
		high, sum := float64(slices.Max(logits)), 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l) - high)
		}
		row := make([]float64, vocab)
		for id, l := range logits {
			row[id] = float64(l) - high - math.Log(sum)
		}
		rows = append(rows, row)
	}
	return rows
}

// What is sampled is a matter of seed and position: it is the same alone and in a
// crowd, and goes on where it was broken off.
func TestSampledAnswersGoOn(t *testing.T) {
	e := open(t, small(), func(a *mock.Args) { a.BlockSize, a.NumGPUBlocks, a.MaxNumBatchedTokens = 4, 48, 20 })
	hot, seed := 1.3, int64(11)
	request := func(i int) *engine.Request {
		return &engine.Request{ID: "u-1", TokenIDs: prompt(i, 10+i), Sampling: engine.Sampling{Temperature: &hot, Seed: &seed}, Stop: engine.Stop{MaxTokens: 30}}
	}
	whole := make([][]uint32, 12)
	for i := range whole {
		whole[i], _ = generate(t, e, request(i))
	}
	var all sync.WaitGroup
	for i := range whole {
		all.Go(func() {
			if got, _ := generate(t, e, request(i)); !slices.Equal(got, whole[i]) {
				t.Errorf("request %d: %v in a crowd, %v alone", i, got, whole[i])
			}
			rest := request(i)
			rest.TokenIDs, rest.Stop.MaxTokens = append(rest.TokenIDs, whole[i][:9]...), 21
			if got, _ := generate(t, e, rest); !slices.Equal(got, whole[i][9:]) {
				t.Errorf("request %d goes on with %v, want %v", i, got, whole[i][9:])
			}
		})
	}
	all.Wait()
}

// A prompt that takes many passes is left at once, and the engine is free at the next
// of them.
func TestLeavingLongPrompt(t *testing.T) {
	e := open(t, slow(), func(a *mock.Args) { a.EnablePrefixCaching = false })
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		for _, err := range e.Generate(ctx, ask(prompt(1, 2000), 5)) {
			ended <- err
		}
	}()
	wait := func(what string, is func(engine.RankLoad) bool) {
		t.Helper()
		until, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		for l := range e.Load(until) {
			if is(l.Ranks[0]) {
				return
			}
		}
		t.Fatal(what)
	}
	wait("it does not begin", func(l engine.RankLoad) bool { return l.Running == 1 })
	at := time.Now()
	cancel(engine.ErrClientGone)
	if err := <-ended; engine.KindOf(err) != engine.Cancelled {
		t.Errorf("%v, want cancelled", err)
	}
	if took := time.Since(at); took > 250*time.Millisecond { // 20 ms, and what a busy machine adds
		t.Errorf("leaving took %v", took)
	}
	wait("it does not end", func(l engine.RankLoad) bool { return l.Running == 0 && l.UsedBlocks == 0 })
	if took := time.Since(at); took > 350*time.Millisecond {
		t.Errorf("the engine was free after %v", took)
	}
}

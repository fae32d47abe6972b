package mock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"pgregory.net/rapid"
)

// memory is the blocks of a model that remembers tokens in place of keys and values.
type memory struct {
	size  int
	slots [][]uint32
}

func newMemory(a mock.Args) *memory {
	m := &memory{size: a.BlockSize, slots: make([][]uint32, a.NumGPUBlocks)}
	for i := range m.slots {
		m.slots[i] = make([]uint32, a.BlockSize)
	}
	return m
}

func (m *memory) at(blocks []kvcache.Ref, position int) *uint32 {
	return &m.slots[blocks[position/m.size]][position%m.size]
}

// teller is an answer whose every token follows from all tokens before it.
type teller struct {
	tokens []uint32 // prompt and answer so far
	next   uint32
	asked  int
	fresh  bool
}

func (a *teller) Next() uint32 {
	a.asked++
	a.tokens = append(a.tokens, a.next)
	return a.next
}

// follows is what comes after some tokens.
func follows(tokens []uint32) uint32 {
	h := uint32(17)
	for _, t := range tokens {
		h = h*31 + t
	}
	return h % 1000
}

// compute does what the spans say, one after the other, and wants to find before each
// of them what its request has before it.
func (m *memory) compute(spans []mock.Span) error {
	for _, s := range spans {
		for i, t := range s.Tokens {
			*m.at(s.Blocks, s.Start+i) = t
		}
		a := s.Generator.(*teller)
		end := s.Start + len(s.Tokens)
		if len(s.Blocks) != (end+m.size-1)/m.size {
			return fmt.Errorf("%d blocks for %d tokens", len(s.Blocks), end)
		}
		context := make([]uint32, end)
		for i := range context {
			context[i] = *m.at(s.Blocks, i)
		}
		if !slices.Equal(context, a.tokens[:end]) {
			return fmt.Errorf("request %d has %v in its blocks, and is %v", s.ID, context, a.tokens[:end])
		}
		if s.Gives != (end == len(a.tokens)) {
			return fmt.Errorf("request %d: %d of %d tokens are computed, and it gives one: %v", s.ID, end, len(a.tokens), s.Gives)
		}
		a.next = follows(a.tokens)
	}
	return nil
}

// What a pass computes is, together with what is cached, all that the answers need:
// whatever is shared, evicted, preempted and cancelled, each block has what its
// request has there, and what is said to be stored is.
func TestPlannedPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArgs(t)
		core, m, cache := mock.NewCore(a), newMemory(a), cacheView{}
		live := map[mock.ID]*teller{}
		computed := map[kv.EngineHash]bool{} // blocks that have been whole once
		submit := func() {
			n := rapid.IntRange(1, max(1, room(a)-1)).Draw(t, "prompt")
			prompt := make([]uint32, n)
			for i := range prompt {
				prompt[i] = rapid.Uint32Range(1, 2).Draw(t, "token")
			}
			r := &teller{tokens: prompt, fresh: rapid.IntRange(0, 4).Draw(t, "fresh") == 0}
			id, err := core.Submit(0, mock.Request{
				Prompt: slices.Clone(prompt), MaxTokens: rapid.IntRange(1, 20).Draw(t, "max"), Generator: r, Fresh: r.fresh,
				Priority: rapid.Int32Range(0, 1).Draw(t, "priority"),
			})
			if err == nil {
				live[id] = r
			}
		}
		some := func() (mock.ID, bool) {
			var all []mock.ID
			for id := range live {
				all = append(all, id)
			}
			if len(all) == 0 {
				return 0, false
			}
			slices.Sort(all)
			return rapid.SampledFrom(all).Draw(t, "which"), true
		}
		meddle := func() {
			for range rapid.IntRange(0, 2).Draw(t, "submits") {
				submit()
			}
			if id, ok := some(); ok && rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
				core.Cancel(id)
				delete(live, id)
			}
		}
		tell := func(events []kv.Event) {
			if err := cache.apply(events); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Duration(0)
		for range 60 {
			meddle()
			res := core.Plan(now)
			tell(res.Events)
			if res.Idle {
				continue
			}
			meddle()
			if err := m.compute(res.Spans); err != nil {
				t.Fatal(err)
			}
			for _, s := range res.Spans {
				context := s.Generator.(*teller).tokens[:s.Start+len(s.Tokens)]
				for _, h := range kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, context, a.BlockSize, kv.Namespace{}.Seed())) {
					computed[kv.EngineHash(h)] = true
				}
			}
			failed := ^mock.ID(0)
			if k := len(res.Spans); k > 0 && rapid.IntRange(0, 9).Draw(t, "fail") == 0 {
				s := &res.Spans[rapid.IntRange(0, k-1).Draw(t, "span")]
				failed, s.Err = s.ID, errors.New("no way on")
			}
			asked := map[mock.ID]int{}
			for id, r := range live {
				asked[id] = r.asked
			}
			now += rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second}).Draw(t, "took")
			res = core.Finish(now)
			tell(res.Events)
			for _, o := range res.Outputs {
				r := live[o.ID]
				if r == nil {
					t.Fatalf("request %d was cancelled, and has %v", o.ID, o.Tokens)
				}
				if o.Err != nil {
					if o.ID != failed || r.asked != asked[o.ID] {
						t.Fatalf("request %d ended with %v after %d tokens", o.ID, o.Err, r.asked-asked[o.ID])
					}
					delete(live, o.ID)
					continue
				}
				if o.ID == failed || len(o.Tokens) != 1 || r.asked != asked[o.ID]+1 || o.Tokens[0] != follows(r.tokens[:len(r.tokens)-1]) {
					t.Fatalf("request %d has %v after %v", o.ID, o.Tokens, r.tokens)
				}
				if r.fresh && o.Cached != 0 {
					t.Fatalf("%d tokens of request %d were cached, which was to be computed whole", o.Cached, o.ID)
				}
				if o.Finish != engine.Running {
					delete(live, o.ID)
				}
			}
			if live[failed] != nil {
				t.Fatalf("request %d cannot go on, and goes on", failed)
			}
			if err := core.Check(); err != nil {
				t.Fatal(err)
			}
			for h := range cache {
				if !computed[h] {
					t.Fatalf("block %x is stored, and nobody has computed it", h)
				}
			}
		}
	})
}

// A pass has as many tokens as can be computed in some tens of milliseconds, and never
// so few that prompts would not come to an end.
func TestPlannedPassesAreShort(t *testing.T) {
	for _, tc := range []struct {
		each time.Duration // to compute a token
		want int           // tokens of a pass that one request has
	}{
		{time.Microsecond, 4096},
		{100 * time.Microsecond, 500},
		{time.Second, 17},
	} {
		a := mock.DefaultArgs()
		a.MaxNumBatchedTokens = 4096
		core := mock.NewCore(a)
		if _, err := core.Submit(0, mock.Request{Prompt: ids(1, 100_000), MaxTokens: 1, Generator: &counter{}}); err != nil {
			t.Fatal(err)
		}
		var now time.Duration
		tokens := 0
		for range 20 {
			res := core.Plan(now)
			tokens = len(res.Spans[0].Tokens)
			now += time.Duration(tokens) * tc.each
			core.Finish(now)
		}
		if tokens != tc.want {
			t.Errorf("%v for each token: passes of %d, want %d", tc.each, tokens, tc.want)
		}
	}
}

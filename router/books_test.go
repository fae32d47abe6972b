package router

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// at returns a booking of these blocks on l, in the books.
func (b *books) at(l *load, blocks ...kv.SeqHash) *Booking {
	k := &Booking{load: l, requests: 1, outputWeight: one}
	b.enter(k, blocks)
	return k
}

func TestSharedBlocksCountOnce(t *testing.T) {
	var b books
	l := b.load(kv.Target{Worker: 1}, context.Background())
	first := b.at(l, 1, 2, 3)
	second := b.at(l, 1, 2, 4, 5)
	if n := l.activeBlocks(); n != 5 {
		t.Errorf("%d blocks, want 5", n)
	}
	b.blocks.depths([]kv.SeqHash{1, 2, 4, 9}, 1)
	if l.depth != 3 {
		t.Errorf("depth %d, want 3", l.depth)
	}
	b.leave(first, time.Time{})
	if n := l.activeBlocks(); n != 4 {
		t.Errorf("%d blocks, want 4", n)
	}
	b.leave(second, time.Time{})
	if l.weight != 0 || l.requests != 0 || len(b.blocks.root.children) != 0 {
		t.Errorf("left behind: %+v", l)
	}
}

// The load of a worker that has left goes with its last booking, or at once.
func TestLoadsOfTheDead(t *testing.T) {
	var b books
	life, end := context.WithCancel(context.Background())
	idle, busy := b.load(kv.Target{Worker: 1}, life), b.load(kv.Target{Worker: 1, Rank: 1}, life)
	other := b.load(kv.Target{Worker: 2}, context.Background())
	k := b.at(busy, 1, 2)
	b.leave(b.at(idle, 3), time.Time{})
	b.leave(b.at(other, 4), time.Time{})
	b.dropIdle(1)
	if len(b.loads) != 3 {
		t.Errorf("a live worker's loads were dropped: %d left", len(b.loads))
	}
	end()
	b.dropIdle(1)
	if !slices.Equal(b.loads, []*load{busy, other}) {
		t.Errorf("%d loads left, want the busy one and the other worker's", len(b.loads))
	}
	b.leave(k, time.Time{})
	if !slices.Equal(b.loads, []*load{other}) {
		t.Errorf("%d loads left, want the other worker's", len(b.loads))
	}
}

// The worked example: 20 tokens in blocks of 16 and 40 more expected. After 13
// of them a third block is needed, and 27/40 of the answer is ahead.
func TestOutputBlocksDecay(t *testing.T) {
	r := &Router{now: time.Now}
	l := r.books.load(kv.Target{Worker: 1}, context.Background())
	k := &Booking{router: r, load: l, requests: 1, prompt: 20, expected: 40, blockSize: 16, trackOutput: true}
	r.books.enter(k, []kv.SeqHash{1})
	k.Output(12)
	if l.weight != one {
		t.Errorf("weight %v before the boundary", l.weight)
	}
	k.Output(1)
	f := k.remaining(13) // 0.675
	if share := float64(f) / one; math.Abs(share-0.675) > 1e-4 {
		t.Errorf("%v of the answer is ahead", share)
	}
	if k.outputBlocks != 1 || l.weight != 2*f {
		t.Errorf("%d blocks, weight %d; want 1, %d", k.outputBlocks, l.weight, 2*f)
	}
	other := r.books.at(l, 1) // shared again: the prompt's block counts whole
	if l.weight != one+f {
		t.Errorf("shared: weight %d, want %d", l.weight, one+f)
	}
	k.Output(60) // crosses several boundaries, and what was expected
	if k.outputBlocks != 4 || l.weight != one {
		t.Errorf("%d blocks, weight %d; want 4, %d", k.outputBlocks, l.weight, one)
	}
	k.Release()
	k.Release()
	k.Output(99)
	k.Prefilled()
	r.books.leave(other, time.Time{})
	if l.weight != 0 || l.requests != 0 || l.prefillTokens != 0 {
		t.Errorf("left behind: %+v", l)
	}
}

// model is the books by definition: all bookings, and nothing else.
type model []booked

type booked struct {
	*Booking
	hashes []kv.SeqHash
}

// weight returns how many blocks are in use on l: distinct prefixes, and what
// was generated.
func (m model) blocks(l *load) int {
	distinct := map[kv.SeqHash]bool{}
	output := 0
	for _, k := range m {
		if k.load == l {
			for _, h := range k.hashes {
				distinct[h] = true
			}
			output += k.outputBlocks
		}
	}
	return len(distinct) + output
}

func (m model) depth(l *load, hashes []kv.SeqHash) int {
	depth := 0
	for _, k := range m {
		if k.load == l {
			n := 0
			for n < min(len(hashes), len(k.hashes)) && hashes[n] == k.hashes[n] {
				n++
			}
			depth = max(depth, n)
		}
	}
	return depth
}

func TestBooksProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Router{now: time.Now}
		var loads []*load
		for w := range uint64(3) {
			loads = append(loads, r.books.load(kv.Target{Worker: w}, context.Background()))
		}
		chain := func() []kv.SeqHash {
			local := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kv.LocalHash {
				return kv.LocalHash(rapid.Uint64Range(1, 2).Draw(t, "local"))
			}), 0, 6).Draw(t, "prompt")
			return kv.AppendSeqHashes(nil, local)
		}
		var live model
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op == 0 || len(live) == 0:
				hashes := chain()
				k := &Booking{
					router: r, load: rapid.SampledFrom(loads).Draw(t, "target"), requests: rapid.IntRange(1, 3).Draw(t, "choices"),
					prefill: prefill{tokens: rapid.IntRange(0, 9).Draw(t, "prefill")},
					prompt:  4 * len(hashes), blockSize: 4, trackOutput: true,
				}
				r.books.enter(k, hashes)
				live = append(live, booked{k, hashes})
			case op == 1:
				rapid.SampledFrom(live).Draw(t, "booking").Prefilled()
			case op == 2:
				rapid.SampledFrom(live).Draw(t, "booking").Output(rapid.IntRange(0, 9).Draw(t, "tokens"))
			default:
				i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
				live[i].Release()
				live[i].Release()
				live = slices.Delete(live, i, i+1)
			}
			query := chain()
			asked := r.books.depths(query)
			for _, l := range loads {
				requests, prefill := 0, 0
				for _, k := range live {
					if k.load == l {
						requests += k.requests
						prefill += k.prefill.tokens
					}
				}
				if l.requests != requests || l.prefillTokens != prefill || l.activeBlocks() != live.blocks(l) {
					t.Fatalf("target %v: %d requests, %d tokens, %d blocks; want %d, %d, %d",
						l.target, l.requests, l.prefillTokens, l.activeBlocks(), requests, prefill, live.blocks(l))
				}
				if want := live.depth(l, query); l.depth != want && l.asked == asked || want > 0 && l.asked != asked {
					t.Fatalf("target %v: depth %d as of question %d, want %d as of %d", l.target, l.depth, l.asked, want, asked)
				}
			}
		}
		for _, k := range live {
			k.Release()
		}
		for _, l := range loads {
			if l.requests != 0 || l.prefillTokens != 0 || l.weight != 0 {
				t.Fatalf("left behind: %+v", l)
			}
		}
		if n := len(r.books.blocks.root.children); n != 0 {
			t.Fatalf("%d runs of blocks left behind", n)
		}
	})
}

// Forecasts give blocks fractions of a weight, in any order; nothing is left.
func TestForecastsLeaveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Router{now: time.Now}
		l := r.books.load(kv.Target{Worker: 1}, context.Background())
		var live []*Booking
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "new") || len(live) == 0 {
				n := rapid.IntRange(0, 5).Draw(t, "blocks")
				k := &Booking{
					router: r, load: l, requests: 1, prompt: 4 * n, blockSize: 4, trackOutput: true,
					expected: rapid.Uint32Range(0, 30).Draw(t, "expected"),
				}
				r.books.enter(k, kv.AppendSeqHashes(nil, []kv.LocalHash{1, 1, 1, 1, 1}[:n]))
				live = append(live, k)
			}
			i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
			live[i].Output(rapid.IntRange(0, 20).Draw(t, "tokens"))
			if rapid.Bool().Draw(t, "end") {
				live[i].Release()
				live = slices.Delete(live, i, i+1)
			}
			if l.weight < 0 {
				t.Fatalf("weight %d", l.weight)
			}
		}
		for _, k := range live {
			k.Release()
		}
		if l.weight != 0 || l.requests != 0 {
			t.Fatalf("left behind: %+v", l)
		}
	})
}

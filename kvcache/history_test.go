package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// A hundred tokens of prompt, forty of thinking and twenty of answer, in blocks
// of 16: what ends after token 100 never comes back.
func TestThinkingSpan(t *testing.T) {
	const size, prompt, thinking, answer = 16, 100, 40, 20
	if got := kvcache.ThinkingFrom(prompt, size); got != 6 {
		t.Fatalf("thinking begins in block %d, want 6", got)
	}
	for token := range 200 {
		from := kvcache.ThinkingFrom(token, size)
		if from*size > token || (from+1)*size <= token {
			t.Errorf("token %d stands in block %d", token, from)
		}
	}
	for _, id := range []kvcache.SessionID{0, 1} {
		p := kvcache.New(20)
		seq := run(1, (prompt+thinking+answer)/size)
		_, end := start(t, p, id, kvcache.SessionOptions{}, seq)
		var refs []kvcache.Ref
		for _, h := range seq {
			r, _ := p.Find(h)
			refs = append(refs, r)
		}
		p.MarkThinking(id, refs, kvcache.ThinkingFrom(prompt, size), false)
		end()
		if a, b := byClass(p, seq[:6], kvcache.Plain), byClass(p, seq[6:], kvcache.Ephemeral); a != 6 || b != len(seq)-6 {
			t.Errorf("session %d: %d plain blocks before, %d ephemeral ones after", id, a, b)
		}
		if n := skipped(p, seq); n != len(seq)-6 {
			t.Errorf("session %d: %d blocks kept from lower tiers", id, n)
		}
	}
}

// Marks wait for the next message, which leaves the thinking out, or for a
// minute. A tool call in between still carries it.
func TestThinkingIsDeferred(t *testing.T) {
	const id = 1
	for _, c := range []struct {
		name string
		next func(*testing.T, *kvcache.Pool, []kv.SeqHash)
		want int
	}{
		{"nothing yet", func(*testing.T, *kvcache.Pool, []kv.SeqHash) {}, 0},
		{"a tool result", func(t *testing.T, p *kvcache.Pool, seq []kv.SeqHash) {
			turnOf(t, p, id, kvcache.SessionOptions{}, slices.Concat(seq, run(100, 2)))
		}, 0},
		{"a message", func(t *testing.T, p *kvcache.Pool, seq []kv.SeqHash) {
			turnOf(t, p, id, kvcache.SessionOptions{}, slices.Concat(seq[:6], run(100, 4)))
		}, 4},
		{"a tool result, then a message", func(t *testing.T, p *kvcache.Pool, seq []kv.SeqHash) {
			turnOf(t, p, id, kvcache.SessionOptions{}, slices.Concat(seq, run(100, 2)))
			turnOf(t, p, id, kvcache.SessionOptions{}, slices.Concat(seq[:6], run(200, 4)))
		}, 4},
		{"a minute", func(_ *testing.T, p *kvcache.Pool, _ []kv.SeqHash) {
			p.Advance(time.Minute)
			p.Available()
		}, 4},
		{"less than a minute", func(_ *testing.T, p *kvcache.Pool, _ []kv.SeqHash) {
			p.Advance(time.Minute - 1)
			p.Available()
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := kvcache.New(40)
			seq := run(1, 10)
			p.BeginTurn(id, kvcache.SessionOptions{}, seq[:5])
			refs := store(t, p, seq...)
			p.Tag(id, refs)
			p.MarkThinking(id, refs, 6, true)
			p.EndTurn(id, refs)
			p.Release(refs)
			if n := skipped(p, seq); n != 4 {
				t.Errorf("%d blocks are kept from lower tiers meanwhile, want 4", n)
			}
			c.next(t, p, seq)
			if n := byClass(p, seq, kvcache.Ephemeral); n != c.want {
				t.Errorf("%d ephemeral blocks, want %d", n, c.want)
			}
		})
	}
}

// Blocks that another session uses too are not marked.
func TestThinkingOfOthersStays(t *testing.T) {
	p := kvcache.New(40)
	seq := run(1, 10)
	turnOf(t, p, 2, kvcache.SessionOptions{}, seq[:8])
	p.BeginTurn(1, kvcache.SessionOptions{}, seq)
	refs := p.MatchFor(1, nil, seq)
	rest, _, _ := p.Allocate(nil, 2)
	for i, r := range rest {
		p.Register(r, seq[8+i], append(refs, rest...)[7+i])
	}
	refs = append(refs, rest...)
	p.Tag(1, rest)
	p.MarkThinking(1, refs, 6, false)
	p.EndTurn(1, refs)
	p.Release(refs)
	if n := byClass(p, seq, kvcache.Ephemeral); n != 2 {
		t.Errorf("%d ephemeral blocks, want the 2 that are only this session's", n)
	}
}

// thinks runs one request of session 1 whose blocks from some position on are
// thinking, to be marked later.
func thinks(t *testing.T, p *kvcache.Pool, seq []kv.SeqHash, from int) {
	t.Helper()
	p.BeginTurn(1, kvcache.SessionOptions{}, seq[:from])
	refs := p.MatchFor(1, nil, seq)
	for k := len(refs); k < len(seq); k++ {
		fresh, _, _ := p.Allocate(nil, 1)
		parent := kvcache.Root
		if k > 0 {
			parent = refs[k-1]
		}
		p.Register(fresh[0], seq[k], parent)
		p.Tag(1, fresh)
		refs = append(refs, fresh...)
	}
	p.MarkThinking(1, refs, from, true)
	p.EndTurn(1, refs)
	p.Release(refs)
}

// A loop of tool calls, with thinking in each, that prompts carry until the user
// speaks again: then all goes that was written since the first.
func TestThinkingInALoop(t *testing.T) {
	p := kvcache.New(100)
	seq := run(1, 30)
	for _, end := range []int{10, 16, 22} {
		thinks(t, p, seq[:end], end-4)
		if a, b := byClass(p, seq, kvcache.Ephemeral), skipped(p, seq); a != 0 || b != end-6 {
			t.Fatalf("after %d blocks: %d ephemeral, %d kept from lower tiers, want 0, %d", end, a, b, end-6)
		}
	}
	turnOf(t, p, 1, kvcache.SessionOptions{}, seq)
	if a, b := byClass(p, seq, kvcache.Ephemeral), skipped(p, seq); a != 0 || b != 24 {
		t.Fatalf("after the last call: %d ephemeral, %d kept from lower tiers, want 0, 24", a, b)
	}
	turnOf(t, p, 1, kvcache.SessionOptions{}, slices.Concat(seq[:6], run(101, 8)))
	if a, b := byClass(p, seq[:6], kvcache.Plain), byClass(p, seq[6:], kvcache.Ephemeral); a != 6 || b != 24 {
		t.Errorf("after a message: %d plain, %d ephemeral, want 6, 24", a, b)
	}
	if got := p.TakePromoted(nil); len(got) > 0 {
		t.Errorf("blocks %v were to be written to lower tiers", got)
	}
}

// Another request of the session, which has begun before and ends after, neither
// ends the wait nor joins it.
func TestThinkingBesideOthers(t *testing.T) {
	for _, n := range []int{5, 6, 7} {
		p := kvcache.New(100)
		seq := run(1, 10)
		_, end := start(t, p, 1, kvcache.SessionOptions{}, slices.Concat(seq[:5], run(101, n-5)))
		thinks(t, p, seq, 6)
		end()
		if a, b := byClass(p, seq, kvcache.Ephemeral), skipped(p, seq); a != 0 || b != 4 {
			t.Errorf("beside %d blocks: %d ephemeral, %d kept from lower tiers, want 0, 4", n, a, b)
		}
	}
}

// What waits is what is the session's alone, and a prompt that still carries it
// shows that by the first of these blocks.
func TestThinkingOverASharedBeginning(t *testing.T) {
	for _, from := range []int{-1, 6} {
		p := kvcache.New(100)
		seq := run(1, 14)
		turnOf(t, p, 2, kvcache.SessionOptions{}, seq[:8])
		p.BeginTurn(1, kvcache.SessionOptions{}, seq[:6])
		refs := append(p.MatchFor(1, nil, seq[:8]), store(t, p, seq[8:10]...)...)
		p.MarkThinking(1, refs, from, true)
		p.EndTurn(1, refs)
		p.Release(refs)
		turnOf(t, p, 1, kvcache.SessionOptions{}, seq)
		if n := byClass(p, seq, kvcache.Ephemeral); n != 0 {
			t.Errorf("from %d: %d ephemeral blocks while prompts carry them", from, n)
		}
		turnOf(t, p, 1, kvcache.SessionOptions{}, slices.Concat(seq[:6], run(101, 2)))
		if n := byClass(p, seq[8:], kvcache.Ephemeral); n != 6 {
			t.Errorf("from %d: %d ephemeral blocks after a message, want 6", from, n)
		}
	}
}

// Marks that came late, after the request, wait a minute too; and with its session
// all thinking is over.
func TestThinkingEnds(t *testing.T) {
	for name, ends := range map[string]func(p *kvcache.Pool){
		"a minute later": func(p *kvcache.Pool) { p.Advance(time.Minute) },
		"closed":         func(p *kvcache.Pool) { p.CloseSession(1) },
	} {
		p := kvcache.New(100)
		seq := run(1, 10)
		turnOf(t, p, 1, kvcache.SessionOptions{}, seq)
		refs := p.Match(nil, nil)
		for _, h := range seq {
			r, _ := p.Find(h)
			refs = append(refs, r)
		}
		p.MarkThinking(1, refs, 6, true)
		if n := byClass(p, seq, kvcache.Ephemeral); n != 0 {
			t.Errorf("%s: %d ephemeral blocks before", name, n)
		}
		if ends(p); byClass(p, seq, kvcache.Ephemeral) != 4 {
			t.Errorf("%s: %d ephemeral blocks, want 4", name, byClass(p, seq, kvcache.Ephemeral))
		}
	}
}

// compaction is a history of 175 blocks that becomes one of 40, of which the
// first 10, system prompt and tools, are as before.
func compaction(t *testing.T) (p *kvcache.Pool, old, summary []kv.SeqHash) {
	p = kvcache.New(1000)
	old = run(1, 175)
	turnOf(t, p, 1, kvcache.SessionOptions{}, old[:100])
	turnOf(t, p, 1, kvcache.SessionOptions{}, old)
	return p, old, slices.Concat(old[:10], run(1001, 30))
}

func TestCompaction(t *testing.T) {
	const id = 1
	o := kvcache.SessionOptions{}
	t.Run("the second request gives the old history up", func(t *testing.T) {
		p, old, summary := compaction(t)
		turnOf(t, p, id, o, summary)
		if n := byClass(p, old, kvcache.Ephemeral); n != 0 {
			t.Fatalf("%d ephemeral blocks after one request", n)
		}
		turnOf(t, p, id, o, slices.Concat(summary, run(2001, 3)))
		if n := byClass(p, old[10:], kvcache.Ephemeral); n != 165 {
			t.Errorf("%d ephemeral blocks, want 165", n)
		}
		if n := byClass(p, summary, kvcache.Plain); n != 40 {
			t.Errorf("%d plain blocks of the new history, want 40", n)
		}
		if n := p.Held(id); n != 43 {
			t.Errorf("the session holds %d, want 43", n)
		}
	})
	t.Run("going back within the grace finds everything", func(t *testing.T) {
		p, old, summary := compaction(t)
		turnOf(t, p, id, o, summary)
		if n := turnOf(t, p, id, o, old); n != 175 {
			t.Errorf("found %d", n)
		}
		turnOf(t, p, id, o, summary)
		if n := byClass(p, old, kvcache.Ephemeral); n != 0 {
			t.Errorf("%d ephemeral blocks of a history in use", n)
		}
	})
	t.Run("its own pins end with it", func(t *testing.T) {
		p, old, summary := compaction(t)
		p.SetPinBudget(175)
		p.Pin(old, kvcache.Pin{Owner: id, TTL: time.Hour})
		p.Pin(old[:20], kvcache.Pin{Owner: 2, TTL: time.Hour})
		turnOf(t, p, id, o, summary)
		if used, _ := p.PinBudget(); used != 175 {
			t.Fatalf("%d blocks are pinned after one request, want all 175", used)
		}
		p.Compact(id)
		if used, _ := p.PinBudget(); used != 20 {
			t.Errorf("%d blocks are pinned, want the 20 that somebody else pins, 10 of them in common", used)
		}
		if n := byClass(p, old, kvcache.Ephemeral); n != 155 {
			t.Errorf("%d ephemeral blocks, want 155", n)
		}
	})
	t.Run("said so after", func(t *testing.T) {
		p, old, summary := compaction(t)
		turnOf(t, p, id, o, summary)
		p.Compact(id)
		if n := byClass(p, old, kvcache.Ephemeral); n != 165 {
			t.Errorf("%d ephemeral blocks, want 165", n)
		}
	})
	t.Run("said so before", func(t *testing.T) {
		p, old, _ := compaction(t)
		p.Compact(id)
		turnOf(t, p, id, o, slices.Concat(old[:160], run(3001, 2))) // too like the old one to be seen
		if n := byClass(p, old, kvcache.Ephemeral); n != 15 {
			t.Errorf("%d ephemeral blocks, want 15", n)
		}
	})
	t.Run("said so with it", func(t *testing.T) {
		p, old, _ := compaction(t)
		next := slices.Concat(old[:160], run(3001, 2)) // too like the old one to be seen
		_, end := start(t, p, id, o, next)
		p.Compact(id)
		if n := byClass(p, old, kvcache.Ephemeral); n != 15 {
			t.Errorf("%d ephemeral blocks, want 15", n)
		}
		end()
		p.Compact(id) // of what comes next
		turnOf(t, p, id, o, slices.Concat(next, run(4001, 2)))
		if n := byClass(p, next, kvcache.Plain); n != 162 {
			t.Errorf("%d plain blocks of the new history, want 162", n)
		}
	})
	t.Run("what others use stays", func(t *testing.T) {
		p, old, summary := compaction(t)
		turnOf(t, p, 2, o, old[:50])
		turnOf(t, p, id, o, summary)
		turnOf(t, p, id, o, summary)
		if n := byClass(p, old, kvcache.Ephemeral); n != 125 {
			t.Errorf("%d ephemeral blocks, want 125", n)
		}
	})
	t.Run("not every change is one", func(t *testing.T) {
		for name, next := range map[string]func(old []kv.SeqHash) []kv.SeqHash{
			"an edit in the middle": func(old []kv.SeqHash) []kv.SeqHash { return slices.Concat(old[:90], run(1001, 10)) },
			"a long new branch":     func(old []kv.SeqHash) []kv.SeqHash { return slices.Concat(old[:10], run(1001, 110)) },
			"the next turn":         func(old []kv.SeqHash) []kv.SeqHash { return slices.Concat(old, run(1001, 10)) },
		} {
			p, old, _ := compaction(t)
			turnOf(t, p, id, o, next(old))
			turnOf(t, p, id, o, next(old))
			if n := byClass(p, old, kvcache.Ephemeral); n != 0 {
				t.Errorf("%s: %d ephemeral blocks", name, n)
			}
		}
	})
}

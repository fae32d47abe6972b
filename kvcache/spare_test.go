package kvcache_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// What SpareIn says of a sequence is what taking it leaves fewer.
func TestSpareIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 40, PinBudget: 12, HardPins: true})
		sequence := func() (hashes []kv.SeqHash) {
			h := kv.SeqHash(rapid.IntRange(1, 2).Draw(t, "root"))
			for range rapid.IntRange(1, 8).Draw(t, "length") {
				hashes = append(hashes, h)
				h = h*31 + kv.SeqHash(rapid.IntRange(1, 2).Draw(t, "branch"))
			}
			return hashes
		}
		var now time.Duration
		var held [][]kvcache.Ref
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			hashes := sequence()
			refs := p.Match(nil, hashes)
			parent, known := kvcache.Root, len(refs)
			if known > 0 {
				parent = refs[known-1]
			}
			if more, _, ok := p.Allocate(nil, len(hashes)-known); ok {
				for i, r := range more {
					p.Register(r, hashes[known+i], parent)
					parent = r
				}
				refs = append(refs, more...)
			}
			switch rapid.IntRange(0, 3).Draw(t, "then") {
			case 0:
				p.Pin(hashes, kvcache.Pin{TTL: time.Duration(rapid.IntRange(0, 9).Draw(t, "ttl")) * time.Second, Hard: rapid.Bool().Draw(t, "hard")})
			case 1:
				now += time.Duration(rapid.IntRange(0, 5).Draw(t, "later")) * time.Second
				p.Advance(now)
			case 2:
				held = append(held, refs)
				refs = nil
				if len(held) > 2 {
					refs, held = held[0], held[1:]
				}
			}
			p.Release(refs)
			hashes = sequence()
			want, before := p.SpareIn(hashes), p.Spare()
			refs = p.Match(nil, hashes)
			if got := before - p.Spare(); got != want {
				t.Fatalf("taking %v leaves %d of %d fewer, and was to leave %d", hashes, got, before, want)
			}
			p.Release(refs)
		}
	})
}

package router

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// lru is a cache of an engine that lets go of what was used longest ago, of a
// prompt its end first.
type lru struct {
	room int
	keys []kv.SeqHash // oldest first
}

// use computes what a chain has beyond what is cached, and returns how much was.
func (c *lru) use(chain []kv.SeqHash) (cached int) {
	cached = c.has(chain)
	for i := len(chain) - 1; i >= 0; i-- {
		if at := slices.Index(c.keys, chain[i]); at >= 0 {
			c.keys = slices.Delete(c.keys, at, at+1)
		}
		c.keys = append(c.keys, chain[i])
	}
	c.keys = c.keys[max(0, len(c.keys)-c.room):]
	return cached
}

// has returns how many leading blocks of a chain are cached.
func (c *lru) has(chain []kv.SeqHash) (n int) {
	for n < len(chain) && slices.Contains(c.keys, chain[n]) {
		n++
	}
	return n
}

// Of an engine whose events are of no use no block counts that it has let go of,
// and most of those count that it has.
func TestGuessIsPartOfTheCache(t *testing.T) {
	counted, cached := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const room, agents, answer = 320, 5, 2 // blocks; the answers fit into what is spared
		target, now := kv.Target{Worker: 1}, time.Unix(1000, 0)
		g, engine := newGuess(time.Hour), lru{room: room}
		g.lack(target, now)
		var said [agents][]kv.LocalHash
		more := func(agent, blocks int) {
			for range blocks {
				said[agent] = append(said[agent], kv.LocalHash(agent<<32+len(said[agent])+1))
			}
		}
		var found kvindex.Matches
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now = now.Add(time.Second)
			agent := rapid.IntRange(0, agents-1).Draw(t, "agent")
			if len(said[agent]) > room/2 {
				said[agent] = said[agent][:rapid.IntRange(0, 10).Draw(t, "compacted")]
			}
			more(agent, rapid.IntRange(1, 40).Draw(t, "blocks"))
			prompt := slices.Clone(said[agent])
			chain := kv.AppendSeqHashes(nil, prompt)

			g.match(prompt, &found)
			counts, has := 0, engine.has(chain)
			if len(found.Found) > 0 {
				counts = int(found.Found[0].Blocks[kv.TierDevice])
			}
			if counts > has {
				t.Fatalf("of %d blocks %d count as cached, and %d are", len(chain), counts, has)
			}
			counted, cached = counted+counts, cached+has
			more(agent, rapid.IntRange(0, answer).Draw(t, "answer"))
			engine.use(kv.AppendSeqHashes(nil, said[agent]))
			g.add(target, &note{prompt, chain}, room, now)
		}
	})
	if counted < cached*3/4 {
		t.Errorf("%d blocks counted of %d that were cached", counted, cached)
	}
}

// Each time that too much was noted it is forgotten, and more room is left, until
// half of it is.
func TestGuessBelied(t *testing.T) {
	const room = 64
	target, now := kv.Target{Worker: 1}, time.Unix(1000, 0)
	g := newGuess(time.Hour)
	g.lack(target, now)
	var local []kv.LocalHash
	for i := range kv.LocalHash(room) {
		local = append(local, i+1)
	}
	n := &note{local, kv.AppendSeqHashes(nil, local)}
	for _, want := range []int{62, 60, 56, 48, 32, 32} {
		g.add(target, n, room, now)
		if got := g.routed.Blocks(target); got != want {
			t.Errorf("%d blocks are noted, want %d", got, want)
		}
		g.belied(target)
		if got := g.routed.Blocks(target) + g.index.Blocks(target); got != 0 || !g.lacks(target, now) {
			t.Errorf("%d blocks are still noted, or none will be", got)
		}
	}
	g.lack(target, now.Add(time.Second))
	g.add(target, n, room, now)
	if got := g.routed.Blocks(target); got != 32 {
		t.Errorf("after another sign %d blocks are noted, want 32", got)
	}
	if g.lacks(target, now.Add(lackFor+time.Second)) || g.index.Blocks(target) != 0 {
		t.Error("what is noted no longer is not forgotten")
	}
}

package indextest

import "github.com/dynago/dynago/kv"

// wide draws histories as a fleet makes them: targets hold long prompts that
// share their beginnings, store them in runs and then block by block, evict them
// from the end, and at times from the middle. What else may happen on the way, a
// lost event, a block stored twice or under two keys, happens too.
type wide struct {
	workers, ranks int
	prompts        []prompt
	key, local     spread
	model          *model
	draw           draw
}

// prompt is one way through the tree of contents: the blocks of another prompt up
// to a fork, and then its own.
type prompt struct {
	blocks []int // numbers, equal for two prompts as long as they agree
}

// newWide draws a forest of prompts of at most length blocks.
func newWide(w wide, prompts, length int) *wide {
	next := 0
	for i := range prompts {
		var blocks []int
		if i > 0 && !w.draw.percent(10) {
			from := w.prompts[w.draw(i)].blocks
			blocks = append(blocks, from[:w.draw(len(from)+1)]...)
		}
		for n := 1 + w.draw(length); len(blocks) < n; next++ {
			blocks = append(blocks, next)
		}
		w.prompts = append(w.prompts, prompt{blocks})
	}
	return &w
}

// keyOf returns the key that t gives to block number i; twin is a second one.
func (w *wide) keyOf(t kv.Target, i int, twin bool) kv.EngineHash {
	n := 2 * i
	if twin {
		n++
	}
	return kv.EngineHash(w.key(n*7+int(t.Worker)*13+int(t.Rank)) ^ t.Worker<<40)
}

func (w *wide) localOf(i int) kv.LocalHash { return kv.LocalHash(w.local(i)) }

// event makes a store or a removal of the blocks [from, to) of p.
func (w *wide) event(kind kv.EventKind, t kv.Target, p prompt, from, to int, tier kv.Tier) kv.Event {
	e := kv.Event{Kind: kind, Tier: tier}
	if kind == kv.Stored && from > 0 {
		e.HasParent, e.Parent = true, w.keyOf(t, p.blocks[from-1], false)
	}
	for _, i := range p.blocks[from:to] {
		b := kv.Block{Engine: w.keyOf(t, i, false)}
		if kind == kv.Stored {
			b.Local = w.localOf(i)
		}
		e.Blocks = append(e.Blocks, b)
	}
	return e
}

// held returns how many leading blocks of p the target has keys for, on any tier.
func (w *wide) held(t kv.Target, p prompt) int {
	for n, i := range p.blocks {
		if w.model.find(t, w.keyOf(t, i, false)) == nil {
			return n
		}
	}
	return len(p.blocks)
}

func (w *wide) tier() kv.Tier {
	if w.draw.percent(15) {
		return kv.Tier(1 + w.draw(3))
	}
	return kv.TierDevice
}

// steps draws what happens next, which may be several steps.
func (w *wide) steps() []step {
	t := kv.Target{Worker: uint64(1 + w.draw(w.workers)), Rank: uint32(w.draw(w.ranks))}
	p := w.prompts[w.draw(len(w.prompts))]
	n := w.held(t, p)
	events := func(all ...kv.Event) []step {
		var steps []step
		for _, e := range all {
			if len(e.Blocks) > 0 || e.Kind == kv.Cleared {
				steps = append(steps, step{target: t, event: e})
			}
		}
		return steps
	}
	switch op := w.draw(1000); {
	case op < 200: // a prefill, in pieces of any size
		var all []kv.Event
		tier := w.tier()
		for to := 1 + w.draw(len(p.blocks)); n < to; {
			next := min(n+1+w.draw(to-n), n+64, to)
			all = append(all, w.event(kv.Stored, t, p, n, next, tier))
			n = next
		}
		return events(all...)
	case op < 320: // decoding
		var all []kv.Event
		for range 1 + w.draw(6) {
			if n < len(p.blocks) {
				all = append(all, w.event(kv.Stored, t, p, n, n+1, kv.TierDevice))
				n++
			}
		}
		return events(all...)
	case op < 480: // eviction from the end
		from := w.draw(n + 1)
		e := w.event(kv.Removed, t, p, from, n, w.tier())
		for i, j := 0, len(e.Blocks)-1; i < j; i, j = i+1, j-1 {
			e.Blocks[i], e.Blocks[j] = e.Blocks[j], e.Blocks[i]
		}
		return events(e)
	case op < 510: // a hole, mended at once, later, or never
		if n == 0 {
			return nil
		}
		at := w.draw(n)
		all := []kv.Event{w.event(kv.Removed, t, p, at, min(n, at+1+w.draw(3)), kv.TierDevice)}
		if w.draw.percent(60) {
			all = append(all, w.event(kv.Stored, t, p, at, at+1, kv.TierDevice))
		}
		return events(all...)
	case op < 540: // from one tier to another
		from, to := w.tier(), w.tier()
		at := w.draw(n + 1)
		return events(w.event(kv.Stored, t, p, at, n, to), w.event(kv.Removed, t, p, at, n, from))
	case op < 560: // what was stored, again
		return events(w.event(kv.Stored, t, p, w.draw(n+1), n, kv.TierDevice))
	case op < 575: // a block whose parent was lost
		at := w.draw(len(p.blocks))
		return events(w.event(kv.Stored, t, p, at, at+1, kv.TierDevice))
	case op < 590: // a second key, and sometimes what continues under it
		at := w.draw(len(p.blocks))
		e := w.event(kv.Stored, t, p, at, min(len(p.blocks), at+1+w.draw(3)), kv.TierDevice)
		e.Blocks[0].Engine = w.keyOf(t, p.blocks[at], true)
		return events(e)
	case op < 600: // the second key goes
		at := w.draw(len(p.blocks))
		return events(kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{Engine: w.keyOf(t, p.blocks[at], true)}}})
	case op < 606: // another content under a known key
		e := w.event(kv.Stored, t, p, 0, len(p.blocks), kv.TierDevice)
		e.Blocks[w.draw(len(e.Blocks))].Local++
		return events(e)
	case op < 612: // a block that is its own ancestor
		e := w.event(kv.Stored, t, p, 0, len(p.blocks), kv.TierDevice)
		i, j := w.draw(len(e.Blocks)), w.draw(len(e.Blocks))
		e.Blocks[max(i, j)].Engine = e.Blocks[min(i, j)].Engine
		return events(e)
	case op < 614:
		return events(kv.Event{Kind: kv.Cleared})
	case op < 616:
		return []step{{do: removeTarget, target: t}}
	case op < 618:
		return []step{{do: removeWorker, target: t}}
	case op < 622:
		return []step{{do: audit}}
	}
	return []step{{do: query, local: w.query(p)}}
}

// query draws a prompt, or a part of it, which may go on in its own way.
func (w *wide) query(p prompt) []kv.LocalHash {
	var local []kv.LocalHash
	for _, i := range p.blocks {
		local = append(local, w.localOf(i))
	}
	if w.draw.percent(30) {
		local = local[:w.draw(len(local)+1)]
	}
	if w.draw.percent(30) {
		for range 1 + w.draw(20) {
			local = append(local, w.localOf(1_000_000+w.draw(8)))
		}
	}
	if len(local) > 0 && w.draw.percent(10) {
		local[w.draw(len(local))]++
	}
	return local
}

package mock

import (
	"math"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// What requests ask of the cache is done where their blocks are stored and found.
// A core of which nobody has asked anything does not come here.

// wishes is what one request asks.
type wishes struct {
	plan kvcache.Plan
	// thinking is the position of the first token of reasoning, -1 before there is
	// one.
	thinking int
}

// heed takes a request's directives and lets its turn begin.
func (c *Core) heed(now time.Duration, r *request) {
	d := r.Directives
	if r.Session == 0 && (d == nil || !asks(d)) {
		return
	}
	c.asked = true
	if d == nil {
		d = &kv.Directives{}
		r.Directives = d
	}
	r.wishes = &wishes{plan: kvcache.NewPlan(d, c.args.BlockSize, len(r.Prompt)), thinking: -1}
	if t := d.Thinking; t != nil && c.args.ThinkEphemeral == "auto" && t.Open(r.Prompt) {
		r.wishes.thinking = len(r.Prompt)
	}
	if r.Session == 0 || !c.args.EnablePrefixCaching {
		return
	}
	c.pool.Advance(now)
	c.pool.BeginTurn(r.Session, c.sessionOf(r), r.seq)
	if d.Compacted {
		c.pool.Compact(r.Session)
	}
}

// asks says whether directives ask for anything.
func asks(d *kv.Directives) bool {
	return d.Priority != nil || len(d.Ranges) > 0 || d.DecodePriority != nil || len(d.Pins) > 0 ||
		d.Class != kv.ClassNormal || d.SkipWrite || d.Thinking != nil || d.Compacted || d.NextIn > 0 || d.EvictSession
}

func (c *Core) sessionOf(r *request) kvcache.SessionOptions {
	o := r.wishes.plan.Session()
	o.Ephemeral = o.Ephemeral || c.args.SubagentEphemeral && r.Directives.Session.Parent != ""
	return o
}

// claim applies what a request asks for blocks that it has found.
func (c *Core) claim(r *request, blocks int) {
	w := r.wishes
	if c.below != nil {
		for _, t := range c.below.lower {
			t.Pool().Touch(r.seq[:blocks]) // they are as recent there, and their pins
		}
	}
	if w == nil {
		return
	}
	for k := range blocks {
		keep, ok := w.plan.Retention(k, false)
		if !ok {
			continue
		}
		c.pool.Retain(r.blocks[k], keep)
		if c.below != nil {
			for _, t := range c.below.lower {
				t.Pool().SetRetention(r.seq[k:k+1], keep)
			}
		}
	}
}

// quiet returns which blocks are ephemeral and stay so although a request uses them,
// because it is such a one itself.
func (c *Core) quiet(r *request, hashes []kv.SeqHash) (still []kv.SeqHash) {
	if r.wishes == nil || !r.wishes.plan.Ephemeral() {
		return nil
	}
	for _, h := range hashes {
		if ref, ok := c.pool.Find(h); ok && c.pool.Class(ref) == kvcache.Ephemeral {
			still = append(still, h)
		}
	}
	return still
}

// hush makes blocks ephemeral again.
func (c *Core) hush(hashes []kv.SeqHash) {
	for _, h := range hashes {
		if ref, ok := c.pool.Find(h); ok {
			c.pool.SetEphemeral(ref)
		}
	}
}

// mark applies what a request asks for block k, which is stored now; it is fresh
// if nobody had stored it before.
func (c *Core) mark(r *request, k int, fresh bool) {
	w, ref := r.wishes, r.blocks[k]
	if keep, ok := w.plan.Retention(k, fresh); ok {
		c.pool.Retain(ref, keep)
	}
	c.pool.Tag(r.Session, r.blocks[k:k+1])
	if !fresh {
		return
	}
	switch {
	case w.plan.Ephemeral():
		c.pool.SetEphemeral(ref)
	case r.Directives.SkipWrite, c.isThought(r, k):
		c.pool.SetSkipWrite(ref)
	}
}

// think notes where the reasoning of an answer begins, if its last token shows that.
func (r *request) think() {
	w, t := r.wishes, r.Directives.Thinking
	if w.thinking < 0 && t != nil && t.Begins(r.out) {
		w.thinking = r.length() - t.Lead()
	}
}

// isThought says whether block k holds or follows reasoning that nobody will send
// back.
func (c *Core) isThought(r *request, k int) bool {
	w := r.wishes
	return c.args.ThinkEphemeral == "auto" && w.thinking >= 0 && k >= kvcache.ThinkingFrom(w.thinking, c.args.BlockSize)
}

// conclude does what is to be done when a request has been answered: its pins hold
// from now on, its reasoning is given up, and what its session will want is fetched.
// It returns how many blocks the pins of its prompt hold, of how many.
func (c *Core) conclude(r *request) (pinned, toPin int) {
	w := r.wishes
	if w == nil || !c.args.EnablePrefixCaching {
		return 0, 0
	}
	thought := r.sealed
	if c.args.ThinkEphemeral == "auto" && w.thinking >= 0 {
		thought = min(thought, kvcache.ThinkingFrom(w.thinking, c.args.BlockSize))
		c.pool.MarkThinking(r.Session, r.blocks[:r.sealed], thought, true)
	}
	for blocks, pin := range w.plan.Pins {
		pin.Owner = r.Session
		if blocks == math.MaxInt { // the answer's, too, but what nobody will send back
			c.pin(r.seq[:min(thought, len(r.seq))], pin)
			continue
		}
		got := c.pin(r.seq[:min(blocks, len(r.seq))], pin)
		pinned, toPin = max(pinned, got.Pinned), max(toPin, got.Requested)
	}
	if c.below != nil && r.Directives.NextIn > 0 {
		c.fetchFor(c.end+min(r.Directives.NextIn, longestPass), r.seq[:thought])
	}
	return pinned, toPin
}

// fetchFor lets blocks that are here now be here at a later time, too: what has left
// the device by then comes back shortly before.
func (c *Core) fetchFor(at time.Duration, hashes []kv.SeqHash) {
	reach := kvcache.Reach{Blocks: len(hashes)}
	reach.From[c.below.lower[0].Kind()] = len(hashes)
	takes := float64(c.below.registry.LoadTime(reach)) / kvcache.BackgroundShare
	c.below.registry.Prefetch(c.start, kvcache.PrefetchRequest{
		Hashes: hashes, Target: kv.TierDevice, Deadline: at, Lead: time.Duration(1.5*takes) + time.Millisecond,
	})
}

// leaveTurn ends a request's turn, before its blocks are released.
func (c *Core) leaveTurn(r *request) {
	if r.wishes == nil || r.Session == 0 || !c.args.EnablePrefixCaching {
		return
	}
	c.pool.EndTurn(r.Session, r.blocks[:min(r.sealed, len(r.blocks))])
	if r.Directives.EvictSession {
		c.closeSession(r.Session)
	}
}

// pin pins a prefix wherever it lies.
func (c *Core) pin(hashes []kv.SeqHash, pin kvcache.Pin) kvcache.PinResult {
	res := kvcache.PinResult{Requested: len(hashes)}
	if c.below == nil {
		res = c.pool.Pin(hashes, pin)
	} else {
		// A session must be known where it is to end its pins, and then lasts as long
		// as they do.
		for _, t := range c.below.lower {
			if pin.Owner != 0 && pin.TTL > 0 {
				t.Pool().OpenSession(pin.Owner, kvcache.SessionOptions{})
			}
		}
		pinned := c.below.registry.Pin(c.start, hashes, pin)
		for _, p := range pinned {
			res.Pinned = max(res.Pinned, p.Pinned)
		}
		if pin.TTL > 0 { // what is on its way to where it will be pinned counts
			to := c.below.lower[0]
			used, budget := to.Pool().PinBudget()
			there, _ := c.pool.Prefix(hashes)
			res.Pinned = max(res.Pinned, min(there, pinned[to.Kind()].Pinned+int(max(0, budget-used))))
		}
	}
	if pin.TTL > 0 {
		switch {
		case res.Pinned == res.Requested:
			c.stats.PinsGranted++
		case res.Pinned > 0:
			c.stats.PinsPartial++
		default:
			c.stats.PinsDenied++
		}
	}
	return res
}

func errNoRoom(c *Core) error {
	e := engine.Errorf(engine.WorkerOverloaded, "there is no room for the request: what fills the %d KV blocks of the device is pinned", c.args.NumGPUBlocks)
	e.Code = "insufficient_capacity"
	return e
}

package mock

import (
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Step computes one pass that begins at now, or at the end of the last pass if
// that is later.
func (c *Core) Step(now time.Duration) *Result {
	if c.schedule(now) {
		c.finish(c.start + c.args.duration(c.timing, &c.result.Work))
	}
	c.tell()
	return &c.result
}

// schedule decides what a pass computes. It is false if there is nothing to do.
func (c *Core) schedule(now time.Duration) bool {
	c.start = max(c.end, now)
	c.most = c.batch()
	c.budget = c.most
	c.tokens = c.tokens[:0]
	c.result = Result{
		Outputs:   c.result.Outputs[:0],
		Events:    c.result.Events[:0],
		Stores:    c.result.Stores[:0],
		Preempted: c.result.Preempted[:0],
		Admitted:  c.result.Admitted[:0],
		Spans:     c.result.Spans[:0],
	}
	c.advance(c.start)
	for _, r := range c.running {
		r.used = 0
	}
	if c.args.PreemptOnPriority {
		c.makeWay()
	}
	if short := c.continueRunning(); !short && len(c.result.Preempted) == 0 {
		c.admit()
	}
	c.measure()
	c.result.Idle = c.scheduled() == 0 && c.result.Work.Emitting == 0 && len(c.result.Preempted) == 0 && !c.stuck()
	return !c.result.Idle
}

// scheduled returns how many tokens the pass computes.
func (c *Core) scheduled() int { return c.most - c.budget }

// finish ends the pass.
func (c *Core) finish(end time.Duration) {
	c.end, c.result.End = end, end
	c.emit()
}

// continueRunning schedules the running requests in order. What a request of
// this pass has computed is published only when all of them are through,
// because until then it may still be preempted, and would not have computed it.
// Short says that one of them waits for slots that are about to be given back.
func (c *Core) continueRunning() (short bool) {
	for i := 0; i < len(c.running) && c.budget > 0; i++ {
		r := c.running[i]
		want := c.want(r)
		if want < 0 {
			break
		}
		for want > 0 && !c.grow(r, r.computed+want) {
			if c.yield(nil) {
				continue
			}
			// Alone beside prompts that are kept it would only make room for itself.
			if c.returning() > 0 || c.kept > 0 && len(c.running) == 1 {
				want, short = 0, true
				break
			}
			victim := c.victim()
			gone := c.running[victim]
			c.preempt(victim)
			if victim <= i {
				i--
			}
			if gone == r {
				want = 0
			}
		}
		c.charge(r, want)
	}
	for _, r := range c.running {
		if r.used > 0 {
			c.seal(r, r.computed)
		}
	}
	return short
}

// admit moves requests from the queue to the running ones, as long as they fit.
// They never preempt anyone. What they compute is published at once, so that
// the next one can share it in the same pass.
func (c *Core) admit() {
	for c.budget > 0 && len(c.running)+c.parked() < c.args.MaxNumSeqs {
		r := c.waiting.head
		if r == nil {
			return
		}
		switch c.begin(r) {
		case blocked:
			// Requests that wait with blocks of theirs must not wait for each other.
			if len(c.running)+c.parked() == 0 && c.yield(r) {
				continue
			}
			return
		case parked:
			continue
		}
		c.waiting.remove(r)
		c.running = append(c.running, r)
		c.seal(r, r.computed)
	}
}

// begin gives a waiting request the blocks of its first chunk, those that are
// cached and those that are new, or parks it until more are cached. It changes
// nothing if neither can be.
func (c *Core) begin(r *request) beginning {
	size := c.args.BlockSize
	var sequence []kv.SeqHash
	var idle int
	held := len(r.blocks) // by a load that has ended
	found := held
	if c.args.EnablePrefixCaching && !r.Fresh {
		// At least one token is always computed: it gives the next one.
		sequence = r.seq[:min(len(r.seq), (r.length()-1)/size)]
		more, inactive := c.pool.Prefix(sequence[held:])
		found, idle = found+more, inactive
		if c.below != nil {
			if b := c.park(r, found, sequence); b != begun {
				return b
			}
		}
	}
	have := found * size
	if r.preempted == 0 {
		have = max(have, min(r.Received, r.length()-1))
	}
	remaining := r.length() - have
	if remaining > c.budget && !c.args.EnableChunkedPrefill {
		return blocked
	}
	want := min(remaining, c.budget)
	need := blocks(have+want, size) - found
	available := c.pool.Available() - idle
	if need+c.reserve() > available || c.asked && (c.breaksPins(r, found, sequence[held:found]) || c.hemmedIn(r, found, available)) {
		return blocked
	}
	r.blocks = c.match(r, r.blocks, sequence[held:found])
	r.sealed, r.computed = found, have
	if c.asked || c.below != nil {
		c.claim(r, found)
	}
	c.grow(r, have+want)
	if r.cached < 0 {
		r.cached = found * size
	}
	c.stats.Admissions++
	c.queries += int64(r.length())
	c.hits += int64(found * size)
	c.result.Admitted = append(c.result.Admitted, Admission{ID: r.id, Owner: r.Owner, Cached: found * size, From: c.found(r, found)})
	r.used = 0
	c.charge(r, want)
	return begun
}

// want returns how many tokens of a running request this pass should compute,
// or -1 if the pass has to stop here.
func (c *Core) want(r *request) int {
	remaining := r.length() - r.computed
	if r.held || r.decoding() && r.paced() && r.due > c.start {
		return 0
	}
	if remaining > c.budget && !c.args.EnableChunkedPrefill {
		return -1
	}
	return min(remaining, c.budget)
}

// decoding says whether everything but the last output is computed.
func (r *request) decoding() bool {
	return len(r.out) > 0 && !r.recompute && r.computed >= len(r.Prompt)
}

func (r *request) paced() bool { return len(r.Pace) > 0 }

// charge books want tokens of r into the pass.
func (c *Core) charge(r *request, want int) {
	r.used = want
	r.computed += want
	c.budget -= want
}

// grow gives r the blocks for its first upto tokens.
func (c *Core) grow(r *request, upto int) bool {
	need := blocks(upto, c.args.BlockSize) - len(r.blocks)
	if need <= 0 {
		return true
	}
	var ok bool
	r.blocks, ok = c.allocate(r.blocks, need, r.Namespace)
	return ok
}

func blocks(tokens, size int) int { return (tokens + size - 1) / size }

// reserve returns how many blocks a request may not take to begin with. It is none
// where nothing runs that would need them, so that each that fits is served.
func (c *Core) reserve() int {
	if len(c.running) == 0 {
		return 0
	}
	return int(c.args.Watermark * float64(c.args.NumGPUBlocks))
}

// makeWay sends running requests back to the queue for the first one there, as long
// as they are of lower priority and there is no room for its next chunk.
func (c *Core) makeWay() {
	for r := c.waiting.head; r != nil && len(c.running) > 0; {
		v := c.victim()
		if c.running[v].Priority >= r.Priority || c.roomFor(r) {
			return
		}
		c.preempt(v)
	}
}

// roomFor says whether a waiting request could begin now.
func (c *Core) roomFor(r *request) bool {
	if len(c.running)+c.parked() >= c.args.MaxNumSeqs {
		return false
	}
	found, idle := len(r.blocks), 0
	if c.args.EnablePrefixCaching && !r.Fresh {
		size := c.args.BlockSize
		n, inactive := c.pool.Prefix(r.seq[found:max(found, min(len(r.seq), (r.length()-1)/size))])
		found, idle = found+n, inactive
	}
	chunk := min(r.length(), found*c.args.BlockSize+c.args.MaxNumBatchedTokens)
	return blocks(chunk, c.args.BlockSize)-found+c.reserve() <= c.pool.Available()-idle
}

// victim returns the index of the running request that has to make room: one
// that is held for ever, else of the lowest priority the last or the first.
func (c *Core) victim() int {
	v := 0
	for i, r := range c.running {
		if r.held {
			return i
		}
		if p := c.running[v].Priority; r.Priority < p || r.Priority == p && c.args.PreemptionMode == "lifo" {
			v = i
		}
	}
	return v
}

// preempt sends a running request back to the queue. It keeps what it has
// generated and computes everything again.
func (c *Core) preempt(i int) {
	r := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	c.budget += r.used
	c.stats.Recomputed += int64(r.computed - r.used)
	c.giveBack(r)
	r.from, r.loaded = r.from[:0], false
	r.sealed, r.computed, r.used = 0, 0, 0
	r.recompute = true
	r.preempted++
	c.preemptions++
	c.waiting.pushFront(r)
	c.result.Preempted = append(c.result.Preempted, r.id)
}

// seal publishes the blocks of r that its first upto tokens fill, and tells of
// those that are new. They are one run without a gap, because no block is in the
// cache without its parent.
func (c *Core) seal(r *request, upto int) {
	size := c.args.BlockSize
	full := min(upto/size, len(r.blocks))
	if !c.args.EnablePrefixCaching || r.sealed >= full {
		return
	}
	var run *kv.Event
	for k := r.sealed; k < full; k++ {
		c.name(r, k)
		parent := kvcache.Root
		if k > 0 {
			parent = r.blocks[k-1]
		}
		if fresh := c.publish(r, k, parent); !fresh || c.below != nil {
			continue // known, and what is new can only stand behind it; or told by the tiers
		}
		c.local[r.blocks[k]] = r.local[k]
		if run == nil {
			c.happen(kv.Event{Kind: kv.Stored, Blocks: make([]kv.Block, 0, full-k)}, r.Namespace)
			run = &c.result.Events[len(c.result.Events)-1]
			if k > 0 {
				run.Parent, run.HasParent = kv.EngineHash(r.seq[k-1]), true
			}
		}
		run.Blocks = append(run.Blocks, kv.Block{Engine: kv.EngineHash(r.seq[k]), Local: r.local[k]})
		if c.reports {
			store := &c.result.Stores[len(c.result.Stores)-1]
			store.Tokens = append(store.Tokens, r.content(k, size)...)
		}
	}
	c.writeLater(r, full)
	r.sealed = full
}

// name hashes block k of r, if it is not one of the prompt alone.
func (c *Core) name(r *request, k int) {
	if k < len(r.local) {
		return
	}
	r.local = append(r.local, kv.HashBlock(r.content(k, c.args.BlockSize), r.Namespace.Seed()))
	if k == 0 {
		r.seq = append(r.seq, kv.SeqHash(r.local[0]))
	} else {
		r.seq = append(r.seq, r.seq[k-1].Next(r.local[k]))
	}
}

// content returns the tokens of block k of r.
func (r *request) content(k, size int) []uint32 {
	from, to := k*size, (k+1)*size
	n := len(r.Prompt)
	switch {
	case to <= n:
		return r.Prompt[from:to]
	case from >= n:
		return r.out[from-n : to-n]
	}
	return slices.Concat(r.Prompt[from:], r.out[:to-n])
}

// emits says whether r gives a token at the end of this pass.
func (c *Core) emits(r *request) bool {
	return r.computed == r.length() && !r.held && (!r.paced() || r.due <= c.start)
}

// measure sums up the pass.
func (c *Core) measure() {
	w, s := &c.result.Work, &c.result.Snapshot
	for _, r := range c.running {
		prompt := min(r.computed, len(r.Prompt)) - min(r.computed-r.used, len(r.Prompt))
		if r.Received > 0 && r.preempted == 0 && r.computed-r.used == r.length()-1 {
			prompt = 0 // all that was left for this engine is one step of decoding
		}
		prefill := prompt > 0 || r.used > 0 && r.recompute
		if prompt > 0 {
			w.Prefills++
			w.PromptEnds += min(r.computed, len(r.Prompt))
			w.PromptStarts += r.computed - r.used
			s.Prefills.add(len(r.Prompt))
			s.PrefillTokens += prompt
			s.PrefillKV += r.computed - r.used
		} else {
			s.Decodes.add(r.length())
		}
		if prefill {
			w.Tokens += r.used
			w.Attention += float64(r.used * r.computed)
		}
		if !c.emits(r) {
			continue
		}
		w.Emitting++
		if !prefill {
			w.Decodes++
			w.DecodeContext += r.length()
		}
	}
	w.ActiveTokens = c.pool.Stats().Used() * c.args.BlockSize
	w.TotalTokens = c.args.NumGPUBlocks * c.args.BlockSize
	s.QueuedPrefill, s.QueuedDecode = c.waiting.fresh, c.waiting.preempted
}

// emit gives every request that is up to date its next tokens, and lets go of
// those that are through.
func (c *Core) emit() {
	keep := c.running[:0]
	for _, r := range c.running {
		if !c.emits(r) {
			keep = append(keep, r)
			continue
		}
		r.recompute = false
		if r.Cut != nil && len(r.out) >= r.Cut.After && r.Cut.Hold {
			r.held = true
			keep = append(keep, r)
			continue
		}
		o := c.give(r)
		if o.Finish != engine.Running {
			o.Pinned, o.ToPin = c.conclude(r)
		}
		switch {
		case r.Keep && o.Finish == engine.FinishLength:
			c.kept++
			c.keptOpen += len(r.blocks) - r.sealed
		case o.Cut || o.Finish != engine.Running:
			c.retire(r)
		default:
			keep = append(keep, r)
		}
	}
	clear(c.running[len(keep):])
	c.running = keep
}

// give generates one delta of r.
func (c *Core) give(r *request) *Output {
	c.result.Outputs = append(c.result.Outputs, Output{ID: r.id, Owner: r.Owner, Cached: r.cached})
	o := &c.result.Outputs[len(c.result.Outputs)-1]
	from := len(c.tokens)
	for n := r.burst(); n > 0 && o.Finish == engine.Running; n-- {
		if r.Cut != nil && len(r.out) >= r.Cut.After {
			o.Cut = !r.Cut.Hold
			break
		}
		id := r.Generator.Next()
		r.out = append(r.out, id)
		if r.wishes != nil {
			r.think()
		}
		var shown bool
		o.Finish, shown = r.ends(id)
		if shown {
			c.tokens = append(c.tokens, id)
		}
		if o.Finish == engine.FinishStop {
			o.Matched = id
		}
	}
	if !c.planned { // else the new token is there, and its keys and values are not
		c.seal(r, min(r.length(), r.computed+1))
	}
	r.await()
	o.Tokens = c.tokens[from:len(c.tokens):len(c.tokens)]
	o.Generated = len(r.out)
	return o
}

// ends says whether the newest token ends the request, and whether it is shown.
func (r *request) ends(id uint32) (finish engine.Finish, shown bool) {
	if len(r.out) > r.MinTokens {
		if slices.Contains(r.Stop, id) {
			return engine.FinishStop, true
		}
		if slices.Contains(r.Hidden, id) {
			return engine.FinishEOS, false
		}
	}
	if len(r.out) >= r.MaxTokens {
		return engine.FinishLength, true
	}
	return engine.Running, true
}

// burst returns how many tokens the next delta has.
func (r *request) burst() int {
	if !r.paced() {
		return 1
	}
	n := max(1, r.Pace[r.pace].Burst)
	if r.pace+1 < len(r.Pace) {
		n = min(n, r.Pace[r.pace+1].From-len(r.out))
	}
	return n
}

// await sets when the next delta is due. The beat is kept, whatever the passes
// between take.
func (r *request) await() {
	if !r.paced() {
		return
	}
	if r.pace+1 < len(r.Pace) && len(r.out) >= r.Pace[r.pace+1].From {
		r.pace++
		r.due += r.Pace[r.pace].First
		return
	}
	r.due += r.Pace[r.pace].Each
}

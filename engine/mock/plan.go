package mock

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// A model that really computes takes the passes of the core from here: Plan says
// which tokens of which requests stand where in which blocks, and Finish, once they
// are computed, lets the requests have their tokens. Step is both at once, with a
// time that is made up between them.

// Span is what a pass computes of one request: tokens that follow each other.
type Span struct {
	ID        ID
	Generator Generator
	// Tokens stand at the positions from Start on. Blocks are the request's, from its
	// first one to that of the last of these tokens. What several spans have in
	// common, the first of them computes, and those after it may read in the same pass.
	Tokens []uint32
	Start  int
	Blocks []kvcache.Ref
	// Gives says that the generator is asked for what follows the last token when the
	// pass is over.
	Gives bool
	// Err is for who computes: the request cannot go on. Its keys and values are none
	// the worse for it.
	Err error
}

// A pass that is computed is to end soon enough that nobody waits for long who comes
// while it goes on, whatever the model and the machine. Some tokens of prompts it
// always has, so that these come to an end.
const (
	passTime   = 50 * time.Millisecond
	leastShare = 16
)

// batch returns how many tokens the next pass may compute.
func (c *Core) batch() int {
	most := c.args.MaxNumBatchedTokens
	if !c.planned || !c.args.EnableChunkedPrefill {
		return most
	}
	fits := 0 // as long as nothing is known
	if c.perToken > 0 {
		fits = int(min(float64(passTime)/c.perToken, float64(most)))
	}
	return min(most, max(len(c.running)+leastShare, fits))
}

// learn notes how long a pass has taken. Those of many tokens say more.
func (c *Core) learn(took time.Duration) {
	n := float64(c.scheduled())
	if n == 0 || took <= 0 {
		return
	}
	if each := float64(took) / n; c.perToken == 0 {
		c.perToken = each
	} else {
		c.perToken += (each - c.perToken) * n / (n + 64)
	}
}

// computing returns how long the computation of so many tokens takes: as long as of
// late, or if nobody really computes, as the timing model has it.
func (c *Core) computing(tokens int, w *Work) time.Duration {
	if c.planned {
		return time.Duration(min(float64(tokens)*c.perToken, float64(longestPass)))
	}
	return c.args.duration(c.timing, w)
}

// spans is the room of the spans of one pass.
type spans struct {
	tokens []uint32
	blocks []kvcache.Ref
}

// Plan begins a pass that is computed by the caller, who calls [Core.Finish] before
// the next one. Its result has spans and events, and no outputs. In between requests
// may be submitted and cancelled; nothing else may be asked of the core, because all
// that it has planned is taken for done. A core whose passes are planned is not to
// [Core.Step].
func (c *Core) Plan(now time.Duration) *Result {
	c.planned = true
	if c.schedule(now) {
		c.lay()
	}
	c.tell()
	return &c.result
}

// Finish ends the pass that was planned. Its result has no spans; its events are
// those since the pass has begun.
func (c *Core) Finish(now time.Duration) *Result {
	c.result.Events, c.result.Stores = c.result.Events[:0], c.result.Stores[:0]
	for i := range c.result.Spans {
		if s := &c.result.Spans[i]; s.Err != nil {
			c.abandon(s)
		}
	}
	c.learn(now - c.start)
	clear(c.result.Spans)
	c.result.Spans = c.result.Spans[:0]
	c.finish(max(now, c.start))
	c.tell()
	return &c.result
}

// lay tells what the running requests compute in this pass. All of it is copied: a
// request may be cancelled while it is computed.
func (c *Core) lay() {
	s := &c.spans
	s.tokens, s.blocks = s.tokens[:0], s.blocks[:0]
	for _, r := range c.running {
		if r.used == 0 {
			continue
		}
		from, first := len(s.tokens), len(s.blocks)
		s.tokens = r.appendTokens(s.tokens, r.computed-r.used, r.computed)
		s.blocks = append(s.blocks, r.blocks[:blocks(r.computed, c.args.BlockSize)]...)
		c.result.Spans = append(c.result.Spans, Span{
			ID: r.id, Generator: r.Generator, Start: r.computed - r.used, Gives: c.emits(r),
			Tokens: s.tokens[from:len(s.tokens):len(s.tokens)], Blocks: s.blocks[first:len(s.blocks):len(s.blocks)],
		})
	}
}

// appendTokens appends tokens of prompt and answer.
func (r *request) appendTokens(dst []uint32, from, to int) []uint32 {
	n := len(r.Prompt)
	if from < n {
		dst = append(dst, r.Prompt[from:min(to, n)]...)
	}
	if to > n {
		dst = append(dst, r.out[max(from-n, 0):to-n]...)
	}
	return dst
}

// abandon ends a request that cannot go on.
func (c *Core) abandon(s *Span) {
	k := slices.IndexFunc(c.running, func(r *request) bool { return r.id == s.ID })
	if k < 0 {
		return // cancelled
	}
	r := c.running[k]
	c.running = slices.Delete(c.running, k, k+1)
	c.result.Outputs = append(c.result.Outputs, Output{ID: r.id, Owner: r.Owner, Err: s.Err})
	c.retire(r)
}

package router

import (
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/fleet"
)

// Booking is the place of one request on one worker. While it is held the
// request counts there. Its methods may be called from any goroutine and after
// Release; then they do nothing.
type Booking struct {
	router   *Router
	worker   *fleet.Worker
	decision Decision

	prompt      int // tokens
	expected    uint32
	blockSize   int
	room        int // blocks that the target can hold
	shown       int // leading blocks that counted as cached because of earlier answers
	trackOutput bool
	// begun says that the first token has come, told that it is known how much of
	// the prompt was cached.
	begun, told atomic.Bool
	witness     *witness // or nil

	// What stands in the books, guarded by the router's lock.
	released      bool
	load          *load
	requests      int
	prefillTokens int
	last          *run // that holds the end of the prompt
	output        int  // tokens
	outputBlocks  int
	outputWeight  int64 // of each
}

// Worker returns the worker to send the request to.
func (b *Booking) Worker() *fleet.Worker { return b.worker }

// Decision returns why it is that worker.
func (b *Booking) Decision() Decision { return b.decision }

// Prefilled tells that the first token has come: the prompt is computed. Only
// the first call counts.
func (b *Booking) Prefilled() {
	if b.begun.Swap(true) {
		return
	}
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if !b.released {
		b.router.books.prefilled(b)
	}
}

// Cached tells how many tokens of the prompt the engine found cached. Only the
// first call counts.
func (b *Booking) Cached(tokens int) {
	if b.told.Swap(true) {
		return
	}
	r, t, now := b.router, b.decision.Target, time.Now()
	a := answer{
		prompt: b.prompt, predicted: b.decision.CachedTokens, reported: min(max(0, tokens), b.prompt),
		blockSize: b.blockSize,
	}
	v := r.watch.tell(t, b.load.life, a, b.witness, now)
	wrong := a.reported/b.blockSize+1 < min(b.shown, (b.prompt-1)/b.blockSize)
	if v.judgement != asBefore || v.news != nil || wrong {
		r.learn(b, v, wrong, now)
	}
	if v.judgement == doubt || v.judgement == again {
		b.worker.Resync()
	}
}

// Output tells that so many more tokens have been generated, over all choices.
func (b *Booking) Output(tokens int) {
	if !b.trackOutput || tokens <= 0 {
		return
	}
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if b.released {
		return
	}
	b.output += tokens
	before := (b.prompt + b.blockSize - 1) / b.blockSize
	total := (b.prompt + b.output + b.blockSize - 1) / b.blockSize
	if more := total - before - b.outputBlocks; more > 0 {
		b.router.books.grow(b, more, b.remaining())
	}
}

// remaining returns how much of the answer is expected to be still ahead, as the
// weight of its blocks.
func (b *Booking) remaining() int64 {
	if b.expected == 0 {
		return one
	}
	return int64(max(0, 1-float64(b.output)/float64(b.expected)) * one)
}

// Release ends the booking: nothing of it is left in the books. It may be called
// more than once.
func (b *Booking) Release() {
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if b.released {
		return
	}
	b.released = true
	b.router.books.leave(b)
	if told := b.told.Swap(true); !told && b.witness != nil {
		b.router.watch.close(b.witness)
	}
}

package router

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Booking is the place of one request on one worker. While it is held the
// request counts there. Its methods may be called from any goroutine and after
// Release; then they do nothing.
type Booking struct {
	router   *Router
	worker   *fleet.Worker
	decision Decision
	id       string
	role     engine.Role
	placed   time.Time

	prompt      int // tokens
	expected    uint32
	blockSize   int
	room        int  // blocks that the target can hold
	shown       int  // leading blocks that counted as cached though the index does not know them
	stores      bool // it computes blocks of which the worker is to tell
	trackOutput bool
	// begun says that the first token has come, told that it is known how much of
	// the prompt was cached.
	begun, told atomic.Bool
	witness     *witness     // or nil
	note        *note        // or nil
	lease       *lease       // of its session's binding, or nil
	names       []kv.SeqHash // of the prompt's blocks, see [Booking.Blocks]; or nil

	// How it has gone so far, for those who learn from it.
	first  atomic.Int64 // from placed to the first token, nanoseconds; 0: none came
	cached atomic.Int64 // tokens, one more than the engine has told; 0: it has not
	output atomic.Int64 // tokens
	moved  atomic.Int64 // from the end of the prompt elsewhere to the first token, nanoseconds; 0: not told
	end    atomic.Uint32

	// What stands in the books, guarded by the router's lock.
	released       bool
	named          bool // may be spoken of by its id
	load           *load
	requests       int
	prefill        prefill
	last           *run // that holds the end of the prompt; nil if nothing stands in the books
	outputBlocks   int
	outputWeight   int64 // of each
	older, younger *Booking
	heard          time.Time // last sign of life, as far as a sweep has seen
	heardOutput    int64     // tokens by then
}

// Worker returns the worker to send the request to.
func (b *Booking) Worker() *fleet.Worker { return b.worker }

// Decision returns why it is that worker.
func (b *Booking) Decision() Decision { return b.decision }

// Blocks names the complete blocks of the prompt, of as many tokens as the second result
// says, as the public scheme names them outside all namespaces. It is nil where that was
// not found out, or is not kept. The names may be shared, and must not be changed.
func (b *Booking) Blocks() ([]kv.SeqHash, int) { return b.names, b.blockSize }

// Prefilled tells that the first token has come: the prompt is computed. Only
// the first call counts.
func (b *Booking) Prefilled() {
	if b.begun.Swap(true) {
		return
	}
	r, now := b.router, b.router.now()
	b.first.Store(max(1, int64(now.Sub(b.placed))))
	r.mu.Lock()
	r.books.prefilled(b, now)
	r.note(b, b.prompt/b.blockSize, now)
	r.mu.Unlock()
	r.drainAt(&b.decision.Target)
}

// Cached tells how many tokens of the prompt the engine found cached. Only the
// first call counts.
func (b *Booking) Cached(tokens int) {
	if b.told.Swap(true) {
		return
	}
	r, t, now := b.router, b.decision.Target, b.router.now()
	a := answer{
		prompt: b.prompt, predicted: b.decision.CachedTokens, reported: min(max(0, tokens), b.prompt),
		blockSize: b.blockSize,
	}
	b.cached.Store(int64(a.reported) + 1)
	v := r.watch.tell(t, b.load.life, a, b.witness, now)
	wrong := a.reported/b.blockSize+1 < min(b.shown, (b.prompt-1)/b.blockSize)
	if v.judgement != asBefore || v.news != nil || wrong || b.note != nil {
		r.learn(b, v, wrong, now)
	}
	if v.judgement == doubt || v.judgement == again {
		b.worker.Resync()
	}
}

// Transferred tells how long the first token has taken since another worker had computed
// the prompt, which the transfer of its blocks cannot have exceeded. Only the first call
// counts.
func (b *Booking) Transferred(took time.Duration) {
	b.moved.CompareAndSwap(0, max(1, int64(took)))
}

// Output tells that so many more tokens have been generated, over all choices.
func (b *Booking) Output(tokens int) {
	if tokens <= 0 {
		return
	}
	output := int(b.output.Add(int64(tokens)))
	if !b.trackOutput || b.blocks(output) == b.blocks(output-tokens) {
		return
	}
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if b.last == nil {
		return
	}
	if more := b.blocks(output) - b.blocks(0) - b.outputBlocks; more > 0 {
		b.router.books.grow(b, more, b.remaining(output))
	}
}

// blocks returns how many blocks the prompt and so much of an answer take.
func (b *Booking) blocks(output int) int { return (b.prompt + output + b.blockSize - 1) / b.blockSize }

// remaining returns how much of the answers is expected to be still ahead, as the
// weight of their blocks. The forecast is for each of them.
func (b *Booking) remaining(output int) int64 {
	if b.expected == 0 {
		return one
	}
	return int64(max(0, 1-float64(output)/(float64(b.expected)*float64(b.requests))) * one)
}

// Completed notes that the answer came to its end. Whoever calls neither it nor
// [Booking.Failed] before Release has lost interest in the rest.
func (b *Booking) Completed() { b.end.Store(uint32(Completed)) }

// Failed notes that the worker has failed the request.
func (b *Booking) Failed() { b.end.Store(uint32(Failed)) }

// Release ends the booking: nothing of it is left in the books. It may be called
// more than once.
func (b *Booking) Release() {
	if b.release() {
		b.router.drainAt(&b.decision.Target)
	}
}

// release is Release without looking for somebody to take the place. It says
// whether it was the first.
func (b *Booking) release() bool {
	r := b.router
	r.mu.Lock()
	if b.released {
		r.mu.Unlock()
		return false
	}
	b.released = true
	r.forget(b, r.now())
	r.mu.Unlock()
	if told := b.told.Swap(true); !told && b.witness != nil {
		r.watch.close(b.witness)
	}
	if b.stores && b.begun.Load() && End(b.end.Load()) != Failed {
		r.watch.served(b.decision.Target, b.load.life, r.now())
	}
	if r.learner != nil || r.observer != nil {
		o := b.outcome(r.now())
		if r.learner != nil {
			r.teach(o)
		}
		if r.observer != nil {
			r.observer.Ended(&o)
		}
	}
	resume(b.lease.end(b.served()), nil)
	return true
}

// served says whether there was an answer.
func (b *Booking) served() bool { return b.begun.Load() || End(b.end.Load()) == Completed }

// teach tells the policy of an outcome. If it panics, it has not learned, and all
// that waits for the end of the request goes on.
func (r *Router) teach(o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("the policy has panicked", "request", o.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	r.learner.Learn(o)
}

// outcome says how the request has gone.
func (b *Booking) outcome(now time.Time) Outcome {
	return Outcome{
		ID: b.id, Role: b.role, Target: b.decision.Target,
		PromptTokens: b.prompt, CachedTokens: int(b.cached.Load()) - 1, OutputTokens: int(b.output.Load()),
		Queue: b.decision.Queue,
		First: time.Duration(b.first.Load()), Transfer: time.Duration(b.moved.Load()), Total: now.Sub(b.placed), End: End(b.end.Load()),
	}
}

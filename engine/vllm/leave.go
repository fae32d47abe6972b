package vllm

import (
	"context"
	"iter"
	"time"

	"github.com/dynago/dynago/engine"
)

// A server that waits for blocks of another one must not be told in the middle of it
// that nobody wants the answer any more: builds lose the blocks on both sides, and
// some die of it. Whoever asked need not wait for that.

// patienceForBlocks is how long a request that nobody wants may wait for its
// blocks.
const patienceForBlocks = 30 * time.Second

// item is one piece of an answer, or the error that ended it.
type item struct {
	data []byte
	err  error
	ok   bool // there was one
}

// answersOnceFetched yields the pieces of the answer to a decode leg. When the
// consumer leaves, or ctx ends, before the first of them has come, it returns at
// once and leaves the request to the engine, which ends it at that first piece, or
// when its patience is over.
func (e *Engine) answersOnceFetched(ctx context.Context, r *engine.Request, card *engine.Card, d *dialect) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		next, stop := iter.Pull2(e.answers(own, r, card, d))
		first := make(chan item, 1)
		if !e.later(func() {
			var i item
			i.data, i.err, i.ok = next()
			first <- i
		}) {
			cancel(nil)
			stop()
			yield(nil, closedError())
			return
		}
		var begun item
		select {
		case begun = <-first:
		case <-ctx.Done():
			leave := func() {
				awaitFirst(e.closed, first, func() { cancel(nil) })
				stop()
				e.abort(r.ID, d)
			}
			if !e.later(leave) {
				leave() // the engine is closed: nothing is waited for
			}
			yield(nil, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		defer stop()
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		for i := begun; i.ok; i.data, i.err, i.ok = next() {
			if !yield(i.data, i.err) || i.err != nil {
				return
			}
		}
	}
}

// awaitFirst cancels a request at its first piece, or when patience is over.
func awaitFirst(closed context.Context, first <-chan item, cancel func()) {
	patience := time.NewTimer(patienceForBlocks)
	defer patience.Stop()
	select {
	case <-first:
		cancel()
		return
	case <-patience.C:
	case <-closed.Done():
	}
	cancel()
	<-first // what the canceled request ends with
}

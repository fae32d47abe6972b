package pipeline

import (
	"context"
	"iter"
	"runtime/debug"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// merge runs several jobs at once and yields their events as they come. It is
// the one joint with goroutines; it waits for all of them before it returns.
func merge(ctx context.Context, jobs []*job) iter.Seq2[chat.Event, error] {
	type item struct {
		event chat.Event
		err   error
		done  bool // the job has nothing more
	}
	return func(yield func(chat.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		items := make(chan item, len(jobs))
		send := func(j *job, it item) bool {
			j.noting.end()
			select {
			case items <- it:
				return true
			case <-ctx.Done():
				return false
			}
		}
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel(nil)
		for _, j := range jobs {
			running.Go(func() {
				// A fault of ours ends this call, and not the process.
				defer func() {
					if v := recover(); v != nil {
						j.p.Logger.Error("a choice panicked", "request", j.request.ID, "panic", v, "stack", string(debug.Stack()))
						send(j, item{err: engine.Errorf(engine.Internal, "a choice panicked")})
					}
				}()
				if err := j.place(ctx); err != nil {
					send(j, item{err: err})
					return
				}
				for e, err := range j.events(ctx) {
					if !send(j, item{event: e, err: err}) {
						return
					}
				}
				send(j, item{done: true})
			})
		}
		for left := len(jobs); left > 0; {
			select {
			case it := <-items:
				if it.done {
					left--
					continue
				}
				if !yield(it.event, it.err) || it.err != nil {
					return
				}
			case <-ctx.Done():
				yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
				return
			}
		}
	}
}

package pipeline

import (
	"context"
	"sync"
)

// behind is what requests leave to be done when they are over: what engines are told
// then. It never holds up a request.
type behind struct {
	once    sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (b *behind) context() context.Context {
	b.once.Do(func() { b.ctx, b.cancel = context.WithCancel(context.Background()) })
	return b.ctx
}

// run does something, until it is done or the pipeline is closed.
func (b *behind) run(f func(context.Context)) {
	ctx := b.context()
	b.running.Go(func() { f(ctx) })
}

// Close ends what is still being done for requests that are over, and returns when
// nothing of it is left. No request may come after it.
func (p *Pipeline) Close() error {
	p.endings.stop()
	p.behind.context()
	p.behind.cancel()
	p.behind.running.Wait()
	return nil
}

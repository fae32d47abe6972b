package remote

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// maxCalls bounds the tensor calls of one stream that are open at once.
const maxCalls = 1024

// TensorInfer runs the calls of one stream side by side. An error ends its call, and
// the stream ends when the frontend has no more calls and all have ended.
func (s *Server) TensorInfer(stream workerpb.Worker_TensorInferServer) error {
	infer, ok := engine.As[engine.Tensorer](s.engine)
	if !ok {
		return fail(stream, engine.Errorf(engine.Unsupported, "the engine takes no tensors"))
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	c := &calls{server: s, infer: infer, stream: stream, open: map[uint64]context.CancelFunc{}}
	ctx, cancel := context.WithCancel(stream.Context())
	defer c.running.Wait()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			c.running.Wait()
			cancel()
			return nil
		}
		if err != nil {
			cancel()
			return err
		}
		switch what := m.What.(type) {
		case *workerpb.TensorCall_Request:
			if err := c.begin(ctx, m.Call, what.Request); err != nil {
				cancel()
				return fail(stream, err)
			}
		case *workerpb.TensorCall_Cancel:
			c.cancel(m.Call)
		}
	}
}

// calls are those of one stream.
type calls struct {
	server  *Server
	infer   engine.Tensorer
	stream  workerpb.Worker_TensorInferServer
	running sync.WaitGroup

	mu   sync.Mutex // guards open, and lets one reply go out at a time
	open map[uint64]context.CancelFunc
}

// begin starts a call. An error is that of the stream.
func (c *calls) begin(ctx context.Context, number uint64, m *workerpb.TensorRequest) error {
	c.mu.Lock()
	_, taken := c.open[number]
	full := len(c.open) >= maxCalls
	if taken {
		c.mu.Unlock()
		return engine.Errorf(engine.InvalidArgument, "call %d is still open: numbers are used once", number)
	}
	if full {
		c.mu.Unlock()
		return c.end(number, engine.Errorf(engine.WorkerOverloaded, "%d calls are open on this stream: it takes no more", maxCalls))
	}
	ctx, cancel := context.WithCancel(ctx)
	c.open[number] = cancel
	c.mu.Unlock()
	c.running.Go(func() {
		defer cancel()
		err := c.run(ctx, number, m)
		c.mu.Lock()
		_, wanted := c.open[number]
		delete(c.open, number)
		c.mu.Unlock()
		if wanted {
			c.end(number, err) //nolint:errcheck // the stream is gone, and so are its calls
		}
	})
	return nil
}

func (c *calls) run(ctx context.Context, number uint64, m *workerpb.TensorRequest) (err error) {
	defer c.server.guard(func(e error) { err = e })
	ctx, leave, err := c.server.admit(ctx, 0)
	if err != nil {
		return err
	}
	defer leave()
	for r, err := range c.infer.Infer(ctx, tensorRequestOf(m)) {
		if err != nil {
			return engine.CauseOf(ctx, err)
		}
		reply := &workerpb.TensorReply{Call: number, What: &workerpb.TensorReply_Response{Response: tensorResponseMessage(r)}}
		if err := c.reply(reply); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return engine.CauseOf(ctx, ctx.Err())
	}
	return nil
}

// cancel ends a call without another word.
func (c *calls) cancel(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel, ok := c.open[number]; ok {
		delete(c.open, number)
		cancel()
	}
}

func (c *calls) end(number uint64, err error) error {
	return c.reply(&workerpb.TensorReply{Call: number, What: &workerpb.TensorReply_End{End: errorMessage(err)}})
}

func (c *calls) reply(m *workerpb.TensorReply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[m.Call]; !open && m.GetEnd() == nil {
		return context.Canceled // nobody waits for it any more
	}
	return c.stream.Send(m)
}

package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// Words of Triton for streams.
const (
	finalResponse = "triton_final_response"              // parameter of each response
	emptyFinal    = "triton_enable_empty_final_response" // parameter of a call
	errorByStatus = "triton_grpc_error"                  // metadata of a stream
)

// exchange is one stream, and the calls on it. One goroutine reads calls, each call
// runs in a goroutine of its own and sends its responses itself, one at a time. What
// waits for a client that does not read is one response of each call.
type exchange struct {
	*Server
	stream pb.GRPCInferenceService_ModelStreamInferServer
	// ctx ends with the stream; its cause is the status, if the server has ended it.
	ctx  context.Context
	stop context.CancelCauseFunc
	// strict says that any error of a call ends the stream.
	strict bool

	slots   chan struct{} // one for each call, and one for the next
	order   order
	running atomic.Int64
	ended   chan struct{} // tells of each end of a call
	closed  chan struct{} // closed when the client has no more calls

	sending sync.Mutex
	late    *time.Timer // ends the stream of a client that accepts nothing; nil: it may
}

// ModelStreamInfer answers any number of calls that share a stream.
func (s service) ModelStreamInfer(stream pb.GRPCInferenceService_ModelStreamInferServer) error {
	x := &exchange{
		Server: s.Server, stream: stream,
		slots: make(chan struct{}, s.Inflight), ended: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	x.strict, _ = strconv.ParseBool(visitorOf(stream.Context()).header.Get(errorByStatus))
	x.ctx, x.stop = context.WithCancelCause(stream.Context())
	defer x.stop(nil)
	if s.Patience > 0 {
		x.late = time.AfterFunc(s.Patience, x.stalled)
		x.late.Stop()
	}
	go x.read()
	return x.wait()
}

// wait returns how the stream ends: with the last call when the client has no more or
// the server drains, or as soon as something ends it for all.
func (x *exchange) wait() error {
	closed, leaving := x.closed, x.leaving
	for {
		if x.running.Load() == 0 {
			switch {
			case x.ctx.Err() != nil: // the last call has ended the stream
				return x.verdict()
			case closed == nil:
				return nil
			case leaving == nil:
				return status.Error(codes.Unavailable, shuttingDown)
			}
		}
		select {
		case <-x.ctx.Done():
			return x.verdict()
		case <-closed:
			closed = nil
		case <-leaving:
			leaving = nil
		case <-x.ended:
		}
	}
}

// verdict is the status of a stream that has ended early.
func (x *exchange) verdict() error {
	if err := x.stream.Context().Err(); err != nil {
		return ended(x.stream.Context())
	}
	return status.Convert(context.Cause(x.ctx)).Err()
}

func (x *exchange) stalled() {
	x.stop(status.Errorf(codes.Aborted, "the client has accepted nothing for %v", x.Patience))
}

// read takes calls while there is room for them.
func (x *exchange) read() {
	for {
		select {
		case x.slots <- struct{}{}:
		case <-x.ctx.Done():
			return
		}
		in, err := x.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			close(x.closed)
			return
		case err != nil:
			x.stop(err)
			return
		}
		x.running.Add(1)
		c := &streamed{exchange: x, in: in, place: x.order.join()}
		go c.run()
	}
}

// streamed is one call of a stream.
type streamed struct {
	*exchange
	in    *pb.ModelInferRequest
	place *place
	begun bool // a response was sent
}

// run answers the call.
func (c *streamed) run() {
	defer func() {
		if p := recover(); p != nil {
			c.Logger.Error("panic", "route", pb.GRPCInferenceService_ModelStreamInfer_FullMethodName, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.fail(status.Error(codes.Internal, "Internal server error"))
		}
		c.place.leave()
		<-c.slots
		c.running.Add(-1)
		select {
		case c.ended <- struct{}{}:
		default: // it was told already
		}
	}()
	call, err := c.open(c.ctx, c.in, true)
	if err != nil {
		c.fail(statusOf(err))
		return
	}
	streams := call.Streams()
	if streams {
		c.place.leave()
	}
	for r, err := range call.Responses() {
		if err != nil {
			c.fail(statusOf(err))
			return
		}
		out, err := kserve.ToProto(r, raw(c.in))
		if err != nil {
			c.fail(statusOf(call.Spoilt(err)))
			return
		}
		flag(out, !streams)
		if !c.send(&pb.ModelStreamInferResponse{InferResponse: out}) {
			return
		}
	}
	if streams && c.in.GetParameters()[emptyFinal].GetBoolParam() {
		c.send(&pb.ModelStreamInferResponse{InferResponse: c.last()})
	}
}

// last is the response without outputs by which a call ends.
func (c *streamed) last() *pb.ModelInferResponse {
	out := &pb.ModelInferResponse{Id: c.in.GetId(), ModelName: c.in.GetModelName(), ModelVersion: kserve.Version}
	flag(out, true)
	return out
}

// fail ends the call by a message, or the stream by its status.
func (c *streamed) fail(err error) {
	if c.strict || c.Errors == ErrorStatus && !c.begun {
		c.place.wait(c.ctx)
		c.stop(err)
		return
	}
	c.send(&pb.ModelStreamInferResponse{ErrorMessage: status.Convert(err).Message(), InferResponse: c.last()})
}

// send sends a message when the call has its turn, and says whether the stream goes
// on.
func (c *streamed) send(m *pb.ModelStreamInferResponse) bool {
	if !c.begun {
		c.place.wait(c.ctx)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.begun = true
	if c.late != nil {
		c.late.Reset(c.Patience)
		defer c.late.Stop()
	}
	if err := c.stream.Send(m); err != nil {
		c.stop(err)
		return false
	}
	return true
}

// Flags are shared by all responses, which are only read.
var (
	final    = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
	notFinal = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: false}}
)

// flag says in a response whether it is the last one of its call.
func flag(m *pb.ModelInferResponse, last bool) {
	if m.Parameters == nil {
		m.Parameters = map[string]*pb.InferParameter{}
	}
	m.Parameters[finalResponse] = notFinal
	if last {
		m.Parameters[finalResponse] = final
	}
}

package remote

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Infer runs one request on a worker that takes tensors. Each has a stream of its
// own, of which a connection holds any number: so a large one holds up no small one,
// and what cancels one cancels no other.
func (c *Client) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return once("tensor request "+r.ID, func(yield func(*engine.TensorResponse, error) bool) {
		ctx, done := c.begin(ctx)
		defer done()
		if err := c.over(ctx); err != nil {
			yield(nil, err)
			return
		}
		stub, idle := c.line()
		defer idle()
		stream, err := stub.TensorInfer(ctx, grpc.MaxCallRecvMsgSize(maxTensorMessage), grpc.MaxCallSendMsgSize(maxTensorMessage))
		if err != nil {
			yield(nil, operation(c.refused(ctx, err, nil), "infer"))
			return
		}
		const call = 1
		m := &workerpb.TensorCall{Call: call, What: &workerpb.TensorCall_Request{Request: tensorRequestMessage(r)}}
		if stream.Send(m) == nil { // what is wrong is told by Recv
			stream.CloseSend() //nolint:errcheck // likewise
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				yield(nil, operation(c.endOf(ctx, stream, err), "infer"))
				return
			}
			if err := c.over(ctx); err != nil { // what had come before is nobody's any more
				yield(nil, err)
				return
			}
			if m.Call != call {
				continue
			}
			switch what := m.What.(type) {
			case *workerpb.TensorReply_Response:
				if !yield(tensorResponseOf(what.Response), nil) {
					return
				}
			case *workerpb.TensorReply_End:
				if err := errorOfMessage(what.End); err != nil {
					yield(nil, operation(err, "infer"))
				}
				return
			}
		}
	})
}

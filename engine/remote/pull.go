package remote

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// A block travels in pieces that a message of any stock server can hold.
const pieceBytes = 1 << 20

// Pull sends the blocks of a hand-off to another worker. Who drains has computed them
// before, and still gives them away.
func (s *Server) Pull(m *workerpb.PullRequest, stream workerpb.Worker_PullServer) error {
	e, err := able[engine.Puller](s.engine, "blocks for others")
	if err != nil {
		return fail(stream, err)
	}
	if err := s.current(m.Epoch); err != nil {
		return fail(stream, err)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	q := engine.PullRequest{Handoff: m.HandoffId, Epoch: m.Epoch, Layout: m.Layout, FromBlock: int(m.FromBlock)}
	for b, err := range e.Pull(ctx, q) {
		if err != nil {
			return fail(stream, engine.CauseOf(ctx, err))
		}
		for piece := range pieces(&b, int(m.FromBlock)) {
			if err := send(stream, piece); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil { // then these were not all
		return fail(stream, engine.CauseOf(ctx, ctx.Err()))
	}
	return nil
}

// pieces cuts a block. first is the number of the first one of the stream.
func pieces(b *engine.PulledBlock, first int) iter.Seq[*workerpb.PullPiece] {
	return func(yield func(*workerpb.PullPiece) bool) {
		for from := 0; ; from += pieceBytes {
			to := min(from+pieceBytes, len(b.Data))
			p := &workerpb.PullPiece{Block: uint32(b.Number), Offset: uint32(from), Data: b.Data[from:to]}
			if from == 0 {
				p.Tokens, p.SeqHash = uint32(b.Tokens), uint64(b.Hash)
				if b.Number == first {
					p.TotalTokens = uint32(b.Total)
				}
			}
			last := to == len(b.Data)
			if last {
				p.Checksum = b.Checksum
			}
			if !yield(p) || last {
				return
			}
		}
	}
}

// Pull yields the blocks of a hand-off of the worker. Each is as long as was asked for;
// whether it is what was sent is for the caller to see, by its checksum.
func (c *Client) Pull(ctx context.Context, q engine.PullRequest) iter.Seq2[engine.PulledBlock, error] {
	return once("hand-off "+q.Handoff, func(yield func(engine.PulledBlock, error) bool) {
		ctx, done := c.begin(ctx)
		defer done()
		stub, idle := c.line()
		defer idle()
		failed := func(err error) { yield(engine.PulledBlock{}, operation(err, "pull")) }
		stream, err := stub.Pull(ctx, &workerpb.PullRequest{
			HandoffId: q.Handoff, Epoch: q.Epoch, Layout: q.Layout, FromBlock: uint32(max(0, q.FromBlock)),
		})
		if err != nil {
			failed(c.refused(ctx, err, nil))
			return
		}
		joined := joining{next: q.FromBlock, size: q.BlockBytes}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) && joined.whole() {
				return
			}
			if err != nil {
				failed(c.endOf(ctx, stream, err))
				return
			}
			b, whole, err := joined.add(m)
			if err != nil {
				done()
				failed(err)
				return
			}
			if whole && !yield(b, nil) {
				return
			}
		}
	})
}

// joining makes blocks of pieces.
type joining struct {
	next  int // number of the block that comes
	size  int // bytes of each
	total int
	block engine.PulledBlock
}

// whole says whether no block has been begun.
func (j *joining) whole() bool { return j.block.Data == nil }

// add takes a piece, and returns the block that is complete with it.
func (j *joining) add(m *workerpb.PullPiece) (b engine.PulledBlock, whole bool, err error) {
	if j.block.Data == nil {
		j.block = engine.PulledBlock{
			Number: j.next, Tokens: int(m.Tokens), Hash: kv.SeqHash(m.SeqHash), Data: make([]byte, 0, max(0, j.size)),
		}
		if m.TotalTokens > 0 {
			j.total = int(m.TotalTokens)
		}
		j.block.Total = j.total
	}
	have := len(j.block.Data)
	if int(m.Block) != j.next || int(m.Offset) != have || have+len(m.Data) > j.size || len(m.Data) == 0 && j.size > 0 {
		return b, false, engine.Errorf(engine.Internal, "the worker sent %d bytes of block %d from %d on, where block %d of %d bytes went on from %d", len(m.Data), m.Block, m.Offset, j.next, j.size, have)
	}
	j.block.Data = append(j.block.Data, m.Data...)
	if len(j.block.Data) < j.size {
		return b, false, nil
	}
	b = j.block
	b.Checksum = m.Checksum
	j.block = engine.PulledBlock{}
	j.next++
	return b, true, nil
}

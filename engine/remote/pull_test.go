package remote_test

import (
	"context"
	"iter"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Whatever a worker sends, what comes is whole blocks in order, and then one end.
func TestPullHostile(t *testing.T) {
	piece := func(block, offset uint32, data string) *workerpb.PullPiece {
		return &workerpb.PullPiece{Block: block, Offset: offset, Data: []byte(data), TotalTokens: 7}
	}
	for name, tt := range map[string]struct {
		pieces []*workerpb.PullPiece
		end    error
		blocks int
		want   engine.ErrorKind // "": none
	}{
		"two blocks":        {pieces: []*workerpb.PullPiece{piece(3, 0, "abcd"), piece(4, 0, "ef"), piece(4, 2, "gh")}, blocks: 2},
		"none":              {},
		"half a block":      {pieces: []*workerpb.PullPiece{piece(3, 0, "ab")}, want: engine.StreamIncomplete},
		"too long":          {pieces: []*workerpb.PullPiece{piece(3, 0, "abcde")}, want: engine.Internal},
		"an empty piece":    {pieces: []*workerpb.PullPiece{piece(3, 0, "")}, want: engine.Internal},
		"another block":     {pieces: []*workerpb.PullPiece{piece(3, 0, "abcd"), piece(5, 0, "abcd")}, blocks: 1, want: engine.Internal},
		"a gap":             {pieces: []*workerpb.PullPiece{piece(3, 0, "a"), piece(3, 2, "bc")}, want: engine.Internal},
		"not there":         {end: status.Error(codes.NotFound, "gone"), want: engine.NotFound},
		"another layout":    {end: status.Error(codes.FailedPrecondition, "layout"), want: engine.InvalidArgument},
		"an older worker":   {end: status.Error(codes.Unimplemented, "unknown method"), want: engine.Unsupported},
		"cut in the middle": {pieces: []*workerpb.PullPiece{piece(3, 0, "abcd")}, end: status.Error(codes.Unavailable, "bye"), blocks: 1, want: engine.Disconnected},
	} {
		c := meet(t, &rogue{pull: func(m *workerpb.PullRequest, s workerpb.Worker_PullServer) error {
			if m.HandoffId != "h" || m.Epoch != 1<<60 || m.Layout != "L" || m.FromBlock != 3 {
				t.Errorf("asked for %v", m)
			}
			for _, p := range tt.pieces {
				if err := s.Send(p); err != nil {
					return err
				}
			}
			return tt.end
		}})
		n := 0
		var end error
		for b, err := range c.Pull(t.Context(), engine.PullRequest{Handoff: "h", Epoch: 1 << 60, Layout: "L", FromBlock: 3, BlockBytes: 4}) {
			if end != nil {
				t.Errorf("%s: %+v, %v after the end", name, b, err)
			}
			if end = err; err == nil {
				if b.Number != 3+n || len(b.Data) != 4 || b.Total != 7 {
					t.Errorf("%s: %+v", name, b)
				}
				n++
			}
		}
		if n != tt.blocks || tt.want == "" && end != nil || tt.want != "" && engine.KindOf(end) != tt.want {
			t.Errorf("%s: %d blocks, want %d; then %v, want %s", name, n, tt.blocks, end, tt.want)
		}
	}
}

// given is an engine that gives blocks away until it is told to stop.
type given struct {
	engine.Engine
	asked chan engine.PullRequest
	ended chan error
}

func (g *given) Pull(ctx context.Context, q engine.PullRequest) iter.Seq2[engine.PulledBlock, error] {
	return func(yield func(engine.PulledBlock, error) bool) {
		g.asked <- q
		yield(engine.PulledBlock{Number: q.FromBlock, Data: make([]byte, 4), Total: 9}, nil)
		<-ctx.Done()
		g.ended <- ctx.Err()
	}
}

func TestPullIsLeft(t *testing.T) {
	m, err := mock.New(mock.Config{Model: "m", Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := &given{m, make(chan engine.PullRequest, 1), make(chan error, 1)}
	server, address := listen(t, remote.ServerConfig{Engine: g})
	c := dial(t, remote.Config{URL: address})
	q := engine.PullRequest{Handoff: "h", Layout: "L", FromBlock: 2, BlockBytes: 4}
	for b, err := range c.Pull(t.Context(), q) {
		if err != nil || b.Number != 2 {
			t.Fatalf("%+v, %v", b, err)
		}
		break
	}
	if got := <-g.asked; got.Handoff != "h" || got.Layout != "L" || got.FromBlock != 2 {
		t.Errorf("asked for %+v", got)
	}
	if err := <-g.ended; err == nil {
		t.Error("who is left goes on")
	}
	q.Epoch = 5
	for _, err := range c.Pull(t.Context(), q) {
		if engine.KindOf(err) != engine.Stale {
			t.Errorf("of another life: %v", err)
		}
	}
	q.Epoch = 0
	var last error
	for _, err := range c.Pull(t.Context(), q) {
		if last = err; err == nil {
			<-g.asked
			go server.Close()
		}
	}
	<-g.ended
	if k := engine.KindOf(last); k != engine.EngineShutdown && k != engine.Disconnected {
		t.Errorf("of a worker that leaves: %v", last)
	}
	plain := serve(t, mock.DefaultArgs(), remote.ServerConfig{})
	for _, err := range plain.Client.Pull(t.Context(), q) {
		if engine.KindOf(err) != engine.Unsupported {
			t.Errorf("of an engine without bytes: %v", err)
		}
	}
}

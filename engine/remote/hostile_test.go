package remote_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// rogue is a worker that does whatever a test wants of it.
type rogue struct {
	workerpb.UnimplementedWorkerServer
	describe func(workerpb.Worker_DescribeServer) error
	generate func(*workerpb.GenerateRequest, workerpb.Worker_GenerateServer) error
	chat     func(workerpb.Worker_ChatServer) error
	events   func(*workerpb.EventsRequest, workerpb.Worker_EventsServer) error
	control  func(*workerpb.ControlRequest) (*workerpb.ControlResponse, error)
	file     func(*workerpb.FileRequest, workerpb.Worker_FileServer) error
	pull     func(*workerpb.PullRequest, workerpb.Worker_PullServer) error
}

func (r *rogue) Describe(_ *workerpb.DescribeRequest, s workerpb.Worker_DescribeServer) error {
	if r.describe == nil {
		if err := s.Send(ready()); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}
	return r.describe(s)
}

func (r *rogue) Generate(m *workerpb.GenerateRequest, s workerpb.Worker_GenerateServer) error {
	return r.generate(m, s)
}

func (r *rogue) Chat(_ *workerpb.GenerateRequest, s workerpb.Worker_ChatServer) error {
	return r.chat(s)
}

func (r *rogue) Events(m *workerpb.EventsRequest, s workerpb.Worker_EventsServer) error {
	return r.events(m, s)
}

func (r *rogue) Control(_ context.Context, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	return r.control(m)
}

func (r *rogue) File(m *workerpb.FileRequest, s workerpb.Worker_FileServer) error {
	return r.file(m, s)
}

func (r *rogue) Pull(m *workerpb.PullRequest, s workerpb.Worker_PullServer) error {
	return r.pull(m, s)
}

const beat = 20 * time.Millisecond

func ready() *workerpb.Description {
	return &workerpb.Description{
		Epoch: 7, State: workerpb.State_STATE_READY, HeartbeatMs: 60_000,
		Card: &workerpb.Card{
			Model: "m", Accepts: []workerpb.Input{workerpb.Input_INPUT_TOKENS}, ContextLength: 100,
			BlockSize: 2, HashScheme: engine.SchemeXXH3, Features: []string{string(engine.FeatureEvents)},
		},
	}
}

// meet serves a worker, and returns a client of it.
func meet(t *testing.T, r workerpb.WorkerServer, options ...grpc.ServerOption) *remote.Client {
	t.Helper()
	return dial(t, remote.Config{URL: "grpc://" + host(t, r, options...)})
}

func host(t *testing.T, r workerpb.WorkerServer, options ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	workerpb.RegisterWorkerServer(s, r)
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// answerOf is what came of a request of 5 tokens after a prompt of 3.
func answerOf(t *testing.T, e engine.Engine, change func(*engine.Request)) (ids []uint32, last engine.Delta, end error) {
	t.Helper()
	r := &engine.Request{ID: "1-0", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 5}}
	if change != nil {
		change(r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := false
	for d, err := range e.Generate(ctx, r) {
		if ended {
			t.Fatalf("%+v %v after the end", d, err)
		}
		ended = err != nil || d.Finish != engine.Running
		ids = append(ids, d.TokenIDs...)
		last, end = d, err
	}
	if !ended {
		t.Fatal("the sequence has no end")
	}
	return ids, last, end
}

func ids(n ...uint32) *workerpb.Delta { return &workerpb.Delta{TokenIds: n} }

func done(n ...uint32) *workerpb.Delta {
	return &workerpb.Delta{TokenIds: n, Finish: workerpb.Finish_FINISH_LENGTH}
}

// Whatever a worker answers, there is one end, and it is told as what it is.
func TestGenerateHostile(t *testing.T) {
	logprobs := 1
	type stream = workerpb.Worker_GenerateServer
	say := func(list ...*workerpb.Delta) func(stream) error {
		return func(s stream) error {
			for _, m := range list {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
	}
	refuse := func(c codes.Code, kind string) func(stream) error {
		return func(s stream) error {
			if kind != "" {
				s.SetTrailer(metadata.Pairs("x-dynago-error-kind", kind))
			}
			return status.Error(c, "no")
		}
	}
	begun := func(then func(stream) error) func(stream) error {
		return func(s stream) error {
			if err := s.SendHeader(nil); err != nil {
				return err
			}
			return then(s)
		}
	}
	for _, tt := range []struct {
		name   string
		do     func(stream) error
		change func(*engine.Request)
		ids    []uint32
		kind   engine.ErrorKind // of the error, or empty
		says   string
	}{
		{name: "well", do: say(ids(1, 2), done(3)), ids: []uint32{1, 2, 3}},
		{name: "tokens after the end", do: say(ids(1), done(2), ids(3), done(4)), ids: []uint32{1, 2}},
		{name: "no end", do: say(ids(1), ids(2)), ids: []uint32{1, 2}, kind: engine.StreamIncomplete},
		{name: "nothing at all", do: say(), kind: engine.StreamIncomplete},
		{name: "too many tokens", do: say(ids(1, 2, 3), ids(4, 5, 6)), ids: []uint32{1, 2, 3}, kind: engine.Internal, says: "6 ids, where 5"},
		{name: "ids and text", do: say(&workerpb.Delta{TokenIds: []uint32{1}, Text: "x"}), kind: engine.Internal, says: "ids and text"},
		{name: "text for ids", do: say(&workerpb.Delta{Text: "x"}), kind: engine.Internal, says: "text in answer to ids"},
		{name: "a hand-off too early", do: say(&workerpb.Delta{Handoff: []byte("{}")}), kind: engine.Internal, says: "hand-off"},
		{name: "log probabilities that lack", do: say(done(1)), change: func(r *engine.Request) { r.Logprobs = &logprobs }, kind: engine.Internal, says: "0 log probabilities for 1"},
		{name: "log probabilities unasked", do: say(&workerpb.Delta{TokenIds: []uint32{1}, Logprobs: []*workerpb.Logprob{{Id: 1}, nil}}, done(2)), ids: []uint32{1, 2}},
		{name: "it counts more than can be", do: say(&workerpb.Delta{TokenIds: []uint32{1, 2, 3, 4, 5}, Finish: workerpb.Finish_FINISH_LENGTH, Usage: &workerpb.Usage{
			PromptTokens: 3, CachedTokens: new(uint32(1 << 31)), OutputTokens: 1 << 31,
		}}), ids: []uint32{1, 2, 3, 4, 5}},
		{name: "it counts less", do: say(&workerpb.Delta{TokenIds: []uint32{1}, Finish: workerpb.Finish_FINISH_STOP, Usage: &workerpb.Usage{}}), ids: []uint32{1}},
		{name: "an unknown finish", do: say(&workerpb.Delta{TokenIds: []uint32{1}, Finish: 99}), ids: []uint32{1}},
		{name: "refused by code", do: refuse(codes.ResourceExhausted, ""), kind: engine.WorkerOverloaded},
		{name: "refused by kind", do: refuse(codes.Unavailable, "worker_overloaded"), kind: engine.WorkerOverloaded},
		{name: "queues are ours", do: refuse(codes.ResourceExhausted, "resource_exhausted"), kind: engine.WorkerOverloaded},
		{name: "an unknown kind", do: refuse(codes.NotFound, "whatever"), kind: engine.NotFound},
		{name: "unavailable before it began", do: refuse(codes.Unavailable, "unavailable"), kind: engine.Unavailable},
		{name: "unavailable after it began", do: begun(refuse(codes.Unavailable, "")), kind: engine.Disconnected},
		{name: "a bare failed precondition", do: refuse(codes.FailedPrecondition, ""), kind: engine.InvalidArgument},
		{name: "stale", do: refuse(codes.FailedPrecondition, "stale"), kind: engine.Stale},
		{name: "cancelled by itself", do: begun(refuse(codes.Canceled, "")), kind: engine.EngineShutdown},
		{name: "and says so", do: begun(refuse(codes.Canceled, "cancelled")), kind: engine.EngineShutdown},
		{name: "before it began", do: refuse(codes.Canceled, ""), kind: engine.CannotConnect},
		{name: "it panics quietly", do: begun(refuse(codes.Unknown, "")), kind: engine.Internal},
		{name: "no such call", do: refuse(codes.Unimplemented, ""), kind: engine.Unsupported},
		{name: "an error after tokens", do: func(s stream) error {
			if err := s.Send(ids(1)); err != nil {
				return err
			}
			return refuse(codes.Unavailable, "engine_shutdown")(s)
		}, ids: []uint32{1}, kind: engine.EngineShutdown},
		{name: "a huge message", do: say(ids(1), &workerpb.Delta{EngineData: make([]byte, 65<<20)}), ids: []uint32{1}, kind: engine.Internal, says: "64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rogue{generate: func(_ *workerpb.GenerateRequest, s stream) error { return tt.do(s) }}
			got, last, err := answerOf(t, meet(t, r, grpc.MaxSendMsgSize(1<<30)), tt.change)
			if !slices.Equal(got, tt.ids) {
				t.Errorf("ids %v, want %v", got, tt.ids)
			}
			switch {
			case tt.kind == "" && (err != nil || last.Usage == nil || last.Usage.Prompt != 3 || last.Usage.Output != len(tt.ids) || last.Usage.Cached != nil && *last.Usage.Cached > 3):
				t.Errorf("ended with %+v %+v, %v", last, last.Usage, err)
			case tt.kind != "" && (err == nil || engine.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("ended with %v, want %s and %q", err, tt.kind, tt.says)
			}
		})
	}
}

// A worker that hangs is left as soon as its consumer leaves, and is told.
func TestGenerateHangs(t *testing.T) {
	told := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	var at time.Time
	e := meet(t, &rogue{generate: func(_ *workerpb.GenerateRequest, s workerpb.Worker_GenerateServer) error {
		at = time.Now()
		cancel(engine.ErrInactive)
		<-s.Context().Done()
		told <- context.Cause(s.Context())
		return nil
	}})
	for _, err := range e.Generate(ctx, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}}) {
		if engine.KindOf(err) != engine.ResponseTimeout || !errors.Is(err, engine.ErrInactive) {
			t.Errorf("ended with %v, want the cause of the context", err)
		}
	}
	if d := time.Since(at); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	select {
	case <-told:
	case <-time.After(5 * time.Second):
		t.Error("the worker was not told")
	}
}

// A request that no worker would read does not go out.
func TestTooLargeToSend(t *testing.T) {
	e := meet(t, &rogue{generate: func(*workerpb.GenerateRequest, workerpb.Worker_GenerateServer) error {
		t.Error("it went out")
		return nil
	}})
	_, _, err := answerOf(t, e, func(r *engine.Request) { r.Extra = make([]byte, 65<<20) })
	if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v, want invalid_argument", err)
	}
}

// What a client knows of a worker that lies about itself.
func TestDescribeHostile(t *testing.T) {
	change := func(f func(*workerpb.Description)) *workerpb.Description {
		m := ready()
		f(m)
		return m
	}
	for _, tt := range []struct {
		name  string
		say   *workerpb.Description
		state engine.State
		says  string
	}{
		{"no epoch", change(func(m *workerpb.Description) { m.Epoch = 0 }), engine.Failed, "no epoch"},
		{"ready without a card", change(func(m *workerpb.Description) { m.Card = nil }), engine.Failed, "no card"},
		{"a state of a later version", change(func(m *workerpb.Description) { m.State = 42 }), engine.Loading, ""},
		{"a file with a path", change(func(m *workerpb.Description) {
			m.Card.Files = []*workerpb.FileRef{{Kind: "config", Uri: "worker:../../config.json", Sha256: strings.Repeat("00", 32)}}
		}), engine.Loading, "no name of a file"},
		{"weights", change(func(m *workerpb.Description) {
			m.Card.Files = []*workerpb.FileRef{{Kind: "weights", Uri: "worker:model.safetensors", Sha256: strings.Repeat("00", 32)}}
		}), engine.Loading, "no name of a file"},
		{"a file without its sum", change(func(m *workerpb.Description) {
			m.Card.Files = []*workerpb.FileRef{{Kind: "config", Uri: "worker:config.json", Sha256: "x"}}
		}), engine.Loading, "no SHA-256"},
		{"a file that is another", change(func(m *workerpb.Description) {
			m.Card.Files = []*workerpb.FileRef{{Kind: "config", Uri: "worker:config.json", Sha256: strings.Repeat("00", 32)}}
		}), engine.Loading, "the card says 0000"},
		{"a file that does not end", change(func(m *workerpb.Description) {
			m.Card.Files = []*workerpb.FileRef{{Kind: "config", Uri: "worker:config.json", Sha256: strings.Repeat("00", 32), Size: 1}}
		}), engine.Loading, "more than the 1 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := dial(t, remote.Config{Cache: t.TempDir(), URL: "grpc://" + host(t, &rogue{
				describe: func(s workerpb.Worker_DescribeServer) error {
					if err := s.Send(tt.say); err != nil {
						return err
					}
					<-s.Context().Done()
					return nil
				},
				file: func(_ *workerpb.FileRequest, s workerpb.Worker_FileServer) error {
					return s.Send(&workerpb.FileChunk{Data: []byte("{}")})
				},
			})})
			await(t, e, func(s engine.Status) bool {
				return s.State == tt.state && strings.Contains(s.Reason, tt.says) && !strings.Contains(s.Reason, "not answered")
			})
		})
	}
}

// A worker that sends nothing of a file it has promised is given up for now.
func TestFileHangs(t *testing.T) {
	m := ready()
	m.HeartbeatMs = uint32(beat.Milliseconds())
	m.Card.Files = []*workerpb.FileRef{{Kind: "config", Uri: "worker:config.json", Sha256: strings.Repeat("00", 32)}}
	e := dial(t, remote.Config{Cache: t.TempDir(), URL: "grpc://" + host(t, &rogue{
		describe: func(s workerpb.Worker_DescribeServer) error {
			if err := s.Send(m); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		},
		file: func(_ *workerpb.FileRequest, s workerpb.Worker_FileServer) error {
			if err := s.Send(&workerpb.FileChunk{Data: []byte("{")}); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		},
	})})
	await(t, e, func(s engine.Status) bool {
		return strings.Contains(s.Reason, "config.json: nothing more has come for")
	})
}

// A worker that never stays is asked less and less often, though it answers each time.
func TestNeverStays(t *testing.T) {
	asked := make(chan time.Time, 5)
	e := meet(t, &rogue{describe: func(s workerpb.Worker_DescribeServer) error {
		select {
		case asked <- time.Now():
		default:
		}
		return s.Send(ready())
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for range e.Card(ctx) {
		}
	}()
	first := <-asked
	for range 3 {
		<-asked
	}
	if d := (<-asked).Sub(first); d < 1200*time.Millisecond { // 100 + 200 + 400 + 800, less a fifth
		t.Errorf("it was asked five times within %v", d)
	}
}

// await returns the first status that is as wanted.
func await(t *testing.T, e engine.Engine, is func(engine.Status) bool) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var last engine.Status
	for s, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if last = s; is(s) {
			return s
		}
	}
	t.Fatalf("not as wanted within 10 s: %+v", last)
	return last
}

func inState(state engine.State) func(engine.Status) bool {
	return func(s engine.Status) bool { return s.State == state }
}

// Events that cannot be void the rank, and the stream of them ends.
func TestEventsHostile(t *testing.T) {
	token := func(m *workerpb.EventBatch, events ...*workerpb.TokenEvent) *workerpb.EventBatch {
		m.Epoch, m.Body = 7, &workerpb.EventBatch_TokenEvents{TokenEvents: &workerpb.TokenEvents{Events: events}}
		return m
	}
	stored := &workerpb.TokenEvent{Kind: workerpb.EventKind_EVENT_KIND_STORED, Hashes: []uint64{5}, TokenIds: []uint32{1, 2}}
	for _, tt := range []struct {
		name string
		say  *workerpb.EventBatch
		gap  bool
	}{
		{"well", token(&workerpb.EventBatch{First: 1, Last: 1}, stored), false},
		{"no msgpack", &workerpb.EventBatch{Epoch: 7, First: 1, Last: 1, Body: &workerpb.EventBatch_RouterEvents{RouterEvents: []byte{0xc1}}}, true},
		{"fewer events than numbers", token(&workerpb.EventBatch{First: 1, Last: 2}, stored), true},
		{"numbers that go back", token(&workerpb.EventBatch{First: 3, Last: 2}, stored), true},
		{"no number", token(&workerpb.EventBatch{}, stored), true},
		{"numbers that go round", token(&workerpb.EventBatch{First: 1}, stored), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := meet(t, &rogue{events: func(_ *workerpb.EventsRequest, s workerpb.Worker_EventsServer) error { return s.Send(tt.say) }})
			stay, cancel := context.WithCancel(t.Context())
			defer cancel()
			known := make(chan struct{})
			go func() {
				tell := sync.OnceFunc(func() { close(known) })
				for s := range e.Card(stay) {
					if s.Card != nil {
						tell()
					}
				}
			}()
			<-known
			var got []kv.Batch
			for b, err := range e.Events(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b)
			}
			if len(got) != 1 || (got[0].Gap == kv.GapLost) != tt.gap {
				t.Fatalf("%+v, a gap: %v", got, tt.gap)
			}
			want := kv.Block{Engine: 5, Local: kv.HashBlock([]uint32{1, 2}, kv.HashSeed)}
			if !tt.gap && (len(got[0].Events) != 1 || got[0].Events[0].Blocks[0] != want) {
				t.Errorf("%+v, want %+v", got[0].Events, want)
			}
		})
	}
}

// Events with tokens that do not fill their blocks lose their effect and keep their
// numbers.
func TestTokenEvents(t *testing.T) {
	parent := uint64(5)
	e := meet(t, &rogue{events: func(_ *workerpb.EventsRequest, s workerpb.Worker_EventsServer) error {
		return s.Send(&workerpb.EventBatch{Epoch: 7, First: 1, Last: 5, Body: &workerpb.EventBatch_TokenEvents{TokenEvents: &workerpb.TokenEvents{Events: []*workerpb.TokenEvent{
			{Kind: workerpb.EventKind_EVENT_KIND_STORED, Hashes: []uint64{6, 7}, Parent: &parent, TokenIds: []uint32{1, 2, 3, 4}, Salt: "s", Tier: workerpb.Tier_TIER_HOST},
			{Kind: workerpb.EventKind_EVENT_KIND_STORED, Hashes: []uint64{8}, TokenIds: []uint32{1}},
			{Kind: workerpb.EventKind_EVENT_KIND_REMOVED, Hashes: []uint64{6}},
			{Kind: workerpb.EventKind_EVENT_KIND_CLEARED},
			{Kind: 77},
		}}}})
	}})
	stay, cancel := context.WithCancel(t.Context())
	defer cancel()
	known := make(chan struct{})
	go func() {
		tell := sync.OnceFunc(func() { close(known) })
		for s := range e.Card(stay) {
			if s.Card != nil {
				tell()
			}
		}
	}()
	<-known
	seed := kv.Namespace{Salt: "s"}.Seed()
	for b, err := range e.Events(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		want := []kv.Event{
			{Kind: kv.Stored, Tier: kv.TierHost, Parent: 5, HasParent: true, Blocks: []kv.Block{
				{Engine: 6, Local: kv.HashBlock([]uint32{1, 2}, seed)}, {Engine: 7, Local: kv.HashBlock([]uint32{3, 4}, seed)},
			}},
			{Kind: kv.Removed},
			{Kind: kv.Removed, Blocks: []kv.Block{{Engine: 6}}},
			{Kind: kv.Cleared},
			{Kind: kv.Removed},
		}
		if diff := different(b.Events, want); diff != "" {
			t.Error(diff)
		}
	}
}

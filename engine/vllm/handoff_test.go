package vllm_test

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// pair is a prefill and a decode server.
type pair struct{ p, d *served }

const nixl = "NixlConnector"

// newPair attaches to two servers that hand over in a style.
func newPair(t *testing.T, c fake.Config, style string) pair {
	t.Helper()
	if c.Mock.Args == (mock.Args{}) {
		c.Mock.Args = args()
	}
	if c.Transfer.Connector == "" {
		c.Transfer.Connector = nixl
	}
	c.PromptTokensDetails = true
	leg := func(role engine.Role) *served {
		if c.Mock.Args.WorkerType != "aggregated" {
			c.Mock.Args.WorkerType = string(role)
		}
		s := serve(t, c, func(v *vllm.Config) {
			v.Role, v.Disagg.Style = role, style
			if port, err := strconv.Atoi(portOf(t, v.URL)); err == nil {
				v.Disagg.Port = uint16(port)
			}
		})
		s.ready(t)
		return s
	}
	return pair{leg(engine.Prefill), leg(engine.Decode)}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// roles are the arguments of a scheduler that knows of legs.
func roles() mock.Args {
	a := args()
	a.WorkerType = "prefill" // or decode, for its server
	return a
}

// long is a request whose prompt has three blocks and a bit.
func long() *engine.Request {
	r := &engine.Request{ID: attemptID(), Stop: engine.Stop{MaxTokens: 12, Hidden: []uint32{eos}}}
	for i := range uint32(50) {
		r.TokenIDs = append(r.TokenIDs, 100+i)
	}
	return r
}

// legs returns the two legs of a request as the prefill engine prepares them.
func (s pair) legs(t *testing.T, r *engine.Request) (prefill, decode *engine.Request, h engine.Handoff) {
	t.Helper()
	h, err := s.p.Prepare(t.Context(), engine.HandoffQuery{Request: r.ID})
	if err != nil {
		t.Fatal(err)
	}
	p, d := *r, *r
	p.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	d.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: h.Decode}
	return &p, &d, h
}

// undisturbed is the answer of one server.
func undisturbed(t *testing.T, r *engine.Request) []uint32 {
	t.Helper()
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	ids, _, err := s.run(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// In each style, and with each build, the decode server begins with the blocks of the
// prefill server, once, and nothing is left behind.
func TestHandoff(t *testing.T) {
	want := undisturbed(t, long())
	for _, tt := range []struct {
		name, connector, style string
		fake.Config
		concurrent bool
		read       bool // from one server by the other
	}{
		{name: "nixl", read: true},
		{name: "nixl between servers of one role each", Config: fake.Config{Mock: mock.Config{Args: roles()}}, read: true},
		{name: "nixl over completions", Config: fake.Config{NoGenerate: true}, read: true},
		{name: "nixl, not read at the root", Config: fake.Config{Transfer: fake.Transfer{NoRoot: true}}, read: true},
		{name: "moriio", connector: "MoRIIOConnector", style: vllm.StyleMoRIIO, read: true},
		{name: "mooncake", connector: "MooncakeConnector", style: vllm.StyleMooncake, concurrent: true, read: true},
		{name: "offload", connector: "OffloadingConnector", style: vllm.StyleOffload, read: true},
		{name: "shared", connector: "LMCacheConnectorV1", style: vllm.StyleShared},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.Transfer.Connector, tt.Transfer.Fail = tt.connector, tt.read
			s := newPair(t, tt.Config, tt.style)
			prefill, decode, h := s.legs(t, long())
			if h.Concurrent != tt.concurrent || h.ID == "" {
				t.Fatalf("hand-off %+v", h)
			}
			var prefilled sync.WaitGroup
			var last engine.Delta
			var failed error
			prefilled.Go(func() { _, last, failed = s.p.run(t, prefill) })
			if !tt.concurrent {
				prefilled.Wait()
				decode.Disagg.Handoff = last.Handoff
				if len(last.Handoff) == 0 {
					t.Fatalf("%+v, %v hands nothing over", last, failed)
				}
			}
			ids, end, err := s.d.run(t, decode)
			prefilled.Wait()
			if failed != nil || last.Finish != engine.FinishLength || last.Usage.Output != 1 {
				t.Errorf("prefill leg: %+v, %v", last, failed)
			}
			if err != nil || !slices.Equal(ids, want) {
				t.Errorf("%v, %v; undisturbed %v", ids, err, want)
			}
			cached, pulls := 0, int64(0)
			if tt.read {
				cached, pulls = len(decode.TokenIDs), 1
			}
			if end.Usage == nil || end.Usage.Cached == nil || *end.Usage.Cached != cached || s.d.server.Pulls() != pulls {
				t.Errorf("usage %+v after %d pulls", end.Usage, s.d.server.Pulls())
			}
			if held, kept := s.p.server.Held(), s.p.server.Engine().Kept(); held != 0 || kept != 0 {
				t.Errorf("%d hand-offs are held, and the blocks of %d", held, kept)
			}
		})
	}
}

// A prompt without a whole block is not handed over; its decode leg is a request
// like any other.
func TestHandoffOfNothing(t *testing.T) {
	s := newPair(t, fake.Config{Transfer: fake.Transfer{Fail: true}}, "")
	r := long()
	r.TokenIDs = r.TokenIDs[:9]
	prefill, decode, _ := s.legs(t, r)
	_, last, err := s.p.run(t, prefill)
	if err != nil || last.Handoff != nil || s.p.server.Held() != 0 {
		t.Fatalf("%+v, %v", last, err)
	}
	if ids, _, err := s.d.run(t, decode); err != nil || !slices.Equal(ids, undisturbed(t, r)) {
		t.Errorf("%v, %v", ids, err)
	}
}

// A hand-off is good for one decode leg, in one life of its server.
func TestHandoffIsGone(t *testing.T) {
	for name, lose := range map[string]func(s pair, d *engine.Request){
		"read before": func(s pair, d *engine.Request) {
			if _, _, err := s.d.run(t, d); err != nil {
				t.Error(err)
			}
		},
		"the prefill server has restarted": func(s pair, _ *engine.Request) { s.p.server.Restart() },
		"the prefill server is gone":       func(s pair, _ *engine.Request) { s.p.http.Close() },
		"through a float": func(_ pair, d *engine.Request) {
			d.Disagg.Handoff = bytes.Replace(d.Disagg.Handoff, []byte("9007199254740993"), []byte("9007199254740992"), 1)
		},
	} {
		for _, fail := range []bool{true, false} {
			t.Run(name+" "+strconv.FormatBool(fail), func(t *testing.T) {
				s := newPair(t, fake.Config{Transfer: fake.Transfer{Fail: fail}}, "")
				prefill, decode, _ := s.legs(t, long())
				_, last, err := s.p.run(t, prefill)
				if err != nil {
					t.Fatal(err)
				}
				decode.Disagg.Handoff = last.Handoff
				lose(s, decode)
				ids, _, err := s.d.run(t, decode)
				if fail {
					e, ok := err.(*engine.Error)
					if !ok || e.Kind.Retry() != engine.RetryEarly || !strings.Contains(e.Op, "127.0.0.1:"+portOf(t, s.p.http.URL)) {
						t.Errorf("%v, want one that names where the blocks were", err)
					}
				} else if err != nil || len(ids) == 0 {
					t.Errorf("%v, %v: want the prompt computed", ids, err)
				}
			})
		}
	}
}

// Who leaves during the prefill leg leaves nothing behind.
func TestLeavingThePrefillLeg(t *testing.T) {
	slow := slowArgs()
	slow.PrefillMS = 60_000
	s := newPair(t, fake.Config{Mock: mock.Config{Args: slow}}, "")
	prefill, _, _ := s.legs(t, long())
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	go func() {
		s.p.awaitBodies(t, 1)
		cancel()
	}()
	for _, e := range s.p.Generate(ctx, prefill) {
		err = e
	}
	if engine.KindOf(err) != engine.Cancelled {
		t.Errorf("%v", err)
	}
	s.p.awaitIdle(t)
	if s.p.server.Held() != 0 {
		t.Error("blocks of nobody are held")
	}
}

// awaitIdle waits until nothing runs on the server.
func (s *served) awaitIdle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range s.Load(ctx) {
		if s.server.Running() == 0 {
			return
		}
	}
	t.Error("the server still runs what nobody wants")
}

// Blocks that nobody reads are let go after the server's own time, and people are
// told of it.
func TestQuirk10ExpiredHandoffsAreTold(t *testing.T) {
	var log logged
	c := fake.Config{Mock: mock.Config{Args: roles()}, Transfer: fake.Transfer{Connector: nixl, Timeout: time.Millisecond}}
	s := serve(t, c, func(v *vllm.Config) { v.Role, v.Log = engine.Prefill, log.logger() })
	s.ready(t)
	prefill, _, _ := pair{p: s}.legs(t, long())
	if _, last, err := s.run(t, prefill); err != nil || last.Handoff == nil {
		t.Fatalf("%+v, %v", last, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range s.Load(ctx) {
		for range s.Card(ctx) {
			break
		}
		if log.has("prefills that nobody has read") {
			if s.server.Held() != 0 || s.server.Engine().Kept() != 0 || s.server.Expired() != 1 {
				t.Errorf("%d held, %d kept, %d expired", s.server.Held(), s.server.Engine().Kept(), s.server.Expired())
			}
			return
		}
	}
	t.Error("nobody was told of the blocks that were lost")
}

// What is handed over stays as it came: its numbers are larger than a float64 holds,
// and a port that became 5600.0 is none.
func TestQuirk11HandoffKeepsItsBytes(t *testing.T) {
	for _, gen := range []bool{true, false} {
		s := newPair(t, fake.Config{NoGenerate: !gen}, "")
		prefill, decode, _ := s.legs(t, long())
		_, last, err := s.p.run(t, prefill)
		if err != nil || !bytes.Contains(last.Handoff, []byte("9007199254740993")) || !bytes.Contains(last.Handoff, []byte(`"remote_port":`+portOf(t, s.p.http.URL)+`,`)) {
			t.Fatalf("%s, %v", last.Handoff, err)
		}
		decode.Disagg.Handoff = last.Handoff
		if _, _, err := s.d.run(t, decode); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(s.d.server.Bodies()[0], last.Handoff); n == 0 {
			t.Errorf("%s does not have %s", s.d.server.Bodies()[0], last.Handoff)
		}
	}
}

// Both legs get the prompt and the schema as they are: one that is written anew, with
// its members in another order, would be another prompt.
func TestQuirk25LegsGetTheSameBytes(t *testing.T) {
	s := newPair(t, fake.Config{}, "")
	r := long()
	schema := `{"type": "object",  "properties": {"z": {"type":"string"}, "a": {"const": 9007199254740993}}}`
	r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(schema)}
	prefill, decode, _ := s.legs(t, r)
	// The fake makes no JSON, and refuses; what it was sent is what counts.
	s.p.run(t, prefill) //nolint:errcheck // see above
	s.d.run(t, decode)  //nolint:errcheck // see above
	ids := httpapi.AppendIDs(nil, r.TokenIDs)
	for _, leg := range []*served{s.p, s.d} {
		if body := leg.server.Bodies()[0]; !bytes.Contains(body, []byte(schema)) || !bytes.Contains(body, ids) {
			t.Errorf("%s", body)
		}
	}
}

// Who leaves a decode leg whose blocks are on their way is gone at once; its engine
// hears of it when they have come, and lives.
func TestQuirk24AbortWaitsForRemoteBlocks(t *testing.T) {
	for _, gen := range []bool{true, false} {
		s := newPair(t, fake.Config{NoGenerate: !gen, TokensOnly: true, Transfer: fake.Transfer{Fragile: true}}, "")
		prefill, decode, _ := s.legs(t, long())
		decode.Stop.MaxTokens = 4000
		_, last, err := s.p.run(t, prefill)
		if err != nil {
			t.Fatal(err)
		}
		decode.Disagg.Handoff = last.Handoff
		release := s.p.server.HoldReads()
		ctx, cancel := context.WithCancelCause(t.Context())
		var left time.Time
		go func() {
			s.d.awaitBodies(t, 1)
			left = time.Now()
			cancel(engine.ErrClientGone)
		}()
		for _, e := range s.d.Generate(ctx, decode) {
			err = e
		}
		if engine.KindOf(err) != engine.Cancelled {
			t.Errorf("%v", err)
		}
		if late := time.Since(left); late > 5*time.Second {
			t.Errorf("the client waited %s", late)
		}
		for range 4 {
			s.d.ready(t) // a look each time: an abort would have come, and killed it
		}
		if n := len(s.d.server.Aborted()); n != 0 {
			t.Errorf("%d aborts while the blocks are on their way", n)
		}
		release()
		s.d.awaitAbort(t, decode.ID)
		if s.d.server.Pulls() != 1 || s.p.server.Held() != 0 {
			t.Errorf("%d pulls, %d held", s.d.server.Pulls(), s.p.server.Held())
		}
		if st := s.d.await(t, engine.Ready); st.State != engine.Ready {
			t.Errorf("the engine is %s", st.State)
		}
	}
}

// An engine that is closed waits for no blocks.
func TestCloseWhileBlocksAreOnTheirWay(t *testing.T) {
	s := newPair(t, fake.Config{}, "")
	prefill, decode, _ := s.legs(t, long())
	_, last, err := s.p.run(t, prefill)
	if err != nil {
		t.Fatal(err)
	}
	decode.Disagg.Handoff = last.Handoff
	defer s.p.server.HoldReads()()
	go func() {
		s.d.awaitBodies(t, 1)
		s.d.Engine.Close()
	}()
	for _, e := range s.d.Generate(t.Context(), decode) {
		err = e
	}
	if engine.KindOf(err) != engine.EngineShutdown {
		t.Errorf("%v, want engine_shutdown", err)
	}
}

// awaitBodies waits until so many requests have come to the server.
func (s *served) awaitBodies(t *testing.T, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range s.Load(ctx) {
		if len(s.server.Bodies()) >= n {
			return
		}
	}
	t.Errorf("fewer than %d requests came", n)
}

func (s *served) awaitAbort(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range s.Load(ctx) {
		if slices.Contains(s.server.Aborted(), id) {
			return
		}
	}
	t.Errorf("the server was never told to give %s up", id)
}

package vllm_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	"github.com/dynago/dynago/internal/fake/hostile"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// spoilt is an engine whose server's streams are spoilt as the test says.
type spoilt struct {
	*served
	spoil atomic.Pointer[hostile.Spoil]
	want  []uint32 // the answer to long, unspoilt
}

func serveSpoilt(t *testing.T, c fake.Config) *spoilt {
	t.Helper()
	c.Mock = mock.Config{Args: args(), Model: "m", EOS: []uint32{eos}, Source: mock.SourceRandom, ContextLength: 8192}
	server, err := fake.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &spoilt{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.spoil.Load().Handler(server).ServeHTTP(w, r)
	}))
	s.spoil.Store(&hostile.Spoil{})
	e, err := vllm.New(vllm.Config{URL: h.URL, Every: 10 * time.Millisecond, EOS: []uint32{eos}})
	if err != nil {
		t.Fatal(err)
	}
	s.served = &served{e, server, h}
	t.Cleanup(func() { s.Close() })
	s.ready(t)
	s.want = s.fine(t)
	return s
}

// fine runs a request that nothing spoils, which works whatever was before.
func (s *spoilt) fine(t *testing.T) []uint32 {
	t.Helper()
	s.spoil.Store(&hostile.Spoil{})
	ids, last, err := s.run(t, long())
	if err != nil || last.Finish == engine.Running || s.want != nil && !slices.Equal(ids, s.want) {
		t.Errorf("unspoilt: %v, %+v, %v", ids, last, err)
	}
	return ids
}

var routes = map[string]fake.Config{"generate": {}, "completions": {NoGenerate: true}}

// What means nothing changes nothing.
func TestHarmlessStreams(t *testing.T) {
	for route, c := range routes {
		s := serveSpoilt(t, c)
		for name, spoil := range hostile.Harmless() {
			s.spoil.Store(&spoil)
			ids, last, err := s.run(t, long())
			if err != nil || !slices.Equal(ids, s.want) || last.Finish != engine.FinishLength || last.Usage.Output != len(ids) {
				t.Errorf("%s, %s: %v, %+v, %v; want %v", route, name, ids, last, err, s.want)
			}
		}
	}
}

// Wherever a stream breaks off or ends too early, what came is the beginning of the
// answer, and the error says that somebody else may carry on; only what is lost
// behind the finish reason is not missed.
func TestBrokenStreams(t *testing.T) {
	for route, c := range routes {
		s := serveSpoilt(t, c)
		whole := false
		for at := 1; at < 1<<14 && !whole; at += 13 {
			for name, spoil := range map[string]hostile.Spoil{"cut": {Cut: at}, "short": {Short: at}} {
				s.spoil.Store(&spoil)
				ids, last, err := s.run(t, long())
				kind := engine.KindOf(err)
				switch {
				case len(ids) > len(s.want) || !slices.Equal(ids, s.want[:len(ids)]):
					t.Fatalf("%s, %s at %d: %v is no beginning of %v", route, name, at, ids, s.want)
				case err == nil && (len(ids) != len(s.want) || last.Finish != engine.FinishLength):
					t.Fatalf("%s, %s at %d: %v, %+v counts as whole", route, name, at, ids, last)
				case err != nil && kind.Retry() != engine.RetryMigrate:
					t.Fatalf("%s, %s at %d: %v", route, name, at, err)
				}
				whole = err == nil && name == "cut"
			}
		}
		if !whole {
			t.Errorf("%s: the stream never ended", route)
		}
		s.fine(t)
		s.awaitIdle(t)
	}
}

// A server that goes on saying nothing is left when the context says so, and hears
// of it.
func TestSilentStreams(t *testing.T) {
	for name, spoil := range map[string]hostile.Spoil{"stalls at once": {Stall: 1}, "stalls later": {Stall: 300}, "drips": {Drip: true}} {
		s := serveSpoilt(t, fake.Config{})
		s.spoil.Store(&spoil)
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := time.AfterFunc(50*time.Millisecond, func() { cancel(engine.ErrInactive) })
		var err error
		n := 0
		for d, e := range s.Generate(ctx, long()) {
			n += len(d.TokenIDs)
			err = e
		}
		stop.Stop()
		if engine.KindOf(err) != engine.ResponseTimeout || n >= len(s.want) {
			t.Errorf("%s: %v after %d ids", name, err, n)
		}
		s.awaitIdle(t)
		s.fine(t)
	}
}

// What is no stream of answers is a failure of the engine, and of this request alone.
func TestNoStreams(t *testing.T) {
	s := serveSpoilt(t, fake.Config{})
	for name, tt := range map[string]struct {
		hostile.Spoil
		kind engine.ErrorKind
	}{
		"a page":       {hostile.Spoil{Page: true}, engine.Internal},
		"another type": {hostile.Spoil{Type: "text/plain"}, engine.Internal},
		"no JSON":      {hostile.Spoil{Broken: true}, engine.Internal},
		"status 500":   {hostile.Spoil{Status: 500}, engine.Internal},
		"status 502":   {hostile.Spoil{Status: 502}, engine.Unavailable},
		"status 503":   {hostile.Spoil{Status: 503}, engine.Unavailable},
		"status 429":   {hostile.Spoil{Status: 429}, engine.WorkerOverloaded},
	} {
		s.spoil.Store(&tt.Spoil)
		if ids, _, err := s.run(t, long()); engine.KindOf(err) != tt.kind {
			t.Errorf("%s: %v after %v, want %s", name, err, ids, tt.kind)
		}
		s.fine(t)
	}
	s.awaitIdle(t)
	if st := s.await(t, engine.Ready); st.State != engine.Ready {
		t.Errorf("the engine is %s after all that", st.State)
	}
}

// A server that fails at every question is asked one question at a time, once in a
// while, and is there again when it answers.
func TestFailingServerIsNotStormed(t *testing.T) {
	var failing atomic.Bool
	var asked atomic.Int64
	var s *served
	fails := func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			asked.Add(1)
			refuses(500, `{"error":{"message":"oh"}}`)(w, r)
			return
		}
		s.server.ServeHTTP(w, r)
	}
	s = attach(t, fake.Config{}, map[string]http.HandlerFunc{"/health": fails, "/v1/models": fails, "/metrics": fails, "/version": fails, "/inference/v1/generate": fails})
	first := s.await(t, engine.Ready)
	failing.Store(true)
	s.await(t, engine.Failed)
	asked.Store(0)
	looks := 0
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range s.Load(ctx) { // five looks of its own, and as many questions
		if looks++; looks == 5 {
			break
		}
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("%d questions in %d looks", n, looks)
	}
	if _, _, err := s.run(t, ask()); engine.KindOf(err) != engine.Unavailable || asked.Load() != 5 {
		t.Errorf("a request: %v, and the server was asked %d times", err, asked.Load())
	}
	failing.Store(false)
	if st := s.await(t, engine.Ready); st.Epoch != first.Epoch {
		t.Error("a process that failed for a while, and says that it is the same, leads another life")
	}
	if _, _, err := s.run(t, ask()); err != nil {
		t.Errorf("once it works again: %v", err)
	}
}

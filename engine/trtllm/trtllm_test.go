package trtllm_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

// attached is an adapter with the server that it talks to, both of which end
// together.
type attached struct {
	*trtllm.Engine
	server *fake.Server
	http   *httptest.Server
	mock   *mock.Engine
}

func (a *attached) Close() error {
	err := a.Engine.Close()
	a.http.CloseClientConnections()
	a.http.Close()
	a.server.Close()
	return errors.Join(err, a.mock.Close())
}

// attach starts a server and an adapter for it.
func attach(t testing.TB, server fake.Config, config trtllm.Config, change ...func(*mock.Args)) *attached {
	t.Helper()
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.SpeedupRatio = 32, 2048, 0
	for _, f := range change {
		f(&args)
	}
	m, err := mock.New(mock.Config{Model: "m", Args: args})
	if err != nil {
		t.Fatal(err)
	}
	server.Model, server.Engine = "m", m
	s := fake.New(server)
	h := httptest.NewServer(s)
	config.URL, config.LoadEvery = h.URL, 5*time.Millisecond
	if config.ContextLength == 0 {
		config.ContextLength = 4096
	}
	e, err := trtllm.New(config)
	if err != nil {
		t.Fatal(err)
	}
	a := &attached{e, s, h, m}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// config is how the server is reached.
func (a *attached) config() httpapi.Config { return httpapi.Config{URL: a.http.URL} }

// ready returns the card once the server is ready.
func (a *attached) ready(t testing.TB) *engine.Card {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for s, err := range a.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if s.State == engine.Ready {
			return s.Card
		}
	}
	t.Fatal("not ready within 5 s")
	return nil
}

// collect reads an answer to its end.
func collect(ctx context.Context, e engine.Engine, r *engine.Request) (ids []uint32, last engine.Delta, err error) {
	for d, err := range e.Generate(ctx, r) {
		if err != nil {
			return ids, last, err
		}
		ids, last = append(ids, d.TokenIDs...), d
	}
	return ids, last, nil
}

func slow(a *mock.Args) {
	a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS, a.MaxNumSeqs = 1, "constant", 3, 3, 1
}

// The contract holds with events and without: each is told once, and whoever reads
// them from the beginning of a server's life knows all.
func TestContract(t *testing.T) {
	for name, c := range map[string]struct {
		server fake.Config
		config trtllm.Config
		skips  []string
	}{
		"alone":  {fake.Config{}, trtllm.Config{}, []string{"07-prompt-logprobs", "11-cached-tokens", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart"}},
		"events": {fake.Config{EventBuffer: 32768}, trtllm.Config{Events: true}, []string{"07-prompt-logprobs", "25-namespaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, enginetest.Subject{
				New:     func(t *testing.T) engine.Engine { return attach(t, c.server, c.config) },
				Slow:    func(t *testing.T) engine.Engine { return attach(t, c.server, c.config, slow) },
				Restart: func(e engine.Engine) { e.(*attached).server.Restart() },
				Drain:   func(e engine.Engine) { e.(*attached).mock.Drain() },
				Lose:    func(e engine.Engine, on bool) { e.(*attached).server.LoseEvents(on) },
				Skips:   c.skips,
			})
		})
	}
}

// stub is an adapter for a server that answers completions as told.
func stub(t testing.TB, answer http.HandlerFunc) *trtllm.Engine {
	t.Helper()
	h := httptest.NewServer(answer)
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
)

func TestModels(t *testing.T) {
	other := func(c *engine.Card) { c.Model, c.Aliases, c.BlockSize = "a/model", []string{"also"}, 0 }
	h := newHouse(t, pipeline.Config{},
		&fake{change: func(c *engine.Card) { c.MaxSeqs = 7 }}, &fake{change: func(c *engine.Card) { c.Aliases = []string{"more"} }},
		&fake{change: other}, &fake{change: other})
	h.fleet.Drain(3)
	h.fleet.Drain(4)
	got := h.Models()
	if len(got) != 2 || got[0].ID != "a/model" || got[1].ID != "test/model" {
		t.Fatalf("models %+v", got)
	}
	if m := got[0]; m.Ready || m.Workers != 0 || m.Reason == "" || m.BlockSize != 0 {
		t.Errorf("a model whose workers drain: %+v", m)
	}
	m := got[1]
	if !m.Ready || m.Workers != 2 || m.Reason != "" || m.BlockSize != 16 || m.MaxSeqs != 7 || m.ContextLength != 4096 || !slices.Equal(m.Aliases, []string{"alias", "more"}) {
		t.Errorf("a model with two workers: %+v", m)
	}
}

// Models that share what was loaded share its caches, which are told once.
func TestSharedCachesAreToldOnce(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, &fake{}, &fake{change: func(c *engine.Card) { c.Model, c.Aliases = "a/model", nil }})
	ask := func() *prompt.CacheStats {
		for _, name := range []string{"test/model", "a/model"} {
			r := request("Hello").Chat
			r.Model = name
			if _, _, err := h.Tokenize(r, true); err != nil {
				t.Fatal(err)
			}
		}
		return h.Models()[0].Cache
	}
	before := ask() // other tests use the same files
	if after := ask(); before == nil || after.Misses+after.Hits != before.Misses+before.Hits+2 {
		t.Errorf("the first of two models had %+v, and has %+v after two prompts", before, after)
	}
	models := h.Models()
	if first := models[0]; first.Turns == nil || first.Tools == nil {
		t.Errorf("the first of two models: %+v", first)
	}
	if second := models[1]; second.Cache != nil || second.Turns != nil || second.Tools != nil {
		t.Errorf("the other tells what the first has told: %+v", second)
	}
}

// What the edge tells of workers is what the router has booked, and how long
// the last stream took.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{generate: gaps([]time.Duration{2 * time.Second, time.Second, time.Second, time.Second})}
		h := newHouse(t, pipeline.Config{}, f, &fake{})
		r := request("Hello")
		items := 0
		for e, err := range h.Run(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind != chat.TextDelta {
				continue
			}
			if items++; items == 1 {
				w := h.Workers()[0].Ranks[0]
				if w.Requests != 1 || w.PrefillTokens != 0 || w.DecodeBlocks < r.Notes.PromptTokens/16 {
					t.Errorf("behind the first token: %+v", w)
				}
			}
		}
		workers := h.Workers()
		if len(workers) != 2 || workers[0].Name != "w0" || workers[0].Model != "test/model" || workers[0].State != "ready" {
			t.Fatalf("workers %+v", workers)
		}
		want := pipeline.RankInfo{LastTTFT: 2, LastITL: 1, LastInputTokens: r.Notes.PromptTokens}
		if got := workers[0].Ranks[0]; got.LastTTFT != want.LastTTFT || got.LastITL != want.LastITL || got.LastInputTokens != want.LastInputTokens || got.Requests != 0 {
			t.Errorf("seen last %+v, want %+v", got, want)
		}
		if got := workers[1].Ranks[0]; got != (pipeline.RankInfo{}) {
			t.Errorf("a worker that did nothing: %+v", got)
		}
	})
}

// A model is ready once somebody can answer, and has whom it needs beside it.
func TestRolesOfModel(t *testing.T) {
	role := func(r engine.Role, needs ...engine.Role) engine.Engine {
		return &fake{change: func(c *engine.Card) { c.Role, c.Needs = r, needs }}
	}
	for _, tt := range []struct {
		name    string
		fakes   []engine.Engine
		ready   bool
		missing []engine.Role
		reason  string
	}{
		{"whole requests", []engine.Engine{role(engine.Aggregated)}, true, nil, ""},
		{"prefill alone", []engine.Engine{role(engine.Prefill)}, false, []engine.Role{engine.Decode}, "missing worker types: decode"},
		{"decode that needs prefill", []engine.Engine{role(engine.Decode, engine.Prefill)}, false, []engine.Role{engine.Prefill}, "missing worker types: prefill"},
		{"both", []engine.Engine{role(engine.Decode, engine.Prefill), role(engine.Prefill)}, true, nil, ""},
		{"decode that needs nobody", []engine.Engine{role(engine.Decode)}, true, nil, ""},
	} {
		m := newHouse(t, pipeline.Config{}, tt.fakes...).Models()[0]
		if m.Ready != tt.ready || !slices.Equal(m.Missing, tt.missing) || m.Reason != tt.reason || m.Workers != len(tt.fakes) {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
}

// The blocks of an answer are booked while it grows.
func TestOutputIsBooked(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	most := 0
	f.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		for range 4 {
			yield(engine.Delta{TokenIDs: slices.Repeat([]uint32{'a'}, 16)}, nil)
		}
		most = h.router.Loads()[0].ActiveBlocks
		yield(engine.Delta{Finish: engine.FinishLength, Usage: &engine.Usage{Output: 64}}, nil)
	}
	r := request("Hello")
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	if want := r.Notes.PromptTokens/16 + 4; most < want {
		t.Errorf("%d blocks booked behind 64 tokens, want %d", most, want)
	}
	h.released(t)
}

// A worker that fails is left alone for a while; one that refuses, or whose
// client has gone, is not.
func TestFailuresInhibit(t *testing.T) {
	for _, tc := range []struct {
		kind  engine.ErrorKind
		gone  bool // the client
		state string
	}{
		{engine.Disconnected, false, "inhibited"},
		{engine.CannotConnect, false, "inhibited"},
		{engine.InvalidArgument, false, "ready"},
		{engine.Internal, false, "ready"},
		{engine.Disconnected, true, "ready"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := &fake{generate: func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			if tc.gone {
				cancel(engine.ErrClientGone)
			}
			yield(engine.Delta{}, engine.Errorf(tc.kind, "injected"))
		}}
		h := newHouse(t, pipeline.Config{}, f)
		if _, err := chat.Fold(h.Run(ctx, request("Hello"))); err == nil {
			t.Errorf("%+v: no error", tc)
		}
		if got := h.Workers()[0].State; got != tc.state {
			t.Errorf("%+v: the worker is %s", tc, got)
		}
		cancel(nil)
	}
}

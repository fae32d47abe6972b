package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// fake is an engine whose answers a test writes. It remembers what it was sent.
type fake struct {
	generate func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool)
	features engine.Features
	change   func(*engine.Card) // of the usual card

	mu       sync.Mutex
	requests []*engine.Request
	running  int
}

func (f *fake) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		card := &engine.Card{
			Model: "test/model", Aliases: []string{"alias"}, Engine: "fake 1", Accepts: []engine.Input{engine.InputTokens},
			ContextLength: 4096, BlockSize: 16, HashScheme: engine.SchemeXXH3, TotalBlocks: 1000, DPSize: 1, Features: f.features,
		}
		if f.change != nil {
			f.change(card)
		}
		if yield(engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: card}, nil) {
			<-ctx.Done()
		}
	}
}

func (f *fake) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		f.mu.Lock()
		f.requests = append(f.requests, r)
		f.running++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.running--
			f.mu.Unlock()
		}()
		f.generate(ctx, r, yield)
	}
}

func (f *fake) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) { <-ctx.Done() }
}

func (f *fake) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}

func (f *fake) sent() []*engine.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// active returns how many generations run now.
func (f *fake) active() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// demoModel is the built-in model, loaded once.
var demoModel = sync.OnceValues(func() (*prompt.Model, error) {
	return prompt.Load(demo.File, prompt.Parsers{})
})

// house is a pipeline over fakes.
type house struct {
	*pipeline.Pipeline
	fleet  *fleet.Fleet
	router *router.Router
	model  *prompt.Model
}

func newHouse(t testing.TB, c pipeline.Config, engines ...engine.Engine) *house {
	t.Helper()
	tuning := router.DefaultTuning()
	tuning.TrackOutputBlocks = true
	// Round robin makes the order of attempts plain.
	return newHouseOf(t, c, router.Config{Mode: router.RoundRobin, Tuning: &tuning, StrictSessions: c.StrictSessions}, engines...)
}

// check is the test of one draw of rapid's: what is made for the draw ends with it,
// and not only with the test of all draws.
type check struct {
	testing.TB
	draw *rapid.T
}

func (c check) Cleanup(f func()) { c.draw.Cleanup(f) }

func newHouseOf(t testing.TB, c pipeline.Config, routing router.Config, engines ...engine.Engine) *house {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	return newHouseWith(t, model, c, routing, engines...)
}

// templated is the built-in model with another chat template, and parsers.
func templated(t testing.TB, template string, p prompt.Parsers) *prompt.Model {
	t.Helper()
	model, err := prompt.Load(func(name string) ([]byte, error) {
		if name == "chat_template.jinja" {
			return []byte(template), nil
		}
		return demo.File(name)
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func newHouseWith(t testing.TB, model *prompt.Model, c pipeline.Config, routing router.Config, engines ...engine.Engine) *house {
	t.Helper()
	h := &house{fleet: fleet.New(fleet.Config{}), model: model}
	var err error
	if h.router, err = router.New(routing, h.fleet); err != nil {
		t.Fatal(err)
	}
	c.Fleet, c.Router = h.fleet, h.router
	c.Load = func(*engine.Card) (*prompt.Model, error) { return model, nil }
	h.Pipeline = pipeline.New(c)
	for i, e := range engines {
		if _, err := h.fleet.Add(fleet.Entry{Name: fmt.Sprintf("w%d", i), Engine: e, ID: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		changed := h.fleet.Changed()
		ready := 0
		for _, w := range h.fleet.Snapshot() {
			if w.Ready() {
				ready++
			}
		}
		if ready == len(engines) {
			break
		}
		<-changed
	}
	t.Cleanup(func() {
		if err := h.fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// released fails the test if a booking is still held.
func (h *house) released(t testing.TB) {
	t.Helper()
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("booked after the end: %+v", l)
		}
	}
}

func (h *house) ids(text string) []uint32 { return h.model.Tokenizer.Append(nil, text) }

// say yields the ids of text in deltas of n tokens, then the end. A later
// attempt of the same request carries on where its prompt ends, as a model
// would.
func (h *house) say(text string, n int, finish engine.Finish) func(context.Context, *engine.Request, func(engine.Delta, error) bool) {
	ids := h.ids(text)
	var prompts sync.Map // by request, how long its prompt was at first
	return func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		first, _ := prompts.LoadOrStore(r.ID[:strings.LastIndex(r.ID, "-")], len(r.TokenIDs))
		rest := ids[len(r.TokenIDs)-first.(int):]
		usage := &engine.Usage{Prompt: len(r.TokenIDs), Cached: new(int), Output: len(rest)}
		for len(rest) > n {
			if !yield(engine.Delta{TokenIDs: rest[:n]}, nil) {
				return
			}
			rest = rest[n:]
		}
		yield(engine.Delta{TokenIDs: rest, Finish: finish, Usage: usage}, nil)
	}
}

func request(text string) *pipeline.Request {
	return &pipeline.Request{ID: "00000000-0000-4000-8000-000000000000", Chat: &chat.Request{
		API: chat.APIChat, Model: "test/model",
		Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}}},
	}}
}

// texts returns the text of each answer's blocks.
func texts(answers []chat.Answer) (list []string) {
	for _, a := range answers {
		s := ""
		for _, b := range a.Blocks {
			s += b.Text
		}
		list = append(list, s)
	}
	return list
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

package router_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// fake is an engine that serves at once, and tells the KV events that a test
// hands it.
type fake struct {
	statuses chan engine.Status
	events   chan kv.Batch
	loads    chan engine.Load
}

func (f *fake) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return tell(ctx, f.statuses)
}

func (f *fake) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return tell(ctx, f.events)
}

func (f *fake) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return tell(ctx, f.loads)
}

func (f *fake) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "not here"))
	}
}

func tell[T any](ctx context.Context, from <-chan T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case v := <-from:
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// house is a fleet, its router, and the engines by worker id.
type house struct {
	t       testing.TB
	fleet   *fleet.Fleet
	router  *router.Router
	engines map[uint64]*fake
}

func newHouse(t testing.TB, c router.Config) *house {
	t.Helper()
	f := fleet.New(fleet.Config{})
	r, err := router.New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	return &house{t: t, fleet: f, router: r, engines: map[uint64]*fake{}}
}

// card is that of a worker with blocks of four tokens.
func card(change ...func(*engine.Card)) engine.Status {
	c := &engine.Card{
		Model: "m", Aliases: []string{"alias"}, ContextLength: 4096, BlockSize: 4, DPSize: 1,
		HashScheme: engine.SchemeXXH3, Features: engine.Features{engine.FeatureEvents},
	}
	for _, f := range change {
		f(c)
	}
	return engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: c}
}

// join adds a worker and waits until it has told its status.
func (h *house) join(id uint64, s engine.Status) *fleet.Worker {
	h.t.Helper()
	e := &fake{statuses: make(chan engine.Status), events: make(chan kv.Batch), loads: make(chan engine.Load)}
	w, err := h.fleet.Add(fleet.Entry{Name: "worker-" + string(rune('a'+id)), Engine: e, ID: id})
	if err != nil {
		h.t.Fatal(err)
	}
	h.engines[id] = e
	h.become(id, s)
	return w
}

// become makes a worker tell a status, and waits until it is known.
func (h *house) become(id uint64, s engine.Status) {
	h.t.Helper()
	h.engines[id].statuses <- s
	h.until(func() bool {
		got := h.fleet.Worker(id).Status()
		return got.State == s.State && got.Epoch == s.Epoch && got.Card == s.Card
	})
}

// until waits for a change of the fleet after which ok holds.
func (h *house) until(ok func() bool) {
	h.t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		changed := h.fleet.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			h.t.Fatal("the fleet has not changed as it should")
		}
	}
}

// caches makes a worker tell that it has stored the blocks of a prompt, and
// waits until the router has heard.
func (h *house) caches(id, n uint64, tier kv.Tier, prompt []uint32) {
	h.t.Helper()
	local := kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed)
	e := kv.Event{Tier: tier}
	for i, seq := range kv.AppendSeqHashes(nil, local) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	h.engines[id].events <- kv.Batch{Epoch: 1, First: n, Last: n, Events: []kv.Event{e}}
	h.engines[id].events <- kv.Batch{Epoch: 1, Last: n} // taken only when the one before is done
}

func (h *house) route(q router.Query) *router.Booking {
	h.t.Helper()
	b, err := h.router.Route(context.Background(), &q)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// count returns the tokens from, from+1, … of a prompt of n.
func count(from uint32, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = from + uint32(i)
	}
	return p
}

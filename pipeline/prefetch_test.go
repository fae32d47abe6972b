package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
)

// bearer is an engine that can be told about its cache, and remembers what.
type bearer struct {
	*fake
	asked     []engine.PrefetchRequest
	cancelled []string
	retained  []engine.RetentionUpdate
	resets    int
}

func (k *bearer) Prefetch(_ context.Context, q engine.PrefetchRequest) (engine.PrefetchState, error) {
	k.asked = append(k.asked, q)
	return engine.PrefetchState{ID: fmt.Sprint(len(q.TokenIDs), q.TokenIDs[:min(2, len(q.TokenIDs))]), State: "running", Requested: len(q.TokenIDs) / 16}, nil
}

func (k *bearer) PrefetchState(_ context.Context, id string) (engine.PrefetchState, error) {
	if slices.Contains(k.cancelled, id) {
		return engine.PrefetchState{ID: id, State: "cancelled"}, nil
	}
	return engine.PrefetchState{ID: id, State: "running", Loaded: 1}, nil
}

func (k *bearer) CancelPrefetch(_ context.Context, id string) error {
	k.cancelled = append(k.cancelled, id)
	return nil
}

func (k *bearer) Pin(context.Context, engine.PinRequest) (engine.PinResult, error) {
	return engine.PinResult{}, nil
}

func (k *bearer) Retain(_ context.Context, u engine.RetentionUpdate) (int, error) {
	k.retained = append(k.retained, u)
	return len(u.Hashes), nil
}

func (k *bearer) Control(_ context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	if name == engine.ControlReset {
		k.resets++
	}
	return json.RawMessage(`"done"`), nil
}

func newBearer() *bearer {
	return &bearer{fake: &fake{features: engine.Features{engine.FeaturePrefetch, engine.FeaturePins}, change: func(c *engine.Card) { c.Controls = []string{engine.ControlReset} }}}
}

// A prefetch goes to a worker that can, with the ids that the request will have, and
// belongs to the tenant who has begun it.
func TestPrefetch(t *testing.T) {
	k := newBearer()
	h := newHouse(t, pipeline.Config{}, &fake{}, k)
	k.generate = h.say("So it is.<|im_end|>", 3, engine.FinishEOS)
	r := request(seaside)
	q := &pipeline.PrefetchRequest{Chat: r.Chat, Namespace: kv.Namespace{Salt: "blue"}, Session: "s", Target: kv.TierHost, In: time.Second, Tenant: "blue"}
	for range 3 { // wherever the router would send it
		p, err := h.Prefetch(t.Context(), q)
		if err != nil || p.Worker != 2 || p.State != "running" {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	ids, _, err := h.Tokenize(r.Chat, true)
	if err != nil {
		t.Fatal(err)
	}
	got := k.asked[0]
	if !slices.Equal(got.TokenIDs, ids) || got.Namespace.Salt != "blue" || got.Target != kv.TierHost || got.In != time.Second || got.Rank != nil {
		t.Errorf("asked %+v", got)
	}
	again, err := h.Prefetch(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Tenant = "red"
	theirs, err := h.Prefetch(t.Context(), q)
	if err != nil || theirs.ID == again.ID {
		t.Errorf("two tenants have one prefetch %q, %v", theirs.ID, err)
	}
	if p, err := h.PrefetchState(t.Context(), "blue", again.ID); err != nil || p.Loaded != 1 || p.ID != again.ID {
		t.Errorf("%+v, %v", p, err)
	}
	for _, ask := range []func(context.Context, string, string) (pipeline.Prefetch, error){h.PrefetchState, h.CancelPrefetch} {
		if _, err := ask(t.Context(), "red", again.ID); engine.KindOf(err) != engine.NotFound {
			t.Errorf("another tenant gets %v", err)
		}
	}
	if p, err := h.CancelPrefetch(t.Context(), "blue", again.ID); err != nil || p.State != "cancelled" {
		t.Errorf("%+v, %v", p, err)
	}
	q.Chat, q.Hashes = &chat.Request{Model: "test/model"}, []kv.SeqHash{1, 2}
	if _, err := h.Prefetch(t.Context(), q); err != nil || !slices.Equal(k.asked[len(k.asked)-1].Hashes, q.Hashes) {
		t.Errorf("by hashes: %v, %+v", err, k.asked)
	}
	q.Worker = 1
	if _, err := h.Prefetch(t.Context(), q); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("at a worker that cannot: %v", err)
	}
	if c := h.Prefetches(); c != (pipeline.PrefetchCounts{Begun: 6, Refused: 1, Cancelled: 1}) {
		t.Errorf("counted %+v", c)
	}
}

// However many prefetches a tenant begins, those of others can be asked about.
func TestManyPrefetchesOfOneTenant(t *testing.T) {
	k := newBearer()
	h := newHouse(t, pipeline.Config{}, k)
	ask := func(tenant string, n uint32) string {
		t.Helper()
		ids := []uint32{n / 100, n % 100} // by which the engine names it
		p, err := h.Prefetch(t.Context(), &pipeline.PrefetchRequest{
			Chat: &chat.Request{API: chat.APICompletions, Model: "test/model", Prompt: &chat.Prompt{IDs: ids}}, Tenant: tenant,
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	own, first := ask("quiet", 0), ask("loud", 1)
	last := ""
	for n := range uint32(pipeline.MostPrefetches) {
		last = ask("loud", 2+n)
	}
	if _, err := h.PrefetchState(t.Context(), "quiet", own); err != nil {
		t.Errorf("of the quiet one: %v", err)
	}
	if _, err := h.PrefetchState(t.Context(), "loud", last); err != nil {
		t.Errorf("the last of the loud one: %v", err)
	}
	if p, err := h.PrefetchState(t.Context(), "loud", first); engine.KindOf(err) != engine.NotFound {
		t.Errorf("the first of the loud one: %+v, %v", p, err)
	}
}

// What operators want of caches is done at all workers of a model, and those that
// cannot are told of.
func TestUpkeep(t *testing.T) {
	k := newBearer()
	h := newHouse(t, pipeline.Config{}, k, &fake{})
	all := h.Flush(t.Context(), "alias")
	if len(all) != 2 || all[0].Worker != 1 || all[0].Err != nil || string(all[0].Answer) != `"done"` || engine.KindOf(all[1].Err) != engine.Unsupported || k.resets != 1 {
		t.Errorf("%+v, and %d resets", all, k.resets)
	}
	all = h.Retain(t.Context(), "", engine.RetentionUpdate{Hashes: []kv.SeqHash{1, 2}, Priority: 80})
	if len(all) != 2 || all[0].Updated != 2 || all[0].Err != nil || engine.KindOf(all[1].Err) != engine.Unsupported || k.retained[0].Priority != 80 {
		t.Errorf("%+v", all)
	}
	if all := h.Flush(t.Context(), "none"); len(all) != 0 || k.resets != 1 {
		t.Errorf("of a model that is not there: %+v", all)
	}
}

// Who says when the next request comes is counted, by whether a worker can make use of
// it.
func TestNextRequestHints(t *testing.T) {
	for _, able := range []bool{true, false} {
		e := &fake{}
		if able {
			e.features = engine.Features{engine.FeaturePrefetch}
		}
		h := newHouse(t, pipeline.Config{}, e)
		e.generate = h.say("Yes.", 1, engine.FinishEOS)
		for _, in := range []time.Duration{0, time.Second, time.Minute} {
			r := asks(nil)
			r.KV.NextIn, r.Chat.Sampling.N = in, 2
			run(t, h, r)
		}
		want := pipeline.PrefetchCounts{Hinted: 2}
		if !able {
			want = pipeline.PrefetchCounts{Unheard: 2}
		}
		if got := h.Prefetches(); got != want {
			t.Errorf("able %v: %+v, want %+v", able, got, want)
		}
	}
}

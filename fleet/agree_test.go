package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
)

// crowd is workers that a test tells of.
type crowd struct {
	fleet *fleet.Fleet
	of    map[uint64]*fleet.Reporter
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{fleet.New(fleet.Config{}), map[uint64]*fleet.Reporter{}}
	t.Cleanup(func() { c.fleet.Close() })
	return c
}

// tell makes a worker be in a state, with a model whose tokenizer and further names
// are told.
func (c *crowd) tell(id uint64, state engine.State, model, tokenizer string, aliases ...string) {
	r := c.of[id]
	if r == nil {
		var err error
		if r, err = c.fleet.Report(fleet.Entry{Name: fmt.Sprintf("http://%d", id), ID: id}); err != nil {
			panic(err)
		}
		c.of[id] = r
	}
	r.Status(engine.Status{Epoch: 1, State: state, Card: &engine.Card{
		Model: model, Aliases: aliases, ContextLength: 9, Accepts: []engine.Input{engine.InputTokens},
		Files: []engine.File{{Kind: "tokenizer", SHA256: tokenizer}},
	}})
}

// serving returns the workers that take requests.
func (c *crowd) serving() (ids []uint64) {
	for _, w := range c.fleet.Snapshot() {
		if w.Ready() {
			ids = append(ids, w.ID())
		}
	}
	return ids
}

func (c *crowd) expect(t *testing.T, what string, want ...uint64) {
	t.Helper()
	if got := c.serving(); !slices.Equal(got, want) {
		t.Errorf("%s: %v serve, want %v", what, got, want)
	}
}

// Those who serve go on; who does not agree with them waits until they are gone.
func TestTwoCardsOfOneModel(t *testing.T) {
	c := newCrowd(t)
	c.tell(1, engine.Ready, "m", "aaaa")
	c.tell(2, engine.Ready, "m", "bbbb")
	c.tell(3, engine.Ready, "m", "cccc")
	c.tell(4, engine.Ready, "m", "cccc")
	c.tell(5, engine.Ready, "m", "") // nothing is known against it
	c.tell(6, engine.Ready, "other", "bbbb")
	c.expect(t, "the first one", 1, 5, 6)
	w := c.fleet.Worker(2)
	refusal := w.Refusal()
	if refusal == nil || refusal.Field != "tokenizer" || w.State() != "refused" || w.Status().State != engine.Failed {
		t.Fatalf("%+v %s %v", refusal, w.State(), w.Status())
	}
	for _, want := range []string{"http://1", "model m", "bbbb here", "aaaa there"} {
		if !strings.Contains(w.Status().Reason, want) {
			t.Errorf("no %q in %q", want, w.Status().Reason)
		}
	}
	c.tell(1, engine.Draining, "m", "aaaa")
	c.expect(t, "it still answers", 5, 6)
	c.tell(5, engine.Failed, "m", "")
	c.tell(1, engine.Loading, "m", "aaaa")
	c.expect(t, "the larger group took over", 3, 4, 6)
	c.tell(1, engine.Ready, "m", "aaaa")
	c.expect(t, "the first one is a newcomer now", 3, 4, 6)
	c.fleet.Remove(3)
	c.fleet.Remove(4)
	c.expect(t, "of equal groups the older one", 1, 6)
	if w.Refusal() == nil || c.fleet.Worker(1).Refusal() != nil {
		t.Error("the wrong one is refused")
	}
}

// A name belongs to who had it first.
func TestNamesOfModels(t *testing.T) {
	c := newCrowd(t)
	c.tell(1, engine.Ready, "a", "", "fast")
	c.tell(2, engine.Ready, "fast", "")
	c.tell(3, engine.Ready, "b", "", "a", "fast", "slow")
	c.expect(t, "the alias is taken", 1, 3)
	if r := c.fleet.Worker(2).Refusal(); r == nil || r.Field != "model" || !strings.Contains(r.Reason, "another name of model a") {
		t.Errorf("%+v", r)
	}
	if got := c.fleet.Worker(3).Card().Aliases; !slices.Equal(got, []string{"slow"}) {
		t.Errorf("the third has the names %v", got)
	}
	if r := c.fleet.Worker(3).Refusal(); r != nil {
		t.Errorf("%+v", r)
	}
	if a, b := c.fleet.Worker(3).Card(), c.fleet.Worker(3).Status().Card; a != b {
		t.Error("one card has two pointers")
	}
	c.fleet.Remove(1)
	c.expect(t, "who serves has the names that are free now", 3)
	if got := c.fleet.Worker(3).Card().Aliases; !slices.Equal(got, []string{"a", "fast", "slow"}) {
		t.Errorf("the third has the names %v", got)
	}
}

// Whatever happens, all who serve a model agree, somebody serves it if anybody
// could, and nobody who serves stops because another one comes.
func TestAgreementProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCrowd(t)
		kinds := map[uint64]string{}
		live := map[uint64]bool{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before := c.serving()
			id := rapid.Uint64Range(1, 6).Draw(rt, "worker")
			state := rapid.SampledFrom([]engine.State{engine.Ready, engine.Ready, engine.Failed}).Draw(rt, "state")
			kinds[id] = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "kind")
			live[id] = state == engine.Ready
			c.tell(id, state, "m", kinds[id])
			after := c.serving()
			some := false
			for id := range live {
				some = some || live[id]
			}
			if some != (len(after) > 0) {
				rt.Fatalf("%v serve, could somebody: %v", after, some)
			}
			for _, other := range after {
				if kinds[other] != kinds[after[0]] {
					rt.Fatalf("%v serve, of kinds %v", after, kinds)
				}
			}
			stays := func(other uint64) bool { return other == id || slices.Contains(after, other) }
			if len(before) > 1 && !slices.Contains(before, id) {
				for _, other := range before {
					if !stays(other) {
						rt.Fatalf("worker %d came, and %d does not serve any more", id, other)
					}
				}
			}
		}
	})
}

package pipeline_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// The prompts of one call wait for room like those of others, and not for each
// other: the first runs while the others are parked behind it.
func TestPromptsOfACallDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		threshold := 0.0 // one prompt at a time
		h := newHouseOf(t, pipeline.Config{}, router.Config{QueueThreshold: &threshold}, f)
		say := h.say("hello", 2, engine.FinishStop)
		f.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			time.Sleep(time.Second) // of prefill
			say(ctx, r, yield)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		requests := []*pipeline.Request{request("one"), request("two"), request("three")}
		answers, err := chat.Fold(h.Run(ctx, requests...))
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(answers); !slices.Equal(got, []string{"hello", "hello", "hello"}) {
			t.Errorf("answers %q", got)
		}
		if n := h.router.Counters().Parked; n != 2 {
			t.Errorf("%d were parked, want 2", n)
		}
		for i, r := range requests {
			if r.Notes.Target.Worker != 1 {
				t.Errorf("request %d: notes %+v", i, r.Notes)
			}
		}
		h.released(t)
	})
}

// A request that moves gives its place back at once, though it has to wait for
// another one.
func TestMovingLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing, busy := &fake{}, &fake{}
		threshold := 0.0
		h := newHouseOf(t, pipeline.Config{MigrationLimit: 1}, router.Config{QueueThreshold: &threshold}, failing, busy)
		failing.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			time.Sleep(time.Second)
			yield(engine.Delta{}, engine.Errorf(engine.CannotConnect, "gone"))
		}
		busy.generate = h.say("hello", 2, engine.FinishStop)
		other, err := h.router.Route(t.Context(), &router.Query{Model: "test/model", Tokens: h.ids("hello"), PinWorker: 2})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, func() {
			if l := h.router.Loads()[0]; l.Requests != 0 || l.PrefillTokens != 0 {
				t.Errorf("booked where it failed: %+v", l)
			}
			if n := h.router.Counters().Parked; n != 1 {
				t.Errorf("%d are parked, want 1", n)
			}
			other.Release()
		})
		r := request("move")
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil || !slices.Equal(texts(answers), []string{"hello"}) || r.Notes.Attempts != 2 {
			t.Errorf("answers %q, %v; %+v", texts(answers), err, r.Notes)
		}
		h.released(t)
	})
}

// leaver is a client that leaves in the moment in which its request is booked for the
// n-th time.
type leaver struct {
	n     int
	leave context.CancelFunc
}

func (l *leaver) Routed(*router.Decision, *router.Work) {
	if l.n--; l.n == 0 {
		l.leave()
	}
}

func (l *leaver) Ended(*router.Outcome) {}

// Who leaves while a place is being found has none: not for a whole request, not for a
// leg of one, and not for one that moves.
func TestLeavingWhileBooked(t *testing.T) {
	lost := func(ctx context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, cmp.Or(ctx.Err(), error(engine.Errorf(engine.CannotConnect, "gone"))))
	}
	for _, c := range []struct {
		name    string
		n       int
		engines func(t *testing.T) []engine.Engine
	}{
		{"whole", 1, func(t *testing.T) []engine.Engine { return []engine.Engine{&fake{generate: lost}} }},
		{"moving", 2, func(t *testing.T) []engine.Engine {
			return []engine.Engine{&fake{generate: lost}, &fake{generate: lost}}
		}},
		{"prefill leg", 1, func(t *testing.T) []engine.Engine {
			return []engine.Engine{newShaky(t, "prefill", false), newShaky(t, "decode", false)}
		}},
		{"leg that answers", 2, func(t *testing.T) []engine.Engine {
			return []engine.Engine{newShaky(t, "prefill", false), newShaky(t, "decode", false)}
		}},
		{"legs at once, the first", 1, func(t *testing.T) []engine.Engine {
			return []engine.Engine{newShaky(t, "prefill", true), newShaky(t, "decode", false)}
		}},
		{"legs at once, the second", 2, func(t *testing.T) []engine.Engine {
			return []engine.Engine{newShaky(t, "prefill", true), newShaky(t, "decode", false)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			l := &leaver{c.n, leave}
			h := newHouseOf(t, pipeline.Config{MigrationLimit: 1}, router.Config{Mode: router.RoundRobin, Observer: l}, c.engines(t)...)
			_, err := chat.Fold(h.Run(ctx, words("hello", 60, nil)))
			if engine.KindOf(err) != engine.Cancelled || l.n > 0 {
				t.Errorf("%v, and %d more would have been booked", err, l.n)
			}
			h.released(t)
		})
	}
}

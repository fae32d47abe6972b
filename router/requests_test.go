package router_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func code(err error) string {
	if e, ok := errors.AsType[*engine.Error](err); ok {
		return e.Code
	}
	return ""
}

// The life of a request that is spoken of by its id.
func TestRequestsByID(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.TrackOutputBlocks = true
	h := newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	r, ctx := h.router, t.Context()
	load := func(want router.TargetLoad) {
		t.Helper()
		want.Target = kv.Target{Worker: 1}
		if got := r.Loads()[0]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	q := &router.Query{ID: "a", Model: "m", Tokens: count(0, 8)}
	b, err := r.Book(ctx, q)
	if err != nil || b.Decision().Target.Worker != 1 {
		t.Fatal(b, err)
	}
	load(router.TargetLoad{Requests: 1, PrefillTokens: 8, ActiveBlocks: 2})
	if _, err := r.Book(ctx, q); code(err) != router.CodeDuplicateRequest || engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("booked twice: %v", err)
	}
	if err := errors.Join(r.PrefillDone("a"), r.PrefillDone("a")); err != nil {
		t.Error(err)
	}
	load(router.TargetLoad{Requests: 1, ActiveBlocks: 2})
	if err := r.Output("a", 5); err != nil {
		t.Error(err)
	}
	load(router.TargetLoad{Requests: 1, ActiveBlocks: 4})
	if err := r.Free("a"); err != nil {
		t.Error(err)
	}
	load(router.TargetLoad{})
	for name, err := range map[string]error{"prefill": r.PrefillDone("a"), "output": r.Output("a", 1), "free": r.Free("a"), "never": r.Free("b")} {
		if code(err) != router.CodeRequestNotFound || engine.KindOf(err) != engine.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The id is free again, whoever ended the request, and after an error too.
	b, err = r.Book(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	if _, err := r.Book(ctx, &router.Query{ID: "a", Model: "nobody's"}); engine.KindOf(err) != engine.NotFound {
		t.Error(err)
	}
	if _, err := r.Book(ctx, q); err != nil {
		t.Error(err)
	}
	if _, err := r.Book(ctx, &router.Query{Model: "m"}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("without an id: %v", err)
	}
	load(router.TargetLoad{Requests: 1, PrefillTokens: 8, ActiveBlocks: 2})
	// It goes with its worker.
	h.become(1, engine.Status{Epoch: 2, Revision: 1, State: engine.Ready, Card: card().Card})
	if err := r.Free("a"); code(err) != router.CodeRequestNotFound {
		t.Errorf("after its worker is gone: %v", err)
	}
	if n := r.BookedTargets(); n != 0 {
		t.Errorf("%d targets are left in the books", n)
	}
}

// Of many that book one id at once, one does.
func TestOneOfManyBooksAnID(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() { _, errs[i] = h.router.Book(t.Context(), &router.Query{ID: "one", Model: "m"}) })
	}
	group.Wait()
	booked := 0
	for _, err := range errs {
		if err == nil {
			booked++
		} else if code(err) != router.CodeDuplicateRequest {
			t.Error(err)
		}
	}
	if booked != 1 || h.router.Loads()[0].Requests != 1 {
		t.Errorf("%d booked, %+v", booked, h.router.Loads())
	}
}

// What nobody speaks of any more is forgotten; output is a sign of life.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &learner{}
		h := newHouse(t, router.Config{Policy: l})
		defer h.fleet.Close()
		h.join(1, card())
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		silent := h.route(router.Query{Model: "m", Tokens: count(0, 8)})
		talking := h.route(router.Query{Model: "m", Tokens: count(1000, 8)})
		if _, err := h.router.Book(t.Context(), &router.Query{ID: "lost", Model: "m", Tokens: count(2000, 8)}); err != nil {
			t.Fatal(err)
		}
		wait := func(d time.Duration) int {
			for range int(d / (10 * time.Second)) {
				time.Sleep(10 * time.Second)
				talking.Output(1)
			}
			synctest.Wait()
			return h.router.Loads()[0].Requests
		}
		if n := wait(290 * time.Second); n != 3 {
			t.Errorf("%d requests after 290 s, want all 3", n)
		}
		if n := wait(80 * time.Second); n != 1 {
			t.Errorf("%d requests after 370 s, want the one that is heard of", n)
		}
		if err := h.router.Free("lost"); code(err) != router.CodeRequestNotFound {
			t.Error(err)
		}
		if len(l.told) != 1 || l.told[0].ID != "lost" || l.told[0].End != router.Abandoned {
			t.Errorf("the policy has heard %+v, want of the request that nobody will release", l.told)
		}
		if n := wait(20 * time.Minute); n != 1 {
			t.Errorf("%d requests after 20 minutes more, want 1", n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if l := h.router.Loads()[0]; l != (router.TargetLoad{Target: l.Target}) {
			t.Errorf("in the end: %+v", l)
		}
		talking.Release()
		silent.Prefilled()
		silent.Output(5)
		silent.Release()
		if l, c := h.router.Loads()[0], h.router.Counters(); l != (router.TargetLoad{Target: l.Target}) || c.Expired != 3 {
			t.Errorf("in the end: %+v, %+v", l, c)
		}
		if len(l.told) != 3 {
			t.Errorf("the policy has heard %+v, want of each request once", l.told)
		}
	})
}

// learner is a policy that writes down what it hears.
type learner struct {
	mu   sync.Mutex
	told []router.Outcome
}

func (*learner) Pick(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
	return len(c) - 1, nil
}

func (l *learner) Learn(o router.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, o)
}

// A policy hears once of each request how it went.
func TestLearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &learner{}
		h := newHouse(t, router.Config{Policy: l})
		defer h.fleet.Close()
		h.join(1, card())
		h.join(2, card())
		place := func(id string) *router.Booking {
			return h.route(router.Query{ID: id, Model: "m", Tokens: count(0, 40)})
		}
		good, bad, left := place("good"), place("bad"), place("left")
		time.Sleep(2 * time.Second)
		good.Cached(12)
		good.Prefilled()
		good.Output(1)
		time.Sleep(3 * time.Second)
		good.Prefilled()
		good.Output(9)
		good.Completed()
		good.Release()
		good.Release()
		bad.Failed()
		bad.Release()
		left.Release()
		to := kv.Target{Worker: 2}
		want := []router.Outcome{
			{ID: "good", Target: to, PromptTokens: 40, CachedTokens: 12, OutputTokens: 10, First: 2 * time.Second, Total: 5 * time.Second, End: router.Completed},
			{ID: "bad", Target: to, PromptTokens: 40, CachedTokens: -1, Total: 5 * time.Second, End: router.Failed},
			{ID: "left", Target: to, PromptTokens: 40, CachedTokens: -1, Total: 5 * time.Second, End: router.Abandoned},
		}
		if !slices.Equal(l.told, want) {
			t.Errorf("heard %+v\nwant  %+v", l.told, want)
		}
	})
}

// forgetful is a policy that panics when it is to learn.
type forgetful struct{ learner }

func (*forgetful) Learn(router.Outcome) { panic("a fault of the policy's") }

// A policy that panics when it hears how a request went has learned nothing, and
// that is all: the place is free for the next one, and so is the session.
func TestLearnerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0, func(c *router.Config) {
			c.Policy, c.SessionTTL = &forgetful{}, time.Minute
		}))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a := h.arrivals()
		a.submit(t.Context(), router.Query{ID: "runs", Tokens: count(0, 8), Session: router.Session{ID: "s"}})
		a.submit(t.Context(), router.Query{ID: "waits", Tokens: count(100, 8)})
		a.expect("one runs", "runs")
		a.bookings["runs"].Release()
		a.expect("its place is free", "waits")
		a.bookings["waits"].Release()
		time.Sleep(2 * time.Minute)
		h.router.Tick(time.Now())
		if n := h.router.Sessions().Bindings; n != 0 {
			t.Errorf("%d sessions are bound for ever", n)
		}
	})
}

// So many requests are booked by their ids and no more, whoever forgets to free
// them; those that are routed otherwise do not count.
func TestTooManyBooked(t *testing.T) {
	h := newHouse(t, router.Config{MostBooked: 3})
	defer h.fleet.Close()
	h.join(1, card())
	ctx := context.Background()
	book := func(id string) error {
		_, err := h.router.Book(ctx, &router.Query{ID: id, Model: "m", Tokens: count(0, 8)})
		return err
	}
	defer h.route(router.Query{ID: "another", Model: "m", Tokens: count(0, 8)}).Release()
	if err := book("x"); err != nil {
		t.Fatal(err)
	}
	if err := h.router.Free("x"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := book(id); err != nil {
			t.Fatal(err)
		}
	}
	var e *engine.Error
	if err := book("d"); !errors.As(err, &e) || e.Kind != engine.ResourceExhausted || e.Code != router.CodeTooManyBooked {
		t.Errorf("the fourth: %v", err)
	}
	if err := book("c"); !errors.As(err, &e) || e.Code != router.CodeDuplicateRequest {
		t.Errorf("one twice: %v", err)
	}
	if err := h.router.Free("b"); err != nil {
		t.Fatal(err)
	}
	if err := book("d"); err != nil {
		t.Errorf("after one was freed: %v", err)
	}
}

package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// keeper is a fake that keeps sessions, and remembers what it was told of them.
type keeper struct {
	fake
	mu      sync.Mutex
	calls   []string
	refuses int           // so many calls
	slow    time.Duration // it takes to open a session
	// ephemeral is what it was told of the session opened last.
	ephemeral bool
}

func newKeeper() *keeper {
	return &keeper{fake: fake{features: engine.Features{engine.FeatureSessions}}}
}

func (k *keeper) told(call string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, call)
	if k.refuses > 0 {
		k.refuses--
		return engine.Errorf(engine.Disconnected, "injected")
	}
	return nil
}

func (k *keeper) OpenSession(_ context.Context, key kv.SessionKey, o engine.SessionOptions) (bool, error) {
	time.Sleep(k.slow)
	k.mu.Lock()
	k.ephemeral = o.Ephemeral
	k.mu.Unlock()
	return false, k.told(fmt.Sprintf("open %s/%s/%s for %v", key.Model, key.Salt, key.ID, o.Timeout))
}

func (k *keeper) CloseSession(_ context.Context, key kv.SessionKey) (bool, error) {
	return true, k.told(fmt.Sprintf("close %s/%s/%s", key.Model, key.Salt, key.ID))
}

func (k *keeper) heard() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.calls)
}

// inSession is a turn of a session.
func inSession(action string, timeout uint32) *pipeline.Request {
	r := request("Hello")
	r.Identity.Chain, r.Identity.Key, r.Identity.Final = "s", "s", action == "final"
	r.KV.Session.ID, r.KV.Namespace.Salt = "s", "mine"
	c := &nvext.SessionControl{SessionID: "s", Action: strings.TrimPrefix(action, "final")}
	if timeout > 0 {
		c.Timeout = &timeout
	}
	r.Ext = &nvext.Ext{SessionControl: c}
	return r
}

// A session is opened before its first turn and closed behind its last one, and one
// with which nobody goes on is closed when its time is over.
func TestSessionsOfEngines(t *testing.T) {
	for name, tc := range map[string]struct {
		turns []string // actions; "…" is a minute
		want  []string
	}{
		"open and close":     {[]string{"open", "", "close"}, []string{"open for 1m30s", "close"}},
		"a final marker":     {[]string{"open", "final"}, []string{"open for 1m30s", "close"}},
		"forgotten":          {[]string{"open", "", "…"}, []string{"open for 1m30s", "close"}},
		"opened anew":        {[]string{"open", "open", "close"}, []string{"open for 1m30s", "close"}},
		"and after its end":  {[]string{"open", "close", "open"}, []string{"open for 1m30s", "close", "open for 1m30s"}},
		"bound alone":        {[]string{"bind", "", "close"}, nil},
		"closed, never open": {[]string{"close"}, []string{"close"}},
		"opened and closed":  {[]string{"open", "close", "close", ""}, []string{"open for 1m30s", "close", "close"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper()
				h := newHouse(t, pipeline.Config{}, k)
				k.generate = h.say("Yes.", 1, engine.FinishEOS)
				k.features = append(k.features, engine.FeatureCacheSalt)
				for _, action := range tc.turns {
					if action == "…" {
						time.Sleep(time.Minute)
						h.router.Tick(time.Now())
						synctest.Wait()
						continue
					}
					r := inSession(action, 60)
					r.KV.Namespace.Salt = ""
					if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil || r.Notes.Degraded {
						t.Fatalf("%v, %+v", err, r.Notes)
					}
					synctest.Wait()
				}
				var got []string
				for _, call := range k.heard() {
					got = append(got, strings.Replace(call, " test/model//s", "", 1))
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("it heard %q, want %q", got, tc.want)
				}
				h.Close()
			})
		})
	}
}

// Sessions of two salts are two, and the last of several turns at once closes one.
func TestSessionClosesBehindTheLastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		k.features = append(k.features, engine.FeatureCacheSalt)
		h := newHouse(t, pipeline.Config{}, k)
		say := h.say("Yes.", 1, engine.FinishEOS)
		var hold time.Duration
		k.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			time.Sleep(hold)
			say(ctx, r, yield)
		}
		run := func(r *pipeline.Request) {
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Error(err)
			}
		}
		run(inSession("open", 60))
		var turns sync.WaitGroup
		hold = time.Second
		turns.Go(func() { run(inSession("", 60)) })
		synctest.Wait()
		hold = 0
		run(inSession("close", 60))
		synctest.Wait()
		if got := k.heard(); len(got) != 1 || got[0] != "open test/model/mine/s for 1m30s" {
			t.Errorf("while a turn runs it heard %q", got)
		}
		other := inSession("open", 60)
		other.KV.Namespace.Salt = "another"
		run(other)
		turns.Wait()
		synctest.Wait()
		if got := k.heard(); len(got) != 3 || got[1] != "open test/model/another/s for 1m30s" || got[2] != "close test/model/mine/s" {
			t.Errorf("in the end it heard %q", got)
		}
		if n := h.router.Sessions(); n.Opened != 2 || n.Kept != 1 || n.Closed != 1 {
			t.Errorf("%+v", n)
		}
		h.Close()
	})
}

// A turn is served whatever its session's engine says, unless the operator is strict;
// and the end of a session is told until it is heard.
func TestSessionsNeverFailATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		without, with := &fake{}, newKeeper()
		with.refuses = 1
		for name, tc := range map[string]struct {
			e      engine.Engine
			strict bool
			want   engine.ErrorKind
		}{
			"no sessions":         {without, false, ""},
			"refused":             {with, false, ""},
			"no sessions, strict": {without, true, engine.InvalidArgument},
		} {
			h := newHouse(t, pipeline.Config{StrictSessions: tc.strict}, tc.e)
			without.generate = h.say("Yes.", 1, engine.FinishEOS)
			with.generate = without.generate
			r := inSession("open", 60)
			r.KV.Namespace.Salt = ""
			_, err := chat.Fold(h.Run(t.Context(), r))
			if tc.want != "" && engine.KindOf(err) != tc.want || tc.want == "" && (err != nil || !r.Notes.Degraded) {
				t.Errorf("%s: %v, %+v", name, err, r.Notes)
			}
			if n := h.router.Sessions(); n.Degraded != 1 || n.Kept != 0 {
				t.Errorf("%s: %+v", name, n)
			}
			h.released(t)
			h.Close()
		}
		with.refuses = 1
		h := newHouse(t, pipeline.Config{StrictSessions: true}, with)
		r := inSession("open", 60)
		r.KV.Namespace.Salt = ""
		if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("refused, strict: %v", err)
		}
		h.released(t)
		r = inSession("open", 60)
		r.KV.Namespace.Salt = ""
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		with.mu.Lock()
		with.calls, with.refuses = nil, 3
		with.mu.Unlock()
		r = inSession("close", 60)
		r.KV.Namespace.Salt = ""
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		h.Settle()
		if got := with.heard(); len(got) != 4 || time.Since(begin) != 700*time.Millisecond {
			t.Errorf("after %v it heard %q", time.Since(begin), got)
		}
		h.Close()
	})
}

// A session whose worker cannot take its next turn is opened on another one, and
// closed where it was; one whose worker has gone, or begun a new life, is opened anew.
func TestSessionMoves(t *testing.T) {
	open, end := "open test/model//s for 1m30s", "close test/model//s"
	for name, tc := range map[string]struct {
		spoil         func(f *fleet.Fleet, home uint64)
		first, second []string
	}{
		"away for a while": {
			func(f *fleet.Fleet, home uint64) { f.Worker(home).Inhibit(time.Now(), engine.Disconnected) },
			[]string{open, end},
			[]string{open, end},
		},
		"gone": {func(f *fleet.Fleet, home uint64) { f.Remove(home) }, []string{open}, []string{open, end}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newKeeper(), newKeeper()
				h := newHouse(t, pipeline.Config{}, a, b) // in turn
				a.generate = h.say("Yes.", 1, engine.FinishEOS)
				b.generate = a.generate
				for _, action := range []string{"open", "", "close"} {
					r := inSession(action, 60)
					r.KV.Namespace.Salt = ""
					if action == "" {
						tc.spoil(h.fleet, h.fleet.Snapshot()[0].ID())
					}
					if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil || r.Notes.Degraded {
						t.Fatalf("%v, %+v", err, r.Notes)
					}
					synctest.Wait()
				}
				if got := a.heard(); !slices.Equal(got, tc.first) {
					t.Errorf("the first heard %q, want %q", got, tc.first)
				}
				if got := b.heard(); !slices.Equal(got, tc.second) {
					t.Errorf("the second heard %q, want %q", got, tc.second)
				}
				h.Close()
			})
		})
	}
}

// Ten turns that open one session at once open it once.
func TestOpensAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		k.slow = time.Second
		h := newHouse(t, pipeline.Config{}, k)
		k.generate = h.say("Yes.", 1, engine.FinishEOS)
		var turns sync.WaitGroup
		for range 10 {
			turns.Go(func() {
				r := inSession("open", 60)
				r.KV.Namespace.Salt = ""
				if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil || r.Notes.Degraded {
					t.Errorf("%v, %+v", err, r.Notes)
				}
			})
		}
		turns.Wait()
		if got := k.heard(); len(got) != 1 {
			t.Errorf("it heard %q", got)
		}
		h.Close()
	})
}

// If it cannot be opened, all of them know from one attempt.
func TestFailedOpensAreOne(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper()
			k.slow, k.refuses = time.Second, 1
			h := newHouse(t, pipeline.Config{StrictSessions: strict}, k)
			k.generate = h.say("Yes.", 1, engine.FinishEOS)
			var turns sync.WaitGroup
			for range 10 {
				turns.Go(func() {
					r := inSession("open", 60)
					r.KV.Namespace.Salt = ""
					_, err := chat.Fold(h.Run(t.Context(), r))
					if strict && engine.KindOf(err) != engine.Unavailable || !strict && (err != nil || !r.Notes.Degraded) {
						t.Errorf("strict %v: %v, %+v", strict, err, r.Notes)
					}
				})
			}
			turns.Wait()
			synctest.Wait()
			// It may have opened the session all the same.
			if got := k.heard(); len(got) != map[bool]int{true: 2, false: 1}[strict] || !strings.HasPrefix(got[len(got)-1], map[bool]string{true: "close", false: "open"}[strict]) {
				t.Errorf("strict %v: it heard %q", strict, got)
			}
			h.released(t)
			h.Close()
		})
	}
}

// A session that is opened anew while its engine is still to hear of its end stays
// open.
func TestOpenAfterAnUnheardClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		h := newHouse(t, pipeline.Config{}, k)
		k.generate = h.say("Yes.", 1, engine.FinishEOS)
		run := func(action string) {
			r := inSession(action, 60)
			r.KV.Namespace.Salt = ""
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil || r.Notes.Degraded {
				t.Errorf("%s: %v, %+v", action, err, r.Notes)
			}
			synctest.Wait()
		}
		run("open")
		k.mu.Lock()
		k.refuses = 1 // the close
		k.mu.Unlock()
		run("close")
		run("open")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		open, end := "open test/model//s for 1m30s", "close test/model//s"
		if got := k.heard(); !slices.Equal(got, []string{open, end, open}) {
			t.Errorf("it heard %q", got)
		}
		if n := h.router.Sessions(); n.Kept != 1 || n.Closing != 0 {
			t.Errorf("%+v", n)
		}
		h.Close()
	})
}

// Of an engine that never hears of an end, no more is left behind when it has
// forgotten by itself.
func TestUnheardCloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		h := newHouse(t, pipeline.Config{}, k)
		k.generate = h.say("Yes.", 1, engine.FinishEOS)
		for _, action := range []string{"open", "close"} {
			r := inSession(action, 60)
			r.KV.Namespace.Salt = ""
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			k.mu.Lock()
			k.refuses = 1 << 20
			k.mu.Unlock()
		}
		begin := time.Now()
		h.Settle()
		if took := time.Since(begin); took < 90*time.Second || took > 95*time.Second {
			t.Errorf("it was told for %v", took)
		}
		if n := h.router.Sessions(); n.Bindings != 0 {
			t.Errorf("%+v", n)
		}
		h.Close()
	})
}

// What an engine that never hears of ends is still to be told is bounded, whether the
// sessions are many or one that ends again and again.
func TestUnheardClosesAreBounded(t *testing.T) {
	const beyond = 10
	for name, id := range map[string]func(int) string{
		"many": strconv.Itoa,
		"one":  func(int) string { return "s" },
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper()
			k.refuses = 1 << 30
			h := newHouse(t, pipeline.Config{}, k)
			w := h.fleet.Snapshot()[0]
			var given atomic.Int64 // up
			end := func(i int) {
				h.EndSession(&router.SessionEnd{
					Key: kv.SessionKey{Model: "test/model", ID: id(i)}, Worker: w, Life: w.Lost(),
					Timeout: 365 * 24 * time.Hour, Done: func() { given.Add(1) },
				})
			}
			for i := range pipeline.MostEndings + beyond {
				end(i)
			}
			synctest.Wait()
			if n := given.Load(); n != beyond {
				t.Errorf("%s: %d are given up, want %d", name, n, beyond)
			}
			k.mu.Lock()
			k.refuses = 0
			k.mu.Unlock()
			h.Settle()
			if n := given.Load(); n != pipeline.MostEndings+beyond {
				t.Errorf("%s: %d are over, want %d", name, n, pipeline.MostEndings+beyond)
			}
			end(0) // there is room again
			h.Settle()
			if n := given.Load(); n != pipeline.MostEndings+beyond+1 {
				t.Errorf("%s: %d are over behind another one", name, n)
			}
			h.Close()
		})
	}
}

// faulty is an engine in which the opening of a session panics.
type faulty struct{ *keeper }

func (faulty) OpenSession(context.Context, kv.SessionKey, engine.SessionOptions) (bool, error) {
	panic("a fault of an engine")
}

// What was booked is given back also when a fault comes between the booking and the
// request.
func TestFaultBehindTheBooking(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, faulty{newKeeper()})
	func() {
		defer func() {
			if v := recover(); v != "a fault of an engine" {
				t.Errorf("recovered %v", v)
			}
		}()
		chat.Fold(h.Run(t.Context(), inSession("open", 60))) //nolint:errcheck // it panics
	}()
	h.released(t)
}

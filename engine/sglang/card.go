package sglang

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
)

// facts are what a server told of itself. They are never changed in place.
type facts struct {
	process uint64 // tells one start of the server from another
	epoch   uint64 // and one cache of it from another
	card    *engine.Card
	fault   string // why the card cannot be used; "": it can
	// advice is what an operator could do better, in sentences.
	advice []string

	fields    fields
	described bool // the server was asked for its fields, and has answered
	form      form // what it says its streams are
	sessions  kind
	lowFirst  bool // lower priorities are sooner
	// events is where it publishes them; without an endpoint nowhere.
	events live.Published
	// evictsByPriority says that a request's priority protects what it caches, too.
	evictsByPriority bool
	// tellsExperts says that it can be asked which experts tokens went to.
	tellsExperts bool
}

// has says whether the server can be told something.
func (f *facts) has(control string) bool { return slices.Contains(f.card.Controls, control) }

// How often a server is asked for everything and not for a sign of life alone, how
// many looks may fail before it counts as gone, and how many times it may leave open
// whether it is well before nothing new is sent there.
const (
	fullEvery = 4
	mayFail   = 3
	mayHang   = 5
)

// lostAfter is how long a server may be away and still be the same one, if nothing
// else tells: none loads its model in less.
var lostAfter = 10 * time.Second

// look is the memory from one look at a server to the next.
type look struct {
	e       *Engine
	n       int // looks since everything was asked for
	failed  int // in a row
	hung    int // in a row
	silence engine.Silence
	seen    time.Time // when it answered last
}

// probe looks once, and returns the state and a sentence about it. Of the routes
// asked only that of the models is answered by the server's front alone: /health
// makes a token, which takes a second, or waits for one of somebody else's, and
// while a long prompt is computed there is none. Its silence is no death.
func (l *look) probe(ctx context.Context) (engine.Status, error) {
	var models modelList
	if err := l.e.get(ctx, &models, "/v1/models"); err != nil {
		return l.unreached(err)
	}
	lost := !l.seen.IsZero() && time.Since(l.seen) > lostAfter
	l.silence, l.seen = 0, time.Now()
	if known := l.e.facts.Load() != nil; known && lost {
		l.e.starts.Add(1)
	} else if known && !lost && l.failed == 0 && l.n > 0 && l.e.up.Load() && !l.e.doubt.Swap(false) {
		l.n = (l.n + 1) % fullEvery
		return l.well(), nil
	}
	facts, err := l.e.discover(ctx, &models)
	if err == nil {
		l.e.learn(facts)
		_, err = l.e.http.Get(ctx, "/health")
	}
	if err != nil {
		return l.unwell(err)
	}
	l.n, l.failed, l.hung = 1, 0, 0
	s := l.well()
	if s.State == engine.Ready {
		l.e.up.Store(true)
	}
	return s, nil
}

// well is the status of a server that says it is well, or has said so and is busy.
func (l *look) well() engine.Status {
	facts, parked := l.e.facts.Load(), l.e.parked.Load()
	switch {
	case facts.fault != "":
		return l.status(engine.Failed, facts.fault)
	case parked != nil:
		return l.status(engine.Draining, *parked)
	case l.hung >= mayHang:
		return l.status(engine.Suspect, "the server answers, and does not say that it is well")
	}
	return l.status(engine.Ready, "")
}

// unreached is the status of a server whose front did not answer, or with a failure.
func (l *look) unreached(err error) (engine.Status, error) {
	if !engine.Silent(err) || l.e.facts.Load() == nil {
		return l.unwell(err)
	}
	l.failed++
	state, why := l.silence.Grow(err)
	if state == engine.Dead {
		l.e.up.Store(false)
	}
	switch {
	case state != engine.Ready:
		return l.status(state, why), nil
	case l.e.up.Load():
		return l.well(), nil
	}
	return l.status(engine.Loading, waiting+err.Error()), nil
}

const waiting = "waiting for the server: "

// unwell is the status of a server that did not say it is well.
func (l *look) unwell(err error) (engine.Status, error) {
	status, up := 0, l.e.up.Load()
	if told, ok := errors.AsType[*engine.Error](err); ok {
		status = told.Status
	}
	switch {
	case engine.KindOf(err) == engine.Denied:
		return engine.Status{}, err
	case up && engine.Silent(err):
		l.n, l.hung = 1, l.hung+1
		return l.well(), nil
	}
	l.failed++
	switch {
	case up && status == http.StatusServiceUnavailable:
		return l.status(engine.Draining, "the server says that it is not well or is shutting down"), nil
	case up && l.failed < mayFail:
		return l.well(), nil
	}
	l.e.up.Store(false)
	return l.status(engine.Loading, waiting+err.Error()), nil
}

// unknown is the epoch of a server that has told nothing yet.
const unknown = 1

func (l *look) status(state engine.State, reason string) engine.Status {
	s := engine.Status{Epoch: unknown, State: state, Reason: reason}
	if f := l.e.facts.Load(); f != nil {
		s.Epoch, s.Card = f.epoch, f.card
	}
	return s
}

// learn keeps what a server told. A new life has no sessions, and a server that
// was started anew is not paused.
func (e *Engine) learn(f *facts) {
	before := e.facts.Swap(f)
	if before == nil || before.process != f.process {
		for _, sentence := range f.advice {
			e.log.Info("sglang: "+sentence, "url", e.http.URL())
		}
	}
	if before != nil && before.events != f.events {
		e.feed.Close() // it publishes somewhere else now
	}
	if before == nil || before.epoch == f.epoch {
		return
	}
	e.sessions.forget()
	if before.process != f.process {
		e.parked.Store(nil)
	}
}

// wiped begins another life of a server that has forgotten what it had cached. The
// next look tells it.
func (e *Engine) wiped() {
	e.wipes.Add(1)
	e.doubt.Store(true)
}

// Card yields what is known, then every change, until ctx ends. Only refused
// credentials end it with an error.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		ctx, done := e.within(ctx)
		defer done()
		l := look{e: e}
		var told engine.Status
		var shown string
		for s, err := range engine.Poll(ctx, e.cfg.Every, jitter, l.probe) {
			if err != nil {
				yield(engine.Status{}, err)
				return
			}
			e.follow(s)
			now := show(s.Card)
			s.Revision = told.Revision
			if now != shown || told.Revision == 0 {
				s.Revision++
			}
			if s.Revision == told.Revision && s.State == told.State && s.Epoch == told.Epoch && s.Reason == told.Reason {
				continue
			}
			told, shown = s, now
			if !yield(s, nil) {
				return
			}
		}
	}
}

// show writes a card so that two can be compared.
func show(c *engine.Card) string {
	if c == nil {
		return ""
	}
	text, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

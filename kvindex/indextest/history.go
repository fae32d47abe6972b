package indextest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// verb is what one step of a history does.
type verb uint8

const (
	apply verb = iota
	removeTarget
	removeWorker
	query
	audit // compares the counters
)

// step is one step of a history.
type step struct {
	do     verb
	target kv.Target
	event  kv.Event
	local  []kv.LocalHash
}

func (s step) String() string {
	switch s.do {
	case apply:
		var b strings.Builder
		fmt.Fprintf(&b, "%v %v %v", s.target, s.event.Tier, s.event.Kind)
		if s.event.HasParent {
			fmt.Fprintf(&b, " under %d", s.event.Parent)
		}
		for _, block := range s.event.Blocks {
			fmt.Fprintf(&b, " %d", block.Engine)
			if s.event.Kind == kv.Stored {
				fmt.Fprintf(&b, "=%d", block.Local)
			}
		}
		return b.String()
	case removeTarget:
		return fmt.Sprintf("%v leaves", s.target)
	case removeWorker:
		return fmt.Sprintf("worker %d leaves", s.target.Worker)
	case query:
		return fmt.Sprintf("match %v", s.local)
	}
	return "audit"
}

// pair is an index and the model of what it must say.
type pair struct {
	index Index
	match func([]kv.LocalHash) []kvindex.Match
	model *model
}

func newPair(x Index) pair { return pair{x, x.Matcher(), newModel()} }

// take takes one step on both sides and says how they differ.
func (p pair) take(s step) error {
	switch s.do {
	case apply:
		got, want := p.index.Apply(s.target, s.event), p.model.apply(s.target, s.event)
		if !errors.Is(got, want) {
			return fmt.Errorf("error %v, want %v", got, want)
		}
	case removeTarget:
		p.index.RemoveTarget(s.target)
		delete(p.model.caches, s.target)
	case removeWorker:
		p.index.RemoveWorker(s.target.Worker)
		p.model.removeWorker(s.target.Worker)
	case query:
		if got, want := p.match(s.local), p.model.match(s.local); !slices.Equal(got, want) {
			return fmt.Errorf("found %s", differences(got, want))
		}
	case audit:
		return p.audit()
	}
	return nil
}

// audit compares the counters of all targets.
func (p pair) audit() error {
	got, want := p.index.Stats(), p.model.stats()
	if nodes := got.Nodes; (nodes > 0) != (want.Blocks > 0) {
		return fmt.Errorf("%d nodes for %d blocks", nodes, want.Blocks)
	}
	got.Nodes = 0
	if got != want {
		return fmt.Errorf("stats %+v\nwant  %+v", got, want)
	}
	for t, c := range p.model.caches {
		if err := tally(p.index, t, c); err != nil {
			return err
		}
	}
	return nil
}

// tally compares how many blocks a target holds, and on which tiers if the index
// can tell.
func tally(x Index, t kv.Target, c *cache) error {
	if got := x.Blocks(t); got != len(c.keys) {
		return fmt.Errorf("%v holds %d blocks, want %d", t, got, len(c.keys))
	}
	tiered, ok := x.(Tiered)
	if !ok {
		return nil
	}
	for tier, want := range c.on() {
		if got := tiered.BlocksOn(t, kv.Tier(tier)); got != want {
			return fmt.Errorf("%v holds %d blocks on %v, want %d", t, got, kv.Tier(tier), want)
		}
	}
	return nil
}

// differences names the targets of which got and want say something else.
func differences(got, want []kvindex.Match) string {
	said := func(all []kvindex.Match, m kvindex.Match) string {
		for _, o := range all {
			if o.Target == m.Target {
				return fmt.Sprint(o.Blocks)
			}
		}
		return "nothing"
	}
	var lines []string
	for _, m := range slices.Concat(got, want) {
		g, w := said(got, m), said(want, m)
		line := fmt.Sprintf("%v: %s, want %s", m.Target, g, w)
		if g != w && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		lines = []string{fmt.Sprintf("%v, want the order %v", got, want)}
	}
	return strings.Join(lines, "\n")
}

// failure is where a history went wrong.
type failure struct {
	at  int
	err error
}

// replay takes all steps and returns the first difference, or nil.
func replay(open func() Index, history []step) *failure {
	p := newPair(open())
	for i, s := range history {
		if err := p.take(s); err != nil {
			return &failure{i, err}
		}
	}
	return nil
}

// shorten returns a history that still fails, of which no single step can be
// left out, and how it fails. It gives up after a few thousand replays.
func shorten(open func() Index, history []step) ([]step, *failure) {
	f := replay(open, history)
	if f == nil {
		return history, nil
	}
	history = history[:f.at+1]
	budget := 3000
	for size := (len(history) + 1) / 2; size > 0; {
		smaller := false
		for from := 0; from < len(history) && budget > 0; {
			budget--
			rest := slices.Concat(history[:from], history[min(from+size, len(history)):])
			if g := replay(open, rest); g != nil {
				history, f, smaller = rest[:g.at+1], g, true
			} else {
				from += size
			}
		}
		switch {
		case budget == 0:
			return history, f
		case size > 1:
			size /= 2
		case !smaller:
			size = 0
		}
	}
	return history, f
}

// report tells a failing history in a form that a person can read.
func report(open func() Index, history []step) string {
	short, f := shorten(open, history)
	if f == nil {
		return "the history fails no more when it is replayed"
	}
	var b strings.Builder
	for i, s := range short {
		if i == 100 {
			fmt.Fprintf(&b, "… %d more\n", len(short)-i)
			break
		}
		fmt.Fprintln(&b, s)
	}
	fmt.Fprintf(&b, "%v", f.err)
	return b.String()
}

package tree

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/dynago/dynago/trace"
)

// key names a use of a tool. Where models number the calls of each answer anew, it names
// several.
type key struct{ chain, id string }

// ask is a call that an answer asks for.
type ask struct {
	turn     *Turn
	call     *trace.ToolCall
	ran      bool  // a harness has told of its end
	answered *Turn // that brings its result
}

// asks are those of one key, in the order of their turns.
type asks []*ask

// asked returns what turns have asked for, of calls that have ids.
func (b *Builder) asked() map[key]asks {
	asked := map[key]asks{}
	for _, c := range b.order {
		for _, t := range c.Turns {
			calls := t.calls()
			for i := range calls {
				a := &ask{turn: t, call: &calls[i]}
				t.asks = append(t.asks, a)
				if id := calls[i].ID; id != "" {
					asked[key{c.ID, id}] = append(asked[key{c.ID, id}], a)
				}
			}
		}
	}
	return asked
}

// calls returns the calls that the answer of a turn asks for.
func (t *Turn) calls() []trace.ToolCall {
	if t.Request.Finish == nil {
		return nil
	}
	return t.Request.Finish.ToolCalls
}

// of returns the calls of the last turn that had ended by a moment, or nil. Tools may
// begin before the answer that asks for them has ended: where none of those calls is free,
// a turn that had begun comes first, if it has a free one.
func (list asks) of(at time.Time, free func(*ask) bool) asks {
	var begun asks
	to := sort.Search(len(list), func(i int) bool { return list[i].turn.Start.After(at) })
	for to > 0 {
		from := to - 1
		for from > 0 && list[from-1].turn == list[from].turn {
			from--
		}
		same := list[from:to]
		to = from
		open := slices.ContainsFunc(same, free)
		if !same[0].turn.End.Truncate(time.Millisecond).After(at) {
			if open || !slices.ContainsFunc(begun, free) {
				return same
			}
			return begun
		}
		if open || begun == nil {
			begun = same
		}
	}
	return begun
}

// ranFor returns the call that a tool has run for, or nil: of several in one answer the
// first of its name, if there is one, for which no other has run.
func (list asks) ranFor(u *Tool) *ask {
	if len(list) == 0 {
		return nil
	}
	free := func(a *ask) bool { return !a.ran }
	same := list.of(u.Start, free)
	if same == nil {
		same = list[:1] // by another clock it began before its turn
	}
	var named asks
	for _, a := range same {
		if a.call.Name == u.Class {
			named = append(named, a)
		}
	}
	if named != nil {
		same = named
	}
	return same[max(0, slices.IndexFunc(same, free))]
}

// brought notes that a turn brings the result of a call, and says whether one was asked
// for before. Of several turns that bring it, as those of a harness that tries again, the
// first counts.
func (list asks) brought(t *Turn) bool {
	before := list[:sort.Search(len(list), func(i int) bool { return list[i].turn.number >= t.number })]
	free := func(a *ask) bool { return a.answered == nil }
	same := before.of(t.Start, free)
	if i := slices.IndexFunc(same, free); i >= 0 {
		same[i].answered = t
	}
	return same != nil
}

// addTools makes uses of the records of tools, and hands each to the turn that has
// asked for it.
func (b *Builder) addTools(asked map[key]asks) {
	slices.SortStableFunc(b.tools, func(x, y *trace.Record) int {
		order := cmp.Compare(x.EventTime, y.EventTime)
		if order == 0 && x.EventType != y.EventType {
			order = cmp.Compare(rank(x), rank(y))
		}
		return order
	})
	begun := map[key][]*trace.Record{}
	var uses []*Tool
	add := func(r, start *trace.Record) {
		c := b.chains[r.Agent.Chain()]
		u := &Tool{ID: r.Tool.ID, Class: r.Tool.Class, Chain: c, Record: r}
		var begun *uint64
		if start != nil {
			begun = &start.EventTime
		}
		u.measure(begun)
		uses = append(uses, u)
	}
	for _, r := range b.tools {
		k := key{r.Agent.Chain(), r.Tool.ID}
		if r.EventType == trace.ToolStart {
			begun[k] = append(begun[k], r)
			continue
		}
		var start *trace.Record
		if open := begun[k]; len(open) > 0 {
			i := startOf(r.Tool, len(open), func(i int) uint64 { return open[i].EventTime })
			start = open[i]
			begun[k] = slices.Delete(open, i, i+1)
		}
		add(r, start)
	}
	running := map[*trace.Record]bool{}
	for _, open := range begun {
		for _, r := range open {
			running[r] = true
		}
	}
	for _, r := range b.tools { // in order, so that twice gives the same
		if running[r] {
			add(r, nil)
		}
	}
	byStart(uses)
	for _, u := range uses {
		u.place(asked[key{u.Chain.ID, u.ID}])
	}
}

// startOf returns which of the starts of a call, of which no end was told before, is that
// of a tool that has ended: the one nearest to when the tool says that it began, or else
// the last one.
func startOf(t *trace.Tool, starts int, at func(int) uint64) int {
	best := starts - 1
	if t.Started == nil {
		return best
	}
	away := func(i int) uint64 { return max(at(i), *t.Started) - min(at(i), *t.Started) }
	for i := range starts {
		if away(i) < away(best) {
			best = i
		}
	}
	return best
}

// place hands a tool to the turn that has asked for it, or that ran when it began.
func (u *Tool) place(asked asks) {
	if u.ask = asked.ranFor(u); u.ask == nil {
		u.Turn = u.Chain.during(u.Start)
	} else {
		u.Turn, u.Call = u.ask.turn, u.ask.call
		u.ask.ran = u.ask.ran || !u.Running()
	}
	if u.Turn != nil {
		u.Turn.Tools = append(u.Turn.Tools, u)
	} else {
		u.Chain.Tools = append(u.Chain.Tools, u)
	}
}

// rank lets what begins come before what ends at the same time.
func rank(r *trace.Record) int {
	if r.EventType == trace.ToolStart {
		return 0
	}
	return 1
}

// measure says when a tool ran. Begun is when its start was told, in unix milliseconds,
// or nil.
func (u *Tool) measure(begun *uint64) {
	r := u.Record
	end := moment(r.EventTime)
	u.Start = end
	if u.Running() {
		return
	}
	took, _ := span(r.Tool.Duration)
	switch {
	case r.Tool.Started != nil && r.Tool.Ended != nil && *r.Tool.Ended > *r.Tool.Started:
		u.Start = moment(*r.Tool.Started)
		u.Duration = moment(*r.Tool.Ended).Sub(u.Start)
	case r.Tool.Started != nil && took > 0:
		u.Start, u.Duration = moment(*r.Tool.Started), took
	case took > 0:
		if r.Tool.Ended != nil {
			end = moment(*r.Tool.Ended)
		}
		u.Start, u.Duration = end.Add(-took), took
	case begun != nil:
		u.Start = moment(*begun)
		u.Duration = max(0, end.Sub(u.Start))
	}
}

// infer adds the tools that turns have asked for and nobody has told of.
func (c *Chain) infer() {
	for _, t := range c.Turns {
		for _, a := range t.asks {
			if a.ran {
				continue
			}
			u := &Tool{ID: a.call.ID, Class: a.call.Name, Chain: c, Turn: t, Call: a.call, Start: t.End, ask: a}
			if t.Next != nil {
				u.Duration = max(0, t.Next.Start.Sub(t.End))
			}
			t.Tools = append(t.Tools, u)
		}
	}
}

// answer finds the turns that bring the results of tools.
func (c *Chain) answer(asked map[key]asks) {
	if c.ID == "" {
		return
	}
	for _, t := range c.Turns {
		if t.Request.Dynago == nil {
			continue
		}
		for _, id := range t.Request.Dynago.ToolResults {
			if !asked[key{c.ID, id}].brought(t) {
				t.Unasked = append(t.Unasked, id)
			}
		}
	}
	for _, t := range c.Turns {
		for _, u := range t.Tools {
			if u.ask == nil {
				continue
			}
			u.Answered = u.ask.answered
			if u.Inferred() && u.Answered != nil {
				u.Duration = max(0, u.Answered.Start.Sub(u.Start))
			}
		}
	}
}

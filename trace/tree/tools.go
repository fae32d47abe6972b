package tree

import (
	"cmp"
	"slices"

	"github.com/dynago/dynago/trace"
)

// key names a use of a tool.
type key struct{ chain, id string }

// asked returns the turns that have asked for tools.
func (b *Builder) asked() map[key]*Turn {
	asked := map[key]*Turn{}
	for _, c := range b.order {
		for _, t := range c.Turns {
			for _, call := range t.calls() {
				if call.ID != "" {
					asked[key{c.ID, call.ID}] = t
				}
			}
		}
	}
	return asked
}

// addTools makes uses of the records of tools, and hands each to the turn that has
// asked for it.
func (b *Builder) addTools(asked map[key]*Turn) {
	slices.SortStableFunc(b.tools, func(x, y *trace.Record) int {
		order := cmp.Compare(x.EventTime, y.EventTime)
		if order == 0 && x.EventType != y.EventType {
			order = cmp.Compare(rank(x), rank(y))
		}
		return order
	})
	begun := map[key][]*trace.Record{}
	add := func(r, start *trace.Record) {
		c := b.chains[r.Agent.Chain()]
		u := &Tool{ID: r.Tool.ID, Class: r.Tool.Class, Chain: c, Record: r}
		var begun *uint64
		if start != nil {
			begun = &start.EventTime
		}
		u.measure(begun)
		if u.Turn = asked[key{c.ID, u.ID}]; u.Turn == nil {
			u.Turn = c.during(u.Start)
		}
		if u.Turn != nil {
			u.Turn.Tools = append(u.Turn.Tools, u)
		} else {
			c.Tools = append(c.Tools, u)
		}
	}
	for _, r := range b.tools {
		k := key{r.Agent.Chain(), r.Tool.ID}
		if r.EventType == trace.ToolStart {
			begun[k] = append(begun[k], r)
			continue
		}
		var start *trace.Record
		if open := begun[k]; len(open) > 0 {
			start, begun[k] = open[len(open)-1], open[:len(open)-1]
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

// calls returns the calls that the answer of a turn asks for.
func (t *Turn) calls() []trace.ToolCall {
	if t.Request.Finish == nil {
		return nil
	}
	return t.Request.Finish.ToolCalls
}

// infer adds the tools that turns have asked for and nobody has told of.
func (c *Chain) infer() {
	told := map[string]bool{}
	note := func(tools []*Tool) {
		for _, u := range tools {
			if !u.Running() && u.ID != "" {
				told[u.ID] = true
			}
		}
	}
	note(c.Tools)
	for _, t := range c.Turns {
		note(t.Tools)
	}
	for _, t := range c.Turns {
		calls := t.calls()
		for i := range calls {
			call := &calls[i]
			if told[call.ID] {
				continue
			}
			u := &Tool{ID: call.ID, Class: call.Name, Chain: c, Turn: t, Call: call, Start: t.End}
			if t.Next != nil {
				u.Duration = max(0, t.Next.Start.Sub(t.End))
			}
			t.Tools = append(t.Tools, u)
		}
	}
}

// answer finds the turns that bring the results of tools: of several that do, as those
// of a harness that tries again, the first counts.
func (c *Chain) answer(asked map[key]*Turn) {
	if c.ID == "" {
		return
	}
	answers := map[string]*Turn{}
	for _, t := range c.Turns {
		if t.Request.Dynago == nil {
			continue
		}
		for _, id := range t.Request.Dynago.ToolResults {
			switch {
			case asked[key{c.ID, id}] == nil:
				t.Unasked = append(t.Unasked, id)
			case answers[id] == nil:
				answers[id] = t
			}
		}
	}
	note := func(tools []*Tool) {
		for _, u := range tools {
			u.Answered = answers[u.ID]
			if u.Inferred() && u.Answered != nil {
				u.Duration = max(0, u.Answered.Start.Sub(u.Start))
			}
		}
	}
	note(c.Tools)
	for _, t := range c.Turns {
		note(t.Tools)
	}
}

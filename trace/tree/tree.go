// Package tree puts the records of a trace together: sessions, the chains of turns that
// they consist of, the tools that ran between turns, and the chains that turns have
// opened.
//
// The one idea: nothing is left out. Each recorded request stands in the tree exactly
// once, each tool too; where records are missing or contradict each other, the tree says
// so in the place where it matters, and stays a tree.
package tree

import (
	"cmp"
	"strings"
	"time"

	"github.com/dynago/dynago/trace"
)

// Tree is what a trace tells.
type Tree struct {
	// Sessions are the chains that no other has opened, in the order in which they begin.
	Sessions []*Chain
	// Alone has the requests that belong to no agent, as if they were one chain. What
	// stands behind what there says nothing.
	Alone *Chain
	// Duplicates is how many records told what was known already.
	Duplicates int
}

// Chain is the turns of one agent, each of which follows from the one before.
type Chain struct {
	ID string // "" for requests of no agent
	// Run and Type are the run that it is part of and the kind of that, where the client
	// has told them.
	Run, Type string

	ParentID string // as records name it; "" for none
	Parent   *Chain
	Opened   *Turn // the turn of Parent in which it began; nil where nobody knows
	// Missing chains are only known by their children.
	Missing bool
	// Disputed says that records name different parents, of which the first one counts,
	// or that the parent is a descendant, which then does not count.
	Disputed bool

	Turns    []*Turn  // in the order in which they begin
	Tools    []*Tool  // those that no turn has asked for
	Children []*Chain // all of them, in the order in which they begin

	number int
	root   *Chain // or one that is nearer to it
}

// Turn is one request.
type Turn struct {
	Chain *Chain
	// Request is without the hashes of its prompt, unless the builder was told to keep them.
	Request    *trace.Request
	Agent      *trace.AgentContext // nil for requests of no agent
	Ended      time.Time           // as the record says
	Start, End time.Time
	Tools      []*Tool  // that it has asked for, in the order in which they begin
	Children   []*Chain // that began in it
	// Unasked are the ids of calls whose results it brings, and for which no turn of its
	// chain has asked.
	Unasked []string
	Next    *Turn // of its chain

	number int // in its chain
	asks   []*ask
}

// Tool is one use of a tool.
type Tool struct {
	ID, Class string
	Chain     *Chain
	Turn      *Turn // that has asked for it; nil where nobody knows
	Start     time.Time
	// Duration is 0 where nobody knows it.
	Duration time.Duration
	// Answered is the turn that brings its result; nil where no record says so.
	Answered *Turn
	// Record is what its harness has told of it when it ended, or, if it is not known to
	// have ended, when it began. It is nil for a tool that nobody has told of, which is
	// supposed to have run until Answered began, or else the next turn.
	Record *trace.Record
	// Call is what the answer of Turn has asked for; nil where none is known to have.
	Call *trace.ToolCall

	ask *ask
}

// Inferred says that no harness has told of the tool.
func (t *Tool) Inferred() bool { return t.Record == nil }

// Running says that the tool is not known to have ended.
func (t *Tool) Running() bool { return t.Record != nil && t.Record.EventType == trace.ToolStart }

// Failed says that the tool has failed.
func (t *Tool) Failed() bool {
	return t.Record != nil && (t.Record.EventType == trace.ToolError || t.Record.Tool.Status == "error")
}

// Walk visits a chain and all below it, parents first.
func (c *Chain) Walk(visit func(*Chain)) {
	open := []*Chain{c}
	for len(open) > 0 {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		visit(last)
		for i := len(last.Children) - 1; i >= 0; i-- {
			open = append(open, last.Children[i])
		}
	}
}

// Start returns when the first thing of a chain began; the zero time for a missing one
// without children.
func (c *Chain) Start() time.Time {
	var first time.Time
	earlier := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	switch {
	case len(c.Turns) > 0:
		earlier(c.Turns[0].Start)
	case len(c.Children) > 0 && c.Missing:
		earlier(c.Children[0].Start())
	}
	if len(c.Tools) > 0 {
		earlier(c.Tools[0].Start)
	}
	return first
}

// maxMS and maxSpan are the last moment, and the longest time, that is taken for one.
const (
	maxMS   = 253402300799999 // of the year 9999
	maxSpan = 1e12
)

func moment(ms uint64) time.Time { return time.UnixMilli(int64(min(ms, maxMS))).UTC() }

// span returns so many milliseconds, in whole microseconds; ok is false where ms is nil
// or no time.
func span(ms *float64) (d time.Duration, ok bool) {
	if ms == nil || !(*ms >= 0) {
		return 0, false
	}
	return time.Duration(min(*ms, maxSpan) * 1e6).Round(time.Microsecond), true
}

// times returns when a request began and ended, by what its record says.
func times(r *trace.Record) (start, end time.Time) {
	end = moment(r.EventTime)
	start = end
	if r.Request.Received != nil {
		start = moment(*r.Request.Received)
	}
	if took, ok := span(r.Request.TotalTime); ok {
		return start, start.Add(took)
	}
	if end.Before(start) {
		end = start
	}
	return start, end
}

// settle takes from the replay object of a request what is not said elsewhere, and lets
// go of the rest, which is large.
func settle(r *trace.Request) {
	if p := r.Replay; p != nil && r.InputTokens == nil && p.InputLength >= 0 {
		n := uint64(p.InputLength)
		r.InputTokens = &n
	}
	r.Replay = nil
}

// Failed says whether a request was ended by an error.
func Failed(r *trace.Request) bool {
	return r.Dynago != nil && r.Dynago.Error != "" || r.Finish != nil && strings.HasPrefix(r.Finish.BackendReason, "error")
}

// Ending returns in one word why an answer ended: what the client was told, else what the
// engine has said, else "unknown".
func Ending(r *trace.Request) string {
	if Failed(r) {
		return "error"
	}
	if r.Finish == nil {
		return "unknown"
	}
	return cmp.Or(r.Finish.Reason, r.Finish.BackendReason, "unknown")
}

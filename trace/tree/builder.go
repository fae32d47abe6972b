package tree

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynago/dynago/trace"
)

// Builder builds a tree of the records that it is handed, in any order: only of turns of
// one chain in one millisecond the one that is handed first comes first. Its zero value is
// ready.
type Builder struct {
	// Only, if it is not nil, says which chains are wanted. Requests of no agent are
	// those of chain "".
	Only func(chain string) bool
	// Prompts keeps the hashes of prompts, which are large.
	Prompts bool

	chains     map[string]*Chain
	order      []*Chain // as they were first told of
	requests   map[string]bool
	events     map[event]bool
	tools      []*trace.Record
	duplicates int
}

// event is what makes the record of a tool another one. An id alone does not, since two
// calls may have the same.
type event struct {
	chain, id, class, kind string
	at, started, ended     uint64
	took                   time.Duration
}

func eventOf(r *trace.Record, chain string) event {
	e := event{chain: chain, id: r.Tool.ID, class: r.Tool.Class, kind: r.EventType, at: r.EventTime}
	e.took, _ = span(r.Tool.Duration)
	if r.Tool.Started != nil {
		e.started = *r.Tool.Started
	}
	if r.Tool.Ended != nil {
		e.ended = *r.Tool.Ended
	}
	return e
}

// Add takes a record, which the builder then owns.
func (b *Builder) Add(r *trace.Record) {
	id := ""
	if r.Agent != nil {
		id = r.Agent.Chain()
	}
	if b.Only != nil && !b.Only(id) {
		return
	}
	switch {
	case r.EventType == trace.RequestEnd && r.Request != nil:
		b.addTurn(r, id)
	case r.IsTool() && r.Tool != nil && id != "":
		b.addTool(r, id)
	}
}

func (b *Builder) addTurn(r *trace.Record, id string) {
	if name := r.Request.RequestID; name != "" {
		if b.requests[name] {
			b.duplicates++
			return
		}
		if b.requests == nil {
			b.requests = map[string]bool{}
		}
		b.requests[name] = true
	}
	c := b.chain(id)
	c.tell(r.Agent)
	t := &Turn{Chain: c, Request: r.Request, Agent: r.Agent, Ended: moment(r.EventTime)}
	replay := t.Request.Replay
	if settle(t.Request); b.Prompts {
		t.Request.Replay = replay
	}
	t.Start, t.End = times(r)
	c.Turns = append(c.Turns, t)
}

func (b *Builder) addTool(r *trace.Record, id string) {
	if r.Tool.ID != "" {
		e := eventOf(r, id)
		if b.events[e] {
			b.duplicates++
			return
		}
		if b.events == nil {
			b.events = map[event]bool{}
		}
		b.events[e] = true
	}
	b.chain(id).tell(r.Agent)
	b.tools = append(b.tools, r)
}

// chain returns the chain of an id, which is missing if it was not told of before.
func (b *Builder) chain(id string) *Chain {
	c := b.chains[id]
	if c == nil {
		c = &Chain{ID: id, Missing: true, number: len(b.order)}
		c.root = c
		if b.chains == nil {
			b.chains = map[string]*Chain{}
		}
		b.chains[id] = c
		b.order = append(b.order, c)
	}
	return c
}

// tell takes what a record says about its chain.
func (c *Chain) tell(a *trace.AgentContext) {
	c.Missing = false
	if a == nil {
		return
	}
	c.Run, c.Type = cmp.Or(c.Run, a.Run()), cmp.Or(c.Type, a.SessionTypeID)
	parent := a.ParentChain()
	if parent == c.ID || parent == "" {
		return
	}
	if c.ParentID != "" && c.ParentID != parent {
		c.Disputed = true
		return
	}
	c.ParentID = parent
}

// Tree returns the tree of all records. The builder takes no more.
func (b *Builder) Tree() *Tree {
	t := &Tree{Duplicates: b.duplicates}
	for _, c := range slices.Clone(b.order) { // parents that are missing come behind
		if c.ParentID != "" && (b.Only == nil || b.Only(c.ParentID)) {
			b.adopt(c, b.chain(c.ParentID))
		}
		c.sortTurns()
	}
	asked := b.asked()
	b.addTools(asked)
	for _, c := range b.order {
		c.infer()
		c.answer(asked)
		byStart(c.Tools)
		for _, turn := range c.Turns {
			byStart(turn.Tools)
		}
	}
	for _, c := range b.order {
		byBeginning(c.Children)
		switch {
		case c.ID == "":
			t.Alone = c
		case c.Parent == nil:
			t.Sessions = append(t.Sessions, c)
		}
	}
	if t.Alone == nil {
		t.Alone = new(Chain)
	}
	for _, c := range b.order {
		for _, child := range c.Children {
			child.open()
		}
	}
	byBeginning(t.Sessions)
	return t
}

// adopt makes a chain the child of another, unless it is the ancestor of that.
func (b *Builder) adopt(c, parent *Chain) {
	if parent.top() == c {
		c.Disputed = true
		return
	}
	c.Parent, c.root = parent, parent
	parent.Children = append(parent.Children, c)
}

// top returns the chain at the root.
func (c *Chain) top() *Chain {
	for c.root != c {
		c.root = c.root.root
		c = c.root
	}
	return c
}

// sortTurns puts turns in the order in which they begin. Those of one millisecond, as
// before an engine that answers at once, stand as they were added: rows are written in
// the order in which requests end, and durations that begin at a rounded time say less.
func (c *Chain) sortTurns() {
	slices.SortStableFunc(c.Turns, func(a, b *Turn) int { return a.Start.Compare(b.Start) })
	for i, t := range c.Turns {
		if t.number = i; i > 0 {
			c.Turns[i-1].Next = t
		}
	}
}

func byStart(tools []*Tool) {
	slices.SortStableFunc(tools, func(a, b *Tool) int { return a.Start.Compare(b.Start) })
}

func byBeginning(chains []*Chain) {
	starts := make(map[*Chain]time.Time, len(chains))
	for _, c := range chains {
		starts[c] = c.Start()
	}
	slices.SortStableFunc(chains, func(a, b *Chain) int {
		return cmp.Or(starts[a].Compare(starts[b]), cmp.Compare(a.number, b.number))
	})
}

// open finds the turn in which a chain began: the last one of its parent that had begun
// by then.
func (c *Chain) open() {
	if c.Opened = c.Parent.during(c.Start()); c.Opened != nil {
		c.Opened.Children = append(c.Opened.Children, c)
	}
}

// during returns the last turn that had begun at a moment, or nil.
func (c *Chain) during(at time.Time) *Turn {
	i, _ := slices.BinarySearchFunc(c.Turns, at, func(t *Turn, at time.Time) int {
		if t.Start.After(at) {
			return 1
		}
		return -1
	})
	if i == 0 {
		return nil
	}
	return c.Turns[i-1]
}

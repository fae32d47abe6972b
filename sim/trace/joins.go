package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// join says what each call has waited for, and how long after that it came.
func (rec *recording) join() error {
	g := newGraph(rec.calls)
	rec.graph = g
	for session := range g.sessions {
		for k, i := range g.sessions[session] {
			if k > 0 {
				g.wait(i, g.sessions[session][k-1])
			}
		}
	}
	if err := g.branches(rec); err != nil {
		return err
	}
	tools := map[string][]*use{}
	for i := range rec.uses {
		u := &rec.uses[i]
		tools[u.session] = append(tools[u.session], u)
	}
	for _, uses := range tools {
		slices.SortStableFunc(uses, func(a, b *use) int {
			return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
		})
	}
	for i := range rec.calls {
		g.timing(i, tools[rec.calls[i].Session])
	}
	return nil
}

// graph is the calls by session, and what they wait for.
type graph struct {
	calls    []call
	at       map[string]int
	sessions map[string][]int // calls in order
	before   []int            // the call before it in its session, or -1
	after    []map[int]bool
	// opened has the calls that others have opened sessions with, background the sessions
	// that tools have which nobody waits for.
	opened     [][]int
	background map[string]bool
}

func newGraph(calls []call) *graph {
	g := &graph{
		calls: calls, at: map[string]int{}, sessions: map[string][]int{}, before: make([]int, len(calls)),
		after: make([]map[int]bool, len(calls)), opened: make([][]int, len(calls)), background: map[string]bool{},
	}
	for i, c := range calls {
		g.at[c.ID], g.before[i] = i, -1
		if c.Session != "" {
			if of := g.sessions[c.Session]; len(of) > 0 {
				g.before[i] = of[len(of)-1]
			}
			g.sessions[c.Session] = append(g.sessions[c.Session], i)
		}
	}
	for _, of := range g.sessions {
		last := &calls[of[len(of)-1]]
		last.Final = true
	}
	return g
}

// wait lets call i wait for call j.
func (g *graph) wait(i, j int) {
	if g.after[i] == nil {
		g.after[i] = map[int]bool{}
	}
	g.after[i][j] = true
}

// branches ties sessions to those that opened them: the first call waits for
// the one that opened it, and the one that uses its result waits for the call
// that ended last. Where no tool says which they were, the times do.
func (g *graph) branches(rec *recording) error {
	told := map[string]*use{} // by child session
	for i := range rec.uses {
		u := &rec.uses[i]
		if u.child == "" || len(g.sessions[u.child]) == 0 {
			continue
		}
		if told[u.child] != nil {
			return fmt.Errorf("session %q was opened by two tools, %q and %q", u.child, told[u.child].row.ID, u.row.ID)
		}
		told[u.child] = u
		g.background[u.child] = u.background
	}
	for _, session := range slices.Sorted(maps.Keys(g.sessions)) {
		of := g.sessions[session]
		parent := g.sessions[rec.parents[session]]
		u, named := told[session]
		if !named && len(parent) == 0 {
			continue // a root, or its parent was not recorded
		}
		head, tail := of[0], slices.MaxFunc(of, func(i, j int) int { return cmp.Compare(g.calls[i].end, g.calls[j].end) })
		opened, joined := -1, -1
		if named {
			var err error
			if opened, err = g.call(u.source, u.session, session); err != nil {
				return err
			}
			if u.consumer != "" {
				if joined, err = g.call(u.consumer, u.session, session); err != nil {
					return err
				}
			}
		} else {
			for _, i := range parent {
				if g.calls[i].start <= g.calls[head].start {
					opened = i
				}
				// What took no time at all is not waited for by those that began with it: they
				// may be what it waits for.
				if joined < 0 && g.calls[i].start >= g.calls[tail].over && g.calls[i].start > g.calls[head].start {
					joined = i
				}
			}
		}
		if opened >= 0 {
			g.wait(head, opened)
			g.opened[opened] = append(g.opened[opened], head)
		}
		if joined >= 0 {
			g.wait(joined, tail)
		}
	}
	return nil
}

// call finds a request that a tool of a session names, by which another was opened.
func (g *graph) call(id, session, child string) (int, error) {
	i, ok := g.at[id]
	switch {
	case !ok:
		return 0, fmt.Errorf("session %q was opened or used by request %q, which is not there", child, id)
	case g.calls[i].Session != session:
		return 0, fmt.Errorf("session %q was opened by a tool of session %q for request %q, which is of session %q", child, session, id, g.calls[i].Session)
	}
	return i, nil
}

// timing says when call i comes after the last answer that it waited for. In a
// replay the time between passes as it did, whether tools took it or a person.
func (g *graph) timing(i int, uses []*use) {
	c := &g.calls[i]
	if len(g.after[i]) == 0 {
		return
	}
	var ready int64
	for _, j := range slices.Sorted(maps.Keys(g.after[i])) {
		c.After = append(c.After, g.calls[j].ID)
		ready = max(ready, g.calls[j].end)
	}
	gap := max(0, c.start-ready)
	c.Delay = time.Duration(gap) * time.Millisecond
	c.tools = g.toolsOf(i, ready, uses)
	c.toolWait = min(gap, together(c.tools, ready, c.start))
	c.Tool = c.Tool || c.toolWait > 0
}

// toolsOf returns the tools, in the order in which they began, whose results call i has:
// those that name it, and those that ended since the call before it began and name
// nobody. Ready is when the last answer came that it waited for.
func (g *graph) toolsOf(i int, ready int64, uses []*use) []*use {
	c := &g.calls[i]
	since := ready
	if j := g.before[i]; j >= 0 {
		since = g.calls[j].start
	}
	var of []*use
	for _, u := range uses {
		mine := u.consumer == c.ID
		if u.consumer == "" && !u.background {
			mine = u.end > since && u.end <= c.start
		}
		if mine {
			of = append(of, u)
		}
	}
	return of
}

// together returns for how long at least one of the tools ran between two moments. They
// come in the order in which they began.
func together(uses []*use, from, to int64) (ran int64) {
	for _, u := range uses {
		start, end := max(u.start, from), min(u.end, to)
		if end > start {
			ran += end - start
			from = end
		}
	}
	return ran
}

package satf

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/trace/tree"
)

// use is a tool that has ended.
type use struct {
	*tree.Tool
	told told
}

// told is what exporters of transcripts know of a tool.
type told struct {
	Source   string `json:"source_request_id"`
	Consumer string `json:"consumer_request_id"`
	Child    string `json:"child_session_id"`
	Mode     string `json:"execution_mode"`
}

// addTools adds the tools of a chain that have ended.
func (c *chain) addTools() error {
	add := func(tools []*tree.Tool) error {
		for _, u := range tools {
			if u.Inferred() || u.Running() {
				continue
			}
			use := &use{Tool: u}
			if claude := u.Record.Tool.Claude; len(claude) > 0 {
				if err := json.Unmarshal(claude, &use.told); err != nil {
					return fmt.Errorf("tool %q of session %q: claude: %w", u.ID, c.id, err)
				}
			}
			c.tools = append(c.tools, use)
		}
		return nil
	}
	if err := add(c.Tools); err != nil {
		return err
	}
	for _, t := range c.Chain.Turns {
		if err := add(t.Tools); err != nil {
			return err
		}
	}
	slices.SortStableFunc(c.tools, func(a, b *use) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Duration, b.Duration))
	})
	return nil
}

// session builds the graph of a chain.
func (d *document) session(c *chain) (*session, error) {
	s := &session{ID: c.id, Edges: []edge{}}
	s.Nodes = make([]node, len(c.turns), len(c.turns)+2*len(c.tools))
	for i, t := range c.turns {
		s.Nodes[i] = d.request(t)
	}
	path := map[[2]int]bool{} // between turns, over tools
	waits := make([]bool, len(c.turns))
	for i, u := range c.tools {
		call, result := u.nodes(i)
		source, consumer, err := c.ends(u)
		if err != nil {
			return nil, err
		}
		begun := c.begun(u, source)
		if source < 0 {
			call.MinStart = d.since(begun)
		} else {
			s.edge(s.Nodes[source].ID, call.ID, c.turns[source].End, begun)
		}
		s.edge(call.ID, result.ID, begun, begun)
		if consumer >= 0 && (source >= 0 || !begun.Before(d.start)) { // what began before the trace delays nothing
			s.edge(result.ID, s.Nodes[consumer].ID, begun.Add(u.Duration), c.turns[consumer].Start)
			path[[2]int{source, consumer}], waits[consumer] = true, true
		}
		s.Nodes = append(s.Nodes, call, result)
	}
	var before, running []int
	for i, t := range c.turns {
		before, running = c.before(before, running, t.Start)
		for _, k := range before {
			if waits[i] = true; !path[[2]int{k, i}] {
				s.edge(s.Nodes[k].ID, s.Nodes[i].ID, c.turns[k].End, t.Start)
			}
		}
		if i == 0 || !waits[i] {
			s.Nodes[i].MinStart = d.since(t.Start)
		}
		running = append(running, i)
	}
	var err error
	s.Extensions, err = d.around(c)
	return s, err
}

// over says whether what ended then had ended when a request came. When requests come is
// known in whole milliseconds, which were cut off.
func over(end, came time.Time) bool { return !end.Truncate(time.Millisecond).After(came) }

// before returns the turns that a request which comes now waits for: those that have ended,
// without those that the last one of them has waited for. It is handed those for the
// request before, and the turns that were still running; and returns these, too.
func (c *chain) before(ended, running []int, now time.Time) (before, still []int) {
	for _, i := range running {
		if over(c.turns[i].End, now) {
			ended = append(ended, i)
		} else {
			still = append(still, i)
		}
	}
	if len(ended) == 0 {
		return nil, still
	}
	last := slices.Max(ended)
	for _, i := range ended {
		if i == last || !over(c.turns[i].End, c.turns[last].Start) {
			before = append(before, i)
		}
	}
	return before, still
}

// ends returns the turns that a tool has run for and that bring its result; -1 where there
// is none.
func (c *chain) ends(u *use) (source, consumer int, err error) {
	source, named := c.requests[u.told.Source]
	if !named {
		if at, ok := c.at[u.Turn]; ok && u.Call != nil {
			source = at
		} else {
			source = c.during(u.Start)
		}
	}
	consumer, ok := c.requests[u.told.Consumer]
	switch {
	case ok && consumer <= source:
		return 0, 0, fmt.Errorf("tool %q of session %q: its result goes to request %q, which does not come after %q", u.ID, c.id, u.told.Consumer, c.turns[source].Request.RequestID)
	case ok:
		return source, consumer, nil
	case u.told.Mode == "background":
		return source, -1, nil
	}
	if at, ok := c.at[u.Answered]; ok && at > source {
		return source, at, nil
	}
	end := c.begun(u, source).Add(u.Duration)
	for i := source + 1; i < len(c.turns); i++ {
		if over(end, c.turns[i].Start) {
			return source, i, nil
		}
	}
	return source, -1, nil
}

// during returns the last turn that had ended by a moment, or -1: what no answer is known
// to have asked for waits for none that was still on its way.
func (c *chain) during(at time.Time) int {
	for i := len(c.turns) - 1; i >= 0; i-- {
		if over(c.turns[i].End, at) {
			return i
		}
	}
	return -1
}

// begun returns when a tool begins in the graph, which is not before its source has ended.
func (c *chain) begun(u *use, source int) time.Time {
	if source >= 0 && u.Start.Before(c.turns[source].End) {
		return c.turns[source].End
	}
	return u.Start
}

// around says what of other sessions a chain has to do with.
func (d *document) around(c *chain) (*extensions, error) {
	if c.Chain == nil || c.ParentID == "" {
		return nil, nil
	}
	e := &extensions{Dynamo: map[string]string{"parent_session_id": c.ParentID}}
	parent := d.of[c.Parent]
	if parent == nil || len(parent.turns) == 0 || len(c.turns) == 0 {
		return e, nil
	}
	opened, joined, named := -1, -1, false
	for _, u := range parent.tools {
		if u.told.Child == c.id {
			if named {
				return nil, fmt.Errorf("session %q was opened by two tools of session %q", c.id, parent.id)
			}
			var err error
			if opened, joined, err = parent.ends(u); err != nil {
				return nil, err
			}
			named = true
		}
	}
	if !named {
		head, tail := c.turns[0].Start, c.turns[0].End
		for _, t := range c.turns {
			if t.End.After(tail) {
				tail = t.End
			}
		}
		for i, t := range parent.turns {
			if !t.Start.After(head) {
				opened = i
			} else if joined < 0 && over(tail, t.Start) {
				joined = i
			}
		}
	}
	var ours kin
	if opened >= 0 {
		ours.Spawned = nodeID(parent.turns[opened])
	}
	if joined >= 0 {
		ours.Joined = nodeID(parent.turns[joined])
	}
	if ours != (kin{}) {
		e.Dynago = &ours
	}
	return e, nil
}

// since returns how long after the beginning of the trace something was.
func (d *document) since(at time.Time) *int64 { return new(micros(d.start, at)) }

// micros returns the time between two moments, which is not negative. It is more than a
// [time.Duration] holds where records are wrong.
func micros(from, to time.Time) int64 { return max(0, to.UnixMicro()-from.UnixMicro()) }

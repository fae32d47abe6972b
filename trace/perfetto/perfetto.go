// Package perfetto draws traces of requests as timelines, in the Trace Event format that
// ui.perfetto.dev and chrome://tracing open:
//
//	lead            ▐ LLM request ▌          ▐ LLM request ▌
//	lead tools                     ▐ Tool: bash ▌
//	lead:explorer          ▐ LLM request ▌
//
// The one idea: a chain of turns has a lane, and as many more as things of it ran at the
// same time, so that slices of a lane never cross. Each lane has a track for requests and
// one for tools.
package perfetto

import (
	"bufio"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace/tree"
)

// Options say what is drawn.
type Options struct {
	NoStages bool // leave out what requests spent their time on
	Markers  bool // mark first tokens
	Pretty   bool // indent the JSON
}

// requestOnly is the chain of requests that belong to no agent.
const requestOnly = "request-only"

// event is one entry of the timeline. Times are in microseconds.
type event struct {
	Name     string `json:"name"`
	Category string `json:"cat,omitzero"`
	Phase    string `json:"ph"`
	Scope    string `json:"s,omitzero"`
	PID      int    `json:"pid"`
	TID      int    `json:"tid,omitzero"`
	TS       *int64 `json:"ts,omitzero"`
	Dur      *int64 `json:"dur,omitzero"`
	Args     args   `json:"args"`
}

// args are what the viewer shows of an entry.
type args map[string]any

// kinds of items, in the order of those that begin together.
const (
	inferredItem = iota
	requestItem
	toolItem
	instantItem
)

// item is one thing that occupies a lane.
type item struct {
	kind    int
	chain   string
	ts, dur int64
	turn    *tree.Turn
	tool    *tree.Tool
}

// Write draws a tree. It returns how many requests and tools are on the timeline.
func Write(to io.Writer, t *tree.Tree, o Options) (drawn int, err error) {
	items := collect(t)
	tracks := newTracks()
	events := make([]event, 0, 4*len(items))
	for i := range items {
		it := &items[i]
		lane := tracks.lane(it.chain, it.ts, it.ts+it.dur)
		if it.kind == requestItem {
			events = requestEvents(events, it, tracks.track(it.chain, lane, false), o)
		} else {
			events = append(events, toolEvent(it, tracks.track(it.chain, lane, true)))
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(*a.TS, *b.TS), cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID))
	})
	return len(items), encode(to, tracks.metadata(), events, o.Pretty)
}

// collect returns what is on the timeline, in the order in which it begins.
func collect(t *tree.Tree) []item {
	var items []item
	add := func(c *tree.Chain) {
		name := cmp.Or(c.ID, requestOnly)
		for _, turn := range c.Turns {
			items = append(items, item{kind: requestItem, chain: name, turn: turn, ts: turn.Start.UnixMicro(), dur: max(1, turn.End.Sub(turn.Start).Microseconds())})
			items = appendTools(items, name, turn.Tools)
		}
		items = appendTools(items, name, c.Tools)
	}
	for _, root := range t.Sessions {
		root.Walk(add)
	}
	add(t.Alone)
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.ts, b.ts), cmp.Compare(a.kind, b.kind))
	})
	return items
}

// synthetic is how long a slice is of which nobody knows that.
const synthetic = 1000

func appendTools(items []item, chain string, tools []*tree.Tool) []item {
	for _, u := range tools {
		it := item{kind: toolItem, chain: chain, tool: u, ts: u.Start.UnixMicro(), dur: u.Duration.Microseconds()}
		switch {
		case u.Running():
			it.kind, it.dur = instantItem, 1
		case u.Inferred():
			it.kind = inferredItem
		}
		if it.dur == 0 {
			it.dur = synthetic
		}
		items = append(items, it)
	}
	return items
}

// encode writes the document, an entry a line.
func encode(to io.Writer, metadata, events []event, pretty bool) error {
	out := bufio.NewWriterSize(to, 1<<16)
	between, options := ",\n", json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if pretty {
		options = json.JoinOptions(options, jsontext.WithIndentPrefix("    "), jsontext.WithIndent("  "))
	}
	fmt.Fprint(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")
	first := true
	for _, list := range [][]event{metadata, events} {
		for i := range list {
			if !first {
				fmt.Fprint(out, between)
			}
			first = false
			text, err := json.Marshal(&list[i], options)
			if err != nil {
				return fmt.Errorf("write timeline: %s: %w", list[i].Name, err)
			}
			out.Write(text) //nolint:errcheck // Flush tells
		}
	}
	fmt.Fprint(out, "\n]}\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// tracks are the tracks of the timeline, and which lanes of chains are taken.
type tracks struct {
	ids   map[trackKey]int
	order []trackKey
	lanes map[string]*lanes
}

type trackKey struct {
	chain string
	lane  int
	tools bool
}

func newTracks() *tracks {
	return &tracks{ids: map[trackKey]int{}, lanes: map[string]*lanes{}}
}

// lane takes the lowest lane of a chain that is free from start on. Starts must not
// decrease.
func (t *tracks) lane(chain string, start, end int64) int {
	l := t.lanes[chain]
	if l == nil {
		l = new(lanes)
		t.lanes[chain] = l
	}
	return l.take(start, end)
}

// track returns the id of a track.
func (t *tracks) track(chain string, lane int, tools bool) int {
	k := trackKey{chain, lane, tools}
	id, ok := t.ids[k]
	if !ok {
		id = len(t.ids) + 1
		t.ids[k] = id
		t.order = append(t.order, k)
	}
	return id
}

// metadata names the tracks.
func (t *tracks) metadata() []event {
	if len(t.order) == 0 {
		return nil
	}
	list := []event{{Name: "process_name", Phase: "M", PID: 1, Args: args{"name": "Dynamo request trace"}}}
	for i, k := range t.order {
		name := k.chain
		if t.lanes[k.chain].most > 1 {
			name += fmt.Sprintf(" [lane %d]", k.lane+1)
		}
		if k.tools {
			name += " tools"
		}
		list = append(list, event{Name: "thread_name", Phase: "M", PID: 1, TID: i + 1, Args: args{"name": name}})
	}
	return list
}

// lanes are those of one chain.
type lanes struct {
	busy busy
	free intHeap // below most
	most int     // that were ever taken
}

func (l *lanes) take(start, end int64) int {
	for len(l.busy) > 0 && l.busy[0].end <= start {
		heap.Push(&l.free, heap.Pop(&l.busy).(taken).lane)
	}
	lane := l.most
	if len(l.free) > 0 {
		lane = heap.Pop(&l.free).(int)
	} else {
		l.most++
	}
	heap.Push(&l.busy, taken{end, lane})
	return lane
}

type taken struct {
	end  int64
	lane int
}

// busy is a heap of lanes by when they are free.
type busy []taken

func (b busy) Len() int           { return len(b) }
func (b busy) Less(i, j int) bool { return b[i].end < b[j].end }
func (b busy) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *busy) Push(x any)        { *b = append(*b, x.(taken)) }
func (b *busy) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// intHeap is a heap of numbers.
type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

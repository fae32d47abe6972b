// Package aside gathers what an answer carries for its client besides its blocks,
// and writes it as the member nvext of chunks and of whole answers.
//
// The one idea: what is told travels as events, in its place in the stream. So the
// encoders of all APIs need only note each event that passes, and ask, whenever they
// send a chunk, what has come since the last one. What came with something that was
// held back goes with what is sent next, and a whole answer has the sum. Where nobody
// has asked, there is nothing to gather, and nothing is allocated.
package aside

import (
	"slices"
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// Gatherer is what one encoder has noted. The zero value is of a client that has
// asked for nothing. It is for one goroutine.
type Gatherer struct{ *gathered }

// gathered is the state of a gatherer that has something to do.
type gathered struct {
	want    nvext.Fields
	choices []choice
	whole   []member // the last value of each
	ids     []uint32 // of the answer
	sent    int      // of these, in chunks
	timed   bool     // the first choice that has finished tells of times
	ended   int      // choices
}

// choice is what was noted of one choice and not sent yet.
type choice struct {
	worker  string // goes with every chunk
	waiting []member
	stop    []byte // what has stopped it, as JSON; nil: nothing of the client's
}

// member is one of the object.
type member struct{ name, value string }

// New returns a gatherer for an answer with so many choices.
func New(ext *nvext.Ext, choices int) Gatherer {
	want := ext.Fields()
	if want == 0 {
		return Gatherer{}
	}
	return Gatherer{&gathered{want: want, choices: make([]choice, choices)}}
}

// Note takes what an event tells. It must see all events of an answer, each once,
// before what the event gives is written.
func (g *Gatherer) Note(e *chat.Event) {
	if g.gathered == nil {
		if e.Kind != chat.Aside {
			return
		}
		g.gathered = new(gathered)
	}
	for e.Choice >= len(g.choices) {
		g.choices = append(g.choices, choice{})
	}
	c := &g.choices[e.Choice]
	if g.want.Has(nvext.WantCompletionTokenIDs) {
		g.ids = append(g.ids, e.IDs...)
	}
	switch e.Kind {
	case chat.Aside:
		g.tell(c, member{e.Reason, string(wire.OneLine(wire.CleanRaw([]byte(e.Text))))})
	case chat.Finished:
		g.finish(c, &e.Finish)
	}
}

// tell notes one member.
func (g *gathered) tell(c *choice, m member) {
	switch m.name {
	case nvext.MemberWorkerID:
		c.worker = m.value
		g.whole = set(g.whole, m)
		return
	case nvext.MemberTiming:
		if g.timed {
			return
		}
		g.timed = true
	}
	c.waiting = set(c.waiting, m)
	g.whole = set(g.whole, m)
}

// set gives a member its last value.
func set(list []member, m member) []member {
	if i := slices.IndexFunc(list, func(other member) bool { return other.name == m.name }); i >= 0 {
		list[i] = m
		return list
	}
	return append(list, m)
}

// finish notes what has stopped a choice. Several choices are told of together, when
// the last of them has ended.
func (g *gathered) finish(c *choice, f *chat.Finish) {
	g.ended++
	if !g.want.Has(nvext.WantStopReason) {
		return
	}
	switch {
	case f.StopText != "":
		c.stop = wire.AppendString(nil, f.StopText)
	case len(f.StopIDs) > 0:
		c.stop = AppendIDs(nil, f.StopIDs)
	case f.StopID != nil:
		c.stop = strconv.AppendUint(nil, uint64(*f.StopID), 10)
	}
	switch {
	case len(g.choices) == 1 && c.stop != nil:
		g.tell(c, member{nvext.MemberStopReason, string(c.stop)})
	case len(g.choices) > 1 && g.ended == len(g.choices):
		if all := g.stops(); all != "" {
			g.tell(c, member{nvext.MemberStopReasons, all})
		}
	}
}

// stops returns what has stopped each choice, by its number; "" if nothing has.
func (g *gathered) stops() string {
	var dst []byte
	for i := range g.choices {
		if g.choices[i].stop == nil {
			continue
		}
		if dst == nil {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, '"'), int64(i), 10)
		dst = append(append(dst, `":`...), g.choices[i].stop...)
	}
	if dst == nil {
		return ""
	}
	return string(append(dst, '}'))
}

// Holds says whether something waits for the next chunk of a choice, besides what
// goes with every one.
func (g *Gatherer) Holds(choice int) bool {
	return g.gathered != nil && (len(g.ids) > g.sent || choice < len(g.choices) && len(g.choices[choice].waiting) > 0)
}

// AppendChunk appends the member that goes with the next chunk of a choice, behind a
// comma, or nothing.
func (g *Gatherer) AppendChunk(dst []byte, choice int) []byte {
	if g.gathered == nil || choice >= len(g.choices) {
		return dst
	}
	c := &g.choices[choice]
	w := writer{dst: dst}
	if c.worker != "" {
		w.member(member{nvext.MemberWorkerID, c.worker})
	}
	for _, m := range c.waiting {
		w.member(m)
	}
	w.ids(g.ids[g.sent:])
	g.sent = len(g.ids)
	clear(c.waiting)
	c.waiting = c.waiting[:0]
	return w.end()
}

// AppendWhole appends the member that goes with the whole answer, as far as it has
// come, behind a comma, or nothing.
func (g *Gatherer) AppendWhole(dst []byte) []byte {
	if g.gathered == nil {
		return dst
	}
	w := writer{dst: dst}
	for _, m := range g.whole {
		w.member(m)
	}
	w.ids(g.ids)
	return w.end()
}

// writer writes the object, if there is a member.
type writer struct {
	dst []byte
	any bool
}

// begin writes what stands before a value.
func (w *writer) begin(name string) {
	if w.any {
		w.dst = append(w.dst, `,"`...)
	} else {
		w.dst = append(w.dst, `,"nvext":{"`...)
	}
	w.any = true
	w.dst = append(append(w.dst, name...), `":`...)
}

func (w *writer) member(m member) {
	w.begin(m.name)
	w.dst = append(w.dst, m.value...)
}

func (w *writer) ids(ids []uint32) {
	if len(ids) == 0 {
		return
	}
	w.begin(nvext.MemberCompletionTokenIDs)
	w.dst = AppendIDs(w.dst, ids)
}

func (w *writer) end() []byte {
	if w.any {
		w.dst = append(w.dst, '}')
	}
	return w.dst
}

// AppendIDs appends token ids as a JSON array.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

package parser

import (
	"slices"

	"github.com/dynago/dynago/chat"
)

// out writes the events of one choice, and keeps the ids of the pieces until the
// text that they belong to is released.
type out struct {
	dst      []chat.Event
	index    int       // of the block that is open, or of the next one
	kind     chat.Kind // of the block that is open, or ""
	complete bool      // the call that is open, or was open last, is complete

	in, pos int64 // bytes that arrived, and bytes that were accounted for
	waiting []ids // of pieces that end behind pos

	single     bool // one call, and nothing after it
	completed  int  // calls
	markup     int  // bytes that were neither released nor dropped
	thoughtIDs int
}

// ids are the ids of a piece and the place of its end.
type ids struct {
	end      int64
	ids      []uint32
	logprobs []chat.Logprob
}

// arrive notes a piece.
func (o *out) arrive(p chat.Piece) {
	o.in += int64(len(p.Text))
	if len(p.IDs) > 0 || len(p.Logprobs) > 0 {
		o.waiting = append(o.waiting, ids{o.in, p.IDs, p.Logprobs})
	}
}

// flush hands over the events written since the last flush.
func (o *out) flush() []chat.Event {
	dst := o.dst
	o.dst = nil
	return dst
}

// event appends an event, with the ids of all pieces that end at pos or before.
func (o *out) event(kind chat.EventKind) *chat.Event {
	dst, e := grown(o.dst)
	o.dst = dst
	e.Kind, e.Index = kind, o.index
	n := 0
	for n < len(o.waiting) && o.waiting[n].end <= o.pos {
		n++
	}
	if n == 0 {
		return e
	}
	e.IDs, e.Logprobs = o.waiting[0].ids, o.waiting[0].logprobs
	if n > 1 {
		e.IDs, e.Logprobs = join(o.waiting[:n])
	}
	if kind == chat.ThinkingDelta || kind == chat.BlockStop && o.kind == chat.Thought {
		o.thoughtIDs += len(e.IDs)
	}
	// A call that was held with a thousand others releases a few at a time: they
	// are cut off, not moved.
	clear(o.waiting[:n])
	if n == len(o.waiting) {
		n, o.waiting = 0, o.waiting[:0]
	}
	o.waiting = o.waiting[n:]
	return e
}

// grown appends an empty event, in its place: events are large.
func grown(dst []chat.Event) ([]chat.Event, *chat.Event) {
	n := len(dst)
	if n == cap(dst) {
		dst = slices.Grow(dst, 1)
	}
	dst = dst[:n+1]
	dst[n] = chat.Event{}
	return dst, &dst[n]
}

// join copies the ids of several pieces into one list.
func join(parts []ids) (list []uint32, logprobs []chat.Logprob) {
	for _, p := range parts {
		list = append(list, p.ids...)
		logprobs = append(logprobs, p.logprobs...)
	}
	return list, logprobs
}

// say releases the next bytes as text or thinking.
func (o *out) say(kind chat.Kind, text string) {
	if text == "" {
		return
	}
	if o.shut() {
		o.drop(DroppedParallel, text)
		return
	}
	delta := chat.TextDelta
	if kind == chat.Thought {
		delta = chat.ThinkingDelta
	}
	if o.kind != kind {
		o.stop(false)
		o.event(chat.BlockStart).BlockKind = kind
		o.kind = kind
	}
	o.pos += int64(len(text))
	o.event(delta).Text = text
}

// pass releases a piece as a delta of the text or the thinking that is open,
// when nothing is held back.
func (o *out) pass(dst []chat.Event, p chat.Piece) []chat.Event {
	o.in += int64(len(p.Text))
	o.pos = o.in
	kind := chat.TextDelta
	if o.kind == chat.Thought {
		kind = chat.ThinkingDelta
		o.thoughtIDs += len(p.IDs)
	}
	dst, e := grown(dst)
	e.Kind, e.Index, e.Text, e.IDs, e.Logprobs = kind, o.index, p.Text, p.IDs, p.Logprobs
	return dst
}

// call opens the block of a tool call.
func (o *out) call(id, native, name string) {
	o.stop(false)
	e := o.event(chat.BlockStart)
	e.BlockKind, e.Tool = chat.ToolCall, &chat.ToolUse{ID: id, NativeID: native, Name: name, Kind: chat.ToolFunction}
	o.kind, o.complete = chat.ToolCall, false
}

// args releases arguments that were read from the next n bytes. Where the two
// differ in length (an escaped object, an object that was not written at all),
// the difference is markup.
func (o *out) args(text string, n int) {
	o.pos += int64(n)
	o.markup += n - len(text)
	if text != "" {
		o.event(chat.ArgsDelta).Text = text
	}
}

// done marks the open call as complete.
func (o *out) done() { o.complete, o.completed = true, o.completed+1 }

// skip passes over n bytes of markup.
func (o *out) skip(n int) {
	o.pos += int64(n)
	o.markup += n
}

// drop reports the next bytes as dropped.
func (o *out) drop(reason, text string) {
	if text == "" {
		return
	}
	o.pos += int64(len(text))
	e := o.event(chat.Dropped)
	e.Text, e.Reason = text, reason
}

// stop closes the open block, if there is one.
func (o *out) stop(truncated bool) {
	if o.kind == "" {
		return
	}
	o.event(chat.BlockStop).Truncated = truncated
	o.index++
	o.kind = ""
}

// shut says whether nothing more may be said.
func (o *out) shut() bool { return o.single && o.completed > 0 }

// Package answer puts what a text engine says into the order of our events. Such
// engines stream pieces of thought, text and calls in whatever order their parsers
// find them; an answer here is a row of blocks, of which at most one is open.
//
// The one idea: adapters say pieces, and blocks open and close by themselves. What
// the engine has not counted is counted by pieces.
package answer

import (
	"fmt"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// Writer writes one answer. Its methods return false when nobody listens any more,
// which they keep returning. It is for one goroutine.
type Writer struct {
	id    string
	usage chat.Usage
	yield func(chat.Event, error) bool

	begun  bool
	left   bool
	open   chat.Kind // the kind of the open block, or ""
	blocks int       // opened so far
	calls  int
	pieces int
}

// New returns a writer of the answer to a request.
func New(r *engine.Request, yield func(chat.Event, error) bool) *Writer {
	return &Writer{id: r.ID, usage: chat.Usage{Prompt: len(r.TokenIDs)}, yield: yield}
}

// Begin tells that the engine answers. What follows does it, too.
func (w *Writer) Begin() bool {
	if w.begun {
		return !w.left
	}
	w.begun = true
	return w.tell(chat.Event{Kind: chat.Start, Usage: w.usage})
}

// deltas are how pieces of blocks are told.
var deltas = map[chat.Kind]chat.EventKind{
	chat.Thought: chat.ThinkingDelta, chat.Text: chat.TextDelta, chat.Refusal: chat.RefusalDelta,
}

// Say adds a piece of thought, text or refusal. An empty one adds nothing.
func (w *Writer) Say(kind chat.Kind, text string) bool {
	if text == "" {
		return w.Begin()
	}
	w.pieces++
	if w.open != kind && !w.block(kind, nil) {
		return false
	}
	return w.tell(chat.Event{Kind: deltas[kind], Index: w.blocks - 1, Text: text})
}

// Call begins a call of a tool. An engine that gives no ids has some made for it.
func (w *Writer) Call(id, name string) bool {
	w.pieces++
	if id == "" {
		id = fmt.Sprintf("call_%s_%d", w.id, w.calls)
	}
	w.calls++
	return w.block(chat.ToolCall, &chat.ToolUse{ID: id, Name: name, Kind: chat.ToolFunction})
}

// Calling says whether the open block is a call.
func (w *Writer) Calling() bool { return w.open == chat.ToolCall }

// Args adds to the arguments of the open call.
func (w *Writer) Args(text string) bool {
	if text == "" {
		return !w.left
	}
	w.pieces++
	return w.tell(chat.Event{Kind: chat.ArgsDelta, Index: w.blocks - 1, Text: text})
}

// Calls returns how many calls there were.
func (w *Writer) Calls() int { return w.calls }

// End says the last word. Without usage the prompt is what was known of it, and
// each piece stands for a token. A call that the limit cuts is marked.
func (w *Writer) End(f chat.Finish, u *chat.Usage) {
	if u == nil {
		w.usage.Output = w.pieces
		u = &w.usage
	}
	if w.Begin() && w.close(f.Reason == chat.FinishLength) {
		w.tell(chat.Event{Kind: chat.Finished, Usage: *u, Finish: f})
	}
}

// block opens a block, and closes the one before it.
func (w *Writer) block(kind chat.Kind, use *chat.ToolUse) bool {
	if !w.Begin() || !w.close(false) {
		return false
	}
	w.open = kind
	w.blocks++
	return w.tell(chat.Event{Kind: chat.BlockStart, Index: w.blocks - 1, BlockKind: kind, Tool: use})
}

func (w *Writer) close(cut bool) bool {
	if w.open == "" {
		return !w.left
	}
	cut = cut && w.Calling()
	w.open = ""
	return w.tell(chat.Event{Kind: chat.BlockStop, Index: w.blocks - 1, Truncated: cut})
}

func (w *Writer) tell(e chat.Event) bool {
	w.left = w.left || !w.yield(e, nil)
	return !w.left
}

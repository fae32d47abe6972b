package pipeline

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// answer is how the text of one choice becomes its events.
type answer struct {
	choice int
	// counted says whether this choice's usage counts the prompt: the first
	// choice of a prompt does, so that usage adds up over choices.
	counted bool
	prompt  int
	// echoes says that the answer begins with the prompt, although the model did
	// not write it; echo is its text.
	echoes bool
	echo   string
	parser *parser.Parser
	// oneCall ends the answer with its first complete call.
	oneCall bool
	// remember takes the tokens of the answer, once it has ended in whatever way.
	remember func(ids []uint32, said *prompt.Saying)
	// said gathers what the answer says; nil if that is of no use.
	said *prompt.Saying
}

// settled says whether the answer so far could end here: a call is complete,
// and nothing is open.
func (a *answer) settled() bool {
	completed, open := a.parser.Calls()
	return completed > 0 && !open && !a.parser.Thinking()
}

// mostEvents is how many events of one delta are gathered before they go out.
// A delta that waited for a slow client may have a whole answer in it.
const mostEvents = 128

// rooms are where the events of a delta are gathered. They are large, and a stream
// that waits has none.
var rooms = sync.Pool{New: func() any { return new(make([]chat.Event, 0, 8)) }}

// events turns text into the events of one choice. The parser is a machine
// without time; this is the loop around it.
func (a *answer) events(outputs iter.Seq2[prompt.Output, error]) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		var (
			room    *[]chat.Event
			buf     []chat.Event // in room
			started bool
			ids     []uint32 // tokens seen
			cached  *int
		)
		remember := sync.OnceFunc(func() { a.remember(ids, a.said) })
		defer remember()
		send := func() bool {
			whole := buf
			buf = joined(buf)
			for i := range buf {
				buf[i].Choice = a.choice
				if a.said != nil {
					a.said.Event(&buf[i])
				}
				if !yield(buf[i], nil) {
					return false
				}
			}
			if clear(whole); cap(whole) <= 2*mostEvents {
				*room = whole[:0]
				rooms.Put(room)
			}
			room, buf = nil, nil
			return true
		}
		finish := func(f chat.Finish, u engine.Usage) {
			buf, f.Reason = a.parser.Finish(buf, f.Reason)
			markLast(buf)
			if u.Reasoning == nil {
				if n := a.parser.ReasoningTokens(); n > 0 {
					u.Reasoning = &n
				}
			}
			if send() {
				remember() // before the client can send what comes next
				yield(chat.Event{Kind: chat.Finished, Choice: a.choice, Finish: f, Usage: a.usage(u, cached)}, nil)
			}
		}
		for out, err := range outputs {
			if room == nil {
				room = rooms.Get().(*[]chat.Event)
				buf = *room
			}
			if err != nil {
				// A call that is complete is an answer, also from an engine that
				// forgot to say so.
				if engine.KindOf(err) == engine.StreamIncomplete && a.settled() {
					finish(chat.Finish{Reason: chat.FinishStop}, engine.Usage{Output: len(ids)})
					return
				}
				fail(yield, err)
				return
			}
			if out.Cached != nil && cached == nil {
				n := min(*out.Cached, a.prompt)
				cached = &n
			}
			if !started {
				started = true
				buf = a.start(buf, cached, out.PromptLogprobs)
			}
			ids = append(ids, out.Piece.IDs...)
			buf = a.parser.Push(buf, out.Piece)
			switch {
			case out.End != nil:
				finish(finishOf(out.End), out.End.Usage)
				return
			case a.oneCall && a.settled():
				finish(chat.Finish{Reason: chat.FinishStop}, engine.Usage{Output: len(ids)})
				return
			}
			if out.More && len(buf) < mostEvents {
				continue
			}
			if !send() {
				return
			}
		}
	}
}

// start appends what an answer begins with.
//
//go:noinline // see fail
func (a *answer) start(buf []chat.Event, cached *int, prompt []chat.Logprob) []chat.Event {
	buf = append(buf, chat.Event{Kind: chat.Start, Usage: chat.Usage{Prompt: a.prompt, Cached: cached}})
	if a.echoes {
		buf = a.parser.Push(buf, chat.Piece{Text: a.echo, Logprobs: prompt})
	}
	return buf
}

// joined makes one event of neighbours that add to the same block, so that what
// came in one delta goes out in one.
func joined(events []chat.Event) []chat.Event {
	out := events[:0]
	for len(events) > 0 {
		n := 1
		for n < len(events) && isDelta(events[0].Kind) && events[n].Kind == events[0].Kind && events[n].Index == events[0].Index {
			n++
		}
		out = append(out, join(events[:n]))
		events = events[n:]
	}
	return out
}

// join makes one event of a run.
func join(run []chat.Event) chat.Event {
	e := run[0]
	if len(run) == 1 {
		return e
	}
	size, ids, logprobs := 0, 0, 0
	for i := range run {
		size, ids, logprobs = size+len(run[i].Text), ids+len(run[i].IDs), logprobs+len(run[i].Logprobs)
	}
	var text strings.Builder
	text.Grow(size)
	// Those of run[0] are not ours to grow.
	e.IDs, e.Logprobs = slices.Grow[[]uint32](nil, ids), slices.Grow[[]chat.Logprob](nil, logprobs)
	for i := range run {
		text.WriteString(run[i].Text)
		e.IDs = append(e.IDs, run[i].IDs...)
		e.Logprobs = append(e.Logprobs, run[i].Logprobs...)
	}
	e.Text, e.Last = text.String(), run[len(run)-1].Last
	return e
}

// markLast marks the last delta of an answer among the events that it ends with.
func markLast(events []chat.Event) {
	for i := len(events) - 1; i >= 0; i-- {
		if isDelta(events[i].Kind) {
			events[i].Last = true
			return
		}
	}
}

func isDelta(k chat.EventKind) bool {
	return k == chat.TextDelta || k == chat.ThinkingDelta || k == chat.ArgsDelta || k == chat.RefusalDelta
}

func (a *answer) usage(u engine.Usage, cached *int) chat.Usage {
	out := chat.Usage{Output: u.Output, Reasoning: u.Reasoning}
	if a.counted {
		out.Prompt, out.Cached = a.prompt, cached
	}
	return out
}

func finishOf(e *prompt.End) chat.Finish {
	f := chat.Finish{StopText: e.StopText, StopID: e.StopID, StopIDs: e.StopIDs}
	switch e.Finish {
	case engine.FinishLength:
		f.Reason = chat.FinishLength
	case engine.FinishContentFilter:
		f.Reason = chat.FinishContentFilter
	case engine.FinishStop:
		f.Reason = chat.FinishStop
		if e.StopText != "" || e.StopID != nil {
			f.Reason = chat.FinishStopSequence
		}
	default:
		f.Reason = chat.FinishStop
	}
	return f
}

// thinks says whether thinking is read in the answer. Where the prompt has opened
// a thought it is, whatever the request says.
func (j *job) thinks() bool {
	r := j.request.Chat
	c := parser.Controls{Thinking: r.Thinking.Enabled, Effort: r.Thinking.Effort}
	var args struct {
		Mode   any `json:"thinking_mode"`
		Effort any `json:"reasoning_effort"`
	}
	if len(r.TemplateArgs) > 0 && json.Unmarshal(r.TemplateArgs, &args) == nil {
		c.Mode, _ = args.Mode.(string)
		if effort, ok := args.Effort.(string); ok {
			c.Effort = effort
		}
	}
	return j.prompt.Start == parser.StartReasoning || j.model.Family.ThinksWith(c)
}

// nonEmpty says whether the client wants thoughts for an answer if there is no
// other.
func (j *job) nonEmpty() bool {
	r := j.request.Chat
	var args struct {
		Force any `json:"force_nonempty_content"`
	}
	if r.API != chat.APIChat || len(r.TemplateArgs) == 0 || json.Unmarshal(r.TemplateArgs, &args) != nil {
		return false
	}
	return args.Force == true
}

// nonEmpty makes text of the thoughts of an answer that has nothing else. They
// wait for what comes behind them, and with them everything.
func nonEmpty(events iter.Seq2[chat.Event, error]) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		var held []chat.Event
		spoken := false
		release := func() bool {
			for _, e := range held {
				if !yield(e, nil) {
					return false
				}
			}
			held = nil
			return true
		}
		for e, err := range events {
			switch {
			case spoken:
			case err != nil, e.Kind == chat.BlockStart && e.BlockKind != chat.Thought:
				spoken = true
			case e.Kind == chat.Finished:
				for i := range held {
					asText(&held[i])
				}
				spoken = true
			case len(held) > 0 || e.Kind == chat.BlockStart:
				held = append(held, e)
				continue
			}
			if !release() || !yield(e, err) {
				return
			}
		}
	}
}

// asText makes an event of thinking one of text.
func asText(e *chat.Event) {
	switch e.Kind {
	case chat.BlockStart:
		e.BlockKind = chat.Text
	case chat.ThinkingDelta:
		e.Kind = chat.TextDelta
	}
}

// mostShown is how much of what was dropped is logged.
const mostShown = 200

// dropped counts what the parser had to drop.
func (j *job) dropped(e *chat.Event) {
	j.p.drops.add(j.model.Family.String(), e.Reason)
	if j.p.Logger.Enabled(context.Background(), slog.LevelDebug) {
		j.p.Logger.Debug("dropped generated text", "request", j.request.ID, "family", j.model.Family.String(),
			"reason", e.Reason, "bytes", len(e.Text), "text", e.Text[:min(len(e.Text), mostShown)])
	}
}

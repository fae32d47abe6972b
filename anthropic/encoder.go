package anthropic

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/aside"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
)

// Header is what names one answer.
type Header struct {
	ID    string // the request's UUID
	Model string // primary name, also where an alias was asked for
}

// Encoder writes one answer, streamed or whole. It only appends to what it is
// given. It is for one goroutine, but for [Encoder.AppendOpening] and
// [Encoder.AppendPing], which another may call.
type Encoder struct {
	call *Call
	id   string
	head Header

	// start is what was known of the prompt when the answer began, and of it alone.
	start atomic.Pointer[chat.Usage]

	open     chat.Kind // of the open block; empty if none is
	index    int       // of the open block, or of the next one
	delta    []byte    // what all deltas of the open block begin with
	thoughts int       // begun
	digest   envelope.Digest
	hidden   []byte // what the open thought says, if the client is not shown it
	invalid  int    // inputs that were no objects
	finished bool
	extra    aside.Gatherer // what the answer carries besides
}

// Encoder returns an encoder for the answer to c.
func (c *Call) Encoder(h Header) *Encoder {
	return &Encoder{call: c, head: h, extra: aside.New(c.Ext, 1), id: "msg_" + strings.ReplaceAll(h.ID, "-", "")}
}

// AppendOpening appends the event with which a stream begins. The prompt's length
// is in it once the answer has begun.
func (e *Encoder) AppendOpening(dst []byte) []byte {
	usage := e.start.Load()
	if usage == nil {
		usage = new(chat.Usage)
	}
	dst = append(dst, "event: message_start\ndata: "+`{"type":"message_start","message":`...)
	dst = append(e.appendHead(dst), `[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	dst = appendUsage(dst, usage)
	if e.call.marked {
		dst = e.call.appendCreation(append(dst, `,"cache_creation":`...), usage)
	}
	return append(dst, "}}}\n\n"...)
}

// appendHead appends a message up to its content.
func (e *Encoder) appendHead(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = wire.AppendString(dst, e.id)
	dst = append(dst, `,"type":"message","role":"assistant","model":`...)
	dst = wire.AppendString(dst, e.head.Model)
	return append(dst, `,"content":`...)
}

// AppendPing appends a sign of life.
func (e *Encoder) AppendPing(dst []byte) []byte {
	return append(dst, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// AppendEvent appends the complete frames that an event gives, or nothing. The API
// has one choice: events of others give nothing.
func (e *Encoder) AppendEvent(dst []byte, event chat.Event) []byte {
	if event.Choice > 0 {
		return dst
	}
	e.extra.Note(&event)
	switch event.Kind {
	case chat.Start:
		u := event.Usage
		e.start.Store(&chat.Usage{Prompt: u.Prompt, Cached: u.Cached, Written: u.Written})
	case chat.BlockStart:
		return e.appendBlockStart(dst, &event)
	case chat.TextDelta, chat.ThinkingDelta, chat.ArgsDelta, chat.RefusalDelta:
		return e.appendDelta(dst, event.Text)
	case chat.BlockStop:
		return e.appendBlockStop(dst)
	case chat.Finished:
		e.finished = true
		return e.appendFinish(dst, &event)
	}
	return dst
}

func (e *Encoder) appendBlockStart(dst []byte, event *chat.Event) []byte {
	kind, delta := "", ""
	switch {
	case event.BlockKind == chat.Text, event.BlockKind == chat.Refusal:
		kind, delta = `{"type":"text","text":""}`, `{"type":"text_delta","text":"`
	case event.BlockKind == chat.Thought:
		kind, delta = `{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"`
		e.thoughts++
		e.hidden = e.hidden[:0]
	case event.BlockKind == chat.ToolCall && event.Tool != nil:
		delta = `{"type":"input_json_delta","partial_json":"`
	default:
		return dst
	}
	e.open = event.BlockKind
	dst = append(dst, "event: content_block_start\ndata: "+`{"type":"content_block_start","index":`...)
	dst = strconv.AppendInt(dst, int64(e.index), 10)
	dst = append(dst, `,"content_block":`...)
	if kind != "" {
		dst = append(dst, kind...)
	} else {
		dst = append(appendCall(dst, event.Tool), `{}}`...)
	}
	dst = append(dst, "}\n\n"...)

	e.delta = append(e.delta[:0], "event: content_block_delta\ndata: "+`{"type":"content_block_delta","index":`...)
	e.delta = strconv.AppendInt(e.delta, int64(e.index), 10)
	e.delta = append(append(e.delta, `,"delta":`...), delta...)
	return dst
}

// appendCall appends a call up to its input. Its id is spelled as the API does.
func appendCall(dst []byte, use *chat.ToolUse) []byte {
	dst = append(dst, `{"type":"tool_use","id":"`...)
	id := use.ID
	if rest, ok := strings.CutPrefix(id, "call_"); ok {
		dst, id = append(dst, "toolu_"...), rest
	}
	dst = append(wire.AppendEscaped(dst, id), `","name":`...)
	dst = wire.AppendString(dst, use.Name)
	return append(dst, `,"input":`...)
}

func (e *Encoder) appendDelta(dst []byte, text string) []byte {
	if e.open == "" || text == "" {
		return dst
	}
	if e.open == chat.Thought {
		if e.call.omitThoughts {
			e.hidden = append(e.hidden, text...)
			return dst
		}
		e.digest.Add(wire.CleanText(text))
	}
	dst = append(dst, e.delta...)
	return append(wire.AppendEscaped(dst, text), "\"}}\n\n"...)
}

func (e *Encoder) appendBlockStop(dst []byte) []byte {
	if e.open == "" {
		return dst
	}
	if e.open == chat.Thought {
		dst = append(dst, "event: content_block_delta\ndata: "+`{"type":"content_block_delta","index":`...)
		dst = strconv.AppendInt(dst, int64(e.index), 10)
		dst = append(dst, `,"delta":{"type":"signature_delta","signature":`...)
		dst = append(wire.AppendString(dst, e.signature()), "}}\n\n"...)
	}
	dst = append(dst, "event: content_block_stop\ndata: "+`{"type":"content_block_stop","index":`...)
	dst = append(strconv.AppendInt(dst, int64(e.index), 10), "}\n\n"...)
	e.open = ""
	e.index++
	return dst
}

// signature returns that of the open thought.
func (e *Encoder) signature() string {
	if e.call.omitThoughts {
		return e.call.envelope.Seal(wire.CleanText(string(e.hidden)), e.thoughts-1)
	}
	return e.call.envelope.Sign(e.digest.Sum(), e.thoughts-1)
}

func (e *Encoder) appendFinish(dst []byte, event *chat.Event) []byte {
	dst = append(dst, "event: message_delta\ndata: "+`{"type":"message_delta","delta":{`...)
	dst = e.appendStop(dst, &event.Finish)
	if event.Finish.Reason == chat.FinishContentFilter {
		dst = append(append(dst, `,"stop_details":`...), refusalDetails...)
	}
	dst = append(dst, `},"usage":`...)
	dst = appendUsage(dst, &event.Usage)
	if e.call.marked {
		dst = e.call.appendCreation(append(dst, `,"cache_creation":`...), &event.Usage)
	}
	dst = append(appendThinking(dst, &event.Usage), '}')
	return append(e.extra.AppendWhole(dst), "}\n\n"...)
}

// Note takes an event of an answer that is not streamed, for what the answer carries
// besides its content. All events must pass before [Encoder.AppendAnswer]; where the
// client has asked for nothing, there is no need to.
func (e *Encoder) Note(event chat.Event) {
	if event.Choice == 0 {
		e.extra.Note(&event)
	}
}

const refusalDetails = `{"type":"refusal","category":null,"explanation":null}`

// AppendEnd appends the final event, if the answer has finished.
func (e *Encoder) AppendEnd(dst []byte) []byte {
	if !e.finished {
		return dst
	}
	return append(dst, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// appendStop appends why an answer ended.
func (e *Encoder) appendStop(dst []byte, f *chat.Finish) []byte {
	dst = append(dst, `"stop_reason":"`...)
	dst = append(dst, e.reason(f.Reason)...)
	dst = append(dst, `","stop_sequence":`...)
	if f.Reason == chat.FinishStopSequence && f.StopText != "" {
		return wire.AppendString(dst, f.StopText)
	}
	return append(dst, "null"...)
}

func (e *Encoder) reason(r chat.FinishReason) string {
	switch r {
	case chat.FinishStopSequence:
		return "stop_sequence"
	case chat.FinishLength:
		return "max_tokens"
	case chat.FinishContext:
		if e.call.tellsContext {
			return "model_context_window_exceeded"
		}
		return "max_tokens"
	case chat.FinishToolUse:
		return "tool_use"
	case chat.FinishContentFilter:
		return "refusal"
	}
	return "end_turn"
}

// AppendAnswer appends the body that a client receives who does not stream. An
// API without choices has one answer; none is an empty one.
func (e *Encoder) AppendAnswer(dst []byte, answers []chat.Answer) []byte {
	var a chat.Answer
	if len(answers) > 0 {
		a = answers[0]
	}
	dst = append(e.appendHead(dst), '[')
	begun := len(dst)
	for i := range a.Blocks {
		if next := e.appendBlock(dst, &a.Blocks[i], len(dst) > begun); next != nil {
			dst = next
		}
	}
	dst = append(dst, `],`...)
	dst = e.appendStop(dst, &a.Finish)
	dst = append(dst, `,"stop_details":`...)
	if a.Finish.Reason == chat.FinishContentFilter {
		dst = append(dst, refusalDetails...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"container":null,"usage":`...)
	dst = appendUsage(dst, &a.Usage)
	dst = append(dst, `,"cache_creation":`...)
	if e.call.marked {
		dst = e.call.appendCreation(dst, &a.Usage)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"server_tool_use":null,"service_tier":null`...)
	dst = append(appendThinking(dst, &a.Usage), '}')
	return append(e.extra.AppendWhole(dst), '}')
}

// appendBlock appends a block of an answer, or returns nil for one that the API
// does not know.
func (e *Encoder) appendBlock(dst []byte, b *chat.Block, more bool) []byte {
	if more {
		dst = append(dst, ',')
	}
	switch {
	case b.Kind == chat.Text, b.Kind == chat.Refusal:
		dst = append(dst, `{"type":"text","text":`...)
		// Members that may be null in the API's own types are left out here: some
		// clients know them only as absent.
		return append(wire.AppendString(dst, b.Text), '}')
	case b.Kind == chat.Thought:
		e.thoughts++
		shown := ""
		if e.call.omitThoughts {
			e.hidden = append(e.hidden[:0], b.Text...)
		} else {
			shown = b.Text
			e.digest.Add(wire.CleanText(shown))
		}
		dst = append(dst, `{"type":"thinking","thinking":`...)
		dst = append(wire.AppendString(dst, shown), `,"signature":`...)
		return append(wire.AppendString(dst, e.signature()), '}')
	case b.Kind == chat.ToolCall && b.Use != nil:
		return append(e.appendInput(appendCall(dst, b.Use), b.Use.Args), '}')
	}
	return nil
}

// appendInput appends arguments, which have to be an object. Those that are none
// are shown as what they are, so that the client's check of them fails and the
// model is told.
func (e *Encoder) appendInput(dst []byte, args string) []byte {
	v := jsontext.Value(strings.Trim(args, " \t\r\n"))
	switch {
	case len(v) == 0:
		return append(dst, `{}`...)
	case v[0] == '{' && v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
		return append(dst, wire.CleanRaw(v)...)
	}
	e.invalid++
	dst = append(dst, `{"`+invalidJSON+`":`...)
	return append(wire.AppendString(dst, args), '}')
}

// InvalidInputs returns how many calls of a whole answer had arguments that are no
// object.
func (e *Encoder) InvalidInputs() int { return e.invalid }

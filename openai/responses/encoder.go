package responses

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/aside"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
)

// Status says how far a response has come.
type Status string

// Statuses.
const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Incomplete Status = "incomplete"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// idSize is the number of hex digits in the id of a response.
const idSize = 32

// NewID returns an id for a response that nobody can guess.
func NewID() string {
	var random [idSize / 2]byte
	rand.Read(random[:]) // never fails
	return IDPrefix + hex.EncodeToString(random[:])
}

// ResponseOf returns the id of the response whose output an item of this id would
// belong to.
func ResponseOf(itemID string) (id string, ok bool) {
	_, rest, ok := strings.Cut(itemID, "_")
	if !ok || len(rest) <= idSize {
		return "", false
	}
	return IDPrefix + rest[:idSize], true
}

// Encoder writes one response: the events of a stream, and the object that they
// add up to. It only appends to what it is given and owns no buffer of the
// caller's. It is for one goroutine, but for [Encoder.AppendOpening].
//
// A response that is not streamed is made by the same events, whose frames are
// thrown away, and [Encoder.AppendResponse] at their end.
type Encoder struct {
	show       shown
	box        *envelope.Box
	tools      map[toolName]callKind
	head, tail []byte // of the response object, around what changes
	ids        string // what item ids begin with, after their prefix

	sequence int // of the next event
	status   Status
	reason   string      // why it is incomplete
	fault    *wire.Error // why it has failed
	usage    *chat.Usage
	extra    aside.Gatherer // what the response carries besides
	ended    int64          // Unix seconds of completion, or 0

	output   []byte // finished items, and commas between them
	finished []span // of each in output
	open     output // the item that is not finished
}

// span is a part of a buffer.
type span struct{ from, to int }

// Encoder returns an encoder for the response to c.
func (c *Call) Encoder(h Header) *Encoder {
	e := &Encoder{show: c.show, box: c.box, extra: aside.New(c.Ext, 1), tools: c.tools.known, status: InProgress, ids: strings.TrimPrefix(h.ID, IDPrefix)}
	if c.show.background {
		e.status = Queued
	}
	e.head = wire.AppendString(append(e.head, `{"id":`...), h.ID)
	e.head = append(e.head, `,"object":"response","created_at":`...)
	e.head = strconv.AppendInt(e.head, h.Created, 10)
	e.head = wire.AppendString(append(e.head, `,"model":`...), h.Model)
	e.head = append(e.head, `,"status":"`...)
	e.tail = c.echo
	e.sequence = len(e.openings())
	return e
}

// openings are the events with which every stream of this response begins.
func (e *Encoder) openings() []opening {
	all := []opening{{"response.created", Queued}, {"response.queued", Queued}, {"response.in_progress", InProgress}}
	if e.show.background {
		return all
	}
	return []opening{{"response.created", InProgress}, all[2]}
}

type opening struct {
	event  string
	status Status
}

// AppendOpening appends the events with which the stream begins, whatever
// follows: their numbers and contents are known in advance. It may be called
// from any goroutine.
func (e *Encoder) AppendOpening(dst []byte) []byte {
	for i, o := range e.openings() {
		dst = appendHead(dst, o.event, i)
		dst = append(append(append(dst, `,"response":`...), e.head...), o.status...)
		dst = append(dst, `","completed_at":null,"error":null,"incomplete_details":null,"output":[],"usage":null`...)
		dst = append(append(dst, e.tail...), "}}\n\n"...)
	}
	return dst
}

// Next returns the number of the event that comes next. Those of the opening
// count, whether it was asked for or not.
func (e *Encoder) Next() int { return e.sequence }

// AppendEvent appends the complete frames that an event gives, or nothing.
func (e *Encoder) AppendEvent(dst []byte, event chat.Event) []byte {
	if e.status == Queued {
		e.status = InProgress
	}
	e.extra.Note(&event)
	switch event.Kind {
	case chat.BlockStart:
		dst = e.begin(e.end(dst, Completed), &event)
	case chat.TextDelta, chat.ThinkingDelta, chat.RefusalDelta, chat.ArgsDelta:
		dst = e.delta(dst, &event)
	case chat.BlockStop:
		dst = e.stop(dst, event.Truncated)
	case chat.Finished:
		usage := event.Usage
		e.usage = &usage
		e.status = Completed
		switch event.Finish.Reason {
		case chat.FinishLength, chat.FinishContext:
			e.status, e.reason = Incomplete, "max_output_tokens"
		case chat.FinishContentFilter:
			e.status, e.reason = Incomplete, "content_filter"
		}
		dst = e.end(dst, e.status)
	}
	return dst
}

// AppendEnd appends the event that ends the stream, and the end marker. now is
// in Unix seconds.
func (e *Encoder) AppendEnd(dst []byte, now int64) []byte {
	dst = e.AppendTerminal(dst, now)
	return append(dst, endMarker...)
}

const endMarker = "data: [DONE]\n\n"

// AppendTerminal appends the event that ends the stream, and nothing behind it.
func (e *Encoder) AppendTerminal(dst []byte, now int64) []byte {
	dst = e.settle(dst, Completed)
	e.Complete(now)
	return e.appendTerminal(dst)
}

// Complete notes that all events have come, and when. Without one that says how
// the answer ended, it has failed.
func (e *Encoder) Complete(now int64) {
	switch e.status {
	case Completed:
		e.ended = now
	case Queued, InProgress:
		e.Fail(&wire.Error{Message: "The answer ended too early", Code: wire.CodeServerError})
	}
}

// Fail notes that no more events will come, and why. What is finished stays, and
// an item that is not is shown as incomplete.
func (e *Encoder) Fail(err *wire.Error) {
	e.status, e.fault, e.reason = Failed, err, ""
}

// Cancel notes that no more events will come, since somebody has stopped the
// response.
func (e *Encoder) Cancel() { e.status, e.reason = Cancelled, "" }

// AppendFailure appends the event that ends a stream that fails, and the end
// marker.
func (e *Encoder) AppendFailure(dst []byte, err *wire.Error) []byte {
	dst = e.settle(dst, Completed)
	e.Fail(err)
	return append(e.appendTerminal(dst), endMarker...)
}

func (e *Encoder) appendTerminal(dst []byte) []byte {
	dst = e.frame(dst, "response."+string(e.status))
	dst = append(dst, `,"response":`...)
	dst = e.AppendResponse(dst)
	return append(dst, "}\n\n"...)
}

// Status returns how far the response has come.
func (e *Encoder) Status() Status { return e.status }

// AppendResponse appends the response object as it is at this moment.
func (e *Encoder) AppendResponse(dst []byte) []byte {
	dst = append(append(dst, e.head...), e.status...)
	dst = append(dst, `","completed_at":`...)
	if e.ended == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, e.ended, 10)
	}
	dst = append(dst, `,"error":`...)
	if e.fault == nil {
		dst = append(dst, "null"...)
	} else {
		dst = wire.AppendString(append(dst, `{"code":`...), cmp.Or(e.fault.Code, wire.CodeServerError))
		dst = wire.AppendString(append(dst, `,"message":`...), e.fault.Error())
		dst = append(dst, '}')
	}
	dst = append(dst, `,"incomplete_details":`...)
	if e.reason == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, `{"reason":"`...), e.reason...), `"}`...)
	}
	dst = append(append(dst, `,"output":[`...), e.output...)
	if e.open.kind != nothing && e.open.kind != actionOutput {
		if len(e.output) > 0 {
			dst = append(dst, ',')
		}
		status := InProgress
		if e.status != InProgress && e.status != Queued {
			status = Incomplete
		}
		if e.open.stopped {
			status = Completed
		}
		dst = e.open.appendItem(dst, status)
	}
	dst = append(dst, `],"usage":`...)
	if e.usage == nil {
		dst = append(dst, "null"...)
	} else {
		dst = AppendUsage(dst, *e.usage)
	}
	return append(e.extra.AppendWhole(append(dst, e.tail...)), '}')
}

// Items returns the finished items of the output, but for those that a client
// could not send back either.
func (e *Encoder) Items() []Item {
	items := make([]Item, 0, len(e.finished))
	for _, s := range e.finished {
		item, err := ParseItem(append([]byte(nil), e.output[s.from:s.to]...))
		if err == nil {
			items = append(items, item)
		}
	}
	return items
}

// AppendUsage appends how many tokens were used. What was not counted is shown
// as 0: clients want all members.
func AppendUsage(dst []byte, u chat.Usage) []byte {
	known := func(n *int) int64 {
		if n == nil {
			return 0
		}
		return int64(*n)
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(u.Prompt), 10)
	dst = strconv.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), known(u.Cached), 10)
	dst = strconv.AppendInt(append(dst, `,"cache_write_tokens":`...), known(u.Written), 10)
	dst = strconv.AppendInt(append(dst, `},"output_tokens":`...), int64(u.Output), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"reasoning_tokens":`...), known(u.Reasoning), 10)
	dst = strconv.AppendInt(append(dst, `},"total_tokens":`...), int64(u.Prompt+u.Output), 10)
	return append(dst, '}')
}

// frame appends the beginning of the next event.
func (e *Encoder) frame(dst []byte, event string) []byte {
	dst = appendHead(dst, event, e.sequence)
	e.sequence++
	return dst
}

func appendHead(dst []byte, event string, sequence int) []byte {
	dst = append(append(dst, "event: "...), event...)
	dst = append(append(dst, "\ndata: {\"type\":\""...), event...)
	dst = append(dst, `","sequence_number":`...)
	return strconv.AppendInt(dst, int64(sequence), 10)
}

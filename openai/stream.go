package openai

import (
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/aside"
	"github.com/dynago/dynago/internal/wire"
)

// frame is what the encoders of chat and completions share: the bytes that are
// the same in every chunk, and what is known of each choice.
type frame struct {
	call *Call
	// head opens a chunk up to its choices; tail closes one after its usage.
	head, tail []byte
	object     string // of a whole answer
	prefix     string // of the id
	header     Header
	choices    []choice
	extra      aside.Gatherer // what the answer carries besides
	placed     bool           // it is none: it tells where one would come from
}

// choice is the state of one answer.
type choice struct {
	opened   bool // its first delta was sent, and the role with it
	finished bool
	tools    int // calls begun
	offset   int // characters of the tokens shown so far
	ids      int // tokens seen
	usage    chat.Usage
	block    block // that is open, for dispatch events
	spoke    bool  // some text was shown
	apart    bool  // what comes next is another text
}

func newFrame(c *Call, h Header, prefix, object, chunk string) frame {
	f := frame{call: c, header: h, object: object, prefix: prefix, choices: make([]choice, c.Choices()), extra: aside.New(c.Ext, c.Choices())}
	f.head = append(f.appendHead([]byte("data: "), chunk), `"choices":[`...)
	f.tail = append(f.appendTail(nil), "\n\n"...)
	return f
}

func (f *frame) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, f.prefix...)
	dst = wire.AppendEscaped(dst, f.header.ID)
	dst = append(dst, `","object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, f.header.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = wire.AppendString(dst, f.header.Model)
	return append(dst, ',')
}

func (f *frame) appendTail(dst []byte) []byte {
	chat := f.call.api == chat.APIChat
	if chat {
		dst = append(dst, `,"service_tier":null`...)
	}
	switch {
	case f.call.fingerprint != "":
		dst = append(dst, `,"system_fingerprint":`...)
		dst = wire.AppendString(dst, f.call.fingerprint)
	case chat:
		dst = append(dst, `,"system_fingerprint":null`...)
	}
	return append(dst, '}')
}

// note takes what an event tells about its choice besides text.
func (f *frame) note(e *chat.Event) *choice {
	for e.Choice >= len(f.choices) {
		f.choices = append(f.choices, choice{})
	}
	f.extra.Note(e)
	c := &f.choices[e.Choice]
	c.ids += len(e.IDs)
	switch e.Kind {
	case chat.BlockStart:
		c.apart = c.apart || c.spoke && e.BlockKind == chat.Text
	case chat.Start:
		// Whichever choice begins first tells how long the prompt is.
		if first := &f.choices[e.Choice-e.Choice%f.call.choices]; first == c {
			c.usage = e.Usage
		} else {
			first.usage.Prompt = max(first.usage.Prompt, e.Usage.Prompt)
		}
	case chat.UsageUpdate, chat.Finished:
		c.usage = e.Usage
		f.placed = e.Finish.Reason == chat.FinishPlaced
		c.finished = e.Kind == chat.Finished && !f.placed
	}
	return c
}

// Note implements [Encoder].
func (f *frame) Note(e chat.Event) { f.extra.Note(&e) }

// silent says that an event says something that shows nothing, but carries something
// besides. It has a chunk then.
func (f *frame) silent(e *chat.Event) bool {
	switch e.Kind {
	case chat.TextDelta, chat.ThinkingDelta, chat.RefusalDelta, chat.ArgsDelta:
		return f.extra.Holds(e.Choice)
	}
	return false
}

// closeChunk ends the chunk of a choice after what the choice says.
func (f *frame) closeChunk(dst []byte, choice int) []byte {
	dst = append(dst, ']')
	switch {
	case f.call.ContinuousUsage && !f.placed:
		dst = append(dst, `,"usage":`...)
		dst = appendUsage(dst, f.usage())
	case f.call.IncludeUsage:
		dst = append(dst, `,"usage":null`...)
	}
	return append(f.extra.AppendChunk(dst, choice), f.tail...)
}

// usage returns the tokens used so far. Within a choice whose count has not
// come yet, the tokens that were seen count.
func (f *frame) usage() chat.Usage {
	var sum chat.Usage
	for i := range f.choices {
		c := &f.choices[i]
		u := c.usage
		if !c.finished {
			u.Output = max(u.Output, c.ids)
		}
		addUsage(&sum, u)
	}
	return sum
}

// AppendEnd implements [Encoder].
func (f *frame) AppendEnd(dst []byte) []byte {
	finished := false
	for i := range f.choices {
		finished = finished || f.choices[i].finished
	}
	if f.call.IncludeUsage && finished {
		dst = append(dst, f.head...)
		dst = append(dst, `],"usage":`...)
		dst = appendUsage(dst, f.usage())
		dst = append(dst, f.tail...)
	}
	return append(dst, endMarker...)
}

// appendAnswer appends a whole answer around the choices that one appends.
func (f *frame) appendAnswer(dst []byte, answers []chat.Answer, one func(dst []byte, i int, a *chat.Answer) []byte) []byte {
	var sum chat.Usage
	dst = append(f.appendHead(dst, f.object), `"choices":[`...)
	for i := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, i, &answers[i])
		addUsage(&sum, answers[i].Usage)
	}
	dst = append(dst, ']')
	if len(answers) == 0 || answers[0].Finish.Reason != chat.FinishPlaced {
		dst = appendUsage(append(dst, `,"usage":`...), sum)
	}
	return f.appendTail(f.extra.AppendWhole(dst))
}

// addUsage adds the usage of one choice. Of the choices of one prompt, only the
// first carries the prompt.
func addUsage(sum *chat.Usage, u chat.Usage) {
	sum.Prompt += u.Prompt
	sum.Output += u.Output
	sum.Cached = addCount(sum.Cached, u.Cached)
	sum.Reasoning = addCount(sum.Reasoning, u.Reasoning)
}

// addCount adds two counts, where nil means that nobody counted.
func addCount(a, b *int) *int {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	n := *a + *b
	return &n
}

func appendUsage(dst []byte, u chat.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Output), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt+u.Output), 10)
	if u.Cached != nil {
		dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
		dst = append(strconv.AppendInt(dst, int64(*u.Cached), 10), '}')
	}
	if u.Reasoning != nil {
		dst = append(dst, `,"completion_tokens_details":{"reasoning_tokens":`...)
		dst = append(strconv.AppendInt(dst, int64(*u.Reasoning), 10), '}')
	}
	return append(dst, '}')
}

// finishReason names why a choice ended, as a quoted JSON string.
func (f *frame) finishReason(r chat.FinishReason) string {
	switch r {
	case chat.FinishPlaced:
		return "null"
	case chat.FinishLength, chat.FinishContext:
		return `"length"`
	case chat.FinishContentFilter:
		return `"content_filter"`
	case chat.FinishToolUse:
		if f.call.api == chat.APIChat && !f.call.namedToolStop {
			return `"tool_calls"`
		}
	}
	return `"stop"`
}

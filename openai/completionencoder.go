package openai

import (
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// completionEncoder writes completions: all that a model said is text.
type completionEncoder struct{ frame }

func newCompletionEncoder(c *Call, h Header) *completionEncoder {
	return &completionEncoder{newFrame(c, h, "cmpl-", "text_completion", "text_completion")}
}

// AppendEvent implements [Encoder].
func (f *completionEncoder) AppendEvent(dst []byte, e chat.Event) []byte {
	c := f.note(&e)
	logprobs := f.call.showLogprobs && len(e.Logprobs) > 0
	said := ""
	switch e.Kind {
	case chat.TextDelta, chat.ThinkingDelta, chat.RefusalDelta:
		said = e.Text
	}
	if said == "" && !logprobs && e.Kind != chat.Finished && !f.silent(&e) {
		return dst
	}
	dst = append(dst, f.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(e.Choice), 10)
	dst = append(dst, `,"text":`...)
	dst = wire.AppendString(dst, said)
	dst = append(dst, `,"finish_reason":`...)
	if e.Kind == chat.Finished {
		dst = append(dst, f.finishReason(e.Finish.Reason)...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"logprobs":`...)
	if logprobs {
		dst = f.appendTextLogprobs(dst, e.Logprobs, &c.offset)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, '}')
	return f.closeChunk(dst, e.Choice)
}

// AppendAnswer implements [Encoder].
func (f *completionEncoder) AppendAnswer(dst []byte, answers []chat.Answer) []byte {
	return f.appendAnswer(dst, answers, f.appendChoice)
}

func (f *completionEncoder) appendChoice(dst []byte, i int, a *chat.Answer) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, `,"text":"`...)
	for i := range a.Blocks {
		dst = wire.AppendEscaped(dst, a.Blocks[i].Text)
	}
	dst = append(dst, `","finish_reason":`...)
	dst = append(dst, f.finishReason(a.Finish.Reason)...)
	dst = append(dst, `,"logprobs":`...)
	if f.call.showLogprobs && len(a.Logprobs) > 0 {
		offset := 0
		dst = f.appendTextLogprobs(dst, a.Logprobs, &offset)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

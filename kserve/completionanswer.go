package kserve

import (
	"encoding/binary"
	"iter"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/aside"
)

// output is one of the tensors that a response may carry.
type output uint8

const (
	textOutput output = iota
	finishReason
	numInputTokens
	numOutputTokens
	allOutputs // how many there are
)

var outputNames = [allOutputs]string{"text_output", "finish_reason", "num_input_tokens", "num_output_tokens"}

var outputsByName = func() map[string]output {
	m := make(map[string]output, len(outputNames))
	for o, name := range outputNames {
		m[name] = output(o)
	}
	return m
}()

// said is what one response tells of one choice.
type said struct {
	text   string
	reason string // why it has ended; empty if it goes on
	tokens int    // behind the text
}

// Fold reads an answer to its end and returns the one response that holds all of it.
// An error of the answer is returned as it is.
func (c *Completion) Fold(events iter.Seq2[chat.Event, error]) (*Response, error) {
	extra := aside.New(c.Ext, c.choices)
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for e, err := range events {
			if err == nil {
				extra.Note(&e)
			}
			if !yield(e, err) {
				return
			}
		}
	})
	if err == nil && len(answers) == 0 {
		err = engine.Errorf(engine.Internal, "no response received")
	}
	if err != nil {
		return nil, err
	}
	choices := make([]said, len(answers))
	var usage chat.Usage
	for i := range answers {
		a := &answers[i]
		var text strings.Builder
		for _, b := range a.Blocks {
			text.WriteString(b.Text)
		}
		choices[i] = said{text.String(), reasonOf(a.Finish.Reason), a.Usage.Output}
		usage.Prompt += a.Usage.Prompt
		usage.Output += a.Usage.Output
	}
	r := c.response(choices, usage.Prompt)
	c.end(r, &extra, usage, answers[0].Finish.Reason == chat.FinishPlaced)
	return r, nil
}

// Deltas returns the responses of a stream: one for each event that says something, as
// soon as it comes, and one for the end of each choice, with the delta that is marked as
// its last. With several choices each response has an element for every one of them,
// which is empty for those that say nothing in it. An error of the answer ends them as
// it is. Responses share what does not change, and nobody may write to them.
func (c *Completion) Deltas(events iter.Seq2[chat.Event, error]) iter.Seq2[*Response, error] {
	return func(yield func(*Response, error) bool) {
		s := stream{c: c, choices: make([]choice, c.choices), says: make([]said, c.choices), extra: aside.New(c.Ext, c.choices)}
		fail := func(err error) {
			for i := range s.choices {
				if text := s.choices[i].text; text != "" && !yield(s.say(i, text, ""), nil) {
					return
				}
			}
			yield(nil, err)
		}
		for e, err := range events {
			if err != nil {
				fail(err)
				return
			}
			if r := s.take(&e); r != nil && !yield(r, nil) {
				return
			}
		}
		if open := len(s.choices) - s.ended; open > 0 {
			fail(engine.Errorf(engine.Internal, "%d of %d choices did not end", open, len(s.choices)))
		}
	}
}

// stream is the state of an answer that is sent in pieces.
type stream struct {
	c       *Completion
	choices []choice
	says    []said // in the response that is being made
	ended   int
	prompt  int // tokens
	extra   aside.Gatherer
	placed  bool
}

// choice is the state of one choice.
type choice struct {
	text   string // waits for the end, which comes at once
	ids    int    // tokens seen
	told   int    // of these
	output int    // tokens, as counted at the end
}

// take returns the response that an event gives, or nil.
func (s *stream) take(e *chat.Event) *Response {
	for e.Choice >= len(s.choices) {
		s.choices, s.says = append(s.choices, choice{}), append(s.says, said{})
	}
	s.extra.Note(e)
	c := &s.choices[e.Choice]
	c.ids += len(e.IDs)
	switch e.Kind {
	case chat.Start:
		s.prompt = max(s.prompt, e.Usage.Prompt)
	case chat.TextDelta, chat.ThinkingDelta, chat.RefusalDelta:
		if e.Last {
			c.text += e.Text
		} else if e.Text != "" {
			return s.say(e.Choice, e.Text, "")
		}
	case chat.Finished:
		s.ended++
		s.prompt = max(s.prompt, e.Usage.Prompt)
		s.placed = e.Finish.Reason == chat.FinishPlaced
		c.output, c.ids = e.Usage.Output, max(c.told, e.Usage.Output)
		r := s.say(e.Choice, c.text, reasonOf(e.Finish.Reason))
		if s.ended == len(s.choices) {
			s.c.end(r, &s.extra, s.usage(), s.placed)
		}
		return r
	}
	return nil
}

// say makes the response in which one choice says something.
func (s *stream) say(i int, text, reason string) *Response {
	c := &s.choices[i]
	clear(s.says)
	s.says[i] = said{text, reason, c.ids - c.told}
	c.told, c.text = c.ids, ""
	return s.c.response(s.says, s.prompt)
}

func (s *stream) usage() chat.Usage {
	u := chat.Usage{Prompt: s.prompt}
	for i := range s.choices {
		u.Output += s.choices[i].output
	}
	return u
}

// response makes a response of what the choices say in it.
func (c *Completion) response(choices []said, prompt int) *Response {
	r := &Response{ID: c.ID, Model: c.Model, Version: Version, Outputs: make([]engine.Tensor, len(c.outputs))}
	shape := []int64{int64(len(choices))}
	for i, o := range c.outputs {
		t := &r.Outputs[i]
		t.Name, t.Shape = outputNames[o], shape
		switch o {
		case textOutput, finishReason:
			t.Datatype, t.Data = "BYTES", texts(choices, o)
		case numInputTokens:
			t.Datatype, t.Shape = "UINT32", []int64{1}
			t.Data = binary.LittleEndian.AppendUint32(nil, uint32(prompt))
		case numOutputTokens:
			t.Datatype = "UINT32"
			for k := range choices {
				t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(choices[k].tokens))
			}
		}
	}
	return r
}

// noText is one element of no text. Nobody writes to outputs.
var noText = make([]byte, 4)

// texts returns the elements of one of the outputs that are texts.
func texts(choices []said, o output) []byte {
	if len(choices) == 1 && choices[0].of(o) == "" {
		return noText
	}
	size := 0
	for i := range choices {
		size += 4 + len(choices[i].of(o))
	}
	data := make([]byte, 0, size)
	for i := range choices {
		text := choices[i].of(o)
		data = binary.LittleEndian.AppendUint32(data, uint32(len(text)))
		data = append(data, text...)
	}
	return data
}

func (s *said) of(o output) string {
	if o == textOutput {
		return s.text
	}
	return s.reason
}

// end puts on the last response what it alone carries. A client that has only asked
// where there would be an answer has used no tokens.
func (c *Completion) end(r *Response, extra *aside.Gatherer, u chat.Usage, placed bool) {
	r.Parameters = engine.Parameters{}
	if !placed {
		r.Parameters["prompt_tokens"], r.Parameters["completion_tokens"] = int64(u.Prompt), int64(u.Output)
	}
	if member, ok := strings.CutPrefix(string(extra.AppendWhole(nil)), `,"nvext":`); ok {
		r.Parameters[parameterNVExt] = member
	}
}

// reasonOf says why a choice has ended, in the words of completions.
func reasonOf(r chat.FinishReason) string {
	switch r {
	case chat.FinishPlaced:
		return ""
	case chat.FinishLength, chat.FinishContext:
		return "length"
	case chat.FinishContentFilter:
		return "content_filter"
	}
	return "stop"
}

package responses

import (
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// output is the item that an answer is in the middle of. Its buffers are used
// again for the next one.
type output struct {
	kind    outputKind
	stopped bool // nothing more comes; only its end has not been sent
	id      []byte
	name    []byte // member with the name of the tool
	header  []byte // members of a call that are known from the beginning
	// text is what came so far, as the inside of a JSON string.
	text     []byte
	logprobs []byte // of the text, without brackets
	plain    []byte // the text itself, where it is needed
	sealed   string // the thought in its envelope
	input    unwrapper
	call     callKind // of an actionOutput

	// The frame of a delta, around its number and its text.
	before, between, after []byte
}

// begin opens the item of a block.
func (e *Encoder) begin(dst []byte, event *chat.Event) []byte {
	o := &e.open
	o.kind, o.stopped, o.sealed = textOutput, false, ""
	o.text, o.logprobs, o.plain, o.header = o.text[:0], o.logprobs[:0], o.plain[:0], o.header[:0]
	switch event.BlockKind {
	case chat.Thought:
		switch {
		case e.show.summary:
			o.kind = summaryOutput
		case e.show.raw == RawOpenAI || e.show.raw == RawOpenResponses:
			o.kind = rawThoughtOutput
		default:
			o.kind = thoughtOutput
		}
	case chat.Refusal:
		o.kind = refusalOutput
	case chat.ToolCall:
		o.kind = functionOutput
		e.beginCall(event.Tool)
	}
	if o.kind == actionOutput {
		return dst
	}
	return e.announce(dst)
}

// announce sends the beginning of the open item.
func (e *Encoder) announce(dst []byte) []byte {
	o, f := &e.open, &forms[e.open.kind]
	o.identify(f.prefix, e.ids, len(e.finished))
	e.frameDeltas(f)

	dst = e.frame(dst, "response.output_item.added")
	dst = e.appendIndex(dst)
	dst = o.appendItem(append(dst, `,"item":`...), InProgress)
	dst = append(dst, "}\n\n"...)
	if f.added == "" {
		return dst
	}
	dst = e.appendPlace(e.frame(dst, f.added), f)
	dst = o.appendPart(append(dst, `,"part":`...))
	return append(dst, "}\n\n"...)
}

// identify makes the id of the item: so many were before it in its response.
func (o *output) identify(prefix, response string, before int) {
	o.id = append(append(o.id[:0], prefix...), response...)
	if before < 16 {
		o.id = append(o.id, '0')
	}
	o.id = strconv.AppendInt(o.id, int64(before), 16)
}

// beginCall notes what is known of a call: its id, and its name as the client
// knows it.
func (e *Encoder) beginCall(use *chat.ToolUse) {
	o := &e.open
	if use == nil {
		use = new(chat.ToolUse)
	}
	call, known := e.tools[toolName{use.Namespace, use.Name}]
	switch {
	case call == customCall, !known && use.Kind == chat.ToolCustom:
		o.kind = customOutput
		o.input.reset()
	case call != functionCall:
		o.kind, o.call = actionOutput, call
	}
	o.header = wire.AppendString(append(o.header, `,"call_id":`...), use.ID)
	if o.kind == actionOutput {
		return
	}
	e.nameCall(use.Namespace, use.Name)
}

// nameCall notes the name of the tool that is called.
func (e *Encoder) nameCall(namespace, name string) {
	o := &e.open
	o.name = wire.AppendString(append(o.name[:0], `,"name":`...), name)
	o.header = append(o.header, o.name...)
	if namespace != "" {
		o.header = wire.AppendString(append(o.header, `,"namespace":`...), namespace)
	}
}

// frameDeltas prepares what all deltas of the item have in common.
func (e *Encoder) frameDeltas(f *form) {
	o := &e.open
	o.before, o.between, o.after = o.before[:0], o.between[:0], o.after[:0]
	if f.delta == "" {
		return
	}
	name := e.event(f.delta)
	o.before = append(append(o.before, "event: "...), name...)
	o.before = append(append(o.before, "\ndata: {\"type\":\""...), name...)
	o.before = append(o.before, `","sequence_number":`...)
	o.between = append(e.appendPlace(o.between, f), `,"delta":"`...)
	o.after = append(o.after, '"')
	if o.kind == textOutput {
		o.after = append(o.after, `,"logprobs":[`...)
	}
}

// appendIndex appends which item an event is about.
func (e *Encoder) appendIndex(dst []byte) []byte {
	return strconv.AppendInt(append(dst, `,"output_index":`...), int64(len(e.finished)), 10)
}

// appendPlace appends which part of which item an event is about.
func (e *Encoder) appendPlace(dst []byte, f *form) []byte {
	dst = append(append(dst, `,"item_id":"`...), e.open.id...)
	dst = e.appendIndex(append(dst, '"'))
	return append(dst, f.at...)
}

// delta adds a piece to the open item.
func (e *Encoder) delta(dst []byte, event *chat.Event) []byte {
	o := &e.open
	if o.kind == nothing || o.stopped {
		return dst
	}
	from := len(o.text)
	switch o.kind {
	case actionOutput:
		o.plain = append(o.plain, event.Text...)
		return dst
	case customOutput:
		o.text = o.input.append(o.text, event.Text)
	default:
		o.text = wire.AppendEscaped(o.text, event.Text)
	}
	if (o.kind == summaryOutput || o.kind == thoughtOutput || o.kind == rawThoughtOutput) && e.show.encrypted {
		o.plain = append(o.plain, event.Text...)
	}
	logprobs := e.show.logprobs && o.kind == textOutput && len(event.Logprobs) > 0
	if len(o.before) == 0 || len(o.text) == from && !logprobs {
		return dst
	}
	dst = e.appendDelta(dst, from)
	if logprobs {
		begin := len(dst)
		dst = e.appendLogprobs(dst, event.Logprobs)
		if len(o.logprobs) > 0 {
			o.logprobs = append(o.logprobs, ',')
		}
		o.logprobs = append(o.logprobs, dst[begin:]...)
	}
	if o.kind == textOutput {
		dst = append(dst, ']')
	}
	return append(dst, "}\n\n"...)
}

// stop notes that nothing more comes for the open item. A call that is complete
// ends at once, so that whoever waits for it can begin. Whether another item is
// complete is known with what comes next: an item that is not can only be the
// last one.
func (e *Encoder) stop(dst []byte, truncated bool) []byte {
	o := &e.open
	if o.kind == nothing || o.stopped {
		return dst
	}
	if o.kind == actionOutput {
		return e.act(dst, truncated)
	}
	from := len(o.text)
	switch {
	case o.kind == customOutput:
		o.text = o.input.finish(o.text)
	case o.kind == functionOutput && from == 0 && !truncated:
		// Clients read arguments as JSON, which nothing is not.
		o.text = append(o.text, "{}"...)
	}
	if len(o.text) > from {
		dst = append(e.appendDelta(dst, from), "}\n\n"...)
	}
	o.stopped = true
	if (o.kind == functionOutput || o.kind == customOutput) && !truncated {
		return e.settle(dst, Completed)
	}
	return dst
}

// act sends a call with a form of its own, as a whole. Arguments that do not have
// the form are those of a function, which nobody runs by accident.
func (e *Encoder) act(dst []byte, truncated bool) []byte {
	o := &e.open
	args := string(o.plain)
	o.plain = o.plain[:0]
	action, ok := appendAction(o.text[:0], o.call, args)
	if ok && !truncated {
		o.text, o.kind = action, actions[o.call].kind
		dst = e.announce(dst)
		o.stopped = true
		return e.settle(dst, Completed)
	}
	o.text, o.kind = o.text[:0], functionOutput
	e.nameCall("", actions[o.call].name)
	dst = e.announce(dst)
	dst = e.delta(dst, &chat.Event{Text: args})
	return e.stop(dst, truncated)
}

// appendDelta appends the event that tells what has come since the text was so
// long, up to what else it has to say.
func (e *Encoder) appendDelta(dst []byte, from int) []byte {
	o := &e.open
	dst = strconv.AppendInt(append(dst, o.before...), int64(e.sequence), 10)
	e.sequence++
	dst = append(append(dst, o.between...), o.text[from:]...)
	return append(dst, o.after...)
}

// end ends the open item, if there is one.
func (e *Encoder) end(dst []byte, status Status) []byte {
	return e.settle(e.stop(dst, true), status)
}

// settle sends the end of an item for which nothing more comes.
func (e *Encoder) settle(dst []byte, status Status) []byte {
	o := &e.open
	if o.kind == nothing || !o.stopped {
		return dst
	}
	if len(o.plain) > 0 {
		o.sealed = e.box.Seal(string(o.plain), len(e.finished))
	}
	f := &forms[o.kind]
	if f.done != "" {
		dst = e.appendPlace(e.frame(dst, e.event(f.done)), f)
		if o.kind == functionOutput {
			dst = append(dst, o.name...)
		}
		dst = append(append(append(dst, `,"`...), f.whole...), `":"`...)
		dst = append(append(dst, o.text...), '"')
		if o.kind == textOutput {
			dst = append(append(append(dst, `,"logprobs":[`...), o.logprobs...), ']')
		}
		dst = append(dst, "}\n\n"...)
	}
	if f.finished != "" {
		dst = e.appendPlace(e.frame(dst, f.finished), f)
		dst = o.appendPart(append(dst, `,"part":`...))
		dst = append(dst, "}\n\n"...)
	}
	if len(e.output) > 0 {
		e.output = append(e.output, ',')
	}
	s := span{from: len(e.output)}
	e.output = o.appendItem(e.output, status)
	s.to = len(e.output)

	dst = e.appendIndex(e.frame(dst, "response.output_item.done"))
	dst = append(append(dst, `,"item":`...), e.output[s.from:s.to]...)
	dst = append(dst, "}\n\n"...)
	e.finished = append(e.finished, s)
	o.kind = nothing
	return dst
}

// appendItem appends the item as it is now.
func (o *output) appendItem(dst []byte, status Status) []byte {
	empty := len(o.text) == 0 && !o.stopped
	f := &forms[o.kind]
	dst = append(append(dst, `{"type":"`...), f.item...)
	dst = append(append(append(dst, `","id":"`...), o.id...), '"')
	list := ""
	switch o.kind {
	case textOutput, refusalOutput:
		dst, list = append(dst, `,"role":"assistant"`...), `,"content":[`
	case summaryOutput:
		list = `,"summary":[`
	case thoughtOutput, rawThoughtOutput:
		dst = append(dst, `,"summary":[]`...)
		if !empty {
			list = `,"content":[`
		}
	case functionOutput, customOutput:
		dst = append(dst, o.header...)
		dst = append(append(append(dst, `,"`...), f.whole...), `":"`...)
		dst = append(append(dst, o.text...), '"')
	case localShellOutput, shellOutput, applyPatchOutput:
		dst = append(dst, o.header...)
		dst = append(append(append(dst, `,"`...), f.whole...), `":`...)
		dst = append(dst, o.text...)
	}
	if list != "" {
		dst = append(dst, list...)
		if !empty {
			dst = o.appendPart(dst)
		}
		dst = append(dst, ']')
	}
	if o.sealed != "" {
		dst = append(append(append(dst, `,"encrypted_content":"`...), o.sealed...), '"')
	}
	return append(append(append(dst, `,"status":"`...), status...), `"}`...)
}

// appendPart appends the only part of the item as it is now.
func (o *output) appendPart(dst []byte) []byte {
	f := &forms[o.kind]
	dst = append(append(append(dst, `{"type":"`...), f.part...), `","`...)
	dst = append(append(append(dst, f.whole...), `":"`...), o.text...)
	dst = append(dst, '"')
	if o.kind == textOutput {
		dst = append(append(append(dst, `,"annotations":[],"logprobs":[`...), o.logprobs...), ']')
	}
	return append(dst, '}')
}

package chattemplate

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/harmony"
)

// harmonyWriter writes one conversation.
type harmonyWriter struct {
	harmonySettings
	request *chat.Request
	tools   []chat.Tool
	names   map[string]string // of tools, by call id

	text   strings.Builder
	said   []stretch // what clients wrote, in order
	ending string    // of the message that is open
}

// stretch is a part of the text, in bytes.
type stretch struct{ start, end int }

// sizeOf returns about how long the prompt of a request is, in bytes.
func sizeOf(r *chat.Request) int {
	const perMessage, perTool = 80, 400
	n := 1000 + perTool*len(r.Tools)
	count := func(blocks []chat.Block) {
		for i := range blocks {
			n += len(blocks[i].Text) + perMessage
			if use := blocks[i].Use; use != nil {
				n += len(use.Args)
			}
		}
	}
	count(r.System)
	for i := range r.Turns {
		count(r.Turns[i].Blocks)
		for j := range r.Turns[i].Blocks {
			if result := r.Turns[i].Blocks[j].Result; result != nil {
				count(result.Blocks)
			}
		}
	}
	for i := range r.Tools {
		n += len(r.Tools[i].Description) + len(r.Tools[i].Schema)
	}
	return n
}

// ours appends what only the renderer may write.
func (w *harmonyWriter) ours(parts ...string) {
	for _, s := range parts {
		w.text.WriteString(s)
	}
}

// theirs appends what a client wrote, or may have.
func (w *harmonyWriter) theirs(s string) {
	start := w.text.Len()
	w.text.WriteString(s)
	w.said = append(w.said, stretch{start, w.text.Len()})
}

// open ends the last message and begins one.
func (w *harmonyWriter) open(role string) {
	w.ours(w.ending, harmony.Start, role)
	w.ending = harmony.End
}

// body ends a header.
func (w *harmonyWriter) body(s string) {
	w.ours(harmony.Message)
	w.theirs(s)
}

// rendered returns the text. A control token that a client wrote any byte of is
// inert.
func (w *harmonyWriter) rendered(controls *Controls) Rendered {
	out := Rendered{Text: w.text.String()}
	if controls == nil {
		return out
	}
	said := w.said
	for at := 0; ; {
		start, end, ok := controls.Find(out.Text, at)
		if !ok {
			return out
		}
		for len(said) > 0 && said[0].end <= start {
			said = said[1:]
		}
		at = end
		if len(said) > 0 && said[0].start < end {
			out.Inert = append(out.Inert, start+1)
			at = start + 1
		}
	}
}

// keptThoughts tells of each turn whether its analysis channel is shown: that of
// an answer that is complete, and that the user has taken up, is not. Calls of
// built-in tools and their results are in it.
func (w *harmonyWriter) keptThoughts(turns []chat.Turn) []bool {
	kept := make([]bool, len(turns))
	from := keptFrom(w.request) - (len(w.request.Turns) - len(turns))
	var answered, takenUp, within bool
	for i := len(turns) - 1; i >= 0; i-- {
		switch turn := &turns[i]; {
		case turn.Role == chat.RoleUser && !slices.ContainsFunc(turn.Blocks, isResult):
			takenUp, within, answered = true, false, false
		case turn.Role == chat.RoleAssistant && !within:
			within, answered = true, endsFinal(turn)
		}
		kept[i] = i >= from && (w.keepThoughts || !(answered && takenUp))
	}
	return kept
}

// endsFinal tells that the last thing a turn says is for the user.
func endsFinal(turn *chat.Turn) bool {
	for _, b := range slices.Backward(turn.Blocks) {
		switch b.Kind {
		case chat.ToolCall:
			return false
		case chat.Text, chat.Refusal, chat.Image, chat.Document:
			return true
		}
	}
	return false
}

// turn writes a turn behind the leading system turns.
func (w *harmonyWriter) turn(turn *chat.Turn, thoughts bool) {
	for i := range turn.Blocks {
		if turn.Blocks[i].Kind == chat.ToolResult {
			w.result(turn.Blocks[i].Result, thoughts)
		}
	}
	switch turn.Role {
	case chat.RoleAssistant:
		w.assistant(turn, thoughts)
	case chat.RoleSystem, chat.RoleDeveloper:
		if text := w.instructions(turn); text != "" {
			w.open("developer")
			w.body("# Instructions\n\n" + text)
		}
	default:
		m := message{sep: separator(w.request.API)}
		m.add(turn.Blocks, nil)
		if m.parts == nil && slices.ContainsFunc(turn.Blocks, isResult) {
			return
		}
		w.open(string(chat.RoleUser))
		if turn.Name != "" {
			w.ours(":")
			w.theirs(turn.Name)
		}
		w.body(m.text())
	}
}

// assistant writes the messages of an answer in their order. A text that is not
// the last word was said on the way.
func (w *harmonyWriter) assistant(turn *chat.Turn, thoughts bool) {
	blocks := turn.Blocks
	for len(blocks) > 0 {
		n := 1
		switch b := &blocks[0]; b.Kind {
		case chat.Thought:
			if thoughts && b.Text != "" {
				w.open("assistant")
				w.ours(harmony.Channel, "analysis")
				w.body(b.Text)
			}
		case chat.ToolCall:
			w.call(b.Use, thoughts)
		case chat.Text, chat.Refusal, chat.Image, chat.Document:
			n = w.texts(blocks)
			m := message{sep: separator(w.request.API)}
			m.add(blocks[:n], nil)
			channel := "commentary"
			if len(blocks) == n || !slices.ContainsFunc(blocks[n:], speaks) {
				channel = "final"
			}
			text := m.text()
			if text == "" && (channel != "final" || slices.ContainsFunc(turn.Blocks, isCall)) {
				break
			}
			w.open("assistant")
			w.ours(harmony.Channel, channel)
			w.body(text)
		}
		blocks = blocks[n:]
	}
}

// texts returns how many blocks are one text: parts of a message where the API has
// one text for an answer, and otherwise each for itself.
func (w *harmonyWriter) texts(blocks []chat.Block) int {
	n := 1
	for separator(w.request.API) != "" && n < len(blocks) && speaks(blocks[n]) && !isCall(blocks[n]) {
		n++
	}
	return n
}

func isCall(b chat.Block) bool { return b.Kind == chat.ToolCall }

// speaks tells that a block is not just thought.
func speaks(b chat.Block) bool {
	switch b.Kind {
	case chat.Text, chat.Refusal, chat.Image, chat.Document, chat.ToolCall:
		return true
	}
	return false
}

func (w *harmonyWriter) call(use *chat.ToolUse, thoughts bool) {
	w.names[use.ID] = use.Name
	if !w.builtin(use.Name) {
		c := call{args: use.Args, custom: use.Kind == chat.ToolCustom}
		before, after := harmony.FormOfID(use.ID).Header()
		w.open("assistant")
		w.ours(before)
		w.theirs(use.Name)
		w.ours(after)
		w.body(c.text())
		w.ending = harmony.Call
		return
	}
	if thoughts {
		w.open("assistant to=")
		w.theirs(use.Name)
		w.ours(harmony.Channel, "analysis code")
		w.body(use.Args)
		w.ending = harmony.Call
	}
}

func (w *harmonyWriter) result(r *chat.Result, thoughts bool) {
	name := r.Name
	if name == "" {
		name = w.names[r.ID]
	}
	m := message{sep: separator(w.request.API)}
	m.add(r.Blocks, nil)
	channel := "commentary"
	switch {
	case name == "":
		w.open("tool") // history is never refused
	case w.builtin(name) && !thoughts:
		return
	case w.builtin(name):
		w.open("")
		w.theirs(name)
		channel = "analysis"
	default:
		w.open("functions.")
		w.theirs(name)
	}
	w.ours(" to=assistant", harmony.Channel, channel)
	w.body(m.text())
}

// builtin tells that a name is one of the tools that gpt-oss was trained with, and
// not a function of the client.
func (w *harmonyWriter) builtin(name string) bool {
	known := w.python && name == "python" || w.browser && strings.HasPrefix(name, "browser.")
	return known && !slices.ContainsFunc(w.tools, func(t chat.Tool) bool { return t.Name == name })
}

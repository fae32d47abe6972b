package pipeline

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/zeebo/xxh3"
)

// parts name what a conversation was made of, so that it can be told what of it a
// client changed without the conversation being kept.
type parts struct {
	settings      uint64
	tools, system []uint64
	turns         [][]uint64 // role, then the blocks
}

func partsOf(r *chat.Request) parts {
	var s summer
	p := parts{settings: s.settings(r), tools: make([]uint64, len(r.Tools)), system: s.blocks(nil, r.System), turns: make([][]uint64, len(r.Turns))}
	for i := range r.Tools {
		p.tools[i] = s.tool(r.API, &r.Tools[i])
	}
	for i := range r.Turns {
		turn := &r.Turns[i]
		role := s.sum(string(turn.Role), turn.Name)
		p.turns[i] = s.blocks(append(make([]uint64, 0, 1+len(turn.Blocks)), role), turn.Blocks)
	}
	return p
}

// summer names lists of texts.
type summer struct{ h xxh3.Hasher }

func (s *summer) sum(texts ...string) uint64 {
	s.h.Reset()
	s.add(texts...)
	return s.h.Sum64()
}

// add adds texts, each with its length, so that no two lists are written alike.
func (s *summer) add(texts ...string) {
	var length [8]byte
	for _, text := range texts {
		binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
		s.h.Write(length[:])  //nolint:errcheck // it never fails
		s.h.WriteString(text) //nolint:errcheck // it never fails
	}
}

// settings names what is not said, and still shown.
func (s *summer) settings(r *chat.Request) uint64 {
	on, keep := "", ""
	if r.Thinking.Enabled != nil {
		on = strconv.FormatBool(*r.Thinking.Enabled)
	}
	if r.Thinking.Keep != nil {
		keep = strconv.Itoa(*r.Thinking.Keep)
	}
	hidden, adaptive := strconv.FormatBool(r.ToolChoice.Hidden), strconv.FormatBool(r.Thinking.Adaptive)
	return s.sum(string(r.TemplateArgs), on, adaptive, keep, r.Thinking.Effort, hidden, string(r.Output.Kind), string(r.Output.Schema))
}

// tool names a tool as it is shown: only where the API has the shape that templates
// know, what the client wrote is.
func (s *summer) tool(api chat.API, t *chat.Tool) uint64 {
	s.h.Reset()
	if api == chat.APIChat && t.Wire != nil {
		s.bytes(t.Wire)
	} else {
		s.add(string(t.Kind), t.Namespace, t.Name, t.Description)
		s.bytes(t.Schema)
	}
	return s.h.Sum64()
}

func (s *summer) bytes(b []byte) {
	s.h.Write(b) //nolint:errcheck // it never fails
}

// blocks appends the names of blocks.
func (s *summer) blocks(list []uint64, blocks []chat.Block) []uint64 {
	for i := range blocks {
		s.h.Reset()
		s.block(&blocks[i])
		list = append(list, s.h.Sum64())
	}
	return list
}

func (s *summer) block(b *chat.Block) {
	s.add(string(b.Kind), b.Text)
	switch {
	case b.Use != nil:
		s.add(b.Use.ID, b.Use.Namespace, b.Use.Name, b.Use.Args)
	case b.Result != nil:
		s.add(b.Result.ID, b.Result.Name)
		for i := range b.Result.Blocks {
			s.block(&b.Result.Blocks[i])
		}
	case b.Media != nil:
		s.add(b.Media.Source, b.Media.MediaType, b.Media.Data, b.Media.Detail)
	case b.Wire != nil:
		s.bytes(b.Wire)
	}
}

// saying gathers what an answer says, by kind: APIs keep kinds apart, and so it
// does not count how they stood to each other.
type saying struct {
	thoughts, text, calls xxh3.Hasher
	spoke, apart          bool // some text has come; what comes next is another one
}

func (s *saying) event(e *chat.Event) {
	switch e.Kind {
	case chat.BlockStart:
		s.apart = s.apart || e.BlockKind == chat.Text
		if e.Tool != nil {
			s.call(e.Tool.Name)
		}
	case chat.ThinkingDelta:
		s.thoughts.WriteString(e.Text) //nolint:errcheck // it never fails
	case chat.TextDelta, chat.RefusalDelta:
		s.say(e.Text)
	case chat.ArgsDelta:
		s.calls.WriteString(e.Text) //nolint:errcheck // it never fails
	}
}

// say adds text. Some APIs make one text of several, of lines.
func (s *saying) say(text string) {
	if text == "" {
		return
	}
	if s.apart && s.spoke {
		s.text.WriteString("\n") //nolint:errcheck // it never fails
	}
	s.spoke, s.apart = true, false
	s.text.WriteString(text) //nolint:errcheck // it never fails
}

func (s *saying) call(name string) {
	s.calls.WriteString("\x00" + name + "\x00") //nolint:errcheck // it never fails
}

// said are the names of what was gathered.
type said struct{ thoughts, text, calls uint64 }

func (s *saying) said() said {
	return said{s.thoughts.Sum64(), s.text.Sum64(), s.calls.Sum64()}
}

// saidBy is what a turn says.
func saidBy(t *chat.Turn) said {
	s := new(saying)
	for i := range t.Blocks {
		switch b := &t.Blocks[i]; b.Kind {
		case chat.Thought:
			s.thoughts.WriteString(b.Text) //nolint:errcheck // it never fails
		case chat.Text, chat.Refusal:
			s.apart = true
			s.say(b.Text)
		case chat.ToolCall:
			s.call(b.Use.Name)
			s.calls.WriteString(b.Use.Args) //nolint:errcheck // it never fails
		}
	}
	return s.said()
}

// changed says what of an earlier request and its answer this one sends in
// another form, or "" if nothing is. What stands first in prompts is told first.
func changed(before *past, now *past, r *chat.Request) string {
	a, b := &before.parts, &now.parts
	if a.settings != b.settings {
		return "template arguments, thinking, tool choice or response format"
	}
	if what := changedIn("tools", a.tools, b.tools); what != "" {
		return what
	}
	if what := changedIn("system", a.system, b.system); what != "" {
		return what
	}
	for k := range a.turns {
		switch path := fmt.Sprintf("turns[%d]", k); {
		case k >= len(b.turns):
			return path + " is missing"
		case a.turns[k][0] != b.turns[k][0]:
			return path + ".role or name"
		default:
			if what := changedIn(path+".blocks", a.turns[k][1:], b.turns[k][1:]); what != "" {
				return what
			}
		}
	}
	return before.said.changed(r, len(a.turns))
}

func changedIn(name string, before, now []uint64) string {
	for i := range before {
		switch {
		case i >= len(now):
			return fmt.Sprintf("%s: %d, had %d", name, len(now), len(before))
		case before[i] != now[i]:
			return fmt.Sprintf("%s[%d]", name, i)
		}
	}
	if len(now) > len(before) {
		return fmt.Sprintf("%s: %d, had %d", name, len(now), len(before))
	}
	return ""
}

// changed says what of an answer a conversation has in another form, as its turn k.
func (s said) changed(r *chat.Request, k int) string {
	if k >= len(r.Turns) || r.Turns[k].Role != chat.RoleAssistant {
		return fmt.Sprintf("turns[%d] is not the answer", k)
	}
	now, none := saidBy(&r.Turns[k]), new(saying).said()
	for _, kind := range []struct {
		name        string
		before, now uint64
		none        uint64
	}{
		{"thoughts", s.thoughts, now.thoughts, none.thoughts},
		{"text", s.text, now.text, none.text},
		{"calls", s.calls, now.calls, none.calls},
	} {
		switch {
		case kind.before == kind.now:
		case kind.now == kind.none:
			return fmt.Sprintf("turns[%d]: the answer's %s did not come back", k, kind.name)
		default:
			return fmt.Sprintf("turns[%d]: the answer's %s came back in another form", k, kind.name)
		}
	}
	return ""
}

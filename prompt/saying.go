package prompt

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/zeebo/xxh3"
)

// Saying is what an answer says, block by block, by which the answer is known
// when a client sends it back. APIs keep thoughts, text and calls apart, so that
// how these stood to each other does not count; and some make one text of several,
// of lines. The zero value says nothing.
type Saying struct {
	thoughts, text, calls strings.Builder
	apart                 bool // the text that comes next is another one
}

// Event adds one event of an answer.
func (s *Saying) Event(e *chat.Event) {
	switch e.Kind {
	case chat.BlockStart:
		s.apart = s.apart || e.BlockKind == chat.Text
		if e.Tool != nil {
			s.calls.WriteString("\x00" + e.Tool.Name + "\x00")
		}
	case chat.ThinkingDelta:
		s.thoughts.WriteString(e.Text)
	case chat.TextDelta, chat.RefusalDelta:
		s.say(e.Text)
	case chat.ArgsDelta:
		s.calls.WriteString(e.Text)
	}
}

// say adds text.
func (s *Saying) say(text string) {
	if text == "" {
		return
	}
	if s.apart && s.text.Len() > 0 {
		s.text.WriteByte('\n')
	}
	s.apart = false
	s.text.WriteString(text)
}

// sayingOf is what a turn says.
func sayingOf(blocks []chat.Block) *Saying {
	s := new(Saying)
	for i := range blocks {
		switch b := &blocks[i]; b.Kind {
		case chat.Thought:
			s.thoughts.WriteString(b.Text)
		case chat.Text, chat.Refusal:
			s.apart = true
			s.say(b.Text)
		case chat.ToolCall:
			s.calls.WriteString("\x00" + b.Use.Name + "\x00" + b.Use.Args)
		}
	}
	return s
}

// sum names what is said, which is never 0.
func (s *Saying) sum() uint64 {
	h := xxh3.New()
	for _, part := range []string{s.thoughts.String(), s.text.String(), s.calls.String()} {
		h.WriteString(part)      //nolint:errcheck // it never fails
		h.Write([]byte{0, 0, 0}) //nolint:errcheck // it never fails
	}
	return h.Sum64() | 1
}

package prompt_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
	"pgregory.net/rapid"
)

// speller writes texts in tokens as no tokenizer would choose them.
type speller struct {
	tok     *tokenizer.Tokenizer
	bytes   map[string]uint32 // plain tokens by their bytes
	longest int
}

func newSpeller(tok *tokenizer.Tokenizer) *speller {
	s := &speller{tok: tok, bytes: map[string]uint32{}}
	structure := map[uint32]bool{}
	for _, a := range tok.AddedTokens() {
		structure[a.ID] = true
	}
	for id := range uint32(tok.Size()) {
		if b := tok.Bytes(id); len(b) > 0 && !structure[id] {
			s.bytes[string(b)] = id
			s.longest = max(s.longest, len(b))
		}
	}
	return s
}

// spell draws ids that decode to text. The control tokens in it are mostly ids of
// their own, as models write them.
func (s *speller) spell(t *rapid.T, text string) (ids []uint32) {
	for len(text) > 0 {
		if n := strings.IndexByte(text, '>') + 1; text[0] == '<' && n > 0 {
			if id, ok := s.tok.ID(text[:n]); ok && rapid.IntRange(0, 9).Draw(t, "as text") > 0 {
				ids, text = append(ids, id), text[n:]
				continue
			}
		}
		var choices []int
		for n := 1; n <= min(len(text), s.longest); n++ {
			if _, ok := s.bytes[text[:n]]; ok {
				choices = append(choices, n)
			}
		}
		n := rapid.SampledFrom(choices).Draw(t, "length")
		ids, text = append(ids, s.bytes[text[:n]]), text[n:]
	}
	return ids
}

// answered is something that the demo model could say, as text and as blocks.
func answered(t *rapid.T) (string, []chat.Block) {
	words := func(label string) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"Look", " at", " it", "\n", "é", " 東京", " <b>", "  ", "x", ":", "👍", " <|im_", "1234"}), 1, 8).Draw(t, label), "")
	}
	var (
		text   string
		blocks []chat.Block
	)
	if rapid.Bool().Draw(t, "thinks") {
		thought := "So" + words("thought") + "."
		text += "<think>\n" + thought + "\n</think>\n\n"
		blocks = append(blocks, chat.Block{Kind: chat.Thought, Text: thought})
	}
	said := "Well" + words("said") + "."
	text += said
	blocks = append(blocks, chat.Block{Kind: chat.Text, Text: said})
	for i := range rapid.IntRange(0, 2).Draw(t, "calls") {
		args := fmt.Sprintf(`{"path":  %q}`, words("path"))
		text += "\n<tool_call>\n{\"name\": \"read\", \"arguments\": " + args + "}\n</tool_call>"
		blocks = append(blocks, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: fmt.Sprint(i), Name: "read", Kind: chat.ToolFunction, Args: args}})
	}
	return text, blocks
}

// next is what a client sends after an answer.
func next(t *rapid.T, blocks []chat.Block) []chat.Turn {
	turns := []chat.Turn{{Role: chat.RoleAssistant, Blocks: blocks}}
	for _, b := range blocks {
		if b.Use != nil {
			turns = append(turns, chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: b.Use.ID, Blocks: []chat.Block{{Kind: chat.Text, Text: planted().Draw(t, "result")}}}}}})
		}
	}
	if len(turns) == 1 || rapid.Bool().Draw(t, "speaks") {
		turns = append(turns, said(chat.RoleUser, planted().Draw(t, "question")))
	}
	return turns
}

// A prompt begins with the one before it and its answer, token for token,
// whichever tokens the model has chosen, and however the answer ended.
func TestPromptsExtendAnswers(t *testing.T) {
	all := variants(t)
	for _, name := range []string{"as it is", "not special", "a lone word"} {
		m := all[name]
		spell := newSpeller(m.Tokenizer)
		end, ok := m.Tokenizer.ID("<|im_end|>")
		if !ok {
			t.Fatal("the demo model has no <|im_end|>")
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := *m
				m.EOS = []uint32{end}
				m.Turns = prompt.NewTurns(1 << 20)
				r := ask("w" + planted().Draw(t, "first"))
				build := func() *prompt.Prompt {
					p, err := m.Build(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					return p
				}
				before := build()
				settled := before.IDs[:0]
				for range rapid.IntRange(1, 5).Draw(t, "turns") {
					// Of several choices the client goes on with one.
					var (
						blocks []chat.Block
						ids    []uint32
					)
					for range rapid.IntRange(1, 3).Draw(t, "choices") {
						var text string
						text, blocks = answered(t)
						ids = spell.spell(t, text)
						if rapid.Bool().Draw(t, "ends") {
							ids = append(ids, end)
						}
						m.Remember(before, ids, nil)
					}
					r.Turns = append(r.Turns, next(t, blocks)...)
					after := build()
					if want := slices.Concat(before.IDs, ids); len(after.IDs) < len(want) || !slices.Equal(after.IDs[:len(want)], want) {
						t.Fatalf("the prompt\n%q\ndoes not begin with\n%q\nas these tokens:\n%v\n%v", m.Tokenizer.Decode(after.IDs, false), m.Tokenizer.Decode(want, false), after.IDs, want)
					}
					if len(after.IDs) < len(settled) || !slices.Equal(after.IDs[:len(settled)], settled) {
						t.Fatalf("settled as %v, and now %v", settled, after.IDs)
					}
					at, err := m.Offsets(r, nil, chat.Breakpoint{Turn: len(r.Turns) - 1})
					if err != nil || at[0] < len(before.IDs)+len(ids) {
						t.Fatalf("of %d tokens %d are settled, %v", len(after.IDs), at, err)
					}
					settled, before = after.IDs[:at[0]], after
				}
			})
		})
	}
}

// A template that forgets thoughts shows answers in another way later on. They
// can be put back as they were, unless the client changed them.
func TestReplayRaw(t *testing.T) {
	const (
		thought = "I must look."
		text    = "One moment."
		args    = `{"path": "a"}`
		raw     = "<think>" + thought + "</think>" + text + "<tool_call>read" + args + "</tool_call>"
	)
	answer := func(text string) chat.Turn {
		return chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{
			{Kind: chat.Thought, Text: thought},
			{Kind: chat.Text, Text: text},
			{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "1", Name: "read", Kind: chat.ToolFunction, Args: args}},
		}}
	}
	for name, tc := range map[string]struct {
		replay bool
		said   string // as the client sends it back
		eos    string // of the model
		want   bool
		open   bool // the template does not end turns with calls
	}{
		"replayed":              {true, text, "<|im_end|>", true, false},
		"switched off":          {false, text, "<|im_end|>", false, false},
		"changed":               {true, text + " ", "<|im_end|>", false, false},
		"an end that is not it": {true, text, "<|endoftext|>", false, false},
		"another turn's end":    {true, text, "<|im_end|>", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := *modelsWithTemplates(t)["forgetful"]
			if tc.open {
				source := strings.Replace(templates["forgetful"], `{{- '<|im_end|>\n' }}`, `{{- '<|im_end|>\n' if not m.tool_calls }}`, 1)
				var err error
				if m.Template, err = chattemplate.Compile(source, chattemplate.Config{}); err != nil {
					t.Fatal(err)
				}
			}
			end, ok := m.Tokenizer.ID(tc.eos)
			if !ok {
				t.Fatalf("the demo model has no %s", tc.eos)
			}
			m.ReplayRaw, m.EOS = tc.replay, []uint32{end}
			r := ask("hello")
			p, err := m.Build(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids := m.Tokenizer.Append(nil, raw)
			var said prompt.Saying
			for _, e := range []chat.Event{
				{Kind: chat.Start},
				{Kind: chat.BlockStart, BlockKind: chat.Thought},
				{Kind: chat.ThinkingDelta, Text: thought},
				{Kind: chat.BlockStop},
				{Kind: chat.BlockStart, BlockKind: chat.Text},
				{Kind: chat.TextDelta, Text: text[:3]},
				{Kind: chat.TextDelta, Text: text[3:]},
				{Kind: chat.BlockStop},
				{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "1", Name: "read"}},
				{Kind: chat.ArgsDelta, Text: args},
				{Kind: chat.BlockStop},
				{Kind: chat.Finished},
			} {
				said.Event(&e)
			}
			m.Remember(p, ids, &said)
			r.Turns = append(r.Turns, answer(tc.said), chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "1", Blocks: []chat.Block{{Kind: chat.Text, Text: "seen"}}}}}})
			r.Turns = append(r.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Text, Text: "Done."}}}, chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "again"}}})
			after, err := m.Tokens(r, true)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Concat(p.IDs, ids)
			if !strings.Contains(m.Tokenizer.Decode(after, false), "seen") {
				t.Error("the turn behind it is lost")
			}
			if got := slices.Equal(after[:min(len(after), len(want))], want); got != tc.want {
				t.Errorf("%q begins with the answer as it was: %v", m.Tokenizer.Decode(after, false), got)
			}
		})
	}
}

// The turn cache stays within its bytes and keeps what was used last; what was
// forgotten is tokenized as ever.
func TestTurnsAreBounded(t *testing.T) {
	m := demoModel(t)
	m.Turns = prompt.NewTurns(1 << 20)
	odd := func(i int) (*chat.Request, []uint32) {
		r := ask(fmt.Sprint("question ", i))
		p, err := m.Build(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var ids []uint32
		for _, b := range fmt.Sprintf("answer%d", i) {
			ids = m.Tokenizer.Append(ids, string(b))
		}
		m.Remember(p, ids, nil)
		r.Turns = append(r.Turns, said(chat.RoleAssistant, fmt.Sprintf("answer%d", i)), said(chat.RoleUser, "and?"))
		return r, slices.Concat(p.IDs, ids)
	}
	kept := func(r *chat.Request, want []uint32) bool {
		got, err := m.Tokens(r, true)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Equal(got[:min(len(got), len(want))], want)
	}
	first, ids := odd(0)
	one := m.Turns.Stats()
	if !kept(first, ids) || one.Turns != 1 || one.Bytes == 0 {
		t.Fatalf("one turn: %+v", one)
	}
	m.Turns = prompt.NewTurns(one.Bytes * 7 / 2)
	first, ids = odd(0)
	second, secondIDs := odd(1)
	for i := 2; i < 10; i++ {
		odd(i)
		if !kept(first, ids) {
			t.Fatalf("turn 0 was used last and is gone after %d", i)
		}
	}
	if kept(second, secondIDs) {
		t.Error("turn 1 was never used and is still there")
	}
	s := m.Turns.Stats()
	if s.Turns != 3 || s.Evictions != 7 || s.Bytes > one.Bytes*7/2 || s.Hits != 8 || s.Misses != 1 || s.Tokens == 0 {
		t.Errorf("%+v", s)
	}
	// Too large to be kept at all, and off.
	for _, small := range []*prompt.Turns{prompt.NewTurns(one.Bytes / 2), nil} {
		m.Turns = small
		if r, ids := odd(0); kept(r, ids) {
			t.Error("kept where there is no room")
		}
	}
}

// However often one prompt is answered, looking for an answer stays cheap.
func TestAnswersToOnePromptAreBounded(t *testing.T) {
	m := demoModel(t)
	p, err := m.Build(ask("hello"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		m.Remember(p, m.Tokenizer.Append(nil, fmt.Sprint("answer ", i)), nil)
		m.Remember(p, m.Tokenizer.Append(nil, fmt.Sprint("answer ", i)), nil)
	}
	if s := m.Turns.Stats(); s.Turns != 128 || s.Evictions != 1000-128 {
		t.Errorf("%+v", s)
	}
}

// What no text of is known, or what is none, is not remembered.
func TestNotRemembered(t *testing.T) {
	m := demoModel(t)
	ids := m.Tokenizer.Append(nil, "hello")
	byIDs := ask("")
	byIDs.Prompt = &chat.Prompt{IDs: ids}
	for name, tc := range map[string]struct {
		r   *chat.Request
		ids []uint32
	}{
		"token ids":    {byIDs, ids},
		"no answer":    {ask("hello"), nil},
		"only the end": {ask("hello"), m.EOS[:1]},
	} {
		p, err := m.Build(tc.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Remember(p, tc.ids, nil)
		if s := m.Turns.Stats(); s.Turns != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Many sessions at once do not disturb each other.
func TestTurnsAtOnce(t *testing.T) {
	m := demoModel(t)
	m.Turns = prompt.NewTurns(20_000)
	var sessions sync.WaitGroup
	for k := range 8 {
		sessions.Go(func() {
			r := ask(fmt.Sprint("hello ", k%3))
			for i := range 30 {
				p, err := m.Build(r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				text := fmt.Sprintf("answer %d %d", k, i)
				m.Remember(p, m.Tokenizer.Append(nil, text), nil)
				r.Turns = append(r.Turns, said(chat.RoleAssistant, text), said(chat.RoleUser, "go on"))
				if got := m.Tokenizer.Decode(p.IDs, false); strings.Count(got, "answer") != i {
					t.Errorf("session %d, turn %d: %q", k, i, got)
				}
			}
		})
	}
	sessions.Wait()
}

// An answer is found where it is the whole of what the turn shows: not where the
// client made more of it, and not where a longer one is there as well.
func TestWholeAnswers(t *testing.T) {
	m := demoModel(t)
	odd := func(text string) (ids []uint32) {
		for _, b := range text {
			ids = m.Tokenizer.Append(ids, string(b))
		}
		return ids
	}
	p, err := m.Build(ask("hello"), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Remember(p, odd("Well\n\n"), nil)
	m.Remember(p, odd("Well"), nil)
	for text, want := range map[string][]uint32{
		"Well":        odd("Well"),
		"Well\n\n":    odd("Well\n\n"),
		"Well spoken": m.Tokenizer.Append(nil, "Well spoken"),
		"We":          m.Tokenizer.Append(nil, "We"),
	} {
		r := ask("hello")
		r.Turns = append(r.Turns, said(chat.RoleAssistant, text))
		got, err := m.Tokens(r, false)
		if err != nil {
			t.Fatal(err)
		}
		if want = slices.Concat(p.IDs, want, m.Tokenizer.Append(nil, "<|im_end|>\n")); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

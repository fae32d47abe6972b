package prompt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/prompt"
	"pgregory.net/rapid"
)

// templates lay out conversations in the ways that are about.
var templates = map[string]string{
	"headers": `{{- bos_token }}{%- if tools %}{{- '<|im_start|>tools\n' }}{%- for t in tools %}{{- t | tojson }}{{- '\n' }}{%- endfor %}{{- '<|im_end|>' }}{%- endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n\n' + (m.content or '') | trim }}
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + c.function.name + c.function.arguments | tojson + '</tool_call>' }}{%- endfor %}
{{- '<|im_end|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n\n' }}{%- endif %}`,
	// No control tokens but one at the end of answers, no line breaks.
	"bare": `{%- for m in messages %}{%- if m.role == 'assistant' %}{{- ' ' + (m.content or '') }}{%- for c in m.tool_calls or [] %}{{- ' call ' + c.function.name + ' ' + c.function.arguments | tojson }}{%- endfor %}{{- '<|im_end|>' }}{%- else %}{{- '[' + m.role + '] ' + m.content + ' [/' + m.role + ']' }}{%- endif %}{%- endfor %}`,
	// Thoughts are shown as long as nobody has asked something new.
	"forgetful": `{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- if m.reasoning_content and loop.index0 > ns.last %}{{- '<think>' + m.reasoning_content + '</think>' }}{%- endif %}{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + c.function.name + c.function.arguments | tojson + '</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`,
	// Who says two things in a row is refused.
	"strict": `{%- set ns = namespace(last='assistant') %}{%- for m in messages %}{%- if m.role == ns.last and m.role != 'tool' %}{{- raise_exception('roles must alternate') }}{%- endif %}{%- set ns.last = m.role %}
{{- '<|im_start|>' + m.role + ': ' + (m.content or '') }}{%- for c in m.tool_calls or [] %}{{- ' call ' + c.function.name + ' ' + c.function.arguments | tojson }}{%- endfor %}{{- '<|im_end|>' if m.role == 'assistant' else '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant: ' }}{%- endif %}`,
}

// modelsWithTemplates are the demo model with its own template and others.
func modelsWithTemplates(t testing.TB) map[string]*prompt.Model {
	t.Helper()
	plain := demoModel(t)
	models := map[string]*prompt.Model{"demo": &plain}
	for name, source := range templates {
		m := demoModel(t)
		var err error
		if m.Template, err = chattemplate.Compile(source, chattemplate.Config{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		models[name] = &m
	}
	return models
}

// whatever draws turns that may follow those of r.
func whatever(t *rapid.T, m *prompt.Model, r *chat.Request) {
	for range rapid.IntRange(0, 4).Draw(t, "turns") {
		role := chat.RoleUser
		var calls []chat.Block
		if n := len(r.Turns); n > 0 {
			for _, b := range r.Turns[n-1].Blocks {
				if b.Use != nil {
					calls = append(calls, b)
				}
			}
			if r.Turns[n-1].Role != chat.RoleAssistant {
				role = chat.RoleAssistant
			}
		}
		turn := said(role, planted().Draw(t, "said"))
		switch {
		case calls != nil:
			turn = chat.Turn{Role: chat.RoleTool}
			for _, c := range calls {
				turn.Blocks = append(turn.Blocks, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: c.Use.ID, Blocks: []chat.Block{{Kind: chat.Text, Text: planted().Draw(t, "result")}}}})
			}
		case role == chat.RoleAssistant:
			_, turn.Blocks = answered(t)
		}
		r.Turns = append(r.Turns, turn)
	}
}

// What is settled at a place stays, whatever is said behind it; and later places
// settle no less.
func TestOffsetsHold(t *testing.T) {
	for name, m := range modelsWithTemplates(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := *m
				m.Cache, m.Turns = prompt.NewCache(1<<20), prompt.NewTurns(1<<20)
				m.ContextLength = 0
				r := ask("w" + planted().Draw(t, "first"))
				r.API = rapid.SampledFrom([]chat.API{chat.APIChat, chat.APIMessages}).Draw(t, "api")
				if rapid.Bool().Draw(t, "system") {
					r.System = []chat.Block{{Kind: chat.Text, Text: "s" + planted().Draw(t, "one")}, {Kind: chat.Text, Text: planted().Draw(t, "two")}}
					r.Cache = append(r.Cache, chat.Breakpoint{Turn: -1, Block: rapid.IntRange(-1, 1).Draw(t, "block")})
				}
				whatever(t, &m, r)
				if rapid.Bool().Draw(t, "more") {
					r.Turns[0].Blocks = append(r.Turns[0].Blocks, chat.Block{Kind: chat.Text, Text: planted().Draw(t, "second")})
				}
				for i := range r.Turns {
					if rapid.Bool().Draw(t, "marked") {
						r.Cache = append(r.Cache, chat.Breakpoint{Turn: i, Block: rapid.IntRange(-1, len(r.Turns[i].Blocks)-1).Draw(t, "block")})
					}
				}
				p, err := m.Build(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				offsets, err := m.Offsets(r, nil, r.Cache...)
				if err != nil {
					t.Fatal(err)
				}
				last := 0
				if n := len(offsets); n > 0 {
					last = offsets[n-1]
				}
				if !slices.IsSorted(offsets) || p.Marked > last || p.Marked == 0 && last > 0 {
					t.Fatalf("%v are at %v, the last at %d", r.Cache, offsets, p.Marked)
				}
				for i, at := range r.Cache {
					other := *r
					other.Cache = nil
					if other.Turns = slices.Clone(r.Turns[:max(at.Turn+1, 1)]); at.Turn < 0 {
						other.Turns = []chat.Turn{said(chat.RoleUser, planted().Draw(t, "asked"))}
					}
					whatever(t, &m, &other)
					later, err := m.Tokens(&other, true)
					if err != nil {
						t.Fatal(err)
					}
					n := offsets[i]
					if name == "forgetful" && len(other.Turns) > at.Turn+1 && hasLaterQuestion(&other, at.Turn) {
						continue // which is what such templates are like
					}
					if n > len(later) || !slices.Equal(p.IDs[:n], later[:n]) {
						t.Fatalf("%v: of\n%q\n%q stands, but then there is\n%q", at, m.Tokenizer.Decode(p.IDs, false), m.Tokenizer.Decode(p.IDs[:n], false), m.Tokenizer.Decode(later, false))
					}
				}
			})
		})
	}
}

// hasLaterQuestion tells that a user speaks behind a turn.
func hasLaterQuestion(r *chat.Request, turn int) bool {
	return slices.ContainsFunc(r.Turns[turn+1:], func(t chat.Turn) bool { return t.Role == chat.RoleUser })
}

// A place is where one would look for it.
func TestOffsets(t *testing.T) {
	models := modelsWithTemplates(t)
	read := &chat.ToolUse{ID: "1", Name: "read", Kind: chat.ToolFunction, Args: `{"p": 1}`}
	r := &chat.Request{
		System: []chat.Block{{Kind: chat.Text, Text: "Be brief."}, {Kind: chat.Text, Text: "Be kind."}},
		Turns: []chat.Turn{
			{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "one two"}, {Kind: chat.Text, Text: "three"}}},
			{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Thought, Text: "Hm"}, {Kind: chat.Text, Text: "Let me see"}, {Kind: chat.ToolCall, Use: read}}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "1", Blocks: []chat.Block{{Kind: chat.Text, Text: "seen"}}}}}},
			said(chat.RoleAssistant, "four"),
			said(chat.RoleUser, "five"),
		},
	}
	for _, tc := range []struct {
		template string
		at       chat.Breakpoint
		want     string // the prompt up to there ends with this
	}{
		{"demo", chat.Breakpoint{Turn: -1, Block: 0}, "<|im_start|>system\nBe brief"}, // which could go on as "brief...",
		{"demo", chat.Breakpoint{Turn: -1, Block: 1}, "Be brief.\nBe kind"},
		{"demo", chat.Breakpoint{Turn: 0, Block: 0}, "user\none"},
		{"demo", chat.Breakpoint{Turn: 0, Block: 1}, "three<|im_end|>\n<|im_start|>"},
		{"demo", chat.Breakpoint{Turn: 0, Block: prompt.WholeTurn}, "three<|im_end|>\n<|im_start|>"},
		{"demo", chat.Breakpoint{Turn: 1, Block: 0}, "<think>\nHm\n</think>\n\n"},
		{"demo", chat.Breakpoint{Turn: 1, Block: 1}, "Let me"},
		{"demo", chat.Breakpoint{Turn: 1, Block: 2}, "</tool_call><|im_end|>\n<|im_start|>"},
		{"demo", chat.Breakpoint{Turn: 2, Block: 0}, "\nseen\n</tool_response><|im_end|>\n<|im_start|>"},
		{"demo", chat.Breakpoint{Turn: 4, Block: 0}, "five<|im_end|>\n<|im_start|>"},
		{"bare", chat.Breakpoint{Turn: 0, Block: 1}, "three [/user"},
		{"bare", chat.Breakpoint{Turn: 3, Block: 0}, "four<|im_end|>"},
		{"headers", chat.Breakpoint{Turn: 3, Block: 0}, "four<|im_end|><|im_start|>"},
		{"strict", chat.Breakpoint{Turn: 3, Block: 0}, "four<|im_end|><|im_start|>"},
		{"forgetful", chat.Breakpoint{Turn: 1, Block: 2}, "three<|im_end|>\n<|im_start|>assistant"}, // the thought is forgotten later
	} {
		m := models[tc.template]
		n, err := m.Offsets(r, nil, tc.at)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := m.Tokens(r, true)
		if err != nil {
			t.Fatal(err)
		}
		got := m.Tokenizer.Decode(ids[:n[0]], false)
		if !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s, %v: %q, want an end like %q", tc.template, tc.at, got, tc.want)
		}
	}
	for _, at := range []chat.Breakpoint{{Turn: 5}, {Turn: -3}, {Turn: 0, Block: 2}, {Turn: -2, Block: 0}, {Turn: 3, Block: -2}} {
		if _, err := models["demo"].Offsets(r, nil, at); err == nil || !strings.Contains(err.Error(), "place:") {
			t.Errorf("%v: %v", at, err)
		}
	}
	bare := &chat.Request{Prompt: &chat.Prompt{Text: "hello"}, Turns: r.Turns}
	if n, err := models["demo"].Offsets(bare, nil, chat.Breakpoint{}); err != nil || !slices.Equal(n, []int{0}) {
		t.Errorf("a bare prompt has a place at %v, %v", n, err)
	}
}

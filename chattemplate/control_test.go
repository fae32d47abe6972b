package chattemplate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var controls = chattemplate.NewControls([]string{"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|a", "<s>", "</s>", "[INST]", "[/INST]", "｜x｜"})

func renderInert(t rapid.TB, tmpl *chattemplate.Template, r *chat.Request) chattemplate.Rendered {
	out, err := tmpl.RenderInert(r, chattemplate.Options{AddGenerationPrompt: true}, controls)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// structure returns the control tokens that the template wrote.
func structure(r chattemplate.Rendered) []string {
	var tokens []string
	for at := 0; ; {
		start, end, ok := controls.Find(r.Text, at)
		if !ok {
			return tokens
		}
		if slices.ContainsFunc(r.Inert, func(i int) bool { return start < i && i < end }) {
			at = start + 1
			continue
		}
		tokens, at = append(tokens, r.Text[start:end]), end
	}
}

func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"<":                  "",
		"<|im_en":            "",
		"a<|im_end|>b":       "<|im_end|>",
		"<<|im_<|a<|im_end>": "<|a",
		"[/INST][INST]":      "[/INST]",
		"｜｜x｜":               "｜x｜",
	} {
		start, end, ok := controls.Find(text, 0)
		if text[start:end] != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, text[start:end], ok, want)
		}
	}
	none := chattemplate.NewControls([]string{"", "x"})
	if _, _, ok := none.Find("x", 0); ok {
		t.Error("a set of nothing finds something")
	}
}

// Of any set, in texts of any length, what is found is what comes first, and the
// longest of that.
func TestFindLikeASimpleSearch(t *testing.T) {
	for _, texts := range [][]string{
		{"<|im_end|>"},
		{"<|im_end|>", "<|im_start|>", "[INST]", "<|im"},
		{"<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]", "｜x｜", "[IN"},
	} {
		c := chattemplate.NewControls(texts)
		rapid.Check(t, func(t *rapid.T) {
			var b strings.Builder
			for range rapid.IntRange(0, 8).Draw(t, "words") {
				b.WriteString(strings.Repeat(rapid.SampledFrom([]string{"x", "<", "[", "ｘ"}).Draw(t, "filler"), rapid.SampledFrom([]int{0, 1, 7, 1015, 1023, 1024, 2048}).Draw(t, "times")))
				b.WriteString(rapid.SampledFrom(append(texts, "", "<|im_", "[I")).Draw(t, "word"))
			}
			text := b.String()
			start, want := len(text), ""
			for _, s := range texts {
				if i := strings.Index(text, s); i >= 0 && (i < start || i == start && len(s) > len(want)) {
					start, want = i, s
				}
			}
			if i, j, ok := c.Find(text, 0); ok != (want != "") || ok && (i != start || text[i:j] != want) {
				t.Fatalf("%q: %q at %d, %v; want %q at %d", text, text[i:j], i, ok, want, start)
			}
		})
	}
}

// Whatever is said, and to whatever control tokens: the text is what was said,
// and holds none of them.
func FuzzInert(f *testing.F) {
	f.Add("a<|im_end|>b", "<|im", "_end|> \n", "<s>")
	f.Add("𐌰𐌱<", "|", "[INST", "]")
	f.Add("<</s>", "/s>", "\uFFFD", "𐌱")
	tmpl := compile(f, "{% for p in messages[0].content %}{{ p.text }}{% endfor %}")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		said, want := turn(chat.RoleUser), ""
		for _, s := range []string{a, b, c, d} {
			s = strings.ToValidUTF8(s, "\uFFFD") // as all text is that comes in
			said.Blocks, want = append(said.Blocks, text(s)), want+s
		}
		out := renderInert(t, tmpl, &chat.Request{Turns: []chat.Turn{said}})
		if out.Text != want {
			t.Fatalf("%q, want %q", out.Text, want)
		}
		if found := structure(out); found != nil {
			t.Fatalf("%q holds %q", out.Text, found)
		}
	})
}

// The ways in which templates put text together, and what may come of it.
func TestInert(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		said   []string // the texts of one user turn
		text   string
		tokens []string
	}{
		"nothing to guard":              {"<s>{{ messages[0].content }}", []string{"a < b"}, "<s>a < b", []string{"<s>"}},
		"a token":                       {"<s>{{ messages[0].content }}</s>", []string{"a<s>b"}, "<s>a<s>b</s>", []string{"<s>", "</s>"}},
		"two halves":                    {"{% for p in messages[0].content %}{{ p.text }}{% endfor %}", []string{"<|im", "_end|>"}, "<|im_end|>", nil},
		"three pieces":                  {"{% for p in messages[0].content %}{{ p.text }}{% endfor %}", []string{"<", "|im_end", "|>"}, "<|im_end|>", nil},
		"trimmed halves":                {"{% for p in messages[0].content %}{{ p.text | trim }}{% endfor %}", []string{" <|im \n", " _end|>"}, "<|im_end|>", nil},
		"the template opens":            {"<{{ messages[0].content }}", []string{"|im_end|>"}, "<|im_end|>", nil},
		"the template closes":           {"{{ messages[0].content }}|>", []string{"<|im_end"}, "<|im_end|>", nil},
		"the template lends both":       {"<{{ messages[0].content }}>", []string{"|im_end|"}, "<|im_end|>", nil},
		"glued":                         {"{{ '<s>' ~ messages[0].content + '</s>' }}", []string{"</s><s>"}, "<s></s><s></s>", []string{"<s>", "</s>"}},
		"a tag is taken out":            {"{{ messages[0].content | replace('</b>', '') }}", []string{"<|im_</b>end|>"}, "<|im_end|>", nil},
		"in JSON":                       {"{{ messages | tojson }}", []string{"\"<s>\""}, `[{"role": "user", "content": "\"<s>\""}]`, nil},
		"printed as Python does":        {"{{ messages }}", []string{"<s>'"}, `[{'role': 'user', 'content': "<s>'"}]`, nil},
		"escaped":                       {"{{ messages[0].content | e }}", []string{"<s>"}, "&lt;s&gt;", nil},
		"a tag that the template seeks": {"{{ messages[0].content.split('</think>')[-1] }}", []string{"<s>a</think>b</s>"}, "b</s>", nil},
		"the token that it seeks":       {"{{ messages[0].content.split('</s>')[-1] }}", []string{"a</s>b"}, "a</s>b", nil},
		"our own marks":                 {"<s>{{ messages[0].content }}", []string{"𐌰𐌱<s>𐌱𐌱𐌰𐌲"}, "<s>𐌰𐌱<s>𐌱𐌱𐌰𐌲", []string{"<s>"}},
		"our own marks alone":           {"<s>{{ messages[0].content }}", []string{"𐌰𐌱"}, "<s>𐌰𐌱", []string{"<s>"}},
		"many":                          {"<s>{{ messages[0].content }}</s>", []string{"<|im_<|im_end|>end|>[INST]x[/INST]｜x｜<"}, "<s><|im_<|im_end|>end|>[INST]x[/INST]｜x｜<</s>", []string{"<s>", "</s>"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := turn(chat.RoleUser)
			for _, s := range tc.said {
				said.Blocks = append(said.Blocks, text(s))
			}
			got := renderInert(t, compile(t, tc.source), &chat.Request{API: chat.APIChat, Turns: []chat.Turn{said}})
			if got.Text != tc.text {
				t.Errorf("text %q, want %q", got.Text, tc.text)
			}
			if diff := cmp.Diff(tc.tokens, structure(got)); diff != "" {
				t.Errorf("control tokens of the template (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing that a client can set gets past.
func TestInertInAllFields(t *testing.T) {
	const token = "<s>"
	r := &chat.Request{
		API:    chat.APIChat,
		System: []chat.Block{text(token)},
		Turns: []chat.Turn{
			{Role: chat.RoleUser, Name: token, Blocks: []chat.Block{text(token), {Kind: chat.Image, Media: &chat.Media{MediaType: token}}}},
			turn(chat.RoleAssistant, thought(token), text(token), use(token, token, `{"<s>":["<\u0073>",{"a":"<s>"}]}`), use("2", "f", token)),
			turn(chat.RoleTool, answer(token, text(token)), chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: "2", Name: token, Blocks: []chat.Block{text("r")}}}),
			turn(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "3", Name: "g", Kind: chat.ToolCustom, Args: token}}),
		},
		Tools:        []chat.Tool{{Kind: chat.ToolFunction, Name: token, Description: token, Schema: []byte(`{"title":"<\u0073>"}`)}},
		Thinking:     chat.Thinking{Effort: token},
		TemplateArgs: []byte(`{"documents":["<s>"]}`),
	}
	for name, source := range map[string]string{
		"objects": "{{ messages }}{# reasoning_content #}{{ tools | tojson }}{{ reasoning_effort }}{{ documents }}",
		"text":    "{% for m in messages %}{{ m.content }}{{ m.name }}{% for c in m.tool_calls or [] %}{% if c.function.arguments is string %}{{ c.function.arguments }}{% endif %}{{ c.function.name }}{% endfor %}{% endfor %}",
	} {
		tmpl := compile(t, source)
		out := renderInert(t, tmpl, r)
		plain, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
		if err != nil || out.Text != plain {
			t.Errorf("%s: %q, want %q; %v", name, out.Text, plain, err)
		}
		if n := strings.Count(out.Text, token); n < 8 || structure(out) != nil {
			t.Errorf("%s: %q of %d control tokens in\n%s", name, structure(out), n, out.Text)
		}
	}
}

// planted draws what an attacker, or a text about templates, holds.
func planted() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"<|im_start|>", "<|im_end|>", "<|im_", "end|>", "<", "|", ">", "<|", "|>", "[INST]", "</s>", "a", " ", "\n", "é", `"`, `\`, "</think>", "𐌰", "𐌱",
		}), 0, 6).Draw(t, "words"), "")
	})
}

// Whatever clients say, and wherever, the template's control tokens are those of
// a conversation of the same shape, and the text is what it always was.
func TestInertEverywhere(t *testing.T) {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for name, tmpl := range map[string]*chattemplate.Template{"demo": compile(t, string(source)), "hermes": compileFile(t, "hermes.jinja")} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				word := func(label string) string { return "w" + planted().Draw(t, label) }
				request := func(word func(string) string) *chat.Request {
					r := &chat.Request{API: chat.APIMessages, TemplateArgs: []byte(`{"keep_thoughts":true}`), Turns: []chat.Turn{
						system(word("system")),
						turn(chat.RoleUser, text(word("first")), text(word("second"))),
						turn(chat.RoleAssistant, thought(word("thought")), text(word("said")), use("1", word("name"), fmt.Sprintf(`{%q:%q}`, word("key"), word("value")))),
						turn(chat.RoleTool, answer("1", text(word("result")))),
						assistant(word("answer")),
						user(word("question")),
					}}
					r.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: word("tool"), Description: word("description"), Schema: fmt.Appendf(nil, `{"type":"object","properties":{%q:{"type":"string"}}}`, word("property"))}}
					return r
				}
				r := request(word)
				got := renderInert(t, tmpl, r)
				if plain, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true}); err != nil || plain != got.Text {
					t.Fatalf("text\n%s\nwant\n%s", got.Text, plain)
				}
				want := structure(renderInert(t, tmpl, request(func(string) string { return "w" })))
				if diff := cmp.Diff(want, structure(got)); diff != "" {
					t.Fatalf("of\n%s\n(-want +got):\n%s", got.Text, diff)
				}
			})
		})
	}
}

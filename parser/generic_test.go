package parser_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// companions are the reasoning parsers that go with tool-call parsers; with all
// others goes qwen3.
var companions = map[string]string{
	"none": "basic", "harmony": "gpt_oss", "kimi_k3": "kimi_k3", "kimi-k3": "kimi_k3", "kimi_k2": "kimi_k25", "glm47": "glm45", "gemma4": "gemma4", "gemma-4": "gemma4",
	"mistral": "mistral", "minimax_m2": "minimax_m2", "minimax_m3": "minimax_m3", "inkling": "inkling", "muse": "muse", "muse_glimmer": "muse",
	"deepseek_v3_1": "deepseek_v3_1", "deepseek_v3_2": "deepseek_v3_2", "deepseek_v4": "deepseek_v4", "deepseek_v3": "deepseek_r1",
}

// everyFamily returns the names of families that together use every grammar.
func everyFamily(t testing.TB) (names []string) {
	t.Helper()
	seen := map[[2]string]bool{}
	add := func(tool, reasoning string) {
		f, err := parser.Family{}.With(tool, reasoning)
		if err != nil {
			t.Fatal(err)
		}
		if key := [2]string{f.ToolParser(), f.ReasoningParser()}; !seen[key] {
			seen[key] = true
			names = append(names, tool+"+"+reasoning)
		}
	}
	for _, tool := range parser.ToolParsers() {
		reasoning := companions[tool]
		if reasoning == "" {
			reasoning = "qwen3"
		}
		add(tool, reasoning)
	}
	paired := []string{"gpt_oss", "kimi_k3", "kimi-k3", "inkling", "muse", "muse_glimmer"}
	for _, reasoning := range parser.ReasoningParsers() {
		if !slices.Contains(paired, reasoning) {
			add("hermes", reasoning)
		}
	}
	return names
}

// common are fragments of generated texts, sane and not, that mean something to
// many families.
var common = []string{
	"\n", " ", "\t\n", "<", "</", "<t", ">", "|", "[", "]", "{", "}", "text", "漢字", "naïve ", ",", ":", `"`, `\`, "'", "=", "(", ")", "f(a=1)", "ls", "functions.ls:0", "json", "```json\n", "\n```",
	"<think>", "</think>", `{"name": "ls", "arguments": {"p": "/tmp"}}`, `{"arguments":{"a":[1,-2.5e3,true,null]},"name":"cat"}`, `{"p": "/tmp"}`,
	`{"name": "ls", "arguments": "{\"p\": 1}"}`, `{"name":"ls"}`, `{"name":"ls","arguments":{"s":"</tool_call></think>\n\"<think>"}}`,
	`{"name":"ls","arguments":{"a":oops}}`, `{"name"`, `"x"`, "not json", "print(1)", `[{"name":"ls","parameters":{}},`,
}

// fragmentsOf returns what texts of a family are made of: its markers and their
// halves, and the lines of its cases.
func fragmentsOf(f parser.Family, cases []testCase) []string {
	list := slices.Clone(common)
	for _, m := range f.Markers() {
		list = append(list, m, m, m[:len(m)/2], m[len(m)/2:])
	}
	for i := range cases {
		if c := &cases[i]; c.family.ToolParser() == f.ToolParser() && len(list) < 1000 {
			list = append(list, c.text)
			for line := range strings.Lines(c.text) {
				list = append(list, line)
				if i := strings.IndexAny(line, ">]}"); i >= 0 {
					list = append(list, line[:i+1], line[i+1:])
				}
			}
		}
	}
	return list
}

// grammar is a family and what its texts are made of.
type grammar struct {
	name      string
	family    parser.Family
	fragments []string
}

func grammars(t testing.TB) (list []grammar) {
	cases := readCases(t)
	for _, name := range everyFamily(t) {
		f := familyOf(t, name)
		list = append(list, grammar{name, f, fragmentsOf(f, cases)})
	}
	return list
}

func (g *grammar) text(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(g.fragments), 0, 14).Draw(t, "fragments"), "")
}

// options draws how a text is read.
func (g *grammar) options(t *rapid.T) *testCase {
	rarely := func(what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 0 }
	c := &testCase{family: g.family, reason: chat.FinishStop}
	c.opts.ThinkOn, c.opts.ToolsOn = !rarely("no thoughts"), !rarely("no calls")
	if rapid.Bool().Draw(t, "tools") {
		c.opts.Tools = []chat.Tool{{Name: "ls", Schema: []byte(`{"properties":{"p":{"type":"string"},"n":{"type":"integer"}}}`)}}
	}
	c.opts.Start = rapid.SampledFrom([]parser.Start{parser.StartNone, parser.StartReasoning, parser.StartResponse}).Draw(t, "start")
	if rarely("one call") {
		c.opts.Parallel = new(false)
	}
	if rarely("only one") {
		c.opts.Allowed = []string{"ls"}
	}
	if rarely("guided") {
		c.opts.Mode, c.opts.Named = rapid.SampledFrom([]parser.Mode{parser.ModeJSON, parser.ModeCalls, parser.ModeArgs}).Draw(t, "mode"), "ls"
	}
	return c
}

// pieces cuts a text.
func pieces(t *rapid.T, text string) (list []string) {
	for text != "" {
		n := min(len(text), rapid.IntRange(0, 9).Draw(t, "cut"))
		list = append(list, text[:n])
		text = text[n:]
	}
	return list
}

// However a text is cut, the blocks are the same, and no byte is lost.
func TestSplitInvariance(t *testing.T) {
	for _, g := range grammars(t) {
		t.Run(g.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c, text := g.options(rt), g.text(rt)
				want, cut := parse(rt, c, text), pieces(rt, text)
				if diff := cmp.Diff(want, parse(rt, c, cut...)); diff != "" {
					rt.Fatalf("%q as %q (-whole +cut):\n%s", text, cut, diff)
				}
			})
		})
	}
}

// Every id comes out once and in order, whatever the text is.
func TestIDsAreKept(t *testing.T) {
	for _, g := range grammars(t) {
		t.Run(g.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c, text := g.options(rt), g.text(rt)
				p := parser.New(c.family, c.opts)
				var events []chat.Event
				var want, got []uint32
				for _, s := range pieces(rt, text) {
					id := uint32(len(want))
					events = p.Push(events, chat.Piece{Text: s, IDs: []uint32{id}})
					want = append(want, id)
				}
				events, _ = p.Finish(events, chat.FinishStop)
				for _, e := range events {
					got = append(got, e.IDs...)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%q: ids (-want +got):\n%s", text, diff)
				}
			})
		})
	}
}

// Text that leaves a parser that reads everything has no wrapper in it.
func TestNoMarkerLeaks(t *testing.T) {
	for _, g := range grammars(t) {
		t.Run(g.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				text := g.text(rt)
				p := parser.New(g.family, parser.Options{ThinkOn: true, ToolsOn: true})
				events, _ := p.Finish(p.Push(nil, chat.Piece{Text: text}), chat.FinishStop)
				for _, e := range events {
					if e.Kind != chat.TextDelta {
						continue
					}
					for _, m := range g.family.Wrappers() {
						if strings.Contains(e.Text, m) {
							rt.Fatalf("%q: %q leaked into %q", text, m, e.Text)
						}
					}
				}
			})
		})
	}
}

// While nothing is open but text or a thought, less is held back than the longest
// marker has bytes.
func TestHoldBack(t *testing.T) {
	for _, g := range grammars(t) {
		t.Run(g.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				text := g.text(rt)
				p := parser.New(g.family, parser.Options{ThinkOn: true, ToolsOn: true})
				for i, s := range pieces(rt, text) {
					p.Push(nil, chat.Piece{Text: s})
					if p.Idle() && p.Held() >= p.LongestMarker() && p.Held() > 0 {
						rt.Fatalf("%q: %d bytes are held after piece %d", text, p.Held(), i)
					}
				}
			})
		})
	}
}

// A text, however strange, costs in proportion to its length. All of them take
// less than two seconds together; minutes, if each piece made the parser read
// again what came before.
func TestStrangeTextsAreNotSlow(t *testing.T) {
	began := time.Now()
	for _, g := range grammars(t) {
		wrappers := g.family.Wrappers()
		if len(wrappers) == 0 || strings.HasPrefix(g.name, "hermes+") && g.name != "hermes+qwen3" {
			continue
		}
		for _, m := range append(g.family.Markers(), "<", "[", "\n", "{", `{"a":`, `"`, "a") {
			text := strings.Repeat(m, 1<<15/len(m))
			for _, start := range []string{"", wrappers[0], wrappers[len(wrappers)/2], wrappers[len(wrappers)/2] + m} {
				p := parser.New(g.family, parser.Options{ThinkOn: true, ToolsOn: true})
				buf := p.Push(nil, chat.Piece{Text: start})
				for rest := text; rest != ""; {
					n := min(len(rest), 32)
					buf = p.Push(buf[:0], chat.Piece{Text: rest[:n]})
					rest = rest[n:]
				}
				p.Finish(buf[:0], chat.FinishStop)
				if took := time.Since(began); took > 30*time.Second {
					t.Fatalf("%s: %q and many %q: all took %v", g.name, start, m, took)
				}
			}
		}
	}
}

func FuzzParser(f *testing.F) {
	names := everyFamily(f)
	for _, c := range readCases(f) {
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, c.family.ToolParser()+"+") })
		f.Add(c.text, uint64(0x123456789), uint8(max(i, 0)), uint8(c.opts.Mode), c.opts.ToolsOn, c.opts.ThinkOn, c.opts.Start == parser.StartReasoning, len(c.opts.Tools) > 0)
	}
	f.Fuzz(func(t *testing.T, text string, cuts uint64, family, mode uint8, tools, think, reasoning, given bool) {
		c := &testCase{family: familyOf(t, names[int(family)%len(names)]), reason: chat.FinishStop}
		c.opts = parser.Options{ToolsOn: tools, ThinkOn: think, Mode: parser.Mode(mode % 4), Named: "ls"}
		if reasoning {
			c.opts.Start = parser.StartReasoning
		}
		if given {
			c.opts.Tools = []chat.Tool{{Name: "ls", Schema: []byte(`{"properties":{"p":{"type":"string"},"n":{"type":"integer"}}}`)}}
		}
		want := parse(t, c, text)
		var cut []string
		for rest := text; rest != ""; cuts = cuts>>3 | cuts<<61 {
			n := min(len(rest), int(cuts&7)+1)
			cut = append(cut, rest[:n])
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, parse(t, c, cut...)); diff != "" {
			t.Fatalf("%s: %q as %q (-whole +cut):\n%s", names[int(family)%len(names)], text, cut, diff)
		}
	})
}

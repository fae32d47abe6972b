package parser_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// vocabulary has those of a family's markers as tokens that may be one, the first
// of them with the id 1000.
type vocabulary map[string]uint32

func vocabularyOf(f parser.Family) vocabulary {
	v := vocabulary{}
	for _, m := range f.Markers() {
		if _, ok := v[m]; !ok && !strings.ContainsAny(m, "\n =") && strings.Count(m, "<") < 2 {
			v[m] = uint32(1000 + len(v))
		}
	}
	return v
}

func (v vocabulary) special(text string) (uint32, bool) {
	id, ok := v[text]
	return id, ok
}

// tokens are pieces of a text: what stands between bars is a token if it is a
// marker, and the rest is spelled byte by byte.
func (v vocabulary) tokens(parts ...string) (pieces []chat.Piece) {
	for _, part := range parts {
		if id, ok := v[part]; ok {
			pieces = append(pieces, chat.Piece{Text: part, IDs: []uint32{id}})
			continue
		}
		for _, b := range strings.Split(strings.ReplaceAll(part, "¦", ""), "") {
			pieces = append(pieces, chat.Piece{Text: b, IDs: []uint32{uint32(b[0])}})
		}
	}
	return pieces
}

// Where ids are known, a marker is what has its id, and what only looks like one
// is data; and so it is if pieces are merged.
func TestMarkersByID(t *testing.T) {
	for name, tt := range map[string]struct {
		family string
		opts   parser.Options
		parts  []string // ¦…¦ is spelled out
		want   []string
	}{
		"harmony": {"harmony+gpt_oss", parser.Options{}, []string{
			"<|channel|>", "analysis", "<|message|>", "¦<|end|>¦ is a marker", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "¦<|channel|>¦, too", "<|return|>",
		}, []string{`R "<|end|> is a marker"`, `T "<|channel|>, too"`, "= stop"}},
		"harmony, arguments": {"harmony+gpt_oss", parser.Options{ToolsOn: true}, []string{
			"<|channel|>", "commentary to=functions.f ", "<|constrain|>", "json", "<|message|>", `{"a":"`, "¦<|call|>¦", `"}`, "<|call|>",
		}, []string{`C f {"a":"<|call|>"}`, "= tool_use"}},
		"kimi_k2": {"kimi_k2+kimi_k25", parser.Options{ToolsOn: true, Start: parser.StartReasoning}, []string{
			"¦</think>¦ closes\n", "</think>", "¦<|tool_calls_section_begin|>¦ opens ", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.f:0", "<|tool_call_argument_begin|>", "{}", "<|tool_call_end|>", "<|tool_calls_section_end|>",
		}, []string{`R "</think> closes"`, `T "<|tool_calls_section_begin|> opens "`, "C f @functions.f:0 {}", "= tool_use"}},
		"a newline in a thought": {"kimi_k2+kimi_k25", parser.Options{Start: parser.StartReasoning}, []string{"a\n", "b", "</think>", "c"}, []string{`R "a\nb"`, `T "c"`, "= stop"}},
		"guided, but not calls":  {"kimi_k2+kimi_k25", parser.Options{ToolsOn: true, Mode: parser.ModeCalls, Start: parser.StartResponse}, []string{`[{"x":"`, "<|tool_call_end|>", `"}]`}, []string{`T "[{\"x\":\"\"}]"`, "= stop"}},
		"no tools":               {"kimi_k2+kimi_k25", parser.Options{Start: parser.StartResponse}, []string{"a", "<|tool_calls_section_begin|>", "b", "¦<|tool_call_end|>¦"}, []string{`T "ab<|tool_call_end|>"`, "= stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := familyOf(t, tt.family)
			v := vocabularyOf(f)
			f, tt.opts.ThinkOn = f.Bind(v.special), true
			pieces := v.tokens(tt.parts...)
			for n := 1; n <= 3; n++ {
				p := parser.New(f, numbered(tt.opts))
				var events []chat.Event
				sent := 0
				for i := 0; i < len(pieces); i += n {
					var merged chat.Piece
					for _, q := range pieces[i:min(len(pieces), i+n)] {
						merged.Text += q.Text
						merged.IDs = append(merged.IDs, q.IDs...)
					}
					sent += len(merged.IDs)
					events = p.Push(events, merged)
				}
				events, reason := p.Finish(events, chat.FinishStop)
				if diff := cmp.Diff(tt.want, render(t, events, reason)); diff != "" {
					t.Errorf("pieces of %d tokens (-want +got):\n%s", n, diff)
				}
				for _, e := range events {
					sent -= len(e.IDs)
				}
				if sent != 0 {
					t.Errorf("pieces of %d tokens: %d ids were lost", n, sent)
				}
			}
		})
	}
}

// Where no text looks like a marker, it makes no difference whether markers are
// known by their ids.
func TestIDsReadAsTextDoes(t *testing.T) {
	for _, g := range grammars(t) {
		v := vocabularyOf(g.family)
		bound := g.family.Bind(v.special)
		var fragments []string
		for _, s := range append(slices.Clone(common), g.family.Markers()...) {
			_, is := v[s]
			if is || !strings.ContainsAny(s, "<>|[]◁▷:") && !slices.ContainsFunc(g.family.Markers(), func(m string) bool { return strings.Contains(s, m) || strings.Contains(m, s) }) {
				fragments = append(fragments, s)
			}
		}
		fragments = append(fragments, "a", "\n", "\n\n")
		t.Run(g.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c := g.options(rt)
				c.opts.Tools = []chat.Tool{{Name: "ls"}} // without any, markers that are tokens are no text
				parts := rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 14).Draw(rt, "parts")
				want := parse(rt, c, strings.Join(parts, ""))
				p := parser.New(bound, numbered(c.opts))
				var events []chat.Event
				for _, part := range parts {
					if _, ok := v[part]; ok {
						events = p.Push(events, v.tokens(part)[0])
						continue
					}
					for _, s := range pieces(rt, part) {
						events = p.Push(events, chat.Piece{Text: s, IDs: []uint32{1}})
					}
				}
				events, reason := p.Finish(events, c.reason)
				got := render(rt, events, reason)
				got = slices.DeleteFunc(got, func(line string) bool { return line == `D markup ""` }) // ids without text
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%q (-by text +by ids):\n%s", parts, diff)
				}
			})
		})
	}
}

// Without ids the text decides, as it does for a vocabulary that spells markers.
func TestMarkersByText(t *testing.T) {
	f := familyOf(t, "kimi_k2+kimi_k25")
	c := &testCase{family: f.Bind(vocabularyOf(f).special), opts: parser.Options{ThinkOn: true}, reason: chat.FinishStop}
	want := []string{`R "a"`, `T "b"`, "= stop"}
	if diff := cmp.Diff(want, parse(t, c, "a</th", "ink>b")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.Bind(func(string) (uint32, bool) { return 0, false }) != f {
		t.Error("a vocabulary without markers changes the family")
	}
}

package parser_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// written are calls as the models of a family write them.
type written struct {
	family, text string
	opts         parser.Options
}

// genCallsOfAny draws calls of any family. Their strings hold no tags, of which
// only what follows tells whether they are data.
func genCallsOfAny(t *rapid.T) written {
	w := written{opts: parser.Options{ToolsOn: true, ThinkOn: true, KeepEntities: true}}
	if i := rapid.IntRange(0, len(writers)+len(taggedFamilies)-1).Draw(t, "family"); i < len(writers) {
		from := writers[i]
		if from.family == "kimi_k3" || from.family == "muse" {
			from.markers = nil
		}
		calls := genWritten(t, from)
		w.family, w.text = from.family, from.write(calls)
		for _, c := range calls {
			w.opts.Tools = append(w.opts.Tools, toolOf(c))
		}
	} else {
		f := taggedFamilies[i-len(writers)]
		calls := genCalls(t, f)
		for _, c := range calls {
			for i, v := range c.values {
				if text, ok := v.(string); ok && strings.ContainsAny(text, "<]") {
					c.values[i] = "a\nb &lt; 漢"
				}
			}
		}
		w.family, w.text, w.opts.Tools = f.name, f.write(calls), toolsOf(calls)
	}
	return w
}

// reasoning returns the reasoning parser that goes with the calls.
func (w *written) reasoning() string {
	if name := companions[w.family]; name != "" {
		return name
	}
	return "qwen3"
}

// read returns what is read of a text.
func (w *written) read(t tester, o parser.Options, pieces ...string) []string {
	t.Helper()
	f, err := parser.Family{}.With(w.family, w.reasoning())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return parse(t, &testCase{family: f, opts: o, reason: chat.FinishLength}, pieces...)
}

// An answer that is cut, wherever, has no call and no argument that the whole
// answer has not; and what it calls complete is JSON.
func TestCutAnswers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := genCallsOfAny(rt)
		w.opts.Start = parser.StartResponse
		text := rapid.SampledFrom([]string{"", "Let me see. "}).Draw(rt, "before") + w.text
		var whole []string
		for _, line := range w.read(rt, w.opts, text) {
			if strings.HasPrefix(line, "C ") {
				whole = append(whole, line[2:])
			}
		}
		for range 8 {
			cut := text[:rapid.IntRange(0, len(text)-1).Draw(rt, "at")]
			n := 0
			for _, line := range w.read(rt, w.opts, cut) {
				call, ok := strings.CutPrefix(line, "C ")
				said, broken := strings.CutPrefix(line, "C! ")
				if !ok && !broken {
					continue
				}
				switch args := call[strings.IndexByte(call+"{", '{'):]; {
				case n == len(whole), broken && !strings.HasPrefix(whole[n], said):
					rt.Fatalf("%s: %q has %s, but the whole answer %q", w.family, cut, line, whole)
				case ok && call != whole[n] && !forgetful(w.family, cut), ok && !json.Valid([]byte(args)):
					rt.Fatalf("%s: %q has %s, but the whole answer %q", w.family, cut, line, whole)
				}
				n++
			}
		}
	})
}

// forgetful says whether an answer that ends so may be a whole one, in a family
// whose models forget the end of a call.
func forgetful(family, text string) bool {
	text = strings.TrimSpace(text)
	return family == "glm47" && strings.HasSuffix(text, "</arg_value>") || family == "kimi_k3" && strings.HasSuffix(text, "<|close|>argument<|sep|>")
}

// Calls in a thought that is closed are a part of it, byte for byte; those behind
// it are calls, and so are those in a thought that is not closed.
func TestDraftsOfAnyFamily(t *testing.T) {
	seen := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		w := genCallsOfAny(rt)
		w.text = strings.TrimSuffix(w.text, "<｜end▁of▁sentence｜>") // no part of a thought
		f := familyOf(t, w.family+"+"+w.reasoning())
		end := f.ThoughtEnd()
		// Messages to tools stand in no thought, and calls without markers are none there.
		if end == "" || strings.Contains(w.text, end) || strings.Contains("kimi_k3 inkling muse llama3_json pythonic", w.family) {
			return
		}
		seen[w.family] = true
		answered, thinking := w.opts, w.opts
		answered.Start, thinking.Start = parser.StartResponse, parser.StartReasoning
		calls := w.read(rt, answered, w.text)
		calls = calls[:len(calls)-1]
		for _, tt := range []struct {
			text string
			want []string
		}{
			{"hm " + w.text + "x" + end + "y", []string{fmt.Sprintf("R %q", "hm "+w.text+"x"), `T "y"`, "= length"}},
			{"hm " + w.text, append(append([]string{`R "hm "`}, calls...), "= length")},
			{"hm " + w.text + "x" + end + w.text, append(append([]string{fmt.Sprintf("R %q", "hm "+w.text+"x")}, calls...), "= length")},
		} {
			if diff := cmp.Diff(withoutIDs(tt.want), withoutIDs(w.read(rt, thinking, cutUp(rt, tt.text)...))); diff != "" {
				rt.Fatalf("%s: %q (-want +got):\n%s", w.family, tt.text, diff)
			}
		}
	})
	if len(seen) < 10 {
		t.Errorf("only %d families were seen", len(seen))
	}
}

// withoutIDs removes native ids, which tests of their own look at.
func withoutIDs(lines []string) []string {
	var out []string
	for _, line := range lines {
		if name, rest, ok := strings.Cut(line, " @"); ok && strings.HasPrefix(line, "C ") {
			_, args, _ := strings.Cut(rest, " ")
			line = name + " " + args
		}
		out = append(out, line)
	}
	return out
}

// Where no calls may be made, none are, and nothing is left of them in the text;
// where one may be made, it is the first.
func TestNoCallsAndOneCall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := genCallsOfAny(rt)
		if len(w.opts.Tools) == 0 {
			return
		}
		none, one := w.opts, w.opts
		w.opts.Start, none.Start, one.Start = parser.StartResponse, parser.StartResponse, parser.StartResponse
		none.ToolsOn, one.Parallel = false, new(false)
		all := w.read(rt, w.opts, w.text)
		for _, line := range w.read(rt, none, cutUp(rt, w.text)...) {
			if !strings.HasPrefix(line, "D ") && line != "= length" && w.family != "pythonic" {
				rt.Fatalf("%s: %q, of which nothing may be called, has %s", w.family, w.text, line)
			}
		}
		for i, line := range w.read(rt, one, cutUp(rt, w.text+" tail")...) {
			if i == 0 && line != all[0] || i > 0 && !strings.HasPrefix(line, "D ") && line != "= length" {
				rt.Fatalf("%s: %q, of which one may be called, has %s", w.family, w.text, line)
			}
		}
	})
}

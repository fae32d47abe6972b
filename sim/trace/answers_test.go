package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/sim/trace"
)

// What a later prompt repeats of an answer, it repeats in a replay, where rows tell that
// it does.
func TestRepeatedAnswers(t *testing.T) {
	// Blocks of four. The first prompt has 6 tokens, the answer 5, and the second prompt
	// 14, the first 11 of which are those: its second block is full of what was one half
	// prompt, and one half answer.
	row := func(id string, at, tokens, output int, hashes, more string) string {
		r := strings.NewReplacer("[1]", hashes, `"input_length": 4`, fmt.Sprintf(`"input_length": %d`, tokens), `"output_tokens": 2`, fmt.Sprintf(`"output_tokens": %d%s`, output, more))
		return r.Replace(call(id, "s", "", at, 10))
	}
	told := func(common, last int) string {
		return fmt.Sprintf(`, "dynago": {"reused_tokens": %d, "last_tokens": %d}`, common, last)
	}
	for _, tc := range []struct {
		name                     string
		more, hashes             string // of the second row
		prompt, answer, repeated int    // with how many tokens the second prompt begins
	}{
		{"all of it", told(11, 11), "[1, 3, 4, 5]", 6, 5, 11},
		{"without the token that ended it", told(10, 10), "[1, 3, 4, 5]", 6, 5, 10},
		{"a part of the answer", told(8, 11), "[1, 3, 4, 5]", 6, 5, 8},
		{"the prompt alone", told(6, 11), "[1, 3, 4, 5]", 6, 5, 6},
		{"not the whole prompt", told(5, 11), "[1, 3, 4, 5]", 6, 5, 4},
		{"nothing is told", "", "[1, 3, 4, 5]", 6, 5, 4},
		{"of another turn", told(11, 12), "[1, 3, 4, 5]", 6, 5, 4},
		{"more than there is", told(99, 11), "[1, 3, 4, 5]", 6, 5, 4},
		{"hashes say otherwise", told(11, 11), "[9, 3, 4, 5]", 6, 5, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rows := records(row("a", 100, 6, 5, "[1, 2]", ""), row("b", 200, 14, 2, tc.hashes, tc.more), row("c", 300, 16, 2, "[1, 3, 4, 6]", told(16, 16)))
			w := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(rows)))
			if w[0].Prompt.Len() != tc.prompt || w[0].Answer.Len() != tc.answer {
				t.Fatalf("a prompt of %d and an answer of %d tokens", w[0].Prompt.Len(), w[0].Answer.Len())
			}
			before := w[0].Answer.Append(w[0].Prompt.Append(nil))
			if n := same(before, w[1].Prompt.Append(nil)); n != tc.repeated {
				t.Errorf("%d tokens are repeated, want %d", n, tc.repeated)
			}
			// What is not repeated is what it would have been.
			plain := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(strings.ReplaceAll(rows, "dynago", "x"))))
			again(t, w, rows)
			rest := max(0, tc.repeated-tc.prompt)
			if !slices.Equal(w[0].Answer.Append(nil)[rest:], plain[0].Answer.Append(nil)[rest:]) {
				t.Errorf("the end of the answer is another one")
			}
		})
	}
	// A chain of three: the end of the second prompt is what the third says it is, and so
	// is that of the first answer.
	rows := records(row("a", 100, 4, 3, "[1]", ""), row("b", 200, 7, 1, "[1, 2]", told(7, 7)), row("c", 300, 9, 1, "[1, 3, 4]", told(8, 8)))
	w := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(rows)))
	for i := range 2 {
		before := w[i].Answer.Append(w[i].Prompt.Append(nil))
		if n := same(before, w[i+1].Prompt.Append(nil)); n != len(before) {
			t.Errorf("of %d tokens of turn %d %d are repeated", len(before), i, n)
		}
	}
	again(t, w, rows)
}

// again checks that the same is repeated of a trace that was made of the rows, which says
// itself how long its blocks are.
func again(t testing.TB, w []trace.Request, rows string) {
	t.Helper()
	made, told := convert(t, trace.AgenticMooncake, rows)
	read, err := trace.ReadAll(trace.AgenticMooncake, trace.ReadOptions{}, strings.NewReader(made))
	if err != nil {
		t.Fatalf("%v in\n%s", err, made)
	}
	if read.BlockSize != told.BlockSize || len(read.Requests) != len(w) {
		t.Fatalf("%d requests with blocks of %d, want %d with %d", len(read.Requests), read.BlockSize, len(w), told.BlockSize)
	}
	if got, want := shares(read.Requests), shares(w); !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("requests share %v, and those of the recording %v:\n%s", got, want, made)
	}
}

// shares returns how long each request and its answer are, and with how many of these
// tokens each other one begins.
func shares(w []trace.Request) (all [][]int) {
	var texts [][]uint32
	for _, r := range w {
		texts = append(texts, r.Answer.Append(r.Prompt.Append(nil)))
	}
	for i, a := range texts {
		row := []int{w[i].Prompt.Len(), w[i].Answer.Len()}
		for _, b := range texts {
			row = append(row, same(a, b))
		}
		all = append(all, row)
	}
	return all
}

// Whatever turns of two agents repeat of the ones before, they repeat when the recording
// has become another trace.
func TestRepeatedWhereConverted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rows []string
		next := 100
		for _, session := range []string{"s", "t"} {
			hashes, tokens, last := []int{1, 2}, 8, 0
			for turn := range rapid.IntRange(1, 6).Draw(rt, "turns") {
				more := ""
				if turn > 0 {
					before := tokens
					tokens += rapid.IntRange(0, 17).Draw(rt, "new")
					for hashes = hashes[:before/4]; len(hashes) < (tokens+3)/4; next++ {
						hashes = append(hashes, next)
					}
					more = fmt.Sprintf(`, "dynago": {"reused_tokens": %d, "last_tokens": %d}`, rapid.IntRange(before, max(before, min(last, tokens))).Draw(rt, "common"), last)
				}
				output := rapid.IntRange(0, 11).Draw(rt, "output")
				last = tokens + output
				rows = append(rows, strings.NewReplacer(
					"[1]", strings.ReplaceAll(fmt.Sprint(hashes), " ", ","), `"input_length": 4`, fmt.Sprintf(`"input_length": %d`, tokens),
					`"output_tokens": 2`, fmt.Sprintf(`"output_tokens": %d%s`, output, more),
				).Replace(call(fmt.Sprint(session, turn), session, "", 100+100*turn, 10)))
			}
		}
		again(t, collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(records(rows...)))), records(rows...))
	})
}

// same returns with how many tokens both begin.
func same(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// No row that is told of another changes how long prompts and answers are, nor what whole
// blocks prompts share.
func FuzzRepeat(f *testing.F) {
	f.Add(uint8(6), uint8(5), uint8(14), int64(11), int64(11))
	f.Add(uint8(1), uint8(1), uint8(2), int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, first, output, second uint8, common, last int64) {
		hashes := func(n uint8, own int) string {
			var list []string
			for k := range (max(1, int(n)) + 3) / 4 {
				if 4*k+4 > int(first) {
					k += own
				}
				list = append(list, fmt.Sprint(k))
			}
			return "[" + strings.Join(list, ",") + "]"
		}
		row := func(id string, at int, n uint8, own int, more string) string {
			return strings.NewReplacer("[1]", hashes(n, own), `"input_length": 4`, fmt.Sprintf(`"input_length": %d`, max(1, n)), `"output_tokens": 2`, fmt.Sprintf(`"output_tokens": %d%s`, output, more)).
				Replace(call(id, "s", "", at, 10))
		}
		rows := records(row("a", 100, first, 1000, ""), row("b", 200, second, 2000, fmt.Sprintf(`, "dynago": {"reused_tokens": %d, "last_tokens": %d}`, common, last)))
		w := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(rows)))
		if w[0].Prompt.Len() != max(1, int(first)) || w[0].Answer.Len() != max(1, int(output)) || w[1].Prompt.Len() != max(1, int(second)) {
			t.Fatalf("%+v", w)
		}
		plain := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(strings.ReplaceAll(rows, "dynago", "x"))))
		again(t, w, rows)
		whole := w[0].Prompt.Len() / 4 * 4
		if !slices.Equal(w[0].Prompt.Append(nil)[:whole], plain[0].Prompt.Append(nil)[:whole]) || !slices.Equal(w[1].Prompt.Append(nil), plain[1].Prompt.Append(nil)) {
			t.Fatalf("%+v has become %+v", plain, w)
		}
	})
}

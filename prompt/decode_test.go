package prompt_test

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
	"pgregory.net/rapid"
)

// The test model's vocabulary is one token per byte, a few words, and two
// special tokens. Nothing merges by itself, so that tests choose the tokens.
const (
	tokenEnd   = 300 // <|end|>, end of turn
	tokenOther = 301 // <|other|>, special
	firstWord  = 256
)

var words = []string{"stop", " world", "st", "op", "é", "<x>", "op!"}

// byteRunes is how byte-level vocabularies write bytes.
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = next
			next++
		}
	}
	return runes
}()

func spelling(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteRune(byteRunes[c])
	}
	return b.String()
}

func testTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(byteRunes[b])] = b
	}
	for i, w := range words {
		vocab[spelling(w)] = firstWord + i
	}
	file := map[string]any{
		"added_tokens": []map[string]any{
			{"id": tokenEnd, "content": "<|end|>", "special": true},
			{"id": tokenOther, "content": "<|other|>", "special": true},
		},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// deltas cuts ids into items at the given lengths, the last one with the
// terminal delta.
func deltas(ids []uint32, cuts []int, finish engine.Finish, logprobs bool) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		rest := ids
		for _, n := range cuts {
			n = min(n, len(rest))
			if !yield(delta(rest[:n], logprobs), nil) {
				return
			}
			rest = rest[n:]
		}
		d := delta(rest, logprobs)
		d.Finish, d.Usage = finish, &engine.Usage{Prompt: 7, Output: len(ids)}
		yield(d, nil)
	}
}

func delta(ids []uint32, logprobs bool) engine.Delta {
	d := engine.Delta{TokenIDs: ids}
	if logprobs {
		for _, id := range ids {
			d.Logprobs = append(d.Logprobs, engine.Logprob{ID: id, Logprob: -1})
		}
	}
	return d
}

// folded is what a client has in the end.
type folded struct {
	text     string
	ids      []uint32
	logprobs []uint32
	end      prompt.End
}

func fold(t rapid.TB, m *prompt.Model, seq iter.Seq2[engine.Delta, error], d prompt.Decoding) folded {
	var f folded
	ended := false
	more := false
	for out, err := range m.Decode(seq, d) {
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		if ended {
			t.Fatal("an item after the end")
		}
		if more = out.More; more && !d.ByToken {
			t.Fatal("a delta became several items unasked")
		}
		f.text += out.Piece.Text
		f.ids = append(f.ids, out.Piece.IDs...)
		for _, lp := range out.Piece.Logprobs {
			f.logprobs = append(f.logprobs, lp.ID)
		}
		if out.End != nil {
			f.end, ended = *out.End, true
		}
	}
	if !ended || more {
		t.Fatalf("ended: %v, more promised: %v", ended, more)
	}
	return f
}

func TestDecode(t *testing.T) {
	tok := testTokenizer(t)
	m := &prompt.Model{Tokenizer: tok}
	word := func(w string) uint32 { return uint32(firstWord + slices.Index(words, w)) }
	text := func(s string) []uint32 {
		var ids []uint32
		for _, b := range []byte(s) {
			ids = append(ids, uint32(b))
		}
		return ids
	}
	id := func(n uint32) *uint32 { return &n }
	for _, tc := range []struct {
		name   string
		ids    []uint32
		d      prompt.Decoding
		finish engine.Finish
		want   string
		end    prompt.End // without usage
		output int
	}{
		{name: "plain", ids: text("hi"), finish: engine.FinishLength, want: "hi", end: prompt.End{Finish: engine.FinishLength}, output: 2},
		{name: "character over three tokens", ids: text("a€b"), finish: engine.FinishEOS, want: "a€b", end: prompt.End{Finish: engine.FinishEOS}, output: 5},
		{name: "incomplete character at the end", ids: text("a€")[:3], finish: engine.FinishLength, want: "a\uFFFD", end: prompt.End{Finish: engine.FinishLength}, output: 3},
		{name: "special tokens are not text", ids: append(text("a"), tokenOther, 'b'), finish: engine.FinishEOS, want: "ab", end: prompt.End{Finish: engine.FinishEOS}, output: 3},
		{name: "a special token inside a character", ids: append(text("a\xE2"), tokenOther, 's', 'x'), d: prompt.Decoding{Strings: []string{"stop"}}, finish: engine.FinishEOS, want: "a\uFFFDsx", end: prompt.End{Finish: engine.FinishEOS}, output: 5},
		{name: "unless asked for", ids: append(text("a"), tokenOther, 'b'), d: prompt.Decoding{KeepSpecial: true}, finish: engine.FinishEOS, want: "a<|other|>b", end: prompt.End{Finish: engine.FinishEOS}, output: 3},
		{name: "or needed by the parser", ids: append(text("a"), tokenOther, 'b'), d: prompt.Decoding{Markers: []uint32{tokenOther}}, finish: engine.FinishEOS, want: "a<|other|>b", end: prompt.End{Finish: engine.FinishEOS}, output: 3},
		{name: "stop string in one token", ids: []uint32{'a', word("stop"), 'b'}, d: prompt.Decoding{Strings: []string{"stop"}}, finish: engine.FinishLength, want: "a", end: prompt.End{Finish: engine.FinishStop, StopText: "stop"}, output: 2},
		{name: "stop string over tokens", ids: []uint32{'a', word("st"), word("op"), 'b'}, d: prompt.Decoding{Strings: []string{"stop"}}, finish: engine.FinishLength, want: "a", end: prompt.End{Finish: engine.FinishStop, StopText: "stop"}, output: 3},
		{name: "kept in the text", ids: []uint32{'a', word("st"), word("op!"), 'b'}, d: prompt.Decoding{Strings: []string{"stop"}, IncludeStop: true}, finish: engine.FinishLength, want: "astop", end: prompt.End{Finish: engine.FinishStop, StopText: "stop"}, output: 3},
		{name: "a beginning that comes to nothing", ids: []uint32{'a', word("st"), 'a'}, d: prompt.Decoding{Strings: []string{"stop"}}, finish: engine.FinishLength, want: "asta", end: prompt.End{Finish: engine.FinishLength}, output: 3},
		{name: "held at the end", ids: []uint32{'a', word("st")}, d: prompt.Decoding{Strings: []string{"stop"}}, finish: engine.FinishEOS, want: "ast", end: prompt.End{Finish: engine.FinishEOS}, output: 2},
		{name: "the earliest match wins", ids: []uint32{word("stop")}, d: prompt.Decoding{Strings: []string{"op", "top"}}, finish: engine.FinishEOS, want: "s", end: prompt.End{Finish: engine.FinishStop, StopText: "top"}, output: 1},
		{name: "of equals the longest", ids: []uint32{word("stop")}, d: prompt.Decoding{Strings: []string{"t", "to"}}, finish: engine.FinishEOS, want: "s", end: prompt.End{Finish: engine.FinishStop, StopText: "to"}, output: 1},
		{name: "stop string inside a character's bytes", ids: text("aé!"), d: prompt.Decoding{Strings: []string{"é!"}}, finish: engine.FinishEOS, want: "a", end: prompt.End{Finish: engine.FinishStop, StopText: "é!"}, output: 4},
		{name: "stop id", ids: []uint32{'a', 'b', 'c'}, d: prompt.Decoding{Stop: engine.Stop{IDs: []uint32{'b'}}}, finish: engine.FinishLength, want: "a", end: prompt.End{Finish: engine.FinishStop, StopID: id('b')}, output: 2},
		{name: "hidden id", ids: []uint32{'a', tokenEnd, 'c'}, d: prompt.Decoding{Stop: engine.Stop{Hidden: []uint32{tokenEnd}}}, finish: engine.FinishLength, want: "a", end: prompt.End{Finish: engine.FinishEOS}, output: 2},
		{name: "not before the minimum", ids: []uint32{'b', word("stop"), 'b', 'c'}, d: prompt.Decoding{Stop: engine.Stop{IDs: []uint32{'b'}, MinTokens: 3}, Strings: []string{"stop"}}, finish: engine.FinishLength, want: "bstop", end: prompt.End{Finish: engine.FinishStop, StopID: id('b')}, output: 3},
		{name: "no stop string begins before the minimum", ids: []uint32{word("st"), word("op"), 'x'}, d: prompt.Decoding{Stop: engine.Stop{MinTokens: 2}, Strings: []string{"stop"}}, finish: engine.FinishLength, want: "stopx", end: prompt.End{Finish: engine.FinishLength}, output: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.d.Prompt = 7
			for _, cuts := range [][]int{nil, {1, 1, 1, 1, 1}, {0, 2, 0, 1}, {3}} {
				got := fold(t, m, deltas(tc.ids, cuts, tc.finish, true), tc.d)
				if got.text != tc.want {
					t.Errorf("cuts %v: text %q, want %q", cuts, got.text, tc.want)
				}
				usage := got.end.Usage
				if usage.Output != tc.output || usage.Prompt != 7 {
					t.Errorf("cuts %v: usage %+v, want 7 + %d", cuts, usage, tc.output)
				}
				same := got.end.Finish == tc.end.Finish && got.end.StopText == tc.end.StopText &&
					(got.end.StopID == nil) == (tc.end.StopID == nil) && (got.end.StopID == nil || *got.end.StopID == *tc.end.StopID)
				if !same {
					t.Errorf("cuts %v: end %+v, want %+v", cuts, got.end, tc.end)
				}
				if len(got.ids) != tc.output {
					t.Errorf("cuts %v: %d ids for %d tokens", cuts, len(got.ids), tc.output)
				}
			}
		})
	}
}

// naive decodes token by token with all the text in one string.
func naive(tok *tokenizer.Tokenizer, ids []uint32, d prompt.Decoding, finish engine.Finish) (string, prompt.End) {
	var shown []uint32
	from := 0 // a stop string may begin here at the earliest
	for n, id := range ids {
		checked := n+1 >= d.Stop.MinTokens
		if checked && slices.Contains(d.Stop.IDs, id) {
			return tok.Decode(shown, false), prompt.End{Finish: engine.FinishStop, StopID: &id}
		}
		if checked && slices.Contains(d.Stop.Hidden, id) {
			return tok.Decode(shown, false), prompt.End{Finish: engine.FinishEOS}
		}
		if d.KeepSpecial || !tok.IsSpecial(id) {
			shown = append(shown, id)
		}
		text := strings.TrimSuffix(tok.Decode(shown, false), pendingOf(tok, shown))
		if !checked {
			from = len(text)
			continue
		}
		at, stop := -1, ""
		for _, s := range d.Strings {
			if i := strings.Index(text[from:], s); i >= 0 && (at < 0 || i < at || i == at && len(s) > len(stop)) {
				at, stop = i, s
			}
		}
		if at >= 0 {
			if d.IncludeStop {
				at += len(stop)
			}
			return text[:from+at], prompt.End{Finish: engine.FinishStop, StopText: stop}
		}
	}
	return tok.Decode(shown, false), prompt.End{Finish: finish}
}

// pendingOf returns what full decoding shows for a character that may still be
// completed.
func pendingOf(tok *tokenizer.Tokenizer, ids []uint32) string {
	d := tok.NewDecoder(false)
	for _, id := range ids {
		d.Append(nil, id)
	}
	return string(d.Flush(nil))
}

func TestDecodeAgainstNaive(t *testing.T) {
	tok := testTokenizer(t)
	m := &prompt.Model{Tokenizer: tok}
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.OneOf(
			rapid.SampledFrom([]uint32{'a', 's', 't', 'o', 'p', 0xE2, 0x82, 0xAC, 0xC3, 0xA9, tokenOther}),
			rapid.Uint32Range(0, uint32(firstWord+len(words)-1)),
		)
		ids := rapid.SliceOfN(token, 1, 30).Draw(t, "ids")
		d := prompt.Decoding{
			Stop: engine.Stop{
				IDs:       rapid.SliceOfN(token, 0, 1).Draw(t, "stop ids"),
				Hidden:    []uint32{tokenEnd},
				MinTokens: rapid.IntRange(0, 6).Draw(t, "min"),
			},
			Strings:     rapid.SliceOfN(rapid.SampledFrom([]string{"stop", "op", "t", "€", "é", "ops", "stops", "aa"}), 0, 3).Draw(t, "stops"),
			IncludeStop: rapid.Bool().Draw(t, "include"),
			KeepSpecial: rapid.Bool().Draw(t, "keep special"),
			ByToken:     rapid.Bool().Draw(t, "by token"),
		}
		finish := rapid.SampledFrom([]engine.Finish{engine.FinishEOS, engine.FinishLength}).Draw(t, "finish")
		cuts := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 12).Draw(t, "cuts")

		got := fold(t, m, deltas(ids, cuts, finish, true), d)
		text, end := naive(tok, ids, d, finish)
		if got.text != text || got.end.Finish != end.Finish || got.end.StopText != end.StopText {
			t.Fatalf("got %q, %+v; want %q, %+v", got.text, got.end, text, end)
		}
		// Every generated id comes up exactly once and in order.
		if !slices.Equal(got.ids, ids[:len(got.ids)]) || len(got.ids) != got.end.Usage.Output {
			t.Fatalf("ids %v of %v, usage %+v", got.ids, ids, got.end.Usage)
		}
	})
}

// What a delta brought is never left waiting for the next one.
func TestDecodeByTokenPromises(t *testing.T) {
	m := &prompt.Model{Tokenizer: testTokenizer(t)}
	more := false
	for out, err := range m.Decode(deltas([]uint32{'a', 's', 'x', 'b', 0xC3, 'c'}, []int{2, 1, 2}, engine.FinishEOS, false), prompt.Decoding{ByToken: true, Strings: []string{"stop"}}) {
		if err != nil {
			t.Fatal(err)
		}
		more = out.More
	}
	if more {
		t.Error("the last item promised another")
	}
	more = false
	m.Decode(func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{TokenIDs: []uint32{'a', 's'}}, nil)
		if more {
			t.Error("the consumer still waits for a delta that is over")
		}
	}, prompt.Decoding{ByToken: true, Strings: []string{"stop"}})(func(out prompt.Output, err error) bool {
		more = out.More
		return err == nil
	})
}

// What was held back goes out before the error, and the error ends the stream.
func TestDecodeError(t *testing.T) {
	m := &prompt.Model{Tokenizer: testTokenizer(t)}
	fault := engine.Errorf(engine.Disconnected, "gone")
	var text string
	var last error
	items := 0
	for out, err := range m.Decode(func(yield func(engine.Delta, error) bool) {
		if yield(engine.Delta{TokenIDs: []uint32{'a', 's'}}, nil) {
			yield(engine.Delta{}, fault)
		}
	}, prompt.Decoding{Strings: []string{"stop"}}) {
		items++
		text += out.Piece.Text
		last = err
	}
	if text != "as" || last != fault || items != 3 {
		t.Errorf("text %q, error %v, %d items", text, last, items)
	}
}

// A stop found here ends the engine's loop.
func TestDecodeLeavesTheLoop(t *testing.T) {
	m := &prompt.Model{Tokenizer: testTokenizer(t)}
	asked := 0
	seq := func(yield func(engine.Delta, error) bool) {
		for yield(engine.Delta{TokenIDs: []uint32{'x'}}, nil) {
			asked++
		}
	}
	for range m.Decode(seq, prompt.Decoding{Strings: []string{"xxx"}}) {
	}
	if asked != 2 {
		t.Errorf("the engine was asked %d more times, want 2", asked)
	}
}

func TestDecodeLogprobs(t *testing.T) {
	m := &prompt.Model{Tokenizer: testTokenizer(t)}
	got := fold(t, m, deltas([]uint32{'a', uint32(firstWord), 'b'}, []int{1, 1, 1}, engine.FinishEOS, true), prompt.Decoding{Strings: []string{"op"}})
	// The token that lost text to the stop loses its entry with it.
	if got.text != "ast" || !slices.Equal(got.logprobs, []uint32{'a'}) {
		t.Errorf("text %q, log probabilities of %v", got.text, got.logprobs)
	}
	for out := range m.Decode(deltas([]uint32{0xE2, 0x82, 0xAC}, []int{1, 1}, engine.FinishEOS, true), prompt.Decoding{}) {
		for i, lp := range out.Piece.Logprobs {
			if want := []byte{[]byte("€")[i]}; !slices.Equal(lp.Bytes, want) || lp.Text != "\uFFFD" {
				t.Errorf("entry %d: text %q, bytes %x", i, lp.Text, lp.Bytes)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	m := &prompt.Model{Tokenizer: testTokenizer(b)}
	ids := make([]uint32, 1000)
	for i := range ids {
		ids[i] = uint32('a' + i%26)
	}
	for name, stops := range map[string][]string{"plain": nil, "four stops": {"\n\nHuman", "STOP", "zzz", "</s>"}} {
		b.Run(name, func(b *testing.B) {
			cuts := slices.Repeat([]int{1}, len(ids)-1)
			b.ReportAllocs()
			for b.Loop() {
				for range m.Decode(deltas(ids, cuts, engine.FinishEOS, false), prompt.Decoding{Strings: stops}) {
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/token")
		})
	}
}

// An engine may name several ids that have ended an answer. They are told if the last of
// them did, whoever notices that first.
func TestStopIDs(t *testing.T) {
	m := &prompt.Model{Tokenizer: testTokenizer(t)}
	for _, tc := range []struct {
		name    string
		listed  []uint32
		matched []uint32
		want    []uint32
	}{
		{"known here", []uint32{'b'}, []uint32{'a', 'b'}, []uint32{'a', 'b'}},
		{"known to the engine alone", nil, []uint32{'a', 'b'}, []uint32{'a', 'b'}},
		{"one", []uint32{'b'}, []uint32{'b'}, nil},
		{"others than ended it", []uint32{'b'}, []uint32{'b', 'a'}, nil},
	} {
		answer := func(yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: []uint32{'a', 'b'}, Finish: engine.FinishStop, MatchedIDs: tc.matched, Usage: &engine.Usage{Prompt: 1, Output: 2}}, nil)
		}
		got := fold(t, m, answer, prompt.Decoding{Stop: engine.Stop{IDs: tc.listed}, Prompt: 1})
		if !slices.Equal(got.end.StopIDs, tc.want) || got.end.StopID == nil {
			t.Errorf("%s: ended by %v, want %v", tc.name, got.end.StopIDs, tc.want)
		}
	}
}

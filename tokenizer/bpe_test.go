package tokenizer_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// smallFile is a tokenizer whose words are whole texts, over the letters of
// alphabet and the given merges.
func smallFile(t testing.TB, alphabet string, merges [][2]string, ignoreMerges bool) []byte {
	vocab := map[string]int{}
	for _, letter := range alphabet {
		vocab[string(letter)] = len(vocab)
	}
	for _, m := range merges {
		if token := m[0] + m[1]; vocab[token] == 0 && token != alphabet[:1] {
			vocab[token] = len(vocab)
		}
	}
	return encode(t, map[string]any{
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": ignoreMerges},
	})
}

// naive is byte-pair encoding as its definition reads.
func naive(merges [][2]string, word string) []string {
	tokens := strings.Split(word, "")
	for {
		best, at := len(merges), 0
		for i := range len(tokens) - 1 {
			// A pair that is listed twice has its later rank.
			rank := -1
			for r, m := range merges {
				if m == [2]string{tokens[i], tokens[i+1]} {
					rank = r
				}
			}
			if rank >= 0 && rank < best {
				best, at = rank, i
			}
		}
		if best == len(merges) {
			return tokens
		}
		tokens = slices.Replace(tokens, at, at+2, tokens[at]+tokens[at+1])
	}
}

// Random vocabularies and words on both sides of the length from which merging
// works differently.
func TestMergesEqualDefinition(t *testing.T) {
	const alphabet = "abc"
	rapid.Check(t, func(rt *rapid.T) {
		known := strings.Split(alphabet, "")
		var merges [][2]string
		for range rapid.IntRange(0, 12).Draw(rt, "merges") {
			m := [2]string{rapid.SampledFrom(known).Draw(rt, "left"), rapid.SampledFrom(known).Draw(rt, "right")}
			merges = append(merges, m)
			known = append(known, m[0]+m[1])
		}
		tok := load(t, smallFile(t, alphabet, merges, false))
		word := strings.Repeat(rapid.StringOfN(rapid.SampledFrom([]rune(alphabet)), 0, 150, -1).Draw(rt, "word"), rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 12}).Draw(rt, "times"))
		var want []string
		if word != "" {
			want = naive(merges, word)
		}
		// The second time the cache may answer.
		for range 2 {
			var got []string
			for _, id := range tok.Append(nil, word) {
				got = append(got, string(tok.Bytes(id)))
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("merges %q of %q give %q, want %q", merges, word, got, want)
			}
		}
	})
}

// Merging "abc" makes ab and never the token a+bc, unless the file says that a
// word of the vocabulary is taken as it is.
func TestIgnoreMerges(t *testing.T) {
	merges := [][2]string{{"a", "b"}, {"b", "c"}, {"a", "bc"}}
	for ignore, want := range map[bool]int{false: 2, true: 1} {
		tok := load(t, smallFile(t, "abc", merges, ignore))
		if got := tok.Append(nil, "abc"); len(got) != want {
			t.Errorf("ignore_merges %v: %d, want %d tokens", ignore, got, want)
		}
	}
}

// Words that are bad for merging. For 32 times the length, n log n asks for some
// 50 times the work and a quadratic path for 1,024. The processor's own time is
// counted, which a busy machine leaves alone.
func TestLongWords(t *testing.T) {
	tok := demoTokenizer(t)
	const short, factor, limit = 8_000, 32, 300
	for _, unit := range []string{"ab", " ", "你"} {
		word := strings.Repeat(unit, short*factor/len(unit))
		head := word[:short/len(unit)*len(unit)]
		small, large := time.Duration(1<<62), time.Duration(1<<62)
		for range 3 {
			small = min(small, processorTime(t, func() { tok.Append(nil, head) }))
			large = min(large, processorTime(t, func() { tok.Append(nil, word) }))
		}
		if large > limit*max(small, time.Microsecond) {
			t.Errorf("%q repeated takes %v for %d bytes, %v for %d times as many", unit, small, short, large, factor)
		}
		if tok.Decode(tok.Append(nil, word), false) != word {
			t.Errorf("%q repeated does not come back", unit)
		}
	}
}

// processorTime returns the time that all processors together spent on f.
func processorTime(t *testing.T, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

func BenchmarkLongWord(b *testing.B) {
	tok := demoTokenizer(b)
	for name, unit := range map[string]string{"ab": "ab", "blanks": "  "} {
		for _, n := range []int{10_000, 1_000_000} {
			word := strings.Repeat(unit, n/2)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				var ids []uint32
				for b.Loop() {
					ids = tok.Append(ids[:0], word)
				}
			})
		}
	}
}

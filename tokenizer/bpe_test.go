package tokenizer_test

import (
	"fmt"
	"slices"
	"strings"
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
		word := rapid.StringOfN(rapid.SampledFrom([]rune(alphabet)), 0, 150, -1).Draw(rt, "word")
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

// Words that are bad for merging. Eight times the length takes some nine times as
// long; on a quadratic path it would take 64 times.
func TestLongWords(t *testing.T) {
	tok := demoTokenizer(t)
	const short, factor, limit = 4_000, 8, 30
	for _, unit := range []string{"a", "ab", " ", "!", "你", "=-"} {
		word := strings.Repeat(unit, short*factor/len(unit))
		// The smallest of several times is the one least disturbed.
		best := [2]time.Duration{time.Hour, time.Hour}
		for range 5 {
			for i, word := range []string{word[:short/len(unit)*len(unit)], word} {
				start := time.Now()
				tok.Append(nil, word)
				best[i] = min(best[i], time.Since(start))
			}
		}
		if best[1] > limit*best[0] {
			t.Errorf("%q repeated takes %v for %d bytes, %v for %d times as many", unit, best[0], short, best[1], factor)
		}
		if tok.Decode(tok.Append(nil, word), false) != word {
			t.Errorf("%q repeated does not come back", unit)
		}
	}
}

func BenchmarkLongWord(b *testing.B) {
	tok := demoTokenizer(b)
	for _, n := range []int{10_000, 100_000} {
		word := strings.Repeat("ab", n/2)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			var ids []uint32
			for b.Loop() {
				ids = tok.Append(ids[:0], word)
			}
		})
	}
}

package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
)

// clauses returns words that are new, of the characters of alphabet.
func clauses(alphabet string, n, maxChars int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	characters := []rune(alphabet)
	var words []string
	for range n {
		var word strings.Builder
		for range 1 + random.IntN(maxChars) {
			word.WriteRune(characters[random.IntN(len(characters))])
		}
		words = append(words, word.String())
	}
	return words
}

const mixed = "etaoinshrdlu的是在了我们和有不这个请用中文写一个简短的总结éÜß 😀=-_"

func demoModel(t testing.TB) *bpe {
	t.Helper()
	file, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok.model.(*bpe)
}

// A real vocabulary has no odd tokens to speak of, so that pairs nearly always
// find the row that merging gives.
func TestPairsFindWhatMergingGives(t *testing.T) {
	m, s := demoModel(t), new(scratch)
	gaveUp := 0
	words := clauses(mixed, 2000, 60)
	for _, word := range words {
		if len(word) > maxPaired {
			continue
		}
		got, ok := m.appendPaired([]uint32{7}, word, s)
		if !ok {
			gaveUp++
			continue
		}
		if want := m.mergeFrom(1, m.symbols([]uint32{7}, word), s); !slices.Equal(got, want) {
			t.Fatalf("%q gives %d, merging it %d", word, got, want)
		}
	}
	if gaveUp > len(words)/100 {
		t.Errorf("gave up at %d of %d words", gaveUp, len(words))
	}
}

// Of pairs of one rank the left one goes first: aaa becomes aa and a.
func TestPairsOfOneRank(t *testing.T) {
	tok, err := Load([]byte(`{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},
		"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"aa":1,"b":2},"merges":["a a"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	m, s := tok.model.(*bpe), new(scratch)
	if got, ok := m.appendPaired(nil, "aaaaaba", s); !ok || !slices.Equal(got, []uint32{1, 1, 0, 2, 0}) {
		t.Errorf("aaaaaba gives %d, found %v", got, ok)
	}
	for pair, want := range map[[2]uint32]bool{{1, 0}: true, {0, 1}: false, {0, 0}: false, {1, 1}: true, {0, 2}: true} {
		if got := m.apart(pair[0], pair[1]); got != want {
			t.Errorf("%d stay apart: %v, want %v", pair, got, want)
		}
		if got := m.apart(pair[0], pair[1]); got != want {
			t.Errorf("%d are remembered to stay apart: %v, want %v", pair, got, want)
		}
	}
}

// BenchmarkNewWords reads words that no cache knows, found by pairs and merged.
func BenchmarkNewWords(b *testing.B) {
	m, s := demoModel(b), new(scratch)
	words := clauses(mixed, 20_000, 20)
	size := 0
	for _, word := range words {
		size += len(word)
	}
	var ids []uint32
	for name, read := range map[string]func(string){
		"pairs":  func(word string) { ids, _ = m.appendPaired(ids[:0], word, s) },
		"merges": func(word string) { ids = m.mergeFrom(0, m.symbols(ids[:0], word), s) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for _, word := range words {
					read(word)
				}
			}
		})
	}
}

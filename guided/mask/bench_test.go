package mask_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

// invented is a vocabulary of so many tokens of the kinds that real ones have: bytes,
// words with and without a blank in front, numbers, runs of blanks, and punctuation
// of code.
func invented(t testing.TB, size int) *mask.Vocabulary {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(size)))
	seen := map[string]bool{}
	var tokens [][]byte
	add := func(s string) {
		if !seen[s] && len(tokens) < size-1 {
			seen[s] = true
			tokens = append(tokens, []byte(s))
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for i := range 1000 {
		add(fmt.Sprint(i))
	}
	for n := range 40 {
		add(fmt.Sprintf("%*s", n+2, ""))
		add("\n" + fmt.Sprintf("%*s", n, ""))
	}
	marks := []string{`"`, `":`, `": "`, `",`, `", "`, `"}`, `"},`, `"]`, `{"`, `[{"`, `"}}`, `()`, `);`, `</`, `/>`, `\"`, `\n`, `://`, `...`, `=="`, ` {`, `},`, `],`, `é`, `日本`, `Привет`}
	for _, a := range marks {
		add(a)
		for _, b := range marks {
			add(a + b)
		}
	}
	syllables := []string{"an", "ber", "co", "de", "er", "fi", "ga", "he", "in", "jo", "ka", "lo", "mi", "no", "or", "pre", "qu", "re", "st", "ti", "un", "ver", "wo", "xy", "za", "ü", "ción", "的", "ов"}
	for len(tokens) < size-1 {
		word := ""
		for range 1 + r.IntN(4) {
			word += syllables[r.IntN(len(syllables))]
		}
		switch r.IntN(12) {
		case 0, 1, 2, 3, 4, 5:
			word = " " + word
		case 6:
			word += marks[r.IntN(len(marks))]
		case 7:
			word = `"` + word
		}
		add(word)
	}
	tokens = append(tokens, nil)
	v, err := mask.NewVocabulary(mask.Tokens{Bytes: tokens, Ends: []uint32{uint32(size - 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const toolSchema = `{"type":"object","properties":{"path":{"type":"string"},"range":{"anyOf":[{"type":"array","prefixItems":[{"type":"integer"},{"type":"integer"}],"minItems":2,"maxItems":2},{"type":"null"}]},"mode":{"enum":["read","write","append"]},"options":{"$ref":"#/$defs/o"}},"required":["path","mode"],"additionalProperties":false,"$defs":{"o":{"type":"object","properties":{"name":{"type":"string","maxLength":40},"when":{"type":"string","format":"date-time"},"more":{"type":"array","items":{"$ref":"#/$defs/o"}}}}}}`

// BenchmarkStep is one token of an answer: mask and advance, over whole answers
// that are said at random. The first answers make the states that later ones use.
func BenchmarkStep(b *testing.B) {
	for _, size := range []int{4 << 10, 150_000} {
		v := invented(b, size)
		for _, f := range []struct {
			name   string
			format *chat.OutputFormat
		}{
			{"schema", schemaFormat(toolSchema)},
			{"object", &chat.OutputFormat{Kind: chat.FormatJSONObject}},
			{"regex", &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `(\w+@\w+\.(com|org), ){1,20}end`}},
		} {
			for _, warm := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d/warm=%t", f.name, size, warm), func(b *testing.B) {
					c := mask.NewCompiler(v)
					g, err := c.Compile(f.format)
					if err != nil {
						b.Fatal(err)
					}
					steps, seed := 0, uint64(0)
					if warm {
						for seed = range uint64(30) {
							speak(b, v, g, seed)
						}
					}
					b.ReportAllocs()
					for b.Loop() {
						if !warm {
							b.StopTimer()
							if g, err = mask.NewCompiler(v).Compile(f.format); err != nil {
								b.Fatal(err)
							}
							b.StartTimer()
						}
						seed++
						steps += speak(b, v, g, seed%30)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/token")
				})
			}
		}
	}
}

// speak says up to 200 tokens at random, and returns how many. Which one is chosen
// costs little: the first from a random place on.
func speak(b *testing.B, v *mask.Vocabulary, g *mask.Grammar, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 3))
	s := g.Start()
	bits := make([]uint64, v.Words())
	for n := range 200 {
		if err := s.Mask(bits); err != nil {
			b.Fatal(err)
		}
		id := r.IntN(v.Size())
		for bits[id>>6]>>(id&63)&1 == 0 {
			if bits[id>>6]>>(id&63) == 0 {
				id = (id>>6 + 1) << 6
			} else {
				id++
			}
			if id >= v.Size() {
				id = 0
			}
		}
		if err := s.Advance(uint32(id)); err != nil {
			b.Fatal(err)
		}
		if s.Ended() {
			return n + 1
		}
	}
	return 200
}

func BenchmarkCompile(b *testing.B) {
	v := invented(b, 4<<10)
	for b.Loop() {
		if _, err := mask.NewCompiler(v).Compile(schemaFormat(toolSchema)); err != nil {
			b.Fatal(err)
		}
	}
}

package tokenizer

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"pgregory.net/rapid"
)

// allScanners holds the scanners of both kinds.
var allScanners = func() map[string]scanner {
	m := maps.Clone(knownPatterns)
	maps.Copy(m, isolatedPatterns)
	return m
}()

// oracles are the known patterns run by a regular expression engine. It has Go's
// tables of Unicode 15.0, so the texts hold no character that is newer, and it
// does not always see that the long s is an s without case, so it is told. What
// the patterns write as an intersection of classes it knows as a difference.
var oracles = func() map[string]func(string) []string {
	m := map[string]func(string) []string{}
	for pattern := range allScanners {
		stage := splitPattern{find: regexpFinder(pattern, regexp2.MustCompile(oracleSpelling.Replace(pattern), regexp2.None)), behavior: isolated}
		m[pattern] = func(text string) []string { return stage.split(nil, text) }
	}
	return m
}()

var oracleSpelling = strings.NewReplacer("(?i:'s|", "(?i:'s|'ſ|", `&&[^\p{Han}]]`, `-[\p{Han}]]`)

// alike holds characters of every class that a pattern tells apart, and those
// that it names.
var alike = []rune("aZéÉſǅʰªºاक你々⺀〇\u0301\u093f\u20dd09½Ⅷ² \t\v\u00a0\u3000\u2028\u0085\r\n'’/!_-€😀\u200d\u200b\ufffdstrevmldSTREVMLDK")

func checkScanners(t testing.TB, text string) {
	t.Helper()
	for pattern, scan := range allScanners {
		if got, want := scan.split(nil, text), oracles[pattern](text); !slices.Equal(got, want) {
			t.Fatalf("pattern %s\ncuts %q\ninto %q\nwant %q", pattern, text, got, want)
		}
	}
}

func TestScannersCutAsTheirPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom(alike)).Draw(t, "text")
		for pattern, scan := range allScanners {
			if got, want := scan.split(nil, text), oracles[pattern](text); !slices.Equal(got, want) {
				t.Fatalf("pattern %s\ncuts %q\ninto %q\nwant %q", pattern, text, got, want)
			}
		}
	})
}

// Every text of up to three characters, one of each class: all there is to get
// wrong about where a run begins and ends.
func TestScannersOnAllShortTexts(t *testing.T) {
	classes := []rune("aAªc\u0301 1\n\t'!/s你½")
	for _, a := range classes {
		for _, b := range classes {
			for _, c := range classes {
				checkScanners(t, string([]rune{a, b, c}))
			}
		}
	}
}

func FuzzScanners(f *testing.F) {
	f.Add("I'LL say: 12345 words,\r\n\n  don't  \u00c9te\u0301  ǅABCdef/\n")
	f.Fuzz(func(t *testing.T, text string) {
		checkScanners(t, strings.Map(func(r rune) rune {
			if r >= utf8.RuneSelf {
				return alike[int(r)%len(alike)]
			}
			return r
		}, text))
	})
}

// The patterns know the letters of Unicode 16.0 (Garay, Egyptian hieroglyphs
// extended A) and none that came later.
func TestUnicodeVersion(t *testing.T) {
	for _, tc := range []struct {
		r    rune
		want class
	}{
		{'a', ll},
		{'A', lu},
		{'ǅ', lu},
		{'ʰ', lo},
		{'你', lo | han},
		{'⺀', ps | han},
		{0x20000, lo | han},
		{0x2ebf0, lo | han},
		{'\u0301', mk},
		{'5', nu},
		{'½', nu},
		{'€', ps},
		{'!', ps},
		{'+', ps},
		{0x1ae0, 0},
		{' ', sp},
		{'\n', sp | nl},
		{'\u0085', sp},
		{'\u200b', 0},
		{0x10d70, ll},
		{0x10d50, lu},
		{0x13f74, lo},
		{0x1e6cc, 0},
		{0x10ffff, 0},
	} {
		if got, n := classAt(string(tc.r), 0); got != tc.want || n != utf8.RuneLen(tc.r) {
			t.Errorf("class of %U is %b and %d bytes long, want %b", tc.r, got, n, tc.want)
		}
	}
	if got, n := classAt("\xffa", 0); got != 0 || n != 1 {
		t.Errorf("class of a stray byte is %b, %d bytes long", got, n)
	}
}

func BenchmarkScan(b *testing.B) {
	words := []string{"the", " quick", " HTTPServer", " 2024", "\n\t", "x.y(z)", " don't", "  ", " über", " 你好"}
	rng := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	for text.Len() < 64<<10 {
		text.WriteString(words[rng.IntN(len(words))])
	}
	for _, p := range []struct{ name, pattern string }{{"gpt2", patternGPT2}, {"qwen2", PatternQwen2}, {"o200k", PatternO200k}} {
		b.Run(p.name, func(b *testing.B) {
			scan := knownPatterns[p.pattern]
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				for i := 0; i < text.Len(); {
					i = scan(text.String(), i)
				}
			}
		})
	}
}

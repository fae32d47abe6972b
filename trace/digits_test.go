package trace

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Numbers are those of strconv: all of four digits in each place, what lies around powers
// of ten, and any others.
func TestDigits(t *testing.T) {
	check := func(n uint64) {
		if got, want := string(appendUint(nil, n)), strconv.FormatUint(n, 10); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	for n := range uint64(10000) {
		for at := uint64(1); at < 1e16; at *= 10000 {
			check(n * at)
			check(12345678e12 + n*at)
		}
	}
	for at := uint64(1); at < math.MaxUint64/10; at *= 10 {
		check(at - 1)
		check(at)
		check(at + 1)
	}
	check(math.MaxUint64)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		check(random.Uint64() >> random.IntN(64))
	}
}

// What is taken for plain is what JSON has as it is, at each place of a string.
func TestPlain(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				s := []byte("turn-12: 5d9f2a60-3c1e-4b7a-9a0e"[:length])
				s[at] = byte(c)
				quoted, _ := jsontext.AppendQuote(nil, s)
				if got := string(quote(nil, string(s))); got != string(quoted) {
					t.Fatalf("%q: got %s, want %s", s, got, quoted)
				}
				if c >= ' ' && c < 0x7f && c != '"' && c != '\\' && !isPlain(string(s)) {
					t.Fatalf("%q is not plain", s)
				}
			}
		}
	}
}

func BenchmarkDigits(b *testing.B) {
	var room [20]byte
	n := uint64(math.MaxUint64)
	for b.Loop() {
		appendUint(room[:0], n)
		n -= 1234567
	}
}

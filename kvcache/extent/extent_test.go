package extent_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kvcache/extent"
)

func Example() {
	s := extent.New(100)
	a, _ := s.Take(60)
	b, _ := s.Take(30)
	s.Give(a)
	_, ok := s.Take(70)
	fmt.Println(s.Free(), ok)
	s.Give(b)
	_, ok = s.Take(100)
	fmt.Println(ok)
	// Output:
	// 70 false
	// true
}

// A space and an array of bools agree on everything, and a run is found if
// there is one.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.IntRange(1, 300).Draw(t, "units")
		space, taken := extent.New(uint32(units)), make([]bool, units)
		var held []extent.Run
		longest := func() int {
			most, n := 0, 0
			for _, x := range taken {
				if n++; x {
					n = 0
				}
				most = max(most, n)
			}
			return most
		}
		free := func() int {
			n := 0
			for _, x := range taken {
				if !x {
					n++
				}
			}
			return n
		}
		mark := func(r extent.Run) {
			for i := r.Start; i < r.End(); i++ {
				if taken[i] {
					t.Fatalf("%v given out, but %d is taken", r, i)
				}
				taken[i] = true
			}
			held = append(held, r)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(0, units+1).Draw(t, "n")
				want := n > 0 && longest() >= n
				r, ok := space.Take(uint32(n))
				if ok != want || ok && r.Units != uint32(n) {
					t.Fatalf("Take(%d) = %v, %v; the longest run has %d", n, r, ok, longest())
				}
				if ok {
					mark(r)
				}
			},
			"parts": func(t *rapid.T) {
				n, most := rapid.IntRange(0, units).Draw(t, "n"), rapid.IntRange(1, 4).Draw(t, "most")
				parts, ok := space.TakeParts(uint32(n), most)
				if want := n > 0 && longest() >= n; want && !ok || ok && n > free() {
					t.Fatalf("TakeParts(%d, %d) = %v", n, most, ok)
				}
				sum := 0
				for _, r := range parts {
					mark(r)
					sum += int(r.Units)
				}
				if ok && (sum != n || len(parts) > most) {
					t.Fatalf("TakeParts(%d, %d) = %v", n, most, parts)
				}
			},
			"anew": func(*rapid.T) {
				runs := slices.Clone(held)
				slices.SortFunc(runs, func(a, b extent.Run) int { return cmp.Compare(a.Start, b.Start) })
				space = extent.Around(uint32(units), runs)
			},
			"extend": func(t *rapid.T) {
				n := rapid.IntRange(0, 20).Draw(t, "n")
				space.Extend(uint32(n))
				taken = append(taken, make([]bool, n)...)
				units += n
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is taken")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				space.Give(held[i])
				for j := held[i].Start; j < held[i].End(); j++ {
					taken[j] = false
				}
				held = slices.Delete(held, i, i+1)
			},
			"": func(t *rapid.T) {
				if int(space.Free()) != free() {
					t.Fatalf("%d units free, want %d", space.Free(), free())
				}
			},
		})
	})
}

// With values of one length all of a space can be used, in whatever order they
// come and go.
func TestOneLength(t *testing.T) {
	const length, values = 7, 64
	s, rnd := extent.New(length*values+length-1), rand.New(rand.NewPCG(1, 2))
	var held []extent.Run
	for range 10_000 {
		for len(held) < values {
			r, ok := s.Take(length)
			if !ok {
				t.Fatalf("no room for value %d of %d", len(held), values)
			}
			held = append(held, r)
		}
		for range rnd.IntN(values) {
			i := rnd.IntN(len(held))
			s.Give(held[i])
			held = slices.Delete(held, i, i+1)
		}
	}
}

func BenchmarkTakeGive(b *testing.B) {
	const length, values = 512, 1 << 14
	s, rnd := extent.New(length*values), rand.New(rand.NewPCG(1, 2))
	held := make([]extent.Run, values)
	for i := range held {
		held[i], _ = s.Take(length)
	}
	for b.Loop() {
		i := rnd.IntN(values)
		s.Give(held[i])
		held[i], _ = s.Take(length)
	}
}

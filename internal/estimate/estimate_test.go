package estimate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/internal/estimate"
)

// naive remembers everything, and works out an estimate from that by its definition.
type naive struct {
	keys    []estimate.Key
	numbers []uint32
}

func (s *naive) observe(k estimate.Key, n uint32) {
	s.keys, s.numbers = append(s.keys, k), append(s.numbers, n)
}

// latest returns the latest 64 numbers of those keys that are the same as k once cut.
func (s *naive) latest(k estimate.Key, cut func(estimate.Key) estimate.Key) []uint32 {
	var got []uint32
	for i, other := range s.keys {
		if cut(other) == cut(k) {
			got = append(got, s.numbers[i])
		}
	}
	return slices.Sorted(slices.Values(got[max(0, len(got)-64):]))
}

func (s *naive) of(k estimate.Key) (e estimate.Estimate, ok bool) {
	var low, median, upper float64
	for i, cut := range []func(estimate.Key) estimate.Key{
		func(k estimate.Key) estimate.Key { k.Agent, k.Tool, k.Trigger = "", "", ""; return k },
		func(k estimate.Key) estimate.Key { k.Tool, k.Trigger = "", ""; return k },
		func(k estimate.Key) estimate.Key { k.Trigger = ""; return k },
		func(k estimate.Key) estimate.Key { return k },
	} {
		got := s.latest(k, cut)
		n := float64(len(got))
		share := n / (n + 4)
		e.Confidence = share
		if i == 0 {
			if len(got) < 8 {
				return estimate.Estimate{}, false
			}
			share = 1
		}
		if len(got) > 0 {
			low = share*math.Log1p(float64(atLeast(got, 0.1))) + (1-share)*low
			median = share*math.Log1p(float64(atLeast(got, 0.5))) + (1-share)*median
			upper = share*math.Log1p(float64(atLeast(got, 0.9))) + (1-share)*upper
		}
	}
	e.Low = uint32(math.Round(math.Expm1(low)))
	e.Median, e.High = uint32(math.Round(math.Expm1(median))), uint32(math.Round(math.Expm1(upper)))
	return e, true
}

// atLeast returns the first of some sorted numbers that a share of them is not above.
func atLeast(sorted []uint32, share float64) uint32 {
	for i, n := range sorted {
		if float64(i+1) >= share*float64(len(sorted)) {
			return n
		}
	}
	panic("a share of more than all")
}

// A book that forgets no key says what the definition says.
func TestDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(of string) string { return rapid.SampledFrom([]string{"", of + "1", of + "2"}).Draw(t, of) }
		key := func() estimate.Key {
			return estimate.Key{Owner: name("owner"), Model: name("model"), Agent: name("agent"), Tool: name("tool"), Trigger: name("trigger")}
		}
		var model naive
		book := estimate.New(estimate.DefaultKeys)
		number := rapid.OneOf(rapid.Uint32Range(0, 20), rapid.Uint32Range(0, 100_000))
		for range rapid.IntRange(0, 40).Draw(t, "keys") {
			k := key()
			for range rapid.IntRange(1, 80).Draw(t, "times") {
				n := number.Draw(t, "number")
				model.observe(k, n)
				book.Observe(k, n)
			}
			for _, k := range []estimate.Key{k, key()} {
				want, known := model.of(k)
				got, ok := book.Of(k)
				if ok != known || near(got.Low, want.Low) || near(got.Median, want.Median) || near(got.High, want.High) || math.Abs(got.Confidence-want.Confidence) > 1e-12 {
					t.Fatalf("%+v: got %+v, %t, want %+v, %t", k, got, ok, want, known)
				}
			}
		}
	})
}

// near says whether two numbers differ by more than the order of additions makes of a
// half that is rounded.
func near(a, b uint32) bool { return max(a, b)-min(a, b) > 1 }

// Few outliers move an estimate hardly, and what has changed for good is learned within
// one window.
func TestRobust(t *testing.T) {
	k := estimate.Key{Model: "m", Agent: "a", Tool: "t", Trigger: "tool_result"}
	book := estimate.New(estimate.DefaultKeys)
	for i := range 100 {
		if i%10 == 3 {
			book.Observe(k, math.MaxUint32)
			continue
		}
		book.Observe(k, 200)
	}
	if e, _ := book.Of(k); e.Median != 200 || e.Confidence < 0.9 {
		t.Errorf("with a tenth of outliers it is %+v, want 200", e)
	}
	for range 64 {
		book.Observe(k, 3_000)
	}
	if e, _ := book.Of(k); e.Median != 3_000 || e.High != 3_000 {
		t.Errorf("after 64 of 3,000 it is %+v, want 3,000", e)
	}
}

// What is not known of a key is what is known of those it belongs to, and each number of
// its own moves it on.
func TestThin(t *testing.T) {
	long := estimate.Key{Model: "m", Agent: "a", Tool: "write"}
	book := estimate.New(estimate.DefaultKeys)
	for range 64 {
		book.Observe(estimate.Key{Model: "m", Agent: "a", Tool: "read"}, 100)
	}
	e, ok := book.Of(long)
	if !ok || e != (estimate.Estimate{Low: 100, Median: 100, High: 100}) {
		t.Fatalf("of a tool that was never called: %+v, %t, want 100 without confidence", e, ok)
	}
	for range 40 {
		before := e
		book.Observe(long, 5_000)
		if e, _ = book.Of(long); e.Median < before.Median || e.Confidence <= before.Confidence {
			t.Fatalf("one more of 5,000 makes %+v of %+v", e, before)
		}
	}
	if e.Median < 4_500 {
		t.Errorf("after 40 of 5,000 it is %+v", e)
	}
	if e, _ := book.Of(estimate.Key{Model: "m", Agent: "a", Tool: "read"}); e.Median > 110 {
		t.Errorf("of the other tool it is %+v, want about 100", e)
	}
}

// Who invents names cannot make a book grow, nor make it forget what others have that
// have less.
func TestInventors(t *testing.T) {
	const most = 256
	book := estimate.New(most)
	honest := estimate.Key{Owner: "honest", Model: "m", Agent: "a", Tool: "t"}
	for range 20 {
		book.Observe(honest, 300)
	}
	want, _ := book.Of(honest)
	before := book.Len()
	for i := range 20 * most {
		book.Observe(estimate.Key{Owner: "inventor", Model: fmt.Sprint("m", i%7), Agent: fmt.Sprint("a", i%1000), Tool: fmt.Sprint("t", i)}, uint32(i))
		if n := book.Len(); n < before || n > most {
			t.Fatalf("after %d inventions there are %d keys, and before the last one %d; want it to grow to %d and stay there", i+1, n, before, most)
		}
		before = book.Len()
	}
	if got, ok := book.Of(honest); !ok || got != want {
		t.Errorf("after the inventions it is %+v, %t, want %+v", got, ok, want)
	}
}

// Among the names of one owner those last that are used, with all levels above them.
func TestInUse(t *testing.T) {
	book := estimate.New(64)
	used := estimate.Key{Model: "m", Agent: "a", Tool: "t"}
	for i := range 5_000 {
		if i%10 == 0 {
			book.Observe(used, 300)
		}
		book.Observe(estimate.Key{Model: "m", Agent: fmt.Sprint("a", i)}, 10)
	}
	if e, _ := book.Of(used); e.Confidence < 0.9 || e.Median < 200 {
		t.Errorf("what is used all the time is %+v, want about 300", e)
	}
}

// Asking keeps nothing.
func TestAsking(t *testing.T) {
	book := estimate.New(64)
	for i := range 100 {
		book.Of(estimate.Key{Model: fmt.Sprint(i)})
	}
	if n := book.Len(); n != 0 {
		t.Errorf("after questions alone there are %d keys", n)
	}
}

func TestErrors(t *testing.T) {
	var s estimate.Errors
	s.Add(estimate.Estimate{Median: 100, High: 150}, 80)
	s.Add(estimate.Estimate{Median: 100, High: 150}, 160)
	if want := (estimate.Errors{Count: 2, Over: 1, Above: 1, Told: 200, Came: 240, Off: 80}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

func Example() {
	book := estimate.New(estimate.DefaultKeys)
	for range 32 {
		book.Observe(estimate.Key{Model: "coder", Agent: "tester", Tool: "read"}, 120)
		book.Observe(estimate.Key{Model: "coder", Agent: "tester", Tool: "write"}, 2_000)
	}
	for _, tool := range []string{"read", "write"} {
		e, _ := book.Of(estimate.Key{Model: "coder", Agent: "tester", Tool: tool})
		fmt.Println(tool, e.Median)
	}
	// Output:
	// read 120
	// write 1932
}

// BenchmarkBook is one request: what is expected of it, and what it came to, of a full
// book.
func BenchmarkBook(b *testing.B) {
	book := estimate.New(estimate.DefaultKeys)
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]estimate.Key, 4*estimate.DefaultKeys)
	for i := range keys {
		keys[i] = estimate.Key{Model: "coder", Agent: fmt.Sprint("agent ", i%50), Tool: fmt.Sprint("tool ", i%331), Trigger: "tool_result"}
	}
	for range 1 << 16 {
		book.Observe(keys[random.IntN(len(keys))], random.Uint32N(5_000))
	}
	b.ReportAllocs()
	for b.Loop() {
		k := keys[random.IntN(len(keys))]
		book.Of(k)
		book.Observe(k, random.Uint32N(5_000))
	}
}

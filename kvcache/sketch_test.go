package kvcache

import (
	"testing"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// An estimate is never less than the truth, as far as four bits go and as long
// as nothing was halved; with few blocks it is hardly ever more.
func TestSketchNeverUnderestimates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSketch(4096)
		count := map[kv.SeqHash]uint64{}
		for _, h := range rapid.SliceOfN(rapid.Uint64Range(1, 50), 0, 2000).Draw(t, "hashes") {
			s.add(kv.SeqHash(h))
			count[kv.SeqHash(h)]++
		}
		for h, n := range count {
			if got := s.estimate(h); got < min(n, 15) {
				t.Fatalf("%d was added %d times and is taken for %d", h, n, got)
			}
		}
	})
}

func TestSketchForgets(t *testing.T) {
	s := newSketch(100)
	for range 15 {
		s.add(1)
	}
	if n := s.level(1); n != 3 {
		t.Fatalf("level %d, want 3", n)
	}
	for s.added != 0 {
		s.add(2)
	}
	if n := s.estimate(1); n != 7 {
		t.Errorf("after %d additions estimate %d, want 7", s.period, n)
	}
	if n := s.estimate(3); n > 7 {
		t.Errorf("what was never added is taken for %d", n)
	}
}

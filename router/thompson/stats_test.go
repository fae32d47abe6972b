package thompson_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStats(t *testing.T) {
	f := newFleet(t, 1)
	f.clients(4, true)
	f.serve(96)
	s := f.policy.Stats()
	decisions := uint64(0)
	for i, a := range s.Arms {
		decisions += a.Decisions
		if a.Worker != fmt.Sprintf("#%d/0", i+1) {
			t.Errorf("arm %d is that of %s", i, a.Worker)
		}
	}
	if decisions != 100 || s.Overlap.Count() != 100 || s.Reuse.Count() != 100 {
		t.Errorf("%d decisions, %d overlaps, %d expectations, want 100 of each", decisions, s.Overlap.Count(), s.Reuse.Count())
	}
	done := uint64(100 - s.Pending)
	if s.Reward.Count() != done || s.Latency.Count() != done || s.Tokens.Count() != done {
		t.Errorf("%d rewards, %d latencies, %d sizes, want %d of each", s.Reward.Count(), s.Latency.Count(), s.Tokens.Count(), done)
	}
	if mean := s.Reward.Sum / float64(done); mean < 0.3 || mean > 0.7 {
		t.Errorf("the mean reward is %.2f, want about a half", mean)
	}
	before := s.Reward.Counts[4]
	s.Reward.Counts[4] = 1 << 40
	if got := f.policy.Stats().Reward.Counts[4]; got != before {
		t.Error("what was returned is not a copy")
	}
	if d := cmp.Diff(f.policy.Stats(), f.policy.Stats()); d != "" {
		t.Errorf("to ask changes something: %s", d)
	}
}

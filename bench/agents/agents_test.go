package agents

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

func TestTiersAreShares(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	counts := map[string]float64{}
	const n = 100_000
	for range n {
		counts[Draw(random.Float64()).Name]++
	}
	for _, tier := range Tiers {
		if got := counts[tier.Name] / n; math.Abs(got-tier.Share) > 0.005 {
			t.Errorf("tier %s has a share of %.3f, want %.2f", tier.Name, got, tier.Share)
		}
	}
}

func TestWorkflowsFollowEachOther(t *testing.T) {
	w, of := Workflows(2, 3, time.Second)
	if err := trace.Check(w); err != nil {
		t.Fatal(err)
	}
	if len(w) != 2*3*7 || len(of) != len(w) {
		t.Fatalf("%d calls, want 42", len(w))
	}
	roots := 0
	at := map[string]trace.Request{}
	for _, r := range w {
		at[r.ID] = r
		if r.Delay < time.Second/2 || r.Delay > 3*time.Second/2 {
			t.Errorf("%s comes after %v", r.ID, r.Delay)
		}
		if len(r.After) == 0 {
			roots++
		}
	}
	if roots != 2 {
		t.Errorf("%d workflows begin by themselves, want one in each slot", roots)
	}
	if draft := at["workflow 1.2, draft"]; len(draft.After) != 4 || draft.Prompt.Len() != 2200+4*500 || of[draft.ID] != "medium" {
		t.Errorf("the draft is %+v", draft)
	}
	if next := at["workflow 1.2, classify"]; len(next.After) != 1 || next.After[0] != "workflow 1.1, review" {
		t.Errorf("the next workflow is %+v", next)
	}
}

// One cache of blocks by hand: a is asked for at 0, ends at 2, is asked for again as
// the beginning of b at 5, and of c, which begins before b has anything.
func TestHistory(t *testing.T) {
	const block = historyBlock
	piece := func(stream uint64, blocks int) trace.Piece {
		return trace.Piece{Stream: stream, Len: uint32(blocks * block)}
	}
	answer := trace.Text{{Stream: 9, Len: block}}
	h := NewHistory([]trace.Request{
		{ID: "a", Prompt: trace.Text{piece(1, 4), {Stream: 2, Len: 1}}, Answer: trace.Text{{Stream: 2, From: 1, Len: block}}},
		{ID: "b", Prompt: trace.Text{piece(1, 4), piece(2, 2)}, Answer: answer}, // with the answer to a, whose last token is another one's
		{ID: "c", Prompt: trace.Text{piece(1, 4), piece(2, 2)}, Answer: answer},
	})
	at := func(id string, admitted, first, ended time.Duration, cached int) Outcome {
		return Outcome{ID: id, Admitted: admitted * time.Second, First: first * time.Second, Ended: ended * time.Second, Cached: cached * block}
	}
	all := []Outcome{at("a", 0, 1, 2, 0), at("b", 5, 7, 8, 1), at("c", 6, 9, 9, 5)}
	// b could have had the prompt of a and what was answered, c as much.
	if got := h.again(all); got["a"] != 0 || got["b"] != 4*block || got["c"] != 0 {
		t.Errorf("computed again: %v", got)
	}
	// The blocks of the first prompt are of use from 0 to 6, the answer from 5 to 6.
	if got := h.WorkingSet(all); got != 5 {
		t.Errorf("a working set of %d blocks, want 5", got)
	}
	if got := h.common(0, 1); got != 4*block {
		t.Errorf("a and b have %d tokens in common, want %d", got, 4*block)
	}
	p := h.Judge([]Outcome{
		{ID: "a", Session: "s", Input: 4*block + 1, Pinned: 3 * block},
		{ID: "b", Session: "s", Input: 6 * block, Cached: 2 * block, Admitted: time.Second, Arrived: time.Second, First: 2 * time.Second},
		{ID: "c", Input: 6 * block, Cached: 3 * block, Admitted: time.Second},
	}, map[string]bool{"s": true})
	if p.Pauses != 1 || p.Present != 2.0/3 || p.HitOthers != 0.5 || p.TTFTPinned != 1000 {
		t.Errorf("%+v", p)
	}
}

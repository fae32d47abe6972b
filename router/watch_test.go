package router

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// A target has so many witnesses at a time and no more, and what went away between
// the decision and the booking is held against none of them.
func TestWitnesses(t *testing.T) {
	x, target := kvindex.New(), kv.Target{Worker: 1}
	blocks := []kv.Block{{Engine: 11, Local: 1}, {Engine: 12, Local: 2}, {Engine: 13, Local: 3}, {Engine: 14, Local: 4}}
	local := []kv.LocalHash{1, 2, 3, 4}
	for _, e := range []kv.Event{{Blocks: blocks}, {Kind: kv.Removed, Blocks: blocks[2:3]}} {
		if err := x.Apply(target, e); err != nil {
			t.Fatal(err)
		}
	}
	w := newWatch(x, slog.New(slog.DiscardHandler))
	first := w.witness(target, local, 4, 4)
	if first.low != 2 || first.high != 4 {
		t.Errorf("expects %d to %d blocks, want 2 to 4", first.low, first.high)
	}
	for range mostWitnesses - 1 {
		if w.witness(target, local, 2, 2) == nil {
			t.Fatal("no witness, though there are few")
		}
	}
	if w.witness(target, local, 2, 2) != nil {
		t.Error("a witness too many")
	}
	if w.witness(kv.Target{Worker: 2}, local, 0, 0) == nil {
		t.Error("no witness for another target")
	}
	w.close(first)
	if w.witness(target, local, 2, 2) == nil {
		t.Error("no witness in the place of one that has told nothing")
	}
	w.removeWorker(1)
	w.removeWorker(2)
	if n := w.open.Load(); n != 0 || len(w.views) != 0 {
		t.Errorf("%d witnesses and %d views are left", n, len(w.views))
	}
}

// What an answer has found is compared with what the device was said to have, but
// for the last block, which is always computed, and a block on which engines differ.
func TestJudgements(t *testing.T) {
	local := []kv.LocalHash{1, 2, 3, 4}
	for _, tc := range []struct {
		held, high          int // blocks: on the device, and the most that may be found
		prompt, reported    int // tokens
		missing, surprising uint64
	}{
		{held: 4, high: 4, prompt: 17, reported: 16},
		{held: 4, high: 4, prompt: 17, reported: 12},
		{held: 4, high: 4, prompt: 17, reported: 8, missing: 2},
		{held: 4, high: 4, prompt: 16, reported: 8},
		{held: 4, high: 4, prompt: 16, reported: 4, missing: 2},
		{held: 2, high: 4, prompt: 17, reported: 16},
		{held: 0, high: 0, prompt: 17, reported: 4},
		{held: 0, high: 0, prompt: 17, reported: 12, surprising: 3},
	} {
		x, target := kvindex.New(), kv.Target{Worker: 1}
		var blocks []kv.Block
		for _, l := range local[:tc.held] {
			blocks = append(blocks, kv.Block{Engine: kv.EngineHash(l), Local: l})
		}
		if err := x.Apply(target, kv.Event{Blocks: blocks}); err != nil {
			t.Fatal(err)
		}
		w, now := newWatch(x, slog.New(slog.DiscardHandler)), time.Unix(1000, 0)
		k := w.witness(target, local, tc.held, tc.high)
		w.tell(target, t.Context(), answer{prompt: tc.prompt, reported: tc.reported, blockSize: 4}, k, now)
		if c := w.all()[0]; c.Witnesses != 0 {
			t.Errorf("%+v: judged before the worker could tell", tc)
		}
		w.tell(target, t.Context(), answer{prompt: 1, blockSize: 4}, nil, now.Add(late))
		if c := w.all()[0]; c.Witnesses != 1 || c.Missing != tc.missing || c.Surprising != tc.surprising {
			t.Errorf("%+v: %d witnesses, %d blocks missing, %d surprising", tc, c.Witnesses, c.Missing, c.Surprising)
		}
	}
}

// A worker that leaves while it is doubted leaves no doubt behind.
func TestDoubtLeaves(t *testing.T) {
	w, target := newWatch(kvindex.New(), slog.New(slog.DiscardHandler)), kv.Target{Worker: 1}
	believed := func() bool {
		believed, claims := w.believes(target)
		if !claims {
			t.Fatal("who only has more than the index knows is not believed what it does")
		}
		return believed
	}
	for now := time.Unix(1000, 0); believed(); now = now.Add(late) {
		k := w.witness(target, []kv.LocalHash{1, 2, 3}, 0, 0)
		if k == nil {
			t.Fatal("witnesses enough, and no doubt")
		}
		w.tell(target, t.Context(), answer{prompt: 17, reported: 12, blockSize: 4}, k, now)
	}
	if n := w.doubted.Load(); n != 1 {
		t.Errorf("%d targets are doubted, want 1", n)
	}
	w.removeWorker(1)
	if n := w.doubted.Load(); n != 0 || !believed() {
		t.Errorf("%d targets are doubted after it has left", n)
	}
}

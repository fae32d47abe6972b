package workload_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/bench/data"
	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kv"
)

// worker is a naive model of one worker's cache.
type worker struct {
	asked    []kv.LocalHash // by its last query
	held     map[kv.EngineHash]place
	children map[kv.SeqHash]int // blocks held below each
}

// place is where a block lies, told by sequence hashes.
type place struct{ seq, parent kv.SeqHash }

// replay follows c on a naive model of the caches and fails for whatever no
// engine would do. It returns the most that one worker held.
func replay(t *testing.T, c *workload.Corpus) (most int) {
	t.Helper()
	workers := make([]worker, c.Workers)
	for i := range workers {
		workers[i] = worker{held: map[kv.EngineHash]place{}, children: map[kv.SeqHash]int{}}
	}
	clock := uint32(0)
	for i, op := range c.Ops {
		if op.Time < clock {
			t.Fatalf("operation %d goes back in time", i)
		}
		clock = op.Time
		w := &workers[op.Worker]
		if op.Kind == workload.Query {
			w.asked = c.Prompt(op)
			continue
		}
		e := c.Event(op)
		if len(e.Blocks) == 0 {
			t.Fatalf("operation %d is an empty event", i)
		}
		if op.Kind == workload.Remove {
			w.remove(t, i, e)
		} else {
			w.store(t, i, e)
		}
		most = max(most, len(w.held))
	}
	return most
}

func (w *worker) remove(t *testing.T, i int, e kv.Event) {
	t.Helper()
	for _, b := range e.Blocks {
		gone, ok := w.held[b.Engine]
		if !ok {
			t.Fatalf("operation %d removes a block that its worker does not hold", i)
		}
		if w.children[gone.seq] > 0 {
			t.Fatalf("operation %d removes a block and leaves the one after it", i)
		}
		delete(w.held, b.Engine)
		w.children[gone.parent]--
	}
}

func (w *worker) store(t *testing.T, i int, e kv.Event) {
	t.Helper()
	var parent kv.SeqHash
	if e.HasParent {
		p, ok := w.held[e.Parent]
		if !ok {
			t.Fatalf("operation %d continues a block that its worker does not hold", i)
		}
		parent = p.seq
	}
	for _, b := range e.Blocks {
		if _, ok := w.held[b.Engine]; ok {
			t.Fatalf("operation %d stores a block that its worker holds already", i)
		}
		seq := kv.SeqHash(b.Local)
		if parent != 0 {
			seq = parent.Next(b.Local)
		}
		w.held[b.Engine] = place{seq, parent}
		w.children[parent]++
		parent = seq
	}
	if last := e.Blocks[len(e.Blocks)-1].Local; len(w.asked) == 0 || len(e.Blocks) > 1 && last != w.asked[len(w.asked)-1] {
		t.Fatalf("operation %d stores a prompt that its worker was not asked for", i)
	}
}

func TestReplayIsWhatEnginesDo(t *testing.T) {
	requests := data.Conversation()[:400]
	c, err := workload.Replay{Requests: requests, Factor: 2, Duplication: 3, Workers: 4, Capacity: 1024}.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	n := workload.CountsOf(c.Ops)
	blocks := 0
	for _, r := range requests {
		blocks += 6 * len(r.HashIDs)
	}
	if n.Queried != blocks {
		t.Errorf("%d blocks asked for, want %d", n.Queried, blocks)
	}
	if most := replay(t, c); most > 1024 || n.Held() < 4000 {
		t.Errorf("a worker held %d blocks, and all %d at the end; want full caches of 1,024", most, n.Held())
	}
	if n.Removed < 8*4096 {
		t.Errorf("%d blocks removed: want several turnovers", n.Removed)
	}
}

func TestAgentsAreWhatEnginesDo(t *testing.T) {
	c := workload.Agents{Sessions: 100, Turns: 5, Workers: 8}.Corpus()
	replay(t, c)
	longest, single := 0, 0
	for _, op := range c.Ops {
		switch {
		case op.Kind == workload.Query:
			longest = max(longest, int(op.N))
		case op.Kind == workload.Remove:
			t.Fatal("a block is evicted")
		case op.N == 1:
			single++
		}
	}
	if longest != 40+4*20+15 || single < 100*5*5 {
		t.Errorf("the longest prompt has %d blocks, and %d blocks come one by one; want 135 and 2,500", longest, single)
	}
}

// Evicting the oldest blocks of a trace that never asks twice leaves the newest.
func TestReplayEvictsTheLeastRecentlyUsed(t *testing.T) {
	requests := []data.Request{
		{HashIDs: []uint32{0, 1, 2}}, {HashIDs: []uint32{3}}, {HashIDs: []uint32{0, 1}}, {HashIDs: []uint32{4, 5, 6}},
	}
	c, err := workload.Replay{Requests: requests, Factor: 1, Duplication: 1, Workers: 1, Capacity: 5, Keys: workload.SequenceKeys}.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	var removed, stored []kv.EngineHash
	for _, op := range c.Ops {
		if op.Kind == workload.Query {
			continue
		}
		for _, b := range c.Event(op).Blocks {
			if op.Kind == workload.Remove {
				removed = append(removed, b.Engine)
			} else {
				stored = append(stored, b.Engine)
			}
		}
	}
	// Stored in the order 0 1 2 3 4 5 6; 2 is the oldest, then 3.
	if want := []kv.EngineHash{stored[2], stored[3]}; !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
}

func TestKeysOfEnginesAreTheirOwn(t *testing.T) {
	for keys, shared := range map[workload.Keys]bool{workload.OwnKeys: false, workload.SequenceKeys: true} {
		c := workload.Agents{Sessions: 40, Turns: 1, Workers: 2, Keys: keys}.Corpus()
		owners := map[kv.EngineHash]uint32{}
		found := false
		for _, op := range c.Ops {
			if op.Kind == workload.Query {
				continue
			}
			for _, b := range c.Event(op).Blocks {
				worker, ok := owners[b.Engine]
				found = found || ok && worker != op.Worker
				owners[b.Engine] = op.Worker
			}
		}
		if found != shared {
			t.Errorf("keys %v: two workers share a key: %v, want %v", keys, found, shared)
		}
	}
}

func TestTenthsCoverTheHistory(t *testing.T) {
	c, err := workload.Named("B1", true, workload.OwnKeys)
	if err != nil {
		t.Fatal(err)
	}
	all := workload.CountsOf(c.Ops)
	if all != (workload.Counts{Queried: 3339840, Stored: 3266476, Removed: 3004332}) {
		t.Errorf("counts %+v: the history has changed, and older figures are not comparable", all)
	}
	ops := 0
	for i, tenth := range c.Tenths() {
		ops += len(tenth)
		if n := workload.CountsOf(tenth).All(); n < all.All()/10-2000 || n > all.All()/10+2000 {
			t.Errorf("tenth %d has %d of %d block operations", i, n, all.All())
		}
	}
	if ops != len(c.Ops) {
		t.Errorf("the tenths have %d operations, want %d", ops, len(c.Ops))
	}
	if steady := c.Steady(); steady != 2 {
		t.Errorf("caches are full from tenth %d on, want 2", steady)
	}
}

func TestWrongReplaysAreRefused(t *testing.T) {
	requests := []data.Request{{HashIDs: []uint32{0, 1, 2}}}
	for name, r := range map[string]workload.Replay{
		"no requests":       {Factor: 1, Duplication: 1, Workers: 1, Capacity: 9},
		"no workers":        {Requests: requests, Factor: 1, Duplication: 1, Capacity: 9},
		"caches too small":  {Requests: requests, Factor: 2, Duplication: 1, Workers: 1, Capacity: 5},
		"too many contents": {Requests: requests, Factor: 1, Duplication: 2 << 30, Workers: 1, Capacity: 9},
	} {
		if _, err := r.Corpus(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := workload.Named("B9", false, workload.OwnKeys); err == nil {
		t.Error("no error for an unknown name")
	}
}

package enginetest

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// patience is how long events are waited for: some engines tell of them over
// sockets that have to be connected anew.
const patience = 10 * time.Second

// watch reads events from the cursors on until stop is true or it has waited for
// long.
func watch(t *testing.T, e engine.Engine, from []kv.Cursor, see func(kv.Batch) (stop bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for b, err := range e.Events(ctx, from) {
		if err != nil {
			t.Fatalf("events: %v", err)
		}
		if see(b) {
			return
		}
	}
}

// settle waits until all that rank 0 has done so far was told, and returns what is
// known of it then: events of a rank come in order, so that whoever has heard of a
// block that nobody had before has heard of everything.
func (s *Subject) settle(t *testing.T, e engine.Engine) view {
	t.Helper()
	card := ready(t, e).Card
	s.marks++
	r := s.onZero(card, s.request(1<<20+s.marks, int(card.BlockSize)+1, 1))
	generate(t, e, r)
	mark := kv.AppendLocalHashes(nil, r.TokenIDs, int(card.BlockSize), r.KV.Namespace.Seed())[0]
	v := make(view)
	told := false
	watch(t, e, nil, func(b kv.Batch) bool {
		if b.Rank == 0 {
			v.apply(t, b)
			told = b.Snapshot != kv.SnapshotPart && v.has(mark)
		}
		return told
	})
	if !told {
		t.Fatal("the events of a request never came")
	}
	return v
}

// onZero sends a request to rank 0.
func (s *Subject) onZero(card *engine.Card, r *engine.Request) *engine.Request {
	if zero := uint32(0); card.Features.Has(engine.FeatureDPRank) {
		r.DPRank = &zero
	}
	return r
}

// snapshot returns what a fresh reader of a rank is told, and the place that it
// stands for.
func snapshot(t *testing.T, e engine.Engine, rank uint32) (v view, at kv.Cursor) {
	t.Helper()
	v = make(view)
	done := false
	watch(t, e, nil, func(b kv.Batch) bool {
		if b.Rank != rank {
			return false
		}
		v.apply(t, b)
		at = kv.Cursor{Rank: rank, Epoch: b.Epoch, Sequence: b.Last}
		done = b.Snapshot == kv.SnapshotEnd
		if !done && (b.Snapshot != kv.SnapshotPart || b.First != 0 || b.Last != 0) {
			t.Fatalf("a fresh reader got %+v before the end of the snapshot", b)
		}
		return done
	})
	if !done {
		t.Fatal("a fresh reader got no snapshot")
	}
	return v, at
}

// still returns what a fresh reader of rank 0 is told when nothing moves any more:
// where there are lower tiers, blocks are on their way to them for a while.
func (s *Subject) still(t *testing.T, e engine.Engine) (v view, at kv.Cursor) {
	t.Helper()
	s.settle(t, e)
	const quiet = 100 * time.Millisecond
	for deadline := time.Now().Add(patience); ; {
		v, at = snapshot(t, e, 0)
		<-time.After(quiet)
		if _, later := snapshot(t, e, 0); later == at {
			return v, at
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cache does not come to rest within %v", patience)
		}
	}
}

// work makes rank 0 store and use blocks.
func (s *Subject) work(t *testing.T, e engine.Engine) {
	t.Helper()
	card := ready(t, e).Card
	for i := range uint64(12) {
		generate(t, e, s.onZero(card, s.request(i%5, 40+10*int(i%7), 20)))
	}
}

func eventsFold(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	got, from := snapshot(t, e, 0)
	s.work(t, e)
	truth, at := s.still(t, e)
	if len(truth) == 0 || at.Sequence == 0 {
		t.Fatalf("%d blocks at %+v after some work", len(truth), at)
	}
	watch(t, e, []kv.Cursor{from}, func(b kv.Batch) bool {
		if b.Rank == 0 {
			got.apply(t, b)
		}
		return b.Rank == 0 && b.Last >= at.Sequence
	})
	if !reflect.DeepEqual(got, truth) {
		t.Errorf("events fold to %d blocks, the cache holds %d", len(got), len(truth))
	}
}

// namespaces holds an engine to what its keys of blocks allow: those of some follow
// from tokens alone, so that a block that several namespaces have is nobody's. A salt
// changes where a prompt is found, and nothing of what is answered to it.
func namespaces(t *testing.T, s *Subject) {
	e := s.New(t)
	card := ready(t, e).Card
	size := int(card.BlockSize)
	spaces := []kv.Namespace{{}, {Salt: "a"}, {Salt: "b"}}
	if card.Features.Has(engine.FeatureLoRA) {
		spaces = append(spaces, kv.Namespace{LoRA: "a"}, kv.Namespace{Salt: "a", LoRA: "a"})
	}
	legal := map[kv.LocalHash]bool{}
	ask := func(seed uint64, ns kv.Namespace, cached int) ([]kv.LocalHash, answer) {
		zero, most := 0.0, 3
		r := s.onZero(card, s.request(seed, 3*size+1, 1))
		r.Sampling.Temperature = &zero
		if card.Features.Has(engine.FeatureLogprobs) {
			r.Logprobs = &most
		}
		r.KV.Namespace = ns
		a := generate(t, e, r)
		if *a.last.Usage.Cached != cached {
			t.Errorf("%+v found %d tokens, %d were its own", ns, *a.last.Usage.Cached, cached)
		}
		locals := kv.AppendLocalHashes(nil, r.TokenIDs, size, ns.Seed())
		for _, l := range locals {
			legal[l] = true
		}
		return locals, a
	}
	var plain answer
	for i, ns := range spaces {
		mine, _ := ask(100+uint64(i), ns, 0)
		_, a := ask(1, ns, 0)
		if i == 0 {
			plain = a
		}
		if ns.LoRA == "" && (!slices.Equal(a.ids, plain.ids) || !reflect.DeepEqual(likelihoods(a), likelihoods(plain))) {
			t.Errorf("%+v: answered %v, %v; without a salt %v, %v", ns, a.ids, likelihoods(a), plain.ids, likelihoods(plain))
		}
		cache := s.settle(t, e)
		for _, l := range mine {
			if !cache.has(l) {
				t.Errorf("%+v: no block with content %x", ns, l)
			}
		}
		strange := 0
		for _, l := range cache {
			if !legal[l] {
				strange++
			}
		}
		if strange > i+1 { // what settling has left
			t.Errorf("%+v: %d blocks are of no namespace that stored them", ns, strange)
		}
	}
	for i, ns := range spaces {
		ask(100+uint64(i), ns, 3*size)
	}
}

// likelihoods returns those of an answer's tokens, in their order.
func likelihoods(a answer) (all []engine.Logprob) {
	for _, d := range a.deltas {
		all = append(all, d.Logprobs...)
	}
	return all
}

func resume(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	_, begin := snapshot(t, e, 0)
	s.work(t, e)
	truth, newest := s.still(t, e)
	if begin.Epoch != st.Epoch || newest.Epoch != st.Epoch {
		t.Fatalf("events are of the lives %d and %d, the card of %d", begin.Epoch, newest.Epoch, st.Epoch)
	}
	tail := func(from kv.Cursor) (events []kv.Event) {
		next := from.Sequence + 1
		watch(t, e, []kv.Cursor{from}, func(b kv.Batch) bool {
			if b.Rank != 0 {
				return false
			}
			if b.Gap != "" || b.Snapshot != kv.SnapshotNone || b.First != next || b.Last-b.First+1 != uint64(len(b.Events)) {
				t.Errorf("from %+v: batch %d..%d of %d events, gap %q, want one from %d on", from, b.First, b.Last, len(b.Events), b.Gap, next)
				return true
			}
			events = append(events, b.Events...)
			next = b.Last + 1
			return b.Last >= newest.Sequence
		})
		return events
	}
	all := tail(begin)
	for from := begin; from.Sequence+1 < newest.Sequence; {
		from.Sequence++
		if got := tail(from); !reflect.DeepEqual(got, all[from.Sequence-begin.Sequence:]) {
			t.Fatalf("from %d on: %d events, want %d", from.Sequence, len(got), len(all)-int(from.Sequence-begin.Sequence))
		}
	}
	for reason, from := range map[kv.GapReason]kv.Cursor{
		kv.GapFuture:  {Epoch: st.Epoch, Sequence: newest.Sequence + 1},
		kv.GapRestart: {Epoch: st.Epoch + 1, Sequence: 1},
	} {
		v := view{1: 1}
		first := true
		watch(t, e, []kv.Cursor{from}, func(b kv.Batch) bool {
			if b.Rank != 0 {
				return false
			}
			if first && b.Gap != reason {
				t.Errorf("from %+v: gap %q, want %q", from, b.Gap, reason)
			}
			first = false
			v.apply(t, b)
			return b.Snapshot == kv.SnapshotEnd
		})
		if !reflect.DeepEqual(v, truth) {
			t.Errorf("after gap %q: %d blocks, want %d", reason, len(v), len(truth))
		}
	}
}

// loss lets events be lost on the way, and asks for what is believed to be cached
// then.
func loss(t *testing.T, s *Subject) {
	e := s.New(t)
	card := ready(t, e).Card
	size := int(card.BlockSize)
	snapshot(t, e, 0)
	s.work(t, e)
	s.Lose(e, true)
	for seed := range uint64(8) {
		generate(t, e, s.onZero(card, s.request(50+seed, 8*size+1, 1)))
	}
	s.Lose(e, false)
	known := s.settle(t, e)
	if len(known) == 0 {
		t.Error("nothing is known of what was told afterwards")
	}
	for _, seed := range []uint64{0, 1, 2, 3, 4, 50, 53, 57} {
		r := s.onZero(card, s.request(seed, 8*size+1, 1))
		predicted := 0
		for _, l := range kv.AppendLocalHashes(nil, r.TokenIDs, size, r.KV.Namespace.Seed()) {
			if !known.has(l) {
				break
			}
			predicted += size
		}
		if got := *generate(t, e, r).last.Usage.Cached; got < predicted {
			t.Errorf("prompt %d: %d tokens are believed to be cached, %d were", seed, predicted, got)
		}
	}
}

func restart(t *testing.T, s *Subject) {
	e := s.New(t)
	old := ready(t, e)
	snapshot(t, e, 0)
	s.work(t, e)
	s.settle(t, e)
	_, at := snapshot(t, e, 0)
	// Some engines are asked whether they live, and only while somebody wants to know.
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		for range e.Card(ctx) {
		}
	})
	defer asking.Wait()
	defer cancel()
	gap, end := false, false
	s.Restart(e)
	watch(t, e, []kv.Cursor{at}, func(b kv.Batch) bool {
		if b.Rank != 0 {
			return false
		}
		switch {
		case b.Gap == kv.GapRestart && b.Epoch != old.Epoch:
			gap = true
		case !gap && b.Epoch != old.Epoch:
			t.Errorf("%+v before a gap", b)
		case gap && b.Snapshot == kv.SnapshotEnd:
			end = true
		}
		return end
	})
	if !gap || !end {
		t.Errorf("after a restart: gap seen %v, snapshot %v", gap, end)
	}
	if v, _ := snapshot(t, e, 0); len(v) != 0 {
		t.Errorf("%d blocks survived the restart", len(v))
	}
	r := s.request(1, 20, 5)
	r.Epoch = old.Epoch
	if a := collect(context.Background(), t, e, r); engine.KindOf(a.err) != engine.Stale || len(a.deltas) > 0 {
		t.Errorf("a request of the old epoch: %d deltas, %v, want stale", len(a.deltas), a.err)
	}
	awaitLoad(t, e, time.Second, "nothing was begun", idle)
	r.Epoch = ready(t, e).Epoch
	generate(t, e, r)
}

func load(t *testing.T, s *Subject) {
	e := s.Slow(t)
	card := ready(t, e).Card
	known := func(n int64) bool { return n == engine.Unknown || n >= 0 }
	l := loadNow(t, e)
	if len(l.Ranks) != int(card.Ranks()) {
		t.Errorf("%d ranks, the card says %d", len(l.Ranks), card.Ranks())
	}
	for i, r := range l.Ranks {
		if r.Rank != card.DPStart+uint32(i) || !known(r.Running) || !known(r.Waiting) || !known(r.UsedBlocks) || !known(r.TotalBlocks) {
			t.Errorf("rank %d: %+v", i, r)
		}
		if card.TotalBlocks > 0 && r.TotalBlocks != engine.Unknown && r.TotalBlocks != int64(card.TotalBlocks) {
			t.Errorf("rank %d has %d blocks, the card says %d", i, r.TotalBlocks, card.TotalBlocks)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		collect(ctx, t, e, s.request(1, 50, 400))
	}()
	awaitLoad(t, e, time.Second, "one runs", func(running, _ int64) bool { return running == 1 })
	cancel()
	<-done
	awaitLoad(t, e, time.Second, "none runs", idle)
}

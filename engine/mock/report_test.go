package mock_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// Reports are the engine's events, and each store in them has the tokens that its
// blocks are named after.
func TestReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := mock.DefaultArgs()
		a.NumGPUBlocks, a.BlockSize, a.SpeedupRatio = 24, 4, 0
		a.MaxNumSeqs = rapid.IntRange(1, 4).Draw(t, "max_num_seqs")
		e, err := mock.New(mock.Config{Model: "m", Args: a, Source: mock.SourceRandom})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var told []kv.Event
		fresh := 0
		e.Hear(func(r mock.Report) {
			if r.Fresh {
				fresh, told = fresh+1, nil
			}
			if len(r.Stores) != len(r.Events) || r.Rank != 0 || r.Epoch == 0 {
				t.Errorf("%d stores for %d events, rank %d, epoch %d", len(r.Stores), len(r.Events), r.Rank, r.Epoch)
			}
			for i, ev := range r.Events {
				told = append(told, ev)
				if ev.Kind != kv.Stored {
					continue
				}
				var want []kv.LocalHash
				for _, b := range ev.Blocks {
					want = append(want, b.Local)
				}
				s := r.Stores[i]
				if got := kv.AppendLocalHashes(nil, s.Tokens, a.BlockSize, s.Namespace.Seed()); !slices.Equal(got, want) || len(s.Tokens) != a.BlockSize*len(want) {
					t.Errorf("%d tokens of %+v, which make blocks %x: want %x", len(s.Tokens), s.Namespace, got, want)
				}
			}
		})
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			r := &engine.Request{
				TokenIDs: ids(uint32(rapid.IntRange(100, 103).Draw(t, "from")), rapid.IntRange(1, 40).Draw(t, "prompt")),
				Stop:     engine.Stop{MaxTokens: rapid.IntRange(1, 30).Draw(t, "output")},
			}
			r.KV.Namespace.Salt = rapid.SampledFrom([]string{"", "a"}).Draw(t, "salt")
			for _, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
			}
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0:
				e.Restart()
			case 1:
				if !e.Forget() {
					t.Error("an idle engine keeps its cache")
				}
			}
		}
		view := cacheView{}
		if err := view.apply(told); err != nil {
			t.Fatal(err)
		}
		now := cacheView{}
		stored, _ := e.Cache(0)
		if err := now.apply(stored); err != nil {
			t.Fatal(err)
		}
		if len(view) != len(now) {
			t.Errorf("reports fold to %d blocks, the cache holds %d", len(view), len(now))
		}
		if fresh == 0 {
			t.Error("the first life was not told of")
		}
	})
}

// An engine that computes something keeps what it has cached.
func TestForgetWhileBusy(t *testing.T) {
	a := mock.DefaultArgs()
	a.TimingModel, a.DecodeMS = "constant", 1
	e, err := mock.New(mock.Config{Model: "m", Args: a})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, err := range e.Generate(t.Context(), &engine.Request{TokenIDs: ids(1, 200), Stop: engine.Stop{MaxTokens: 1000}}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Forget() {
			t.Error("a busy engine forgot")
		}
		break
	}
	stored, last := e.Cache(0)
	if len(stored) == 0 || last == 0 {
		t.Error("nothing is cached")
	}
}

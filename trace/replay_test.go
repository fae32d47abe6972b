package trace_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/trace"
)

// The hashes of prompts are facts of the format, computed with another XXH3.
func TestReplayVectors(t *testing.T) {
	for _, tc := range []struct {
		tokens []uint32
		want   []uint64
	}{
		{nil, nil},
		{[]uint32{1}, nil},
		{[]uint32{1, 2}, []uint64{10773075109927122010}},
		{[]uint32{3, 4}, []uint64{2662118915037317746}},
		{[]uint32{5}, []uint64{17311669453583354541}},
		{[]uint32{1, 2, 3, 4}, []uint64{10773075109927122010, 5890102321129957602}},
		{[]uint32{1, 2, 3, 4, 5}, []uint64{10773075109927122010, 5890102321129957602, 2656991839890933969}},
		{[]uint32{1, 2, 1, 2}, []uint64{10773075109927122010, 8239003849983528482}},
	} {
		got := trace.NewReplay(tc.tokens, 2)
		if got.BlockSize != 2 || got.InputLength != len(tc.tokens) {
			t.Errorf("%v: %+v", tc.tokens, got)
		}
		if tc.want != nil && !slices.Equal(got.Hashes, tc.want) {
			t.Errorf("%v: got %v, want %v", tc.tokens, got.Hashes, tc.want)
		}
		if len(tc.tokens) == 0 && (got.Hashes == nil || len(got.Hashes) != 0) {
			t.Errorf("no tokens: got %v, want an empty list", got.Hashes)
		}
	}
	if got := trace.NewReplay([]uint32{1}, 0); got != nil {
		t.Errorf("unknown block size: got %+v", got)
	}
	if got := trace.NewReplay(make([]uint32, 131072), 64); len(got.Hashes) != 2048 {
		t.Errorf("131072 tokens: got %d hashes", len(got.Hashes))
	}
}

// Hashes that the router has made of the first blocks are the ones that are made here.
func TestReplayOfKnownBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 60).Draw(t, "tokens")
		more := rapid.SliceOfN(rapid.Uint32(), 0, 20).Draw(t, "more") // generated before a worker was lost
		public := kv.PublicScheme(size, kv.Namespace{})
		known := public.AppendSeq(nil, public.AppendLocal(nil, append(slices.Clone(tokens), more...)))
		got, want := trace.NewReplay(tokens, size, known...), trace.NewReplay(tokens, size)
		if !slices.Equal(got.Hashes, want.Hashes) || got.InputLength != len(tokens) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
	// They are believed, not made again.
	if got := trace.NewReplay([]uint32{1, 2, 3, 4}, 2, 7).Hashes; got[0] != 7 {
		t.Errorf("%v", got)
	}
}

// Prompts have as many leading hashes in common as they have blocks.
func TestReplayShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		tokens := rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 60)
		a, b := tokens.Draw(t, "a"), tokens.Draw(t, "b")
		x, y := trace.NewReplay(a, size), trace.NewReplay(b, size)
		if want := (len(a) + size - 1) / size; len(x.Hashes) != want {
			t.Fatalf("%d hashes, want %d", len(x.Hashes), want)
		}
		for i := range min(len(x.Hashes), len(y.Hashes)) {
			end := (i + 1) * size
			same := slices.Equal(a[:min(end, len(a))], b[:min(end, len(b))])
			if (x.Hashes[i] == y.Hashes[i]) != same {
				t.Fatalf("block %d: hashes are the same: %v, tokens: %v", i, x.Hashes[i] == y.Hashes[i], same)
			}
		}
	})
}

func BenchmarkReplay(b *testing.B) {
	tokens := make([]uint32, 131072)
	b.SetBytes(int64(4 * len(tokens)))
	for b.Loop() {
		trace.NewReplay(tokens, 64)
	}
}

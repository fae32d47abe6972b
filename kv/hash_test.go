package kv_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/zeebo/xxh3"
)

func seqOf(from, to uint32) []uint32 {
	var s []uint32
	for t := from; t <= to; t++ {
		s = append(s, t)
	}
	return s
}

// The vectors are those of the reference implementation.
func TestHashVectors(t *testing.T) {
	if got := xxh3.HashStringSeed("test data", kv.HashSeed); got != 13226331709069118873 {
		t.Fatalf("xxh3 of test data = %d", got)
	}
	for _, tc := range []struct {
		name      string
		tokens    []uint32
		blockSize int
		ns        kv.Namespace
		local     []kv.LocalHash
		seq       []kv.SeqHash // trailing ones; nil = not given
	}{
		{"V1", seqOf(1, 12), 4, kv.Namespace{}, []kv.LocalHash{14643705804678351452, 16777012769546811212, 483935686894639516}, []kv.SeqHash{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{"V2", seqOf(1, 40), 16, kv.Namespace{}, []kv.LocalHash{16863443419780771464, 2287610619914608821}, []kv.SeqHash{16863443419780771464, 12466389667045779788}},
		{"V2b", seqOf(1000, 1127), 64, kv.Namespace{}, []kv.LocalHash{7337154364384838499, 8394412188204864904}, []kv.SeqHash{7337154364384838499, 11788397496893737194}},
		{"V3a", seqOf(1, 8), 4, kv.Namespace{LoRA: "my-lora"}, []kv.LocalHash{15671544057904749233, 7919241211032067838}, []kv.SeqHash{15671544057904749233, 15486599009994050725}},
		{"V3b", seqOf(1, 8), 4, kv.Namespace{Salt: "tenant-a"}, []kv.LocalHash{5738685477468498325, 11202231085456067787}, []kv.SeqHash{5738685477468498325, 1076233986426276607}},
		{"V3c", seqOf(1, 8), 4, kv.Namespace{LoRA: "my-lora", Salt: "tenant-a"}, []kv.LocalHash{6157910915076630503, 3256431856703716508}, []kv.SeqHash{6157910915076630503, 9770935122131878621}},
		{"short", seqOf(1, 3), 4, kv.Namespace{}, nil, nil},
		{"no block size", seqOf(1, 3), 0, kv.Namespace{}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			local := kv.AppendLocalHashes(nil, tc.tokens, tc.blockSize, tc.ns.Seed())
			if !slices.Equal(local, tc.local) {
				t.Errorf("local = %v, want %v", local, tc.local)
			}
			if seq := kv.AppendSeqHashes(nil, local); !slices.Equal(seq, tc.seq) {
				t.Errorf("seq = %v, want %v", seq, tc.seq)
			}
		})
	}
}

func TestNamespaceSeeds(t *testing.T) {
	for ns, want := range map[kv.Namespace]uint64{
		{}:                                  1337,
		{LoRA: "my-lora"}:                   12827409268353072861,
		{Salt: "tenant-a"}:                  1948188790972764086,
		{LoRA: "my-lora", Salt: "tenant-a"}: 14775598059325835610,
	} {
		if got := ns.Seed(); got != want {
			t.Errorf("%+v: seed %d, want %d", ns, got, want)
		}
	}
}

// The names of the tiers and of the kinds of events are on the wire.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		kv.TierDevice.String(): "device", kv.TierHost.String(): "host_pinned", kv.TierDisk.String(): "disk", kv.TierShared.String(): "external",
		kv.Stored.String(): "stored", kv.Removed.String(): "removed", kv.Cleared.String(): "cleared",
		kv.Tier(9).String(): "tier(9)", kv.EventKind(9).String(): "event(9)",
		kv.Target{Worker: 9007199254740991, Rank: 2}.String(): "9007199254740991/2",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Two turns of a conversation share the hashes of what they share.
func ExampleAppendSeqHashes() {
	const blockSize = 4
	seed := kv.Namespace{}.Seed()
	turn1 := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	turn2 := append(slices.Clone(turn1), 9, 10, 11, 12)
	a := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, turn1, blockSize, seed))
	b := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, turn2, blockSize, seed))
	fmt.Println(len(a), len(b), a[1] == b[1])
	// Output: 2 3 true
}

func BenchmarkHash200k(b *testing.B) {
	tokens := seqOf(1, 200_000)
	var local []kv.LocalHash
	var seq []kv.SeqHash
	b.ReportAllocs()
	for b.Loop() {
		local = kv.AppendLocalHashes(local[:0], tokens, 16, kv.HashSeed)
		seq = kv.AppendSeqHashes(seq[:0], local)
	}
}

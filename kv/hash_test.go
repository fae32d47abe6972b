package kv_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

func seqBytes(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

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

func TestMediaVectors(t *testing.T) {
	if got := kv.HashMediaBlock(seqOf(1, 4), []uint64{7, 5}, kv.HashSeed); got != 6213349302030360111 {
		t.Errorf("V4a: %d", got)
	}
	const image = 9533257059414191570
	if got := kv.MediaToken(image); got != 49115154 {
		t.Errorf("V4b: token %d", got)
	}
	block := []uint32{10, 20, 3, 3}
	kv.ReplaceMedia(block, 3, []uint64{image})
	if got := kv.HashBlock(block, kv.HashSeed); got != 71881790567603244 {
		t.Errorf("V4b: %v has hash %d", block, got)
	}
	run := kv.MediaRun{At: 1, Length: 2, Media: 0xAB}
	if got := kv.HashFramedBlock(seqOf(1, 4), []kv.MediaRun{run}, kv.HashSeed); got != 1241601642242304570 {
		t.Errorf("V9: %d", got)
	}
	if kv.HashFramedBlock(seqOf(1, 4), nil, 1) != kv.HashBlock(seqOf(1, 4), 1) || kv.HashMediaBlock(seqOf(1, 4), nil, 1) != kv.HashBlock(seqOf(1, 4), 1) {
		t.Error("a block without media has a hash of its own")
	}
}

func TestReplaceMedia(t *testing.T) {
	a, b := kv.MediaToken(1), kv.MediaToken(2)
	for _, tc := range []struct {
		media []uint64
		want  []uint32
	}{
		{nil, []uint32{9, 9, 1, 9, 2, 9}},
		{[]uint64{1}, []uint32{a, a, 1, a, 2, a}},
		{[]uint64{1, 2}, []uint32{a, a, 1, b, 2, b}},
		{[]uint64{1, 1, 2}, []uint32{a, a, 1, a, 2, b}},
	} {
		got := []uint32{9, 9, 1, 9, 2, 9}
		if kv.ReplaceMedia(got, 9, tc.media); !slices.Equal(got, tc.want) {
			t.Errorf("media %v: %v, want %v", tc.media, got, tc.want)
		}
	}
}

// A block's hash covers each of the media once that has a token in it.
func TestMediaInBlocks(t *testing.T) {
	tokens, s := seqOf(1, 17), kv.PublicScheme(4, kv.Namespace{Salt: "t"})
	for _, eagle := range []bool{false, true} {
		s.Eagle = eagle
		media := []kv.Media{
			{Hash: 7, Spans: []kv.Span{{Start: 3, End: 5}, {Start: 6, End: 6}, {Start: 12, End: 99}, {Start: 0, End: 1}}},
			{Hash: 5, Spans: []kv.Span{{Start: 4, End: 8}}},
			{Hash: 5, Spans: []kv.Span{{Start: 4, End: 5}}},
		}
		var want []kv.LocalHash
		for i, in := range [][]uint64{{7}, {7, 5, 5}, nil, {7}} {
			block := tokens[4*i:][:4]
			if eagle {
				block = tokens[4*i:][:5]
			}
			want = append(want, kv.HashMediaBlock(block, in, s.Seed))
		}
		if got := s.AppendLocalMedia(nil, tokens, media); !slices.Equal(got, want) {
			t.Errorf("eagle %v: %v, want %v", eagle, got, want)
		}
		if !slices.Equal(s.AppendLocalMedia(nil, tokens, nil), s.AppendLocal(nil, tokens)) {
			t.Errorf("eagle %v: without media other hashes", eagle)
		}
		if got := (kv.Scheme{Eagle: eagle}).AppendLocalMedia(nil, tokens, media); got != nil {
			t.Errorf("eagle %v: hashes of blocks without a size: %v", eagle, got)
		}
	}
}

func TestEagleVectors(t *testing.T) {
	s := kv.Scheme{BlockSize: 4, Eagle: true, Seed: kv.HashSeed, Chain: kv.HashSeed}
	local := s.AppendLocal(nil, seqOf(1, 9))
	if want := []kv.LocalHash{1914873892905420881, 1929047464662796003}; !slices.Equal(local, want) {
		t.Errorf("V5: local %v, want %v", local, want)
	}
	if seq := s.AppendSeq(nil, local); seq[1] != 13136491855314414045 {
		t.Errorf("V5: seq %v", seq)
	}
	for tokens, want := range map[int]int{0: 0, 4: 0, 5: 1, 8: 1, 9: 2} {
		if got := s.Blocks(tokens); got != want {
			t.Errorf("%d tokens: %d blocks, want %d", tokens, got, want)
		}
	}
}

func TestTrackingVectors(t *testing.T) {
	for _, tc := range []struct {
		name, id, model string
		key             []byte
		ns              kv.Namespace
		eagle           bool
		tokens          []uint32
		seed, chain     uint64
		local           []kv.LocalHash
		seq             []kv.SeqHash
	}{
		{
			"V6", "2026-01", "model", bytes.Repeat([]byte{0x41}, 32),
			kv.Namespace{},
			false, seqOf(0, 9),
			14419087375307358279, 13433768244064503578, nil,
			[]kv.SeqHash{3060348565256297392, 14943742400515528531},
		},
		{
			"V6 Eagle", "2026-01", "model", bytes.Repeat([]byte{0x41}, 32),
			kv.Namespace{},
			true, seqOf(0, 9),
			15228239464095190315, 6412896429580054861, nil,
			[]kv.SeqHash{18351479723295049348, 8577555336206814019},
		},
		{
			"V7", "k1", "m", seqBytes(32),
			kv.Namespace{LoRA: "my-lora", Salt: "tenant-a"},
			false, seqOf(1, 8),
			13688508590498064373, 5049069766624873297,
			[]kv.LocalHash{4720103353009560840, 20916667940216493},
			[]kv.SeqHash{4720103353009560840, 3491141834806853388},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, err := kv.NewTrackingKey(tc.key, tc.id)
			if err != nil {
				t.Fatal(err)
			}
			s := key.Scheme(tc.model, "default", 4, tc.ns, tc.eagle)
			if s.Seed != tc.seed || s.Chain != tc.chain {
				t.Errorf("seeds %d, %d, want %d, %d", s.Seed, s.Chain, tc.seed, tc.chain)
			}
			local := s.AppendLocal(nil, tc.tokens)
			if tc.local != nil && !slices.Equal(local, tc.local) {
				t.Errorf("local %v, want %v", local, tc.local)
			}
			if seq := s.AppendSeq(nil, local); !slices.Equal(seq, tc.seq) {
				t.Errorf("seq %v, want %v", seq, tc.seq)
			}
		})
	}
	key, _ := kv.NewTrackingKey(bytes.Repeat([]byte{0x41}, 32), "2026-01")
	s := key.Scheme("model", "default", 4, kv.Namespace{}, false)
	local := s.AppendLocalMedia(nil, seqOf(0, 9), []kv.Media{{Hash: 42, Spans: []kv.Span{{Start: 1, End: 2}}}})
	if seq := s.AppendSeq(nil, local); !slices.Equal(seq, []kv.SeqHash{13077030603177067515, 12131634976806651614}) {
		t.Errorf("V6 with media: %v", seq)
	}
}

func TestBadTrackingKeys(t *testing.T) {
	for _, tc := range []struct {
		key  []byte
		id   string
		want string
	}{
		{seqBytes(31), "a", "tracking key: 31 bytes, want exactly 32"},
		{seqBytes(33), "a", "tracking key: 33 bytes, want exactly 32"},
		{seqBytes(32), "", `tracking key: id "" must not be empty, nor have blanks around it`},
		{seqBytes(32), " a", `tracking key: id " a" must not be empty, nor have blanks around it`},
	} {
		if _, err := kv.NewTrackingKey(tc.key, tc.id); err == nil || err.Error() != tc.want {
			t.Errorf("%d bytes, id %q: %v, want %s", len(tc.key), tc.id, err, tc.want)
		}
	}
}

func TestLineageVectors(t *testing.T) {
	seq := []kv.SeqHash{14643705804678351452, 4945711292740353085}
	for i, want := range []string{"0032ce3935fecb729700000000000000", "005128ac8de75b4f0f78e4d7fb2dca5c"} {
		var parent kv.SeqHash
		if i > 0 {
			parent = seq[i-1]
		}
		h, ok := kv.LineageHash(uint32(i), seq[i], parent)
		if got := h.Bytes(); !ok || hex.EncodeToString(got[:]) != want {
			t.Errorf("V8 at %d: %x, want %s", i, got, want)
		}
	}
	for _, tc := range []struct {
		position uint32
		mode     uint64
		bits     int
	}{{255, 0, 8}, {256, 1, 16}, {65535, 1, 16}, {65536, 2, 24}, {1<<24 - 1, 2, 24}} {
		h, ok := kv.LineageHash(tc.position, ^kv.SeqHash(0), ^kv.SeqHash(0))
		want := tc.mode<<62 | uint64(tc.position)<<(62-tc.bits) | (1<<(62-tc.bits) - 1)
		if !ok || h.High != want || h.Low != ^uint64(0) {
			t.Errorf("position %d: %x, want %x", tc.position, h.High, want)
		}
		p, ok := kv.PositionalHash(tc.position, 5, ^kv.LocalHash(0))
		if !ok || p.High != want || p.Low != 5 {
			t.Errorf("position %d: %x, want %x", tc.position, p.High, want)
		}
	}
	if _, ok := kv.LineageHash(1<<24, 1, 1); ok {
		t.Error("a position of 25 bits has a lineage hash")
	}
	if p, ok := kv.PositionalHash(1<<31-1, 5, ^kv.LocalHash(0)); !ok || p.High != 3<<62|(1<<31-1)<<31|(1<<31-1) {
		t.Errorf("position of 31 bits: %x", p.High)
	}
	if _, ok := kv.PositionalHash(1<<31, 5, 1); ok {
		t.Error("a position of 32 bits has a positional hash")
	}
}

func TestPageVectors(t *testing.T) {
	pages := kv.AppendPageHashes(nil, seqOf(1, 8), 4, false)
	want := []string{"cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72", "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"}
	if len(pages) != 2 || pages[0].String() != want[0] || pages[1].String() != want[1] {
		t.Errorf("pages %v, want %v", pages, want)
	}
	// A page of pairs is a page of the tokens that the pairs are made of.
	pairs := kv.AppendPageHashes(nil, seqOf(1, 6), 2, true)
	flat := kv.AppendPageHashes(nil, []uint32{1, 2, 2, 3, 3, 4, 4, 5}, 4, false)
	if !slices.Equal(pairs, flat) {
		t.Errorf("pages of pairs %v, want %v", pairs, flat)
	}
	if got := kv.AppendPageHashes(nil, seqOf(1, 6), 0, false); got != nil {
		t.Errorf("pages of no size: %v", got)
	}
}

// A prefix's hashes are a prefix of the hashes, in any scheme, and no tenant's,
// adapter's or scheme's blocks are another's.
func TestHashProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 300).Draw(t, "tokens")
		s := kv.Scheme{
			BlockSize: rapid.IntRange(1, 70).Draw(t, "block size"),
			Eagle:     rapid.Bool().Draw(t, "eagle"),
			Seed:      rapid.Uint64().Draw(t, "seed"), Chain: rapid.Uint64().Draw(t, "chain"),
		}
		local := s.AppendLocal(nil, tokens)
		seq := s.AppendSeq(nil, local)
		if len(local) != s.Blocks(len(tokens)) || len(seq) != len(local) {
			t.Fatalf("%d local and %d sequence hashes of %d blocks", len(local), len(seq), s.Blocks(len(tokens)))
		}
		part := tokens[:rapid.IntRange(0, len(tokens)).Draw(t, "part")]
		short := s.AppendLocal(nil, part)
		if !slices.Equal(short, local[:len(short)]) || !slices.Equal(s.AppendSeq(nil, short), seq[:len(short)]) {
			t.Fatalf("the first %d tokens have other hashes", len(part))
		}
		at := rapid.IntRange(0, len(local)).Draw(t, "at")
		if at > 0 && !slices.Equal(s.AppendSeqAfter(nil, seq[at-1], local[at:]), seq[at:]) {
			t.Fatalf("sequence hashes behind block %d differ", at)
		}
		if len(local) > 0 {
			other := s
			other.Seed++
			if other.AppendLocal(nil, tokens)[0] == local[0] {
				t.Fatal("two namespaces share a block")
			}
		}
	})
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

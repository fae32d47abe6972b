package kv_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// plain hashes a prompt without remembering anything.
func plain(tokens []uint32, s kv.Scheme) ([]kv.LocalHash, []kv.SeqHash) {
	local := s.AppendLocal(nil, tokens)
	return local, s.AppendSeq(nil, local)
}

// Prompts that go on from each other, part, are cut and come again have the
// hashes that they have without a memo, however small that is.
func TestMemoChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := kv.NewMemo(rapid.SampledFrom([]int{0, 30_000, 1 << 20}).Draw(t, "bytes"))
		schemes := []kv.Scheme{
			kv.PublicScheme(16, kv.Namespace{}),
			kv.PublicScheme(16, kv.Namespace{Salt: "tenant"}),
			kv.PublicScheme(100, kv.Namespace{}),
			kv.PublicScheme(5000, kv.Namespace{}),
			{BlockSize: 16, Eagle: true, Seed: kv.HashSeed, Chain: kv.HashSeed},
			{BlockSize: 16, Seed: 1, Chain: 2},
		}
		prompts := [][]uint32{nil}
		for range rapid.IntRange(1, 12).Draw(t, "prompts") {
			from := rapid.SampledFrom(prompts).Draw(t, "from")
			kept := rapid.IntRange(0, len(from)).Draw(t, "kept")
			if rapid.Bool().Draw(t, "all") {
				kept = len(from)
			}
			next := slices.Clone(from[:kept])
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			for range rapid.IntRange(0, 9000).Draw(t, "new") {
				next = append(next, random.Uint32N(4))
			}
			prompts = append(prompts, next)
			s := rapid.SampledFrom(schemes).Draw(t, "scheme")
			local, seq := m.Hashes(next, s)
			wantLocal, wantSeq := plain(next, s)
			if !slices.Equal(local, wantLocal) || !slices.Equal(seq, wantSeq) {
				t.Fatalf("%d tokens, of which %d were there: other hashes", len(next), kept)
			}
		}
	})
}

// Hashes that were made once are not made again: a memo whose memory was changed
// behind its back tells so, and only where the prompt is the same.
func TestMemoHashesOnlyWhatIsNew(t *testing.T) {
	tokens := make([]uint32, 40_000)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	s := kv.PublicScheme(16, kv.Namespace{})
	edited := slices.Clone(tokens)
	edited[9000] = 1
	for _, tc := range []struct {
		name   string
		prompt []uint32
		scheme kv.Scheme
		shared int // tokens whose hashes come from before
	}{
		{"the same prompt", tokens[:30_000], s, 29 * 1024},
		{"the next turn", tokens, s, 29 * 1024},
		{"parted in the middle", edited, s, 8 * 1024},
		{"a shorter prompt", tokens[:20_000], s, 16 * 1024},
		{"another tenant", tokens, kv.PublicScheme(16, kv.Namespace{Salt: "t"}), 0},
		{"another block size", tokens, kv.PublicScheme(32, kv.Namespace{}), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := kv.NewMemo(1 << 20)
			before, _ := m.Hashes(tokens[:30_000], s)
			for i := range before {
				before[i] = 1
			}
			after, _ := m.Hashes(tc.prompt, tc.scheme)
			want, _ := plain(tc.prompt, tc.scheme)
			for i := range tc.shared / 16 {
				want[i] = 1
			}
			if !slices.Equal(after, want) {
				t.Errorf("the first %d tokens are not what was remembered, or more is", tc.shared)
			}
		})
	}
}

// What has room is remembered: the prompts that were of use lately, and the places
// where others may part from them.
func TestMemoForgetsWhatIsOfNoUse(t *testing.T) {
	const stride = 1024 // tokens between two places where prompts may part
	s := kv.PublicScheme(16, kv.Namespace{})
	prompt := func(name uint32, strides int) []uint32 {
		return slices.Repeat([]uint32{name}, strides*stride)
	}
	after := func(first []uint32, strides int, name uint32, more int) []uint32 {
		return slices.Concat(first[:strides*stride], prompt(name, more))
	}
	// shared returns how many strides of a prompt were remembered, which is from
	// now on.
	shared := func(m *kv.Memo, tokens []uint32) int {
		local, _ := m.Hashes(tokens, s)
		n := 0
		for n < len(local) && local[n] == 1 {
			n++
		}
		for i := range local {
			local[i] = 1
		}
		return n * 16 / stride
	}
	a, b := prompt(1, 30), prompt(2, 30)
	branch := after(a, 8, 3, 4)
	const room = 100_000 // bytes: three prompts of 30 strides
	for _, tc := range []struct {
		name    string
		prompts [][]uint32
		want    []int
	}{
		{"the one not used goes first", [][]uint32{a, b, branch, prompt(4, 30), a, b}, []int{0, 0, 8, 0, 30, 0}},
		{"a branch keeps what it shared", [][]uint32{a, branch, b, prompt(4, 30), after(a, 8, 6, 3), a}, []int{0, 8, 0, 0, 8, 8}},
		{"where the first turn ended", [][]uint32{a[:13*stride], a, after(a, 13, 7, 3)}, []int{0, 13, 13}},
		{"what has no room takes none away", [][]uint32{a, prompt(8, 120), prompt(8, 120), a}, []int{0, 0, 0, 30}},
	} {
		m := kv.NewMemo(room)
		for i, p := range tc.prompts {
			if got := shared(m, p); got != tc.want[i] {
				t.Errorf("%s: of prompt %d, %d strides were remembered, want %d", tc.name, i, got, tc.want[i])
			}
		}
	}
}

func TestMemoTogether(t *testing.T) {
	m := kv.NewMemo(200_000)
	s := kv.PublicScheme(16, kv.Namespace{})
	tokens := make([]uint32, 30_000)
	_, want := plain(tokens, s)
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for n := 2000 + 100*i; n < len(tokens); n += 1000 {
				if _, seq := m.Hashes(tokens[:n], s); !slices.Equal(seq, want[:n/16]) {
					t.Errorf("%d tokens: other hashes", n)
				}
			}
		})
	}
	g.Wait()
}

// A turn of 60,000 tokens, 48,000 of which were there before.
func BenchmarkMemo(b *testing.B) {
	tokens := make([]uint32, 60_000)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	s := kv.PublicScheme(16, kv.Namespace{})
	b.Run("turn", func(b *testing.B) {
		m := kv.NewMemo(16 << 20)
		m.Hashes(tokens[:48_000], s)
		b.ReportAllocs()
		for i := uint32(0); b.Loop(); i++ {
			for at := 48_000; at < len(tokens); at += 256 {
				tokens[at] = i
			}
			m.Hashes(tokens, s)
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			plain(tokens, s)
		}
	})
}

// The second turn is hashed from where the first one ended.
func ExampleMemo() {
	m := kv.NewMemo(1 << 20)
	s := kv.PublicScheme(16, kv.Namespace{})
	turn := make([]uint32, 8000)
	_, first := m.Hashes(turn[:6000], s)
	_, second := m.Hashes(turn, s)
	fmt.Println(len(first), len(second), first[374] == second[374])
	// Output: 375 500 true
}

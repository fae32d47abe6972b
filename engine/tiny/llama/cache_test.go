package llama_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// TestMove computes a prompt in one cache, copies its blocks to others of another,
// and wants the bits of the rest of the prompt to be those of a cold run.
func TestMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		m, err := llama.New(cfg, tensors(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		all := tokens(t, cfg, 70)
		size := rapid.IntRange(1, 20).Draw(t, "block size")
		need := (len(all) + size - 1) / size
		cut := rapid.IntRange(0, len(all)-1).Draw(t, "cut")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "chance"), 0))

		from, to := m.NewCache(need, size), m.NewCache(need+3, size)
		poison(to)
		if from.Layout() != to.Layout() {
			t.Fatalf("layouts %s and %s", from.Layout(), to.Layout())
		}
		source, target := blocks(random, need), blocks(random, need+3)[:need]
		if cut > 0 {
			if err := m.Forward(from, []llama.Span{{Tokens: all[:cut], Blocks: source}}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range (cut + size - 1) / size {
			copy(to.Block(int(target[i])), from.Block(int(source[i])))
		}
		rest := make([]float32, (len(all)-cut)*cfg.Vocab)
		if err := m.Forward(to, []llama.Span{{Tokens: all[cut:], Start: cut, Blocks: target, Logits: rest}}); err != nil {
			t.Fatal(err)
		}
		same(t, "rest of the prompt", rest, alone(t, m, all)[cut*cfg.Vocab:])
	})
}

func TestBlocks(t *testing.T) {
	m := llama.Random(small, 1)
	c := m.NewCache(3, 4)
	if c.Blocks() != 3 || c.BlockSize() != 4 {
		t.Errorf("%d blocks of %d", c.Blocks(), c.BlockSize())
	}
	// Two layers of keys and values of two heads of eight numbers, four positions.
	const bytes = 4 * 2 * 2 * 2 * 8 * 4
	if n := m.BlockBytes(4); n != bytes {
		t.Errorf("a block takes %d bytes instead of %d", n, bytes)
	}
	for i := range 3 {
		b := c.Block(i)
		if len(b) != bytes || cap(b) != bytes && i == 2 {
			t.Errorf("block %d has %d bytes", i, len(b))
		}
		for j := range b {
			b[j] = byte(i)
		}
	}
	for i := range 3 {
		if b := c.Block(i); slices.Max(b) != byte(i) || slices.Min(b) != byte(i) {
			t.Errorf("blocks overlap block %d", i)
		}
	}
	for _, f := range []func(){
		func() { c.Block(3) },
		func() { c.Block(-1) },
		func() { m.NewCache(0, 4) },
		func() { m.NewCache(4, 0) },
	} {
		if !panics(f) {
			t.Error("no panic for a block or a cache that cannot be")
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// TestLayout wants every change that changes what a block holds to show.
func TestLayout(t *testing.T) {
	layout := func(c llama.Config, seed uint64, blockSize int) string {
		return llama.Random(c, seed).NewCache(1, blockSize).Layout()
	}
	seen := map[string]string{layout(small, 1, 16): "the first"}
	if again := layout(small, 1, 16); seen[again] == "" {
		t.Errorf("the same model has layout %s", again)
	} else if !strings.HasPrefix(again, "llama.1/2x2x8/f32") || !strings.Contains(again, "/16/") {
		t.Errorf("layout %s", again)
	}
	check := func(what, layout string) {
		if before := seen[layout]; before != "" {
			t.Errorf("%s has the layout of %s, %s", what, before, layout)
		}
		seen[layout] = what
	}
	check("another seed", layout(small, 2, 16))
	check("another block size", layout(small, 1, 8))
	for what, change := range map[string]func(*llama.Config){
		"epsilon":    func(c *llama.Config) { c.NormEps *= 2 },
		"base":       func(c *llama.Config) { c.RopeBase *= 2 },
		"scaling":    func(c *llama.Config) { c.RopeScaling = llama.RopeScaling{Type: "linear", Factor: 2} },
		"bias":       func(c *llama.Config) { c.QKVBias = true },
		"layers":     func(c *llama.Config) { c.Layers++ },
		"vocabulary": func(c *llama.Config) { c.Vocab++ },
	} {
		c := small
		change(&c)
		check(what, layout(c, 1, 16))
	}
	quantized, err := llama.New(small, llama.Quantized(llama.RandomTensors(small, 1)))
	if err != nil {
		t.Fatal(err)
	}
	check("Q8_0", quantized.NewCache(1, 16).Layout())
	// How far positions reach changes nothing about those that there are.
	c := small
	c.Context *= 2
	if l := layout(c, 1, 16); seen[l] == "" {
		t.Errorf("with a longer context the layout is %s", l)
	}
}

// TestSharing runs one model in many caches at once; the race detector watches.
func TestSharing(t *testing.T) {
	m := llama.Random(small, 1)
	all := prompt(small.Context)
	for i := range all {
		all[i] %= uint32(small.Vocab)
	}
	want := alone(t, m, all)
	m = llama.Random(small, 1) // no position has been seen yet
	var group sync.WaitGroup
	results := make([][]float32, 8)
	for i := range results {
		group.Go(func() {
			results[i] = make([]float32, len(want))
			_ = m.Forward(m.NewCache(4, 16), []llama.Span{{Tokens: all, Blocks: inOrder(4), Logits: results[i]}})
		})
	}
	group.Wait()
	for _, got := range results {
		same(t, "one of eight", got, want)
	}
}

package llama_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// configs draws shapes that fill no panel, no vector and no block by chance.
func configs(t *rapid.T) llama.Config {
	kv := rapid.IntRange(1, 3).Draw(t, "kv heads")
	c := llama.Config{
		Vocab:    rapid.IntRange(1, 70).Draw(t, "vocabulary"),
		Width:    rapid.SampledFrom([]int{1, 7, 32, 40, 64}).Draw(t, "width"),
		Layers:   rapid.IntRange(1, 3).Draw(t, "layers"),
		Heads:    kv * rapid.IntRange(1, 6).Draw(t, "group"),
		KVHeads:  kv,
		HeadSize: rapid.SampledFrom([]int{2, 6, 8, 16, 20, 32}).Draw(t, "head size"),
		Hidden:   rapid.SampledFrom([]int{1, 33, 64, 160}).Draw(t, "hidden"),
		Context:  rapid.IntRange(1, 300).Draw(t, "context"),
		RopeBase: rapid.SampledFrom([]float64{100, 10000, 500000}).Draw(t, "base"),
		NormEps:  rapid.SampledFrom([]float32{1e-6, 1e-5, 0.01}).Draw(t, "epsilon"),
		Tied:     rapid.Bool().Draw(t, "tied"),
		QKVBias:  rapid.Bool().Draw(t, "bias"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "scaling") {
	case 1:
		c.RopeScaling = llama.RopeScaling{Type: "linear", Factor: 4}
	case 2:
		c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 1, HighFrequency: 4, Original: 64}
	case 3:
		c.RopeScaling = llama.RopeScaling{Type: "factors"}
		for i := range c.HeadSize / 2 {
			c.RopeScaling.Factors = append(c.RopeScaling.Factors, 1+float32(i)/3)
		}
	}
	return c
}

func tensors(t *rapid.T, cfg llama.Config) func(string) (llama.Tensor, error) {
	source := llama.RandomTensors(cfg, rapid.Uint64().Draw(t, "seed"))
	if rapid.Bool().Draw(t, "quantized") {
		return llama.Quantized(source)
	}
	return source
}

func tokens(t *rapid.T, cfg llama.Config, most int) []uint32 {
	return rapid.SliceOfN(rapid.Uint32Range(0, uint32(cfg.Vocab-1)), 1, min(most, cfg.Context)).Draw(t, "tokens")
}

// blocks deals blocks of a cache in random order.
func blocks(random *rand.Rand, of int) []int32 {
	var list []int32
	for _, b := range random.Perm(of) {
		list = append(list, int32(b))
	}
	return list
}

func TestFormulas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		source := tensors(t, cfg)
		m, err := llama.New(cfg, source)
		if err != nil {
			t.Fatal(err)
		}
		prompt := tokens(t, cfg, 80)
		size := rapid.IntRange(1, 33).Draw(t, "block size")
		need := (len(prompt) + size - 1) / size
		c := m.NewCache(need+2, size)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		logits := make([]float32, len(prompt)*cfg.Vocab)
		if err := m.Forward(c, []llama.Span{{Tokens: prompt, Blocks: blocks(random, need+2), Logits: logits}}); err != nil {
			t.Fatal(err)
		}
		for p, want := range newNaive(cfg, source).logits(prompt) {
			for i, w := range want {
				if got := float64(logits[p*cfg.Vocab+i]); !(math.Abs(got-w) < 2e-4*(1+math.Abs(w))) {
					t.Fatalf("logit %d at position %d is %v; the formulas give %v", i, p, got, w)
				}
			}
		}
	})
}

// request is a prompt on its way through a cache that it shares.
type request struct {
	tokens []uint32
	blocks []int32
	done   int
	logits []float32
}

// TestReuse computes prompts together, in chunks and orders of chance, on blocks
// of chance that held other numbers before, and wants the bits that each prompt
// has when it is computed alone, position by position.
func TestReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		m, err := llama.New(cfg, tensors(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 20).Draw(t, "block size")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "chance"), 0))

		var requests []*request
		need := 0
		for range rapid.IntRange(1, 5).Draw(t, "requests") {
			r := &request{tokens: tokens(t, cfg, 70)}
			r.logits = make([]float32, len(r.tokens)*cfg.Vocab)
			need += (len(r.tokens) + size - 1) / size
			requests = append(requests, r)
		}
		c := m.NewCache(need, size)
		poison(c)
		free := blocks(random, need)
		for _, r := range requests {
			n := (len(r.tokens) + size - 1) / size
			r.blocks, free = free[:n], free[n:]
		}
		for {
			var spans []llama.Span
			for _, i := range random.Perm(len(requests)) {
				r := requests[i]
				left := len(r.tokens) - r.done
				if left == 0 || random.IntN(3) == 0 {
					continue
				}
				n := 1 + random.IntN(left)
				if random.IntN(2) == 0 {
					n = 1
				}
				spans = append(spans, llama.Span{
					Tokens: r.tokens[r.done:][:n], Start: r.done, Blocks: r.blocks,
					Logits: r.logits[r.done*cfg.Vocab:][:n*cfg.Vocab],
				})
				r.done += n
			}
			if err := m.Forward(c, spans); err != nil {
				t.Fatal(err)
			}
			if len(spans) == 0 && finished(requests) {
				break
			}
		}
		for i, r := range requests {
			same(t, fmt.Sprintf("request %d", i), r.logits, alone(t, m, r.tokens))
		}
	})
}

func finished(requests []*request) bool {
	for _, r := range requests {
		if r.done < len(r.tokens) {
			return false
		}
	}
	return true
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// alone returns the logits of a prompt that is computed token by token.
func alone(t failer, m *llama.Model, tokens []uint32) []float32 {
	vocab := m.Config().Vocab
	c := m.NewCache(1, len(tokens))
	logits := make([]float32, len(tokens)*vocab)
	for i := range tokens {
		err := m.Forward(c, []llama.Span{{Tokens: tokens[i:][:1], Start: i, Blocks: []int32{0}, Logits: logits[i*vocab:][:vocab]}})
		if err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
	}
	return logits
}

// poison fills a cache with NaN, so that whatever reads a position that nobody
// wrote shows.
func poison(c *llama.Cache) {
	for b := range c.Blocks() {
		bytes := c.Block(b)
		for i := range bytes {
			bytes[i] = 0xff
		}
	}
}

func same(t failer, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %v (%#x) instead of %v (%#x)", what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

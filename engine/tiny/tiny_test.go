package tiny_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// small is a model whose pass takes some microseconds, and slow one whose pass takes
// some milliseconds. Both have ids up to 999.
var (
	small = sync.OnceValue(func() *llama.Model { return random(32, 2, 64) })
	slow  = sync.OnceValue(func() *llama.Model { return random(256, 4, 704) })
)

func random(width, layers, hidden int) *llama.Model {
	return llama.Random(llama.Config{
		Vocab: 1000, Width: width, Layers: layers, Heads: 4, KVHeads: 2, HeadSize: width / 4, Hidden: hidden,
		Context: 2048, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1)
}

// open returns an engine of a model that is closed with the test.
func open(t testing.TB, m *llama.Model, change ...func(*mock.Args)) *tiny.Engine {
	t.Helper()
	a := tiny.DefaultArgs(m)
	for _, c := range change {
		c(&a)
	}
	return start(t, tiny.Options{Model: m, Args: a})
}

func start(t testing.TB, o tiny.Options) *tiny.Engine {
	t.Helper()
	o.Name, o.EOS, o.ID = "tiny", []uint32{7}, t.Name()
	e, err := tiny.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func ask(prompt []uint32, n int) *engine.Request {
	zero := 0.0
	return &engine.Request{ID: "u-1", TokenIDs: prompt, Sampling: engine.Sampling{Temperature: &zero}, Stop: engine.Stop{MaxTokens: n}}
}

// prompt returns n ids; another seed makes others.
func prompt(seed, n int) []uint32 {
	ids := make([]uint32, n)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range ids {
		x = x*6364136223846793005 + 1442695040888963407
		ids[i] = 100 + uint32(x>>33)%800
	}
	return ids
}

// generate returns the ids of an answer, and its last delta.
func generate(t testing.TB, e engine.Engine, r *engine.Request) (ids []uint32, last engine.Delta) {
	t.Helper()
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatal(err)
		}
		ids, last = append(ids, d.TokenIDs...), d
	}
	return ids, last
}

// plain is what an engine must come to: a loop over the model with a cache of its own,
// one token at a time.
func plain(t testing.TB, m *llama.Model, prompt []uint32, n int) (ids []uint32) {
	t.Helper()
	const size = 8
	blocks := make([]int32, (len(prompt)+n)/size+1)
	for i := range blocks {
		blocks[i] = int32(i)
	}
	cache := m.NewCache(len(blocks), size)
	logits := make([]float32, m.Config().Vocab)
	tokens := slices.Clone(prompt)
	for at := 0; len(ids) < n; at++ {
		if err := m.Forward(cache, []llama.Span{{Tokens: tokens[at : at+1], Start: at, Blocks: blocks, Logits: logits}}); err != nil {
			t.Fatal(err)
		}
		if at+1 < len(tokens) {
			continue
		}
		best := 0
		for id, l := range logits {
			if l > logits[best] {
				best = id
			}
		}
		ids, tokens = append(ids, uint32(best)), append(tokens, uint32(best))
	}
	return ids
}

// legs returns an engine that computes prompts, and one that comes for them.
func legs(t *testing.T) (prefill, decode engine.Engine) {
	of := func(role string, p mock.Pull) *tiny.Engine {
		a := tiny.DefaultArgs(small())
		a.WorkerType = role
		return start(t, tiny.Options{Model: small(), Args: a, Pull: p})
	}
	first := of("prefill", mock.Pull{Address: func() string { return "here" }})
	dial := func(_ context.Context, address string) (engine.Puller, func(), error) {
		if address != "here" {
			return nil, nil, fmt.Errorf("nobody is at %q", address)
		}
		return first, func() {}, nil
	}
	return first, of("decode", mock.Pull{Dial: dial})
}

func subject() enginetest.Subject {
	return enginetest.Subject{
		New: func(t *testing.T) engine.Engine {
			return open(t, small(), func(a *mock.Args) { a.NumGPUBlocks = 2048 })
		},
		Slow:    func(t *testing.T) engine.Engine { return open(t, slow(), func(a *mock.Args) { a.MaxNumSeqs = 1 }) },
		Restart: func(e engine.Engine) { e.(*tiny.Engine).Restart() },
		Drain:   func(e engine.Engine) { e.(*tiny.Engine).Drain() },
		Legs:    legs,
		Skips:   []string{"26-loss"},
	}
}

func TestContract(t *testing.T) { enginetest.Run(t, subject()) }

// The same with tiers below a device that is too small.
func TestContractOnTiers(t *testing.T) {
	s := subject()
	s.New = func(t *testing.T) engine.Engine {
		return open(t, small(), func(a *mock.Args) { a.NumGPUBlocks, a.HostBlocks, a.DiskBlocks = 200, 500, 2000 })
	}
	s.Slow, s.Restart, s.Drain, s.Legs = nil, nil, nil, nil
	s.Skips = []string{
		"03-restart-is-another-epoch", "04-drain", "15-leaving", "16-cancelled", "17-deadline", "19-killed",
		"26-loss", "27-restart", "28-load",
	}
	enginetest.Run(t, s)
}

// Greedy answers are those of a plain loop, however many requests are at work.
func TestPlainLoop(t *testing.T) {
	e := open(t, small(), func(a *mock.Args) { a.NumGPUBlocks, a.MaxNumBatchedTokens, a.BlockSize = 128, 33, 4 })
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			p := prompt(i%9, 3+11*(i%9))
			if i%3 == 0 {
				p = append(p, prompt(i, 20)...)
			}
			want := plain(t, small(), p, 30)
			if got, _ := generate(t, e, ask(p, 30)); !slices.Equal(got, want) {
				t.Errorf("request %d: %v, want %v", i, got, want)
			}
		})
	}
	all.Wait()
}

func Example() {
	m := llama.Random(llama.Config{Vocab: 64, Width: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadSize: 8, Hidden: 64, Context: 128, RopeBase: 10000, NormEps: 1e-5, Tied: true}, 1)
	e, err := tiny.New(tiny.Options{Name: "tiny", Model: m})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	r := &engine.Request{TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 4}}
	n := 0
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if n += len(d.TokenIDs); d.Finish != engine.Running {
			fmt.Println(n, d.Finish)
		}
	}
	// Output: 4 length
}

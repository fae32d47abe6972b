package tiny_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// What is sampled differs from choice to choice, unless a seed or greed says
// otherwise; the attempts at one choice never differ.
func TestSeeds(t *testing.T) {
	e := open(t, small())
	answer := func(id string, temperature float64, seed *int64) []uint32 {
		ids, _ := generate(t, e, &engine.Request{
			ID: id, TokenIDs: prompt(1, 9), Stop: engine.Stop{MaxTokens: 20},
			Sampling: engine.Sampling{Temperature: &temperature, Seed: seed},
		})
		return ids
	}
	seven, eight := int64(7), int64(8)
	for _, tc := range []struct {
		name string
		a, b []uint32
		same bool
	}{
		{"choices", answer("u-1", 1, nil), answer("u.1-1", 1, nil), false},
		{"requests", answer("u-1", 1, nil), answer("v-1", 1, nil), false},
		{"attempts", answer("u.1-1", 1, nil), answer("u.1-2", 1, nil), true},
		{"seeds", answer("u-1", 1, &seven), answer("u-1", 1, &eight), false},
		{"one seed", answer("u-1", 1, &seven), answer("v-1", 1, &seven), true},
		{"greedy", answer("u-1", 0, &seven), answer("v-1", 0, nil), true},
	} {
		if slices.Equal(tc.a, tc.b) != tc.same {
			t.Errorf("%s: %v and %v, want the same: %v", tc.name, tc.a, tc.b, tc.same)
		}
	}
}

// What a request says of its tokens is done, before it is too late: an end that must
// not come yet is not chosen.
func TestRequestsAreHeeded(t *testing.T) {
	e := open(t, small())
	free, _ := generate(t, e, ask(prompt(1, 9), 12))
	other := slices.IndexFunc(free, func(id uint32) bool { return id != free[0] })
	for _, tc := range []struct {
		name   string
		change func(*engine.Request)
		is     func(ids []uint32) bool
	}{
		{"min_tokens", func(r *engine.Request) { r.Stop.Hidden, r.Stop.MinTokens = free[:1], 12 }, func(ids []uint32) bool {
			return len(ids) == 12 && !slices.Contains(ids, free[0])
		}},
		{"no more than min_tokens", func(r *engine.Request) { r.Stop.IDs, r.Stop.MinTokens = free[other:other+1], other }, func(ids []uint32) bool {
			return slices.Equal(ids, free[:other+1])
		}},
		{"logit_bias", func(r *engine.Request) { r.Sampling.LogitBias = map[uint32]float64{5: 100} }, func(ids []uint32) bool {
			return slices.Equal(ids, slices.Repeat([]uint32{5}, 12))
		}},
		{"allowed ids", func(r *engine.Request) { r.Sampling.AllowedIDs = []uint32{3, 4} }, func(ids []uint32) bool {
			return len(ids) == 12 && len(slices.Compact(ids)) == 1 && (ids[0] == 3 || ids[0] == 4)
		}},
		{"bad words", func(r *engine.Request) { r.Sampling.BadWords = [][]uint32{free[1:2], free[:1]} }, func(ids []uint32) bool {
			return !slices.Contains(ids, free[0]) && !slices.Contains(ids, free[1])
		}},
		{"frequency penalty", func(r *engine.Request) {
			r.Sampling.FrequencyPenalty, r.Sampling.AllowedIDs = new(2.0), []uint32{3, 4}
		}, func(ids []uint32) bool { return slices.Contains(ids, 3) && slices.Contains(ids, 4) }},
	} {
		r := ask(prompt(1, 9), 12)
		tc.change(r)
		if ids, _ := generate(t, e, r); !tc.is(ids) {
			t.Errorf("%s: %v, and else %v", tc.name, ids, free)
		}
	}
}

func TestRequestsRefused(t *testing.T) {
	e := open(t, small())
	for _, tc := range []struct {
		change func(*engine.Request)
		kind   engine.ErrorKind
		says   string
	}{
		{func(r *engine.Request) { r.TokenIDs = nil }, engine.InvalidArgument, "empty"},
		{func(r *engine.Request) { r.TokenIDs = nil; r.PromptLogprobs = new(1) }, engine.InvalidArgument, "empty"},
		{func(r *engine.Request) { r.TokenIDs[3] = 1000 }, engine.InvalidArgument, "token id 1000"},
		{func(r *engine.Request) { r.TokenIDs = prompt(1, 2048) }, engine.InvalidArgument, "context length of 2048"},
		{func(r *engine.Request) { r.Sampling.TopP = new(0.0) }, engine.InvalidArgument, "top_p"},
		{func(r *engine.Request) { r.Sampling.LogitBias = map[uint32]float64{1000: 1} }, engine.InvalidArgument, "1000"},
		{func(r *engine.Request) { r.Logprobs = new(21) }, engine.InvalidArgument, "logprobs"},
		{func(r *engine.Request) { r.KV.Namespace.LoRA = "x" }, engine.Unsupported, "adapters"},
		{func(r *engine.Request) { r.Stop.Strings = []string{"x"} }, engine.Unsupported, "stop strings"},
	} {
		r := ask(prompt(1, 9), 5)
		tc.change(r)
		n := 0
		for d, err := range e.Generate(t.Context(), r) {
			if n++; engine.KindOf(err) != tc.kind || !strings.Contains(fmt.Sprint(err), tc.says) {
				t.Errorf("%+v, %v; want %s with %q", d, err, tc.kind, tc.says)
			}
		}
		if n != 1 {
			t.Errorf("%d items, want one error with %q", n, tc.says)
		}
	}
}

func TestEnginesThatCannotBe(t *testing.T) {
	args := tiny.DefaultArgs(small())
	args.BlockSize = 1
	many := tiny.DefaultArgs(small())
	many.NumGPUBlocks, many.DPSize = math.MaxInt32, 1024
	for _, tc := range []struct {
		o    tiny.Options
		says string
	}{
		{tiny.Options{Name: "m"}, "no model"},
		{tiny.Options{Model: small()}, "no name"},
		{tiny.Options{Name: "m", Model: small(), EOS: []uint32{1000}}, "id 1000"},
		{tiny.Options{Name: "m", Model: small(), Args: args}, "block_size"},
		{tiny.Options{Name: "m", Model: small(), Args: many}, "num_gpu_blocks is 2147483647: the caches of 1024 ranks take"},
	} {
		tc.o.ID = "e"
		if _, err := tiny.New(tc.o); err == nil || !strings.Contains(err.Error(), tc.says) || strings.Count(err.Error(), "tiny engine e: ") != 1 {
			t.Errorf("%v, want %q", err, tc.says)
		}
	}
}

// The cache has room for eight contexts, unless these are larger than it may be.
func TestDefaultArgs(t *testing.T) {
	if a := tiny.DefaultArgs(small()); a.NumGPUBlocks != 8*2048/16 || a.BlockSize != 16 {
		t.Errorf("%d blocks of %d", a.NumGPUBlocks, a.BlockSize)
	}
	m := llama.Random(llama.Config{
		Vocab: 10, Width: 8, Layers: 1, Heads: 1, KVHeads: 1, HeadSize: 8, Hidden: 8,
		Context: 1 << 24, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1)
	a := tiny.DefaultArgs(m)
	if bytes := a.NumGPUBlocks * m.BlockBytes(16); bytes > 1<<30 || bytes < 1<<29 {
		t.Errorf("a cache of %d bytes", bytes)
	}
}

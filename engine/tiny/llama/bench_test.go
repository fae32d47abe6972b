package llama_test

import (
	"fmt"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// shipped has the shape of the model in the binary.
var shipped = llama.Config{
	Vocab: 2048, Width: 128, Layers: 5, Heads: 4, KVHeads: 2, HeadSize: 32, Hidden: 224,
	Context: 2048, RopeBase: 10000, NormEps: 1e-5, Tied: true,
}

func newShipped(b testing.TB, kind llama.Kind) *llama.Model {
	source := llama.RandomTensors(shipped, 1)
	if kind == llama.Q8_0 {
		source = llama.Quantized(source)
	}
	m, err := llama.New(shipped, source)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func prompt(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i) * 2654435761 >> 8 % uint32(shipped.Vocab)
	}
	return tokens
}

func inOrder(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i)
	}
	return list
}

// BenchmarkDecode decodes one request at a time, from an empty context on.
func BenchmarkDecode(b *testing.B) {
	for _, kind := range []llama.Kind{llama.Q8_0, llama.F32} {
		for _, context := range []int{128, 512, 2048} {
			b.Run(fmt.Sprintf("%v/context=%d", kind, context), func(b *testing.B) {
				m := newShipped(b, kind)
				c := m.NewCache(128, 16)
				all, slots := prompt(context), inOrder(128)
				logits := make([]float32, shipped.Vocab)
				if err := m.Forward(c, []llama.Span{{Tokens: all, Blocks: slots}}); err != nil {
					b.Fatal(err)
				}
				spans := make([]llama.Span, 1)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					at := i % context
					spans[0] = llama.Span{Tokens: all[at : at+1], Start: at, Blocks: slots, Logits: logits}
					if err := m.Forward(c, spans); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkPlain decodes and prefills with the kernels of every platform.
func BenchmarkPlain(b *testing.B) {
	for _, rows := range []int{1, 128} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			m := llama.Plain(newShipped(b, llama.Q8_0))
			c := m.NewCache(8, 16)
			spans := []llama.Span{{Tokens: prompt(rows), Blocks: inOrder(8), Logits: make([]float32, shipped.Vocab)}}
			for b.Loop() {
				if err := m.Forward(c, spans); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkNew packs the weights of a model of 25 M parameters.
func BenchmarkNew(b *testing.B) {
	cfg := shipped
	cfg.Vocab, cfg.Width, cfg.Layers, cfg.Hidden, cfg.HeadSize = 8192, 512, 6, 1408, 128
	for _, kind := range []llama.Kind{llama.F32, llama.Q8_0} {
		b.Run(kind.String(), func(b *testing.B) {
			source := llama.RandomTensors(cfg, 1)
			if kind == llama.Q8_0 {
				source = llama.Quantized(source)
			}
			tensors, total := map[string]llama.Tensor{}, 0
			for _, s := range cfg.Tensors() {
				t, err := source(s.Name)
				if err != nil {
					b.Fatal(err)
				}
				tensors[s.Name] = t
				total += len(t.Data)
			}
			b.SetBytes(int64(total))
			for b.Loop() {
				if _, err := llama.New(cfg, func(name string) (llama.Tensor, error) { return tensors[name], nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBatch decodes several requests together.
func BenchmarkBatch(b *testing.B) {
	for _, requests := range []int{2, 4, 8, 32} {
		b.Run(fmt.Sprintf("requests=%d", requests), func(b *testing.B) {
			m := newShipped(b, llama.Q8_0)
			const context = 512
			c := m.NewCache(requests*context/16, 16)
			all := prompt(context)
			logits := make([]float32, requests*shipped.Vocab)
			spans := make([]llama.Span, requests)
			slots := inOrder(requests * context / 16)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i % context
				for r := range spans {
					spans[r] = llama.Span{
						Tokens: all[at : at+1], Start: at, Blocks: slots[r*context/16:][:context/16],
						Logits: logits[r*shipped.Vocab:][:shipped.Vocab],
					}
				}
				if err := m.Forward(c, spans); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*requests)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkPrefill computes whole prompts and the logits of their last token.
func BenchmarkPrefill(b *testing.B) {
	for _, kind := range []llama.Kind{llama.Q8_0, llama.F32} {
		for _, context := range []int{128, 512, 2048} {
			b.Run(fmt.Sprintf("%v/context=%d", kind, context), func(b *testing.B) {
				m := newShipped(b, kind)
				c := m.NewCache(128, 16)
				spans := []llama.Span{{Tokens: prompt(context), Blocks: inOrder(128), Logits: make([]float32, shipped.Vocab)}}
				b.ReportAllocs()
				for b.Loop() {
					if err := m.Forward(c, spans); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*context)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkFirstToken computes the logits after a prompt that fills the context:
// all of it, or what does not fill a block.
func BenchmarkFirstToken(b *testing.B) {
	all := prompt(shipped.Context - 1)
	for _, start := range []int{0, len(all) / 16 * 16} {
		name := "cold"
		if start > 0 {
			name = "cached"
		}
		b.Run(name, func(b *testing.B) {
			m := newShipped(b, llama.Q8_0)
			c := m.NewCache(shipped.Context/16, 16)
			slots := inOrder(c.Blocks())
			if err := m.Forward(c, []llama.Span{{Tokens: all, Blocks: slots}}); err != nil {
				b.Fatal(err)
			}
			spans := []llama.Span{{Tokens: all[start:], Start: start, Blocks: slots, Logits: make([]float32, shipped.Vocab)}}
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Forward(c, spans); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package llama_test

import (
	"bytes"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

func TestSpans(t *testing.T) {
	m := llama.Random(small, 1)
	c := m.NewCache(4, 16)
	logits := func(rows int) []float32 { return make([]float32, rows*small.Vocab) }
	tests := []struct {
		name string
		span llama.Span
		want string
	}{
		{"whole context", llama.Span{Tokens: make([]uint32, 50), Blocks: inOrder(4)}, ""},
		{"last position", llama.Span{Tokens: []uint32{39}, Start: 49, Blocks: inOrder(4), Logits: logits(1)}, ""},
		{"more blocks than the cache has, unused", llama.Span{Tokens: []uint32{1}, Blocks: []int32{3, 99}}, ""},
		{"nothing", llama.Span{Blocks: inOrder(1)}, "no tokens"},
		{"before the beginning", llama.Span{Tokens: []uint32{1}, Start: -1, Blocks: inOrder(1)}, "1 tokens from position -1 on; the context is 50"},
		{"past the context", llama.Span{Tokens: []uint32{1, 2}, Start: 49, Blocks: inOrder(4)}, "2 tokens from position 49 on; the context is 50"},
		{"far past it", llama.Span{Tokens: []uint32{1, 2}, Start: math.MaxInt, Blocks: inOrder(4)}, "2 tokens from position"},
		{"too few blocks", llama.Span{Tokens: make([]uint32, 17), Start: 16, Blocks: inOrder(2)}, "2 blocks of 16 positions; 33 positions need 3"},
		{"one block for two", llama.Span{Tokens: []uint32{1}, Start: 16, Blocks: []int32{3, 3}}, ""},
		{"token", llama.Span{Tokens: []uint32{1, 2, 40}, Start: 3, Blocks: inOrder(1)}, "token 40 at position 5; the vocabulary has 40"},
		{"largest token", llama.Span{Tokens: []uint32{math.MaxUint32}, Blocks: inOrder(1)}, "token 4294967295 at position 0"},
		{"block", llama.Span{Tokens: []uint32{1}, Start: 16, Blocks: []int32{0, 4}}, "block 1 is number 4 of the cache, which has 4"},
		{"negative block", llama.Span{Tokens: []uint32{1}, Start: 16, Blocks: []int32{-1, 1}}, "block 0 is number -1 of the cache"},
		{"part of a row of logits", llama.Span{Tokens: []uint32{1}, Blocks: inOrder(1), Logits: make([]float32, 39)}, "room for 39 logits; it must be that of 0 to 1 rows of 40"},
		{"more logits than rows", llama.Span{Tokens: []uint32{1, 2}, Blocks: inOrder(1), Logits: logits(3)}, "room for 120 logits; it must be that of 0 to 2 rows of 40"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := contents(c)
			good := llama.Span{Tokens: []uint32{5, 6}, Blocks: []int32{2}}
			err := m.Forward(c, []llama.Span{good, tt.span})
			want := tt.want
			if want != "" {
				want = "span 1 of 2: " + want
			}
			if !says(err, want) {
				t.Errorf("error is %q; want %q", err, want)
			}
			if err != nil && !bytes.Equal(before, contents(c)) {
				t.Error("the cache was written")
			}
		})
	}
	if err := llama.Random(small, 1).Forward(c, nil); !says(err, "the cache is that of another model") {
		t.Errorf("with another model the error is %v", err)
	}
	few := m.NewCache(2, 16)
	err := m.Forward(few, []llama.Span{{Tokens: make([]uint32, 40), Blocks: []int32{0, 1, 1}}})
	if !says(err, "40 positions need 3 blocks; the cache has 2") {
		t.Errorf("with a small cache the error is %v", err)
	}
	if err := m.Forward(c, nil); err != nil {
		t.Errorf("a pass of nothing: %v", err)
	}
}

func contents(c *llama.Cache) (all []byte) {
	for b := range c.Blocks() {
		all = append(all, c.Block(b)...)
	}
	return all
}

// TestLastRows asks for the logits of some of the last positions.
func TestLastRows(t *testing.T) {
	m := llama.Random(small, 1)
	tokens := []uint32{4, 8, 15, 16, 23, 2}
	want := alone(t, m, tokens)
	for rows := range len(tokens) + 1 {
		c := m.NewCache(1, 16)
		got := make([]float32, rows*small.Vocab)
		if err := m.Forward(c, []llama.Span{{Tokens: tokens, Blocks: inOrder(1), Logits: got}}); err != nil {
			t.Fatal(err)
		}
		same(t, "last rows", got, want[(len(tokens)-rows)*small.Vocab:])
	}
}

// TestBlocksOfEarlierSpans lets a request go on where another one of the same pass
// will have got to, be it in the same tile or not.
func TestBlocksOfEarlierSpans(t *testing.T) {
	m := llama.Random(shipped, 1)
	all := prompt(200)
	want := alone(t, m, all)
	for _, shared := range []int{16, 48, 96, 192} {
		c := m.NewCache(40, 16)
		poison(c)
		blocks := inOrder(13)
		got := make([]float32, (len(all)-shared)*shipped.Vocab)
		err := m.Forward(c, []llama.Span{
			{Tokens: all[:shared], Blocks: blocks},
			{Tokens: all[shared:], Start: shared, Blocks: append(blocks[:shared/16:shared/16], 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 29, 28, 27), Logits: got},
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the second span", got, want[shared*shipped.Vocab:])
	}
}

// TestPlain holds the kernels of this machine against those of every machine, over
// a whole prompt.
func TestPlain(t *testing.T) {
	for _, source := range []func(string) (llama.Tensor, error){
		llama.RandomTensors(shipped, 1), llama.Quantized(llama.RandomTensors(shipped, 1)),
	} {
		m, err := llama.New(shipped, source)
		if err != nil {
			t.Fatal(err)
		}
		tokens := prompt(300)
		same(t, "the machine's kernels", alone(t, m, tokens), alone(t, llama.Plain(m), tokens))
	}
}

// TestEverywhere pins the bits of a random model: they are those of all
// architectures. Where a change must change them, layoutVersion counts up.
func TestEverywhere(t *testing.T) {
	c := small
	c.QKVBias = true
	m, err := llama.New(c, llama.Quantized(llama.RandomTensors(c, 1)))
	if err != nil {
		t.Fatal(err)
	}
	tokens := prompt(50)
	for i := range tokens {
		tokens[i] %= uint32(c.Vocab)
	}
	h := fnv.New64a()
	for _, x := range alone(t, m, tokens) {
		bits := math.Float32bits(x)
		h.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	if sum := h.Sum64(); sum != 0xab202e26b16787c4 {
		t.Errorf("logits have the sum %#x", sum)
	}
	if m.Hash() != "10daeead85be61f4" {
		t.Errorf("the model has the hash %s", m.Hash())
	}
}

func TestNoAllocation(t *testing.T) {
	m := llama.Random(small, 1)
	c := m.NewCache(8, 16)
	logits := make([]float32, small.Vocab)
	spans := []llama.Span{
		{Tokens: make([]uint32, 50), Blocks: []int32{0, 1, 2, 3}},
		{Tokens: []uint32{7}, Start: 40, Blocks: []int32{4, 5, 6, 7}, Logits: logits},
	}
	pass := func() {
		if err := m.Forward(c, spans); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if n := testing.AllocsPerRun(10, pass); n != 0 {
		t.Errorf("%v allocations in a pass", n)
	}
}

// TestParameters counts the weights of the model in the box.
func TestParameters(t *testing.T) {
	if n := shipped.Parameters(); n != 939_392 {
		t.Errorf("%d parameters", n)
	}
	m, err := llama.New(shipped, llama.Quantized(llama.RandomTensors(shipped, 1)))
	if err != nil {
		t.Fatal(err)
	}
	// A byte each and a float to 32 of them, and the norms.
	matrices := shipped.Parameters() - 11*128
	if n := m.Bytes(); n != matrices+matrices/8+11*128*4 {
		t.Errorf("%d bytes", n)
	}
	names := map[string]bool{}
	for _, s := range shipped.Tensors() {
		if names[s.Name] || slices.Contains(s.Shape, 0) {
			t.Errorf("tensor %s %v", s.Name, s.Shape)
		}
		names[s.Name] = true
	}
}

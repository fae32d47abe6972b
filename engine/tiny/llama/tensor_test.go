package llama_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

var small = llama.Config{
	Vocab: 40, Width: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadSize: 8, Hidden: 64,
	Context: 50, RopeBase: 10000, NormEps: 1e-5,
}

func TestConfig(t *testing.T) {
	tests := []struct {
		change func(*llama.Config)
		want   string
	}{
		{func(c *llama.Config) {}, ""},
		{func(c *llama.Config) { c.Vocab = 0 }, "vocabulary is 0; it must be from 1 to"},
		{func(c *llama.Config) { c.Width = -1 }, "width is -1"},
		{func(c *llama.Config) { c.Layers = 0 }, "number of layers is 0"},
		{func(c *llama.Config) { c.Layers = 5000 }, "number of layers is 5000; it must be from 1 to 4096"},
		{func(c *llama.Config) { c.Hidden = 0 }, "hidden width is 0"},
		{func(c *llama.Config) { c.Context = 0 }, "context is 0"},
		{func(c *llama.Config) { c.KVHeads = 0 }, "number of KV heads is 0"},
		{func(c *llama.Config) { c.KVHeads = 3 }, "4 heads cannot share 3 KV heads evenly"},
		{func(c *llama.Config) { c.HeadSize = 7 }, "head size is 7; positions turn pairs of numbers, so it must be even"},
		{func(c *llama.Config) { c.Heads, c.KVHeads, c.HeadSize = 1<<12, 1, 1<<12 }, "4096 heads of 4096 are wider than"},
		{func(c *llama.Config) { c.RopeBase = 0 }, "RoPE base is 0"},
		{func(c *llama.Config) { c.RopeBase = math.NaN() }, "RoPE base is NaN"},
		{func(c *llama.Config) { c.NormEps = -1 }, "epsilon of the norm is -1"},
		{func(c *llama.Config) { c.RopeScaling.Type = "default" }, ""},
		{func(c *llama.Config) { c.RopeScaling.Type = "yarn" }, `RoPE scaling "yarn" is not supported; linear, llama3 and factors are`},
		{func(c *llama.Config) { c.RopeScaling.Type = "linear" }, `factor of RoPE scaling "linear" is 0`},
		{func(c *llama.Config) {
			c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 4, HighFrequency: 1, Original: 32}
		}, `high_freq_factor of RoPE scaling "llama3" is 1; it must be above low_freq_factor, 4`},
		{func(c *llama.Config) {
			c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 1, HighFrequency: 4}
		}, "original_max_position_embeddings"},
		{func(c *llama.Config) {
			c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, HighFrequency: 4, Original: 32}
		}, "low_freq_factor"},
		{func(c *llama.Config) { c.RopeScaling = llama.RopeScaling{Type: "llama3"} }, "factor of RoPE scaling"},
		{func(c *llama.Config) {
			c.RopeScaling = llama.RopeScaling{Type: "factors", Factors: []float32{1, 2, 3}}
		}, "RoPE scaling has 3 factors; a head size of 8 needs 4"},
		{func(c *llama.Config) {
			c.RopeScaling = llama.RopeScaling{Type: "factors", Factors: []float32{1, 2, 0, 4}}
		}, `number 2 of RoPE scaling "factors" is 0`},
	}
	for _, tt := range tests {
		c := small
		tt.change(&c)
		_, err := llama.New(c, llama.RandomTensors(c, 1))
		if !says(err, tt.want) {
			t.Errorf("error is %q; want %q", err, tt.want)
		}
	}
}

func says(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.HasPrefix(err.Error(), "llama: ") && strings.Contains(err.Error(), want)
}

func TestTensors(t *testing.T) {
	const v = "model.layers.1.self_attn.v_proj.weight"
	gone := errors.New("not in the file")
	f32 := func(bits uint32, at int) func(*llama.Tensor) {
		return func(t *llama.Tensor) { binary.LittleEndian.PutUint32(t.Data[4*at:], bits) }
	}
	half := func(kind llama.Kind, bits uint16, at int) func(*llama.Tensor) {
		return func(t *llama.Tensor) {
			t.Kind, t.Data = kind, make([]byte, 2*16*32)
			binary.LittleEndian.PutUint16(t.Data[2*at:], bits)
		}
	}
	tests := []struct {
		name, tensor string
		change       func(*llama.Tensor)
		want         string
	}{
		{"shape", v, func(t *llama.Tensor) { t.Shape = []int{32, 16} }, "tensor " + v + ": shape is [32 16]; the model's settings make it [16 32]"},
		{"rank", "model.norm.weight", func(t *llama.Tensor) { t.Shape = []int{32, 1} }, "tensor model.norm.weight: shape is [32 1]; the model's settings make it [32]"},
		{"length", v, func(t *llama.Tensor) { t.Data = t.Data[1:] }, "tensor " + v + ": 2047 bytes of data; [16 32] as F32 takes 2048"},
		{"kind", v, func(t *llama.Tensor) { t.Kind = 9 }, "tensor " + v + ": numbers are stored as Kind(9); F32, F16, BF16 and Q8_0 are read"},
		{"NaN", v, f32(math.Float32bits(float32(math.NaN())), 3*32+5), "tensor " + v + ": number at [3 5] is not finite"},
		{"infinity", "model.norm.weight", f32(0xff800000, 31), "tensor model.norm.weight: number at [31] is not finite"},
		{"F16", v, half(llama.F16, 0x7c01, 33), "tensor " + v + ": number at [1 1] is not finite"},
		{"BF16", v, half(llama.BF16, 0xff80, 511), "tensor " + v + ": number at [15 31] is not finite"},
		{"Q8_0", v, func(t *llama.Tensor) {
			t.Kind, t.Data = llama.Q8_0, make([]byte, 16*34)
			binary.LittleEndian.PutUint16(t.Data[2*34:], 0x7c00)
		}, "tensor " + v + ": number at [2 0] is not finite"},
		{"largest", v, f32(0x7f7fffff, 0), ""},
		{"largest half", v, half(llama.F16, 0x7bff, 0), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := llama.RandomTensors(small, 1)
			_, err := llama.New(small, func(name string) (llama.Tensor, error) {
				tensor, err := source(name)
				if name == tt.tensor {
					tt.change(&tensor)
				}
				return tensor, err
			})
			if !says(err, tt.want) {
				t.Errorf("error is %q; want %q", err, tt.want)
			}
		})
	}
	for _, spec := range small.Tensors() {
		source := llama.RandomTensors(small, 1)
		_, err := llama.New(small, func(name string) (llama.Tensor, error) {
			if name == spec.Name {
				return llama.Tensor{}, gone
			}
			return source(name)
		})
		if !errors.Is(err, gone) || !says(err, "tensor "+spec.Name+": not in the file") {
			t.Errorf("without tensor %s the error is %v", spec.Name, err)
		}
	}
}

// TestOddRows wants a matrix of rows that are no multiple of 32 to be refused as
// Q8_0, and to be left as it is by Quantized.
func TestOddRows(t *testing.T) {
	c := small
	c.Hidden = 33
	const down = "model.layers.0.mlp.down_proj.weight"
	source := llama.Quantized(llama.RandomTensors(c, 1))
	if tensor, err := source(down); err != nil || tensor.Kind != llama.F32 {
		t.Errorf("Quantized made it %v, %v", tensor.Kind, err)
	}
	if _, err := llama.New(c, source); err != nil {
		t.Error(err)
	}
	_, err := llama.New(c, func(name string) (llama.Tensor, error) {
		tensor, err := source(name)
		if name == down {
			tensor.Kind = llama.Q8_0
		}
		return tensor, err
	})
	if !says(err, "tensor "+down+": rows of 33 numbers cannot be stored as Q8_0, which has blocks of 32") {
		t.Error(err)
	}
}

// TestKinds wants the same bits from the same numbers, whatever they are stored
// as.
func TestKinds(t *testing.T) {
	convert := map[llama.Kind]func([]byte, float32) []byte{
		llama.F32: func(b []byte, x float32) []byte {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		},
		llama.BF16: func(b []byte, x float32) []byte {
			return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(x)>>16))
		},
		llama.F16: func(b []byte, x float32) []byte {
			// As a block of Q8_0 has it in its scale: 127 times the scale is x.
			block := llama.QuantizeQ8(nil, slices.Repeat([]float32{x * 127}, 32))
			h := binary.LittleEndian.Uint16(block)
			if x < 0 {
				h |= 0x8000
			}
			return binary.LittleEndian.AppendUint16(b, h)
		},
		llama.Q8_0: nil,
	}
	// Few bits: what every kind can hold.
	source := func(kind llama.Kind) func(string) (llama.Tensor, error) {
		random := llama.RandomTensors(small, 3)
		return func(name string) (llama.Tensor, error) {
			tensor, err := random(name)
			numbers := tensor.Numbers()
			for i := range numbers {
				numbers[i] = float32(math.Round(float64(numbers[i])*16)) / 16
				if i%32 == 0 {
					numbers[i] = 127.0 / 16 // so that the scale of a block is 1/16
				}
			}
			tensor = llama.NewTensor(name, tensor.Shape, numbers)
			if kind == llama.Q8_0 {
				return llama.Quantized(func(string) (llama.Tensor, error) { return tensor, nil })(name)
			}
			tensor.Kind, tensor.Data = kind, nil
			for _, x := range numbers {
				tensor.Data = convert[kind](tensor.Data, x)
			}
			if !slices.Equal(tensor.Numbers(), numbers) {
				t.Fatalf("%v does not hold the numbers of %s", kind, name)
			}
			return tensor, err
		}
	}
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
	var want []float32
	for kind := llama.F32; kind <= llama.Q8_0; kind++ {
		m, err := llama.New(small, source(kind))
		if err != nil {
			t.Fatal(err)
		}
		got := alone(t, m, tokens)
		if want == nil {
			want = got
		}
		same(t, kind.String(), got, want)
	}
}

package llama

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestHalves(t *testing.T) {
	for _, c := range []struct {
		bits uint16
		want float32
	}{
		{0x0000, 0},
		{0x3c00, 1},
		{0xc000, -2},
		{0x3555, 0.333251953125},
		{0x7bff, 65504},
		{0x0400, 0x1p-14},
		{0x0001, 0x1p-24},
		{0x03ff, 1023 * 0x1p-24},
		{0x8001, -0x1p-24},
		{0x7c00, float32(math.Inf(1))},
		{0xfc00, float32(math.Inf(-1))},
	} {
		if got := fromF16(c.bits); got != c.want {
			t.Errorf("%#04x is %v instead of %v", c.bits, got, c.want)
		}
	}
	if x := fromF16(0x7e00); x == x {
		t.Errorf("a NaN is %v", x)
	}
	for bits := range uint32(1 << 16) {
		x := fromF16(uint16(bits))
		if x != x {
			if h := toF16(x); h&0x7c00 != 0x7c00 || h&0x3ff == 0 {
				t.Errorf("NaN %#04x becomes %#04x", bits, h)
			}
		} else if h := toF16(x); h != uint16(bits) {
			t.Errorf("%#04x, %v, becomes %#04x", bits, x, h)
		}
	}
}

// TestNearestHalf wants the nearer of two neighbours, and the even one of what lies
// exactly between them.
func TestNearestHalf(t *testing.T) {
	for low := range uint16(0x7bff) {
		a, b := fromF16(low), fromF16(low+1)
		for _, share := range []float32{0, 0.25, 0.4999, 0.5, 0.5001, 0.75} {
			x := a + (b-a)*share
			want := low
			switch down, up := float64(x)-float64(a), float64(b)-float64(x); {
			case up < down, up == down && low%2 == 1:
				want = low + 1
			}
			if got := toF16(x); got != want {
				t.Fatalf("%v becomes %#04x instead of %#04x", x, got, want)
			}
			if got := toF16(-x); got != want|0x8000 {
				t.Fatalf("%v becomes %#04x instead of %#04x", -x, got, want|0x8000)
			}
		}
	}
	for x, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, 0x1p-26: 0, -0x1p-25: 0x8000} {
		if got := toF16(x); got != want {
			t.Errorf("%v becomes %#04x instead of %#04x", x, got, want)
		}
	}
}

func TestQ8RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.SampledFrom([]float64{1e-5, 1, 1e4}).Draw(t, "scale")
		src := make([]float32, q8Values*rapid.IntRange(1, 4).Draw(t, "blocks"))
		for i := range src {
			src[i] = float32(rapid.Float64Range(-scale, scale).Draw(t, "number"))
		}
		data := quantizeQ8(nil, src)
		if len(data) != Q8_0.Bytes(len(src)) {
			t.Fatalf("%d bytes for %d numbers", len(data), len(src))
		}
		got := make([]float32, len(src))
		dequantizeQ8(got, data)
		for b := 0; b < len(src); b += q8Values {
			most := 0.0
			for _, x := range src[b:][:q8Values] {
				most = max(most, math.Abs(float64(x)))
			}
			// Half a step, and what the scale lost as a half.
			bound := most/127/2 + most*0x1p-11 + 127*0x1p-25
			for i := b; i < b+q8Values; i++ {
				if d := math.Abs(float64(got[i] - src[i])); d > bound {
					t.Fatalf("number %d: %v became %v, which is %v off; at most %v", i, src[i], got[i], d, bound)
				}
			}
		}
	})
}

// TestQ8Layout pins the bytes, which are ggml's.
func TestQ8Layout(t *testing.T) {
	src := make([]float32, q8Values)
	src[0], src[1], src[2], src[31] = 127, -1, 2.5, -126.6
	data := quantizeQ8([]byte{42}, src)
	want := make([]byte, 1+q8Bytes)
	want[0] = 42
	binary.LittleEndian.PutUint16(want[1:], 0x3c00)
	want[3], want[4], want[5], want[34] = 127, 0xff, 3, 0x81
	if string(data) != string(want) {
		t.Errorf("blocks are % x instead of % x", data, want)
	}
	if zero := quantizeQ8(nil, make([]float32, q8Values)); string(zero) != string(make([]byte, q8Bytes)) {
		t.Errorf("zeros are % x", zero)
	}
}

// FuzzQ8 makes a model of one row of blocks of any bytes: it is refused if a scale
// is not finite, and else computes what the widened row does.
func FuzzQ8(f *testing.F) {
	f.Add(quantizeQ8(nil, make([]float32, q8Values)), float32(1))
	f.Add([]byte("an odd length that ends within a block is cut there, is it not?"), float32(-3))
	f.Fuzz(func(t *testing.T, data []byte, x float32) {
		blocks := min(len(data)/q8Bytes, 20)
		if blocks == 0 || x != x || math.IsInf(float64(x), 0) {
			return
		}
		tensor := Tensor{Shape: []int{1, blocks * q8Values}, Kind: Q8_0, Data: data[:blocks*q8Bytes]}
		finite := true
		for b := range blocks {
			finite = finite && data[b*q8Bytes+1]&0x7c != 0x7c
		}
		if err := tensor.check(tensor.Shape); (err == nil) != finite {
			t.Fatalf("finite: %v; error: %v", finite, err)
		} else if err != nil {
			return
		}
		wide := newMatrix(NewTensor("", tensor.Shape, tensor.Numbers()))
		narrow := newMatrix(tensor)
		input := make([]float32, max(5, widenRows)*tensor.Shape[1])
		for i := range input {
			input[i] = x / float32(i+1)
		}
		var scratch [strip * panel]float32
		for _, k := range []*kernels{&plain, fastest} {
			for _, rows := range []int{1, 2, 5, widenRows} {
				got, want := make([]float32, rows*panel), make([]float32, rows*panel)
				narrow.mul(k, got, panel, input, tensor.Shape[1], rows, &scratch)
				wide.mul(&plain, want, panel, input, tensor.Shape[1], rows, &scratch)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
						t.Fatalf("%s, %d rows: sum %d is %v instead of %v", k.name, rows, i, got[i], want[i])
					}
				}
			}
		}
	})
}

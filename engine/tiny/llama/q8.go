package llama

import (
	"encoding/binary"
	"math"
)

// A block of Q8_0, the form of ggml: an F16 scale d and 32 signed bytes q, each
// standing for d·q. Such a product has 19 significant bits and so is exact in
// float32: a matrix of Q8_0 computes the very numbers that its widened form does.
const (
	q8Values = 32
	q8Bytes  = 2 + q8Values
)

// quantizeQ8 appends src as blocks of Q8_0 to dst. The scale of a block is its
// largest magnitude over 127, as ggml has it; len(src) must be a multiple of 32.
func quantizeQ8(dst []byte, src []float32) []byte {
	for ; len(src) > 0; src = src[q8Values:] {
		block := src[:q8Values]
		var most float32
		for _, x := range block {
			most = max(most, float32(math.Abs(float64(x))))
		}
		d := most / 127
		var inverse float32
		if d != 0 {
			inverse = 1 / d
		}
		dst = binary.LittleEndian.AppendUint16(dst, toF16(d))
		for _, x := range block {
			q := math.Round(float64(x * inverse))
			dst = append(dst, byte(int8(min(max(q, -127), 127))))
		}
	}
	return dst
}

// dequantizeQ8 widens len(dst) numbers, a multiple of 32, from blocks of Q8_0.
func dequantizeQ8(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[q8Values:], src[q8Bytes:] {
		d := fromF16(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:q8Bytes] {
			dst[i] = d * float32(int8(q))
		}
	}
}

// Quantized returns the matrices of another source of tensors as Q8_0, if their
// rows are multiples of 32, and its vectors as they are.
func Quantized(tensor func(name string) (Tensor, error)) func(name string) (Tensor, error) {
	return func(name string) (Tensor, error) {
		t, err := tensor(name)
		if err != nil || len(t.Shape) != 2 || t.Shape[1]%q8Values != 0 || t.Kind == Q8_0 {
			return t, err
		}
		t.Data = quantizeQ8(nil, t.Numbers())
		t.Kind = Q8_0
		return t, nil
	}
}

// fromF16 widens an IEEE half.
func fromF16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent, fraction := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // fraction · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// toF16 returns the half that is nearest to x, the even one of two.
func toF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN
		return sign | 0x7e00
	case bits >= 0x477ff000: // 65520 and more
		return sign | 0x7c00
	case bits < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(bits))*0x1p24))
	}
	bits += 0xfff + bits>>13&1
	return sign | uint16(bits>>13-112<<10)
}

package llama

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestKernels wants the same bits from the kernels of this machine and from the
// plain ones, and that nothing beyond the result is written.
func TestKernels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		draw := func(n int, spread float64) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(random.NormFloat64() * spread)
			}
			return x
		}
		both := func(what string, y []float32, f func(k *kernels, y []float32)) {
			got, want := append([]float32(nil), y...), append([]float32(nil), y...)
			f(fastest, got)
			f(&plain, want)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: number %d of %d is %v with kernels %s and %v with plain ones", what, i, len(want), got[i], fastest.name, want[i])
				}
			}
		}

		rows := rapid.IntRange(1, 20).Draw(t, "rows")
		depth := rapid.IntRange(0, 70).Draw(t, "depth")
		columns := rapid.IntRange(1, 70).Draw(t, "columns")
		gap := rapid.IntRange(0, 3).Draw(t, "gap")
		pages := blocksOf(random, rapid.IntRange(1, 5).Draw(t, "pages"))
		n := len(pages)
		p := product{
			as: depth + gap, bs: columns + gap, rows: rows, depth: depth, columns: columns,
			pages: pages[:rapid.IntRange(0, n).Draw(t, "pages used")], page: depth*(columns+gap) + gap,
		}
		switch {
		case n == 1:
		case rapid.Bool().Draw(t, "keys"):
			p.cPage = columns
		default:
			p.aPage = depth
		}
		p.cs = len(pages)*p.cPage + columns + gap
		p.as = len(pages)*p.aPage + depth + gap
		p.a = draw(rows*p.as, 1)
		p.b = draw(n*p.page+gap, 1)
		both("mulAdd", draw(rows*p.cs, 1), func(k *kernels, y []float32) {
			p := p
			p.c = y
			k.mulAdd(p)
		})

		blocks := rapid.IntRange(1, 5).Draw(t, "blocks")
		bytes := make([]int8, blocks*q8Values*panel)
		for i := range bytes {
			bytes[i] = int8(random.Uint32())
		}
		scales := draw(blocks*panel, 0.01)
		depth = blocks * q8Values
		a := draw(rows*(depth+gap), 1)
		both("mulAdd8", draw(rows*(panel+gap), 1), func(k *kernels, y []float32) {
			k.mulAdd8(y, panel+gap, a, depth+gap, bytes, scales, rows, depth)
		})
		both("widen", draw(blocks*q8Values*panel, 1), func(k *kernels, y []float32) {
			k.widen(y, bytes, scales)
		})

		n = rapid.IntRange(1, 70).Draw(t, "numbers")
		spread := rapid.SampledFrom([]float64{0.1, 10, 1000}).Draw(t, "spread")
		both("exps", append(draw(n, spread), 0), func(k *kernels, y []float32) {
			y[n] = k.exps(y[:n])
		})
		up := draw(n, 1)
		both("swiglu", draw(n, spread), func(k *kernels, y []float32) {
			k.swiglu(y, up)
		})
	})
}

// blocksOf returns the numbers below n in random order.
func blocksOf(random *rand.Rand, n int) []int32 {
	var list []int32
	for _, i := range random.Perm(n) {
		list = append(list, int32(i))
	}
	return list
}

func TestExp(t *testing.T) {
	for x := float32(-87); x <= 88; x += 0x1p-10 {
		got, want := float64(exp(x)), math.Exp(float64(x))
		if !(math.Abs(got/want-1) < 2*0x1p-23) {
			t.Fatalf("exp(%v) is %v instead of %v", x, got, want)
		}
	}
	for _, c := range []struct{ x, want float32 }{
		{0, 1},
		{-1e30, exp(-87)},
		{float32(math.Inf(-1)), exp(-87)},
		{1e30, exp(88)},
	} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) is %v instead of %v", c.x, got, c.want)
		}
	}
	if x := exp(float32(math.NaN())); x == x {
		t.Errorf("exp(NaN) is %v", x)
	}
}

// TestNaN wants a NaN to come out of every kernel that one goes into, so that a
// model whose sums overflow does not seem to know what it says.
func TestNaN(t *testing.T) {
	for _, k := range []*kernels{&plain, fastest} {
		for at := range 19 {
			numbers := func() []float32 {
				x := make([]float32, 19)
				x[at] = float32(math.NaN())
				return x
			}
			x := numbers()
			if sum := k.exps(x); x[at] == x[at] || sum == sum {
				t.Errorf("%s: the exponential of NaN is %v, the sum %v", k.name, x[at], sum)
			}
			x = numbers()
			k.swiglu(x, make([]float32, 19))
			if x[at] == x[at] {
				t.Errorf("%s: swiglu of NaN is %v", k.name, x[at])
			}
			sums := make([]float32, 19)
			k.mulAdd(product{c: sums, a: []float32{1}, b: numbers(), rows: 1, depth: 1, columns: 19, pages: whole})
			if sums[at] == sums[at] {
				t.Errorf("%s: a product with NaN is %v", k.name, sums[at])
			}
		}
	}
}

func TestSincos(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		x := float64(float32(random.Float64() * math.Pow(2, random.Float64()*28)))
		sin, cos := sincos(x)
		wantSin, wantCos := math.Sincos(x)
		if !(math.Abs(sin-wantSin) < 0x1p-48 && math.Abs(cos-wantCos) < 0x1p-48) {
			t.Fatalf("sincos(%v) is %v, %v instead of %v, %v", x, sin, cos, wantSin, wantCos)
		}
	}
}

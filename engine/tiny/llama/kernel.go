package llama

import "math"

// kernels are the loops that take all of the time. All sets of them give the
// same bits: each product and each sum is rounded to float32 on its own, and the
// terms of a sum are added in the order given here. The plain set is that of
// every platform and the definition of the others.
type kernels struct {
	name string

	mulAdd func(product)

	// mulAdd8 is mulAdd where b is one panel of Q8_0.
	mulAdd8 func(c []float32, cs int, a []float32, as int, bytes []int8, scales []float32, rows, depth int)

	// widen writes a strip of Q8_0 as floats.
	widen func(dst []float32, bytes []int8, scales []float32)

	// exps replaces each x by its exponential over that of the greatest and
	// returns their sum: eight sums, of the terms whose index has the same
	// remainder, added in pairs.
	exps func(x []float32) float32

	// swiglu replaces each gate by silu(gate)·up.
	swiglu func(gate, up []float32)
}

// product is a matrix product that is added to sums: to c[r][j] the terms
// a[r][i]·b[i][j], in the order of i.
//
// It is done for one page of b after the other, in each of which c and a move on.
// Pages are the blocks of a cache. Over keys, c moves from the scores of one block
// to those of the next; over values, a moves and the sums go on.
type product struct {
	c, a, b              []float32
	cs, as, bs           int // floats from one row to the next
	rows, depth, columns int // depth is the number of terms

	pages              []int32
	page, cPage, aPage int // floats from one page to the next
}

// whole is the list of pages of a matrix that has only one.
var whole = []int32{0}

var plain = kernels{
	name:    "plain",
	mulAdd:  plainMulAdd,
	mulAdd8: plainMulAdd8,
	widen:   plainWiden,
	exps:    plainExps,
	swiglu:  plainSwiglu,
}

// The conversions to float32 in these loops are what keeps a compiler from
// fusing a multiplication with the addition that follows.

func plainMulAdd(p product) {
	for n, page := range p.pages {
		b := p.b[int(page)*p.page:]
		for r := range p.rows {
			plainRow(p.c[n*p.cPage+r*p.cs:][:p.columns], p.a[n*p.aPage+r*p.as:][:p.depth], b, p.bs)
		}
	}
}

func plainRow(y, x, b []float32, bs int) {
	j := 0
	for ; j+8 <= len(y); j += 8 {
		s := (*[8]float32)(y[j:])
		s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		at := j
		for _, x := range x {
			// In two parts, for a compiler that multiplies all before it adds would
			// run out of registers.
			w := (*[4]float32)(b[at:])
			s0 += float32(x * w[0])
			s1 += float32(x * w[1])
			s2 += float32(x * w[2])
			s3 += float32(x * w[3])
			w = (*[4]float32)(b[at+4:])
			s4 += float32(x * w[0])
			s5 += float32(x * w[1])
			s6 += float32(x * w[2])
			s7 += float32(x * w[3])
			at += bs
		}
		s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7] = s0, s1, s2, s3, s4, s5, s6, s7
	}
	for ; j < len(y); j++ {
		sum := y[j]
		for i, x := range x {
			sum += float32(x * b[i*bs+j])
		}
		y[j] = sum
	}
}

func plainMulAdd8(c []float32, cs int, a []float32, as int, bytes []int8, scales []float32, rows, depth int) {
	for r := range rows {
		for i := 0; i < depth; i += q8Values {
			plainRow8((*[panel]float32)(c[r*cs:]), (*[q8Values]float32)(a[r*as+i:]), bytes[i*panel:], scales[i/q8Values*panel:])
		}
	}
}

// plainRow8 adds the products of one block of inputs.
func plainRow8(y *[panel]float32, x *[q8Values]float32, bytes []int8, scales []float32) {
	for j := 0; j < panel; j += 4 {
		s, d := (*[4]float32)(y[j:]), (*[4]float32)(scales[j:])
		s0, s1, s2, s3 := s[0], s[1], s[2], s[3]
		d0, d1, d2, d3 := d[0], d[1], d[2], d[3]
		at := j
		for _, x := range x {
			q := (*[4]int8)(bytes[at:])
			s0 += float32(x * (d0 * floats[uint8(q[0])]))
			s1 += float32(x * (d1 * floats[uint8(q[1])]))
			s2 += float32(x * (d2 * floats[uint8(q[2])]))
			s3 += float32(x * (d3 * floats[uint8(q[3])]))
			at += panel
		}
		s[0], s[1], s[2], s[3] = s0, s1, s2, s3
	}
}

func plainWiden(dst []float32, bytes []int8, scales []float32) {
	for ; len(dst) > 0; dst, bytes, scales = dst[q8Values*panel:], bytes[q8Values*panel:], scales[panel:] {
		for j := 0; j < panel; j += 4 {
			d := (*[4]float32)(scales[j:])
			d0, d1, d2, d3 := d[0], d[1], d[2], d[3]
			for at := j; at < q8Values*panel; at += panel {
				to, q := (*[4]float32)(dst[at:]), (*[4]int8)(bytes[at:])
				to[0] = d0 * floats[uint8(q[0])]
				to[1] = d1 * floats[uint8(q[1])]
				to[2] = d2 * floats[uint8(q[2])]
				to[3] = d3 * floats[uint8(q[3])]
			}
		}
	}
}

// floats are the signed bytes as floats: looking one up takes half the time of
// converting it.
var floats = func() (table [256]float32) {
	for i := range table {
		table[i] = float32(int8(i))
	}
	return table
}()

func plainExps(x []float32) float32 {
	most := x[0]
	for _, v := range x {
		if v > most {
			most = v
		}
	}
	var sums [8]float32
	for i, v := range x {
		e := exp(v - most)
		x[i] = e
		sums[i%8] += e
	}
	return pairs(&sums)
}

// pairs adds eight sums as a vector does that is folded in halves.
func pairs(s *[8]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func plainSwiglu(gate, up []float32) {
	up = up[:len(gate)]
	for i, g := range gate {
		gate[i] = g / (1 + exp(-g)) * up[i]
	}
}

// exp returns e to the x to within two units of the last place; x is taken to be
// at least -87 and at most 88, which keeps the result a normal number.
func exp(x float32) float32 {
	if x < expLeast {
		x = expLeast
	}
	if x > expMost {
		x = expMost
	}
	// x = n·ln 2 + r. Adding 1.5·2^23 leaves n in the lowest bits.
	t := float32(x*expLog2) + expRound
	n := t - expRound
	r := x - float32(n*expLn2High)
	r -= float32(n * expLn2Low)
	p := float32(exp7)
	p = float32(p*r) + exp6
	p = float32(p*r) + exp5
	p = float32(p*r) + exp4
	p = float32(p*r) + exp3
	p = float32(p*r) + exp2
	p = float32(p*r) + 1
	p = float32(p*r) + 1
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

const (
	expLeast   = -87
	expMost    = 88
	expLog2    = 1.44269504088896341
	expRound   = 3 << 22
	expLn2High = 355.0 / 512 // nine bits: its product with n is exact
	expLn2Low  = 0.693147180559945309417 - expLn2High

	exp2, exp3, exp4, exp5, exp6, exp7 = 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040
)

// normalize writes x over its root mean square, times the weights. The squares
// are added as exps adds.
func normalize(y, x, weights []float32, eps float32) {
	y, weights = y[:len(x)], weights[:len(x)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		v := (*[8]float32)(x[i:])
		s0 += float32(v[0] * v[0])
		s1 += float32(v[1] * v[1])
		s2 += float32(v[2] * v[2])
		s3 += float32(v[3] * v[3])
		s4 += float32(v[4] * v[4])
		s5 += float32(v[5] * v[5])
		s6 += float32(v[6] * v[6])
		s7 += float32(v[7] * v[7])
	}
	sums := [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	for j, v := range x[i:] {
		sums[j] += float32(v * v)
	}
	scale := 1 / float32(math.Sqrt(float64(pairs(&sums)/float32(len(x))+eps)))
	for i, v := range x {
		y[i] = float32(v*scale) * weights[i]
	}
}

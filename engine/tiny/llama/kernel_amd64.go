package llama

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// fastest is the set of kernels of this machine.
var fastest = choose(cpu.X86.HasAVX2)

func choose(hasAVX2 bool) *kernels {
	if hasAVX2 {
		return &avx2
	}
	return &plain
}

var avx2 = kernels{
	name:    "avx2",
	mulAdd:  avx2MulAdd,
	mulAdd8: avx2MulAdd8,
	widen:   avx2Widen,
	exps:    avx2Exps,
	swiglu:  avx2Swiglu,
}

// avx2MulAdd covers the sums with tiles of six, four, two or one row by 16
// columns, and of one row by 32 or 8. Columns that fill no vector are left to the
// plain loop.
func avx2MulAdd(p product) {
	if p.depth == 0 || p.rows == 0 || len(p.pages) == 0 {
		return
	}
	// The last of what the tiles touch, for they check nothing.
	pages := len(p.pages) - 1
	_ = p.c[pages*p.cPage+(p.rows-1)*p.cs+p.columns-1]
	_ = p.a[pages*p.aPage+(p.rows-1)*p.as+p.depth-1]
	_ = p.b[int(slices.Max(p.pages))*p.page+(p.depth-1)*p.bs+p.columns-1]
	_ = p.b[int(slices.Min(p.pages))*p.page]

	tiled := p.columns &^ 15
	for r := 0; r < p.rows; {
		c, a := p.c[r*p.cs:], &p.a[r*p.as]
		switch left := p.rows - r; {
		case left >= 6:
			for j := 0; j < tiled; j += 16 {
				mulAdd6x16(&p, &c[j], a, &p.b[j])
			}
			r += 6
		case left >= 4:
			for j := 0; j < tiled; j += 16 {
				mulAdd4x16(&p, &c[j], a, &p.b[j])
			}
			r += 4
		case left >= 2:
			for j := 0; j < tiled; j += 16 {
				mulAdd2x16(&p, &c[j], a, &p.b[j])
			}
			r += 2
		default:
			j := 0
			for ; j+32 <= tiled; j += 32 {
				mulAdd1x32(&p, &c[j], a, &p.b[j])
			}
			if j < tiled {
				mulAdd1x16(&p, &c[j], a, &p.b[j])
			}
			r++
		}
	}
	if tiled+8 <= p.columns {
		for r := range p.rows {
			mulAdd1x8(&p, &p.c[r*p.cs+tiled], &p.a[r*p.as], &p.b[tiled])
		}
		tiled += 8
	}
	if tiled < p.columns {
		rest := p
		rest.c, rest.b, rest.columns = p.c[tiled:], p.b[tiled:], p.columns-tiled
		plainMulAdd(rest)
	}
}

func avx2MulAdd8(c []float32, cs int, a []float32, as int, bytes []int8, scales []float32, rows, depth int) {
	blocks := depth / q8Values
	if blocks == 0 || rows == 0 {
		return
	}
	_ = c[(rows-1)*cs+panel-1]
	_ = a[(rows-1)*as+depth-1]
	_, _ = bytes[depth*panel-1], scales[blocks*panel-1]

	for r := 0; r < rows; {
		c, a := c[r*cs:], &a[r*as]
		switch left := rows - r; {
		case left >= 4:
			mulAddQ8x4(&c[0], cs, a, as, &bytes[0], &scales[0], blocks)
			mulAddQ8x4(&c[16], cs, a, as, &bytes[16], &scales[16], blocks)
			r += 4
		case left >= 2:
			mulAddQ8x2(&c[0], cs, a, as, &bytes[0], &scales[0], blocks)
			mulAddQ8x2(&c[16], cs, a, as, &bytes[16], &scales[16], blocks)
			r += 2
		default:
			mulAddQ8x1(&c[0], a, blocks, &bytes[0], &scales[0])
			r++
		}
	}
}

func avx2Widen(dst []float32, bytes []int8, scales []float32) {
	blocks := len(dst) / (q8Values * panel)
	if blocks == 0 {
		return
	}
	_, _ = bytes[len(dst)-1], scales[blocks*panel-1]
	widenQ8(&dst[0], blocks, &bytes[0], &scales[0])
}

func avx2Exps(x []float32) float32 {
	vectors := len(x) / 8
	if vectors == 0 {
		return plainExps(x)
	}
	var lanes, sums [8]float32
	lanes = [8]float32(x)
	maxAVX2(&x[0], vectors, &lanes)
	most, rest := lanes[0], x[8*vectors:]
	for _, v := range lanes[1:] {
		if v > most {
			most = v
		}
	}
	for _, v := range rest {
		if v > most {
			most = v
		}
	}
	expsAVX2(&x[0], vectors, most, &sums, &expTable)
	for i, v := range rest {
		e := exp(v - most)
		rest[i] = e
		sums[i] += e
	}
	return pairs(&sums)
}

func avx2Swiglu(gate, up []float32) {
	vectors := len(gate) / 8
	if vectors > 0 {
		_ = up[8*vectors-1]
		swigluAVX2(&gate[0], &up[0], vectors, &expTable)
	}
	plainSwiglu(gate[8*vectors:], up[8*vectors:])
}

// expTable has the constants of exp for EXP of kernel_amd64.s, each eight times.
var expTable = eightfold(
	expLog2, expRound, expLn2High, expLn2Low,
	exp7, exp6, exp5, exp4, exp3, exp2, 1,
	expLeast, expMost,
)

func eightfold(constants ...float32) (table [13][8]float32) {
	for i, x := range constants {
		for j := range table[i] {
			table[i][j] = x
		}
	}
	return table
}

//go:noescape
func mulAdd6x16(p *product, c, a, b *float32)

//go:noescape
func mulAdd4x16(p *product, c, a, b *float32)

//go:noescape
func mulAdd2x16(p *product, c, a, b *float32)

//go:noescape
func mulAdd1x16(p *product, c, a, b *float32)

//go:noescape
func mulAdd1x32(p *product, c, a, b *float32)

//go:noescape
func mulAdd1x8(p *product, c, a, b *float32)

//go:noescape
func mulAddQ8x4(c *float32, cs int, a *float32, as int, bytes *int8, scales *float32, blocks int)

//go:noescape
func mulAddQ8x2(c *float32, cs int, a *float32, as int, bytes *int8, scales *float32, blocks int)

//go:noescape
func mulAddQ8x1(c *float32, a *float32, blocks int, bytes *int8, scales *float32)

//go:noescape
func widenQ8(dst *float32, blocks int, bytes *int8, scales *float32)

//go:noescape
func maxAVX2(x *float32, vectors int, most *[8]float32)

//go:noescape
func expsAVX2(x *float32, vectors int, most float32, sums *[8]float32, constants *[13][8]float32)

//go:noescape
func swigluAVX2(gate, up *float32, vectors int, constants *[13][8]float32)

package llama

// panel is how many outputs of a matrix lie side by side.
const panel = 32

// strip is how many inputs of a panel of Q8_0 are widened at a time for several
// rows: 128·32 floats are 16 KiB and stay in a core's first cache.
const strip = 128

// widenRows is from how many rows on it pays to widen a strip of Q8_0 before it
// is multiplied.
const widenRows = 12

// matrix has the weights of a linear layer in panels of 32 outputs: for each
// input, the weights of the panel's outputs side by side. A kernel broadcasts an
// input and adds its products to 32 sums at once. The last panel is filled up
// with zeros.
type matrix struct {
	outputs, inputs int
	bias            []float32 // nil if there is none

	wide []float32 // F32: [panel][input][32]

	bytes8 []int8    // Q8_0: [panel][input][32]
	scales []float32 // Q8_0: [panel][block of 32 inputs][32]
}

// newMatrix packs a tensor that has been checked.
func newMatrix(t Tensor) *matrix {
	m := &matrix{outputs: t.Shape[0], inputs: t.Shape[1]}
	padded := m.panels() * panel
	if t.Kind != Q8_0 {
		m.wide = make([]float32, padded*m.inputs)
		row := make([]float32, m.inputs)
		for o := range m.outputs {
			t.read(row, o*m.inputs)
			to := m.wide[o/panel*panel*m.inputs+o%panel:]
			for i, x := range row {
				to[i*panel] = x
			}
		}
		return m
	}
	blocks := m.inputs / q8Values
	m.bytes8 = make([]int8, padded*m.inputs)
	m.scales = make([]float32, padded*blocks)
	for o := range m.outputs {
		row := t.Data[o*blocks*q8Bytes:][:blocks*q8Bytes]
		bytes := m.bytes8[o/panel*panel*m.inputs+o%panel:]
		scales := m.scales[o/panel*panel*blocks+o%panel:]
		for b := range blocks {
			block := row[b*q8Bytes:][:q8Bytes]
			scales[b*panel] = fromF16(uint16(block[0]) | uint16(block[1])<<8)
			for i, q := range block[2:] {
				bytes[(b*q8Values+i)*panel] = int8(q)
			}
		}
	}
	return m
}

func (m *matrix) panels() int { return (m.outputs + panel - 1) / panel }

func (m *matrix) bytes() int {
	return 4*len(m.wide) + len(m.bytes8) + 4*len(m.scales) + 4*len(m.bias)
}

// row widens the weights of one output.
func (m *matrix) row(dst []float32, output int) {
	if m.wide != nil {
		from := m.wide[output/panel*panel*m.inputs+output%panel:]
		for i := range dst {
			dst[i] = from[i*panel]
		}
		return
	}
	bytes := m.bytes8[output/panel*panel*m.inputs+output%panel:]
	scales := m.scales[output/panel*panel*(m.inputs/q8Values)+output%panel:]
	for i := range dst {
		dst[i] = float32(bytes[i*panel]) * scales[i/q8Values*panel]
	}
}

// mul computes y = x·mᵀ + bias for some rows. Rows of x and y are xs and ys
// floats apart, and those of y have room for whole panels.
func (m *matrix) mul(k *kernels, y []float32, ys int, x []float32, xs, rows int, wide *[strip * panel]float32) {
	for r := range rows {
		clear(y[r*ys:][:m.panels()*panel])
	}
	for p := range m.panels() {
		m.mulPanel(k, p, y[p*panel:], ys, x, xs, rows, wide)
	}
	if m.bias == nil {
		return
	}
	for r := range rows {
		row := y[r*ys:][:len(m.bias)]
		for i, b := range m.bias {
			row[i] += b
		}
	}
}

// mulPanel adds one panel's products to the sums in y.
func (m *matrix) mulPanel(k *kernels, p int, y []float32, ys int, x []float32, xs, rows int, wide *[strip * panel]float32) {
	if m.wide != nil {
		k.mulAdd(product{
			c: y, cs: ys, a: x, as: xs, b: m.wide[p*panel*m.inputs:], bs: panel,
			rows: rows, depth: m.inputs, columns: panel, pages: whole,
		})
		return
	}
	bytes := m.bytes8[p*panel*m.inputs:][:panel*m.inputs]
	scales := m.scales[p*panel*(m.inputs/q8Values):]
	if rows < widenRows {
		k.mulAdd8(y, ys, x, xs, bytes, scales, rows, m.inputs)
		return
	}
	for i := 0; i < m.inputs; i += strip {
		n := min(strip, m.inputs-i)
		k.widen(wide[:n*panel], bytes[i*panel:], scales[i/q8Values*panel:])
		k.mulAdd(product{
			c: y, cs: ys, a: x[i:], as: xs, b: wide[:], bs: panel,
			rows: rows, depth: n, columns: panel, pages: whole,
		})
	}
}

package llama

// attentionRows is how many queries share a pass over the keys.
const attentionRows = 6

// attend writes what each head of each row reads from the cache to h. Blocks are
// read where they lie.
//
// Queries that look at the same keys go together: neighbouring rows of a prompt
// under one head or, for a row that is alone, the heads of a group.
func (m *Model) attend(c *Cache, layer int) {
	t := &c.tile
	size, group := m.cfg.HeadSize, m.cfg.Heads/m.cfg.KVHeads
	for i := 0; i < len(t.rows); {
		first := t.rows[i]
		n := 1
		for n < attentionRows && i+n < len(t.rows) && t.rows[i+n].span == first.span {
			n++
		}
		for kv := range m.cfg.KVHeads {
			if n == 1 {
				for g := 0; g < group; g += attentionRows {
					at := (kv*group + g) * size
					m.look(c, layer, kv, first.span.Blocks, look{
						q: t.q[i*t.width+at:], qs: size, y: t.h[i*t.width+at:], ys: size,
						n: min(attentionRows, group-g), position: first.position,
					})
				}
				continue
			}
			for g := range group {
				at := (kv*group + g) * size
				m.look(c, layer, kv, first.span.Blocks, look{
					q: t.q[i*t.width+at:], qs: t.width, y: t.h[i*t.width+at:], ys: t.width,
					n: n, position: first.position, step: 1,
				})
			}
		}
		i += n
	}
}

// look is n queries, and where what they find goes. The first sees the positions
// up to its own, each further one step more.
type look struct {
	q, y           []float32
	qs, ys         int // floats from one query to the next
	n              int
	position, step int
}

func (m *Model) look(c *Cache, layer, kv int, blocks []int32, l look) {
	t, size, bs := &c.tile, m.cfg.HeadSize, c.blockSize
	last := l.position + l.step*(l.n-1)
	blocks = blocks[:last/bs+1]

	for i := range l.n {
		clear(t.scores[i*t.positions:][:len(blocks)*bs])
	}
	for b, block := range blocks {
		m.kernels.mulAdd(t.scores[b*bs:], t.positions, l.q, l.qs, c.keys(block, layer, kv), bs, l.n, size, bs)
	}
	var inverse [attentionRows]float32
	for i := range l.n {
		s := t.scores[i*t.positions:][:l.position+l.step*i+1]
		inverse[i] = 1 / m.kernels.exps(s)
		clear(l.y[i*l.ys:][:size])
	}
	for b, block := range blocks {
		values := c.values(block, layer, kv)
		// The positions that all see, then those that only later rows do.
		all := min(l.position+1-b*bs, bs)
		if all > 0 {
			m.kernels.mulAdd(l.y, l.ys, t.scores[b*bs:], t.positions, values, size, l.n, all, size)
		}
		all = max(all, 0)
		for i := 1; i < l.n && l.step > 0; i++ {
			if more := min(l.position+i+1-b*bs, bs) - all; more > 0 {
				m.kernels.mulAdd(l.y[i*l.ys:], 0, t.scores[i*t.positions+b*bs+all:], 0, values[all*size:], size, 1, more, size)
			}
		}
	}
	for i := range l.n {
		y := l.y[i*l.ys:][:size]
		for j := range y {
			y[j] *= inverse[i]
		}
	}
}

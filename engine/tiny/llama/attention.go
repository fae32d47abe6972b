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
	blocks = blocks[:(l.position+l.step*(l.n-1))/bs+1]

	for i := range l.n {
		clear(t.scores[i*t.positions:][:len(blocks)*bs])
	}
	m.kernels.mulAdd(product{
		c: t.scores, cs: t.positions, cPage: bs,
		a: l.q, as: l.qs,
		b: c.keys(layer, kv), bs: bs, page: c.stride, pages: blocks,
		rows: l.n, depth: size, columns: bs,
	})
	var inverse [attentionRows]float32
	for i := range l.n {
		inverse[i] = 1 / m.kernels.exps(t.scores[i*t.positions:][:l.position+l.step*i+1])
		clear(l.y[i*l.ys:][:size])
	}

	// First the blocks that all queries see whole, then what they see of the
	// others: the positions that all of them see, then those that only later ones
	// do.
	values := product{
		c: l.y, cs: l.ys,
		a: t.scores, as: t.positions, aPage: bs,
		b: c.values(layer, kv), bs: size, page: c.stride,
		rows: l.n, depth: bs, columns: size,
	}
	full := (l.position + 1) / bs
	values.pages = blocks[:full]
	m.kernels.mulAdd(values)
	for b := full; b < len(blocks); b++ {
		values.pages = blocks[b:][:1]
		all := max(0, l.position+1-b*bs)
		rest := values
		rest.a, rest.depth = t.scores[b*bs:], all
		m.kernels.mulAdd(rest)
		rest.b, rest.rows = values.b[all*size:], 1
		for i := 1; i < l.n && l.step > 0; i++ {
			rest.c, rest.a = l.y[i*l.ys:], t.scores[i*t.positions+b*bs+all:]
			rest.depth = max(0, min(l.position+i+1-b*bs, bs)-all)
			m.kernels.mulAdd(rest)
		}
	}
	for i := range l.n {
		y := l.y[i*l.ys:][:size]
		for j := range y {
			y[j] *= inverse[i]
		}
	}
}

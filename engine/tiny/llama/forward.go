package llama

import (
	"fmt"
	"math"
)

// Span is a run of positions of one request that a pass computes: a part of its
// prompt, or the one token that it said last.
type Span struct {
	// Tokens are the ids at the positions from Start on.
	Tokens []uint32
	Start  int
	// Blocks are the request's blocks in the cache, from position 0 to the last
	// one of the span at least. Those before Start must have been computed, by an
	// earlier pass or by spans that stand before this one in the same pass; the
	// keys and values of the span are written to theirs.
	Blocks []int32
	// Logits, unless it is empty, receives a row of Vocab numbers for each of the
	// span's last len(Logits)/Vocab positions.
	Logits []float32
}

// Forward computes the spans, prefills and decodes together. Nothing is written
// if a span is not valid; the error says which and why.
//
// The numbers of a position depend on the tokens up to it and on nothing else.
func (m *Model) Forward(c *Cache, spans []Span) error {
	if c.model != m {
		return fmt.Errorf("llama: the cache is that of another model")
	}
	for i := range spans {
		if err := m.check(c, &spans[i]); err != nil {
			return fmt.Errorf("llama: span %d of %d: %w", i, len(spans), err)
		}
	}
	t := &c.tile
	t.rows = t.rows[:0]
	for i := range spans {
		s := &spans[i]
		quiet := len(s.Tokens) - len(s.Logits)/m.cfg.Vocab
		for j, token := range s.Tokens {
			r := row{span: s, position: s.Start + j, token: token}
			if j >= quiet {
				r.logits = s.Logits[(j-quiet)*m.cfg.Vocab:][:m.cfg.Vocab]
			}
			if t.rows = append(t.rows, r); len(t.rows) == tileRows {
				m.run(c)
			}
		}
	}
	if len(t.rows) > 0 {
		m.run(c)
	}
	return nil
}

func (m *Model) check(c *Cache, s *Span) error {
	end := s.Start + len(s.Tokens)
	need := (end + c.blockSize - 1) / c.blockSize
	switch {
	case len(s.Tokens) == 0:
		return fmt.Errorf("no tokens")
	case s.Start < 0 || s.Start > m.cfg.Context-len(s.Tokens):
		return fmt.Errorf("%d tokens from position %d on; the context is %d", len(s.Tokens), s.Start, m.cfg.Context)
	case len(s.Blocks) < need:
		return fmt.Errorf("%d blocks of %d positions; %d positions need %d", len(s.Blocks), c.blockSize, end, need)
	case need > c.blocks:
		return fmt.Errorf("%d positions need %d blocks; the cache has %d", end, need, c.blocks)
	case len(s.Logits)%m.cfg.Vocab != 0 || len(s.Logits)/m.cfg.Vocab > len(s.Tokens):
		return fmt.Errorf("room for %d logits; it must be that of 0 to %d rows of %d", len(s.Logits), len(s.Tokens), m.cfg.Vocab)
	}
	for i, t := range s.Tokens {
		if uint64(t) >= uint64(m.cfg.Vocab) {
			return fmt.Errorf("token %d at position %d; the vocabulary has %d", t, s.Start+i, m.cfg.Vocab)
		}
	}
	for i, b := range s.Blocks[:need] {
		if b < 0 || int(b) >= c.blocks {
			return fmt.Errorf("block %d is number %d of the cache, which has %d", i, b, c.blocks)
		}
	}
	return nil
}

// tileRows is how many rows go through the layers together. Rows of one span
// that lie in different tiles meet in the cache only, so a longer tile saves
// nothing but the widening of weights, and a short one stays in a core's cache.
const tileRows = 48

// row is one position to compute.
type row struct {
	span     *Span
	position int
	token    uint32
	logits   []float32 // nil: not wanted
}

// tile is the scratch memory of a pass: rows and their activations, each row
// padded to whole panels.
type tile struct {
	rows []row

	x, h          []float32 // the residual stream, and what a layer adds to it
	q, k, v       []float32
	gate, up      []float32
	width, kv, ff int // floats from one row to the next

	scores    []float32 // attentionRows rows
	positions int       // floats from one row of scores to the next

	wide [strip * panel]float32
}

func padded(n int) int { return (n + panel - 1) / panel * panel }

func newTile(m *Model, positions, blockSize int) tile {
	c := &m.cfg
	t := tile{
		rows:      make([]row, 0, tileRows),
		width:     padded(max(c.Width, c.Heads*c.HeadSize)),
		kv:        padded(c.KVHeads * c.HeadSize),
		ff:        padded(c.Hidden),
		positions: padded(positions + blockSize),
	}
	for _, s := range []struct {
		of     *[]float32
		stride int
	}{
		{&t.x, t.width},
		{&t.h, t.width},
		{&t.q, t.width},
		{&t.k, t.kv},
		{&t.v, t.kv},
		{&t.gate, t.ff},
		{&t.up, t.ff},
	} {
		*s.of = make([]float32, tileRows*s.stride)
	}
	t.scores = make([]float32, attentionRows*t.positions)
	return t
}

// run takes the rows of the tile through the model and empties it.
func (m *Model) run(c *Cache) {
	t := &c.tile
	for i, r := range t.rows {
		m.embedding.row(t.x[i*t.width:][:m.cfg.Width], int(r.token))
	}
	for l := range m.layers {
		m.attention(c, l)
		if len(t.rows) == 0 {
			return
		}
		m.feedForward(t, &m.layers[l])
	}
	m.logits(t)
	t.rows = t.rows[:0]
}

// attention adds what the rows see in one another's past to the residual stream.
// In the last layer, rows whose logits nobody wants leave the tile when their
// keys and values are stored.
func (m *Model) attention(c *Cache, l int) {
	t, w, n := &c.tile, &m.layers[l], len(c.tile.rows)
	m.normalize(t, w.attentionNorm)
	w.k.mul(m.kernels, t.k, t.kv, t.h, t.width, n, &t.wide)
	w.v.mul(m.kernels, t.v, t.kv, t.h, t.width, n, &t.wide)
	kv := m.cfg.KVHeads * m.cfg.HeadSize
	for i, r := range t.rows {
		key, value := t.k[i*t.kv:][:kv], t.v[i*t.kv:][:kv]
		m.rope.turn(key, r.position, 1)
		c.store(r.span.Blocks[r.position/c.blockSize], r.position%c.blockSize, l, key, value)
	}
	if l == m.cfg.Layers-1 {
		t.keepWanted()
	}
	n = len(t.rows)
	w.q.mul(m.kernels, t.q, t.width, t.h, t.width, n, &t.wide)
	scale := 1 / float32(math.Sqrt(float64(m.cfg.HeadSize)))
	for i, r := range t.rows {
		m.rope.turn(t.q[i*t.width:][:m.cfg.Heads*m.cfg.HeadSize], r.position, scale)
	}
	m.attend(c, l)
	// The heads' answers are in h; what the layer makes of them goes where the
	// queries were.
	w.o.mul(m.kernels, t.q, t.width, t.h, t.width, n, &t.wide)
	t.add(t.q, t.width, m.cfg.Width)
}

func (m *Model) feedForward(t *tile, w *layer) {
	n := len(t.rows)
	m.normalize(t, w.hiddenNorm)
	w.gate.mul(m.kernels, t.gate, t.ff, t.h, t.width, n, &t.wide)
	w.up.mul(m.kernels, t.up, t.ff, t.h, t.width, n, &t.wide)
	for i := range t.rows {
		m.kernels.swiglu(t.gate[i*t.ff:][:m.cfg.Hidden], t.up[i*t.ff:])
	}
	w.down.mul(m.kernels, t.h, t.width, t.gate, t.ff, n, &t.wide)
	t.add(t.h, t.width, m.cfg.Width)
}

// logits gives each row that is left its logits, a panel of the vocabulary at a
// time.
func (m *Model) logits(t *tile) {
	n := len(t.rows)
	m.normalize(t, m.norm)
	for p := range m.output.panels() {
		sums := t.gate[:n*panel]
		clear(sums)
		m.output.mulPanel(m.kernels, p, sums, panel, t.h, t.width, n, &t.wide)
		for i, r := range t.rows {
			copy(r.logits[p*panel:], sums[i*panel:][:panel])
		}
	}
}

func (m *Model) normalize(t *tile, weights []float32) {
	for i := range t.rows {
		normalize(t.h[i*t.width:], t.x[i*t.width:][:m.cfg.Width], weights, m.cfg.NormEps)
	}
}

// add adds rows to the residual stream.
func (t *tile) add(y []float32, stride, width int) {
	for i := range t.rows {
		x, y := t.x[i*t.width:][:width], y[i*stride:][:width]
		for j, v := range y {
			x[j] += v
		}
	}
}

// keepWanted drops the rows without logits from x, h and the tile.
func (t *tile) keepWanted() {
	n := 0
	for i, r := range t.rows {
		if r.logits == nil {
			continue
		}
		if n < i {
			t.rows[n] = r
			copy(t.x[n*t.width:][:t.width], t.x[i*t.width:])
			copy(t.h[n*t.width:][:t.width], t.h[i*t.width:])
		}
		n++
	}
	t.rows = t.rows[:n]
}

package tiny

import (
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// rank is what the passes of one rank are computed with. It belongs to the goroutine
// of the rank.
type rank struct {
	cache  *llama.Cache
	vocab  int
	most   int       // rows of logits that are kept for the next pass
	logits []float32 // rows for the tokens that a pass gives, or tells of
	blocks []int32
	spans  []llama.Span
}

func newRank(m *llama.Model, a *mock.Args) *rank {
	return &rank{cache: m.NewCache(a.NumGPUBlocks, a.BlockSize), vocab: m.Config().Vocab, most: a.MaxNumSeqs}
}

// Compute implements [mock.Computer]. A block that several spans have is computed by
// the first of them, as the scheduler admits them, and read by the others.
func (e computer) Compute(number uint32, spans []mock.Span) error {
	r := e.ranks[number]
	r.lay(spans)
	if err := e.model.Forward(r.cache, r.spans); err != nil {
		return err
	}
	for i := range spans {
		read(&spans[i], r.spans[i].Logits, r.vocab)
	}
	return nil
}

// lay puts down what is to be computed, with room for the logits that are wanted.
func (r *rank) lay(spans []mock.Span) {
	rows := 0
	for i := range spans {
		rows += wanted(&spans[i])
	}
	logits := r.room(rows)
	r.spans, r.blocks = r.spans[:0], r.blocks[:0]
	for i := range spans {
		s, from := &spans[i], len(r.blocks)
		for _, b := range s.Blocks {
			r.blocks = append(r.blocks, int32(b))
		}
		n := wanted(s) * r.vocab
		r.spans = append(r.spans, llama.Span{
			Tokens: s.Tokens, Start: s.Start, Blocks: r.blocks[from:len(r.blocks):len(r.blocks)], Logits: logits[:n:n],
		})
		logits = logits[n:]
	}
}

// room returns room for rows of logits. That of many rows is not kept.
func (r *rank) room(rows int) []float32 {
	n := rows * r.vocab
	if n <= len(r.logits) {
		return r.logits[:n]
	}
	logits := make([]float32, n)
	if rows <= r.most {
		r.logits = logits
	}
	return logits
}

// wanted returns of how many of a span's last tokens the logits are wanted.
func wanted(s *mock.Span) int {
	switch {
	case s.Generator.(*answer).tellsPrompt():
		return len(s.Tokens)
	case s.Gives:
		return 1
	}
	return 0
}

// read lets an answer have what was computed for it.
func read(s *mock.Span, logits []float32, vocab int) {
	a, end := s.Generator.(*answer), s.Start+len(s.Tokens)
	for position := end - len(logits)/vocab + 1; position < end; position++ {
		a.hear(position, logits[:vocab])
		logits = logits[vocab:]
	}
	if len(logits) == 0 {
		return
	}
	a.hear(end, logits)
	if s.Gives {
		s.Err = a.choose(end, logits)
	}
}

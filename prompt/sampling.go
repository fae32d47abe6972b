package prompt

import (
	"cmp"
	"math"

	"github.com/dynago/dynago/engine"
)

// Defaults fills in what a request leaves open with what the model's own
// generation_config.json says of it. Engines that are sent ids do not do so
// themselves: they take their own defaults, with which many models say something
// else than their makers meant.
func (m *Model) Defaults(s *engine.Sampling) {
	d := &m.Sampling
	s.Temperature = cmp.Or(s.Temperature, d.Temperature)
	s.TopP = cmp.Or(s.TopP, d.TopP)
	s.TopK = cmp.Or(s.TopK, d.TopK)
	s.MinP = cmp.Or(s.MinP, d.MinP)
	s.RepetitionPenalty = cmp.Or(s.RepetitionPenalty, d.RepetitionPenalty)
}

// readSampling reads the defaults, which are those that engines read, too: whether a
// model samples at all (do_sample) is left to its temperature.
func (c *settings) readSampling(generation object) {
	c.sampling = engine.Sampling{
		Temperature:       generation.within("temperature", 0, math.MaxFloat32),
		TopP:              generation.within("top_p", 0, 1),
		MinP:              generation.within("min_p", 0, 1),
		RepetitionPenalty: generation.within("repetition_penalty", 0, math.MaxFloat32),
	}
	if k := generation.within("top_k", -1, math.MaxInt32); k != nil {
		c.sampling.TopK = new(int(*k))
	}
}

// within returns a number that has bounds; nil if there is none.
func (o object) within(key string, low, high float64) *float64 {
	if !o.has(key) {
		return nil
	}
	f := o.number(key)
	if !(f >= low && f <= high) {
		o.failf(key, "want a number from %g to %g, not %s", low, high, shown(o.members[key]))
	}
	return &f
}

package mock

import (
	"math"

	"github.com/dynago/dynago/engine"
)

// maxLogprobs is how many alternatives are given at most.
const maxLogprobs = 20

// logprob makes up a likelihood for the id at a position: plausible, the same
// on every run, and with the id itself as the likeliest.
func (e *Engine) logprob(d digest, position int, id uint32, k int) engine.Logprob {
	d = d.add(uint32(position)).add(id)
	p := 0.5 + 0.499*float64(d.pick(0, 1<<20))/(1<<20)
	lp := engine.Logprob{ID: id, Logprob: math.Log(p), Rank: 1}
	if k == 0 {
		return lp
	}
	lp.Top = append(make([]engine.Logprob, 0, k), engine.Logprob{ID: id, Logprob: lp.Logprob, Rank: 1})
	rest := 1 - p
	for i := 1; len(lp.Top) < k && i < 8*k; i++ {
		other := e.alternative(d, i)
		if contains(lp.Top, other) {
			continue
		}
		rest /= 2 // each half as likely as all before it leave, and so in falling order
		lp.Top = append(lp.Top, engine.Logprob{ID: other, Logprob: math.Log(rest), Rank: len(lp.Top) + 1})
	}
	return lp
}

func contains(top []engine.Logprob, id uint32) bool {
	for _, t := range top {
		if t.ID == id {
			return true
		}
	}
	return false
}

// alternative returns an id that might have stood there.
func (e *Engine) alternative(d digest, i int) uint32 {
	if e.cfg.Encode == nil {
		return e.ids.pick(d, i)
	}
	if words := e.words(); len(words) > 0 {
		return words[d.pick(i, len(words))]
	}
	return e.ids.pick(d, i)
}

// promptLogprobs returns one entry for each token of the prompt. Nothing
// predicts the first.
func (e *Engine) promptLogprobs(d digest, prompt []uint32, k int) []engine.Logprob {
	out := make([]engine.Logprob, len(prompt))
	for i, id := range prompt {
		if i == 0 {
			out[i] = engine.Logprob{ID: id, Logprob: math.NaN()}
			continue
		}
		out[i] = e.logprob(d, i, id, k)
	}
	return out
}

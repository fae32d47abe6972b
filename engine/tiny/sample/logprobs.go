package sample

import (
	"math"
	"slices"

	"github.com/dynago/dynago/engine"
)

// Logprob tells how likely the model itself held an id, and its top ids in falling
// order, equal ones by id. That is the distribution of the logits as they are: as
// with vLLM no bias, penalty, temperature or filter is in it, and here no mask
// either. The sums are those of float64.
func Logprob(logits []float32, id uint32, top int) engine.Logprob {
	high, rest := logSumExp(logits)
	own := float64(logits[id])
	lp := engine.Logprob{ID: id, Logprob: own - high - rest, Rank: 1}
	for other, l := range logits {
		if precedes(float64(l), uint32(other), own, id) {
			lp.Rank++
		}
	}
	if top <= 0 {
		return lp
	}
	top = min(top, len(logits))
	best := make([]engine.Logprob, 0, top+1)
	for other, l := range logits {
		v := float64(l)
		if len(best) == top && !precedes(v, uint32(other), best[top-1].Logprob, best[top-1].ID) {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, uint32(other), func(b engine.Logprob, id uint32) int {
			if precedes(b.Logprob, b.ID, v, id) {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, i, engine.Logprob{ID: uint32(other), Logprob: v})
		best = best[:min(top, len(best))]
	}
	for i := range best {
		best[i].Logprob = best[i].Logprob - high - rest
		best[i].Rank = i + 1
	}
	lp.Top = best
	return lp
}

// precedes says whether a stands before b in falling order.
func precedes(a float64, aID uint32, b float64, bID uint32) bool {
	return a > b || a == b && aID < bID
}

// logSumExp returns the logarithm of the sum of the exponentials of all logits, in
// two parts: the highest logit, and what comes on top of it.
func logSumExp(logits []float32) (high, rest float64) {
	high = float64(slices.Max(logits))
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - high)
	}
	return high, math.Log(sum)
}

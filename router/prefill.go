package router

import (
	"math"
	"time"
)

// PrefillModel predicts how long prompts are computed. With one, what is
// outstanding on a target shrinks while time passes, instead of all at once when
// the first token comes.
type PrefillModel interface {
	// Predict returns how long it takes to compute so many new tokens each of a
	// batch of prompts, behind prefix tokens that are cached; or false if it cannot
	// tell. It is called under the router's lock, and must be quick.
	Predict(batch, tokens, prefix int) (time.Duration, bool)
}

// PolynomialPrefill is a [PrefillModel] that depends on the new tokens alone, as
// they were measured on one engine: 16.5 ms, 15 ms more for each thousand, and
// 0.42 ms for each thousand of them squared. It is what the mock engine computes
// with under its timing model of that name.
type PolynomialPrefill struct{}

// Predict implements [PrefillModel].
func (PolynomialPrefill) Predict(batch, tokens, _ int) (time.Duration, bool) {
	t := float64(batch) * float64(tokens)
	ms := 4.209989e-07*t*t + 1.518344e-02*t + 16.50142
	return time.Duration(ms * float64(time.Millisecond)), true
}

// prefills are the prompts that a target computes, in the order in which they
// were placed: it computes them one after the other, and so the oldest, the
// anchor, says how far it has come.
type prefills struct {
	oldest, newest *prefill
	anchored       time.Time // since when the anchor is being computed
	untold         int       // prompts of which nobody predicts how long they take
}

// prefill is one of them.
type prefill struct {
	tokens         int           // not cached; 0: it is not, or no more, among them
	takes          time.Duration // predicted
	told           bool          // there is a prediction
	older, younger *prefill
}

func (l *prefills) add(p *prefill, now time.Time) {
	if !p.told {
		l.untold++
	}
	if p.older = l.newest; p.older == nil {
		l.oldest, l.anchored = p, now
	} else {
		p.older.younger = p
	}
	l.newest = p
}

// remove takes out a prompt that is computed. If it was the anchor, the next one
// begins now; otherwise its time was not needed, and the anchor has come so much
// less far.
func (l *prefills) remove(p *prefill, now time.Time) {
	if !p.told {
		l.untold--
	}
	if p.older == nil {
		l.oldest, l.anchored = p.younger, now
	} else {
		p.older.younger = p.younger
		if p.told {
			if l.anchored = l.anchored.Add(p.takes); l.anchored.After(now) {
				l.anchored = now
			}
		}
	}
	if p.younger == nil {
		l.newest = p.older
	} else {
		p.younger.older = p.older
	}
	*p = prefill{}
}

// left returns how many of so many tokens are still to be computed. If all
// prompts have a prediction, they are computed at the rate of the anchor, beyond
// its own tokens if it is late; otherwise it alone shrinks.
func (l *prefills) left(tokens int, now time.Time) int {
	a := l.oldest
	if a == nil || !a.told {
		return tokens
	}
	elapsed := float64(max(0, now.Sub(l.anchored)))
	if l.untold == 0 {
		done := float64(a.tokens)
		if a.takes > 0 {
			done = math.Floor(float64(a.tokens) * elapsed / float64(a.takes))
		}
		return max(0, tokens-int(min(done, float64(tokens))))
	}
	rest := tokens - a.tokens
	if a.takes <= 0 {
		return rest
	}
	return rest + int(math.Ceil(float64(a.tokens)*max(0, float64(a.takes)-elapsed)/float64(a.takes)))
}

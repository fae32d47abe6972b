package pipeline

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// kept says of each turn of a conversation how many of those up to it, itself
// included, its model is shown; nil: all of them.
type kept []int

// upTo returns how many turns are shown of those up to one.
func (k kept) upTo(turn int) int {
	if k == nil {
		return turn + 1
	}
	return k[turn]
}

// and returns what is left behind another step.
func (k kept) and(next kept) kept {
	if k == nil || next == nil {
		if k == nil {
			return next
		}
		return k
	}
	out := make(kept, len(k))
	for i, n := range k {
		if n > 0 {
			out[i] = next[n-1]
		}
	}
	return out
}

// behind returns the place behind the last that a model is shown of a conversation up
// to a turn of its client's; r is what it is shown. There is none if that is nothing.
func (k kept) behind(r *chat.Request, turn int) (at chat.Breakpoint, ok bool) {
	switch n := k.upTo(turn); {
	case n > 0:
		return chat.Breakpoint{Turn: n - 1, Block: prompt.WholeTurn}, true
	case len(r.System) > 0:
		return chat.Breakpoint{Turn: -1, Block: prompt.WholeTurn}, true
	case len(r.Tools) > 0:
		return chat.Breakpoint{Turn: -2, Block: prompt.WholeTurn}, true
	}
	return at, false
}

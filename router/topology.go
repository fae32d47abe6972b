package router

import (
	"slices"

	"github.com/dynago/dynago/engine"
)

// near is what a decode worker must, or had better, have in common with the
// prefill worker. Taints are empty for nothing.
type near struct {
	require, prefer string
	weight          float64 // of what is preferred
}

// nearby returns what follows for the decode leg from where the prompt is computed:
// by the worker of this card, one of a pool. The card is nil if that worker has
// left, and then nothing follows, unless somebody of its pool insists.
func nearby(prefill *engine.Card, pool []*engine.Card) (near, error) {
	if prefill == nil {
		if slices.ContainsFunc(pool, func(c *engine.Card) bool { return c.Disagg.Enforcement == engine.TransferRequired }) {
			return near{}, engine.Errorf(engine.Unavailable, "the prefill worker has left, and with it where its blocks may go")
		}
		return near{}, nil
	}
	d := &prefill.Disagg
	if d.Domain == "" {
		return near{}, nil
	}
	value, ok := prefill.Topology[d.Domain]
	if !ok || value == "" {
		return near{}, engine.Errorf(engine.Internal, "the prefill worker hands blocks over within its %q, and its topology does not say which that is", d.Domain)
	}
	taint := engine.TopologyTaint(d.Domain, value)
	switch d.Enforcement {
	case engine.TransferRequired:
		return near{require: taint}, nil
	case engine.TransferPreferred:
		if d.PreferredWeight == nil {
			return near{}, engine.Errorf(engine.Internal, "the prefill worker prefers to hand blocks over within its %q, and does not say how much: want a preferred weight", d.Domain)
		}
		return near{prefer: taint, weight: *d.PreferredWeight}, nil
	}
	return near{}, engine.Errorf(engine.Internal, "the prefill worker hands blocks over within its %q, and says of the enforcement %q: want required or preferred", d.Domain, d.Enforcement)
}

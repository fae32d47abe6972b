package router

import (
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Hint returns who holds a longer beginning of a prompt than the target where it is
// computed, of those from whom that can fetch; nil if there is nobody. Of equals it is
// the smaller target.
func (r *Router) Hint(tokens []uint32, ns kv.Namespace, at kv.Target) *engine.Hint {
	of := r.fleet.Worker(at.Worker)
	if of == nil {
		return nil
	}
	card := of.Card()
	if card == nil || card.Hint == nil || card.BlockSize == 0 {
		return nil
	}
	scheme := kv.PublicScheme(int(card.BlockSize), ns)
	scheme.Eagle = card.HashScheme == engine.SchemeXXH3Eagle
	var own hashes
	local, seq := r.hash(tokens, scheme, &own)
	var found matches
	r.index.Match(local, &found.Matches)
	most, endpoint := 0, ""
	if held := found.find(at); held != nil {
		most = held4(held)
	}
	for i := range found.Found {
		m := &found.Found[i]
		if n := held4(&m.Blocks); m.Target != at && n > most {
			if e := r.lender(card, m.Target); e != "" {
				most, endpoint = n, e
			}
		}
	}
	if endpoint == "" {
		return nil
	}
	return &engine.Hint{Endpoint: endpoint, Blocks: slices.Clone(seq[:most])}
}

// held4 returns how many leading blocks are held, on whatever tier.
func held4(on *[4]int32) (n int) {
	for _, blocks := range on {
		n += int(blocks)
	}
	return n
}

// lender returns where a worker of this card fetches from a target; "" if it cannot.
func (r *Router) lender(card *engine.Card, t kv.Target) string {
	w := r.fleet.Worker(t.Worker)
	if w == nil {
		return ""
	}
	other := w.Card()
	if other == nil || other.Hint == nil || other.Model != card.Model || other.BlockSize != card.BlockSize ||
		other.HashScheme != card.HashScheme || other.Hint.WorkerType != card.Hint.WorkerType {
		return ""
	}
	return other.Hint.Endpoints[t.Rank]
}

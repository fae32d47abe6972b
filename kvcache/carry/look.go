package carry

import (
	"context"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Found is a block that lies in a shared place.
type Found struct {
	block  kvcache.Block
	record kvcache.Record
}

// abreast is how many questions there are at a time, at most, while a place is asked
// what it has: it begins with one, which is the last where nothing is there.
const abreast = 16

// Look asks a shared place which of the leading hashes it has, for as long as most.
// Whatever it does not answer by then it does not have. It touches no tier, so it can
// be called at any time; [Learn] enters what it found.
func (p *Place) Look(ctx context.Context, hashes []kv.SeqHash, most time.Duration) []Found {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var all []Found
	for width := 1; len(hashes) > 0; width = min(2*width, abreast) {
		part := hashes[:min(width, len(hashes))]
		hashes = hashes[len(part):]
		answers := make([]Found, len(part))
		var asked sync.WaitGroup
		for i, h := range part {
			asked.Go(func() { answers[i] = p.ask(ctx, h) })
		}
		asked.Wait()
		for _, f := range answers {
			if f.block.Hash == 0 {
				return all
			}
			all = append(all, f)
		}
	}
	return all
}

func (p *Place) ask(ctx context.Context, h kv.SeqHash) Found {
	e, err := p.driver.Stat(ctx, p.hashed(h))
	if err != nil || e.Size != int64(p.bytes) {
		return Found{}
	}
	b, r, err := readTag(e.Tag)
	if err != nil || b.Hash != h {
		return Found{}
	}
	return Found{b, r}
}

// Learn enters into a tier what its place was found to have, in the order of a
// sequence. What has been used longest ago makes room, as far as nobody pins it.
func Learn(t *kvcache.Tier, blocks []Found, zero time.Time) (learned int) {
	for _, f := range blocks {
		if t.Has(f.block.Hash) {
			continue
		}
		if t.Pool().Spare() == 0 {
			break
		}
		refs, ok := t.Allocate(nil, 1)
		if !ok {
			break
		}
		ref, outcome := t.Register(refs[0], f.block, kvcache.Root)
		if outcome == kvcache.Added {
			t.Pool().Inherit(ref, f.record, zero)
			learned++
		}
		t.Release([]kvcache.Ref{ref})
	}
	return learned
}

package mock

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/carry"
)

// Bytes is what really lies in the blocks of one rank. What else the core moves in
// virtual time is then carried between the places of the tiers, while passes go on.
type Bytes struct {
	// Device is the memory that the model computes in.
	Device carry.Device
	// Places hold the bytes of each tier below the device that the arguments have. A
	// disk may have blocks of an earlier life.
	Places map[kv.Tier]*carry.Place

	zero time.Time // when the clock of the engine began
	wake func()    // called when something has been carried
}

// lookTime is how long a request waits for what a shared store says it has.
const lookTime = 50 * time.Millisecond

// start returns the moment from which time is counted.
func (b *Bytes) start() time.Time {
	if b == nil {
		return time.Unix(0, 0)
	}
	return b.zero
}

// carrier returns who carries what a registry wants to move.
func (b *Bytes) carrier(r *kvcache.Registry) carrier {
	if b == nil {
		return kvcache.NewCarrier(r)
	}
	c, err := carry.New(r, carry.Config{Device: b.Device, Places: b.Places, Zero: b.zero, Wake: b.wake})
	if err != nil {
		panic(fmt.Sprintf("mock: places that were checked: %v", err))
	}
	return c
}

// newCore returns the first core of a rank: where blocks have bytes, with what an
// earlier process has left on its disk.
func (r *rank) newCore(number int) (*Core, error) {
	a := r.e.cfg.Args
	if r.e.cfg.Bytes == nil {
		return r.e.cfg.Shared.NewCore(a), nil
	}
	b := *r.e.cfg.Bytes[number]
	b.zero, b.wake = time.Now().Add(-r.e.clock.Now()), r.wakeUp
	for t, blocks := range a.Tiers() {
		if t := kv.Tier(t); t != kv.TierDevice && blocks > 0 && b.Places[t] == nil {
			return nil, fmt.Errorf("the arguments have a %s tier, and there is no place for its bytes", t)
		}
	}
	var disk *kvcache.Tier
	if p := b.Places[kv.TierDisk]; p != nil {
		disk = kvcache.NewTier(kv.TierDisk, kvcache.NewPool(a.pool(kv.TierDisk)))
		if _, err := p.Restore(context.Background(), disk, b.zero); err != nil {
			return nil, fmt.Errorf("what lies on the disk: %w", err)
		}
	}
	return newCore(a, nil, disk, &b), nil
}

// wakeUp lets the rank see what was carried.
func (r *rank) wakeUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.e.closed.Load() {
		r.work()
	}
}

// look asks the shared store what it has of a prompt, beyond what is known of it:
// others store there without telling.
func (r *rank) look(ctx context.Context, prompt []uint32, ns kv.Namespace) {
	if r.e.cfg.Bytes == nil || !r.e.cfg.Args.EnablePrefixCaching || r.e.cfg.Bytes[r.journal.rank].Places[kv.TierShared] == nil {
		return
	}
	r.lookFor(ctx, kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, prompt, r.e.cfg.Args.BlockSize, ns.Seed())))
}

func (r *rank) lookFor(ctx context.Context, hashes []kv.SeqHash) {
	r.mu.Lock()
	place, from := r.core.unknown(hashes)
	r.mu.Unlock()
	if place == nil {
		return
	}
	found := place.Look(ctx, hashes[from:], lookTime)
	if len(found) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.core.below; b != nil && b.bytes != nil {
		carry.Learn(b.registry.Tier(kv.TierShared), found, b.bytes.zero)
	}
}

// unknown returns where to ask for a sequence, and from which of its blocks on; or nil
// if there is nothing to ask.
func (c *Core) unknown(hashes []kv.SeqHash) (p *carry.Place, from int) {
	b := c.below
	if b == nil || b.bytes == nil || b.bytes.Places[kv.TierShared] == nil {
		return nil, 0
	}
	for from < len(hashes) && b.registry.Present(hashes[from]) != 0 {
		from++
	}
	if from == len(hashes) {
		return nil, 0
	}
	return b.bytes.Places[kv.TierShared], from
}

// forgetDisk drops what lies on a disk of the core's own for another life.
func (b *Bytes) forgetDisk() {
	if b == nil || b.Places[kv.TierDisk] == nil {
		return
	}
	b.Places[kv.TierDisk].Clear(context.Background()) //nolint:errcheck // what stays is right, and will be replaced
}

// remember writes beside the blocks of the disk what is asked for them, for another
// life. The carrier must have been closed.
func (b *below) remember() {
	if b.bytes == nil || b.disk == nil {
		return
	}
	b.bytes.Places[kv.TierDisk].Remember(context.Background(), b.disk, b.bytes.zero) //nolint:errcheck // then the blocks are worth what they were
}

package mock

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// PolynomialPrefill and PolynomialDecode are the bare curves, in milliseconds.
var (
	PolynomialPrefill = polynomialPrefill
	PolynomialDecode  = polynomialDecode
)

// Predict is what the model of a would say, sped up.
func Predict(a *Args, w *Work) time.Duration { return a.duration(a.timing(), w) }

// Rooms returns how many rooms there are where one leg waits for the other.
func (e *Engine) Rooms() int {
	e.meeting.mu.Lock()
	defer e.meeting.mu.Unlock()
	return len(e.meeting.rooms)
}

// Cache returns events that store everything a rank's cache holds now, and the
// number of the newest event by then.
func (e *Engine) Cache(rank uint32) (events []kv.Event, last uint64) {
	r := e.rank[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Stored(), r.journal.last
}

// String tells the state in one line.
func (c *Core) String() string {
	l := c.Load()
	return fmt.Sprintf("running %d, waiting %d, blocks %d/%d", l.Running, l.Waiting, l.UsedBlocks, l.TotalBlocks)
}

// Queues returns the running and the waiting requests in order.
func (c *Core) Queues() (running, waiting []ID) {
	for _, r := range c.running {
		running = append(running, r.id)
	}
	for r := c.waiting.head; r != nil; r = r.next {
		waiting = append(waiting, r.id)
	}
	return running, waiting
}

// Check returns an error if the core contradicts itself.
func (c *Core) Check() error {
	size := c.args.BlockSize
	if len(c.running) > c.args.MaxNumSeqs {
		return fmt.Errorf("%d running of %d", len(c.running), c.args.MaxNumSeqs)
	}
	var held, mutable, duplicate int
	primary := make(map[kvcache.Ref]bool)
	hold := func(r *request) {
		for _, ref := range r.blocks {
			held++
			primary[ref] = true
		}
	}
	for r := c.waiting.head; r != nil; r = r.next {
		hold(r)
	}
	if c.below != nil {
		for id, r := range c.below.loads {
			if hold(r); r.load != id || r.waiting {
				return fmt.Errorf("request %d is parked for load %d, and waits for %d: %v", r.id, id, r.load, r.waiting)
			}
		}
	}
	count := func(r *request) error {
		for k, ref := range r.blocks {
			held++
			state := c.pool.State(ref)
			switch {
			case k >= r.sealed && state != kvcache.Mutable:
				return fmt.Errorf("request %d: block %d is not full and %s", r.id, k, state)
			case k < r.sealed && c.pool.Hash(ref) != r.seq[k]:
				return fmt.Errorf("request %d: block %d is %x, want %x", r.id, k, c.pool.Hash(ref), r.seq[k])
			}
			switch state {
			case kvcache.Mutable:
				mutable++
			case kvcache.Duplicate:
				duplicate++
			case kvcache.Primary:
				primary[ref] = true
			default:
				return fmt.Errorf("request %d: block %d is %s", r.id, k, state)
			}
		}
		return nil
	}
	for _, r := range c.slots {
		if r.Generator == nil || r.waiting || r.load != 0 || slices.Contains(c.running, r) {
			continue
		}
		if !r.Keep {
			return fmt.Errorf("request %d is nowhere", r.id)
		}
		if err := count(r); err != nil {
			return err
		}
	}
	for _, r := range c.running {
		if r.computed > r.length() || len(r.blocks)*size < r.computed || len(r.blocks) > blocks(r.length(), size) {
			return fmt.Errorf("request %d: %d of %d tokens computed in %d blocks", r.id, r.computed, r.length(), len(r.blocks))
		}
		if err := count(r); err != nil {
			return err
		}
		if full := min(r.computed/size, len(r.blocks)); c.args.EnablePrefixCaching && r.sealed < full {
			return fmt.Errorf("request %d: %d of %d full blocks published", r.id, r.sealed, full)
		}
	}
	s := c.pool.Stats()
	if b := c.below; b != nil && (len(b.loads) > 0 || b.busy()) {
		if s.Mutable < mutable || s.Duplicate != duplicate || s.Primary < len(primary) {
			return fmt.Errorf("%d blocks held in lists (%d mutable, %d duplicate, %d primary) and %+v in the pool", held, mutable, duplicate, len(primary), s)
		}
		return c.checkQueue()
	}
	// A primary that is in no list is held by duplicates or children.
	if s.Mutable != mutable || s.Duplicate != duplicate || s.Primary < len(primary) || duplicate == 0 && s.Primary != len(primary) {
		return fmt.Errorf("%d blocks held in lists (%d mutable, %d duplicate, %d primary) and %+v in the pool", held, mutable, duplicate, len(primary), s)
	}
	return c.checkQueue()
}

// busy says whether slots are held for what is on its way.
func (b *below) busy() bool {
	for _, w := range b.registry.Ways() {
		if w.Moving > 0 {
			return true
		}
	}
	p := b.registry.PrefetchStats()
	return p.Requests > p.States[kvcache.PrefetchDone]+p.States[kvcache.PrefetchCancelled]+p.States[kvcache.PrefetchExpired]
}

func (c *Core) checkQueue() error {
	n := 0
	var fresh, preempted Moments
	for r := c.waiting.head; r != nil; r = r.next {
		n++
		if len(r.blocks) != 0 && !r.loaded || r.computed != 0 || r.load != 0 {
			return fmt.Errorf("request %d waits with %d blocks", r.id, len(r.blocks))
		}
		if p := r.prev; p != nil && (p.Priority < r.Priority || p.Priority == r.Priority && p.preempted == 0 && p.parkedAt == 0 && r.preempted > 0) {
			return fmt.Errorf("request %d stands behind request %d", r.id, p.id)
		}
		if r.preempted > 0 {
			preempted.add(r.length())
		} else {
			fresh.add(r.length())
		}
	}
	if fresh != c.waiting.fresh || preempted != c.waiting.preempted {
		return fmt.Errorf("waiting lengths are %+v and %+v, booked %+v and %+v", fresh, preempted, c.waiting.fresh, c.waiting.preempted)
	}
	if live := len(c.slots) - len(c.free); live != n+len(c.running)+c.kept+c.parked() {
		return fmt.Errorf("%d requests live, %d in queues", live, n+len(c.running))
	}
	return nil
}

// Burst is how many passes without a delay are made in a row.
const Burst = burst

// Sessions returns how many sessions are known on all tiers together.
func (c *Core) Sessions() (n int) {
	for k := range c.stats.Tiers {
		if p := c.poolOf(kv.Tier(k)); p != nil {
			n += p.Sessions()
		}
	}
	return n
}

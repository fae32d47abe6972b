// Package carry moves the bytes of blocks between the tiers of a worker that has
// real ones: what package kvcache decides it does, beside whatever the worker
// computes meanwhile.
//
// The one idea: the registry's own rules are all the locking that bytes need. A slot
// that is being filled is found by nobody and given to nobody until its transfer has
// been finished, and a slot that is being read is held so long; so each transfer has
// the slots of both ends for itself, and carries them in a goroutine of its own. What
// arrives is checked against the sum that was taken when it left, and what fails is
// told as a fault: then the block is looked for elsewhere or computed, which takes
// time and changes nothing else.
package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// Device is the memory that a model computes in.
type Device interface {
	// Block returns the bytes of a slot, always of one length. They are written and
	// read in place.
	Block(slot int) []byte
}

// Config says what a carrier is made of.
type Config struct {
	Device Device
	// Places is where the other tiers of the registry keep their bytes.
	Places map[kv.Tier]*Place
	// Zero is the registry's.
	Zero time.Time
	// Wake is called, from any goroutine, when there is something that Advance will
	// collect.
	Wake func()
	// Timeout bounds each transfer; 0 = 10 s.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// Carrier carries out the transfers of one registry. Its methods are called by
// whoever calls the registry, and never at once; the transfers go on by themselves.
type Carrier struct {
	r    *kvcache.Registry
	cfg  Config
	life context.Context
	end  context.CancelFunc
	busy sync.WaitGroup
	now  time.Duration

	mu     sync.Mutex
	done   []ended
	counts Counts
	closed bool

	started []*kvcache.Transfer
}

type ended struct {
	id     uint64
	faults []kvcache.Fault
}

// Counts says what went wrong since a carrier was made.
type Counts struct {
	// Corrupt counts blocks that were not what had been stored, Missing those that
	// were not there, Failed those that could not be read or written just then.
	Corrupt, Missing, Failed int64
}

// New returns a carrier for a registry that nothing is under way in.
func New(r *kvcache.Registry, cfg Config) (*Carrier, error) {
	for t := kv.TierHost; t <= kv.TierShared; t++ {
		if r.Tier(t) != nil && cfg.Places[t] == nil {
			return nil, fmt.Errorf("kvcache/carry: there is a %s tier, and no place for its bytes", t)
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	c := &Carrier{r: r, cfg: cfg}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Advance tells the registry the time and what has arrived by now, and begins what it
// wants to move next. A caller that computes on the device calls it between passes
// only: blocks that a pass has yet to fill may be published already.
func (c *Carrier) Advance(now time.Duration) {
	c.now = max(c.now, now)
	for _, e := range c.take() {
		c.r.Finish(c.now, e.id, e.faults)
	}
	c.r.Advance(c.now)
	c.begin()
}

func (c *Carrier) take() []ended {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.done
	c.done = nil
	return done
}

// Next returns when Advance has something to do that no transfer brings about; for
// those that end there is Wake. What the registry has decided since begins with it,
// so it is called when Advance may be.
func (c *Carrier) Next() (at time.Duration, ok bool) {
	c.begin()
	c.mu.Lock()
	arrived := len(c.done) > 0
	c.mu.Unlock()
	if arrived {
		return c.now, true
	}
	return c.r.Next()
}

// Counts returns what went wrong so far. It may be called at any time.
func (c *Carrier) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Close gives up what is under way, and returns when nobody touches a slot any more.
// The registry is to be abandoned after that.
func (c *Carrier) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.busy.Wait()
}

// begin starts what the registry wants to move.
func (c *Carrier) begin() {
	if c.life.Err() != nil {
		return
	}
	c.started = c.r.Start(c.started[:0], c.now)
	c.r.Promoted() // all are carried as fast as can be
	for _, x := range c.started {
		records := make([]kvcache.Record, len(x.Copies))
		for i, block := range x.Copies {
			records[i] = c.r.Tier(x.Edge.From).Pool().Record(block.From, c.cfg.Zero)
		}
		c.busy.Add(1)
		go c.carry(x.ID, x.Edge, slices.Clone(x.Copies), records)
	}
}

// carry copies the blocks of one transfer.
func (c *Carrier) carry(id uint64, e kvcache.Edge, copies []kvcache.Copy, records []kvcache.Record) {
	ctx, cancel := context.WithTimeout(c.life, c.cfg.Timeout)
	defer cancel()
	var counts Counts
	faults := make([]kvcache.Fault, len(copies))
	for i := range copies {
		faults[i] = counts.judge(c.copy(ctx, e, &copies[i], records[i]))
	}
	c.mu.Lock()
	c.done = append(c.done, ended{id, faults})
	c.counts.Corrupt += counts.Corrupt
	c.counts.Missing += counts.Missing
	c.counts.Failed += counts.Failed
	closed := c.closed
	c.mu.Unlock()
	c.busy.Done()
	if !closed {
		c.cfg.Wake()
	}
}

// judge counts an error and says what it means for the block.
func (n *Counts) judge(err error) kvcache.Fault {
	switch {
	case err == nil:
		return kvcache.Arrived
	case errors.Is(err, store.ErrCorrupt):
		n.Corrupt++
		return kvcache.Lost
	case errors.Is(err, store.ErrNotFound):
		n.Missing++
		return kvcache.Lost
	}
	n.Failed++
	return kvcache.Unreachable
}

// copy copies one block. Errors that say it is gone or wrong are of the source.
func (c *Carrier) copy(ctx context.Context, e kvcache.Edge, x *kvcache.Copy, r kvcache.Record) error {
	from, release, err := c.read(ctx, e.From, x)
	if err != nil {
		return err
	}
	defer release()
	if e.To != kv.TierDevice {
		if err := c.cfg.Places[e.To].put(ctx, x.To, x.Block, r, from); err != nil {
			return fmt.Errorf("kvcache/carry: writing a block to the %s tier: %v", e.To, err) //nolint:errorlint // not an error of the source
		}
		return nil
	}
	to := c.cfg.Device.Block(int(x.To))
	if len(from) != len(to) {
		return fmt.Errorf("kvcache/carry: a block of %d bytes, want %d: %w", len(from), len(to), store.ErrCorrupt)
	}
	copy(to, from)
	return nil
}

// read returns the bytes of a block where it is.
func (c *Carrier) read(ctx context.Context, t kv.Tier, x *kvcache.Copy) (bytes []byte, release func(), err error) {
	if t == kv.TierDevice {
		return c.cfg.Device.Block(int(x.From)), func() {}, ctx.Err()
	}
	v, err := c.cfg.Places[t].get(ctx, x.From, x.Block)
	if err != nil {
		return nil, nil, err
	}
	return v.Bytes, v.Release, nil
}

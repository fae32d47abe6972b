package kvstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// recover finds what an earlier life has left in the lower tiers. Those that are
// told later are looked through while clients are answered.
func (c *cache) recover(ctx context.Context) error {
	for i, t := range c.tiers {
		if i == 0 || t.Later {
			continue
		}
		if err := c.lookThrough(ctx, i); err != nil {
			return fmt.Errorf("kvstore: reading what is left in tier %s: %w", t.Name, err)
		}
	}
	return nil
}

// sweeper is a driver that may hold what its writers have left unfinished when they
// died, and that nobody can find.
type sweeper interface {
	Sweep(ctx context.Context) (removed int, err error)
}

// sweepEvery is how often what is left unfinished is looked for. The first time it
// is that of the life before.
const sweepEvery = 6 * time.Hour

// lookLater looks through a tier that is told later, as soon as it can be had, and
// removes what is left unfinished in it, then and now and then.
func (c *cache) lookLater(tier int) {
	t := c.tiers[tier]
	c.untilDone("what is left of an earlier life cannot be looked through", t, func() error { return c.lookThrough(c.ctx, tier) })
	c.mu.Lock()
	t.looked = true
	c.mu.Unlock()
	s, ok := t.Driver.(sweeper)
	for ok && c.ctx.Err() == nil {
		c.untilDone("what is left unfinished cannot be removed", t, func() error {
			removed, err := s.Sweep(c.ctx)
			if removed > 0 {
				c.log.Info("what was left unfinished is removed", "tier", t.Name, "objects", removed)
			}
			return err
		})
		c.pause(sweepEvery)
	}
}

// untilDone does something again and again until it goes well, or the server ends.
func (c *cache) untilDone(otherwise string, t *tier, do func() error) {
	for c.ctx.Err() == nil {
		err := do()
		if err == nil || c.ctx.Err() != nil {
			return
		}
		c.log.Warn(otherwise, "tier", t.Name, "error", err)
		c.pause(store.BreakerPause)
	}
}

// pause waits, unless the server ends.
func (c *cache) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// lookThrough takes over the entries of a tier: bytes, then what tells of them.
func (c *cache) lookThrough(ctx context.Context, tier int) error {
	var tales []store.Entry
	for e, err := range c.tiers[tier].Driver.Scan(ctx) {
		if err != nil {
			return err
		}
		if _, p, _ := splitKey(e.Key); p == metadata {
			tales = append(tales, e)
			continue
		}
		c.takeOver(ctx, tier, e)
	}
	for _, e := range tales {
		c.takeOver(ctx, tier, e)
	}
	return nil
}

// removeUnknown lets tiers forget a key that may lie in them, as they have not been
// looked through.
func (c *cache) removeUnknown(sp *space, key string) {
	name, p, paired := splitKey(key)
	for i, t := range c.tiers {
		if !t.Later || t.looked || len(t.lag.queue) >= most {
			continue
		}
		if paired && p == whole {
			c.remind(i, job{sp, name, metadata})
		}
		c.remind(i, job{sp, name, p})
	}
}

// takeOver makes an entry of a tier known, or removes it.
func (c *cache) takeOver(ctx context.Context, tier int, e store.Entry) {
	c.begin()
	wanted := c.adopt(tier, e)
	c.mu.Unlock()
	if wanted {
		return
	}
	if err := c.tiers[tier].Driver.Delete(ctx, e.Key); err != nil {
		c.log.Warn("value not deleted", "tier", c.tiers[tier].Name, "key", e.Key, "error", err)
	}
}

// adopt makes an entry known, unless it is not wanted: it has expired, or is but
// half of something.
func (c *cache) adopt(tier int, e store.Entry) (wanted bool) {
	namespace, key, ok := strings.Cut(e.Key, " ")
	n := readTag(e.Tag)
	if !ok || namespace == "" || n.expires > 0 && n.expires <= c.now().UnixMilli() {
		return false
	}
	sp := c.spaceOf(namespace)
	if sp.flushed > 0 && n.version <= sp.flushed {
		return false
	}
	name, p, paired := splitKey(key)
	if sp.names[name] == nil && p == whole {
		c.makeWay()
	}
	u := c.find(sp, name)
	switch {
	case u == nil && p == metadata:
		return false
	case c.tiers[tier].lag.has(job{sp, name, p}):
		return true // what is there is about to change
	case u != nil && u.at[p].has(tier):
		return true
	case u != nil && u.has[p]:
		if u.version[p] != n.version || u.size[p] != e.Size {
			c.remind(tier, job{sp, name, p}) // what is there is older, or newer than that
			return true
		}
	case u == nil:
		u = sp.insert(name, paired, e.Size)
		c.wishAgain(u, n.record)
		fallthrough
	default:
		sp.used += e.Size
		u.version[p] = n.version
		c.last = max(c.last, n.version)
	}
	c.settle(u, p, e.Size, u.at[p].with(tier))
	if n.expires > 0 {
		u.expires[p] = max(time.UnixMilli(n.expires).Sub(c.zero), 1)
		sp.expire(u, u.expires[p])
	}
	return true
}

// wishAgain asks for u what was asked for it in an earlier life. Its session goes
// on, with the time that sessions have.
func (c *cache) wishAgain(u *unit, r kvcache.Record) {
	if r.Session != 0 {
		u.sp.eachOrder(func(o *kvcache.Order) { o.OpenSession(r.Session, kvcache.SessionOptions{}) })
	}
	u.sp.order.Inherit(u.ref, r, c.zero)
	u.epoch = r.Epoch
	if r.SoftPin || r.HardPin {
		u.wished = 1
	}
}

// spaceOf returns the namespace of that name, which is closed if there is no such
// any more.
func (c *cache) spaceOf(name string) *space {
	for _, sp := range c.spaces {
		if sp.Name == name {
			return sp
		}
	}
	sp := c.newSpace(Namespace{Name: name}, false)
	sp.closed = true
	c.spaces = append(c.spaces, sp)
	return sp
}

package kvstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

const (
	// retell is how often a lower tier is told that a pin was renewed.
	retell = 10 * time.Second
	// most is how many values may wait for a tier; what comes beyond is not copied.
	most = 1 << 16
	// width is how many values go to a tier at once that is told later.
	width = 4
)

// job is a part of a value that a tier is to be told of: whatever is true of it by
// then. So jobs are never outdated, and to do one twice does no harm.
type job struct {
	sp   *space
	name string
	p    part
}

func (j job) key() string { return (&unit{sp: j.sp, name: j.name}).key(j.p) }

// lag is what a tier has yet to be told.
type lag struct {
	queue   []job
	waiting map[job]bool
	running map[job]bool
	more    sync.Cond // there is something to do, or no more ever
}

func (l *lag) has(j job) bool { return l.waiting[j] || l.running[j] }

func (l *lag) len() int { return len(l.waiting) + len(l.running) }

// next takes the first job that is not being done already.
func (l *lag) next() (j job, ok bool) {
	for i, j := range l.queue {
		if !l.running[j] {
			l.queue[i] = l.queue[0] // there are few that are being done
			l.queue = l.queue[1:]
			delete(l.waiting, j)
			l.running[j] = true
			return j, true
		}
	}
	return job{}, false
}

// couriers tell tiers of what they have yet to be told.
type couriers struct {
	ctx     context.Context
	stop    context.CancelFunc
	all     sync.WaitGroup
	hurry   context.Context // ended: the server ends, and nothing is tried twice
	hasten  context.CancelFunc
	stopped bool
}

// startCouriers begins to tell lower tiers.
func (c *cache) startCouriers() {
	if len(c.tiers) == 1 {
		return
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.hurry, c.hasten = context.WithCancel(c.ctx)
	for i, t := range c.tiers[1:] {
		t.lag.more.L = &c.mu
		n := 1
		if t.Later {
			n = width
			c.all.Go(func() { c.lookLater(i + 1) })
		}
		for range n {
			c.all.Go(func() { c.carry(i + 1) })
		}
	}
}

// remind lets a tier be told of a part of a value.
func (c *cache) remind(tier int, j job) {
	t := c.tiers[tier]
	l := &t.lag
	u := j.sp.names[j.name]
	if l.waiting[j] || tier == 0 {
		return
	}
	if gone := u == nil || !u.has[j.p]; !gone && len(l.queue) >= most {
		t.counts.late++
		return
	}
	if l.waiting == nil {
		l.waiting, l.running = map[job]bool{}, map[job]bool{}
	}
	l.waiting[j] = true
	l.queue = append(l.queue, j)
	l.more.Signal()
}

// remindAll lets the tiers below u that have not got all of it have it.
func (c *cache) remindAll(u *unit) {
	for p := range u.at {
		below := places(1<<len(c.tiers)-1) &^ (only(u.at[p].first()+1) - 1)
		missing := below &^ (u.at[p] | u.barred)
		if missing == 0 || c.ephemeral(u) {
			continue
		}
		u.left &^= missing
		for i := range c.tiers {
			if missing.has(i) {
				c.remind(i, job{u.sp, u.name, part(p)})
			}
		}
	}
}

// ephemeral says whether u is not worth the way to a lower tier.
func (c *cache) ephemeral(u *unit) bool { return u.sp.order.Record(u.ref, c.zero).Ephemeral }

// retellAll lets the lower tiers know what is asked for u.
func (c *cache) retellAll(u *unit) {
	for i := range c.tiers {
		if u.at[whole].has(i) {
			c.remind(i, job{u.sp, u.name, whole})
		}
	}
}

// remember writes what is asked for u beside it, before whoever asked is told: in
// the tiers that have what they are told when they are told. The others learn it.
func (c *cache) remember(u *unit, now time.Duration) {
	u.wished = max(now, 1)
	c.seize(u)
	defer c.let(u)
	for i, t := range c.tiers {
		if i == 0 || !u.at[whole].has(i) {
			continue
		}
		if t.Later {
			c.remind(i, job{u.sp, u.name, whole})
			continue
		}
		if err := c.retag(i, u, whole); err != nil {
			c.ails(t, err)
			c.remind(i, job{u.sp, u.name, whole})
		}
	}
}

// retag writes the tag of a part of u beside it, in a tier that can.
func (c *cache) retag(tier int, u *unit, p part) error {
	r, ok := c.tiers[tier].Driver.(store.Retagger)
	if !ok {
		return nil
	}
	key, tag := u.key(p), c.tag(u, p, u.version[p], u.expires[p])
	c.mu.Unlock()
	defer c.mu.Lock()
	return r.Retag(c.ctx, key, tag)
}

// carry does the jobs of a tier.
func (c *cache) carry(tier int) {
	l := &c.tiers[tier].lag
	var pause store.Backoff
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.stopped {
		j, ok := l.next()
		if !ok {
			l.more.Wait()
			continue
		}
		again := c.tell(tier, j)
		delete(l.running, j)
		l.more.Signal() // the same job may have come again meanwhile
		if l.len() == 0 {
			c.idle.Broadcast()
		}
		if !again {
			pause.Succeeded()
			continue
		}
		if c.hurry.Err() != nil {
			continue
		}
		c.remind(tier, j)
		now := time.Now()
		pause.Failed(now)
		c.mu.Unlock()
		select {
		case <-time.After(pause.Pause(now)):
		case <-c.hurry.Done():
		}
		c.mu.Lock()
	}
}

// tell does one job, and reports whether it is to be done again, as the tier is
// not to be had just now.
func (c *cache) tell(tier int, j job) (again bool) {
	t := c.tiers[tier]
	u := j.sp.names[j.name]
	if !t.Later {
		if u = c.find(j.sp, j.name); u == nil {
			return false
		}
		c.seize(u)
		defer c.let(u)
	}
	var err error
	switch {
	case u == nil || !u.has[j.p] || t.Later && u.left.has(tier):
		c.mu.Unlock()
		err = t.Driver.Delete(c.ctx, j.key())
		c.mu.Lock()
	case u.at[j.p].has(tier):
		err = c.retag(tier, u, j.p)
	default:
		err = c.copyDown(u, j.p, tier)
	}
	return errors.Is(err, store.ErrUnavailable)
}

// copyDown copies a part of u to a tier that has not got it.
func (c *cache) copyDown(u *unit, p part, tier int) error {
	t, key, version, size := c.tiers[tier], u.key(p), u.version[p], u.size[p]
	same := func() bool { return u.sp.units[u.ref] == u && u.version[p] == version && u.has[p] }
	for t.Capacity > 0 && t.used+size > t.Capacity {
		if size > t.Capacity {
			u.barred = u.barred.with(tier)
			return store.ErrTooLarge
		}
		if !c.makeRoom(tier, false) {
			return errFull
		}
	}
	if !same() || c.ephemeral(u) {
		return nil
	}
	from := c.tiers[u.at[p].first()]
	tag := c.tag(u, p, version, u.expires[p])
	c.mu.Unlock()
	v, err := from.Driver.Get(c.ctx, key)
	c.mu.Lock()
	if err != nil {
		return nil //nolint:nilerr // whoever asks for it will see
	}
	defer v.Release()
	_, err = c.put(c.ctx, tier, key, v.Bytes, tag, false)
	switch {
	case errors.Is(err, store.ErrTooLarge) && same():
		u.barred = u.barred.with(tier)
		fallthrough
	case err != nil:
		t.counts.failed++
		return err
	case same():
		c.settle(u, p, size, u.at[p].with(tier))
	default:
		c.remind(tier, job{u.sp, u.name, p}) // it has become another, or has gone
	}
	return nil
}

// close lets the lower tiers know all that they do not yet, as long as ctx lasts,
// and ends the couriers.
func (c *cache) close(ctx context.Context) {
	if c.ctx == nil || c.ctx.Err() != nil {
		return
	}
	c.hasten()
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Broadcast()
	})()
	c.mu.Lock()
	for i := range c.tiers {
		for c.tiers[i].lag.len() > 0 && ctx.Err() == nil {
			c.idle.Wait()
		}
	}
	c.stopped = true
	c.stop()
	for _, t := range c.tiers[1:] {
		t.lag.more.Broadcast()
	}
	c.mu.Unlock()
	c.all.Wait()
	c.sealTags()
}

// sealTags writes what is asked for the values beside them, where it has changed
// since it was written.
func (c *cache) sealTags() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range c.tiers {
		r, ok := t.Driver.(store.Retagger)
		if i == 0 || t.Later || !ok {
			continue
		}
		for _, sp := range c.spaces {
			for _, u := range sp.units {
				if u == nil || !u.at[whole].has(i) {
					continue
				}
				tag := c.tag(u, whole, u.version[whole], u.expires[whole])
				e, err := t.Driver.Stat(context.Background(), u.key(whole))
				if err == nil && string(e.Tag) != string(tag) {
					err = r.Retag(context.Background(), e.Key, tag)
				}
				if err != nil {
					c.log.Warn("what was asked for a value is not remembered", "tier", t.Name, "key", u.name, "error", err)
				}
			}
		}
	}
}

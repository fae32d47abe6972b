package kvcache

import "time"

// Carrier carries out a registry's transfers in virtual time: each takes as long
// as the link of its edge says. It is for simulations, and for engines that only
// imitate time.
type Carrier struct {
	r     *Registry
	links []*Link // as r.ways
	now   time.Duration
	// Faults, if set, is asked what becomes of a transfer when it ends; nil means
	// that all has arrived.
	Faults func(*Transfer) []Fault

	started []*Transfer
}

// NewCarrier returns a carrier for a registry that nothing is under way in. All
// changes of time of the registry are the carrier's from then on.
func NewCarrier(r *Registry) *Carrier {
	c := &Carrier{r: r}
	for _, w := range r.ways {
		c.links = append(c.links, NewLink(w.cfg.Link))
	}
	return c
}

// Advance makes everything happen that happens until now, in its order.
func (c *Carrier) Advance(now time.Duration) {
	for {
		at, ok := c.Next()
		if !ok || at > now {
			break
		}
		c.now = max(c.now, at)
		for _, l := range c.links {
			for _, d := range l.Advance(c.now) {
				var faults []Fault
				if c.Faults != nil {
					faults = c.Faults(c.r.underway[d.ID])
				}
				c.r.Finish(c.now, d.ID, faults)
			}
		}
		c.r.Advance(c.now)
	}
	c.now = max(c.now, now)
	c.r.Advance(c.now)
	c.begin()
}

// begin puts what the registry wants to move onto the links.
func (c *Carrier) begin() {
	c.now = max(c.now, c.r.now)
	c.started = c.r.Start(c.started[:0], c.now)
	for _, x := range c.started {
		c.links[x.way().index].Add(c.now, x.ID, x.Bytes, x.Background)
	}
	for _, id := range c.r.Promoted() {
		for _, l := range c.links {
			l.Promote(c.now, id)
		}
	}
}

// Next returns when something happens by itself: a transfer ends, a way opens
// again, or a prefetch is due. What the registry has decided since begins with it.
func (c *Carrier) Next() (at time.Duration, ok bool) {
	c.begin()
	at, ok = c.r.Next()
	for _, l := range c.links {
		if t, busy := l.Next(); busy && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

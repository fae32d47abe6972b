package attach

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/engine"
)

// How many new lives within which time one server cannot have: it would have to load
// its model in between. And how long it is left alone after that, at first and at
// last.
const (
	tooManyLives = 4
	shortTime    = 20 * time.Second
	firstRest    = 30 * time.Second
	longestRest  = 5 * time.Minute
)

// crowd finds out that several servers answer at one address, as behind a load
// balancer: each look then meets another one. What one of them caches would be
// credited to all, so none of them may serve.
type crowd struct {
	epoch  uint64
	births []time.Time // of the newest lives
	until  time.Time   // not believed until then
	rest   time.Duration
}

// watch returns a status as it is to be believed.
func (c *crowd) watch(s engine.Status, now time.Time) engine.Status {
	if s.Epoch != c.epoch {
		if c.epoch != 0 && s.Card != nil {
			c.births = append(c.births, now)
		}
		c.epoch = s.Epoch
	}
	for len(c.births) > 0 && now.Sub(c.births[0]) > shortTime {
		c.births = c.births[1:]
	}
	if len(c.births) >= tooManyLives {
		c.rest = min(max(firstRest, 2*c.rest), longestRest)
		c.until, c.births = now.Add(c.rest), nil
	}
	if c.resting(now) && serves(s.State) {
		s.State = engine.Failed
		s.Reason = fmt.Sprintf("another process answers at this address every few seconds, as where several servers stand behind a load balancer: want an --engine for each of them, with its own address (looking again after %s)", c.rest)
	}
	return s
}

func (c *crowd) resting(now time.Time) bool { return now.Before(c.until) }

// pause waits until the rest is over.
func (c *crowd) pause(ctx context.Context) { pause(ctx, time.Until(c.until)) }

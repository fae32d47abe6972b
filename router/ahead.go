package router

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// ahead counts what was routed to a worker as cached there before the worker
// tells of it. It is kept apart from the index, which holds nothing but what
// workers have said. The zero value counts nothing.
type ahead struct {
	index  *kvindex.Index
	routed *kvindex.Routed // guarded by the router's lock
}

func newAhead(ttl time.Duration) ahead {
	x := kvindex.New()
	return ahead{x, kvindex.NewRouted(x, ttl)}
}

// match sets out to what the prompts routed lately have in common with this one.
func (a ahead) match(local []kv.LocalHash, out *kvindex.Matches) {
	if a.index == nil {
		out.Found = out.Found[:0]
		return
	}
	a.index.Match(local, out)
}

func (a ahead) expire(now time.Time) {
	if a.index != nil {
		a.routed.Expire(now)
	}
}

func (a ahead) removeTarget(t kv.Target) {
	if a.index != nil {
		a.routed.RemoveTarget(t)
		a.index.RemoveTarget(t)
	}
}

func (a ahead) removeWorker(id uint64) {
	if a.index != nil {
		a.routed.RemoveWorker(id)
		a.index.RemoveWorker(id)
	}
}

// expect lets a row count so many leading blocks as cached on the device. What
// lower tiers were found to continue with counts only beyond them.
func (c *Candidate) expect(blocks int) {
	more := blocks - c.Device
	if more <= 0 {
		return
	}
	c.Device = blocks
	c.Host, more = max(0, c.Host-more), max(0, more-c.Host)
	c.Disk = max(0, c.Disk-more)
}

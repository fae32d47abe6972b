package mock

import "github.com/dynago/dynago/kv"

// breaksPins says whether a waiting request would have to push out what is pinned,
// now or with a later part of its prompt, although it could wait for one that runs
// to end. Found are its blocks that are cached, and more those of them that it does
// not hold yet.
func (c *Core) breaksPins(r *request, found int, more []kv.SeqHash) bool {
	if pinned, _ := c.pool.PinBudget(); pinned == 0 || len(c.running) == 0 {
		return false
	}
	size := c.args.BlockSize
	need := blocks(r.length(), size) - found
	for _, o := range c.running {
		need += max(0, blocks(o.length(), size)-len(o.blocks))
	}
	return need > c.pool.Spare()-c.pool.SpareIn(more)
}

// hemmedIn says whether a request that would run alone comes to an end no sooner than
// pins do, for which blocks are available besides those that it has found. It would
// begin, come as far as these let it, and make room for none but itself, over and over.
func (c *Core) hemmedIn(r *request, found, available int) bool {
	pinned, _ := c.pool.PinBudget()
	return pinned > 0 && c.alone() && blocks(r.length(), c.args.BlockSize)-found > available
}

// alone says whether no request but those in the queue has blocks, or will.
func (c *Core) alone() bool { return len(c.running)+c.parked()+c.kept == 0 }

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

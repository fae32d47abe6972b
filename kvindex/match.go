package kvindex

import (
	"runtime"
	"sync/atomic"

	"github.com/dynago/dynago/kv"
)

// Match is what one target holds of a prompt. Blocks[kv.TierDevice] leading
// blocks lie on its device; from there on Blocks[kv.TierHost] more continue on
// the host, then on disk, then in a shared store.
type Match struct {
	Target kv.Target
	Blocks [tiers]int32
}

// Matches is the answer of [Index.Match]. It is reused: keep one per goroutine
// or in a pool, and read it before the next call with it.
type Matches struct {
	// Found holds the targets that have at least one block, in ascending order
	// of (worker, rank).
	Found []Match

	walk walk
}

// A reader that a writer gets in the way of begins again, first at once, then
// after others had a turn, and in the end it keeps the writer out.
const (
	eager   = 8
	patient = 64
)

// Match sets out to what each target holds of the prompt whose blocks have the
// local hashes given. Only an unbroken run from the first block on counts.
//
// What a target held without change from the call to the return is told
// exactly; of what changes meanwhile, each node of the tree is seen either
// before or after. A target that leaves meanwhile is not returned.
func (x *Index) Match(local []kv.LocalHash, out *Matches) {
	r := x.roster.Load()
	w := &out.walk
	for tries := 0; ; tries++ {
		w.begin(r)
		if tries == patient {
			x.tree.mu.Lock()
			w.run(&x.tree, local)
			x.tree.mu.Unlock()
			break
		}
		if w.run(&x.tree, local) {
			break
		}
		if tries >= eager {
			runtime.Gosched()
		}
	}
	out.Found = w.report(out.Found[:0], r, x.roster.Load())
}

// run goes down from the root as far as anyone holds the blocks. It says
// whether nothing it saw was being changed.
//
// A child is believed in because it has named its parent's last block at a time
// when the parent was still what it had been: the child's version is read
// before the parent's is compared.
func (w *walk) run(t *tree, local []kv.LocalHash) bool {
	if len(local) == 0 {
		return true
	}
	_, n, version := t.child(0, uint64(local[0]))
	for depth := 0; n != nil; {
		if version&1 != 0 {
			return false
		}
		r := n.at()
		hint := n.hint.Load()
		newest := t.node(uint32(hint >> 32))
		if newest != nil { // ask for it now; it will be here when it is needed
			w.touched += newest.version.Load()
			if first := t.hashes(place(hint), 1); first != nil {
				w.touched += first[0].Load()
			}
		}
		hashes := t.hashes(r.start, r.length)
		if len(hashes) == 0 {
			return false
		}
		same := common(hashes, local[depth:])
		w.visit(t, n, depth, same, r.length)
		if same < r.length || depth+same == len(local) || !w.alive() {
			w.end(depth + same)
			return n.version.Load() == version
		}
		depth += same
		child, v := (*node)(nil), uint64(0)
		if newest != nil {
			child, v = t.confirm(uint32(hint>>32), r.last(), uint64(local[depth]))
		}
		if child == nil && hint != 0 {
			_, child, v = t.child(r.last(), uint64(local[depth]))
		}
		if n.version.Load() != version {
			return false
		}
		if child == nil {
			w.end(depth)
		}
		n, version = child, v
	}
	return true
}

// common returns how many leading hashes of both are equal.
func common(run []atomic.Uint64, local []kv.LocalHash) int {
	n := min(len(run), len(local))
	i := 0
	for ; i+4 <= n; i += 4 {
		r, l := run[i:i+4:i+4], local[i:i+4:i+4]
		d := (r[0].Load() ^ uint64(l[0])) | (r[1].Load() ^ uint64(l[1])) |
			(r[2].Load() ^ uint64(l[2])) | (r[3].Load() ^ uint64(l[3]))
		if d != 0 {
			break
		}
	}
	for ; i < n && run[i].Load() == uint64(local[i]); i++ {
	}
	return i
}

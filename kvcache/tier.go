package kvcache

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// Tier is a pool together with the names of what lies in it: it tells everyone
// who listens what comes and goes. Allocation and publishing go through the tier;
// what else happens to its pool may go to the pool itself, and Sync finds out.
// Several registries may share one; their caller then keeps them apart.
type Tier struct {
	kind       kv.Tier
	pool       *Pool
	blocks     []Block // by slot, where something is published
	down       bool
	generation uint64
	listeners  []*Consolidator
	lost       map[kv.SeqHash]bool // published, and not to be used any more

	unread map[kv.SeqHash]bool // prefetched, and not used since
	wasted int64               // of these, gone without having been used

	hashes []kv.SeqHash // scratch
}

// NewTier returns a tier over an empty pool, which is the tier's from then on.
func NewTier(kind kv.Tier, p *Pool) *Tier {
	s := p.Stats()
	if s.Free != s.Total {
		panic(fmt.Sprintf("kvcache: a %s tier over a pool in use", kind))
	}
	return &Tier{kind: kind, pool: p, blocks: make([]Block, s.Total), lost: map[kv.SeqHash]bool{}, unread: map[kv.SeqHash]bool{}}
}

// Kind says which tier it is.
func (t *Tier) Kind() kv.Tier { return t.kind }

// Pool returns the tier's pool.
func (t *Tier) Pool() *Pool { return t.pool }

// Generation changes whenever something is stored or removed, so that what was
// looked up need not be looked up again while it stays the same.
func (t *Tier) Generation() uint64 { return t.generation }

// Has says whether the tier can give the block.
func (t *Tier) Has(h kv.SeqHash) bool { return !t.down && t.holds(h) && !t.lost[h] }

// holds says whether a slot has the block, of use or not.
func (t *Tier) holds(h kv.SeqHash) bool { return t.pool.find(h) != none }

// Block returns what is published in slot r, or the zero Block.
func (t *Tier) Block(r Ref) Block {
	if s := t.pool.State(r); s == Reset || s == Mutable {
		return Block{}
	}
	return t.blocks[t.pool.primary(r)]
}

// Listen tells c what is stored now, and from then on what changes.
func (t *Tier) Listen(c *Consolidator) {
	t.Sync()
	t.listeners = append(t.listeners, c)
	for run := range t.pool.Chains() {
		for _, r := range run {
			if b := t.blocks[r]; !t.lost[b.Hash] {
				c.Store(t.kind, b)
			}
		}
	}
}

// Unlisten tells c nothing any more. Whoever stops reading what a consolidator
// tells of a tier that goes on has to say so, or it will note changes for ever.
func (t *Tier) Unlisten(c *Consolidator) {
	t.listeners = slices.DeleteFunc(t.listeners, func(l *Consolidator) bool { return l == c })
}

// Allocate appends n mutable blocks, as [Pool.Allocate] does.
func (t *Tier) Allocate(dst []Ref, n int) ([]Ref, bool) { return t.allocate(dst, n, t.pool.Allocate) }

func (t *Tier) allocate(dst []Ref, n int, from func([]Ref, int) ([]Ref, []kv.SeqHash, bool)) ([]Ref, bool) {
	t.Sync()
	dst, evicted, ok := from(dst, n)
	for _, h := range evicted {
		t.gone(h)
	}
	return dst, ok
}

// fit appends up to n mutable blocks, for blocks of a class: it takes free slots
// and what is worth no more than that, and breaks no pin.
func (t *Tier) fit(dst []Ref, n int, c Class) []Ref {
	for range n {
		if worth, ok := t.pool.nextClass(); !ok || worth > c {
			break
		}
		var ok bool
		if dst, ok = t.allocate(dst, 1, t.pool.AllocateSpare); !ok {
			break
		}
	}
	return dst
}

// Register publishes a block, as [Pool.Publish] does, and returns the reference
// that the caller has from then on. Parent may be Root for a block whose parent
// the caller does not hold; it is then put below the parent if the tier has it.
func (t *Tier) Register(r Ref, b Block, parent Ref) (Ref, Outcome) {
	t.Sync()
	var hold []Ref
	if parent == Root && b.Parent != 0 {
		if up, ok := t.pool.Find(b.Parent); ok {
			hold = []Ref{up}
			t.pool.Hold(hold)
			parent = up
		}
	}
	r, outcome := t.pool.Publish(r, b.Hash, parent)
	if outcome == Added {
		t.blocks[r] = b
		t.generation++
		for _, c := range t.listeners {
			c.Store(t.kind, b)
		}
	}
	t.Release(hold)
	return r, outcome
}

// Restore publishes a block that was found in the tier's memory at a start, with
// its record, as one that nobody uses. Those that come first are the first to go.
// It returns the slot that stands for the block, or false if all slots are taken
// or one has the block already.
func (t *Tier) Restore(b Block, rec Record, zero time.Time) (Ref, bool) {
	if t.pool.Stats().Free == 0 || t.holds(b.Hash) {
		return 0, false
	}
	refs, _ := t.Allocate(nil, 1)
	ref, _ := t.Register(refs[0], b, Root)
	t.pool.Inherit(ref, rec, zero)
	t.Release([]Ref{ref})
	return ref, true
}

// Match appends references to the leading blocks that are present, as
// [Pool.MatchFor] does. What was prefetched has been of use then.
func (t *Tier) Match(session SessionID, dst []Ref, hashes []kv.SeqHash) []Ref {
	if t.down {
		return dst
	}
	if len(t.lost) > 0 {
		for i, h := range hashes {
			if t.lost[h] {
				hashes = hashes[:i]
				break
			}
		}
	}
	before := len(dst)
	dst = t.pool.MatchFor(session, dst, hashes)
	if len(t.unread) > 0 {
		for _, r := range dst[before:] {
			t.read(r)
		}
	}
	return dst
}

// Release gives references back, as [Pool.Release] does.
func (t *Tier) Release(refs []Ref) {
	t.pool.Release(refs)
	t.Sync()
}

// Sync tells those who listen what the pool has forgotten by itself, such as
// blocks that were to be used once.
func (t *Tier) Sync() {
	if len(t.pool.removed) == 0 {
		return
	}
	t.hashes = t.pool.TakeRemoved(t.hashes[:0])
	for _, h := range t.hashes {
		t.gone(h)
	}
}

// SetDown says that the tier cannot be reached, or that it can be again. While it
// is down it has nothing and takes nothing; what it holds stays.
func (t *Tier) SetDown(down bool) {
	t.down = down
	t.generation++
}

// Forget drops a block whose bytes have turned out to be gone or wrong. Nobody
// finds it any more, even where its slot has to wait for those who use it.
func (t *Tier) Forget(h kv.SeqHash) {
	if !t.holds(h) || t.lost[h] {
		return
	}
	t.tell(h)
	t.lost[h] = true
	t.pool.Discard(h)
	t.Sync()
}

// Clear drops everything that nobody uses and returns how many blocks these were.
func (t *Tier) Clear() int {
	t.hashes = t.hashes[:0]
	for run := range t.pool.Chains() {
		for _, r := range run {
			if t.pool.State(r) == Inactive {
				t.hashes = append(t.hashes, t.pool.Hash(r))
			}
		}
	}
	n := len(t.hashes)
	for _, h := range slices.Backward(t.hashes) { // children before their parents
		t.pool.Discard(h)
	}
	t.Sync()
	return n
}

// gone notes that a block lies in no slot any more. One that was lost has been
// told of already, and telling it twice does no harm.
func (t *Tier) gone(h kv.SeqHash) {
	delete(t.lost, h)
	if t.used(h) {
		t.wasted++
	}
	t.tell(h)
}

func (t *Tier) tell(h kv.SeqHash) {
	t.generation++
	for _, c := range t.listeners {
		c.Remove(t.kind, h)
	}
}

// peek returns a reference to one block, which is no use of it.
func (t *Tier) peek(h kv.SeqHash) (Ref, bool) {
	if !t.Has(h) {
		return 0, false
	}
	r, _ := t.pool.Find(h)
	t.pool.Hold([]Ref{r})
	return r, true
}

// hold returns references to the leading blocks that are present, which is no use
// of them.
func (t *Tier) hold(hashes []kv.SeqHash) (refs []Ref) {
	for _, h := range hashes {
		r, ok := t.peek(h)
		if !ok {
			break
		}
		refs = append(refs, r)
	}
	return refs
}

// used takes the mark of a prefetched block away and says whether it had one.
func (t *Tier) used(h kv.SeqHash) bool {
	if !t.unread[h] {
		return false
	}
	delete(t.unread, h)
	return true
}

// read ends what holds for a block only as long as nobody has asked for it.
func (t *Tier) read(r Ref) {
	if i := t.pool.primary(r); t.used(t.pool.blocks[i].hash) {
		t.pool.unpinOwner(i, prefetchOwner)
	}
}

// worth is what the retention of a block says about writing it elsewhere.
type worth struct {
	class     Class
	priority  uint8 // of its place in a queue
	known     uint8 // the priority that was asked for, 0 if none was
	pinned    bool
	ephemeral bool
	skip      bool
}

func (t *Tier) worth(r Ref) worth {
	p := t.pool
	w := worth{class: p.Class(r)}
	i := p.primary(r)
	flags := p.blocks[i].flags
	w.ephemeral, w.skip = flags&ephemeral != 0, flags&skipWrite != 0
	w.priority = p.priority(i)
	if w.priority != Neutral {
		w.known = w.priority
	}
	if w.pinned = w.class >= SoftPinned; w.pinned {
		w.priority, w.known = MaxPriority, MaxPriority
	}
	return w
}

// keep pins blocks that were prefetched, in the order of their sequence. It asks
// no budget: prefetches have their own.
func (t *Tier) keep(refs []Ref, ttl time.Duration) {
	for i := len(refs) - 1; i >= 0; i-- {
		t.pool.pin(t.pool.primary(refs[i]), Pin{Owner: prefetchOwner, TTL: ttl})
	}
}

// prefetchOwner owns the pins of prefetches.
const prefetchOwner = ^SessionID(0)

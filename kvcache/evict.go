package kvcache

import (
	linked "container/list"
	"math/bits"
	"time"
)

// Queues are numbered in the order in which they are emptied: the ephemeral one,
// then one for each priority.
const (
	ephemeralQueue = 0
	firstQueue     = 1
	neutralQueue   = firstQueue + Neutral
	queueCount     = firstQueue + MaxPriority + 1
)

// list is a doubly linked list through block.prev and block.next.
type list struct{ head, tail int32 }

// queue is a list of blocks in the order in which they came, behind a heap of
// those that were given an earlier place: blocks whose turn had come while they
// had children, and blocks of closed sessions. In a queue a parent may come
// before its child; it is set aside when its turn comes.
type queue struct {
	list
	front minHeap
}

// keeper knows which blocks are wanted, by whom and until when, and which one
// goes next. Its blocks are numbered entries; where they lie and how they are
// found is for the types around it, [Pool] and [Order].
//
// What is asked of no block costs nothing. Until anything is asked that changes the
// order the keeper is plain: it has one list, in which children come before their
// parents because they fall idle before them, and keeps no other account but tags.
// After that a block without any flag still goes to the end of the neutral queue.
type keeper struct {
	blocks  []block
	kind    Eviction
	plain   bool
	evicted [classes]uint64
	filled  [2]uint64 // queues that are not empty; unless plain
	pins    minHeap   // idle soft-pinned blocks by (expiry, turn)
	turn    int64     // numbers what is filed in a heap or set aside
	now     time.Duration

	notes    slab[note]
	noteOf   []int32 // by block, none without a note; nil before the first one
	pinnings slab[pinning]
	expiry   minHeap // blocks by the next deadline of their notes, or earlier
	budget   int64
	hard     bool        // hard pins are allowed
	room     func() bool // for more pins, but for the budget
	pinned   int64       // size of all pinned blocks
	tenants  map[TenantID]int64
	locked   [2]int
	pinnedAs [2]int  // by kind of lock, how many blocks have a pin
	expired  int64   // priorities and pins whose time was over
	path     []int32 // scratch

	sessions  []*session
	byID      map[SessionID]uint32
	vacant    []uint32
	resting   linked.List // of *session: those without requests, the longest idle first
	tags      []tag       // by block; nil before the first one
	tagSets   slab[tagSet]
	seen      []uint64 // a bit for each block; all 0 but for the while of a prune
	timeouts  minHeap
	timeout   time.Duration
	promoted  []Ref
	sizes     []int64 // by block; nil = 1 each
	frequency *sketch
	births    []int64 // FIFO: when a block was published

	queues [queueCount]queue // last, so that the rest lies together
}

// Kinds of lock: an idle block with a lock of its own or below it is not
// evictable, or only when nothing else is left.
const (
	byHard = iota // hard pins
	byAny         // pins of both kinds
)

func (k *keeper) init(c PoolConfig) {
	k.kind = c.Eviction
	k.plain = k.kind <= EvictLRU
	for i := range k.queues {
		k.queues[i].list = list{none, none}
		k.queues[i].front.moved = k.heaped
	}
	k.pins.moved = k.heaped
	k.expiry.moved = func(id, at int32) { k.notes.at(k.noteOf[id]).at = at }
	k.timeouts.moved = func(id, at int32) { k.sessions[id].at = at }
	k.budget, k.hard = c.PinBudget, c.HardPins
	k.timeout = c.SessionTimeout
	if k.timeout <= 0 {
		k.timeout = DefaultSessionTimeout
	}
	if c.Eviction == EvictMultiLRU {
		k.frequency = newSketch(c.Blocks)
	}
}

func (k *keeper) heaped(id, at int32) { k.blocks[id].prev = at }

// Advance tells the time, as the time since any moment that the caller has
// chosen. It never goes back. What has come due since takes effect now, each thing
// as of the moment at which it was due, so that a clock that is told seldom leads
// to the same as one that is told often.
func (k *keeper) Advance(now time.Duration) {
	for {
		expiry, timeout := time.Duration(k.expiry.first()), time.Duration(k.timeouts.first())
		due := min(expiry, timeout)
		if due > now || due == never {
			break
		}
		k.now = max(k.now, due)
		if expiry <= timeout {
			k.expire()
		} else {
			k.timeOut()
		}
	}
	k.now = max(k.now, now)
}

// Due returns when the next pin or priority ends, or session times out, if any will.
func (k *keeper) Due() (at time.Duration, ok bool) {
	at = time.Duration(min(k.expiry.first(), k.timeouts.first()))
	return at, at != never
}

// after returns the time at which ttl will have passed.
func (k *keeper) after(ttl time.Duration) time.Duration {
	if ttl >= never-k.now {
		return never
	}
	return k.now + ttl
}

// Evictions returns how many blocks were evicted so far, by class.
func (k *keeper) Evictions() [6]uint64 { return k.evicted }

// fall files a block that has fallen idle. Its children are idle already.
func (k *keeper) fall(i int32) {
	if k.plain {
		k.link(&k.queues[neutralQueue].list, i)
		return
	}
	b := &k.blocks[i]
	if b.up != none {
		k.blocks[b.up].kids++
	}
	if b.flags&odd == 0 && (k.kind == EvictRetention || k.kind == EvictLRU) {
		k.append(i, neutralQueue)
		return
	}
	if b.flags&noted != 0 {
		k.noteFalls(i)
	}
	if b.flags&foremost != 0 {
		k.fileFirst(i)
		return
	}
	k.file(i)
}

// wake takes a block that is wanted again out of its place.
func (k *keeper) wake(i int32) {
	if k.plain {
		k.unlink(&k.queues[neutralQueue].list, i)
		return
	}
	b := &k.blocks[i]
	if b.up != none {
		k.blocks[b.up].kids--
	}
	if b.flags&noted != 0 {
		k.noteWakes(i)
	}
	k.unfile(i)
}

// file puts an idle block where its wishes say.
func (k *keeper) file(i int32) {
	b := &k.blocks[i]
	switch until, hard := k.pinOf(i); {
	case hard:
		b.place = nowhere
	case until > 0:
		k.turn++
		b.place = inPins
		k.pins.push(item{int64(until), k.turn, i})
	case k.kind == EvictFIFO:
		b.queue = neutralQueue
		k.toFront(i, k.births[i])
	default:
		k.append(i, k.queueOf(i))
	}
}

// fileFirst puts an idle ephemeral block before all others, unless it is pinned.
func (k *keeper) fileFirst(i int32) {
	b := &k.blocks[i]
	b.flags &^= foremost
	if !k.kind.byClass() || k.isPinned(i) {
		k.file(i)
		return
	}
	b.queue = ephemeralQueue
	k.turn++
	k.toFront(i, -k.turn)
}

// queueOf says which queue a block without pins belongs to.
func (k *keeper) queueOf(i int32) uint8 {
	b := &k.blocks[i]
	switch k.kind {
	case EvictLRU, EvictFIFO:
		return neutralQueue
	case EvictMultiLRU:
		return firstQueue + k.frequency.level(b.hash)
	case EvictRetention:
		if b.flags&(ephemeral|once) != 0 {
			return ephemeralQueue
		}
	}
	return firstQueue + k.priority(i)
}

func (k *keeper) refile(i int32) {
	k.unfile(i)
	k.file(i)
}

func (k *keeper) unfile(i int32) {
	b := &k.blocks[i]
	switch b.place {
	case inList:
		k.unlink(&k.queues[b.queue].list, i)
		k.emptied(b.queue)
	case inFront:
		q := &k.queues[b.queue]
		q.front.remove(b.prev)
		k.emptied(b.queue)
	case inPins:
		k.pins.remove(b.prev)
	}
	b.place = nowhere
}

// append puts a block at the end of a queue.
func (k *keeper) append(i int32, to uint8) {
	b, q := &k.blocks[i], &k.queues[to]
	b.queue, b.place = to, inList
	k.filled[to>>6] |= 1 << (to & 63)
	k.link(&q.list, i)
}

func (k *keeper) link(l *list, i int32) {
	b := &k.blocks[i]
	b.prev, b.next = l.tail, none
	if b.prev == none {
		l.head = i
	} else {
		k.blocks[b.prev].next = i
	}
	l.tail = i
}

func (k *keeper) unlink(l *list, i int32) {
	b := &k.blocks[i]
	if b.prev == none {
		l.head = b.next
	} else {
		k.blocks[b.prev].next = b.next
	}
	if b.next == none {
		l.tail = b.prev
	} else {
		k.blocks[b.next].prev = b.prev
	}
}

// wish ends the time in which nothing was asked.
func (k *keeper) wish() {
	if !k.plain {
		return
	}
	k.plain = false
	for i := k.queues[neutralQueue].head; i != none; i = k.blocks[i].next {
		b := &k.blocks[i]
		b.queue, b.place = neutralQueue, inList
		k.filled[neutralQueue>>6] |= 1 << (neutralQueue & 63)
		if b.up != none {
			k.blocks[b.up].kids++
		}
	}
}

func (k *keeper) emptied(q uint8) {
	if k.queues[q].head == none && len(k.queues[q].front.items) == 0 {
		k.filled[q>>6] &^= 1 << (q & 63)
	}
}

// toFront puts a block before the list of its queue, by key.
func (k *keeper) toFront(i int32, key int64) {
	b := &k.blocks[i]
	b.place = inFront
	k.queues[b.queue].front.push(item{key: key, id: i})
	k.filled[b.queue>>6] |= 1 << (b.queue & 63)
}

// victim returns the block that goes next, or none if no block may.
//
// A block whose turn has come but who still has children is set aside with its
// place remembered, at most once until it is used or filed again, and so a
// victim costs constant time but for the heaps.
func (k *keeper) victim() int32 {
	if k.plain {
		return k.queues[neutralQueue].head
	}
	for {
		var q int
		switch {
		case k.filled[0] != 0:
			q = bits.TrailingZeros64(k.filled[0])
		case k.filled[1] != 0:
			q = 64 + bits.TrailingZeros64(k.filled[1])
		case len(k.pins.items) > 0:
			i := k.pins.items[0].id
			if k.blocks[i].kids == 0 {
				return i
			}
			x := k.pins.remove(0)
			k.setAside(i, x.seq)
			continue
		default:
			return none
		}
		i := k.queues[q].head
		front := &k.queues[q].front
		if len(front.items) > 0 {
			i = front.items[0].id
		}
		if k.blocks[i].kids == 0 {
			return i
		}
		if len(front.items) > 0 {
			x := front.remove(0)
			k.emptied(uint8(q))
			k.setAside(i, x.key)
			continue
		}
		k.unlink(&k.queues[q].list, i)
		k.emptied(uint8(q))
		k.turn++
		k.setAside(i, k.turn)
	}
}

// setAside takes a block, which is out of its queue, out of the way until its
// last child has gone.
func (k *keeper) setAside(i int32, key int64) {
	b := &k.blocks[i]
	b.place = aside
	b.prev, b.next = int32(key>>32), int32(key)
}

// childless gives a block that was set aside the place that it had.
func (k *keeper) childless(i int32) {
	b := &k.blocks[i]
	key := int64(b.prev)<<32 | int64(uint32(b.next))
	if until, _ := k.pinOf(i); until > 0 {
		b.place = inPins
		k.pins.push(item{int64(until), key, i})
		return
	}
	k.toFront(i, key)
}

// forget takes an idle block out of every structure, because it goes.
func (k *keeper) forget(i int32) {
	b := &k.blocks[i]
	k.unfile(i)
	if b.flags != 0 {
		k.unwish(i)
	}
	if b.up == none {
		return
	}
	up := &k.blocks[b.up]
	if up.kids--; up.kids == 0 && up.place == aside {
		k.childless(b.up)
	}
}

// unwish drops everything that was asked for a block.
func (k *keeper) unwish(i int32) {
	k.dropNote(i)
	k.dropTags(i)
	k.blocks[i].flags = 0
}

// original returns the block that r is, or is a duplicate of.
func (k *keeper) original(r Ref) int32 {
	if b := &k.blocks[r]; b.state == Duplicate {
		return b.up
	}
	return int32(r)
}

// size returns what a block counts for in budgets.
func (k *keeper) size(i int32) int64 {
	if k.sizes == nil {
		return 1
	}
	return k.sizes[i]
}

// published tells that a block is now found, which some orders go by.
func (k *keeper) published(i int32) {
	switch k.kind {
	case EvictFIFO:
		if len(k.births) < len(k.blocks) {
			k.births = append(k.births, make([]int64, len(k.blocks)-len(k.births))...)
		}
		k.turn++
		k.births[i] = k.turn
	case EvictMultiLRU:
		k.frequency.add(k.blocks[i].hash)
	}
}

package kvcache

import (
	"fmt"
	"iter"

	"github.com/dynago/dynago/kv"
)

// What becomes of slots when their blocks are found, held, dropped and evicted.

// leading yields the slots of the leading hashes that are present.
func (p *Pool) leading(hashes []kv.SeqHash) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		var slots [atOnce]int32
		for n := atOnce; n == atOnce; hashes = hashes[n:] {
			n = p.index.leading(p.blocks, hashes, &slots)
			for _, i := range slots[:n] {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func (p *Pool) find(h kv.SeqHash) int32 { return p.index.get(p.blocks, h) }

// primary returns the published block that r is, or is a duplicate of.
func (p *Pool) primary(r Ref) int32 {
	i := p.original(r)
	if !p.blocks[i].published() {
		panic(fmt.Sprintf("kvcache: block %d is %s, want one that is published", r, p.blocks[i].state))
	}
	return i
}

// hold takes a reference on a published block, and wakes its ancestors with it.
func (p *Pool) hold(i int32) {
	for i != none {
		b := &p.blocks[i]
		b.refs++
		if b.state != Inactive {
			return
		}
		p.wake(i)
		p.move(b, Primary)
		i = b.up
	}
}

// drop gives one reference back, and with the last one also the hold on what
// lies above.
func (p *Pool) drop(i int32) {
	for i != none {
		b := &p.blocks[i]
		if b.refs <= 0 {
			panic(fmt.Sprintf("kvcache: block %d released while %s and without references", i, b.state))
		}
		if b.refs--; b.refs > 0 {
			return
		}
		up := b.up
		switch {
		case b.state != Primary:
			if b.flags&foreign != 0 {
				p.usedByOthers(up)
			}
			p.reset(i)
		case b.flags&once != 0 && b.kids == 0 && !p.isPinned(i):
			p.unwish(i)
			p.unpublish(i)
		default:
			p.move(b, Inactive)
			p.fall(i)
		}
		i = up
	}
}

// take takes n blocks, of which there are enough, free ones first, and leaves
// counts and index to its caller.
func (p *Pool) take(dst []Ref, n int) []Ref {
	for range n {
		i := p.free.head
		if i != none {
			p.popFree()
		} else {
			i = p.victim()
			p.evicted[p.classOf(i)]++
			p.gone = append(p.gone, p.blocks[i].hash)
			p.forget(i)
		}
		b := &p.blocks[i]
		b.hash, b.up, b.refs, b.state = 0, none, 1, Mutable
		dst = append(dst, Ref(i))
	}
	return dst
}

// unpublish makes the slot of a block free that is idle and in no list, and not
// because another one needs it.
func (p *Pool) unpublish(i int32) {
	h := p.blocks[i].hash
	p.removed = append(p.removed, h)
	p.index.remove(h, i)
	p.reset(i)
}

// reset makes a slot free that is in no list.
func (p *Pool) reset(i int32) {
	b := &p.blocks[i]
	b.hash, b.up, b.flags = 0, none, 0
	p.move(b, Reset)
	p.pushFree(i)
}

func (p *Pool) move(b *block, to State) {
	p.count[b.state]--
	b.state = to
	p.count[to]++
}

func (p *Pool) pushFree(i int32) {
	p.blocks[i].next = none
	if p.free.tail == none {
		p.free.head = i
	} else {
		p.blocks[p.free.tail].next = i
	}
	p.free.tail = i
}

func (p *Pool) popFree() {
	p.free.head = p.blocks[p.free.head].next
	if p.free.head == none {
		p.free.tail = none
	}
}

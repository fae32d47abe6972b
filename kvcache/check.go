//go:build invariants

package kvcache

import "fmt"

// check panics if the pool contradicts itself. It looks at every slot, and so
// exists only under the build tag invariants.
func (p *Pool) check() {
	var count [Inactive + 1]int
	refs := make([]int32, len(p.blocks)) // held by children and duplicates
	for i := range p.blocks {
		b := &p.blocks[i]
		count[b.state]++
		if b.published() != (b.state != Duplicate && p.find(b.hash) == int32(i)) {
			panic(fmt.Sprintf("kvcache: block %d is %s and its hash %x leads to %d", i, b.state, b.hash, p.find(b.hash)))
		}
		if (b.refs == 0) != (b.state == Reset || b.state == Inactive) {
			panic(fmt.Sprintf("kvcache: block %d is %s with %d references", i, b.state, b.refs))
		}
		if b.up == none {
			continue
		}
		if up := &p.blocks[b.up]; b.state == Inactive && !up.published() || b.state != Inactive && up.state != Primary {
			panic(fmt.Sprintf("kvcache: block %d is %s below block %d, which is %s", i, b.state, b.up, up.state))
		}
		if b.state != Inactive {
			refs[b.up]++
		}
	}
	if count != p.count {
		panic(fmt.Sprintf("kvcache: counted %v, booked %v", count, p.count))
	}
	for i, n := range refs {
		if n > p.blocks[i].refs {
			panic(fmt.Sprintf("kvcache: block %d has %d references and %d holders below it", i, p.blocks[i].refs, n))
		}
	}
	p.checkLists()
}

func (p *Pool) checkLists() {
	n := 0
	for i := p.free.head; i != none; i = p.blocks[i].next {
		if n++; p.blocks[i].state != Reset {
			panic(fmt.Sprintf("kvcache: block %d is free and %s", i, p.blocks[i].state))
		}
	}
	if n != p.count[Reset] {
		panic(fmt.Sprintf("kvcache: %d slots in the free list of %d", n, p.count[Reset]))
	}
	n = 0
	passed := make([]bool, len(p.blocks))
	prev := none
	for i := p.inactive.head; i != none; i = p.blocks[i].next {
		b := &p.blocks[i]
		if n++; b.state != Inactive || b.prev != prev {
			panic(fmt.Sprintf("kvcache: block %d is %s in the inactive list, prev %d, after %d", i, b.state, b.prev, prev))
		}
		if passed[i] = true; b.up != none && passed[b.up] {
			panic(fmt.Sprintf("kvcache: block %d would go after its parent %d", i, b.up))
		}
		prev = i
	}
	if n != p.count[Inactive] || prev != p.inactive.tail {
		panic(fmt.Sprintf("kvcache: %d blocks in the inactive list of %d", n, p.count[Inactive]))
	}
}

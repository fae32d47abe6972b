package kvcache

import "github.com/dynago/dynago/kv"

// plainLRU is what a pool is measured against: the states, counts and index of a
// pool, and one list in the order of last use, leaves first.
type plainLRU struct {
	blocks  []block
	index   index
	idle    list
	free    list
	evicted []kv.SeqHash
	count   [Inactive + 1]int
}

func newPlainLRU(n int) *plainLRU {
	p := &plainLRU{blocks: make([]block, n), index: newIndex(n), idle: list{none, none}, free: list{none, none}}
	for i := range p.blocks {
		p.blocks[i] = block{up: none}
		p.push(&p.free, int32(i))
	}
	return p
}

func (p *plainLRU) match(dst []Ref, hashes []kv.SeqHash) []Ref {
	for _, h := range hashes {
		i := p.index.get(p.blocks, h)
		if i == none {
			break
		}
		p.hold(i)
		dst = append(dst, Ref(i))
	}
	return dst
}

func (p *plainLRU) hold(i int32) {
	for i != none {
		b := &p.blocks[i]
		b.refs++
		if b.state != Inactive {
			return
		}
		p.pull(&p.idle, i)
		p.move(b, Primary)
		i = b.up
	}
}

func (p *plainLRU) allocate(dst []Ref, n int) []Ref {
	p.evicted = p.evicted[:0]
	for range n {
		i := p.free.head
		if i == none {
			i = p.idle.head
			p.pull(&p.idle, i)
			b := &p.blocks[i]
			p.evicted = append(p.evicted, b.hash)
			p.index.remove(b.hash, i)
			b.up = none
		} else {
			p.pull(&p.free, i)
		}
		p.blocks[i].refs = 1
		p.move(&p.blocks[i], Mutable)
		dst = append(dst, Ref(i))
	}
	return dst
}

func (p *plainLRU) register(r Ref, h kv.SeqHash, parent Ref) {
	b := &p.blocks[r]
	if p.index.get(p.blocks, h) != none {
		panic("a duplicate")
	}
	b.hash = h
	p.move(b, Primary)
	if parent != Root {
		b.up = int32(parent)
		p.blocks[parent].refs++
	}
	p.index.put(h, int32(r))
}

func (p *plainLRU) release(refs []Ref) {
	for k := len(refs) - 1; k >= 0; k-- {
		for i := int32(refs[k]); i != none; i = p.blocks[i].up {
			b := &p.blocks[i]
			if b.refs--; b.refs > 0 {
				break
			}
			p.move(b, Inactive)
			p.push(&p.idle, i)
		}
	}
}

func (p *plainLRU) move(b *block, to State) {
	p.count[b.state]--
	b.state = to
	p.count[to]++
}

func (p *plainLRU) push(l *list, i int32) {
	b := &p.blocks[i]
	b.prev, b.next = l.tail, none
	if b.prev == none {
		l.head = i
	} else {
		p.blocks[b.prev].next = i
	}
	l.tail = i
}

func (p *plainLRU) pull(l *list, i int32) {
	b := &p.blocks[i]
	if b.prev == none {
		l.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		l.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
}

package kvcache

import "github.com/dynago/dynago/kv"

// What a pool does while it is plain, for many blocks at a time: the same as for
// others, without what only they need. Most of a block's cost is waiting for the
// lines of the index and of the blocks, and the fewer instructions lie between
// two such waits, the more of them overlap.

// takePlain takes n blocks, of which there are enough, as take does.
func (p *Pool) takePlain(dst []Ref, n int) []Ref {
	for ; n > 0 && p.free.head != none; n-- {
		i := p.free.head
		p.popFree()
		p.blocks[i].refs, p.blocks[i].state = 1, Mutable
		dst = append(dst, Ref(i))
	}
	l := &p.queues[neutralQueue].list
	for range n {
		i := l.head
		b := &p.blocks[i]
		l.head = b.next
		p.gone = append(p.gone, b.hash)
		if b.flags != 0 {
			p.dropTags(i)
			b.flags = 0
		}
		b.hash, b.up, b.refs, b.state = 0, none, 1, Mutable
		dst = append(dst, Ref(i))
	}
	if l.head == none {
		l.tail = none
	} else {
		p.blocks[l.head].prev = none
	}
	p.evicted[Plain] += uint64(n)
	return dst
}

// matchPlain holds the leading blocks that are present, for a session if known is
// true.
func (p *Pool) matchPlain(dst []Ref, hashes []kv.SeqHash, session uint32, known bool) []Ref {
	l := &p.queues[neutralQueue].list
	woken := 0
	var slots [atOnce]int32
	for n := atOnce; n == atOnce; hashes = hashes[n:] {
		n = p.index.leading(p.blocks, hashes, &slots)
		for _, i := range slots[:n] {
			dst = append(dst, Ref(i))
			switch f := p.blocks[i].flags; {
			case f == 0 && !known:
			case f&^foreign == tagged && known && p.tags[i] == tag(session+1):
			default:
				p.hit(i, session, known)
			}
			for ; i != none; i = p.blocks[i].up {
				b := &p.blocks[i]
				if b.refs++; b.state != Inactive {
					break
				}
				p.unlink(l, i)
				b.state = Primary
				woken++
			}
		}
	}
	p.count[Inactive] -= woken
	p.count[Primary] += woken
	return dst
}

// dropPlain gives back references on published blocks; it hands others to drop.
func (p *Pool) dropPlain(refs []Ref) {
	l := &p.queues[neutralQueue].list
	idle := 0
	for k := len(refs) - 1; k >= 0; k-- {
		for i := int32(refs[k]); i != none; {
			b := &p.blocks[i]
			if b.state != Primary || b.refs <= 0 {
				p.drop(i)
				break
			}
			if b.refs--; b.refs > 0 {
				break
			}
			b.state = Inactive
			p.link(l, i)
			idle++
			i = b.up
		}
	}
	p.count[Primary] -= idle
	p.count[Inactive] += idle
}

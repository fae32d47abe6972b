package kvcache

import "math"

// item is an entry of a heap: what is least by (key, seq) comes first.
type item struct {
	key, seq int64
	id       int32
}

func (a item) less(b item) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return a.seq < b.seq
}

// minHeap is a binary heap whose items can be removed from the middle: moved is
// told where each one lies. The zero minHeap with moved set is empty.
type minHeap struct {
	items []item
	moved func(id int32, at int32)
}

// first returns the least key, or the greatest number there is if h is empty.
func (h *minHeap) first() int64 {
	if len(h.items) == 0 {
		return math.MaxInt64
	}
	return h.items[0].key
}

func (h *minHeap) push(x item) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

func (h *minHeap) remove(at int32) item {
	x := h.items[at]
	last := len(h.items) - 1
	h.items[at] = h.items[last]
	h.items = h.items[:last]
	if int(at) < last {
		h.fix(at)
	}
	h.moved(x.id, none)
	return x
}

// fix restores the order after the item at has changed.
func (h *minHeap) fix(at int32) {
	if !h.up(int(at)) {
		h.down(int(at))
	}
}

func (h *minHeap) up(i int) (moved bool) {
	x := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !x.less(h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i, moved = parent, true
	}
	h.set(i, x)
	return moved
}

func (h *minHeap) down(i int) {
	x := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.items[child+1].less(h.items[child]) {
			child++
		}
		if !h.items[child].less(x) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, x)
}

func (h *minHeap) set(i int, x item) {
	h.items[i] = x
	h.moved(x.id, int32(i))
}

// schedule lets x.id come up by x.key: at is where it lies, or none. An entry that
// is earlier than need be stays so: it is put right when it comes up.
func (h *minHeap) schedule(x item, at int32) {
	if at == none {
		h.push(x)
		return
	}
	x.key = min(x.key, h.items[at].key)
	h.items[at] = x
	h.fix(at)
}

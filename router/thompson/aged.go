package thompson

import (
	"container/list"
	"iter"
)

// aged is a map that knows in which order its entries were put, so that the
// oldest can go first. Its zero value is empty.
type aged[K comparable, V any] struct {
	entries map[K]*list.Element // of *entry[K, V]
	order   list.List           // oldest first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (m *aged[K, V]) len() int { return len(m.entries) }

// get returns the value of k, or the zero value. The entry stays as old as it is.
func (m *aged[K, V]) get(k K) (v V) {
	if e := m.entries[k]; e != nil {
		return e.Value.(*entry[K, V]).value
	}
	return v
}

// put sets the value of k and makes it the youngest.
func (m *aged[K, V]) put(k K, v V) {
	if e := m.entries[k]; e != nil {
		e.Value.(*entry[K, V]).value = v
		m.order.MoveToBack(e)
		return
	}
	if m.entries == nil {
		m.entries = make(map[K]*list.Element)
	}
	m.entries[k] = m.order.PushBack(&entry[K, V]{k, v})
}

func (m *aged[K, V]) remove(k K) {
	if e := m.entries[k]; e != nil {
		m.order.Remove(e)
		delete(m.entries, k)
	}
}

// oldest returns the oldest entry, or zero values.
func (m *aged[K, V]) oldest() (k K, v V) {
	for k, v := range m.all() {
		return k, v
	}
	return k, v
}

// all returns the entries, oldest first.
func (m *aged[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := m.order.Front(); e != nil; e = e.Next() {
			if e := e.Value.(*entry[K, V]); !yield(e.key, e.value) {
				return
			}
		}
	}
}

package jinja

import "iter"

// Dict is a Python dict: a map that keeps the order in which keys came.
type Dict struct {
	keys, vals []Value
	// index finds keys once scanning would be slower than hashing.
	index map[any]int
}

const scanLimit = 8

// NewDict returns an empty dict with room for n keys.
func NewDict(n int) *Dict {
	both := make([]Value, 2*n)
	return &Dict{keys: both[:0:n], vals: both[n:n]}
}

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set puts a value under a key; a key that is already there keeps its place.
// A dict must not be set once a template has seen it.
func (d *Dict) Set(key, value Value) { d.put(nil, key, value) }

// put is Set within a render.
func (d *Dict) put(st *state, key, value Value) {
	if value == nil {
		value = None
	}
	if i := d.find(st, key); i >= 0 {
		d.vals[i] = value
		return
	}
	d.keys, d.vals = append(d.keys, key), append(d.vals, value)
	switch {
	case d.index != nil:
		if h, ok := hashKey(key); ok {
			d.index[h] = len(d.keys) - 1
		}
	case len(d.keys) > scanLimit:
		d.index = make(map[any]int, 2*len(d.keys))
		for i, k := range d.keys {
			if h, ok := hashKey(k); ok {
				d.index[h] = i
			}
		}
	}
}

// hashKey returns what stands for a key in the index: equal keys, such as 1,
// 1.0 and true, give the same. Rare kinds of keys are not indexed.
func hashKey(key Value) (any, bool) {
	switch k := key.(type) {
	case string:
		return k, true
	case markup:
		return string(k), true
	case int, bool:
		n, _ := small(k)
		return n, true
	case float64:
		if n := int(k); float64(n) == k {
			return n, true
		}
		return k, true
	}
	return nil, false
}

// Get returns the value under a key.
func (d *Dict) Get(key Value) (Value, bool) { return d.lookup(nil, key) }

// lookup is Get within a render.
func (d *Dict) lookup(st *state, key Value) (Value, bool) {
	if i := d.find(st, key); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// All goes through the keys and values in order.
func (d *Dict) All() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		for i, k := range d.keys {
			if !yield(k, d.vals[i]) {
				return
			}
		}
	}
}

func (d *Dict) get(key string) (Value, bool) {
	if d.index != nil {
		i, ok := d.index[key]
		if !ok {
			return nil, false
		}
		return d.vals[i], true
	}
	for i, k := range d.keys {
		if s, ok := k.(string); ok && s == key {
			return d.vals[i], true
		}
	}
	return nil, false
}

// find returns -1 if the key is not there, or the time is up.
func (d *Dict) find(st *state, key Value) int {
	if d.index != nil {
		if s, ok := text(key); ok && st.work(len(s)) != nil {
			return -1
		}
		if h, ok := hashKey(key); ok {
			if i, ok := d.index[h]; ok {
				return i
			}
			return -1
		}
	}
	for i, k := range d.keys {
		if equal(st, k, key) {
			return i
		}
	}
	return -1
}

// merge sets all of other's keys in d.
func (d *Dict) merge(st *state, other *Dict) {
	for i, k := range other.keys {
		d.put(st, k, other.vals[i])
	}
}

func (d *Dict) equal(st *state, o *Dict, depth int) bool {
	if d.Len() != o.Len() {
		return false
	}
	for i, k := range d.keys {
		v, ok := o.lookup(st, k)
		if !ok || !equalAt(st, d.vals[i], v, depth+1) {
			return false
		}
	}
	return true
}

func (d *Dict) pairs() []Value {
	items := make([]Value, len(d.keys))
	for i, k := range d.keys {
		items[i] = newTuple(k, d.vals[i])
	}
	return items
}

func (v *view) elements() []Value {
	switch v.part {
	case "keys":
		return v.dict.keys
	case "values":
		return v.dict.vals
	default:
		return v.dict.pairs()
	}
}

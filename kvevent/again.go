package kvevent

import (
	"encoding/binary"

	"github.com/dynago/dynago/kv"
)

// Most events repeat the one before them. An engine tells of each block that
// goes in an event of its own, which differs from the last one in the eight
// bytes of a key; and behind their tokens, stores go on as the store before them
// did. Comparing bytes is many times cheaper than reading them, and what has the
// same bytes means the same.

// lastRemoval is the last removal of one block in a message.
type lastRemoval struct {
	// from and to are where it begins and ends, key where its key's eight bytes
	// begin; to is 0 if there was none yet.
	from, key, to int
	told          told
}

// repeated reads an event if it is the last removal of another block.
func (d *Decoder) repeated(r *reader, e *told) bool {
	l := &d.removal
	n, k := l.to-l.from, l.key-l.from
	if l.to == 0 || len(r.b)-r.pos < n {
		return false
	}
	next, last := r.b[r.pos:r.pos+n], r.b[l.from:l.to]
	if string(next[:k]) != string(last[:k]) || string(next[k+8:]) != string(last[k+8:]) {
		return false
	}
	*e = l.told
	e.hashes.from = uint32(len(d.hashes))
	e.hashes.to = e.hashes.from + 1
	d.hashes = append(d.hashes, kv.EngineHash(binary.BigEndian.Uint64(next[k:])))
	r.pos += n
	return true
}

// remember keeps a removal, if its key is a number of 64 bits.
func (d *Decoder) remember(r *reader, e *told) {
	if e.kind == TypeRemoved && e.hashes.len() == 1 && isLong(r.b, d.from, d.keysEnd) {
		d.removal = lastRemoval{from: d.from, key: d.keysEnd - 8, to: r.pos, told: *e}
	}
}

// isLong says whether a number that ends at a place, in an event that begins at
// another, is one of 64 bits.
func isLong(b []byte, from, end int) bool {
	return end-9 > from && (b[end-9] == 0xcf || b[end-9] == 0xd3)
}

// lastHead is how the last store of one block began, up to its tokens.
type lastHead struct {
	// key and parent are where the eight bytes of each begin; to is 0 if there
	// was none yet.
	from, key, parent, to int
	left                  int // fields that follow
}

// firstFields are those of a head.
const firstFields = 1<<fieldType | 1<<fieldHashes | 1<<fieldParent

// begun reads the begin of a store if it is that of the last one with other
// keys. It returns how many fields follow.
func (d *Decoder) begun(r *reader, e *told) (left int, ok bool) {
	l := &d.head
	n, key, parent := l.to-l.from, l.key-l.from, l.parent-l.from
	if l.to == 0 || len(r.b)-r.pos < n {
		return 0, false
	}
	next, last := r.b[r.pos:r.pos+n], r.b[l.from:l.to]
	if string(next[:key]) != string(last[:key]) || string(next[key+8:parent]) != string(last[key+8:parent]) || string(next[parent+8:]) != string(last[parent+8:]) {
		return 0, false
	}
	e.kind, e.has = TypeStored, 1<<fieldHashes
	e.hashes = run{uint32(len(d.hashes)), uint32(len(d.hashes) + 1)}
	d.hashes = append(d.hashes, kv.EngineHash(binary.BigEndian.Uint64(next[key:])))
	e.parent, e.hasParent = kv.EngineHash(binary.BigEndian.Uint64(next[parent:])), true
	r.pos += n
	return l.left, true
}

// rememberHead keeps the begin of a store, up to a place behind which are so
// many fields, if it has one key and a parent, each a number of 64 bits.
func (d *Decoder) rememberHead(r *reader, e *told, to, left int) {
	if e.kind == TypeStored && e.hashes.len() == 1 && e.hasParent && d.keysEnd < d.parentEnd &&
		isLong(r.b, d.from, d.keysEnd) && isLong(r.b, d.keysEnd, d.parentEnd) {
		d.head = lastHead{from: d.from, key: d.keysEnd - 8, parent: d.parentEnd - 8, to: to, left: left}
	}
}

// lastTail is what the last store of a message said behind its tokens.
type lastTail struct {
	from, to int // to is 0 if there was none yet
	fields   int
	told     told
}

// headFields are those of a store up to its tokens. Only behind exactly these
// does a tail mean the same as another.
const headFields = 1<<fieldType | 1<<fieldHashes | 1<<fieldParent | 1<<fieldTokens

// follow reads the fields of a store behind its tokens if they are the same as
// those of the store before.
func (d *Decoder) follow(r *reader, e *told, fields int) bool {
	l := &d.behind
	n := l.to - l.from
	if l.to == 0 || l.fields != fields || len(r.b)-r.pos < n || string(r.b[r.pos:r.pos+n]) != string(r.b[l.from:l.to]) {
		return false
	}
	head := *e
	*e = l.told
	e.hashes, e.tokens, e.paired, e.parent, e.hasParent = head.hashes, head.tokens, head.paired, head.parent, head.hasParent
	r.pos += n
	return true
}

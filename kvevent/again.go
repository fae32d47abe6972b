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

// remember keeps a removal that was read from a place on, if its key is a number
// of 64 bits. The key is the last one that was read.
func (d *Decoder) remember(r *reader, e *told, from int) {
	key := d.keysEnd - 8
	if e.kind == TypeRemoved && e.hashes.len() == 1 && key > from && (r.b[key-1] == 0xcf || r.b[key-1] == 0xd3) {
		d.removal = lastRemoval{from: from, key: key, to: r.pos, told: *e}
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

package kvevent

import (
	"bytes"

	"github.com/dynago/dynago/kv"
)

// eventDepth is how deep a value inside an event may nest: a message holds a
// list of events, which are containers themselves.
const eventDepth = maxDepth - 3

// event reads one event. If it is not as it should be the position is anywhere.
func (d *Decoder) event(r *reader, e *told) bool {
	if d.repeated(r, e) {
		return true
	}
	d.from = r.pos
	if left, ok := d.begun(r, e); ok {
		return d.fields(r, e, left, firstFields) && e.complete()
	}
	if !d.anew(r, e) {
		return false
	}
	d.remember(r, e)
	return true
}

// anew reads one event word by word.
func (d *Decoder) anew(r *reader, e *told) bool {
	switch r.next() {
	case shapeArray:
		n, ok := r.array()
		return ok && d.positional(r, e, n) && e.complete()
	case shapeMap:
		n, ok := r.pairs()
		return ok && d.fields(r, e, n, 0) && e.complete()
	}
	return false
}

// complete says whether an event has the fields that its type cannot do
// without.
func (e *told) complete() bool {
	var needs uint32
	switch e.kind {
	case TypeStored:
		needs = 1<<fieldHashes | 1<<fieldTokens | 1<<fieldBlockSize
	case TypeRemoved:
		needs = 1 << fieldHashes
	}
	return e.has&needs == needs
}

// field is one of those that events have.
type field uint8

const (
	fieldType field = iota
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldExtra
	fieldGroup
	fieldAttention
	fieldWindow
	fieldLocality
	fieldOwnership
	fieldMetadata
	fieldSalt
	fieldMedia
	fieldOther
)

// fieldNames has the names of the fields, in the order in which engines write
// them.
var fieldNames = [fieldOther + 1]string{
	"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
	"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
	"locality", "ownership", "metadata", "cache_salt", "block_mm_infos", "",
}

// fieldsByName finds them by their names.
var fieldsByName = func() map[string]field {
	m := make(map[string]field, fieldOther)
	for f, name := range fieldNames {
		m[name] = field(f)
	}
	return m
}()

// fieldOf returns the field of this name. It looks at the guess first.
func fieldOf(name []byte, guess field) field {
	guess = min(guess, fieldOther)
	if string(name) == fieldNames[guess] {
		return guess
	}
	if f, ok := fieldsByName[string(name)]; ok {
		return f
	}
	return fieldOther
}

// fields reads the fields of an event that is a map, of which left are to come
// and seen have been, by a bit each. Fields of the value that a publisher takes
// for granted may be missing.
func (d *Decoder) fields(r *reader, e *told, left int, seen uint32) bool {
	guess := fieldType
	if seen == firstFields {
		guess = fieldTokens
	}
	var tail lastTail
	for left--; left >= 0; left-- {
		from := r.pos
		name, ok := r.text()
		if !ok {
			return false
		}
		f := fieldOf(name, guess)
		guess = f + 1
		if f == fieldTokens && seen == firstFields {
			d.rememberHead(r, e, from, left+1)
		}
		seen |= 1 << f
		if !d.field(r, e, f) {
			return false
		}
		switch {
		case f == fieldType && e.kind == TypeUnknown:
			// What its fields are is for those to know who know the type.
			return r.skipItems(2*left, eventDepth)
		case f == fieldTokens && seen == headFields && e.kind == TypeStored:
			if d.follow(r, e, left) {
				return true
			}
			tail.from, tail.fields = r.pos, left
		}
	}
	if tail.from > 0 {
		tail.to, tail.told = r.pos, *e
		d.behind = tail
	}
	return seen&(1<<fieldType) != 0
}

func typeOf(tag []byte) EventType {
	switch string(tag) {
	case "BlockStored":
		return TypeStored
	case "BlockRemoved":
		return TypeRemoved
	case "AllBlocksCleared":
		return TypeCleared
	}
	return TypeUnknown
}

// field reads the value of one field.
func (d *Decoder) field(r *reader, e *told, f field) (ok bool) {
	switch f {
	case fieldType:
		tag, ok := r.text()
		e.kind = typeOf(tag)
		return ok
	case fieldHashes:
		e.hashes.from = uint32(len(d.hashes))
		d.hashes, ok = r.hashes(d.hashes)
		e.hashes.to = uint32(len(d.hashes))
		d.keysEnd = r.pos
		e.has |= 1 << f
		return ok
	case fieldParent:
		if r.null() {
			e.hasParent = false
			return true
		}
		h, ok := r.hash()
		e.parent, e.hasParent = kv.EngineHash(h), true
		d.parentEnd = r.pos
		return ok
	case fieldTokens:
		var n int
		e.tokens.from = uint32(len(d.tokens))
		d.tokens, n, e.paired, ok = r.tokens(d.tokens)
		e.tokens.to = e.tokens.from + uint32(n)
		e.has |= 1 << f
		return ok
	case fieldBlockSize:
		size, negative, ok := r.integer()
		e.blockSize = size
		e.has |= 1 << f
		return ok && !negative
	case fieldLoRAID:
		return r.loraID(e)
	case fieldMedium:
		s, ok := r.textOrNull()
		tier, known := tierOf(s)
		e.tier, e.lost = tier, !known
		return ok
	case fieldLoRAName:
		return r.textRun(&e.lora)
	case fieldExtra:
		return r.valueRun(&e.extra)
	case fieldGroup:
		if r.null() {
			e.hasGroup = false
			return true
		}
		e.group, ok = r.uint32()
		e.hasGroup = true
		return ok
	case fieldAttention:
		s, ok := r.textOrNull()
		if e.attention = attentionUntold; s != nil {
			e.attention = attentionOf(s)
		}
		return ok
	case fieldLocality:
		s, ok := r.textOrNull()
		e.remote = s != nil && !isLocal(s)
		return ok
	case fieldOwnership:
		s, ok := r.textOrNull()
		if e.owner = ownerEngine; s != nil {
			e.owner = ownerOf(s)
		}
		return ok
	case fieldMetadata:
		return r.metadata(e)
	case fieldSalt:
		return r.textRun(&e.salt)
	case fieldMedia:
		return r.valueRun(&e.media)
	}
	return r.skip(eventDepth)
}

// isLocal says whether a locality is this machine's, in whatever case.
func isLocal(s []byte) bool { return bytes.EqualFold(s, []byte("LOCAL")) }

// textOrNull reads a string, or nil for a nil.
func (r *reader) textOrNull() ([]byte, bool) {
	if r.null() {
		return nil, true
	}
	return r.text()
}

// textRun reads a string, or nil, and says where it is.
func (r *reader) textRun(at *run) bool {
	s, ok := r.textOrNull()
	*at = run{uint32(r.pos - len(s)), uint32(r.pos)}
	return ok
}

// valueRun steps over a value and says where it is; a nil is nowhere.
func (r *reader) valueRun(at *run) bool {
	if *at = (run{}); r.null() {
		return true
	}
	at.from = uint32(r.pos)
	ok := r.skip(eventDepth)
	at.to = uint32(r.pos)
	return ok
}

// loraID reads the number of an adapter. Blocks without one say nil, or 0.
func (r *reader) loraID(e *told) bool {
	if r.next() != shapeInt {
		e.adapter = false
		return r.skip(eventDepth)
	}
	id, _, ok := r.integer()
	e.adapter = id != 0
	return ok
}

// metadata reads what a publisher says of the request that made the blocks.
func (r *reader) metadata(e *told) bool {
	if r.next() != shapeMap {
		return r.skip(eventDepth)
	}
	n, ok := r.pairs()
	if !ok {
		return false
	}
	for range n {
		name, ok := r.text()
		switch {
		case !ok:
			return false
		case string(name) != "cache_salt":
			ok = r.skip(eventDepth)
		default:
			ok = r.textRun(&e.salt)
		}
		if !ok {
			return false
		}
	}
	return true
}

// The fields of arrays, up to where builds begin to differ.
var (
	storedFields  = [...]field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRAName, fieldExtra}
	removedFields = [...]field{fieldHashes, fieldMedium}
	// tailFields follow. Older builds have some of them, in any order.
	tailFields = [...]field{fieldGroup, fieldAttention, fieldWindow, fieldLocality, fieldOwnership}
)

// positional reads an event that is an array of n items.
func (d *Decoder) positional(r *reader, e *told, n int) bool {
	if n == 0 {
		return false
	}
	tag, ok := r.text()
	if !ok {
		return false
	}
	n--
	var fields []field
	switch e.kind = typeOf(tag); e.kind {
	case TypeStored:
		fields = storedFields[:]
	case TypeRemoved:
		fields = removedFields[:]
	case TypeCleared:
		if n > 0 && r.next() == shapeText {
			n--
			s, ok := r.text()
			// One publisher has the medium here. More is cleared then than it says.
			if _, medium := tierOf(s); !medium {
				e.owner = ownerOf(s)
			}
			if !ok {
				return false
			}
		}
		return r.skipItems(n, eventDepth)
	default:
		return r.skipItems(n, eventDepth)
	}
	for _, f := range fields[:min(n, len(fields))] {
		if f == fieldLoRAName && r.next() == shapeMap {
			f = fieldMetadata // one engine puts it in this place
		}
		if !d.field(r, e, f) {
			return false
		}
	}
	return d.tail(r, e, max(0, n-len(fields)))
}

// tail reads the last n items of an event. With three of them or more they are
// as tailFields says, as far as their shapes agree with it; otherwise they are
// known by their shapes alone.
func (d *Decoder) tail(r *reader, e *told, n int) bool {
	placed := n >= 3
	var grouped, kinded bool
	for i := range n {
		f := fieldOther
		if placed {
			if i >= len(tailFields) {
				return r.skipItems(n-i, eventDepth)
			}
			f = tailFields[i]
		}
		var ok bool
		switch r.next() {
		case shapeInt:
			if f != fieldWindow && !grouped {
				f, grouped = fieldGroup, true
			} else {
				f = fieldWindow
			}
			ok = d.field(r, e, f)
		case shapeText:
			var s []byte
			s, ok = r.text()
			switch {
			case f == fieldLocality || f != fieldOwnership && isLocality(s):
				e.remote = !isLocal(s)
			case f != fieldOwnership && !kinded:
				e.attention, kinded = attentionOf(s), true
			default:
				e.owner = ownerOf(s)
			}
		case shapeArray:
			// The oldest builds have the media here, if it is that.
			var at run
			if ok = r.valueRun(&at); ok && isMedia(part(r.b, at)) {
				e.media = at
			}
		default:
			ok = r.skip(eventDepth)
		}
		if !ok {
			return false
		}
	}
	return true
}

// isLocality says whether s is a word for a place.
func isLocality(s []byte) bool { return isLocal(s) || bytes.EqualFold(s, []byte("REMOTE")) }

// skipItems steps over n values.
func (r *reader) skipItems(n, depth int) bool {
	for range n {
		if !r.skip(depth) {
			return false
		}
	}
	return true
}

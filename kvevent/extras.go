package kvevent

import "bytes"

// extras is what the keys of a store's blocks depend on beside their tokens.
type extras struct {
	salt []byte // our salt of the chain; empty = none told
	// Blocks from end on cannot be named, because of why.
	end int
	why Reason
	// media has the hashes of the media of all blocks, upTo for each block the
	// end of its own. Both are empty if there are none at all.
	media []uint64
	upTo  []int
}

// mediaOf returns the media of the i-th block, in the order told.
func (x *extras) mediaOf(i int) []uint64 {
	if i >= len(x.upTo) {
		return nil
	}
	from := 0
	if i > 0 {
		from = x.upTo[i-1]
	}
	return x.media[from:x.upTo[i]]
}

// read takes the extras of a store of n blocks apart.
func (x *extras) read(payload []byte, e *told, n int) Reason {
	x.salt, x.end, x.why = nil, n, None
	x.media, x.upTo = x.media[:0], x.upTo[:0]
	if e.extra.len() > 0 && !x.keys(&reader{b: part(payload, e.extra)}, part(payload, e.lora), n) {
		return MalformedEvent
	}
	if e.media.len() > 0 && !x.infos(&reader{b: part(payload, e.media)}, n) {
		return MalformedEvent
	}
	return None
}

// stop says that nothing from the i-th block on can be named.
func (x *extras) stop(i int, why Reason) {
	if i < x.end {
		x.end, x.why = i, why
	}
}

// keys reads what vLLM calls extra keys: for each block nil, or a list.
func (x *extras) keys(r *reader, lora []byte, n int) bool {
	blocks, ok := r.array()
	if !ok {
		return false
	}
	for i := range min(blocks, n) {
		if r.null() {
			x.upTo = append(x.upTo, len(x.media))
			continue
		}
		items, ok := r.array()
		if !ok {
			return false
		}
		for j := range items {
			if !x.key(r, lora, i, j) {
				return false
			}
		}
		x.upTo = append(x.upTo, len(x.media))
	}
	return true
}

// key reads the j-th extra key of the i-th block.
func (x *extras) key(r *reader, lora []byte, i, j int) bool {
	switch r.next() {
	case shapeText:
		s, ok := r.text()
		hash, media := mediaHash(s)
		salt, salted := bytes.CutPrefix(s, []byte(saltPrefix))
		switch {
		case j == 0 && len(lora) > 0 && bytes.Equal(s, lora):
		case media:
			x.media = append(x.media, hash)
		case salted && i == 0:
			x.salt = salt
		default:
			x.stop(i, ForeignNamespace)
		}
		return ok
	case shapeArray:
		return x.placed(r, i)
	case shapeNil:
	default:
		x.stop(i, ForeignNamespace) // embeddings in the place of tokens, say
	}
	return r.skip(eventDepth)
}

// placed reads one of the media with its place in the block: a hash and an
// offset. The place does not matter to us.
func (x *extras) placed(r *reader, i int) bool {
	n, ok := r.array()
	if !ok {
		return false
	}
	if n == 0 || r.next() != shapeText {
		x.stop(i, ForeignNamespace)
		return r.skipItems(n, eventDepth)
	}
	s, ok := r.text()
	if hash, media := mediaHash(s); media {
		x.media = append(x.media, hash)
	} else {
		x.stop(i, UnknownMedia)
	}
	return ok && r.skipItems(n-1, eventDepth)
}

// mediaHash reads a hash of media: 64 hexadecimal digits, of which the first 16
// count.
func mediaHash(s []byte) (hash uint64, ok bool) {
	if len(s) != 64 {
		return 0, false
	}
	for i, c := range s {
		var digit byte
		switch {
		case '0' <= c && c <= '9':
			digit = c - '0'
		case 'a' <= c && c <= 'f':
			digit = c - 'a' + 10
		case 'A' <= c && c <= 'F':
			digit = c - 'A' + 10
		default:
			return 0, false
		}
		if i < 16 {
			hash = hash<<4 | uint64(digit)
		}
	}
	return hash, true
}

// isMedia says whether a value can be read as the media of blocks, and tells of
// any.
func isMedia(value []byte) bool {
	var x extras
	return x.infos(&reader{b: value}, maxItems) && len(x.media) > 0
}

// infos reads what the reference's publishers call block_mm_infos: for each
// block nil, or its mm_objects, as maps or as arrays in the order of the fields.
// It stands in for media read from extra keys.
func (x *extras) infos(r *reader, n int) bool {
	x.media, x.upTo = x.media[:0], x.upTo[:0]
	blocks, ok := r.array()
	if !ok {
		return false
	}
	for range min(blocks, n) {
		if !r.null() && !r.field("mm_objects", 0, x.objects) {
			return false
		}
		x.upTo = append(x.upTo, len(x.media))
	}
	return true
}

// objects reads a list of media.
func (x *extras) objects(r *reader) bool {
	n, ok := r.array()
	if !ok {
		return false
	}
	for range n {
		if !r.field("mm_hash", 0, x.object) {
			return false
		}
	}
	return true
}

func (x *extras) object(r *reader) bool {
	hash, _, ok := r.integer()
	x.media = append(x.media, hash)
	return ok
}

// field steps over a struct, and has one of its fields read: in a map the one
// called name, in an array the one at a place. It must be there.
func (r *reader) field(name string, place int, read func(*reader) bool) bool {
	found := false
	ok := r.structure(func(n []byte, at int) bool {
		if string(n) != name && at != place {
			return r.skip(eventDepth)
		}
		found = true
		return read(r)
	})
	return ok && found
}

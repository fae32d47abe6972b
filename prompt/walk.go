package prompt

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/zeebo/xxh3"
)

// encoding says how to read control tokens in a text.
type encoding struct {
	// literal makes text of all control tokens that are not the template's.
	literal bool
	// inert are the places of those, as in [chattemplate.Rendered].
	inert []int
	// raw tells that no template wrote the text.
	raw bool
}

// walk is one text on its way to ids, from cut to cut. Of what lies between two
// cuts the ids may be known, from the cache; of what begins behind a cut, from
// an answer that was given there.
type walk struct {
	*encoder
	encoding
	text  string
	cache *Cache // or nil
	turns *Turns // or nil
	// same tells that the conversation has an answer as it was given, however the
	// template shows it. It is nil unless such are to be replayed; eos are then the
	// ids that end turns.
	same func(*turn) bool
	eos  []uint32

	ids    []uint32
	chain  chain // of ids up to the place that the walk has reached
	cached int   // ids that came out of the cache
	last   place // behind the last cut
	places []place
	note   bool // keep all places
	behind bool // the text stands behind a cut
	probes bool // it is no prompt, and not counted
}

// place is a position behind a cut, or the beginning.
type place struct {
	text  int // offset in bytes
	ids   int
	chain chain // of the ids before it
}

// buffers hold the ids of one prompt while they are made: their number is known
// at the end only.
var buffers = sync.Pool{New: func() any { return new([]uint32) }}

// keptIDs is the size of a buffer that may be kept for the next prompt.
const keptIDs = 1 << 20

// run walks to the end of the text. The ids are the caller's own.
func (w *walk) run() {
	buffer := buffers.Get().(*[]uint32)
	w.ids, w.chain = (*buffer)[:0], noIDs
	w.encode(place{chain: noIDs})
	if w.cache != nil {
		w.cache.count(w.cached, len(w.ids))
	}
	made := w.ids
	w.ids = slices.Clone(made)
	if cap(made) <= keptIDs {
		*buffer = made
		buffers.Put(buffer)
	}
}

// encode goes on from a place up to the end.
func (w *walk) encode(from place) {
	if w.controls == nil {
		w.ids = w.tokenizer.Append(w.ids, w.text)
		return
	}
	w.pieces(from)
}

// pieces is encode where control tokens cut.
func (w *walk) pieces(from place) {
	start := w.reach(from)
	p := piece{encoding: w.encoding}
	for at := start; ; {
		i, j, ok := w.controls.Find(w.text, at)
		if !ok {
			break
		}
		if w.literal && spans(w.inert, i, j) {
			p.typed = append(p.typed, span{i - start, j - start})
			at = i + 1
			continue
		}
		c, ok := w.cuts[w.text[i:j]]
		if !ok {
			p.structured = true
			at = j
			continue
		}
		before, after := w.text[start:i], w.text[j:]
		if c.left {
			before = strings.TrimRightFunc(before, unicode.IsSpace)
		}
		if c.right {
			after = strings.TrimLeftFunc(after, unicode.IsSpace)
		}
		w.piece(before, start == 0 && !w.behind, p)
		w.ids = append(w.ids, c.id)
		w.chain = w.chain.then(c.id)
		start = w.reach(place{len(w.text) - len(after), len(w.ids), w.chain})
		at, p = start, piece{encoding: w.encoding}
	}
	w.piece(w.text[start:], start == 0 && !w.behind, p)
}

// reach notes a place, and returns where the walk goes on: behind the answer that
// is known to have been given there.
func (w *walk) reach(to place) int {
	w.last = to
	if w.note {
		w.places = append(w.places, to)
	}
	if w.turns == nil {
		return to.text
	}
	known, length := w.turns.find(to.chain, w.text[to.text:], func(t *turn) int { return w.shows(t, to) }, !w.probes)
	if known == nil {
		return to.text
	}
	w.add(known.ids)
	return to.text + length
}

// shows returns how much of the text behind a place shows an answer, with what
// stood between the place and it; 0 if it does not.
func (w *walk) shows(t *turn, from place) int {
	rest := w.text[from.text:]
	switch {
	case strings.HasPrefix(rest, t.text) && w.endsAt(from.text+len(t.text)):
		return len(t.text)
	case w.same != nil && strings.HasPrefix(rest, t.tail) && w.same(t):
		return w.replaceable(t, from)
	}
	return 0
}

// replaceable returns how much of the text the template has made of an answer, up
// to the end of the turn. There is one only if no other turn begins before it, as
// the token tells behind which this one did.
func (w *walk) replaceable(t *turn, from place) int {
	if len(w.ids) == 0 {
		return 0
	}
	opens := w.ids[len(w.ids)-1]
	for at := from.text + len(t.tail); ; {
		i, j, ok := w.controls.Find(w.text, at)
		if !ok {
			return 0
		}
		at = j
		if w.literal && spans(w.inert, i, j) {
			continue
		}
		switch c, ok := w.cuts[w.text[i:j]]; {
		case ok && slices.Contains(w.eos, c.id):
			return i - from.text
		case ok && c.id == opens:
			return 0
		}
	}
}

// endsAt tells that an answer may have ended here: what follows, if anything, are
// blanks that the template put there, and what cuts.
func (w *walk) endsAt(at int) bool {
	rest := strings.TrimLeftFunc(w.text[at:], unicode.IsSpace)
	if rest == "" {
		return true
	}
	at = len(w.text) - len(rest)
	i, j, ok := w.controls.Find(w.text[:min(len(w.text), at+w.longest)], at)
	if !ok || i != at || w.literal && spans(w.inert, i, j) {
		return false
	}
	_, ok = w.cuts[w.text[i:j]]
	return ok
}

// add appends ids.
func (w *walk) add(ids []uint32) {
	w.ids = append(w.ids, ids...)
	if w.turns != nil {
		w.chain = w.chain.join(chainOf(ids))
	}
}

// spans tells that one of the sorted offsets lies inside of start to end.
func spans(offsets []int, start, end int) bool {
	i, _ := slices.BinarySearch(offsets, start+1)
	return i < len(offsets) && offsets[i] < end
}

// piece is what is known of the text between two cuts.
type piece struct {
	encoding
	structured bool   // the template wrote control tokens in it, which do not cut
	typed      []span // control tokens of a client
}

type span struct{ start, end int }

// piece appends the ids of the text between two cuts, or, if it is the first, of
// what stands before the first one.
func (w *walk) piece(text string, first bool, p piece) {
	switch {
	case text == "":
	case !p.literal || p.structured && p.typed == nil:
		w.plain(text, reading{first: first})
	case !p.structured:
		w.plain(text, reading{first: first, literal: true})
	default:
		w.mixed(text, first, p)
	}
}

// plain appends the ids of a text that is read in one way throughout.
func (w *walk) plain(text string, read reading) {
	remember := w.cache != nil && len(text) >= minCached
	var hash uint64
	if remember {
		hash = xxh3.HashString(text)
		if known := w.cache.get(hash, text, read); known != nil {
			w.cached += len(known.ids)
			w.ids = append(w.ids, known.ids...)
			w.chain = w.chain.join(known.chain)
			return
		}
	}
	start := len(w.ids)
	w.tokenize(text, read)
	made := w.ids[start:]
	var c chain
	if remember || w.turns != nil {
		c = chainOf(made)
		w.chain = w.chain.join(c)
	}
	if remember {
		w.cache.put(hash, text, read, made, c)
	}
}

func (w *walk) tokenize(text string, read reading) {
	switch {
	case !read.first:
		w.ids = w.tokenizer.AppendBehind(w.ids, text, read.literal)
	case read.literal:
		w.ids = w.tokenizer.AppendLiteral(w.ids, text)
	default:
		w.ids = w.tokenizer.Append(w.ids, text)
	}
}

// mixed appends the ids of a text in which some control tokens have their effect
// and others, typed, have none: the tokenizer reads either all or none.
func (w *walk) mixed(text string, first bool, p piece) {
	start, done := len(w.ids), 0
	upTo := func(end int, literal bool) {
		if end = min(end, len(text)); end > done {
			w.tokenize(text[done:end], reading{first: first && done == 0, literal: literal})
			done = end
		}
	}
	for _, s := range p.typed {
		upTo(s.start, false)
		upTo(s.end, true)
	}
	upTo(len(text), false)
	w.chain = w.chain.join(chainOf(w.ids[start:]))
}

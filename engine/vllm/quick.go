package vllm

import (
	"bytes"
	"unicode/utf8"
)

// told is what nearly all pieces of a stream tell: new ids, and whether they are
// the last.
type told struct {
	ids      []uint32
	from, to int  // where they stand in the piece, with their brackets
	text     bool // the piece has a text too
	reason   string
}

// quick reads a piece that tells nothing else, in a form that needs no second look:
// one choice, and beside it plain strings, whole numbers and nulls. What it does
// not know by heart it leaves to the decoder of all pieces, which reads ten times
// as long; where both read, they read the same. Ids are put where there is room.
func quick(data []byte, room []uint32) (t told, ok bool) {
	s := scan{text: data, room: room}
	chosen := false
	ok = s.object(func(name []byte) bool {
		switch string(name) {
		case "choices":
			if chosen || !s.next('[') || !s.choice(&t) {
				return false
			}
			chosen = true
			return s.next(']')
		case "error", "usage", "prompt_logprobs", "kv_transfer_params":
			return s.null()
		case "object":
			object, ok := s.string()
			return ok && string(object) != "error"
		}
		return s.skip()
	})
	return t, ok && chosen && s.peek() == 0
}

func (s *scan) choice(t *told) bool {
	return s.object(func(name []byte) bool {
		switch string(name) {
		case "index":
			n, ok := s.number()
			return ok && n == 0
		case "token_ids":
			if t.ids != nil {
				return false
			}
			var ok bool
			s.peek()
			t.from = s.at
			t.ids, ok = s.ids()
			t.to = s.at
			return ok
		case "text":
			text, ok := s.string()
			t.text = len(text) > 0
			return ok
		case "finish_reason":
			if s.null() {
				t.reason = ""
				return true
			}
			reason, ok := s.string()
			t.reason = string(reason)
			return ok && utf8.Valid(reason)
		case "logprobs", "prompt_logprobs", "routed_experts":
			return s.null()
		}
		return s.skip()
	})
}

// alike reads pieces that differ in nothing but their ids from one before, as most
// pieces of an answer do.
type alike struct{ before, behind []byte } // the ids

// learn takes a piece as an example, if it tells of ids alone.
func (a *alike) learn(piece []byte, t *told) {
	if t.ids != nil && !t.text && t.reason == "" {
		a.before = append(a.before[:0], piece[:t.from]...)
		a.behind = append(a.behind[:0], piece[t.to:]...)
	}
}

// ids returns those of a piece that is like the example.
func (a *alike) ids(piece []byte, room []uint32) (ids []uint32, ok bool) {
	if len(a.before) == 0 || !bytes.HasPrefix(piece, a.before) || !bytes.HasSuffix(piece[len(a.before):], a.behind) {
		return nil, false
	}
	s := scan{text: piece[:len(piece)-len(a.behind)], at: len(a.before), room: room}
	ids, ok = s.ids()
	return ids, ok && s.at == len(s.text)
}

// scan is a place in a JSON text. Its methods step over what they name, and say no
// where something else stands.
type scan struct {
	text []byte
	at   int
	room []uint32
}

// peek returns the next byte that is no blank, or 0 at the end.
func (s *scan) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (s *scan) next(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// object calls member with the name of each member, to step over its value.
func (s *scan) object(member func(name []byte) bool) bool {
	if !s.next('{') {
		return false
	}
	for first := true; !s.next('}'); first = false {
		if !first && !s.next(',') {
			return false
		}
		name, ok := s.string()
		if !ok || !s.next(':') || !member(name) {
			return false
		}
	}
	return true
}

// ids steps over an array of numbers of 32 bits.
func (s *scan) ids() (ids []uint32, ok bool) {
	if !s.next('[') {
		return nil, false
	}
	if ids = s.room; ids == nil {
		ids = make([]uint32, 0, 1)
	}
	for !s.next(']') {
		if len(ids) > 0 && !s.next(',') {
			return nil, false
		}
		n, ok := s.number()
		if !ok || n>>32 != 0 {
			return nil, false
		}
		ids = append(ids, uint32(n))
	}
	return ids, true
}

// string steps over a string without escapes. A quote inside of one has one.
func (s *scan) string() (text []byte, ok bool) {
	if !s.next('"') {
		return nil, false
	}
	for from := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1], true
		case c < ' ' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// number steps over a number that is written in digits alone.
func (s *scan) number() (n uint64, ok bool) {
	const most = 18 // digits
	s.peek()
	from := s.at
	for ; s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9'; s.at++ {
		n = 10*n + uint64(s.text[s.at]-'0')
		if s.at-from >= most {
			return 0, false
		}
	}
	if s.at == from || s.at-from > 1 && s.text[from] == '0' {
		return 0, false
	}
	switch s.peek() {
	case ',', ']', '}':
		return n, true
	}
	return 0, false
}

func (s *scan) null() bool {
	s.peek()
	if !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

func (s *scan) skip() bool {
	switch s.peek() {
	case '"':
		_, ok := s.string()
		return ok
	case 'n':
		return s.null()
	}
	_, ok := s.number()
	return ok
}

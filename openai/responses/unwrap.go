package responses

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/wire"
)

// unwrapper takes the text out of {"input": "…"}, the arguments in which a model
// calls a custom tool, while they arrive. Arguments of another shape are the
// text themselves.
type unwrapper struct {
	state unwrapState
	// held are bytes that have not been decided upon: the beginning of the object,
	// or of an escape sequence.
	held []byte
	high rune // the first half of a surrogate pair, or 0
}

type unwrapState uint8

const (
	beforeText unwrapState = iota
	inText
	afterText
	asItIs // the arguments are the text
)

func (u *unwrapper) reset() { u.state, u.held, u.high = beforeText, u.held[:0], 0 }

// append appends the next piece of the text, as the inside of a JSON string.
func (u *unwrapper) append(dst []byte, args string) []byte {
	for i := 0; i < len(args); {
		switch u.state {
		case asItIs:
			return wire.AppendEscaped(dst, args[i:])
		case afterText:
			return dst
		case beforeText:
			u.held = append(u.held, args[i])
			i++
			switch matchOpening(u.held) {
			case matched:
				u.state, u.held = inText, u.held[:0]
			case mismatched:
				u.state = asItIs
				dst = wire.AppendEscaped(dst, string(u.held)+args[i:])
				u.held = u.held[:0]
				return dst
			}
		case inText:
			if len(u.held) > 0 {
				var used bool
				if dst, used = u.escape(dst, args[i]); used {
					i++
				}
				continue
			}
			end := i
			for end < len(args) && args[end] != '"' && args[end] != '\\' {
				end++
			}
			if end > i {
				dst = wire.AppendEscaped(u.lone(dst), args[i:end])
			}
			if i = end; i == len(args) {
				return dst
			}
			if args[i] == '"' {
				dst = u.lone(dst)
				u.state = afterText
			} else {
				u.held = append(u.held, '\\')
			}
			i++
		}
	}
	return dst
}

// finish appends what was held back when no more comes.
func (u *unwrapper) finish(dst []byte) []byte {
	if u.state == beforeText {
		dst = wire.AppendEscaped(dst, string(u.held))
	}
	u.held = u.held[:0]
	return u.lone(dst)
}

// lone appends a replacement for half a surrogate pair whose other half has not
// come.
func (u *unwrapper) lone(dst []byte) []byte {
	if u.high != 0 {
		u.high = 0
		dst = append(dst, "\uFFFD"...)
	}
	return dst
}

// escape goes on with the escape sequence that is held, and says whether c
// belongs to it. What is no escape sequence stands for itself.
func (u *unwrapper) escape(dst []byte, c byte) (_ []byte, used bool) {
	const width = len(`\u0000`)
	if len(u.held) == 1 {
		if c == 'u' {
			u.held = append(u.held, c)
			return dst, true
		}
		if c == '/' {
			u.held = u.held[:0]
			return append(u.lone(dst), c), true
		}
		if strings.IndexByte(`"\bfnrt`, c) >= 0 {
			u.held = u.held[:0]
			return append(u.lone(dst), '\\', c), true // we would write it alike
		}
	} else if isHex(c) {
		if u.held = append(u.held, c); len(u.held) == width {
			dst = u.unit(dst, hex4(u.held[2:]))
			u.held = u.held[:0]
		}
		return dst, true
	}
	dst = wire.AppendEscaped(u.lone(dst), string(u.held))
	u.held = u.held[:0]
	return dst, false
}

// unit appends a unit of UTF-16, once its pair is complete.
func (u *unwrapper) unit(dst []byte, r rune) []byte {
	if u.high != 0 {
		if both := utf16.DecodeRune(u.high, r); both != utf8.RuneError {
			u.high = 0
			return utf8.AppendRune(dst, both)
		}
		dst = u.lone(dst)
	}
	switch {
	case r == 0:
		return append(dst, "\uFFFD"...)
	case 0xD800 <= r && r < 0xDC00:
		u.high = r
		return dst
	}
	return wire.AppendEscaped(dst, string(r))
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func hex4(p []byte) (r rune) {
	for _, c := range p {
		r <<= 4
		if c <= '9' {
			r |= rune(c - '0')
		} else {
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

type match uint8

const (
	undecided match = iota
	matched
	mismatched
)

// longestOpening bounds the blanks in it.
const longestOpening = 64

// matchOpening says whether p is the beginning of an object whose first member
// is the text, up to the quote that opens it.
func matchOpening(p []byte) match {
	if len(p) > longestOpening {
		return mismatched
	}
	for _, token := range [...]string{"{", `"input"`, ":", `"`} {
		for len(p) > 0 && (p[0] == ' ' || p[0] == '\t' || p[0] == '\r' || p[0] == '\n') {
			p = p[1:]
		}
		n := min(len(p), len(token))
		if string(p[:n]) != token[:n] {
			return mismatched
		}
		if n < len(token) {
			return undecided
		}
		p = p[n:]
	}
	return matched
}

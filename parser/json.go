package parser

// value reads one JSON value, byte by byte, and finds its end.
//
// It is as strict as that needs: brackets, commas, literals and numbers must be
// JSON's, so that a forgotten quote or bracket is noticed where it happens. What
// stands inside a string is not judged (raw control characters and unknown
// escapes are common in generated text): it hides no end, and the harness that
// decodes the arguments can tell the model what is wrong with them.
type value struct {
	stack []byte // the closers of what is open
	want  want
	key   bool   // the string being read is a key
	word  string // what is left of a literal
}

// want is what a value expects next.
type want uint8

const (
	wantValue want = iota
	wantValueOrEnd
	wantKey
	wantKeyOrEnd
	wantColon
	wantCommaOrEnd
	wantString // the rest of a string
	wantEscape
	wantWord
	wantDigit // of a number: after the minus
	wantZero  // after a leading zero
	wantInt
	wantPoint // after the decimal point
	wantFrac
	wantExp // after the e
	wantExpSign
	wantExpInt
)

// status is the result of reading a part of a value.
type status uint8

const (
	more status = iota
	done
	bad
)

// reset makes the value ready for another one.
func (v *value) reset() { v.stack, v.want = v.stack[:0], wantValue }

// scan reads on, and returns how many bytes of s belong to the value. The byte
// behind them, if it is bad or ends a number, is not read.
func (v *value) scan(s string) (n int, st status) {
	for n < len(s) {
		c := s[n]
		switch v.want {
		case wantString:
			switch c {
			case '\\':
				v.want = wantEscape
			case '"':
				if v.key {
					v.want = wantColon
				} else if v.end() {
					return n + 1, done
				}
			}
		case wantEscape:
			v.want = wantString
		case wantWord:
			if c != v.word[0] {
				return n, bad
			}
			if v.word = v.word[1:]; v.word == "" && v.end() {
				return n + 1, done
			}
		case wantDigit, wantZero, wantInt, wantPoint, wantFrac, wantExp, wantExpSign, wantExpInt:
			next := v.want.digit(c)
			if next != 0 {
				v.want = next
				break
			}
			switch v.want {
			case wantZero, wantInt, wantFrac, wantExpInt:
			default:
				return n, bad
			}
			if v.end() {
				return n, done
			}
			continue // the byte belongs to what encloses the number
		default:
			if isSpace(c) {
				break
			}
			switch v.structure(c) {
			case bad:
				return n, bad
			case done:
				return n + 1, done
			}
		}
		n++
	}
	return n, more
}

// end leaves a value, and says whether it was the outermost one.
func (v *value) end() bool {
	v.want = wantCommaOrEnd
	return len(v.stack) == 0
}

// structure reads a byte between strings, numbers and literals.
func (v *value) structure(c byte) status {
	w := v.want
	switch {
	case (w == wantCommaOrEnd || w == wantKeyOrEnd || w == wantValueOrEnd) && c == v.stack[len(v.stack)-1]:
		v.stack = v.stack[:len(v.stack)-1]
		if v.end() {
			return done
		}
	case w == wantCommaOrEnd && c == ',':
		v.want = wantValue
		if v.stack[len(v.stack)-1] == '}' {
			v.want = wantKey
		}
	case w == wantColon && c == ':':
		v.want = wantValue
	case (w == wantKey || w == wantKeyOrEnd) && c == '"':
		v.want, v.key = wantString, true
	case w == wantValue || w == wantValueOrEnd:
		return v.begin(c)
	default:
		return bad
	}
	return more
}

// begin reads the first byte of a value.
func (v *value) begin(c byte) status {
	switch {
	case c == '{':
		v.stack, v.want = append(v.stack, '}'), wantKeyOrEnd
	case c == '[':
		v.stack, v.want = append(v.stack, ']'), wantValueOrEnd
	case c == '"':
		v.want, v.key = wantString, false
	case c == 't':
		v.want, v.word = wantWord, "rue"
	case c == 'f':
		v.want, v.word = wantWord, "alse"
	case c == 'n':
		v.want, v.word = wantWord, "ull"
	case c == '-':
		v.want = wantDigit
	case c == '0':
		v.want = wantZero
	case '1' <= c && c <= '9':
		v.want = wantInt
	default:
		return bad
	}
	return more
}

// digit returns what a number wants after c, or 0 if c does not continue it.
func (w want) digit(c byte) want {
	isDigit := '0' <= c && c <= '9'
	switch {
	case w == wantDigit && c == '0':
		return wantZero
	case (w == wantDigit || w == wantInt) && isDigit:
		return wantInt
	case (w == wantZero || w == wantInt) && c == '.':
		return wantPoint
	case (w == wantPoint || w == wantFrac) && isDigit:
		return wantFrac
	case (w == wantZero || w == wantInt || w == wantFrac) && (c == 'e' || c == 'E'):
		return wantExp
	case w == wantExp && (c == '+' || c == '-'):
		return wantExpSign
	case (w == wantExp || w == wantExpSign || w == wantExpInt) && isDigit:
		return wantExpInt
	}
	return 0
}

// isSpace says whether c is JSON's white space, which is also what models put
// between markers.
func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

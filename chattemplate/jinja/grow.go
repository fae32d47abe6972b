package jinja

import "strings"

// Some templates gather their whole output in one variable, a piece at a time.
// If each piece copied all before it, a conversation of a megabyte would cost a
// gigabyte. The text that was made last therefore has room behind it, and when it
// is what the next one begins with, only the rest is written. Strings that were
// handed out share its beginning, which never changes.

// long is the size in bytes from which on a text is worth the room.
const long = 4 << 10

// tail is the text that was made last, if it is long.
type tail struct{ b *strings.Builder }

// ends tells that s is that text.
func (t *tail) ends(s string) bool {
	return t.b != nil && t.b.Len() == len(s) && t.b.String() == s
}

// concat joins strings into a new one, and accounts for it.
func (st *state) concat(parts ...string) (string, error) {
	size := joined(parts)
	if size > st.limits.Output {
		return "", st.tooMuch()
	}
	if len(parts) == 0 || len(parts[0]) < long {
		if err := st.spend(size); err != nil {
			return "", err
		}
		return strings.Join(parts, ""), nil
	}
	rest, room := parts[1:], 0
	switch {
	case !st.tail.ends(parts[0]):
		st.tail.b, rest, room = new(strings.Builder), parts, 2*size
	case st.tail.b.Cap() < size:
		room = size // the builder makes room for twice what it has, and this
	}
	if room > 0 {
		if st.spent += 2*st.tail.b.Cap() + room; st.spent > spendFactor*st.limits.Output {
			return "", st.tooMuch()
		}
		st.tail.b.Grow(room)
	}
	for _, s := range rest {
		st.tail.b.WriteString(s)
	}
	return st.tail.b.String(), st.work(joined(rest))
}

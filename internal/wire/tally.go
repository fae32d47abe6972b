package wire

// mostParts bounds the elements of the lists of one body, together: each takes far
// more room than its shortest form in a body, and a small one, compressed, can hold
// a hundred million of them.
const mostParts = 1 << 17

// Tally counts the messages of one body, what they are made of, and whatever else a
// client may list without end. The zero value has counted none.
type Tally int

// Take counts one more, where the reader stands. The error, of a body with too many,
// says what they are.
func (n *Tally) Take(r *Reader, what string) error {
	if *n++; *n > mostParts {
		return Invalid(r.Path(), "%s: at most %d %s are supported", r.Path(), mostParts, what)
	}
	return nil
}

package tokenizer

import "unicode/utf8"

// Decode returns the text of ids. What is no valid UTF-8 becomes U+FFFD, one for
// each longest beginning of a character, as the reference implementation does.
// An id that no token has decodes to nothing, and with skipSpecial so does a
// special one. Of a model whose vocabulary is text, bytes in a row that are no
// valid UTF-8 all become U+FFFD. It panics with a [PatternError] where a pattern of
// the model takes time without end, and so does a [Decoder].
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	text := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		text = d.Append(text, id)
	}
	return string(d.Flush(text))
}

// Decoder turns ids into text one by one, and into the same text as
// [Tokenizer.Decode] does all at once. It holds back at most the three bytes of
// a character that is not complete; of a model whose vocabulary is text, a run
// of tokens that are one byte each, since the run becomes text as a whole or not
// at all. A few decoders of tokenizer.json need more: BPEDecoder holds one token,
// and behind Fuse, Strip holds as many characters as it may take from the end,
// Replace the beginning of its string, and what asks for the whole text all of it.
// One goroutine at a time.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	utf8Joiner
	joiner  joiner
	joining joining // in place of all else, or nil
}

// joining is how tokens join to text where they do not do so one by one. Its
// append appends what id completes, in valid UTF-8.
type joining interface {
	append(dst []byte, id uint32) []byte
	flush(dst []byte) []byte
	pending() int
	reset()
}

// NewDecoder returns a decoder at the start of a text.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	d := &Decoder{t: t, skipSpecial: skipSpecial}
	if t.joining != nil {
		d.joining = t.joining(t)
	}
	d.Reset()
	return d
}

// Append appends to dst the characters that id completes, often none, and
// returns the extended slice. What it appends is valid UTF-8.
func (d *Decoder) Append(dst []byte, id uint32) []byte {
	if d.skipSpecial && d.t.IsSpecial(id) {
		return dst
	}
	if d.joining != nil {
		return d.joining.append(dst, id)
	}
	if d.t.chain != nil {
		return d.joiner.append(dst, d.t, id)
	}
	return d.utf8Joiner.append(dst, d.t.Bytes(id))
}

// Pending returns how many bytes are held back.
func (d *Decoder) Pending() int {
	if d.joining != nil {
		return d.joining.pending()
	}
	return d.n + len(d.joiner.run)
}

// Reset forgets what is held back; the decoder is then at the start of a new
// text.
func (d *Decoder) Reset() {
	d.n = 0
	if d.joining != nil {
		d.joining.reset()
	} else if d.t.chain != nil {
		d.joiner.reset(d.t.chain)
	}
}

// Flush ends the text: an incomplete character that is held becomes U+FFFD. The
// decoder is then at the start of a new text.
func (d *Decoder) Flush(dst []byte) []byte {
	dst = d.utf8Joiner.flush(dst)
	if d.joining != nil {
		dst = d.joining.flush(dst)
	} else if d.t.chain != nil {
		dst = d.joiner.endRun(dst, d.t.chain)
	}
	d.Reset()
	return dst
}

// utf8Joiner puts characters together from bytes that come in parts; what is no
// character becomes U+FFFD, one for each longest beginning of one.
type utf8Joiner struct {
	held [utf8.UTFMax]byte
	n    int // bytes held
}

func (j *utf8Joiner) append(dst, b []byte) []byte {
	for j.n > 0 && len(b) > 0 {
		// Complete the held character byte by byte; a byte that does not fit
		// proves it broken and begins anew.
		if extends(j.held[:j.n], b[0]) {
			j.held[j.n] = b[0]
			j.n++
			b = b[1:]
			if utf8.FullRune(j.held[:j.n]) {
				dst = append(dst, j.held[:j.n]...)
				j.n = 0
			}
			continue
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		j.n = 0
	}
	for len(b) > 0 {
		if n := validLen(b); n > 0 {
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		n := brokenLen(b)
		if n == len(b) && !utf8.FullRune(b) {
			j.n = copy(j.held[:], b)
			break
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		b = b[n:]
	}
	return dst
}

// flush ends the text.
func (j *utf8Joiner) flush(dst []byte) []byte {
	if j.n > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	j.n = 0
	return dst
}

// validLen returns the length of the valid UTF-8 that b begins with.
func validLen(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// brokenLen returns how many bytes at the start of b, which is no character,
// begin one; at least 1.
func brokenLen(b []byte) int {
	n := 1
	for n < len(b) && extends(b[:n], b[n]) {
		n++
	}
	return n
}

// extends tells whether start, the beginning of a character or a lone byte, and
// next begin a character or are one.
func extends(start []byte, next byte) bool {
	var b [utf8.UTFMax]byte
	n := copy(b[:], start)
	if n == len(b) || utf8.FullRune(start) {
		return false
	}
	b[n] = next
	if !utf8.FullRune(b[:n+1]) {
		return true
	}
	r, size := utf8.DecodeRune(b[:n+1])
	return r != utf8.RuneError || size > 1
}

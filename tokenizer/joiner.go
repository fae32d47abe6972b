package tokenizer

import "unicode/utf8"

// joiner is the state of a decoder for a model whose vocabulary is text: where
// in the text it is, and the bytes of <0xNN> in a row. They are characters only
// if all of the run is valid UTF-8, which its end alone can tell.
type joiner struct {
	run   []byte
	first bool // no token has shown yet
	strip int  // so many characters may still be stripped from the start
}

func (j *joiner) reset(c *chain) {
	j.run, j.first, j.strip = j.run[:0], true, c.strips
}

func (j *joiner) append(dst []byte, t *Tokenizer, id uint32) []byte {
	b := t.Bytes(id)
	if b == nil {
		return dst
	}
	if t.isSingle(id) {
		j.run = append(j.run, b...)
		return dst
	}
	dst = j.endRun(dst, t.chain)
	if j.first && t.chain.varies {
		b = []byte(t.chain.form(t.content(id), true))
	}
	return j.show(dst, t.chain, b)
}

// endRun appends what the bytes in a row show.
func (j *joiner) endRun(dst []byte, c *chain) []byte {
	if utf8.Valid(j.run) && len(j.run) > 0 {
		dst = j.show(dst, c, []byte(c.finish(string(j.run), j.first)))
	} else {
		for range j.run {
			dst = j.show(dst, c, []byte(c.finish(string(utf8.RuneError), j.first)))
		}
	}
	j.run = j.run[:0]
	return dst
}

// show appends what one token shows, but for what the start of the text loses.
func (j *joiner) show(dst []byte, c *chain, token []byte) []byte {
	j.first = false
	for j.strip > 0 && len(token) > 0 {
		if n := len(c.stripped); len(token) >= n && string(token[:n]) == c.stripped {
			token = token[n:]
			j.strip--
			continue
		}
		j.strip = 0
	}
	return append(dst, token...)
}

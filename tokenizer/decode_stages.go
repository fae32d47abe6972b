package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// stage is one decoder of a chain, fed token by token: push appends to dst what
// the token, with those before it, lets through, and end what was held back for
// want of a next one. A stage that has ended is not used again.
type stage interface {
	push(dst []string, token string) []string
	end(dst []string) []string
	held() int // bytes
}

// stagedJoiner runs tokens through all stages of a chain. It is for chains in
// which what a token shows depends on others; they hold back:
//
//   - ByteFallback: a run of bytes, since it becomes text as a whole
//   - ByteLevel: at most three bytes of a character
//   - BPEDecoder: the last token, since the end of a text has no space
//   - after Fuse: Strip as many characters as it may take from the end, Replace
//     of a string the beginning of one, and all others the whole text
type stagedJoiner struct {
	t      *Tokenizer
	make   []func() stage
	stages []stage
	tokens [2][]string
}

func (j *stagedJoiner) reset() {
	j.stages = j.stages[:0]
	for _, m := range j.make {
		j.stages = append(j.stages, m())
	}
}

func (j *stagedJoiner) append(dst []byte, id uint32) []byte {
	if j.t.Bytes(id) == nil {
		return dst
	}
	j.tokens[0] = append(j.tokens[0][:0], j.t.content(id))
	return j.run(dst, false)
}

func (j *stagedJoiner) flush(dst []byte) []byte {
	j.tokens[0] = j.tokens[0][:0]
	return j.run(dst, true)
}

func (j *stagedJoiner) run(dst []byte, end bool) []byte {
	in, out := j.tokens[0], j.tokens[1]
	for _, s := range j.stages {
		out = out[:0]
		for _, token := range in {
			out = s.push(out, token)
		}
		if end {
			out = s.end(out)
		}
		in, out = out, in
	}
	for _, token := range in {
		dst = append(dst, token...)
	}
	j.tokens = [2][]string{in, out}
	return dst
}

func (j *stagedJoiner) pending() int {
	n := 0
	for _, s := range j.stages {
		n += s.held()
	}
	return n
}

// eachStage changes each token on its own, but for the first.
type eachStage struct {
	show    step
	started bool
}

func (s *eachStage) push(dst []string, token string) []string {
	first := !s.started
	s.started = true
	return append(dst, s.show(token, first))
}

func (s *eachStage) end(dst []string) []string { return dst }
func (s *eachStage) held() int                 { return 0 }

// fallbackStage puts bytes in a row together.
type fallbackStage struct{ run []byte }

func (s *fallbackStage) push(dst []string, token string) []string {
	if b, ok := (&chain{fallback: true}).byteOf(token); ok {
		s.run = append(s.run, b)
		return dst
	}
	return append(s.end(dst), token)
}

func (s *fallbackStage) end(dst []string) []string {
	switch {
	case len(s.run) == 0:
	case utf8.Valid(s.run):
		dst = append(dst, string(s.run))
	default:
		for range s.run {
			dst = append(dst, string(utf8.RuneError))
		}
	}
	s.run = s.run[:0]
	return dst
}

func (s *fallbackStage) held() int { return len(s.run) }

// alphabetStage reads tokens in the alphabet of byte-level vocabularies.
type alphabetStage struct{ utf8Joiner }

func (s *alphabetStage) push(dst []string, token string) []string {
	b, _ := appendBytes(nil, token)
	return append(dst, string(s.append(nil, b)))
}

func (s *alphabetStage) end(dst []string) []string { return append(dst, string(s.flush(nil))) }
func (s *alphabetStage) held() int                 { return s.n }

// suffixStage writes a space for the suffix of all tokens but the last.
type suffixStage struct {
	suffix string
	last   string
	some   bool
}

func (s *suffixStage) push(dst []string, token string) []string {
	if s.some {
		dst = append(dst, strings.ReplaceAll(s.last, s.suffix, " "))
	}
	s.last, s.some = token, true
	return dst
}

func (s *suffixStage) end(dst []string) []string {
	if s.some {
		dst = append(dst, strings.ReplaceAll(s.last, s.suffix, ""))
	}
	s.last, s.some = "", false
	return dst
}

func (s *suffixStage) held() int { return len(s.last) }

// repeatStage drops tokens that repeat the one before, and those that show
// nothing.
type repeatStage struct {
	show step
	last string
	some bool
}

func (s *repeatStage) push(dst []string, token string) []string {
	if s.some && token == s.last {
		return dst
	}
	s.last, s.some = token, true
	if shown := s.show(token, false); shown != "" {
		dst = append(dst, shown)
	}
	return dst
}

func (s *repeatStage) end(dst []string) []string { return dst }
func (s *repeatStage) held() int                 { return 0 }

// stripStage strips characters from the ends of a text that comes in parts.
type stripStage struct {
	content     string
	start, stop int // how many at most
	tail        int // so many at the end are held
}

func (s *stripStage) push(dst []string, part string) []string {
	for s.start > 0 && part != "" {
		rest, ok := strings.CutPrefix(part, s.content)
		if !ok {
			s.start = 0
			break
		}
		part = rest
		s.start--
	}
	if part == "" {
		return dst
	}
	rest := strings.TrimRight(part, s.content)
	run := (len(part) - len(rest)) / len(s.content)
	if rest != "" {
		dst = append(dst, strings.Repeat(s.content, s.tail)+rest)
		s.tail = 0
	}
	s.tail += run
	if over := s.tail - s.stop; over > 0 {
		dst = append(dst, strings.Repeat(s.content, over))
		s.tail = s.stop
	}
	return dst
}

func (s *stripStage) end(dst []string) []string { return dst }
func (s *stripStage) held() int                 { return s.tail * len(s.content) }

// replaceStage replaces a string in a text that comes in parts.
type replaceStage struct{ old, new, rest string }

func (s *replaceStage) push(dst []string, part string) []string {
	text := s.rest + part
	var b strings.Builder
	for {
		i := strings.Index(text, s.old)
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		b.WriteString(s.new)
		text = text[i+len(s.old):]
	}
	keep := min(len(s.old)-1, len(text))
	for !strings.HasPrefix(s.old, text[len(text)-keep:]) {
		keep--
	}
	b.WriteString(text[:len(text)-keep])
	s.rest = text[len(text)-keep:]
	return append(dst, b.String())
}

func (s *replaceStage) end(dst []string) []string { return append(dst, s.rest) }
func (s *replaceStage) held() int                 { return len(s.rest) }

// wholeStage gives another stage all of a text as one token.
type wholeStage struct {
	stage
	text []byte
}

func (s *wholeStage) push(dst []string, part string) []string {
	s.text = append(s.text, part...)
	return dst
}

func (s *wholeStage) end(dst []string) []string {
	return s.stage.end(s.stage.push(dst, string(s.text)))
}

func (s *wholeStage) held() int { return len(s.text) }

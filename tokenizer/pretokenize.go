package tokenizer

import "strings"

// A splitter is one stage of pre-tokenization: it appends the pieces of text to
// dst. A stage sees each piece of the stage before it alone.
type splitter interface {
	split(dst []string, text string) []string
}

// prefixSpace puts a space before text that has none, so that a word at the
// start of a text is the same token as within it.
type prefixSpace struct{}

func (prefixSpace) split(dst []string, text string) []string {
	if !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	return append(dst, text)
}

// splitDigits cuts runs of numbers out of the text, or single ones.
type splitDigits struct{ individual bool }

func (d splitDigits) split(dst []string, text string) []string {
	for i := 0; i < len(text); {
		c, n := classAt(text, i)
		var end int
		switch {
		case c&nu == 0:
			end = nu.runWithout(text, i+n)
		case d.individual:
			end = i + n
		default:
			end = nu.run(text, i+n)
		}
		dst = append(dst, text[i:end])
		i = end
	}
	return dst
}

// behavior says what becomes of the matches of a pattern.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

func (b behavior) valid() bool {
	switch b {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return true
	}
	return false
}

// splitPattern cuts at the matches of a pattern, or, inverted, at what lies
// between them.
type splitPattern struct {
	find     finder
	behavior behavior
	invert   bool
}

// finder returns the fragments of a text.
type finder func(text string) []fragment

// fragment is a part of a text that a pattern matched, or that lies between two
// matches. The fragments of a text cover it.
type fragment struct {
	start, end int
	match      bool
}

func (s splitPattern) split(dst []string, text string) []string {
	parts := s.find(text)
	if s.invert {
		for i := range parts {
			parts[i].match = !parts[i].match
		}
	}
	for _, p := range s.behavior.join(parts) {
		if p.end > p.start {
			dst = append(dst, text[p.start:p.end])
		}
	}
	return dst
}

// join merges or drops fragments as the behavior says.
func (b behavior) join(parts []fragment) []fragment {
	var out []fragment
	for i, p := range parts {
		var merge bool
		if i > 0 {
			afterMatch := parts[i-1].match
			merge = b == contiguous && p.match == afterMatch ||
				b == mergedWithPrevious && p.match && !afterMatch ||
				b == mergedWithNext && !p.match && afterMatch
		}
		switch {
		case b == removed && p.match:
		case merge:
			out[len(out)-1].end = p.end
		default:
			out = append(out, p)
		}
	}
	return out
}

// literalFinder finds the occurrences of a string.
func literalFinder(pattern string) finder {
	return func(text string) (parts []fragment) {
		pos := 0
		for pattern != "" {
			i := strings.Index(text[pos:], pattern)
			if i < 0 {
				break
			}
			parts = appendMatch(parts, pos, pos+i, pos+i+len(pattern))
			pos += i + len(pattern)
		}
		return appendRest(parts, pos, len(text))
	}
}

func appendMatch(parts []fragment, pos, start, end int) []fragment {
	return append(appendRest(parts, pos, start), fragment{start, end, true})
}

func appendRest(parts []fragment, pos, end int) []fragment {
	if pos == end {
		return parts
	}
	return append(parts, fragment{pos, end, false})
}

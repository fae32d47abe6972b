package parser

import (
	"slices"
	"strings"
)

// action is what a marker means in the state in which it is looked for.
type action uint8

const (
	actNone    action = iota
	actPartial        // not a marker yet, but it may become one
	actStrip          // markup without a meaning here
	actThink          // opens a thought
	actThought        // closes a thought
	actExit           // ends a thought, and means something else
	actCall           // opens a tool-call wrapper
	actInner          // begins a call without its wrapper
	actCallEnd        // closes a tool-call wrapper

	// Harmony alone:
	actStart   // opens a header
	actChannel // names a channel in a header
	actFormat  // names a format in a header
	actMessage // opens a body
	actEnd     // closes a body
)

// markers is a set of markers that are looked for together.
type markers struct {
	list   []marker
	first  [256]bool // the first bytes of all markers
	firsts string    // the same, each once
}

type marker struct {
	text string
	act  action
}

// add puts a marker into the set, or changes what it means.
func (m *markers) add(text string, act action) {
	if i := slices.IndexFunc(m.list, func(k marker) bool { return k.text == text }); i >= 0 {
		m.list[i].act = act
		return
	}
	if !m.first[text[0]] {
		m.first[text[0]] = true
		m.firsts += text[:1]
	}
	m.list = append(m.list, marker{text, act})
}

// all puts several markers of one meaning into the set.
func (m *markers) all(texts []string, act action) {
	for _, text := range texts {
		m.add(text, act)
	}
}

// next returns the place of the first marker in s, its length and its action. A
// tail of s that is the beginning of a marker counts as actPartial, unless no
// more text follows (final). Where there is nothing, the place is len(s).
//
// Of markers at one place the longest wins, and one that may still become
// longer is waited for: the answer does not depend on how the text is cut.
func (m *markers) next(s string, final bool) (at, n int, act action) {
	for i := 0; i < len(s); i++ {
		k := m.candidate(s[i:])
		if k < 0 {
			break
		}
		i += k
		if n, act := m.match(s[i:], final); act != actNone {
			return i, n, act
		}
	}
	return len(s), 0, actNone
}

// fewFirsts is how many bytes are looked for one after the other, and wide how
// long a text must be for that to be quicker than looking at each of its bytes.
const (
	fewFirsts = 4
	wide      = 16
)

// candidate returns the first place in s where a marker might begin, or -1.
func (m *markers) candidate(s string) int {
	if len(s) < wide || len(m.firsts) > fewFirsts {
		for i := range len(s) {
			if m.first[s[i]] {
				return i
			}
		}
		return -1
	}
	at := -1
	for i := range len(m.firsts) {
		if k := strings.IndexByte(s, m.firsts[i]); k >= 0 {
			at, s = k, s[:k]
		}
	}
	return at
}

// match says what s begins with.
func (m *markers) match(s string, final bool) (n int, act action) {
	if s == "" {
		if final || len(m.list) == 0 {
			return 0, actNone
		}
		return 0, actPartial
	}
	for i := range m.list {
		k := &m.list[i]
		switch {
		case k.text[0] != s[0]:
		case len(k.text) <= len(s):
			if len(k.text) > n && s[:len(k.text)] == k.text {
				n, act = len(k.text), k.act
			}
		case !final && k.text[:len(s)] == s:
			return 0, actPartial
		}
	}
	return n, act
}

// goesOn says whether s may make a marker of a tail of what was held back, or of
// all of it.
func (m *markers) goesOn(held, s string) bool {
	for {
		k := m.candidate(held)
		if k < 0 {
			return false
		}
		held = held[k:]
		for i := range m.list {
			text := m.list[i].text
			switch {
			case text[0] != held[0]:
			case len(text) <= len(held):
				if held[:len(text)] == text {
					return true
				}
			case text[:len(held)] == held && (s == "" || text[len(held)] == s[0]):
				if tail := text[len(held):]; strings.HasPrefix(s, tail) || strings.HasPrefix(tail, s) {
					return true
				}
			}
		}
		held = held[1:]
	}
}

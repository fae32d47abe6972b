package prompt

import (
	"bytes"
	"strings"
)

// stopSearch finds the stop strings of one request in text that arrives in
// pieces.
type stopSearch struct {
	strings []string
	bytes   [][]byte // the same
}

func newStopSearch(stops []string) stopSearch {
	s := stopSearch{strings: stops}
	for _, stop := range stops {
		s.bytes = append(s.bytes, []byte(stop))
	}
	return s
}

// find looks for the stop string that begins first in text, and of those that
// begin there the longest. If there is none, the offset is that of the first
// byte that may still become part of one.
func (s stopSearch) find(text []byte) (offset int, stop string, found bool) {
	for k, candidate := range s.strings {
		i := bytes.Index(text, s.bytes[k])
		if i >= 0 && (!found || i < offset || i == offset && len(candidate) > len(stop)) {
			offset, stop, found = i, candidate, true
		}
	}
	if found {
		return offset, stop, true
	}
	offset = len(text)
	for _, candidate := range s.strings {
		for n := min(len(candidate)-1, len(text)); n > len(text)-offset; n-- {
			if string(text[len(text)-n:]) == candidate[:n] {
				offset = len(text) - n
				break
			}
		}
	}
	return offset, "", false
}

// validUTF8 returns b as text, each run of invalid bytes as one U+FFFD.
func validUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
)

// Spellings stay within their bytes, and those that were used last stay.
func TestSpellingsAreBounded(t *testing.T) {
	s := newSpellings(20 * (spellingOverhead + 100))
	known := func(id string) bool {
		_, ok := s.of(&chat.ToolUse{ID: id, Kind: chat.ToolFunction, Args: `{}`}, nil)
		return ok
	}
	s.put("kept", "{ }")
	for i := range 1000 {
		s.put(fmt.Sprint("call", i), "{  }")
		if s.bytes > s.limit {
			t.Fatalf("%d bytes after %d calls, want at most %d", s.bytes, i, s.limit)
		}
		if !known("kept") {
			t.Fatalf("after %d calls one that is in use is forgotten", i)
		}
	}
	if !known("call999") || known("call0") {
		t.Error("the latest is forgotten, or the oldest is not")
	}
	s.put("large", `{"a": "`+strings.Repeat("x", s.limit)+`"}`)
	if !known("call999") {
		t.Error("a call that is too large drove the others out")
	}
	if len(s.known) != s.used.Len() {
		t.Errorf("%d are known, %d are in use", len(s.known), s.used.Len())
	}
}

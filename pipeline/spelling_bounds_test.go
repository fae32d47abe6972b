package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"pgregory.net/rapid"
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

// Whatever an object has in it: spelled anew it is the same call, and with one
// member changed, added or taken away it is not.
func TestSpellingsKnowWhatWasChanged(t *testing.T) {
	name := rapid.StringMatching(`[a-c"\\é0-9]{0,3}`)
	value := rapid.OneOf(
		rapid.Map(rapid.StringMatching(`[a-z <>&"\\\n\té😀]{0,6}`), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-1<<50, 1<<50), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(x float64) any { return x }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil),
		rapid.Map(rapid.SliceOfN(rapid.Int8(), 0, 3), func(list []int8) any { return list }),
		rapid.Map(rapid.MapOfN(name, rapid.Int8(), 0, 3), func(m map[string]int8) any { return m }),
	)
	text := func(t *rapid.T, v any, indent string) string {
		b, err := json.MarshalIndent(v, "", indent)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(name, value, 0, 4).Draw(t, "arguments")
		args := text(t, object, "  ")
		if len(object) == 0 {
			args = "{ }"
		}
		s := newSpellings(spellingBytes)
		s.put("id", args)
		respelled := func(args string) bool {
			got, ok := s.of(&chat.ToolUse{ID: "id", Kind: chat.ToolFunction, Args: args}, nil)
			if ok && got != s.find("id").args {
				t.Fatalf("%s became %s", args, got)
			}
			return ok
		}
		if anew := text(t, object, "\t"); !respelled(anew) && anew != args {
			t.Fatalf("%s is not known as %s", anew, args)
		}
		other := maps.Clone(object)
		switch key := name.Draw(t, "member"); {
		case len(other) > 0 && rapid.Bool().Draw(t, "taken away"):
			key = rapid.SampledFrom(slices.Sorted(maps.Keys(other))).Draw(t, "which")
			delete(other, key)
		default:
			other[key] = "something else entirely"
		}
		if changed := text(t, other, ""); respelled(changed) {
			t.Fatalf("%s passes for %s", changed, args)
		}
	})
}

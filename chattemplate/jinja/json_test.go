package jinja_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/chattemplate/jinja"
	"pgregory.net/rapid"
)

// The spelling of what json.dumps would spell the same way survives.
func TestJSONSurvives(t *testing.T) {
	for doc, want := range map[string]string{
		`{"z":1,"a":2,"m":[]}`:              `{"z": 1, "a": 2, "m": []}`,
		`12345678901234567890123`:           `12345678901234567890123`,
		`-0`:                                `0`,
		`1.0`:                               `1.0`,
		`1.10`:                              `1.1`,
		`1E5`:                               `100000.0`,
		`1e20`:                              `1e+20`,
		`1e-7`:                              `1e-07`,
		`1e400`:                             `1e400`,
		`0.1000000000000000055511151231257`: `0.1000000000000000055511151231257`,
		`3.141592653589793238`:              `3.141592653589793238`,
		`100000000000000000000.5`:           `100000000000000000000.5`,
		`{"a":1,"b":2,"a":3}`:               `{"a": 3, "b": 2}`,
		`"<&>'/\u007f\u0001\n\"é😀\ud83d\ude00"`: "\"<&>'/\x7f\\u0001\\n\\\"é😀😀\"",
		` [ true , false , null ] `:             `[true, false, null]`,
	} {
		v, err := jinja.FromJSON([]byte(doc))
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if got, err := jinja.ToJSON(v); got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", doc, got, err, want)
		}
	}
	for _, doc := range []string{``, `{`, `[1,]`, `{"a"}`, `1 2`, `nul`, `'a'`, strings.Repeat("[", 451) + strings.Repeat("]", 451)} {
		if v, err := jinja.FromJSON([]byte(doc)); err == nil {
			t.Errorf("%q was read as %v", doc, v)
		}
	}
}

// A document of any shape keeps keys, order and text through a read and a
// write, which is checked against a writer that knows only the generator.
func TestJSONProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := document(t, 4)
		v, err := jinja.FromJSON([]byte(strings.NewReplacer(", ", ",", ": ", ":").Replace(doc)))
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if got, err := jinja.ToJSON(v); got != doc || err != nil {
			t.Fatalf("got  %s, %v\nwant %s", got, err, doc)
		}
	})
}

// document spells a random document as json.dumps does. Its texts hold no
// blank after a comma or colon.
func document(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	word := rapid.StringMatching(`[a-zé<>&'/ ]{0,12}`)
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "constant")
	case 1:
		return rapid.StringMatching(`-?[1-9][0-9]{0,30}`).Draw(t, "integer")
	case 2:
		return rapid.StringMatching(`-?[1-9][0-9]{0,3}\.[0-9]{0,3}[1-9]`).Draw(t, "float")
	case 3:
		return `"` + word.Draw(t, "text") + `"`
	}
	parts := make([]string, rapid.IntRange(0, 12).Draw(t, "size"))
	for i := range parts {
		parts[i] = document(t, depth-1)
		if kind == 5 {
			parts[i] = `"` + word.Draw(t, "key") + strconv.Itoa(i) + `": ` + parts[i]
		}
	}
	if kind == 5 {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

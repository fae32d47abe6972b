package mask_test

import (
	"testing"

	"github.com/dynago/dynago/guided/mask"
)

// What may be said for schemas of objects and texts, and what may not.
func TestMembers(t *testing.T) {
	v := byBytes(t)
	const three = `"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}}`
	for _, tc := range []struct {
		schema  string
		yes, no []string
	}{
		{`{` + three + `,"minProperties":1,"maxProperties":2}`, []string{`{"a":1}`, `{"a":1,"b":2}`, `{"b":2,"c":3}`}, []string{`{}`, `{"a":1,"b":2,"c":3}`, `{"b":2,"a":1}`}},
		{`{` + three + `,"minProperties":2}`, []string{`{"a":1,"c":3}`, `{"a":1,"b":2,"c":3}`}, []string{`{}`, `{"b":2}`}},
		{`{` + three + `,"additionalProperties":{"const":4}}`, []string{`{"a":1,"d":4}`, `{"ab":4}`, `{"c":3,"d":4,"e":4}`}, []string{`{"a":4}`, `{"d":4,"a":1}`, `{"d":4,"c":4}`, `{"d":1}`}},
		{`{"type":"object","patternProperties":{"x":{"const":1},"y":{"enum":[1,2]}},"additionalProperties":{"const":3}}`, []string{`{"ax":1,"yb":2,"z":3}`, `{"xy":1}`}, []string{`{"xy":2}`, `{"z":1}`, `{"ax":3}`, `{"y":3}`}},
		{`{"type":"object","patternProperties":{"^x$":{"const":1}},"additionalProperties":false}`, []string{`{"x":1}`, `{}`}, []string{`{"xx":1}`, `{"y":1}`}},
		{`{"allOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`, []string{`{"a":1}`, `{}`}, []string{`{"b":1}`, `{"a":1,"b":1}`}},
		{`{"type":"string","pattern":"b$"}`, []string{`"b"`, `"aab"`}, []string{`"ba"`, `""`}},
		{`{"type":"string","pattern":"^b"}`, []string{`"b"`, `"baa"`}, []string{`"ab"`, `""`}},
		{`{"type":"string","pattern":"b"}`, []string{`"b"`, `"aba"`}, []string{`"a"`, `""`}},
		{`{"type":"object","propertyNames":{"maxLength":2},"additionalProperties":true}`, []string{`{"ab":1}`}, []string{`{"abc":1}`}},
	} {
		g, err := mask.NewCompiler(v).Compile(schemaFormat(tc.schema))
		if err != nil {
			t.Errorf("%s: %v", tc.schema, err)
			continue
		}
		for _, text := range tc.yes {
			if err := say(v, g, text, 1); err != nil {
				t.Errorf("%s: %s: %v", tc.schema, text, err)
			}
		}
		for _, text := range tc.no {
			if say(v, g, text, 1) == nil {
				t.Errorf("%s: %s may be said", tc.schema, text)
			}
		}
	}
}

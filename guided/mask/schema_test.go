package mask_test

import (
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/guided/mask"
)

func schemaFormat(s string) *chat.OutputFormat {
	return &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(s)}
}

// strictly checks values as a schema says, formats included.
func strictly(t fataler, source string) func(text string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		re, err := regexp2.Compile(pattern, regexp2.ECMAScript|regexp2.Unicode)
		return ecma{re}, err
	})
	if err := c.AddResource("urn:s", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:s")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

// ecma are patterns in the dialect of schemas.
type ecma struct{ *regexp2.Regexp }

func (e ecma) MatchString(s string) bool {
	ok, err := e.Regexp.MatchString(s)
	return ok && err == nil
}

var schemas = []string{
	`{}`,
	`true`,
	`{"type":"string"}`,
	`{"type":"string","minLength":2,"maxLength":3}`,
	`{"type":"string","pattern":"^[a-c]+\\s?$"}`,
	`{"type":"string","pattern":"b.d"}`,
	`{"type":"string","pattern":"^[a-c]*$","minLength":2,"maxLength":4}`,
	`{"type":"string","pattern":"^\\S\\d$|^\"\\\\$"}`,
	`{"type":"integer","minimum":-12,"maximum":305}`,
	`{"type":"integer","exclusiveMinimum":-12,"exclusiveMaximum":-3}`,
	`{"type":"number","minimum":-1.25,"maximum":10.5}`,
	`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.05}`,
	`{"type":"number","exclusiveMinimum":0}`,
	`{"type":"number","maximum":-7.5}`,
	`{"type":"integer","multipleOf":7,"minimum":10}`,
	`{"type":"number","multipleOf":0.01}`,
	`{"type":["string","null"]}`,
	`{"type":["integer","boolean"]}`,
	`{"enum":["a","ab",1,null,{"x":[1,2]}]}`,
	`{"type":"string","enum":["a","ab",1,"ü\n"]}`,
	`{"enum":["a","abc"],"minLength":2}`,
	`{"const":"x\"y"}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["c"]}`,
	`{"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"integer"}}`,
	`{"type":"object","additionalProperties":{"type":"string"}}`,
	`{"type":"object"}`,
	`{"type":"object","properties":{}}`,
	`{"type":"object","required":["q"]}`,
	`{"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"minProperties":2}`,
	`{"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"minProperties":1,"maxProperties":2}`,
	`{"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false}`,
	`{"type":"object","properties":{"xa":{"minimum":0}},"patternProperties":{"^x":{"type":"integer"},"y$":{"maximum":9,"type":"number"}},"additionalProperties":{"type":"null"}}`,
	`{"type":"object","propertyNames":{"pattern":"^[a-z]{1,3}$"},"additionalProperties":{"type":"boolean"}}`,
	`{"type":"object","propertyNames":{"enum":["k","l"]},"additionalProperties":{"type":"boolean"},"minProperties":1}`,
	`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2,"maxItems":2}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"}}`,
	`{"type":"array","prefixItems":[{"type":"integer"}],"items":false}`,
	`{"type":"array","maxItems":0}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"integer"},{"type":"string"}],"additionalItems":{"type":"null"},"minItems":1}`,
	`{"anyOf":[{"type":"string","maxLength":3},{"type":"integer"}]}`,
	`{"type":"object","anyOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},{"properties":{"l":{"const":"b"}},"required":["l"]}]}`,
	`{"oneOf":[{"type":"string"},{"type":"integer"}]}`,
	`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`,
	`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`,
	`{"allOf":[{"type":"number","minimum":3},{"type":"integer"},{"maximum":5}]}`,
	`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},"l":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["v","l"],"additionalProperties":false}}}`,
	`{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#"}}},"required":["kids"]}`,
	`{"type":"string","format":"date"}`, `{"type":"string","format":"time"}`, `{"type":"string","format":"date-time"}`,
	`{"type":"string","format":"uuid"}`, `{"type":"string","format":"email"}`, `{"type":"string","format":"ipv4"}`,
	`{"type":"string","format":"ipv6"}`, `{"type":"string","format":"hostname"}`, `{"type":"string","format":"uri"}`,
	`{"type":"string","format":"duration"}`, `{"type":"string","format":"json-pointer"}`, `{"type":"string","format":"uri-reference"}`,
	`{"type":"string","format":"date","pattern":"^2024-02"}`,
	`{"type":"boolean"}`, `{"type":"null"}`,
	`{"properties":{"a":{"not":{}},"b":{"type":"integer"}},"required":["b"]}`,
}

// What is said at random under a mask keeps the form.
func TestBabbleKeepsSchemas(t *testing.T) {
	v := byBytes(t, `{"`, `":`, `"}`, "true", "}}", `","`, "12", "00", "-", ".5", "a", "ab", `\"`, `\u00`, "ü", "2024-", "://", "null", "},", "]}", `":"`, `": `, "\n  ")
	for _, source := range schemas {
		check := strictly(t, source)
		g, err := mask.NewCompiler(v).Compile(schemaFormat(source))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		ends := 0
		for seed := range uint64(60) {
			text, ended := babble(t, v, g, seed, 300)
			if !ended {
				continue
			}
			ends++
			if err := check(text); err != nil {
				t.Fatalf("%s: %q: %v", source, text, err)
			}
		}
		if ends == 0 {
			t.Errorf("%s: no answer has come to its end", source)
		}
	}
}

// What keeps the form, and is written as answers are, may be said.
func TestSamplesMayBeSaid(t *testing.T) {
	v := byBytes(t, `{"`, `":`, `"}`, "true", `","`, "12", "00", "ab", "amber", `er"`)
	for _, source := range schemas {
		check := strictly(t, source)
		g, err := mask.NewCompiler(v).Compile(schemaFormat(source))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(15) {
			text, err := guided.Sample(schemaFormat(source), seed)
			if err != nil || check(text) != nil {
				break // the sampler knows fewer keywords
			}
			for try := range uint64(3) {
				if err := say(v, g, text, seed*3+try); err != nil {
					t.Fatalf("%s: %s: %v", source, text, err)
				}
			}
		}
	}
}

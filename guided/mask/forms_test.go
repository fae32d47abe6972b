package mask_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dynago/dynago/guided/mask"
)

// The schemas that the SDKs' models become are kept, or refused by the place of a
// keyword, which stands behind ! in the name. See testdata/README.md.
func TestSchemasOfSDKs(t *testing.T) {
	data, err := os.ReadFile("testdata/schemas.txt")
	if err != nil {
		t.Fatal(err)
	}
	v := byBytes(t, `{"`, `":`, `"}`, "true", "}}", `","`, "12", "00", "-", ".5", "a", "ab", `\"`, "ü", "2024-", "://", "null", "},", "]}", "@", ".com", "cat", "dog")
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		name, source := lines[i], lines[i+1]
		t.Run(name, func(t *testing.T) {
			g, err := mask.NewCompiler(v).Compile(schemaFormat(source))
			if refused, ok := strings.CutPrefix(name, "!"); ok {
				if path, _, _ := strings.Cut(refused, " "); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
					t.Fatalf("%v; want %s", err, path)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			check := strictly(t, source)
			ends := 0
			for seed := range uint64(60) {
				text, ended := babble(t, v, g, seed, 500)
				if !ended {
					continue
				}
				ends++
				if err := check(text); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
			}
			if ends == 0 {
				t.Error("no answer has come to its end")
			}
		})
	}
}

func TestRefused(t *testing.T) {
	v := byBytes(t)
	for source, says := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"array","contains":{}}}}`: "/properties/a/contains: answers cannot be held to this keyword",
		`{"type":"object","if":{},"then":{}}`:                                 "/if: ",
		`{"not":{"type":"string"}}`:                                           "/not: ",
		`{"type":"array","uniqueItems":true}`:                                 "/uniqueItems: ",
		`{"type":"string","format":"idn-email"}`:                              `/format: answers cannot be held to the format "idn-email": known are date, `,
		`{"type":"string","pattern":"a\\b"}`:                                  `/pattern: \b, a word boundary`,
		`{"type":"string","pattern":"(?<=a)b"}`:                               "/pattern: ",
		`{"type":"string","pattern":"a(?!b)"}`:                                "/pattern: ",
		`{"type":"string","pattern":"^(?!a)b|c"}`:                             "/pattern: alternatives behind a look-ahead",
		`{"type":"string","pattern":"(^a|b)c"}`:                               "/pattern: ",
		`{"oneOf":[{"type":"number"},{"type":"integer"}]}`:                    "/oneOf: a value may keep alternatives 0 and 1 at once",
		`{"oneOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"type":"object","properties":{"b":{}}}]}`: "/oneOf: ",
		`{"$ref":"https://example.com/s"}`: "only references inside the schema",
		`{"$ref":"#"}`:                     "/: it refers to itself before any text",
		`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}}}`: "/$defs/a: it refers to itself before any text",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`:                  "no text keeps it",
		`false`: "no text keeps it",
		`{"type":"string","pattern":"^a$","minLength":2}`:                                     "no text keeps it",
		`{"type":"integer","minimum":5,"maximum":4}`:                                          "no text keeps it",
		`{"allOf":[{"type":"string"},{"type":"null"}]}`:                                       "no text keeps it",
		`{"type":"string","enum":[1,2]}`:                                                      "no text keeps it",
		`{"type":"array","items":false,"minItems":1}`:                                         "no text keeps it",
		`{"type":"number","multipleOf":0.03}`:                                                 "/multipleOf: answers are held to multiples",
		`{"type":"object","additionalProperties":{},"minProperties":2}`:                       "/minProperties: ",
		`{"$ref":"#/$defs/a","$defs":{"a":{"oneOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}`: "/$defs/a: it refers to itself before any text",
		`{"oneOf":[{"const":1},{"const":1.0}]}`:                                               "no text keeps it",
		`{"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2.0,"a":1}}]}`:                       "no text keeps it",
		`{"type":"object","dependentRequired":{"a":["b"]}}`:                                   "/dependentRequired: ",
		`{"type":"object","properties":{"a":{"nullable":true,"type":"string"}}}`:              "/properties/a/nullable: ",
		`{"type":"strin"}`: "type",
		`{"type":`:         "no JSON",
	} {
		if _, err := mask.NewCompiler(v).Compile(schemaFormat(source)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", source, err, says)
		}
	}
}

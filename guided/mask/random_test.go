package mask_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/guided/mask"
)

// drawSchema draws a schema of all keywords that answers are held to. With ways it
// has choices and combinations too; without, members have one order only.
func drawSchema(t *rapid.T, depth int, ways bool) string {
	var keywords []string
	add := func(format string, args ...any) { keywords = append(keywords, fmt.Sprintf(format, args...)) }
	maybe := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
	number := func(name string) string {
		return rapid.SampledFrom([]string{"-20", "-3.5", "-1", "0", "0.05", "1", "2.5", "7", "99", "100.25"}).Draw(t, name)
	}
	sub := func() string { return drawSchema(t, depth-1, ways) }
	several := func() string {
		list := make([]string, rapid.IntRange(1, 3).Draw(t, "several"))
		for i := range list {
			list[i] = sub()
		}
		return strings.Join(list, ",")
	}
	kinds := 5
	if depth > 0 {
		kinds = 7
		if ways {
			kinds = 11
		}
	}
	kind := rapid.IntRange(0, kinds).Draw(t, "kind")
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{`{}`, `true`, `{"type":"boolean"}`, `{"type":"null"}`, `{"type":["string","null"]}`, `{"const":"x"}`, `{"type":["integer","array"],"minimum":3,"maxItems":1}`}).Draw(t, "simple")
	case 1:
		return rapid.SampledFrom([]string{`{"enum":["a","b",3]}`, `{"enum":[1,2.5,null],"type":"number"}`, `{"type":"string","enum":["","a b","\"\\"]}`}).Draw(t, "enum")
	case 2:
		add(`"type":"string"`)
		if maybe("pattern") {
			add(`"pattern":%q`, rapid.SampledFrom([]string{"^[ab]{0,3}$", "b", "^a", "a|c$", "^(?!b).?c$"}).Draw(t, "of"))
		}
		if maybe("min") {
			add(`"minLength":%d`, rapid.IntRange(0, 4).Draw(t, "length"))
		}
		if maybe("max") {
			add(`"maxLength":%d`, rapid.IntRange(0, 6).Draw(t, "length"))
		}
	case 3, 4:
		add(`"type":%q`, rapid.SampledFrom([]string{"integer", "number"}).Draw(t, "of"))
		for _, bound := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			if maybe(bound) {
				add(`%q:%s`, bound, number(bound))
			}
		}
		if maybe("multiple") {
			add(`"multipleOf":%s`, rapid.SampledFrom([]string{"1", "3", "10", "0.1", "0.01"}).Draw(t, "of"))
		}
	case 5:
		return fmt.Sprintf(`{"type":"string","format":%q}`, rapid.SampledFrom([]string{"date", "uuid", "ipv4", "time"}).Draw(t, "of"))
	case 6:
		add(`"type":"object"`)
		var members []string
		for _, name := range []string{"a", "b", "q\"", "ü"} {
			if maybe(name) {
				members = append(members, fmt.Sprintf(`%q:%s`, name, sub()))
			}
		}
		if members != nil {
			add(`"properties":{%s}`, strings.Join(members, ","))
		}
		if maybe("required") {
			add(`"required":[%q]`, rapid.SampledFrom([]string{"a", "b", "ü"}).Draw(t, "of"))
		}
		if maybe("additional") {
			add(`"additionalProperties":%s`, rapid.SampledFrom([]string{"false", "true", `{"type":"integer"}`}).Draw(t, "of"))
		}
		if ways && maybe("patterns") {
			add(`"patternProperties":{"^[ab]":%s}`, sub())
		}
		if ways && maybe("names") {
			add(`"propertyNames":{"maxLength":1}`)
		}
		if maybe("most") {
			add(`"maxProperties":%d`, rapid.IntRange(0, 3).Draw(t, "count"))
		}
	case 7:
		add(`"type":"array"`)
		if maybe("prefix") {
			add(`"prefixItems":[%s]`, several())
		}
		if maybe("items") {
			add(`"items":%s`, sub())
		}
		if maybe("least") {
			add(`"minItems":%d`, rapid.IntRange(0, 3).Draw(t, "count"))
		}
		if maybe("most") {
			add(`"maxItems":%d`, rapid.IntRange(0, 4).Draw(t, "count"))
		}
	case 8:
		add(`"anyOf":[%s]`, several())
	case 9:
		add(`"allOf":[%s]`, several())
	case 10:
		add(`"oneOf":[%s]`, several())
	case 11:
		add(`"$ref":"#/$defs/d"`)
		if maybe("beside") {
			add(`"anyOf":[%s]`, several())
		}
	}
	return "{" + strings.Join(keywords, ",") + "}"
}

// Whatever is said under the mask of a schema keeps it, and of the texts that keep it
// those can be said that the house makes up.
func TestRandomSchemas(t *testing.T) {
	v := byBytes(t, `{"`, `":`, `"}`, "true", "}}", `","`, "12", "00", "-", ".5", "a", "ab", `\"`, "ü", "null", "},", "]}", "],")
	compiled, said, sampled := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ways := rapid.Bool().Draw(t, "ways")
		source := drawSchema(t, 3, ways)
		if rest, ok := strings.CutPrefix(source, `{"`); ok && ways {
			source = `{"$defs":{"d":` + drawSchema(t, 1, false) + `},"` + rest
		}
		g, err := mask.NewCompiler(v).Compile(schemaFormat(source))
		if err != nil {
			return // refused, or without texts
		}
		compiled++
		check := strictly(t, source)
		for range 3 {
			text, ended := babble(t, v, g, rapid.Uint64().Draw(t, "seed"), 80)
			if !ended {
				continue
			}
			said++
			if err := check(text); err != nil {
				t.Fatalf("%s: %q: %v", source, text, err)
			}
		}
		if ways {
			return
		}
		text, err := guided.Sample(schemaFormat(source), rapid.Uint64().Draw(t, "sample"))
		if err != nil || check(text) != nil {
			return
		}
		sampled++
		if err := say(v, g, text, 1); err != nil {
			t.Fatalf("%s: %s: %v", source, text, err)
		}
	})
	t.Logf("%d schemas, %d texts said, %d made up", compiled, said, sampled)
	if compiled < 30 || said < 30 || sampled < 5 {
		t.Errorf("%d schemas, %d texts said, %d made up", compiled, said, sampled)
	}
}

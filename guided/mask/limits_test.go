package mask_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

// pages are forms of one page that ask for more than a machine can do.
var pages = map[string]struct {
	format *chat.OutputFormat
	says   string // "" if it can be done
}{
	"a state for each subset":  {&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `(a|b)*a(a|b){900}`}, ""},
	"counts in counts":         {&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `((a{0,30}){0,30}b?){0,900}c`}, "invalid repeat count"},
	"counts of one character":  {&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `(a{0,30}){0,30}c`}, ""},
	"ambiguous":                {&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `(a*)*(a|aa)*b`}, ""},
	"long":                     {&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: strings.Repeat("(ab|cd)", 20_000)}, "131072 parts"},
	"patterns against lengths": {schemaFormat(`{"type":"string","pattern":"^(a|b)*a(a|b){100}$","minLength":50000}`), "states"},
	"two patterns":             {schemaFormat(`{"type":"string","allOf":[{"pattern":"(a|b)*a(a|b){30}$"},{"pattern":"(a|b)*b(a|b){29}$"}]}`), ""},
	"doubling": {schemaFormat(func() string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range 30 {
			fmt.Fprintf(&b, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		b.WriteString(`"d30":{"type":"null"}}}`)
		return b.String()
	}()), "alternatives"},
	"products":             {schemaFormat(`{"allOf":[` + strings.Repeat(`{"anyOf":[{"minimum":1},{"minimum":2},{"minimum":3}]},`, 20) + `{"type":"number"}]}`), "alternatives"},
	"nothing in many ways": {schemaFormat(`{"allOf":[` + strings.Repeat(`{"anyOf":[{"minimum":1},{"minimum":2},{"minimum":3}]},`, 20) + `false]}`), "looks at a part"},
	"choices in choices": {schemaFormat(func() string {
		source := `{"type":"string"}`
		for i := range 15 {
			source = fmt.Sprintf(`{"oneOf":[{"const":%d},%s]}`, i, source)
		}
		return source
	}()), ""},
	"more choices in choices": {schemaFormat(func() string {
		source := `{"type":"string"}`
		for i := range 60 {
			source = fmt.Sprintf(`{"oneOf":[{"const":%d},%s]}`, i, source)
		}
		return source
	}()), "looks at a part"},
	"a tree of choices": {schemaFormat(`{"oneOf":[{"type":"object","properties":{"k":{"const":"n"},"l":{"$ref":"#"},"r":{"$ref":"#"}},"required":["k","l","r"]},{"type":"object","properties":{"k":{"const":"l"},"l":{"$ref":"#"}},"required":["k","l"]},{"type":"null"}]}`), ""},
	"slow patterns":     {schemaFormat(`{"type":"object","properties":{"` + strings.Repeat("a", 60) + `":{}},"patternProperties":{"^(a+)+$":{},"^(a|aa)*b":{}},"additionalProperties":false}`), ""},
	"counts of members": {schemaFormat(`{"type":"object","properties":{` + strings.Repeat(`"a":{},`, 3) + `"b":{}},"additionalProperties":{},"maxProperties":10000000}`), ""},
	"many choices": {&chat.OutputFormat{Kind: chat.FormatChoice, Choices: func() (list []string) {
		for i := range 5000 {
			list = append(list, fmt.Sprintf("choice number %d of many", i*7919%5000))
		}
		return list
	}()}, ""},
	"many members": {schemaFormat(func() string {
		var b strings.Builder
		b.WriteString(`{"type":"object","properties":{`)
		for i := range 400 {
			fmt.Fprintf(&b, `"m%d":{"type":"integer"},`, i)
		}
		b.WriteString(`"last":{"type":"null"}},"maxProperties":5}`)
		return b.String()
	}()), ""},
	"deep":         {schemaFormat(strings.Repeat(`{"items":`, 60) + `{}` + strings.Repeat(`}`, 60)), ""},
	"too deep":     {schemaFormat(strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200)), "128 levels deep"},
	"huge numbers": {schemaFormat(`{"type":"number","minimum":1e999999}`), "/minimum: it is too large"},
	"huge counts":  {schemaFormat(`{"type":"array","minItems":1000000000}`), "/minItems: it is no count"},
	"large counts": {schemaFormat(`{"type":"array","items":{"type":"integer"},"minItems":1000000,"maxItems":2000000}`), ""},
	"large length": {schemaFormat(`{"type":"string","minLength":100000,"maxLength":100001}`), ""},
}

// Whatever a form asks for, it is done or refused in bounded time, with an error that
// names the limit.
func TestLimits(t *testing.T) {
	v := invented(t, 4096)
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			err := func() error {
				g, err := mask.NewCompiler(v).Compile(page.format)
				if err != nil {
					return err
				}
				s := g.Start()
				bits := make([]uint64, v.Words())
				for range 60 {
					if err := s.Mask(bits); err != nil {
						return err
					}
					id := uint32(0)
					for bits[id>>6]>>(id&63)&1 == 0 {
						id++
					}
					if err := s.Advance(id); err != nil {
						return err
					}
					if s.Ended() {
						return nil
					}
				}
				return nil
			}()
			if page.says == "" && err != nil || page.says != "" && (err == nil || !strings.Contains(err.Error(), page.says)) {
				t.Errorf("%v; want %q", err, page.says)
			}
			t.Log(time.Since(began))
		})
	}
}

// A few forms that each take much must not fill the memory: what is kept of forms is
// bounded by bytes. Where any member may be the next one, few states have many parts.
func TestFormsOfManyMembersAreNotKept(t *testing.T) {
	const forms, members, most = 12, 1000, 192 << 20
	v := invented(t, 2048)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := mask.NewCompiler(v)
	bits := make([]uint64, v.Words())
	for form := range forms {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, `"m%d_%d":{"type":"integer"},`, form, i)
		}
		g, err := c.Compile(schemaFormat(`{"type":"object","properties":{` + b.String() + `"last":{"type":"null"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s := g.Start()
		for _, id := range []uint32{'{', '"'} {
			if err := s.Mask(bits); err != nil {
				t.Fatal(err)
			}
			if err := s.Advance(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := heap() - before
	t.Logf("%d MiB", held>>20)
	if held > most {
		t.Errorf("%d forms of %d members are kept in %d MiB, want %d at most", forms, members, held>>20, most>>20)
	}
	runtime.KeepAlive(c)
}

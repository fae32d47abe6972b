package mask_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/guided/mask"
)

// A number may be said if and only if it is in its range.
func TestRanges(t *testing.T) {
	v := byBytes(t)
	number := rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"0", "1", "7", "9", "10", "12", "19", "99", "100", "105", "999", "1000"}).Draw(t, "whole")
		s += rapid.SampledFrom([]string{"", "", ".0", ".1", ".05", ".25", ".250", ".249", ".251", ".9", ".99", ".00"}).Draw(t, "fraction")
		if rapid.Bool().Draw(t, "negative") {
			s = "-" + s
		}
		return s
	})
	rat := func(s string) *big.Rat {
		r, _ := new(big.Rat).SetString(s)
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"number", "integer"}).Draw(t, "type")
		bounds := map[string]string{}
		source := fmt.Sprintf(`{"type":%q`, kind)
		for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
			if rapid.IntRange(0, 2).Draw(t, keyword) == 0 {
				bounds[keyword] = number.Draw(t, "bound")
				source += fmt.Sprintf(`,%q:%s`, keyword, bounds[keyword])
			}
		}
		within := func(s string) bool {
			for keyword, b := range bounds {
				c := rat(s).Cmp(rat(b))
				if strings.HasSuffix(keyword, "inimum") {
					c = -c
				}
				if c > 0 || c == 0 && strings.HasPrefix(keyword, "ex") {
					return false
				}
			}
			return kind == "number" || !strings.Contains(s, ".")
		}
		g, err := mask.NewCompiler(v).Compile(schemaFormat(source + "}"))
		for range 40 {
			s := number.Draw(t, "number")
			if strings.HasPrefix(s, "-") && rat(s).Sign() == 0 {
				continue // is written where there are numbers below 0
			}
			if err != nil {
				if within(s) {
					t.Fatalf("%s}: %v, but there is %s", source, err, s)
				}
				continue
			}
			if err := say(v, g, s, 1); (err == nil) != within(s) {
				t.Fatalf("%s}: %s: %v; want %t", source, s, err, within(s))
			}
		}
	})
}

package mask

import (
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number by its digits, exactly: left and right of the point, with no
// zeros in front of the one and behind the other.
type decimal struct {
	negative    bool
	left, right string
}

// parseDecimal reads a JSON number. It is false for one that is too long to be
// written out.
func parseDecimal(text string) (decimal, bool) {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	exp := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n > 400 || n < -400 {
			return d, false
		}
		text, exp = text[:i], n
	}
	left, right, _ := strings.Cut(text, ".")
	switch {
	case exp > 0:
		right += strings.Repeat("0", max(0, exp-len(right)))
		left, right = left+right[:exp], right[exp:]
	case exp < 0:
		left = strings.Repeat("0", max(0, -exp-len(left))) + left
		left, right = left[:len(left)+exp], left[len(left)+exp:]+right
	}
	d.left = strings.TrimLeft(left, "0")
	d.right = strings.TrimRight(right, "0")
	if d.left == "" {
		d.left = "0"
	}
	if d.left == "0" && d.right == "" {
		d.negative = false
	}
	return d, true
}

func (d decimal) whole() bool { return d.right == "" }

func (d decimal) rat() *big.Rat {
	r, _ := new(big.Rat).SetString(d.left + "." + d.right + "0")
	if d.negative {
		r.Neg(r)
	}
	return r
}

// bound is one end of a range.
type bound struct {
	decimal
	strict bool // the number itself is outside
}

// tighter returns the one of two bounds that leaves less, for the low end or the
// high one.
func tighter(a, b *bound, low bool) *bound {
	if a == nil {
		return b
	}
	c := a.rat().Cmp(b.rat())
	if c == 0 {
		return &bound{a.decimal, a.strict || b.strict}
	}
	if (c > 0) == low {
		return a
	}
	return b
}

// number is a number that the keywords of a branch let be.
func (s *schemas) number(b branch) (*expr, error) {
	var low, high *bound
	for _, k := range []struct {
		name        string
		low, strict bool
	}{{"minimum", true, false}, {"exclusiveMinimum", true, true}, {"maximum", false, false}, {"exclusiveMaximum", false, true}} {
		for _, v := range b.all(k.name) {
			d, ok := parseDecimal(string(v.raw))
			switch {
			case v.kind != '0':
				return nil, fault(v, "it is no number")
			case !ok:
				return nil, fault(v, "it is too large or too small for answers to be held to it")
			case k.low:
				low = tighter(low, &bound{d, k.strict}, true)
			default:
				high = tighter(high, &bound{d, k.strict}, false)
			}
		}
	}
	integral := b.types()&fractionType == 0
	steps := b.all("multipleOf")
	if low == nil && high == nil && len(steps) == 0 {
		if integral {
			return frame(integer), nil
		}
		return frame(number), nil
	}
	parts := []*expr{integer}
	if !integral {
		parts[0] = seq(integer, option(fraction))
	}
	if low != nil || high != nil {
		parts = append(parts, between(low, high))
	}
	for _, v := range steps {
		e, err := s.multiple(v)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return frame(and(parts...)), nil
}

// between is a number in a range, in any way in which its digits may be written.
func between(low, high *bound) *expr {
	zero := &bound{}
	zero.left = "0"
	var parts []*expr
	if high == nil || !high.negative {
		least := low
		if low == nil || low.negative {
			least = zero
		}
		parts = append(parts, magnitude(least, high))
	}
	if low == nil || low.negative {
		least := zero
		if high != nil && (high.negative || high.rat().Sign() == 0) {
			least = high
		}
		parts = append(parts, seq(lit("-"), magnitude(least, low)))
	}
	return alt(parts...)
}

// magnitude is a number without a sign between two others, whose signs do not
// count.
func magnitude(low, high *bound) *expr {
	parts := []*expr{above(low)}
	if high != nil {
		parts = append(parts, below(high))
	}
	return and(parts...)
}

func digits(low, high int) *expr { return repeat(digit, low, high) }

// longer is the digits of all whole numbers with more of them, or with fewer.
func longer(n int) *expr { return seq(span('1', '9'), digits(n, noLimit)) }

func shorter(n int) *expr {
	if n < 2 {
		return void
	}
	return alt(lit("0"), seq(span('1', '9'), digits(0, n-2)))
}

// above is a number from a bound upwards.
func above(b *bound) *expr {
	end := empty
	if b.right == "" && b.strict {
		end = seq(lit("."), star(lit("0")), span('1', '9'), star(digit))
	} else if b.right == "" {
		end = option(seq(lit("."), star(digit)))
	}
	if b.right != "" {
		end = star(digit)
		if b.strict {
			end = seq(star(lit("0")), span('1', '9'), star(digit))
		}
		for i := len(b.right) - 1; i >= 0; i-- {
			end = alt(seq(span(b.right[i]+1, '9'), star(digit)), seq(lit(b.right[i:i+1]), end))
		}
		end = seq(lit("."), end)
	}
	free := option(seq(lit("."), star(digit)))
	parts := []*expr{seq(lit(b.left), end), seq(longer(len(b.left)), free)}
	for i := range len(b.left) {
		rest := digits(len(b.left)-i-1, len(b.left)-i-1)
		parts = append(parts, seq(lit(b.left[:i]), span(b.left[i]+1, '9'), rest, free))
	}
	return alt(parts...)
}

// below is a number up to a bound.
func below(b *bound) *expr {
	end := void
	if !b.strict {
		end = star(lit("0"))
	}
	for i := len(b.right) - 1; i >= 0; i-- {
		less := seq(span('0', b.right[i]-1), star(digit))
		end = alt(less, seq(lit(b.right[i:i+1]), alt(empty, end)))
		if i == len(b.right)-1 && b.strict {
			end = less
		}
	}
	switch {
	case b.right != "":
		end = option(seq(lit("."), end))
	case !b.strict:
		end = option(seq(lit("."), end))
	}
	free := option(seq(lit("."), star(digit)))
	parts := []*expr{seq(lit(b.left), end), seq(shorter(len(b.left)), free)}
	for i := range len(b.left) {
		first := byte('0')
		if i == 0 && len(b.left) > 1 {
			first = '1'
		}
		rest := digits(len(b.left)-i-1, len(b.left)-i-1)
		parts = append(parts, seq(lit(b.left[:i]), span(first, b.left[i]-1), rest, free))
	}
	return alt(parts...)
}

// maxStep bounds multipleOf: there is a state for each remainder.
const maxStep = 1000

// multiple is a number that another divides.
func (s *schemas) multiple(v *value) (*expr, error) {
	d, ok := parseDecimal(string(v.raw))
	switch {
	case v.kind != '0' || !ok || d.negative || d.left == "0" && d.right == "":
		return nil, fault(v, "it is no number above 0")
	case d.right == "" && len(d.left) <= 4:
		if step, _ := strconv.Atoi(d.left); step <= maxStep {
			return s.divided(step), nil
		}
	case d.left == "0" && strings.Trim(d.right, "0") == "1":
		most := len(d.right)
		return seq(option(lit("-")), digits(1, noLimit), option(seq(lit("."), digits(1, most), star(lit("0"))))), nil
	}
	return nil, fault(v, "answers are held to multiples of whole numbers up to %d, and of 0.1, 0.01 and so on", maxStep)
}

// divided is a whole number that step divides: the rules are remainders.
func (s *schemas) divided(step int) *expr {
	first := len(*s.rules)
	for range step {
		s.rules.reserve()
	}
	for r := range step {
		var parts []*expr
		if r == 0 {
			parts = append(parts, option(seq(lit("."), star(lit("0")))))
		}
		for d := range 10 {
			parts = append(parts, seq(span(byte('0'+d), byte('0'+d)), call(int32(first+(10*r+d)%step))))
		}
		(*s.rules)[first+r] = alt(parts...)
	}
	return seq(option(lit("-")), call(int32(first)))
}

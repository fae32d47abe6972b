package guided

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"strings"
)

// samplePattern returns a text that an expression matches. Expressions beyond
// regular languages, with look-arounds for instance, have no samples here.
func samplePattern(pattern string, r *rand.Rand) (string, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", fmt.Errorf("no sample of the expression can be made: %w", err)
	}
	var b strings.Builder
	if err := walk(re, r, &b); err != nil {
		return "", err
	}
	return b.String(), nil
}

func walk(re *syntax.Regexp, r *rand.Rand, b *strings.Builder) error {
	if b.Len() > largest {
		return errors.New("the expression has no short match")
	}
	least, most := 1, 1
	switch re.Op {
	case syntax.OpNoMatch:
		return errors.New("the expression matches nothing")
	case syntax.OpLiteral:
		for _, c := range re.Rune {
			b.WriteRune(c)
		}
	case syntax.OpCharClass:
		b.WriteRune(member(re.Rune, r))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte(byte('a' + r.IntN(26)))
	case syntax.OpAlternate:
		return walk(re.Sub[r.IntN(len(re.Sub))], r, b)
	case syntax.OpStar:
		least, most = 0, 3
	case syntax.OpPlus:
		least, most = 1, 3
	case syntax.OpQuest:
		least, most = 0, 1
	case syntax.OpRepeat:
		least, most = re.Min, re.Max
		if most < 0 || most > least+3 {
			most = least + 3
		}
	}
	for range least + r.IntN(most-least+1) {
		for _, sub := range re.Sub {
			if err := walk(sub, r, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// member picks a rune of a class, given as pairs of bounds; a printable ASCII one
// if it can.
func member(pairs []rune, r *rand.Rand) rune {
	i := 2 * r.IntN(len(pairs)/2)
	for k := 0; k < len(pairs); k += 2 {
		j := (i + k) % len(pairs)
		if low, high := max(pairs[j], ' '+1), min(pairs[j+1], '~'); low <= high {
			return low + rune(r.IntN(int(high-low)+1))
		}
	}
	return pairs[i] + rune(r.IntN(int(pairs[i+1]-pairs[i])+1))
}

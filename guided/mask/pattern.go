package mask

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// pattern reads a regular expression in the syntax of RE2. It matches whole texts;
// if it is free, it matches what has a match somewhere, unless anchors say
// otherwise.
func (w writing) pattern(text string, free bool) (*expr, error) {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		var bad *syntax.Error
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("it is no expression of RE2: %s: %s", bad.Code, bad.Expr)
		}
		return nil, fmt.Errorf("it is no expression of RE2: %w", err)
	}
	return w.anchored(re, free, free)
}

// anchored takes the anchors off the ends of an expression, and leaves those ends
// open that have none.
func (w writing) anchored(re *syntax.Regexp, left, right bool) (*expr, error) {
	switch re.Op {
	case syntax.OpCapture:
		return w.anchored(re.Sub[0], left, right)
	case syntax.OpAlternate:
		var parts []*expr
		for _, sub := range re.Sub {
			e, err := w.anchored(sub, left, right)
			if err != nil {
				return nil, err
			}
			parts = append(parts, e)
		}
		return alt(parts...), nil
	case syntax.OpBeginText, syntax.OpEndText:
		re = &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{re}}
	}
	if re.Op == syntax.OpConcat {
		list := re.Sub
		for len(list) > 0 && list[0].Op == syntax.OpBeginText {
			list, left = list[1:], false
		}
		for len(list) > 0 && list[len(list)-1].Op == syntax.OpEndText {
			list, right = list[:len(list)-1], false
		}
		if len(list) == 1 {
			return w.anchored(list[0], left, right)
		}
		re = &syntax.Regexp{Op: syntax.OpConcat, Sub: list}
	}
	e, err := w.expression(re)
	if err != nil {
		return nil, err
	}
	if left {
		e = seq(star(w.any()), e)
	}
	if right {
		e = seq(e, star(w.any()))
	}
	return e, nil
}

func (w writing) expression(re *syntax.Regexp) (*expr, error) {
	var parts []*expr
	for _, sub := range re.Sub {
		e, err := w.expression(sub)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return void, nil
	case syntax.OpEmptyMatch:
		return empty, nil
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			parts = append(parts, w.chars(folds(r, re.Flags)))
		}
		return seq(parts...), nil
	case syntax.OpCharClass:
		return w.chars(re.Rune), nil
	case syntax.OpAnyChar:
		return w.any(), nil
	case syntax.OpAnyCharNotNL:
		return w.chars([]rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}), nil
	case syntax.OpCapture:
		return parts[0], nil
	case syntax.OpStar:
		return star(parts[0]), nil
	case syntax.OpPlus:
		return repeat(parts[0], 1, noLimit), nil
	case syntax.OpQuest:
		return option(parts[0]), nil
	case syntax.OpRepeat:
		return repeat(parts[0], re.Min, re.Max), nil
	case syntax.OpConcat:
		return seq(parts...), nil
	case syntax.OpAlternate:
		return alt(parts...), nil
	}
	return nil, fmt.Errorf("%s inside an expression is not followed: anchors stand at its ends, and there are no word boundaries and no modes of lines", re)
}

// folds lists what a character of a pattern matches.
func folds(r rune, flags syntax.Flags) []rune {
	list := []rune{r, r}
	if flags&syntax.FoldCase == 0 {
		return list
	}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		list = append(list, other, other)
	}
	return list
}

// choice is one of some texts.
func choice(list []string) (*expr, error) {
	if len(list) == 0 {
		return nil, errors.New("there is nothing to choose from")
	}
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	for _, s := range sorted {
		if strings.ToValidUTF8(s, "") != s {
			return nil, fmt.Errorf("the choice %q is no UTF-8", s)
		}
	}
	return texts(slices.Compact(sorted)), nil
}

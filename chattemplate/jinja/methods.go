package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Methods of Python's str, list, tuple and dict. The first value is the object.

var strMethods map[string]*builtin

func init() {
	// Assigned here because format and join reach back to attribute lookup.
	strMethods = table(
		fn("upper s", onText(upper)),
		fn("lower s", onText(lower)),
		fn("casefold s", onText(cases.Fold().String)),
		fn("title s", onState(title)),
		fn("capitalize s", onText(capitalize)),
		fn("swapcase s", onState(swapcase)),
		fn("strip s chars?", strip(strings.TrimFunc)),
		fn("lstrip s chars?", strip(strings.TrimLeftFunc)),
		fn("rstrip s chars?", strip(strings.TrimRightFunc)),
		fn("startswith s prefix start? end?", affix(strings.HasPrefix)),
		fn("endswith s suffix start? end?", affix(strings.HasSuffix)),
		fn("removeprefix s prefix", onTexts(strings.TrimPrefix)),
		fn("removesuffix s suffix", onTexts(strings.TrimSuffix)),
		fn("replace s old new count?", strReplace),
		fn("split s sep? maxsplit?", strSplit),
		fn("rsplit s sep? maxsplit?", strRsplit),
		fn("splitlines s keepends?", strSplitlines),
		fn("partition s sep", strPartition),
		fn("rpartition s sep", strRpartition),
		fn("join s items", strJoin),
		fn("find s sub start? end?", search(strings.Index, false)),
		fn("rfind s sub start? end?", search(strings.LastIndex, false)),
		fn("index s sub start? end?", search(strings.Index, true)),
		fn("rindex s sub start? end?", search(strings.LastIndex, true)),
		fn("count s sub start? end?", strCount),
		fn("format s *", strFormat),
		fn("center s width fill?", pad(func(n, width int) int { return n/2 + n&width&1 })),
		fn("ljust s width fill?", pad(func(int, int) int { return 0 })),
		fn("rjust s width fill?", pad(func(n, _ int) int { return n })),
		fn("zfill s width", strZfill),
		fn("expandtabs s tabsize?", strExpandtabs),
		fn("isdigit s", every(unicode.IsDigit)),
		fn("isdecimal s", every(unicode.IsDigit)),
		fn("isnumeric s", every(unicode.IsNumber)),
		fn("isalpha s", every(unicode.IsLetter)),
		fn("isalnum s", every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })),
		fn("isspace s", every(isSpace)),
		fn("isascii s", predicate(isASCII)),
		fn("isupper s", predicate(func(s string) bool { return hasCase(s) && upper(s) == s })),
		fn("islower s", predicate(func(s string) bool { return hasCase(s) && lower(s) == s })),
		fn("istitle s", func(st *state, a []Value) (Value, error) {
			s, _ := text(a[0])
			return hasCase(s) && title(st, s) == s, nil
		}),
	)
}

var listMethods = table(
	fn("index list value", sequenceIndex),
	fn("count list value", sequenceCount),
	fn("copy list", func(_ *state, a []Value) (Value, error) { return a[0], nil }),
)

var tupleMethods = table(
	fn("index tuple value", sequenceIndex),
	fn("count tuple value", sequenceCount),
)

var dictMethods = table(
	fn("keys dict", func(_ *state, a []Value) (Value, error) { return &view{a[0].(*Dict), "keys"}, nil }),
	fn("values dict", func(_ *state, a []Value) (Value, error) { return &view{a[0].(*Dict), "values"}, nil }),
	fn("items dict", func(_ *state, a []Value) (Value, error) { return &view{a[0].(*Dict), "items"}, nil }),
	fn("copy dict", func(_ *state, a []Value) (Value, error) { return a[0], nil }),
	fn("get dict key default?", func(st *state, a []Value) (Value, error) {
		if v, ok := a[0].(*Dict).lookup(st, a[1]); ok {
			return v, nil
		}
		return optional(a[2], None), nil
	}),
)

func optional(v, fallback Value) Value {
	if v == nil {
		return fallback
	}
	return v
}

// upper, lower and the others use the full Unicode mappings, as Python does.
// A Caser keeps state, so each call makes its own.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// title makes the first of each run of letters upper case, the rest lower.
func title(st *state, s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		if st.work(slow) != nil {
			break
		}
		if inWord {
			b.WriteString(lower(string(r)))
		} else {
			b.WriteString(titleCase(r))
		}
		inWord = unicode.IsLetter(r)
	}
	return b.String()
}

// titleCase is the title case of one letter, which may be several: "ß" gives
// "Ss".
func titleCase(r rune) string {
	full := upper(string(r))
	if first, n := utf8.DecodeRuneInString(full); n < len(full) {
		return string(first) + lower(full[n:])
	}
	return string(unicode.ToTitle(r))
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return titleCase(r) + lower(s[n:])
}

func swapcase(st *state, s string) string {
	var b strings.Builder
	for _, r := range s {
		if st.work(slow) != nil {
			break
		}
		if unicode.IsUpper(r) {
			b.WriteString(lower(string(r)))
			continue
		}
		b.WriteString(upper(string(r)))
	}
	return b.String()
}

func hasCase(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) })
}

func onText(f func(string) string) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		out := f(s)
		return likeText(a[0], out), st.spend(len(out))
	}
}

// onState is onText for what goes character by character, and stops early when
// the time is up.
func onState(f func(*state, string) string) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		out := f(st, s)
		return likeText(a[0], out), st.spend(len(out))
	}
}

// slow is the work that a character takes whose case changes by itself.
const slow = 64

func onTexts(f func(s, t string) string) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		t, err := needText(a[1])
		return likeText(a[0], f(s, t)), err
	}
}

func predicate(f func(string) bool) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		return f(s), nil
	}
}

func every(f func(rune) bool) func(*state, []Value) (Value, error) {
	return predicate(func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !f(r) })
	})
}

func needText(v Value) (string, error) {
	if s, ok := text(v); ok {
		return s, nil
	}
	if u, ok := v.(*undefined); ok {
		return "", u.error()
	}
	return "", fail(TypeError, "must be str, not %s", typeName(v))
}

// needInt reads an optional integer.
func needInt(v Value, fallback int) (int, error) {
	if v == nil {
		return fallback, nil
	}
	n, ok := small(v)
	if !ok {
		return 0, fail(TypeError, "'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return n, nil
}

func strip(trim func(string, func(rune) bool) string) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		if a[1] == nil || a[1] == None {
			return likeText(a[0], trim(s, isSpace)), nil
		}
		chars, err := needText(a[1])
		return likeText(a[0], trim(s, func(r rune) bool { return strings.ContainsRune(chars, r) })), err
	}
}

// window cuts s to its optional start and end, counted in code points, and
// tells how many code points lie before it.
func window(s string, start, end Value) (string, int, error) {
	if start == nil && end == nil {
		return s, 0, nil
	}
	runes := []rune(s)
	lo, hi, _, err := limits(len(runes), [3]Value{optional(start, None), optional(end, None), None})
	if err != nil {
		return "", 0, err
	}
	return string(runes[lo:max(lo, hi)]), lo, nil
}

func affix(has func(s, affix string) bool) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		s, _, err := window(s, a[2], a[3])
		if err != nil {
			return nil, err
		}
		options := []Value{a[1]}
		if t, ok := a[1].(*tuple); ok {
			options = t.items
		}
		for _, o := range options {
			t, err := needText(o)
			if err != nil {
				return nil, err
			}
			if has(s, t) {
				return true, nil
			}
		}
		return false, nil
	}
}

func search(find func(s, sub string) int, must bool) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		sub, err := needText(a[1])
		if err != nil {
			return nil, err
		}
		s, before, err := window(s, a[2], a[3])
		if err != nil {
			return nil, err
		}
		i := find(s, sub)
		if i < 0 && must {
			return nil, fail(ValueError, "substring not found")
		}
		if i < 0 {
			return -1, nil
		}
		return before + runeCount(s[:i]), nil
	}
}

func strCount(_ *state, a []Value) (Value, error) {
	s, _ := text(a[0])
	sub, err := needText(a[1])
	if err != nil {
		return nil, err
	}
	s, _, err = window(s, a[2], a[3])
	return strings.Count(s, sub), err
}

func strReplace(st *state, a []Value) (Value, error) {
	s, _ := text(a[0])
	from, err := needText(a[1])
	if err != nil {
		return nil, err
	}
	to, err := needText(a[2])
	if err != nil {
		return nil, err
	}
	if _, ok := a[0].(markup); ok {
		m, _ := escape(st, a[2])
		to = string(m)
	}
	n, err := needInt(a[3], -1)
	if err != nil {
		return nil, err
	}
	out, err := replace(st, s, from, to, n)
	return likeText(a[0], out), err
}

// replace counts before it builds: a template must not grow text without bound.
func replace(st *state, s, from, to string, n int) (string, error) {
	found := strings.Count(s, from)
	if n >= 0 {
		found = min(found, n)
	}
	if found == 0 {
		return s, nil
	}
	if err := st.spendTimes(max(len(to), 1), found); err != nil {
		return "", err
	}
	return strings.Replace(s, from, to, found), st.spend(len(s))
}

func strJoin(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[1])
	if err != nil {
		return nil, err
	}
	sep, _ := text(a[0])
	parts := make([]string, len(items))
	_, isMarkup := a[0].(markup)
	for i, v := range items {
		s, ok := text(v)
		if !ok {
			return nil, fail(TypeError, "sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		if isMarkup {
			m, _ := escape(st, v)
			s = string(m)
		}
		parts[i] = s
	}
	if err := st.spendTimes(len(sep), len(parts)); err != nil {
		return nil, err
	}
	if err := st.spend(joined(parts)); err != nil {
		return nil, err
	}
	return likeText(a[0], strings.Join(parts, sep)), nil
}

// pad fills a string up to a width; before says how much of n goes in front.
func pad(before func(n, width int) int) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		s, _ := text(a[0])
		width, err := needInt(a[1], 0)
		if err != nil {
			return nil, err
		}
		fill, err := needText(optional(a[2], " "))
		if err != nil {
			return nil, err
		}
		if runeCount(fill) != 1 {
			return nil, fail(TypeError, "the fill character must be exactly one character long")
		}
		n := width - runeCount(s)
		if n <= 0 {
			return a[0], nil
		}
		if err := st.spendTimes(len(fill), n); err != nil {
			return nil, err
		}
		left := before(n, width)
		return likeText(a[0], strings.Repeat(fill, left)+s+strings.Repeat(fill, n-left)), nil
	}
}

func strZfill(st *state, a []Value) (Value, error) {
	s, _ := text(a[0])
	width, err := needInt(a[1], 0)
	if err != nil {
		return nil, err
	}
	n := max(width-runeCount(s), 0)
	if err := st.spendTimes(1, n); err != nil {
		return nil, err
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	return likeText(a[0], sign+strings.Repeat("0", n)+s), nil
}

func strExpandtabs(st *state, a []Value) (Value, error) {
	s, _ := text(a[0])
	size, err := needInt(a[1], 8)
	if err != nil {
		return nil, err
	}
	if err := st.spendTimes(max(size, 1), strings.Count(s, "\t")); err != nil {
		return nil, err
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch {
		case r == '\t' && size > 0:
			n := size - column%size
			b.WriteString(strings.Repeat(" ", n))
			column += n
		case r == '\t':
		default:
			b.WriteRune(r)
			column++
			if r == '\n' || r == '\r' {
				column = 0
			}
		}
	}
	return likeText(a[0], b.String()), st.spend(len(s))
}

func sequenceIndex(st *state, a []Value) (Value, error) {
	items, _ := st.elements(a[0])
	for i, v := range items {
		if equal(st, v, a[1]) {
			return i, nil
		}
	}
	return nil, fail(ValueError, "value is not in %s", typeName(a[0]))
}

func sequenceCount(st *state, a []Value) (Value, error) {
	items, _ := st.elements(a[0])
	n := 0
	for _, v := range items {
		if equal(st, v, a[1]) {
			n++
		}
	}
	return n, nil
}

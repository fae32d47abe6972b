package jinja

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

func textFilters() []*builtin {
	return []*builtin{
		method("upper value", "upper"),
		method("lower value", "lower"),
		method("capitalize value", "capitalize"),
		method("trim value chars?", "strip"),
		fn("title value", filterTitle),
		fn("center value width?", func(st *state, a []Value) (Value, error) {
			s, err := softText(st, a[0])
			if err != nil {
				return nil, err
			}
			return strMethods["center"].run(st, []Value{s, optional(a[1], 80), nil})
		}),
		fn("replace value old new count?", filterReplace),
		fn("indent value width? first? blank?", filterIndent),
		fn("truncate value length? killwords? end? leeway?", filterTruncate),
		fn("wordcount value", filterWordCount),
		fn("wordwrap value width? break_long_words? wrapstring? break_on_hyphens?", filterWordWrap),
		fn("striptags value", filterStripTags),
		fn("urlencode value", filterURLEncode),
		fn("xmlattr value autospace?", filterXMLAttr),
		fn("format value *", filterFormat),
	}
}

// method makes a filter of a string method.
func method(signature, name string) *builtin {
	return fn(signature, func(st *state, a []Value) (Value, error) {
		s, err := softText(st, a[0])
		if err != nil {
			return nil, err
		}
		a[0] = s
		return strMethods[name].run(st, a)
	})
}

// filterTitle makes the first character of each word upper case, where words
// end at blanks, hyphens and opening brackets only.
func filterTitle(st *state, a []Value) (Value, error) {
	s, err := str(st, a[0])
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for s != "" {
		first, size := utf8.DecodeRuneInString(s)
		apart := separates(first)
		n := strings.IndexFunc(s, func(r rune) bool { return separates(r) != apart })
		if n < 0 {
			n = len(s)
		}
		if err := st.work(slow + n); err != nil {
			return nil, err
		}
		b.WriteString(upper(s[:size]) + lower(s[size:n]))
		s = s[n:]
	}
	return b.String(), st.spend(b.Len())
}

func separates(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }

func filterReplace(st *state, a []Value) (Value, error) {
	s, err := str(st, a[0])
	if err != nil {
		return nil, err
	}
	from, err := str(st, a[1])
	if err != nil {
		return nil, err
	}
	to, err := str(st, a[2])
	if err != nil {
		return nil, err
	}
	n := -1
	if a[3] != None {
		if n, err = needInt(a[3], -1); err != nil {
			return nil, err
		}
	}
	return boxed(replace(st, s, from, to, n))
}

func filterIndent(st *state, a []Value) (Value, error) {
	s, err := needText(a[0])
	if err != nil {
		return nil, err
	}
	indent, ok := text(optional(a[1], 4))
	if !ok {
		n, err := needInt(a[1], 4)
		if err != nil {
			return nil, err
		}
		if err := st.spendTimes(1, max(n, 0)); err != nil {
			return nil, err
		}
		indent = strings.Repeat(" ", max(n, 0))
	}
	if err := st.spendTimes(len(indent)+1, strings.Count(s, "\n")+1); err != nil {
		return nil, err
	}
	split, err := strSplitlines(st, []Value{s + "\n", nil})
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i, v := range split.(*List).items {
		line := v.(string)
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && flag(a[2]) || i > 0 && (line != "" || flag(a[3])) {
			b.WriteString(indent)
		}
		b.WriteString(line)
	}
	return likeText(a[0], b.String()), st.spend(b.Len())
}

func filterTruncate(st *state, a []Value) (Value, error) {
	n, err := size(st, a[0])
	if err != nil {
		return nil, err
	}
	length, err := needInt(a[1], 255)
	if err != nil {
		return nil, err
	}
	end, err := needText(optional(a[3], "..."))
	if err != nil {
		return nil, err
	}
	leeway := 5
	if a[4] != None {
		if leeway, err = needInt(a[4], 5); err != nil {
			return nil, err
		}
	}
	keep := length - runeCount(end)
	if keep < 0 || leeway < 0 {
		return nil, fail(ValueError, "truncate: expected length >= %d and leeway >= 0", runeCount(end))
	}
	if n-leeway <= length {
		return a[0], nil
	}
	s, err := needText(a[0])
	if err != nil {
		return nil, err
	}
	head := clip(s, keep)
	if i := strings.LastIndexByte(head, ' '); i >= 0 && !flag(a[2]) {
		head = head[:i]
	}
	return likeText(a[0], head+end), st.spend(4 * len(head))
}

func filterWordCount(st *state, a []Value) (Value, error) {
	s, err := str(st, a[0])
	words, inWord := 0, false
	for _, r := range s {
		was := inWord
		inWord = r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
		words += boolInt(inWord && !was)
	}
	return words, err
}

// filterWordWrap breaks lines at blanks, and words longer than a line anywhere.
func filterWordWrap(st *state, a []Value) (Value, error) {
	s, err := needText(a[0])
	if err != nil {
		return nil, err
	}
	width, err := needInt(a[1], 79)
	if err != nil {
		return nil, err
	}
	if width <= 0 {
		return nil, fail(ValueError, "invalid width %d (must be > 0)", width)
	}
	newline, err := needText(optional(noneAsNil(a[3]), "\n"))
	if err != nil {
		return nil, err
	}
	if err := st.spendTimes(len(newline)+1, len(s)); err != nil {
		return nil, err
	}
	if err := st.spendItems(len(s)); err != nil { // as many lines there may be
		return nil, err
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		lines = append(lines, wrap(line, width, a[2] == nil || truth(a[2]))...)
	}
	return strings.Join(lines, newline), nil
}

func noneAsNil(v Value) Value {
	if v == None {
		return nil
	}
	return v
}

func wrap(s string, width int, breakWords bool) []string {
	var lines []string
	var line []string // its words
	free := 0         // characters that still fit into it
	end := func() {
		if line != nil {
			lines = append(lines, strings.Join(line, " "))
		}
	}
	for _, w := range strings.Fields(s) {
		n := runeCount(w)
		if line != nil && n < free {
			line, free = append(line, w), free-n-1
			continue
		}
		end()
		for r := []rune(w); breakWords && n > width; n -= width {
			lines = append(lines, string(r[:width]))
			r = r[width:]
			w = string(r[:min(width, len(r))])
		}
		line, free = []string{w}, width-n
	}
	if line == nil {
		return []string{""}
	}
	end()
	return lines
}

var unescapeHTML = strings.NewReplacer("&amp;", "&", "&gt;", ">", "&lt;", "<", "&#39;", "'", "&#34;", `"`, "&quot;", `"`)

func filterStripTags(st *state, a []Value) (Value, error) {
	s, err := str(st, a[0])
	if err != nil {
		return nil, err
	}
	s = without(without(s, "<!--", "-->"), "<", ">")
	s = unescapeHTML.Replace(strings.Join(strings.Fields(s), " "))
	return s, st.spend(len(s))
}

// without takes out what stands between begin and the next end, and these.
func without(s, begin, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, begin)
		if i < 0 {
			break
		}
		n := strings.Index(s[i+len(begin):], end)
		if n < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+len(begin)+n+len(end):]
	}
	b.WriteString(s)
	return b.String()
}

func filterURLEncode(st *state, a []Value) (Value, error) {
	quote := func(v Value, form bool) (string, error) {
		s, err := str(st, v)
		s = strings.ReplaceAll(url.QueryEscape(s), "%7E", "~")
		if !form {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "+", "%20"), "%2F", "/")
		}
		return s, err
	}
	var pairs []Value
	switch v := a[0].(type) {
	case *Dict:
		pairs = v.pairs()
	case *List, *tuple, *view, *generator:
		pairs, _ = st.elements(v)
	default:
		s, err := quote(v, false)
		return s, spentText(st, err, s)
	}
	var b strings.Builder
	for i, pair := range pairs {
		kv, err := st.elements(pair)
		if err != nil {
			return nil, err
		}
		if len(kv) != 2 {
			return nil, fail(ValueError, "urlencode: expected pairs")
		}
		if i > 0 {
			b.WriteByte('&')
		}
		for j, part := range kv {
			s, err := quote(part, true)
			if err != nil {
				return nil, err
			}
			if j == 1 {
				b.WriteByte('=')
			}
			b.WriteString(s)
			if err := st.spend(len(s)); err != nil {
				return nil, err
			}
		}
	}
	return b.String(), nil
}

func filterXMLAttr(st *state, a []Value) (Value, error) {
	d, ok := a[0].(*Dict)
	if !ok {
		return nil, fail(TypeError, "xmlattr needs a mapping, not %s", typeName(a[0]))
	}
	var b strings.Builder
	for i, k := range d.keys {
		v := d.vals[i]
		if _, undef := v.(*undefined); undef || v == None {
			continue
		}
		key, err := needText(k)
		if err != nil {
			return nil, err
		}
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			return nil, fail(ValueError, "invalid character in attribute name: %q", key)
		}
		value, err := escape(st, v)
		if err != nil {
			return nil, err
		}
		name, _ := escape(st, key)
		if b.Len() > 0 || a[1] == nil || truth(a[1]) {
			b.WriteByte(' ')
		}
		if err := st.spend(len(name) + len(value)); err != nil {
			return nil, err
		}
		b.WriteString(string(name) + `="` + string(value) + `"`)
	}
	return b.String(), nil
}

func filterFormat(st *state, a []Value) (Value, error) {
	v, err := softText(st, a[0])
	if err != nil {
		return nil, err
	}
	s, _ := text(v)
	pos, kw := a[1].(*tuple), a[2].(*Dict)
	switch {
	case len(pos.items) > 0 && kw.Len() > 0:
		return nil, fail(ValueError, "can't handle positional and keyword arguments at the same time")
	case kw.Len() > 0:
		return percent(st, v, s, kw)
	}
	return percent(st, v, s, pos)
}

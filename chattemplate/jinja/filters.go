package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// filters are what may follow "|". The first value is what is filtered. The
// filters of text and of sequences stand in files of their own.
var filters map[string]*builtin

func init() {
	filters = table(
		fn("default value default? boolean?", filterDefault),
		fn("string value", printed(softText)),
		fn("safe value", printed(func(st *state, v Value) (Value, error) {
			s, err := str(st, v)
			return markup(s), err
		})),
		fn("escape value", printed(func(st *state, v Value) (Value, error) { return boxed(escape(st, v)) })),
		fn("forceescape value", printed(func(st *state, v Value) (Value, error) {
			s, err := str(st, v)
			if err != nil {
				return nil, err
			}
			return boxed(escape(st, s))
		})),
		fn("tojson value ensure_ascii? indent? separators? sort_keys?", filterToJSON),
		fn("fromjson value", filterFromJSON),
		fn("abs value", filterAbs),
		fn("int value default? base?", filterInt),
		fn("float value default?", filterFloat),
		fn("round value precision? method?", filterRound),
		fn("attr value name", func(_ *state, a []Value) (Value, error) {
			name, err := needText(a[1])
			if err != nil {
				return nil, err
			}
			if v, err := ownAttribute(a[0], name); v != nil || err != nil {
				return v, err
			}
			return &undefined{name: name, object: a[0], kind: UndefinedError}, nil
		}),
		fn("filesizeformat value binary?", filterFileSize),
		fn("pprint value", printed(func(st *state, v Value) (Value, error) {
			b, err := appendRepr(st, nil, v, 0)
			return string(b), err
		})),
	)
	for _, f := range append(textFilters(), sequenceFilters()...) {
		filters[f.name] = f
	}
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length", "from_json": "fromjson"} {
		filters[alias] = filters[name]
	}
}

// printed makes a filter of a function that turns any value into text.
func printed(f func(*state, Value) (Value, error)) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		v, err := f(st, a[0])
		if err != nil {
			return nil, err
		}
		s, _ := text(v)
		return v, st.spend(len(s))
	}
}

// boxed turns a typed result into a Value.
func boxed[T any](v T, err error) (Value, error) { return v, err }

// softText is str(v), except that Markup stays Markup.
func softText(st *state, v Value) (Value, error) {
	if m, ok := v.(markup); ok {
		return m, nil
	}
	return boxed(str(st, v))
}

func flag(v Value) bool { return v != nil && truth(v) }

func filterDefault(_ *state, a []Value) (Value, error) {
	_, undef := a[0].(*undefined)
	if undef || flag(a[2]) && !truth(a[0]) {
		return optional(a[1], ""), nil
	}
	return a[0], nil
}

func filterToJSON(st *state, a []Value) (Value, error) {
	style := compactJSON
	style.st = st
	style.ascii, style.sortKeys = flag(a[1]), flag(a[4])
	if a[2] != nil && a[2] != None {
		style.multiline, style.item = true, ","
		if s, ok := text(a[2]); ok {
			style.indent = s
		} else {
			n, err := needInt(a[2], 0)
			if err != nil {
				return nil, err
			}
			style.indent = strings.Repeat(" ", min(max(n, 0), 64))
		}
	}
	if a[3] != nil && a[3] != None {
		pair, err := st.elements(a[3])
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, fail(ValueError, "separators must be a pair of strings")
		}
		if style.item, err = needText(pair[0]); err != nil {
			return nil, err
		}
		if style.key, err = needText(pair[1]); err != nil {
			return nil, err
		}
	}
	mark := len(st.out)
	out, err := style.append(st.out, a[0], 0)
	if err != nil {
		return nil, err
	}
	st.out = out
	s := st.cut(mark)
	return s, st.spend(len(s))
}

// filterFromJSON reads a JSON document; what is not text passes.
func filterFromJSON(st *state, a []Value) (Value, error) {
	s, ok := text(a[0])
	if !ok {
		return a[0], nil
	}
	v, err := FromJSON([]byte(s))
	if err != nil {
		return nil, fail(ValueError, "%v", err)
	}
	return v, st.spend(len(s))
}

func needNumber(v Value) error {
	if u, ok := v.(*undefined); ok {
		return u.error()
	}
	if !isNumber(v) {
		return fail(TypeError, "must be a number, not %s", typeName(v))
	}
	return nil
}

func filterAbs(_ *state, a []Value) (Value, error) {
	if err := needNumber(a[0]); err != nil {
		return nil, err
	}
	if compareNumbers(a[0], 0) < 0 {
		return negate(a[0]), nil
	}
	return arith("+", 0, a[0])
}

func filterInt(_ *state, a []Value) (Value, error) {
	base, err := needInt(a[2], 10)
	if err != nil {
		return nil, err
	}
	fallback := optional(a[1], 0)
	switch v := a[0].(type) {
	case int, *big.Int:
		return v, nil
	case bool:
		n, _ := small(v)
		return n, nil
	case float64, *decimal:
		if n, ok := truncate(toFloat(v)); ok {
			return n, nil
		}
		return fallback, nil
	case string, markup:
		s, _ := text(v)
		s = strings.TrimFunc(s, isSpace)
		if n, ok := parseInt(s, base); ok {
			return n, nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			if n, ok := truncate(f); ok {
				return n, nil
			}
		}
	case *undefined:
		return nil, v.error()
	}
	return fallback, nil
}

func parseInt(s string, base int) (Value, bool) {
	if base != 0 && base != 2 && base != 8 && base != 16 {
		return integer(strings.TrimPrefix(s, "+"), min(max(base, 2), 36))
	}
	digits := strings.TrimLeft(s, "+-")
	if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; base != 0 && strings.HasPrefix(strings.ToLower(digits), prefix) {
		s = s[:len(s)-len(digits)] + digits[2:]
	}
	return integer(strings.TrimPrefix(s, "+"), base)
}

func truncate(f float64) (Value, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	b, _ := big.NewFloat(f).Int(nil)
	return shrink(b), true
}

func filterFloat(_ *state, a []Value) (Value, error) {
	switch v := a[0].(type) {
	case string, markup:
		s, _ := text(v)
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	case *undefined:
		return nil, v.error()
	default:
		if isNumber(v) {
			return toFloat(v), nil
		}
	}
	return optional(a[1], 0.0), nil
}

func filterRound(_ *state, a []Value) (Value, error) {
	if err := needNumber(a[0]); err != nil {
		return nil, err
	}
	places, err := needInt(a[1], 0)
	if err != nil {
		return nil, err
	}
	places = min(max(places, -300), 300)
	f := toFloat(a[0])
	method, _ := text(optional(a[2], "common"))
	shift := math.Pow(10, float64(places))
	switch method {
	case "ceil":
		return math.Ceil(f*shift) / shift, nil
	case "floor":
		return math.Floor(f*shift) / shift, nil
	case "common":
	default:
		return nil, fail(ValueError, "method must be common, ceil or floor")
	}
	if _, isBool := a[0].(bool); isBool {
		a[0], _ = arith("+", 0, a[0])
	}
	if isInteger(a[0]) && places >= 0 {
		return a[0], nil
	}
	if places < 0 {
		r := math.RoundToEven(f*shift) / shift
		if isInteger(a[0]) {
			n, _ := truncate(r)
			return n, nil
		}
		return r, nil
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', places, 64), 64)
	return rounded, nil
}

func filterFileSize(st *state, a []Value) (Value, error) {
	v, err := filterFloat(st, []Value{a[0], None})
	if err != nil {
		return nil, err
	}
	if v == None {
		return nil, fail(ValueError, "filesizeformat needs a number, not %s", typeName(a[0]))
	}
	size, base, units := v.(float64), 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if flag(a[1]) {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case size == 1:
		return "1 Byte", nil
	case size < base:
		return strconv.Itoa(int(size)) + " Bytes", nil
	}
	i := 0
	for size /= base; size >= base && i < len(units)-1; i++ {
		size /= base
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + " " + units[i], nil
}

package jinja

import (
	"strings"
	"unicode/utf8"
)

func textList(st *state, like Value, parts []string) (*List, error) {
	if err := st.spendItems(3 * len(parts)); err != nil {
		return nil, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = likeText(like, p)
	}
	return &List{items}, nil
}

// splitArgs reads the arguments of split and rsplit.
func splitArgs(a []Value) (s, sep string, blank bool, n int, err error) {
	s, _ = text(a[0])
	if n, err = needInt(a[2], -1); err != nil {
		return
	}
	if a[1] == nil || a[1] == None {
		return s, "", true, n, nil
	}
	if sep, err = needText(a[1]); err == nil && sep == "" {
		err = fail(ValueError, "empty separator")
	}
	return
}

func strSplit(st *state, a []Value) (Value, error) {
	s, sep, blank, n, err := splitArgs(a)
	if err != nil {
		return nil, err
	}
	if err := st.spend(len(s)); err != nil {
		return nil, err
	}
	if !blank {
		cuts := strings.Count(s, sep)
		if n >= 0 {
			cuts = min(cuts, n)
		}
		if err := st.spendItems(cuts); err != nil {
			return nil, err
		}
		return boxed(textList(st, a[0], strings.SplitN(s, sep, cuts+1)))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		if err := st.spendItems(1); err != nil {
			return nil, err
		}
		end := strings.IndexFunc(s, isSpace)
		if n >= 0 && len(parts) == n {
			parts = append(parts, s)
			break
		}
		if end < 0 {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return boxed(textList(st, a[0], parts))
}

func strRsplit(st *state, a []Value) (Value, error) {
	s, sep, blank, n, err := splitArgs(a)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return strSplit(st, a)
	}
	if err := st.spend(len(s)); err != nil {
		return nil, err
	}
	var tail []string // last first
	for len(tail) < n {
		if err := st.spendItems(1); err != nil {
			return nil, err
		}
		if blank {
			s = strings.TrimRightFunc(s, isSpace)
		}
		i, width := strings.LastIndex(s, sep), len(sep)
		if blank {
			i = strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, width = utf8.DecodeRuneInString(s[i:])
			}
		}
		if i < 0 {
			break
		}
		tail = append(tail, s[i+width:])
		s = s[:i]
	}
	if blank {
		s = strings.TrimRightFunc(s, isSpace)
		if len(tail) < n {
			s = strings.TrimLeftFunc(s, isSpace)
		}
	}
	var parts []string
	if !blank || s != "" {
		parts = append(parts, s)
	}
	for i := len(tail) - 1; i >= 0; i-- {
		parts = append(parts, tail[i])
	}
	return boxed(textList(st, a[0], parts))
}

func strSplitlines(st *state, a []Value) (Value, error) {
	s, _ := text(a[0])
	if err := st.spend(len(s)); err != nil {
		return nil, err
	}
	keep := a[1] != nil && truth(a[1])
	var parts []string
	for s != "" {
		if err := st.spendItems(1); err != nil {
			return nil, err
		}
		end := strings.IndexFunc(s, isLineEnd)
		next := len(s)
		if end < 0 {
			end = len(s)
		} else {
			_, n := utf8.DecodeRuneInString(s[end:])
			next = end + n
			if strings.HasPrefix(s[end:], "\r\n") {
				next++
			}
		}
		if keep {
			end = next
		}
		parts = append(parts, s[:end])
		s = s[next:]
	}
	return boxed(textList(st, a[0], parts))
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func strPartition(_ *state, a []Value) (Value, error) {
	s, sep, _, _, err := splitArgs([]Value{a[0], a[1], nil})
	if err != nil {
		return nil, err
	}
	before, after, found := strings.Cut(s, sep)
	if !found {
		sep = ""
	}
	return triple(a[0], before, sep, after), nil
}

func triple(like Value, before, sep, after string) Value {
	return newTuple(likeText(like, before), likeText(like, sep), likeText(like, after))
}

func strRpartition(_ *state, a []Value) (Value, error) {
	s, sep, _, _, err := splitArgs([]Value{a[0], a[1], nil})
	if err != nil {
		return nil, err
	}
	if i := strings.LastIndex(s, sep); i >= 0 {
		return triple(a[0], s[:i], sep, s[i+len(sep):]), nil
	}
	return triple(a[0], "", "", s), nil
}

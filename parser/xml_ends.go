package parser

import "strings"

const (
	// maxTag is how long a start tag may be, in bytes.
	maxTag = 1024
	// maxGap is how much white space may stand between tags where it may also be
	// data. It is read again with every piece until a tag or text follows.
	maxGap = 1024
)

// ending tells where a value ends in a text that it begins.
type ending struct {
	at     int  // so many bytes are the value's
	ended  bool // it ends behind them; else what follows is undecided
	own    bool // by its own end tag
	next   int  // where to read on: behind the end tag, or at what stands instead
	closed bool // an end tag was data
	depth  int  // elements of the value's own name that are open in it
}

// seek looks for the end of the value in s. Of what is not ended, no more is left
// undecided than may become markup.
func (b *xmlCalls) seek(s string, final bool) ending {
	closed, depth := b.closed, b.depth
	for i := 0; ; i++ {
		k := strings.IndexByte(s[i:], b.bracket)
		if k < 0 {
			e := ending{at: len(s), closed: closed, depth: depth}
			if b.layout && strings.HasSuffix(s, "\n") {
				e.at--
			}
			return e
		}
		i += k
		if n, change, st := b.nesting(s[i:], depth); st != bad {
			if st == more {
				return ending{at: i, closed: closed, depth: depth}
			}
			depth += change
			i += n - 1
			continue
		}
		n, own, st := b.ends(s[i:], closed, final)
		if st == bad {
			closed = closed || own
			continue
		}
		e := ending{at: i, ended: st == done, own: own, next: i + n, closed: closed, depth: depth}
		if b.layout && i > 0 && s[i-1] == '\n' {
			e.at--
		}
		return e
	}
}

// nesting reads a tag of n bytes inside a value of elements, which opens or closes
// another element of the value's own name.
func (b *xmlCalls) nesting(s string, depth int) (n, change int, st status) {
	if b.tree == nil || b.plain {
		return 0, 0, bad
	}
	n, st = oneOf(s, b.nested)
	if st == bad && depth > 0 {
		n, st = oneOf(s, b.endTags)
		return n, -1, st
	}
	return n, 1, st
}

// ends says whether the value ends before s, which begins with a bracket: by its
// own end tag of n bytes, or by a tag that should stand behind that.
func (b *xmlCalls) ends(s string, closed, final bool) (n int, own bool, st status) {
	if n, st := oneOf(s, b.endTags); st != bad {
		if st == done {
			return n, true, b.behindParam(s[n:], final)
		}
		return 0, true, st
	}
	if closed {
		return 0, false, bad
	}
	if _, st := oneOf(s, b.params); st != bad {
		_, _, st = b.param(s)
		return 0, false, st
	}
	if n, st := oneOf(s, b.callEnd); st != bad {
		if st == done {
			st = b.behindCall(s[n:], final)
		}
		return 0, false, st
	}
	if _, st := oneOf(s, b.calls); st != bad && !b.lenient {
		n, _, st := b.call(s)
		if st == done {
			_, st = behind(s[n:], final, b.params, b.callEnd)
		}
		return 0, false, st
	}
	if n, st := oneOf(s, b.close); st != bad {
		if st == done {
			st = b.behindWrapper(s[n:], final)
		}
		return 0, false, st
	}
	return 0, false, bad
}

// behindParam says whether the format goes on with s behind a parameter.
func (b *xmlCalls) behindParam(s string, final bool) status {
	s, st := behind(s, final, b.params, b.callEnd, b.calls, b.open)
	if st != bad || s == "" {
		return st
	}
	if b.tree != nil {
		if st := b.tree.sibling(s, b.schemas.of(b.called)); st != bad {
			return cut(st, final)
		}
	}
	n, st := oneOf(s, b.close)
	switch {
	case st != done:
		return cut(st, final)
	case len(b.callEnd) == 0:
		return done
	}
	return b.behindWrapper(s[n:], final)
}

// behindCall says whether the format goes on with s behind a call.
func (d *xmlDialect) behindCall(s string, final bool) status {
	_, st := behind(s, final, d.close, d.calls, d.open)
	return st
}

// behindWrapper says whether the format goes on with s behind a wrapper. Text
// may follow there, too, but then the wrapper may as well be data.
func (d *xmlDialect) behindWrapper(s string, final bool) status {
	_, st := behind(s, final, d.calls, d.open)
	return st
}

// behind says whether s, behind white space, begins with one of the tags of
// several lists, or ends. It returns s without the white space; of too much of
// that, nothing.
func behind(s string, final bool, lists ...[]string) (rest string, st status) {
	n := spaces(s)
	s = s[n:]
	switch {
	case n > maxGap:
		return "", bad
	case s == "":
		return s, cut(more, final)
	}
	st = bad
	for _, list := range lists {
		switch _, found := oneOf(s, list); found {
		case done:
			return s, done
		case more:
			st = more
		}
	}
	return s, cut(st, final)
}

// cut decides what is undecided when nothing follows: the text is cut, but as
// far as it goes it is as it should be.
func cut(st status, final bool) status {
	if st == more && final {
		return done
	}
	return st
}

// oneOf returns the length of the tag that s begins with, or says that it may
// begin with one (more). No tag is the beginning of another one.
func oneOf(s string, tags []string) (n int, st status) {
	st = bad
	for _, tag := range tags {
		if strings.HasPrefix(s, tag) {
			return len(tag), done
		}
		if len(s) < len(tag) && tag[:len(s)] == s {
			st = more
		}
	}
	return 0, st
}

// nameTag returns a reader of start tags that hold a name and nothing else, as
// <function=name>.
func nameTag(opener string) func(s string) (n int, name string, st status) {
	return func(s string) (n int, name string, st status) {
		n, st = oneOf(s, []string{opener})
		if st != done {
			return 0, "", st
		}
		end := strings.IndexAny(s[n:], "<>\n")
		if end < 0 {
			return 0, "", unlessLong(s)
		}
		name = unquoted(strings.TrimSpace(s[n : n+end]))
		if n += end + 1; s[n-1] != '>' || n > maxTag || name == "" {
			return 0, "", bad
		}
		return n, name, done
	}
}

// unquoted takes quotes off a name.
func unquoted(name string) string {
	if n := len(name); n >= 2 && (name[0] == '"' || name[0] == '\'') && name[n-1] == name[0] {
		return name[1 : n-1]
	}
	return name
}

// attrTag reads a start tag with attributes, in quotes of either kind or in none,
// and returns those that are wanted.
func attrTag(s string, openers []string, wanted ...*attr) (n int, st status) {
	n, st = oneOf(s, openers)
	if st != done {
		return 0, st
	}
	for {
		gap := spaces(s[n:])
		n += gap
		switch {
		case n == len(s):
			return 0, unlessLong(s)
		case s[n] == '>' && n < maxTag:
			return n + 1, done
		case gap == 0:
			return 0, bad
		}
		k := strings.IndexAny(s[n:], "= \t\r\n<>\"'")
		switch {
		case k < 0:
			return 0, unlessLong(s)
		case k == 0 || s[n+k] != '=':
			return 0, bad
		}
		key := s[n : n+k]
		n += k + 1
		var value string
		if n < len(s) && (s[n] == '"' || s[n] == '\'') {
			k = strings.IndexAny(s[n+1:], s[n:n+1]+"<\n")
			switch {
			case k < 0:
				return 0, unlessLong(s)
			case s[n+1+k] != s[n]:
				return 0, bad
			}
			value = s[n+1 : n+1+k]
			n += k + 2
		} else {
			k = strings.IndexAny(s[n:], " \t\r\n<>\"'")
			switch {
			case k < 0:
				return 0, unlessLong(s)
			case k == 0 || s[n+k] == '<' || s[n+k] == '"' || s[n+k] == '\'':
				return 0, bad
			}
			value = s[n : n+k]
			n += k
		}
		for _, w := range wanted {
			if w.key == key {
				w.value = value
			}
		}
	}
}

// attr is an attribute of a start tag.
type attr struct{ key, value string }

func unlessLong(s string) status {
	if len(s) < maxTag {
		return more
	}
	return bad
}

package parser

import "strings"

// maxTag is how long a start tag may be.
const maxTag = 1024

// ending tells where a value ends in a text that it begins.
type ending struct {
	at     int  // so many bytes are the value's
	ended  bool // it ends behind them; else what follows is undecided
	own    bool // by its own end tag
	next   int  // where to read on: behind the end tag, or at what stands instead
	closed bool // an end tag was data
}

// seek looks for the end of a value in s. Of what is not ended, no more is left
// undecided than may become markup.
func (d *xmlDialect) seek(s string, closed, final bool) ending {
	for i := 0; ; i++ {
		k := strings.IndexByte(s[i:], '<')
		if k < 0 {
			e := ending{at: len(s), closed: closed}
			if d.layout && strings.HasSuffix(s, "\n") {
				e.at--
			}
			return e
		}
		i += k
		n, own, st := d.ends(s[i:], closed, final)
		if st == bad {
			closed = closed || own
			continue
		}
		e := ending{at: i, ended: st == done, own: own, next: i + n, closed: closed}
		if d.layout && i > 0 && s[i-1] == '\n' {
			e.at--
		}
		return e
	}
}

// ends says whether a value ends before s, which begins with a bracket: by its
// own end tag of n bytes, or by a tag that should stand behind that.
func (d *xmlDialect) ends(s string, closed, final bool) (n int, own bool, st status) {
	if n, st := oneOf(s, d.paramEnd); st != bad {
		if st == done {
			return n, true, d.behindParam(s[n:], final)
		}
		return 0, true, st
	}
	if closed {
		return 0, false, bad
	}
	if _, st := oneOf(s, d.params); st != bad {
		_, _, st = d.param(s)
		return 0, false, st
	}
	if n, st := oneOf(s, d.callEnd); st != bad {
		if st == done {
			st = d.behindCall(s[n:], final)
		}
		return 0, false, st
	}
	if _, st := oneOf(s, d.calls); st != bad && !d.lenient {
		n, _, st := d.call(s)
		if st == done {
			_, st = behind(s[n:], final, d.params, d.callEnd)
		}
		return 0, false, st
	}
	if n, st := oneOf(s, d.close); st != bad {
		if st == done {
			st = d.behindWrapper(s[n:], final)
		}
		return 0, false, st
	}
	return 0, false, bad
}

// behindParam says whether the format goes on with s behind a parameter.
func (d *xmlDialect) behindParam(s string, final bool) status {
	s, st := behind(s, final, d.params, d.callEnd, d.calls, d.open)
	if st != bad {
		return st
	}
	n, st := oneOf(s, d.close)
	switch {
	case st != done:
		return cut(st, final)
	case len(d.callEnd) == 0:
		return done
	}
	return d.behindWrapper(s[n:], final)
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
// several lists, or ends. It returns s without the white space.
func behind(s string, final bool, lists ...[]string) (rest string, st status) {
	s = s[spaces(s):]
	if s == "" {
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
			k = strings.IndexByte(s[n+1:], s[n])
			if k < 0 {
				return 0, unlessLong(s)
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

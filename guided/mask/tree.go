package mask

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// value is one value of a schema's JSON, with its members in the order of the
// text: that is the order in which answers write them.
type value struct {
	kind    jsontext.Kind
	path    string // JSON pointer
	number  int    // in the order of the text
	raw     jsontext.Value
	text    string // of a string
	names   []string
	members map[string]*value
	items   []*value
}

// decode reads a schema. How deep it nests and how large it is was checked before.
func decode(schema []byte) (*value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(schema), jsontext.AllowDuplicateNames(true))
	n := 0
	return decodeValue(d, "", &n)
}

func decodeValue(d *jsontext.Decoder, path string, n *int) (*value, error) {
	v := &value{kind: d.PeekKind(), path: path, number: *n}
	*n++
	switch v.kind {
	case '{':
		if _, err := d.ReadToken(); err != nil {
			return nil, err
		}
		v.members = map[string]*value{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			below, err := decodeValue(d, path+"/"+escapePointer.Replace(key), n)
			if err != nil {
				return nil, err
			}
			if v.members[key] == nil {
				v.names = append(v.names, key)
			}
			v.members[key] = below
		}
		_, err := d.ReadToken()
		return v, err
	case '[':
		if _, err := d.ReadToken(); err != nil {
			return nil, err
		}
		for d.PeekKind() != ']' {
			below, err := decodeValue(d, fmt.Sprintf("%s/%d", path, len(v.items)), n)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, below)
		}
		_, err := d.ReadToken()
		return v, err
	}
	raw, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	v.raw = raw.Clone()
	if v.kind == '"' {
		text, err := jsontext.AppendUnquote(nil, v.raw)
		if err != nil {
			return nil, err
		}
		v.text = string(text)
	}
	return v, nil
}

var (
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// write returns the value as an answer writes it, without blanks.
func (v *value) write(b []byte) []byte {
	switch v.kind {
	case '{':
		for i, name := range v.names {
			b = append(b, "{,"[min(i, 1)], '"')
			b = append(b, quoted.spelled(name)...)
			b = v.members[name].write(append(b, '"', ':'))
		}
		if len(v.names) == 0 {
			b = append(b, '{')
		}
		return append(b, '}')
	case '[':
		for i, item := range v.items {
			b = item.write(append(b, "[,"[min(i, 1)]))
		}
		if len(v.items) == 0 {
			b = append(b, '[')
		}
		return append(b, ']')
	case '"':
		return append(append(append(b, '"'), quoted.spelled(v.text)...), '"')
	}
	return append(b, v.raw...)
}

// canonical returns a text that is the same for equal values.
func (v *value) canonical() string {
	var b strings.Builder
	switch v.kind {
	case '{':
		for _, name := range slices.Sorted(slices.Values(v.names)) {
			fmt.Fprintf(&b, "%q:%s,", name, v.members[name].canonical())
		}
		return "{" + b.String() + "}"
	case '[':
		for _, item := range v.items {
			b.WriteString(item.canonical() + ",")
		}
		return "[" + b.String() + "]"
	case '0':
		if d, ok := parseDecimal(string(v.raw)); ok {
			return fmt.Sprint(d.negative, d.left, ".", d.right)
		}
	case '"':
		return fmt.Sprintf("%q", v.text)
	}
	return string(v.raw)
}

// strings returns the texts of an array of strings.
func (v *value) strings() []string {
	if v == nil {
		return nil
	}
	list := make([]string, len(v.items))
	for i, item := range v.items {
		list[i] = item.text
	}
	return list
}

// find returns what a reference inside the schema points at.
func (v *value) find(ref string) (*value, error) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Errorf("%q: only references inside the schema are followed, such as #/$defs/name", ref)
	}
	if text, err := url.PathUnescape(fragment); err == nil {
		fragment = text
	}
	if fragment != "" && fragment[0] != '/' {
		if at := v.anchor(fragment); at != nil {
			return at, nil
		}
		return nil, fmt.Errorf("nothing has the anchor %q", fragment)
	}
	at := v
	for part := range strings.SplitSeq(fragment, "/") {
		if part == "" && at == v {
			continue
		}
		name, next := unescapePointer.Replace(part), (*value)(nil)
		if at.kind == '[' {
			for i, item := range at.items {
				if fmt.Sprint(i) == name {
					next = item
				}
			}
		} else {
			next = at.members[name]
		}
		if next == nil {
			return nil, fmt.Errorf("nothing stands at %s", ref)
		}
		at = next
	}
	return at, nil
}

func (v *value) anchor(name string) *value {
	if own := v.members["$anchor"]; own != nil && own.text == name {
		return v
	}
	for _, key := range v.names {
		if at := v.members[key].anchor(name); at != nil {
			return at
		}
	}
	for _, item := range v.items {
		if at := item.anchor(name); at != nil {
			return at
		}
	}
	return nil
}

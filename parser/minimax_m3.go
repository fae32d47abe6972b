package parser

import "strings"

// The grammar of MiniMax M3. Every tag stands behind a token that no text has, NS:
//
//	NS<tool_call>
//	NS<invoke name="NAME">
//	NS<KEY>VALUE NS</KEY>
//	NS</invoke>
//	NS</tool_call>
//
// without the space. A value may be elements again: an object, or an array of
// elements that are called item. The same key given again makes an array, too.
// The other grammar is the same without the token.
var (
	minimaxM3Calls    = minimaxM3Grammar("minimax_m3", "]<]minimax[>[")
	minimaxM3NomCalls = minimaxM3Grammar("minimax_m3_nom", "")
)

func minimaxM3Grammar(name, ns string) *callGrammar {
	invoke := []string{ns + "<invoke name="}
	tree := &xmlTree{ns: ns}
	tags := &xmlDialect{
		call: func(s string) (n int, name string, st status) {
			at := attr{key: "name"}
			n, st = attrTag(s, []string{ns + "<invoke"}, &at)
			return n, at.value, named(st, at.value)
		},
		param: func(s string) (n int, p xmlParam, st status) {
			n, p.key, st = tree.start(s)
			if p.key == "tool_call" {
				st = bad
			}
			return n, p, st
		},
		calls: invoke, callEnd: []string{ns + "</invoke>"},
		open: []string{ns + "<tool_call>"}, close: []string{ns + "</tool_call>"},
		bracket: (ns + "<")[0],
		tree:    tree,
		lossy:   true,
	}
	return &callGrammar{name: name, open: tags.open, close: tags.close, inner: invoke, raw: true, body: newXMLCalls(tags)}
}

// xmlTree reads values that are written as elements.
type xmlTree struct{ ns string }

// tags returns the end tag and the start tag of an element.
func (t *xmlTree) tags(key string) (end, start []string) {
	return []string{t.ns + "</" + key + ">"}, []string{t.ns + "<" + key + ">"}
}

// start reads the start tag of an element.
func (t *xmlTree) start(s string) (n int, key string, st status) {
	n, st = oneOf(s, []string{t.ns + "<"})
	if st != done {
		return 0, "", st
	}
	end := strings.IndexByte(s[n:], '>')
	if end < 0 {
		if rest := s[n:]; rest != "" && !isTagName(rest) {
			return 0, "", bad
		}
		return 0, "", unlessLong(s)
	}
	key = s[n : n+end]
	if n += end + 1; n > maxTag || !isTagName(key) {
		return 0, "", bad
	}
	return n, key, done
}

func isTagName(s string) bool { return isName(s) && !strings.ContainsAny(s, "/=") }

// sibling says whether s begins with another parameter. Without the token any
// text in tags may do so; then it must be one that the tool has.
func (t *xmlTree) sibling(s string, sc *schema) status {
	_, key, st := t.start(s)
	if st == done && t.ns == "" && sc != nil && sc.param(key) == nil {
		return bad
	}
	return st
}

// element is a node of a value: text, or an element with nodes in it.
type element struct {
	key  string // of an element
	raw  string // what stands in it, or the text
	kids []element
}

// parse returns the nodes of raw, or false if its tags do not match.
func (t *xmlTree) parse(raw string, depth int) (nodes []element, ok bool) {
	for raw != "" {
		i := strings.Index(raw, t.ns+"<")
		if i < 0 || depth > maxDepth {
			i = len(raw)
		}
		if text := raw[:i]; strings.TrimSpace(text) != "" {
			nodes = append(nodes, element{raw: text})
		}
		if raw = raw[i:]; raw == "" {
			break
		}
		n, key, st := t.start(raw)
		if st != done {
			return nil, false
		}
		inner := raw[n:]
		end, next := t.find(inner, key)
		if end < 0 {
			return nil, false
		}
		kids, ok := t.parse(inner[:end], depth+1)
		if !ok {
			return nil, false
		}
		nodes = append(nodes, element{key: key, raw: inner[:end], kids: kids})
		raw = inner[next:]
	}
	return nodes, true
}

// find returns where an element ends, and what follows it.
func (t *xmlTree) find(s, key string) (end, next int) {
	ends, starts := t.tags(key)
	for i, depth := 0, 0; ; {
		k := strings.Index(s[i:], ends[0])
		if k < 0 {
			return -1, 0
		}
		depth += strings.Count(s[i:i+k], starts[0])
		i += k + len(ends[0])
		if depth == 0 {
			return i - len(ends[0]), i
		}
		depth--
	}
}

// balanced says whether the tags in a value match.
func (t *xmlTree) balanced(raw string) bool {
	_, ok := t.parse(raw, 0)
	return ok
}

// json returns what was given for one key as JSON.
func (t *xmlTree) json(values []string, node map[string]any, sc *schema) string {
	elements := make([]element, len(values))
	for i, raw := range values {
		elements[i].raw = raw
		elements[i].kids, _ = t.parse(raw, 0)
	}
	return string(appendElements(nil, elements, node, sc))
}

// appendElements appends the value of a key that was given once or several times.
func appendElements(dst []byte, elements []element, node map[string]any, sc *schema) []byte {
	if len(elements) == 1 {
		return elements[0].append(dst, node, sc)
	}
	if item := sc.items(node); item != nil {
		node = item
	}
	dst = append(dst, '[')
	for i := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = elements[i].append(dst, node, sc)
	}
	return append(dst, ']')
}

// append appends an element as JSON, according to its declaration.
func (e *element) append(dst []byte, node map[string]any, sc *schema) []byte {
	typ := sc.typeOf(node)
	first := kindUntyped
	if len(typ.kinds) > 0 {
		first = typ.kinds[0]
	}
	inside, items := 0, 0
	for i := range e.kids {
		if e.kids[i].key != "" {
			inside++
		}
		if e.kids[i].key == "item" {
			items++
		}
	}
	switch {
	case inside == 0 || node != nil && first == kindString:
		return append(dst, e.scalar(&typ, first, node, sc)...)
	case first == kindArray, first != kindObject && items == inside:
		item := sc.items(node)
		dst = append(dst, '[')
		sep := ""
		for i := range e.kids {
			if e.kids[i].key == "" {
				continue
			}
			dst = e.kids[i].append(append(dst, sep...), item, sc)
			sep = ","
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	seen := map[string]bool{}
	for i := range e.kids {
		key := e.kids[i].key
		if seen[key] {
			continue
		}
		if len(seen) > 0 {
			dst = append(dst, ',')
		}
		seen[key] = true
		if key == "" {
			dst = append(append(dst, `"$text":`...), quoteJSON(e.text())...)
			continue
		}
		dst = append(append(dst, quoteJSON(key)...), ':')
		dst = appendElements(dst, e.called(key), sc.property(node, key), sc)
	}
	return append(dst, '}')
}

// scalar returns an element without others in it as JSON.
func (e *element) scalar(typ *valueType, first kind, node map[string]any, sc *schema) string {
	text := strings.TrimSpace(e.raw)
	switch {
	case text == "" && first == kindObject:
		return "{}"
	case text == "" && first == kindArray:
		return "[]"
	case first == kindArray && !strings.HasPrefix(text, "["):
		// The only one of those that may be given several times.
		item := sc.typeOf(sc.items(node))
		return "[" + item.json(e.raw, &quirks{}) + "]"
	}
	return typ.json(e.raw, &quirks{})
}

// text returns the loose text between the elements in e.
func (e *element) text() string {
	var text strings.Builder
	for i := range e.kids {
		if e.kids[i].key == "" {
			text.WriteString(e.kids[i].raw)
		}
	}
	return strings.TrimSpace(text.String())
}

// called returns the elements in e of one name.
func (e *element) called(key string) []element {
	var list []element
	for _, kid := range e.kids {
		if kid.key == key {
			list = append(list, kid)
		}
	}
	return list
}

// items returns the declaration of the elements of an array, or nil.
func (sc *schema) items(node map[string]any) map[string]any {
	return sc.sub(node, func(node map[string]any) map[string]any {
		item, _ := node["items"].(map[string]any)
		return item
	})
}

// property returns the declaration of a property of an object, or nil.
func (sc *schema) property(node map[string]any, key string) map[string]any {
	return sc.sub(node, func(node map[string]any) map[string]any {
		properties, _ := node["properties"].(map[string]any)
		if p, ok := properties[key].(map[string]any); ok {
			return p
		}
		rest, _ := node["additionalProperties"].(map[string]any)
		return rest
	})
}

// sub looks for a part of a declaration: in itself, or in its alternatives.
func (sc *schema) sub(node map[string]any, part func(node map[string]any) map[string]any) map[string]any {
	return sc.subAt(node, part, 0)
}

func (sc *schema) subAt(node map[string]any, part func(node map[string]any) map[string]any, depth int) map[string]any {
	if sc == nil || node == nil || depth > maxDepth {
		return nil
	}
	node = sc.resolved(node)
	if found := part(node); found != nil {
		return found
	}
	for _, key := range alternatives {
		members, _ := node[key].([]any)
		for _, m := range members {
			m, _ := m.(map[string]any)
			if found := sc.subAt(m, part, depth+1); found != nil {
				return found
			}
		}
	}
	return nil
}

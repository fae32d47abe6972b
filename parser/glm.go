package parser

import "strings"

// glmCalls is the grammar of GLM-4.5 and its successors:
//
//	<tool_call>NAME
//	<arg_key>KEY</arg_key>
//	<arg_value>VALUE</arg_value>
//	</tool_call>
//
// The newlines may be missing. Each call has a wrapper of its own; that of a call
// which is all of the answer may lack its beginning.
var glmCalls = &callGrammar{
	name: "glm47", open: glmTags.open, close: glmTags.close,
	bare: glmBare, named: true,
	raw:  true,
	body: newXMLCalls(glmTags),
}

var glmTags = &xmlDialect{
	call: glmName, param: glmKey,
	params: glmKeyTag, paramEnd: []string{"</arg_value>"},
	open: []string{"<tool_call>"}, close: []string{"</tool_call>"}, bracket: '<',
	entities: entities{"&lt;", "<", "&gt;", ">", "&amp;", "&", "&quot;", `"`, "&apos;", "'"},
	quirks: quirks{
		bools:  map[string]string{"1": "true", "yes": "true", "0": "false", "no": "false"},
		commas: true,
	},
}

var glmKeyTag = []string{"<arg_key>"}

// glmName reads the name of a call, which ends with its line or before a tag.
func glmName(s string) (n int, name string, st status) {
	n = strings.IndexAny(s, "<\n")
	if n < 0 {
		name = strings.TrimRight(s, " \t\r")
		if !isName(name) {
			return 0, "", bad
		}
		return 0, "", unlessLong(s)
	}
	name = strings.TrimSpace(s[:n])
	if n > maxTag || !isName(name) {
		return 0, "", bad
	}
	return n, name, done
}

// glmBare says whether an answer begins with a name and a key.
func glmBare(s string) (ok, wait bool) {
	n := nameLen(s)
	if n > longestName {
		return false, false
	}
	gap := spaces(s[n:])
	if gap > maxGap {
		return false, false
	}
	_, st := oneOf(s[n+gap:], glmKeyTag)
	return n > 0 && st == done, st == more
}

// glmKey reads a key and the tag that begins its value.
func glmKey(s string) (n int, p xmlParam, st status) {
	n, st = oneOf(s, glmKeyTag)
	if st != done {
		return 0, p, st
	}
	end := strings.IndexByte(s[n:], '<')
	if end < 0 {
		return 0, p, unlessLong(s)
	}
	p.key = strings.TrimSpace(s[n : n+end])
	n += end
	for _, tag := range []string{"</arg_key>", "<arg_value>"} {
		n += spaces(s[n:])
		m, st := oneOf(s[n:], []string{tag})
		if st != done {
			if st == more {
				st = unlessLong(s)
			}
			return 0, p, st
		}
		n += m
	}
	if n > maxTag || p.key == "" {
		return 0, p, bad
	}
	return n, p, done
}

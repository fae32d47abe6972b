package parser

// minimaxCalls is the grammar of MiniMax M2:
//
//	<minimax:tool_call>
//	<invoke name="NAME">
//	<parameter name="KEY">VALUE</parameter>
//	</invoke>
//	</minimax:tool_call>
//
// The tags inside the wrapper must be complete; the wrapper's own need not be.
var minimaxCalls = &callGrammar{
	name: "minimax_m2", open: minimaxTags.open, close: minimaxTags.close, inner: []string{"<invoke name="},
	raw:  true,
	body: newXMLCalls(minimaxTags),
}

var minimaxTags = &xmlDialect{
	call: func(s string) (n int, name string, st status) {
		at := attr{key: "name"}
		n, st = attrTag(s, []string{"<invoke"}, &at)
		return n, at.value, named(st, at.value)
	},
	param: func(s string) (n int, p xmlParam, st status) {
		at := attr{key: "name"}
		n, st = attrTag(s, []string{"<parameter"}, &at)
		return n, xmlParam{key: at.value}, named(st, at.value)
	},
	calls: []string{"<invoke name="}, params: []string{"<parameter name="},
	callEnd: []string{"</invoke>"}, paramEnd: []string{"</parameter>"},
	open: []string{"<minimax:tool_call>"}, close: []string{"</minimax:tool_call>"}, bracket: '<',
	entities: qwenTags.entities,
}

// named says that a tag which must have a name is none if it has not.
func named(st status, name string) status {
	if st == done && name == "" {
		return bad
	}
	return st
}

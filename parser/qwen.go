package parser

// qwenCalls is the grammar of Qwen3-Coder, Qwen3.5 and the Nemotrons that learnt
// from it:
//
//	<tool_call>
//	<function=NAME>
//	<parameter=KEY>
//	VALUE
//	</parameter>
//	</function>
//	</tool_call>
//
// Its models forget tags of every kind, the wrapper's above all.
var qwenCalls = &callGrammar{
	name: "qwen3_coder", open: qwenTags.open, close: qwenTags.close, inner: qwenTags.calls,
	raw:  true,
	body: newXMLCalls(qwenTags),
}

var qwenTags = &xmlDialect{
	call: nameTag("<function="),
	param: func(s string) (n int, p xmlParam, st status) {
		n, key, st := qwenParam(s)
		return n, xmlParam{key: key}, st
	},
	calls: []string{"<function="}, params: []string{"<parameter="},
	callEnd: []string{"</function>"}, paramEnd: []string{"</parameter>"},
	open: []string{"<tool_call>"}, close: []string{"</tool_call>"}, bracket: '<',
	layout: true, lenient: true, loose: true,
	entities: entities{"&lt;", "<", "&gt;", ">", "&amp;", "&", "&quot;", `"`, "&#x27;", "'", "&#39;", "'"},
}

var qwenParam = nameTag("<parameter=")

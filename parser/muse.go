package parser

import (
	"slices"
	"strings"
)

// Muse writes messages to recipients: to=self is a thought, to=user the answer,
// and a message to a tool holds calls in tags:
//
//	<|start|>assistant to=NAME<|message|><atem:function_calls>
//	<atem:invoke name="NAME">
//	<atem:parameter name="KEY">VALUE</atem:parameter>
//	</atem:invoke>
//	</atem:function_calls><|eot|>
//
// The prompt ends with the first <|start|>assistant, so that a generation begins
// behind it.
const (
	museStart   = "<|start|>assistant"
	museMessage = "<|message|>"
	museWrapper = "<atem:function_calls>"
	museInvoke  = "<atem:invoke name="
)

var (
	museThinks = &thoughtGrammar{
		name: "muse",
		open: museOwn, close: []string{"<|eom|>", "<|eot|>"},
		exits: []string{"<|start|>"},
		strip: museMarks,
	}
	muse = &callGrammar{
		name: "muse", open: []string{museWrapper, museStart + " to="}, close: []string{"</atem:function_calls>"},
		inner: []string{museInvoke}, strip: slices.Concat(museMarks, museOwn), bare: museCall, certain: true,
		body: func(o *Options) body {
			return &messageCalls{body: newXMLCalls(museTags)(o), sep: museMessage, begins: "<", opener: museWrapper}
		},
	}
)

// museOwn begin thoughts.
var museOwn = []string{museStart + " to=self" + museMessage, " to=self" + museMessage, "to=self" + museMessage}

// museMarks mean nothing: the headers of answers, and the ends of messages.
var museMarks = []string{
	museStart + " to=user" + museMessage, " to=user" + museMessage, "to=user" + museMessage, museStart + museMessage, museStart, museMessage,
	"<|start|>", "<|eom|>", "<|eot|>",
}

// museCall says whether a generation begins with a message to a tool.
func museCall(s string) (ok, more bool) {
	const to = "to="
	if name, ok := strings.CutPrefix(s, to); ok {
		return namesCall(museMessage)(name)
	}
	return false, strings.HasPrefix(to, s)
}

var museTags = &xmlDialect{
	call: func(s string) (n int, name string, st status) {
		at := attr{key: "name"}
		n, st = attrTag(s, []string{"<atem:invoke"}, &at)
		return n, at.value, named(st, at.value)
	},
	param: func(s string) (n int, p xmlParam, st status) {
		at := attr{key: "name"}
		n, st = attrTag(s, []string{"<atem:parameter"}, &at)
		return n, xmlParam{key: at.value}, named(st, at.value)
	},
	calls: []string{museInvoke}, params: []string{"<atem:parameter name="},
	callEnd: []string{"</atem:invoke>"}, paramEnd: []string{"</atem:parameter>"},
	open: []string{museWrapper}, close: []string{"</atem:function_calls>"}, bracket: '<',
}

package parser

import "strings"

// deepseekForm is how DeepSeek V3 and R1, and V3.1 after them, write calls. V3
// and R1 put "function" for the header, the name in a line behind the separator,
// and the arguments in a fence. The bars are U+FF5C and the underscores U+2581.
var deepseekForm = markedForm{
	begin:   "<｜tool▁call▁begin｜>",
	sep:     "<｜tool▁sep｜>",
	end:     "<｜tool▁call▁end｜>",
	closers: append(deepseekEnds, "<｜tool▁calls▁end｜>"),
	fence:   "function",
	escape:  true,
}

// deepseekEnds ends a turn.
var deepseekEnds = []string{"<｜end▁of▁sentence｜>"}

var deepseekCalls = &callGrammar{
	name:  "deepseek_v3",
	open:  []string{"<｜tool▁calls▁begin｜>"},
	close: []string{"<｜tool▁calls▁end｜>"},
	inner: []string{deepseekForm.begin},
	strip: []string{deepseekForm.sep, deepseekForm.end}, ends: deepseekEnds,
	body: func(*Options) body {
		return newMarkedCalls(deepseekForm, func(name, _ string) (string, bool) {
			return strings.TrimSpace(name), true
		})
	},
}

package parser

// llama3 is the grammar of Llama 3.x: a call, or several with semicolons between
// them, behind a marker or as the whole response.
var llama3 = &callGrammar{
	name: "llama3_json", open: []string{"<|python_tag|>"},
	ends: []string{"<|eom_id|>", "<|eot_id|>"},
	bare: func(s string) (ok, more bool) {
		return beginsObject(s, `"name"`, `"type"`, `"parameters"`, `"arguments"`)
	},
	body: func(*Options) body {
		return &jsonCalls{form: jsonForm{unclosed: true, semi: true}}
	},
}

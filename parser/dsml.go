package parser

// dsml is the grammar of DeepSeek V3.2 and V4:
//
//	<｜DSML｜tool_calls>
//	<｜DSML｜invoke name="NAME">
//	<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>
//	</｜DSML｜invoke>
//	</｜DSML｜tool_calls>
//
// V3.2 calls the wrapper function_calls, and V4.1 writes "｜DSML｜ calls" and a
// space before the other names, too. All spellings are read, whatever the model.
// Values are strings or JSON, as the tag says.
var (
	dsmlV32Calls = dsmlGrammar("deepseek_v3_2")
	dsmlV4Calls  = dsmlGrammar("deepseek_v4")
)

func dsmlGrammar(name string) *callGrammar {
	return &callGrammar{
		name: name, open: dsmlOpen(), close: dsmlTags.close,
		inner: dsmlSpellings("<｜DSML｜", "invoke name="),
		strip: []string{"｜DSML｜"}, // the one token in all of them
		raw:   true,
		body:  newXMLCalls(dsmlTags),
	}
}

var (
	dsmlInvoke    = dsmlSpellings("<｜DSML｜", "invoke")
	dsmlParameter = dsmlSpellings("<｜DSML｜", "parameter")

	dsmlTags = &xmlDialect{
		call: func(s string) (n int, name string, st status) {
			at := attr{key: "name"}
			n, st = attrTag(s, dsmlInvoke, &at)
			return n, at.value, named(st, at.value)
		},
		param: func(s string) (n int, p xmlParam, st status) {
			name, text := attr{key: "name"}, attr{key: "string"}
			n, st = attrTag(s, dsmlParameter, &name, &text)
			p = xmlParam{key: name.value, form: formJSON}
			if text.value == "true" {
				p.form = formText
			}
			return n, p, named(st, name.value)
		},
		calls:    dsmlInvoke,
		params:   dsmlParameter,
		callEnd:  dsmlSpellings("</｜DSML｜", "invoke>"),
		paramEnd: dsmlSpellings("</｜DSML｜", "parameter>"),
		open:     dsmlBlocks("<｜DSML｜"),
		close:    dsmlBlocks("</｜DSML｜"),
		bracket:  '<',
		lossy:    true,
	}
)

// dsmlSpellings returns a tag with and without a space in it.
func dsmlSpellings(opener, name string) []string {
	return []string{opener + name, opener + " " + name}
}

// dsmlBlocks returns the tags of the wrapper.
func dsmlBlocks(opener string) []string {
	var tags []string
	for _, name := range []string{"tool_calls>", "function_calls>", "calls>"} {
		tags = append(tags, dsmlSpellings(opener, name)...)
	}
	return tags
}

// dsmlOpen returns the tags that begin a block. The two newlines that are written
// before it belong to it.
func dsmlOpen() []string {
	tags := dsmlBlocks("<｜DSML｜")
	for _, tag := range dsmlBlocks("<｜DSML｜") {
		tags = append(tags, "\n\n"+tag)
	}
	return tags
}

package chattemplate

import (
	"fmt"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// system writes the first message, which is the renderer's alone.
func (w *harmonyWriter) system() {
	var b strings.Builder
	b.WriteString(w.identity + "\nKnowledge cutoff: " + w.cutoff + "\nCurrent date: " + w.date)
	b.WriteString("\n\nReasoning: " + w.effort)
	if w.browser || w.python {
		b.WriteString("\n\n# Tools")
	}
	if w.browser {
		b.WriteString("\n\n" + harmonyBrowser)
	}
	if w.python {
		b.WriteString("\n\n" + harmonyPython)
	}
	b.WriteString("\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.")
	if len(w.tools) > 0 {
		b.WriteString("\nCalls to these tools must go to the commentary channel: 'functions'.")
	}
	w.open("system")
	w.body(b.String())
}

// developer writes the message of instructions, tools and formats, if there is
// anything to say, and returns the turns behind the leading system turns.
func (w *harmonyWriter) developer() ([]chat.Turn, error) {
	r, turns := w.request, w.request.Turns
	var texts []string
	if len(r.System) > 0 {
		m := message{sep: systemSeparator(r.API)}
		m.add(r.System, nil)
		texts = appendText(texts, m.text())
	}
	for len(turns) > 0 && (turns[0].Role == chat.RoleSystem || turns[0].Role == chat.RoleDeveloper) {
		texts = appendText(texts, w.instructions(&turns[0]))
		turns = turns[1:]
	}
	var sections []string
	if len(texts) > 0 {
		sections = append(sections, "# Instructions", strings.Join(texts, blank))
	}
	if len(w.tools) > 0 {
		functions, err := w.functions()
		if err != nil {
			return nil, err
		}
		sections = append(sections, "# Tools", functions)
	}
	if r.Output.Kind == chat.FormatJSONSchema {
		name := r.Output.Name
		if name == "" {
			name = "response"
		}
		sections = append(sections, "# Response Formats", "## "+name, string(r.Output.Schema))
	}
	if len(sections) > 0 {
		w.open("developer")
		w.body(strings.Join(sections, blank))
	}
	return turns, nil
}

// instructions returns the text of a system turn.
func (w *harmonyWriter) instructions(turn *chat.Turn) string {
	m := message{sep: separator(w.request.API)}
	if w.request.API == chat.APIMessages {
		m.sep = systemSeparator(w.request.API)
	}
	m.add(turn.Blocks, nil)
	return m.text()
}

var errTypesTooLong = fmt.Errorf("the declarations of the tools up to this one are longer than %d bytes; send fewer, or flatter schemas", maxTypes)

// functions declares the client's functions. The error is a *[ToolError].
func (w *harmonyWriter) functions() (string, error) {
	var t typeWriter
	t.put("## functions\n\nnamespace functions {\n\n")
	for i := range w.request.Tools {
		tool := &w.request.Tools[i]
		if tool.Kind == chat.ToolServer {
			continue
		}
		schema, err := parametersOf(tool)
		if err != nil {
			return "", &ToolError{i, tool.Name, unreadable(err)}
		}
		for _, line := range lines(tool.Description) {
			t.put("// ", line, "\n")
		}
		t.put("type ", tool.Name, " = (")
		if schema != nil {
			t.put("_: ")
			t.value(schema, "")
		}
		t.put(") => any;\n\n")
		if t.full {
			return "", &ToolError{i, tool.Name, errTypesTooLong}
		}
	}
	t.b.WriteString("} // namespace functions")
	return t.b.String(), nil
}

// parametersOf returns the schema of a function's parameters, nil if it has none.
func parametersOf(t *chat.Tool) (*jinja.Dict, error) {
	var schema jinja.Value
	switch {
	case len(t.Schema) > 0:
		var err error
		if schema, err = jinja.FromJSON(t.Schema); err != nil {
			return nil, err
		}
	case t.Kind == chat.ToolCustom:
		schema = freeText()
	}
	d, ok := schema.(*jinja.Dict)
	if !ok || isEmpty(d) {
		return nil, nil
	}
	return d, nil
}

// isEmpty tells that a schema is an object that has no members.
func isEmpty(schema *jinja.Dict) bool {
	for key, v := range schema.All() {
		switch key {
		case "properties":
			if p, ok := v.(*jinja.Dict); !ok || p.Len() > 0 {
				return false
			}
		case "type":
			if v != "object" {
				return false
			}
		case "additionalProperties":
			if v != false {
				return false
			}
		case "oneOf", "anyOf", "allOf", "$ref":
			return false
		}
	}
	return true
}

// lines splits a text like Rust's str::lines.
func lines(s string) []string {
	if s == "" {
		return nil
	}
	list := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i := range list {
		list[i] = strings.TrimSuffix(list[i], "\r")
	}
	return list
}

// The tools that gpt-oss was trained with, as OpenAI's format guide declares them.
const (
	harmonyBrowser = "## browser\n\n" +
		"// Tool for browsing.\n" +
		"// The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n" +
		"// Cite information from the tool using the following format:\n" +
		"// `【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n" +
		"// Do not quote more than 10 words directly from the tool output.\n" +
		"// sources=web (default: web)\n" +
		"namespace browser {\n\n" +
		"// Searches for information related to `query` and displays `topn` results.\n" +
		"type search = (_: {\nquery: string,\ntopn?: number, // default: 10\nsource?: string,\n}) => any;\n\n" +
		"// Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing `num_lines` lines.\n" +
		"// Valid link ids are displayed with the formatting: `【{id}†.*】`.\n" +
		"// If `cursor` is not provided, the most recent page is implied.\n" +
		"// If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n" +
		"// If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered on the most relevant passage, if available.\n" +
		"// Use this function without `id` to scroll to a new location of an opened page.\n" +
		"type open = (_: {\nid?: number | string, // default: -1\ncursor?: number, // default: -1\nloc?: number, // default: -1\n" +
		"num_lines?: number, // default: -1\nview_source?: boolean, // default: false\nsource?: string,\n}) => any;\n\n" +
		"// Finds exact matches of `pattern` in the current page, or the page given by `cursor`.\n" +
		"type find = (_: {\npattern: string,\ncursor?: number, // default: -1\n}) => any;\n\n" +
		"} // namespace browser"

	harmonyPython = "## python\n\n" +
		"Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. " +
		"This tool should be used for internal reasoning, but not for code that is intended to be visible to the user " +
		"(e.g. when creating plots, tables, or files).\n\n" +
		"When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook environment. " +
		"python will respond with the output of the execution or time out after 120.0 seconds. " +
		"The drive at '/mnt/data' can be used to save and persist user files. " +
		"Internet access for this session is UNKNOWN. Depends on the cluster."
)

package guided

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
)

// TagOptions say how calls are held to their form by structural tags: grammars
// that an engine applies only inside of the markers of calls.
type TagOptions struct {
	// Always asks for tags wherever tools are offered; else free choices have them
	// only if a tool is strict, or one call is all that may be made.
	Always bool
	// Schemas holds the arguments of all tools to their schemas; else those of
	// strict tools alone.
	Schemas bool
	// ThoughtEnd closes the thought that the generation begins in; empty if it
	// begins in none, or if the engine applies no grammar to thoughts.
	ThoughtEnd string
}

// Tag returns the structural tag for the calls of a family, named as its parser
// is. It returns false where the choice wants none, or the family has no form for
// it. Tools are those that may be called.
func Tag(family string, tools []chat.Tool, choice chat.ToolChoice, o TagOptions) (chat.OutputFormat, bool) {
	w, ok := writings[family]
	if !ok || len(tools) == 0 {
		return chat.OutputFormat{}, false
	}
	forced := choice.Mode == chat.ToolRequired || choice.Mode == chat.ToolNamed
	single := choice.Parallel != nil && !*choice.Parallel
	var f node
	switch {
	case choice.Mode == chat.ToolNone:
		f = node{Type: "tag", Content: &node{Type: "any_tokens", ExcludeTokens: []string{w.ban}}, Begin: text(""), End: text("")}
		return format(f), w.ban != ""
	case !forced && !o.Always && !single && !slices.ContainsFunc(tools, strict):
		return chat.OutputFormat{}, false
	}
	tags := make([]node, len(tools))
	for i := range tools {
		tags[i] = w.tag(&tools[i], o.Schemas || strict(tools[i]))
	}
	if w.block != nil {
		inner := node{Type: "tags_with_separator", Tags: tags, Separator: text(""), AtLeastOne: true, StopAfterFirst: single}
		tags = []node{{Type: "tag", Begin: text(w.block.begin), Content: &inner, End: text(w.block.end)}}
	}
	f = node{Type: "triggered_tags", Triggers: []string{w.trigger}, Tags: tags, AtLeastOne: forced, StopAfterFirst: single}
	if forced && o.ThoughtEnd != "" {
		thought := node{Type: "tag", Begin: text(""), Content: &node{Type: "any_text"}, End: text(o.ThoughtEnd)}
		f = node{Type: "sequence", Elements: []node{thought, f}}
	}
	return format(f), true
}

func strict(t chat.Tool) bool { return t.Strict != nil && *t.Strict }

// node is one format of a structural tag.
type node struct {
	Type           string         `json:"type"`
	Begin          *string        `json:"begin,omitzero"`
	Content        *node          `json:"content,omitzero"`
	End            *string        `json:"end,omitzero"`
	Triggers       []string       `json:"triggers,omitzero"`
	Tags           []node         `json:"tags,omitzero"`
	Separator      *string        `json:"separator,omitzero"`
	AtLeastOne     bool           `json:"at_least_one,omitzero"`
	StopAfterFirst bool           `json:"stop_after_first,omitzero"`
	Elements       []node         `json:"elements,omitzero"`
	Schema         jsontext.Value `json:"json_schema,omitzero"`
	Style          string         `json:"style,omitzero"`
	Pattern        string         `json:"pattern,omitzero"`
	Value          string         `json:"value,omitzero"`
	ExcludeTokens  []string       `json:"exclude_tokens,omitzero"`
}

func text(s string) *string { return &s }

func format(f node) chat.OutputFormat {
	tag, err := json.Marshal(struct {
		Type   string `json:"type"`
		Format node   `json:"format"`
	}{"structural_tag", f})
	if err != nil { // only a schema that is no JSON, which no tool can have
		panic(err)
	}
	return chat.OutputFormat{Kind: chat.FormatStructuralTag, Schema: tag}
}

// writing is how a family writes calls.
type writing struct {
	trigger string
	// block is around all calls, if each has no wrapper of its own.
	block *struct{ begin, end string }
	// call returns what is before the arguments of a call, and after them.
	before, after func(name string) string
	// between stands before the arguments too, and is not the same for all calls.
	between []node
	style   string
	free    bool // arguments have no form that an engine knows
	ban     string
}

func (w *writing) tag(t *chat.Tool, schema bool) node {
	content := node{Type: "json_schema", Schema: jsontext.Value("true"), Style: w.style}
	switch {
	case w.free:
		content = node{Type: "any_text"}
	case schema && t.Schema != nil:
		content.Schema = jsontext.Value(t.Schema)
	}
	if w.between != nil {
		content = node{Type: "sequence", Elements: append(slices.Clone(w.between), content)}
	}
	return node{Type: "tag", Begin: text(w.before(t.Name)), Content: &content, End: text(w.after(t.Name))}
}

// around returns a function that puts a name between two texts.
func around(before, after string) func(string) string {
	return func(name string) string { return before + name + after }
}

func always(s string) func(string) string { return func(string) string { return s } }

// dsml is the writing of a DeepSeek whose calls stand in a block of this name.
func dsml(block string) *writing {
	begin := "<｜DSML｜" + block + ">"
	return &writing{
		trigger: begin,
		block:   &struct{ begin, end string }{begin + "\n", "</｜DSML｜" + block + ">"},
		before:  around(`<｜DSML｜invoke name="`, "\">\n"),
		after:   always("</｜DSML｜invoke>\n"),
		style:   "deepseek_xml", ban: "｜DSML｜",
	}
}

var (
	hermes = &writing{
		trigger: "<tool_call>",
		before: func(name string) string {
			return "<tool_call>\n" + `{"name": ` + string(quoted(name)) + `, "arguments": `
		},
		after: always("}\n</tool_call>"),
		style: "json", ban: "<tool_call>",
	}
	writings = map[string]*writing{
		"hermes": hermes, "qwen25": hermes,
		"qwen3_coder": {
			trigger: "<tool_call>\n<function=",
			before:  around("<tool_call>\n<function=", ">\n"),
			after:   always("\n</function>\n</tool_call>"),
			style:   "qwen_xml", ban: "<tool_call>",
		},
		"glm47": {
			trigger: "<tool_call>",
			before:  around("<tool_call>", "\n"),
			after:   always("</tool_call>"),
			free:    true, ban: "<tool_call>",
		},
		"deepseek_v3_2": dsml("function_calls"),
		"deepseek_v4":   dsml("tool_calls"),
		"kimi_k2": {
			trigger: "<|tool_calls_section_begin|>",
			block:   &struct{ begin, end string }{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
			before:  around("<|tool_call_begin|>functions.", ":"),
			between: []node{{Type: "regex", Pattern: `\d+`}, {Type: "const_string", Value: "<|tool_call_argument_begin|>"}},
			after:   always("<|tool_call_end|>"),
			style:   "json", ban: "<|tool_calls_section_begin|>",
		},
		"minimax_m2": {
			trigger: "<minimax:tool_call>",
			block:   &struct{ begin, end string }{"<minimax:tool_call>\n", "</minimax:tool_call>"},
			before:  around(`<invoke name="`, "\">\n"),
			after:   always("</invoke>\n"),
			style:   "minimax_xml", ban: "<minimax:tool_call>",
		},
	}
)

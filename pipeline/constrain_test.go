package pipeline_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

var (
	on, off = true, false
	guides  = engine.Features{engine.FeatureGuidedJSON, engine.FeatureGuidedObject, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice}
	tagged  = append(engine.Features{engine.FeatureStructuralTag}, guides...)
	person  = []byte(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
	lookup  = chat.Tool{Kind: chat.ToolFunction, Name: "lookup", Schema: []byte(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`)}
	hosted  = chat.Tool{Kind: chat.ToolServer, Name: "web_search"}
	stop    = chat.Tool{Kind: chat.ToolFunction, Name: "stop", Strict: &on}
)

// What an engine is told of the form of its answer.
func TestConstraint(t *testing.T) {
	schema := chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "person", Schema: person}
	strict := schema
	strict.Strict = &on
	explicit := chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: person}
	required := chat.ToolChoice{Mode: chat.ToolRequired}
	named := chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"lookup"}}
	both := []chat.Tool{lookup, hosted, stop}
	for _, c := range []struct {
		name     string
		features engine.Features
		tags     pipeline.Tags
		format   chat.OutputFormat
		tools    []chat.Tool
		choice   chat.ToolChoice
		says     string // the model
		want     string // "kind: part of the schema", "free", or "400 field"
		calls    string // what comes of it
	}{
		{name: "schema", features: guides, format: schema, says: `{"name":"Ada"}`, want: `json_schema: "name"`},
		{name: "schema, engine cannot", format: schema, says: `{"name":"Ada"}`, want: "free"},
		{name: "strict schema, engine cannot", format: strict, want: "400 response_format"},
		{name: "guided_json, engine cannot", format: explicit, want: "400 guided_json"},
		{name: "guided_grammar, engine cannot", features: guides, format: chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: "x"}, want: "400 guided_grammar"},
		{name: "bad schema", features: guides, format: chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "x", Schema: []byte(`{"type":"x"}`)}, want: "400 response_format"},
		{name: "bad schema, elsewhere", features: guides, format: chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"x"}`), Member: "output_config.format"}, want: "400 output_config.format"},
		{name: "no schemas, elsewhere", format: chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "x", Schema: person, Strict: &on, Member: "text.format"}, want: "400 text.format"},
		{name: "bad expression", features: guides, format: chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "("}, want: "400 guided_regex"},
		{name: "required", features: guides, tools: both, choice: required, says: `[{"name":"lookup","parameters":{"q":"x"}},{"name":"stop","parameters":{}}]`, want: `json_schema: "stop"`, calls: `lookup{"q":"x"} stop{}`},
		{name: "required beside a format", features: guides, format: schema, tools: both, choice: required, says: `[{"name":"stop","parameters":{}}]`, want: `json_schema: "minItems":1`, calls: `stop{}`},
		{name: "named", features: guides, tools: both, choice: named, says: `{"q":"x"}`, want: `json_schema: "required":["q"]`, calls: `lookup{"q":"x"}`},
		{name: "required, engine cannot", tools: both, choice: required, says: "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>", want: "free", calls: "stop{}"},
		{name: "required of two in the family's writing", features: tagged, tags: pipeline.Tags{Use: true}, tools: both, choice: required, says: "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>", want: `structural_tag: "at_least_one":true`, calls: "stop{}"},
		{name: "tags not wanted", features: tagged, tools: both, choice: required, says: `[{"name":"stop","parameters":{}}]`, want: `json_schema: "minItems":1`, calls: "stop{}"},
		{name: "free choice with a strict tool", features: tagged, tags: pipeline.Tags{Use: true}, tools: both, says: "hello", want: `structural_tag: "triggers"`},
		{name: "free choice without", features: tagged, tags: pipeline.Tags{Use: true}, tools: both[:1], says: "hello", want: "free"},
		{name: "free choice beside a format", features: tagged, tags: pipeline.Tags{Use: true, Always: true}, format: schema, tools: both, says: `{"name":"Ada"}`, want: `json_schema: "name"`},
		{name: "some allowed", features: guides, tools: both, choice: chat.ToolChoice{Mode: chat.ToolRequired, Names: []string{"stop"}}, says: `[{"name":"stop","parameters":{}}]`, want: `json_schema: "enum":["stop"]`, calls: "stop{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{features: c.features}
			h := newHouse(t, pipeline.Config{Tags: c.tags}, f)
			f.generate = h.say(c.says, 3, engine.FinishEOS)
			r := request("who?")
			r.Chat.Output, r.Chat.Tools, r.Chat.ToolChoice = c.format, c.tools, c.choice
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if field, bad := strings.CutPrefix(c.want, "400 "); bad {
				e, ok := err.(*engine.Error)
				if !ok || e.Kind != engine.InvalidArgument || e.Param != field {
					t.Errorf("got %v, want a complaint about %s", err, field)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			format := f.sent()[0].Format
			kind, part, _ := strings.Cut(c.want, ": ")
			switch {
			case c.want == "free" && format != nil:
				t.Errorf("the engine is told %s %s", format.Kind, format.Schema)
			case c.want != "free" && (format == nil || string(format.Kind) != kind || !strings.Contains(string(format.Schema), part)):
				t.Errorf("the engine is told %+v, want %s", format, c.want)
			}
			if format != nil && (strings.Contains(string(format.Schema), "web_search") || strings.Contains(c.name, "allowed") && strings.Contains(string(format.Schema), "lookup")) {
				t.Errorf("a tool that cannot be called is offered: %s", format.Schema)
			}
			var calls []string
			for _, b := range answers[0].Blocks {
				if b.Use != nil {
					calls = append(calls, b.Use.Name+b.Use.Args)
				}
			}
			if got := strings.Join(calls, " "); got != c.calls {
				t.Errorf("calls %q, want %q", got, c.calls)
			}
			if mismatch := answers[0].Mismatch; mismatch != "" {
				t.Errorf("mismatch %q", mismatch)
			}
			h.released(t)
		})
	}
}

// An answer that nobody held to its form is judged, in a stream and as a whole.
func TestJudgement(t *testing.T) {
	for says, fault := range map[string]string{
		`{"name":"Ada"}`:                      "",
		"<think>hm</think>{\"name\":\"Ada\"}": "",
		`{"name":7}`:                          "/name",
		`Ada`:                                 "no JSON",
	} {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say(says, 1, engine.FinishEOS)
		r := request("who?")
		r.Chat.Output = chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "person", Schema: person, Strict: &off}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if got := answers[0].Mismatch; (got == "") != (fault == "") || !strings.Contains(got, fault) {
			t.Errorf("%s: mismatch %q, want %q", says, got, fault)
		}
	}
}

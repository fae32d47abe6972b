package pipeline_test

import (
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/pipeline"
)

// The client decides, then the operator, then what the family is used to; where
// thinking would break the form of the answer there is none.
func TestThinkingByDefault(t *testing.T) {
	named := chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"f"}}
	schema := chat.OutputFormat{Kind: chat.FormatJSONSchema}
	on, off := new(true), new(false)
	for name, tc := range map[string]struct {
		grammar  string
		operator *bool
		r        chat.Request
		want     *bool
	}{
		"nobody says":           {"basic", nil, chat.Request{}, nil},
		"the operator":          {"basic", off, chat.Request{}, off},
		"the client":            {"basic", off, chat.Request{Thinking: chat.Thinking{Enabled: on}}, on},
		"the client, adaptive":  {"basic", off, chat.Request{Thinking: chat.Thinking{Adaptive: true}}, nil},
		"the client, by effort": {"basic", off, chat.Request{Thinking: chat.Thinking{Effort: "low"}}, nil},
		"the client, by words":  {"basic", off, chat.Request{TemplateArgs: []byte(`{"a":1,"thinking_mode":"chat"}`)}, nil},
		"other words":           {"basic", off, chat.Request{TemplateArgs: []byte(`{"a":1}`)}, off},
		"Kimi":                  {"kimi_k25", nil, chat.Request{}, on},
		"Kimi, operator":        {"kimi_k3", off, chat.Request{}, off},
		"Kimi, named":           {"kimi_k3", on, chat.Request{ToolChoice: named}, off},
		"MiniMax":               {"minimax_m3", nil, chat.Request{}, nil},
		"MiniMax, named":        {"minimax_m3", on, chat.Request{ToolChoice: named}, off},
		"MiniMax, required":     {"minimax_m3", nil, chat.Request{ToolChoice: chat.ToolChoice{Mode: chat.ToolRequired}}, off},
		"MiniMax, schema":       {"minimax_m3", nil, chat.Request{Output: schema}, off},
		"MiniMax, client":       {"minimax_m3", nil, chat.Request{Output: schema, Thinking: chat.Thinking{Adaptive: true}}, nil},
		"others, schema":        {"qwen3", nil, chat.Request{Output: schema}, nil},
	} {
		p := pipeline.Pipeline{Config: pipeline.Config{DefaultThinking: tc.operator}}
		got := p.ThinkingOf(&tc.r, tc.grammar).Enabled
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: got %v, want %v", name, show(got), show(tc.want))
		}
	}
}

func show(b *bool) any {
	if b == nil {
		return nil
	}
	return *b
}

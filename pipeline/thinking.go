package pipeline

import (
	"github.com/dynago/dynago/chat"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// thinkingOf returns whether a model is to think, of a family that reads thoughts
// by the named grammar: as the client says, else as the operator does, else as the
// family is used to. It changes nothing but the switch.
func (p *Pipeline) thinkingOf(r *chat.Request, grammar string) chat.Thinking {
	t := r.Thinking
	if controlsThinking(r) {
		return t
	}
	switch {
	case grammar == "minimax_m3" && (forced(r) || r.Output.Kind != chat.FormatText):
		// It thinks when it likes, and the grammar of the output has no place for it.
		t.Enabled = new(false)
	case (grammar == "kimi_k25" || grammar == "kimi_k3") && r.ToolChoice.Mode == chat.ToolNamed:
		t.Enabled = new(false)
	case p.DefaultThinking != nil:
		t.Enabled = p.DefaultThinking
	case grammar == "kimi_k25" || grammar == "kimi_k3":
		t.Enabled = new(true)
	}
	return t
}

// controlsThinking tells that the client says whether, or how much, to think.
func controlsThinking(r *chat.Request) bool {
	if r.Thinking.Enabled != nil || r.Thinking.Adaptive || r.Thinking.Effort != "" {
		return true
	}
	if len(r.TemplateArgs) == 0 {
		return false
	}
	var args struct {
		Thinking jsontext.Value `json:"thinking"`
		Enable   jsontext.Value `json:"enable_thinking"`
		Mode     jsontext.Value `json:"thinking_mode"`
		Effort   jsontext.Value `json:"reasoning_effort"`
	}
	if json.Unmarshal(r.TemplateArgs, &args) != nil {
		return false
	}
	return args.Thinking != nil || args.Enable != nil || args.Mode != nil || args.Effort != nil
}

package parser

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/harmony"
)

// ThoughtEnd returns the marker that closes a thought, or "".
func (f Family) ThoughtEnd() string {
	switch {
	case f.thought == nil:
		return ""
	case f.thought == gptOSS:
		return "<|end|>"
	}
	return f.thought.close[0]
}

// CutThought returns what has to be written to end a thought before its model
// does and to begin the response, laid out as the model itself would; "" if the
// family has no thoughts.
func (f Family) CutThought() string {
	switch end := f.ThoughtEnd(); end {
	case "<|end|>":
		return "<|end|><|start|>assistant<|channel|>final<|message|>"
	case "</think>":
		return "\n</think>\n\n"
	default:
		return end
	}
}

// Thinking says whether a thought is open.
func (p *Parser) Thinking() bool { return p.thought || p.kind == chat.Thought }

// ThoughtMarkers returns what begins a thought and what ends one, in all spellings;
// none where a family has no thoughts. Where there is a header, it follows the marker
// that begins a thought, and no other.
func (f Family) ThoughtMarkers() (open []string, header string, end []string) {
	switch {
	case f.thought == nil:
		return nil, "", nil
	case f.thought == gptOSS:
		return []string{harmony.Channel}, "analysis" + harmony.Message, []string{harmony.Start, harmony.End, harmony.Call, harmony.Return}
	}
	return f.thought.open, "", f.thought.close
}

package parser

import "github.com/dynago/dynago/chat"

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

// ThoughtMarkers returns what begins a thought and what ends one, in all spellings.
// There are none where a family has no thoughts, or the marker says only with what
// follows it that it begins one.
func (f Family) ThoughtMarkers() (open, end []string) {
	if f.thought == nil || f.thought == gptOSS {
		return nil, nil
	}
	return f.thought.open, f.thought.close
}

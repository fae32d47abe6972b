package pipeline

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// checkMedia refuses images and documents in the newest user turn, which the client
// can still mend, of a model that sees none. In earlier turns and in results of
// tools they become a short text, the same on every turn: a session must survive a
// screenshot.
func (p *Pipeline) checkMedia(r *chat.Request) error {
	if p.ImagePlaceholder {
		return nil
	}
	for i := len(r.Turns) - 1; i >= 0 && r.Turns[i].Role != chat.RoleAssistant; i-- {
		if r.Turns[i].Role != chat.RoleUser {
			continue
		}
		for j := range r.Turns[i].Blocks {
			b := &r.Turns[i].Blocks[j]
			if b.Media == nil || b.Kind != chat.Image && b.Kind != chat.Document {
				continue
			}
			at, what := b.Media.Path, "image"
			if b.Kind == chat.Document {
				what = "file"
			}
			if at == "" {
				at = "messages"
			}
			e := engine.Errorf(engine.InvalidArgument, "Model '%s' does not support %s input: %s", r.Model, what, at)
			e.Param, e.Code = at, "unsupported_parameter"
			return e
		}
	}
	return nil
}

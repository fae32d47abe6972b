package pipeline

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// shown returns a conversation as its model is to see it. What clients send is
// theirs and stays as it is; a step that changes something works on a copy.
func (p *Pipeline) shown(r *chat.Request, _ *prompt.Model, notes *Notes) (*chat.Request, error) {
	if !p.KeepPreamble {
		r, notes.Preamble = withoutPreamble(r)
	}
	return r, nil
}

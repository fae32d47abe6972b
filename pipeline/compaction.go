package pipeline

import "github.com/dynago/dynago/prompt"

// compactionShared is the part of an earlier prompt that the next one of its
// conversation begins with, unless that has been compacted in between.
const compactionShared = 0.5

// compacted says whether the history of a session has just been replaced by a summary:
// a client says that there is one, and the prompt goes on from none of those that are
// known. Later prompts begin with the same summary, and go on from this one.
func (p *Pipeline) compacted(r *Request, name string, built *prompt.Prompt) bool {
	s, ok := sessionOf(r, name)
	if !ok || p.past == nil || !r.Chat.Summarized {
		return false
	}
	known := p.past.of(s)
	now := past{ids: built.IDs}
	for _, before := range known {
		if float64(now.common(before)) >= compactionShared*float64(len(before.ids)) {
			return false
		}
	}
	return len(known) > 0
}

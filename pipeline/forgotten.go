package pipeline

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/prompt"
)

// forgotten returns how reasoning is spelled that the next prompt of a conversation
// will leave out; nil if its template keeps it, or nobody can tell. What of the cache
// follows such reasoning can never be found again.
func forgotten(r *Request, m *prompt.Model) *kv.Thinking {
	if r.Chat.Prompt != nil || m.Template == nil || !m.Family.Thinks() || r.Background {
		return nil
	}
	tools := len(offered(r.Chat.Tools)) > 0
	t := m.Template.Traits(tools)
	keep := r.Chat.Thinking.Keep
	switch {
	case t.KeepsThinking, t.PreservesThinking && keep != nil && *keep == chat.KeepAll:
		return nil
	case t.ShowsThinking && tools && r.KV.Session.ID == "":
		// The next prompt may come from a loop of calls, and still carry it. Who could
		// tell is the session.
		return nil
	}
	open, header, end := m.Family.ThoughtMarkers()
	ids := func(markers []string) (ids []uint32) {
		for _, marker := range markers {
			if id, ok := m.Tokenizer.ID(marker); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	thinking := &kv.Thinking{Start: ids(open), End: ids(end)}
	if header != "" {
		thinking.Header = m.Tokenizer.Append(nil, header)
	}
	if len(thinking.Start) == 0 || len(thinking.End) == 0 {
		return nil
	}
	return thinking
}

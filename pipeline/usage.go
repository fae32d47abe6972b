package pipeline

import "github.com/dynago/dynago/chat"

// completeUsage adds to an event what only the prompt tells.
func (j *job) completeUsage(e *chat.Event) {
	switch e.Kind {
	case chat.Start, chat.UsageUpdate, chat.Finished:
	default:
		return
	}
	if j.index == 0 {
		e.Usage.Written = j.written(e)
	}
	// An answer that fills the context ended there, whatever it was allowed.
	limit := j.model.ContextLength
	if e.Kind == chat.Finished && e.Finish.Reason == chat.FinishLength && limit > 0 && len(j.prompt.IDs)+e.Usage.Output >= limit {
		e.Finish.Reason = chat.FinishContext
	}
}

// written returns how many tokens were computed anew up to the last place that the
// client wants cached, by whole blocks; nil if there is none, or it is not known
// yet what was cached before.
func (j *job) written(e *chat.Event) *int {
	if len(j.request.Chat.Cache) == 0 || e.Kind == chat.Start && e.Usage.Cached == nil {
		return nil
	}
	upTo, cached := j.prompt.Marked, 0
	if card := j.here.Worker().Card(); card != nil && card.BlockSize > 0 {
		upTo -= upTo % int(card.BlockSize)
	}
	if e.Usage.Cached != nil {
		cached = *e.Usage.Cached
	}
	return new(max(0, upTo-cached))
}

package prompt

import (
	"slices"
	"strings"
)

// walk returns the walk of a text that is no client's own, but rendered.
func (m *Model) walk(text string, how encoding) *walk {
	return &walk{encoder: m.encoder, encoding: how, text: text, cache: m.Cache, turns: m.Turns}
}

// opening is the end of a prompt, from its last cut on: what an answer to it is
// known by later.
type opening struct {
	prompt chain // of the ids before it
	text   string
	ids    []uint32
	before []uint32 // and at most one id more, that of the cut
}

// longestOpening is that of an answer that is worth remembering, in bytes. A
// prompt whose last cut lies further back has no structure to find it by.
const longestOpening = 4096

func (w *walk) opening() *opening {
	text := w.text[w.last.text:]
	if w.turns == nil || w.controls == nil || len(text) > longestOpening {
		return nil
	}
	return &opening{w.last.chain, strings.Clone(text), w.ids[w.last.ids:], w.ids[max(0, w.last.ids-1):]}
}

// Remember keeps the ids with which a model answered a prompt, or as much of them
// as the client has seen, for the prompts that show the answer. It may be called
// several times, for the choices of one request.
func (m *Model) Remember(p *Prompt, ids []uint32) {
	if m.Turns == nil || p.opening == nil {
		return
	}
	// The prompt that shows the answer writes the end of the turn itself.
	if n := len(ids) - 1; n >= 0 && m.ends(p, ids[n]) {
		ids = ids[:n]
	}
	o := p.opening
	text := m.textBehind(o.before, ids)
	if text == "" {
		return
	}
	m.Turns.put(&turn{prompt: o.prompt.sum, tail: o.text, text: o.text + text, ids: slices.Concat(o.ids, ids)})
}

// textBehind returns the text of ids as it stands in a prompt behind others: by
// itself a text may have lost the blank that its first token begins with.
func (m *Model) textBehind(before, ids []uint32) string {
	whole := m.Tokenizer.Decode(slices.Concat(before, ids), false)
	text, ok := strings.CutPrefix(whole, m.Tokenizer.Decode(before, false))
	if !ok {
		return ""
	}
	return text
}

// ends tells that an id ended the turn, and is not shown.
func (m *Model) ends(p *Prompt, id uint32) bool {
	return slices.Contains(m.EOS, id) || slices.Contains(p.Stop.Hidden, id) || slices.Contains(p.Stop.IDs, id)
}

// Remembered tells what the caches of a model hold, nil for one that it does not
// have. A nil model has none.
func (m *Model) Remembered() (*CacheStats, *TurnStats) {
	var (
		texts   *CacheStats
		answers *TurnStats
	)
	if m != nil && m.Cache != nil {
		s := m.Cache.Stats()
		texts = &s
	}
	if m != nil && m.Turns != nil {
		s := m.Turns.Stats()
		answers = &s
	}
	return texts, answers
}

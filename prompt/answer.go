package prompt

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
)

// walk returns the walk of the text that was made of a request.
func (m *Model) walk(r *chat.Request, text string, how encoding) *walk {
	w := &walk{encoder: m.encoder, encoding: how, text: text, cache: m.Cache, turns: m.Turns}
	if m.ReplayRaw && r.Prompt == nil {
		w.same, w.eos = sameIn(r), m.EOS
	}
	return w
}

// sameIn tells of answers whether a conversation has them as they were given.
func sameIn(r *chat.Request) func(*turn) bool {
	sums := map[int]uint64{}
	return func(t *turn) bool {
		if t.said == 0 || t.at >= len(r.Turns) || r.Turns[t.at].Role != chat.RoleAssistant {
			return false
		}
		if sums[t.at] == 0 {
			sums[t.at] = sayingOf(r.Turns[t.at].Blocks).sum()
		}
		return sums[t.at] == t.said
	}
}

// opening is the end of a prompt, from its last cut on: what an answer to it is
// known by later.
type opening struct {
	prompt chain // of the ids before it
	text   string
	ids    []uint32
	before []uint32 // and at most one id more, that of the cut
	turn   int      // number of the turn that the answer will be
}

// longestOpening is that of an answer that is worth remembering, in bytes. A
// prompt whose last cut lies further back has no structure to find it by.
const longestOpening = 4096

func (w *walk) opening(turns int) *opening {
	text := w.text[w.last.text:]
	if w.turns == nil || w.controls == nil || len(text) > longestOpening {
		return nil
	}
	return &opening{w.last.chain, strings.Clone(text), w.ids[w.last.ids:], w.ids[max(0, w.last.ids-1):], turns}
}

// Remember keeps the ids with which a model answered a prompt, or as much of them
// as the client has seen, for the prompts that show the answer. It may be called
// several times, for the choices of one request. What the answer says, which may
// be nil, is needed for [Model.ReplayRaw] alone.
func (m *Model) Remember(p *Prompt, ids []uint32, said *Saying) {
	if m.Turns == nil || p.opening == nil {
		return
	}
	o := p.opening
	t := &turn{prompt: o.prompt.sum, tail: o.text, at: o.turn}
	ids = m.Body(p, ids)
	text := m.textBehind(o.before, ids)
	if text == "" {
		return
	}
	if said != nil {
		t.said = said.sum()
	}
	t.text, t.ids = o.text+text, slices.Concat(o.ids, ids)
	m.Turns.put(t)
}

// Body returns the ids of an answer without the one that ended the turn, if that
// is there: the prompt that shows the answer writes the end of the turn itself.
func (m *Model) Body(p *Prompt, ids []uint32) []uint32 {
	if n := len(ids) - 1; n >= 0 && m.ends(p, ids[n]) {
		return ids[:n]
	}
	return ids
}

// textBehind returns the text of ids as it stands in a prompt behind others: by
// itself a text may have lost the blank that its first token begins with. It is
// empty where there is none to be had.
func (m *Model) textBehind(before, ids []uint32) (text string) {
	defer func() {
		if patternError(recover()) != nil {
			text = ""
		}
	}()
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

package prompt

import (
	"cmp"
	"slices"
	"sort"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/nvext"
)

// WholeTurn, as the block of a [chat.Breakpoint], is the last block of its turn.
const WholeTurn = -1

// Offsets returns for each place of a conversation the number of tokens at the
// beginning of its prompt that are settled there: whatever is said behind the
// place, a prompt begins with them. The place is behind the block that it names,
// and the offset may be smaller than one would think, by the template's own words
// for the end of a turn, which depend on what follows. It never falls from one
// place to a later one. Callers floor it to their blocks.
//
// A prompt that no chat template wrote has no places; all offsets are 0 then.
func (m *Model) Offsets(r *chat.Request, ext *nvext.Ext, places ...chat.Breakpoint) (_ []int, err error) {
	defer catchPattern(r, &err)
	var p Prompt
	w, err := m.fill(&p, r, ext, false, len(places) > 0)
	if err != nil {
		return nil, err
	}
	return m.offsets(w, r, places)
}

// offsets finds places in the prompt that w has made, which is nil if no chat
// template wrote it.
func (m *Model) offsets(w *walk, r *chat.Request, places []chat.Breakpoint) ([]int, error) {
	out := make([]int, len(places))
	order := make([]int, len(places))
	for i, at := range places {
		if err := inside(r, at); err != nil {
			return nil, err
		}
		order[i] = i
	}
	if w == nil {
		return out, nil
	}
	slices.SortFunc(order, func(i, j int) int { return comparePlaces(r, places[i], places[j]) })
	least := 0 // what is settled at a place is so at all later ones
	for _, i := range order {
		least = max(least, w.settled(m.common(w, r, places[i])))
		out[i] = least
	}
	return out, nil
}

// marked returns the offset of the last place that a request marks, or of the last
// one of which the template tells where it is.
func (m *Model) marked(w *walk, r *chat.Request) (int, error) {
	for _, at := range r.Cache {
		if err := inside(r, at); err != nil {
			return 0, err
		}
	}
	if w == nil {
		return 0, nil
	}
	places := slices.SortedFunc(slices.Values(r.Cache), func(a, b chat.Breakpoint) int { return comparePlaces(r, b, a) })
	for _, at := range places {
		if n := w.settled(m.common(w, r, at)); n > 0 {
			return n, nil
		}
	}
	return 0, nil
}

// inside returns an error for a place that the conversation does not have.
func inside(r *chat.Request, at chat.Breakpoint) error {
	blocks := 0
	switch {
	case at.Turn == -2:
		blocks = len(r.Tools)
	case at.Turn == -1:
		blocks = len(r.System)
	case at.Turn >= 0 && at.Turn < len(r.Turns):
		blocks = max(1, len(r.Turns[at.Turn].Blocks))
	default:
		return invalid("messages", "place: turn %d is not in a conversation of %d turns", at.Turn, len(r.Turns))
	}
	if at.Block != WholeTurn && (at.Block < 0 || at.Block >= blocks) {
		return invalid("messages", "place: block %d of turn %d is not among its %d blocks", at.Block, at.Turn, blocks)
	}
	return nil
}

func comparePlaces(r *chat.Request, a, b chat.Breakpoint) int {
	return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(blockOf(r, a), blockOf(r, b)))
}

// blockOf returns the number of blocks up to a place, in its turn.
func blockOf(r *chat.Request, at chat.Breakpoint) int {
	if at.Block != WholeTurn {
		return at.Block + 1
	}
	switch at.Turn {
	case -2:
		return len(r.Tools)
	case -1:
		return len(r.System)
	}
	return len(r.Turns[at.Turn].Blocks)
}

// common returns how much of the prompt's text two others share with it that say
// the same up to a place and something else behind it; 0 if the template refuses
// to write two such.
func (m *Model) common(w *walk, r *chat.Request, at chat.Breakpoint) int {
	if m.places == nil {
		return m.rendered(w, r, at)
	}
	key := placeKey(r, at)
	if p, ok := m.places.get(key); ok && p.template == m.Template && p.end <= len(w.text) && p.sum == w.textSum(p.end) {
		return p.end
	}
	end := m.rendered(w, r, at)
	m.places.add(key, settledPlace{m.Template, end, w.textSum(end)})
	return end
}

// rendered is common, found by rendering.
func (m *Model) rendered(w *walk, r *chat.Request, at chat.Breakpoint) int {
	n, rendered := len(w.text), 0
	for _, other := range others(r, at) {
		text, how, err := m.render(other, chattemplate.Options{AddGenerationPrompt: true, HideTools: r.ToolChoice.Hidden})
		if err != nil {
			continue
		}
		n = min(n, commonPrefix(w.text, text), commonMarks(w.inert, how.inert))
		if rendered++; rendered == 2 {
			return n
		}
	}
	return 0
}

// Two texts that begin in different ways.
const (
	oneThing = "zq"
	another  = "9x"
)

// others returns requests that say the same as r up to a place, and then
// different things: first those that one expects there.
func others(r *chat.Request, at chat.Breakpoint) []*chat.Request {
	cut := *r
	cut.Cache = nil
	n := blockOf(r, at)
	if at.Turn < 0 {
		cut.Turns = []chat.Turn{{Role: chat.RoleUser, Blocks: texts(oneThing)}}
	}
	switch at.Turn {
	case -2:
		bare, with := cut, cut
		bare.Tools, bare.System = r.Tools[:n], nil
		with.Tools, with.System = r.Tools[:n], texts(another)
		return []*chat.Request{&bare, &with}
	case -1:
		// What APIs say in system turns may join the system text.
		bare, with := cut, cut
		bare.System = r.System[:n]
		with.System = slices.Concat(r.System[:n], texts(another))
		return []*chat.Request{&bare, &with}
	}
	last := r.Turns[at.Turn]
	whole := n == len(last.Blocks)
	last.Blocks = last.Blocks[:n]
	before := r.Turns[:at.Turn]
	with := func(turns ...chat.Turn) *chat.Request {
		c := cut
		c.Turns = slices.Concat(before, turns)
		return &c
	}
	more := func(s string) *chat.Request {
		longer := last
		longer.Blocks = slices.Concat(last.Blocks, texts(s))
		return with(longer)
	}
	if whole {
		return []*chat.Request{with(last, reply(last, oneThing)), with(last), with(last, reply(last, another))}
	}
	return []*chat.Request{more(oneThing), with(last), with(last, reply(last, oneThing)), more(another)}
}

// reply is what can come behind a turn: results of its calls, or else a user.
func reply(to chat.Turn, s string) chat.Turn {
	answer := chat.Turn{Role: chat.RoleTool}
	for i := range to.Blocks {
		if use := to.Blocks[i].Use; use != nil {
			answer.Blocks = append(answer.Blocks, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: use.ID, Name: use.Name, Blocks: texts(s)}})
		}
	}
	if answer.Blocks == nil {
		return chat.Turn{Role: chat.RoleUser, Blocks: texts(s)}
	}
	return answer
}

func texts(s string) []chat.Block { return []chat.Block{{Kind: chat.Text, Text: s}} }

// commonPrefix returns the number of bytes with which both texts begin.
func commonPrefix(a, b string) int {
	const stride = 1 << 10
	n := min(len(a), len(b))
	i := 0
	for i+stride <= n && a[i:i+stride] == b[i:i+stride] {
		i += stride
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// commonMarks returns the offset of the first mark that only one list has, or one
// beyond any text.
func commonMarks(a, b []int) int {
	for i := 0; ; i++ {
		switch {
		case i == len(a) && i == len(b):
			return int(^uint(0) >> 1)
		case i == len(a):
			return b[i]
		case i == len(b):
			return a[i]
		case a[i] != b[i]:
			return min(a[i], b[i])
		}
	}
}

// continuations are what may stand behind a text and join its last word: letters,
// digits, signs, blanks, marks, and nothing.
var continuations = []string{"", "a", " a", "\n", "\n\n", "1", ".", "'s", "\u0301", "你"}

// settled returns how many ids of the walk depend on its first n bytes alone. The
// walk must have noted its places.
func (w *walk) settled(n int) int {
	if w.controls == nil {
		return w.settledFrom(place{chain: noIDs}, n)
	}
	// A control token right before the end could be the beginning of a longer one.
	i := sort.Search(len(w.places), func(i int) bool { return w.places[i].text+w.longest > n })
	return w.settledFrom(w.places[max(0, i-1)], n)
}

func (w *walk) settledFrom(from place, n int) int {
	if n <= from.text {
		return 0
	}
	rest := w.ids[from.ids:]
	first, _ := slices.BinarySearch(w.inert, from.text+1)
	inert := slices.Clone(w.inert[first:])
	for i := range inert {
		inert[i] -= from.text
	}
	for _, s := range continuations {
		other := walk{encoder: w.encoder, encoding: encoding{literal: w.literal, inert: inert}, text: w.text[from.text:n] + s, turns: w.turns, same: w.same, eos: w.eos, behind: from.text > 0, probes: true, chain: from.chain}
		other.encode(place{chain: from.chain})
		same := 0
		for same < min(len(rest), len(other.ids)) && rest[same] == other.ids[same] {
			same++
		}
		rest = rest[:same]
	}
	return from.ids + len(rest)
}

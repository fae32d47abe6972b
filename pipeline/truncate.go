package pipeline

import (
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// stepsOfWindow is in how many steps a window's worth of tokens is left out: the
// prompts of several turns in a row then begin alike.
const stepsOfWindow = 4

// truncated returns a conversation without its oldest exchanges, if it is longer
// than the model's context and may lose them. An exchange is a question with all
// that came of it; of the last one the oldest calls may go, with their results, and
// the question stays. What cannot be made to fit is returned as it is.
func truncated(r *chat.Request, m *prompt.Model) (*chat.Request, kept, error) {
	if !r.Truncate || m.ContextLength == 0 || r.Prompt != nil {
		return r, nil, nil
	}
	count := func(r *chat.Request) (int, error) {
		ids, err := m.Tokens(r, true)
		return len(ids), err
	}
	whole, err := count(r)
	if err != nil {
		return nil, nil, err
	}
	step := max(1, m.ContextLength/stepsOfWindow)
	room := m.ContextLength - 1
	if wanted := r.Sampling.MaxTokens; wanted != nil {
		room = m.ContextLength - min(max(1, *wanted), step)
	}
	if whole <= room {
		return r, nil, nil
	}
	out := (whole - room + step - 1) / step * step // tokens to leave out
	cuts := cutsOf(r.Turns)
	if len(cuts) == 0 {
		return r, nil, nil
	}
	low, high := 0, len(cuts)-1
	for low < high {
		at := (low + high) / 2
		// Where a template refuses what is left, more of it has to go.
		if n, err := count(cuts[at].apply(r)); err == nil && whole-n >= out {
			high = at
		} else {
			low = at + 1
		}
	}
	return cuts[low].apply(r), cuts[low].keeps(len(r.Turns)), nil
}

// cut is what of a conversation is left out: the turns from one to before another,
// but for those of a question in between.
type cut struct{ from, to, question, answer int }

// leaves tells that a turn is left out.
func (c cut) leaves(i int) bool {
	return i >= c.from && i < c.to && (i < c.question || i >= c.answer)
}

// apply returns a request without the turns of a cut. Marks in them are gone.
func (c cut) apply(r *chat.Request) *chat.Request {
	out := *r
	out.Turns = make([]chat.Turn, 0, len(r.Turns))
	moved := make([]int, len(r.Turns))
	for i := range r.Turns {
		moved[i] = len(out.Turns)
		if !c.leaves(i) {
			out.Turns = append(out.Turns, r.Turns[i])
		}
	}
	out.Cache = slices.DeleteFunc(slices.Clone(r.Cache), func(at chat.Breakpoint) bool { return at.Turn >= 0 && c.leaves(at.Turn) })
	for i := range out.Cache {
		if at := &out.Cache[i]; at.Turn >= 0 {
			at.Turn = moved[at.Turn]
		}
	}
	return &out
}

// keeps returns what is left of so many turns.
func (c cut) keeps(turns int) kept {
	k, n := make(kept, turns), 0
	for i := range k {
		if !c.leaves(i) {
			n++
		}
		k[i] = n
	}
	return k
}

// cutsOf returns all cuts of a conversation, from the smallest to the largest, each
// of which leaves out all of the one before it. The turns of the system at the
// beginning stay, and so does the last question, and no result without its call.
func cutsOf(turns []chat.Turn) (cuts []cut) {
	from := 0
	for from < len(turns) && isSystem(&turns[from]) {
		from++
	}
	question, answer := from, from // the last question begins and ends here
	for i := from; i < len(turns); i++ {
		if asks(&turns[i]) {
			if i == from || !asks(&turns[i-1]) {
				question = i
			}
			answer = i + 1
		}
	}
	answered := lastResults(turns)
	open := -1 // where the last result of a call comes that stands before i
	for i := from; i < len(turns); i++ {
		begins := i <= question && asks(&turns[i]) && !asks(&turns[max(0, i-1)])
		goesOn := i > answer && turns[i].Role == chat.RoleAssistant && turns[i-1].Role != chat.RoleAssistant
		switch {
		case i == from || open >= i:
		case begins:
			cuts = append(cuts, cut{from: from, to: i})
		case goesOn:
			cuts = append(cuts, cut{from: from, to: i, question: question, answer: answer})
		}
		open = max(open, answered[i])
	}
	return cuts
}

// asks tells that a user says something, and not what came of calls.
func asks(t *chat.Turn) bool {
	return t.Role == chat.RoleUser && !slices.ContainsFunc(t.Blocks, func(b chat.Block) bool { return b.Result != nil })
}

// lastResults returns for each turn the number of the last turn that has a result
// of one of its calls; -1 for none.
func lastResults(turns []chat.Turn) []int {
	last, caller := make([]int, len(turns)), map[string]int{}
	for i := range turns {
		last[i] = -1
		for j := range turns[i].Blocks {
			switch b := &turns[i].Blocks[j]; {
			case b.Use != nil:
				caller[b.Use.ID] = i
			case b.Result != nil:
				if k, ok := caller[b.Result.ID]; ok {
					last[k] = i
				}
			}
		}
	}
	return last
}

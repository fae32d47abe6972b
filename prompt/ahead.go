package prompt

import (
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/nvext"
)

// GoingOn returns two requests that may follow a conversation that ends with an
// answer: they differ in nothing but what a tool returns, or else what the user says.
func GoingOn(r *chat.Request) (one, other *chat.Request) {
	last := r.Turns[len(r.Turns)-1]
	with := func(s string) *chat.Request {
		c := *r
		c.Cache = nil
		c.Turns = append(slices.Clone(r.Turns), reply(last, s))
		return &c
	}
	return with(oneThing), with(another)
}

// Common returns the ids with which the prompts of both requests begin, whatever
// stands behind the place where their texts part. It is empty where no chat template
// writes the prompts.
func (m *Model) Common(one, other *chat.Request, ext *nvext.Ext) (_ []uint32, err error) {
	defer catchPattern(one, &err)
	var p Prompt
	w, err := m.fill(&p, one, ext, true, true)
	if w == nil {
		return nil, err
	}
	text, how, err := m.text(new(Prompt), other, ext)
	if err != nil {
		return nil, err
	}
	n := min(commonPrefix(w.text, text), commonMarks(w.inert, how.inert))
	return w.ids[:w.settled(n)], nil
}

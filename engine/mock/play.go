package mock

import (
	"cmp"
	"slices"

	"github.com/dynago/dynago/engine"
)

// plan decides what a stream will give, and how it is broken off. What a script
// says is given in whatever form it has.
func (e *Engine) plan(s *stream, q *Request) (err error) {
	if e.cfg.Computer != nil {
		// How likely a prompt was is told of all of it, and nobody keeps that.
		q.Fresh = s.r.PromptLogprobs != nil
		s.answer, err = e.cfg.Computer.Begin(s.r)
		q.Generator = s.answer
		return err
	}
	if e.source == SourceScript {
		var c conversation
		if s.r.Chat != nil {
			c = read(s.r.Chat)
		}
		if r, caught := e.cfg.Script.choose(&c); r != nil {
			e.play(s, q, r, caught)
			return nil
		}
	}
	if formed(s.r) {
		q.Generator, err = e.sample(s.r)
		return err
	}
	q.Generator = e.generator(s.r)
	return nil
}

// play makes the request give what a rule says. A prompt that ends with the
// beginning of the emission gets the rest of it, as after a migration.
func (e *Engine) play(s *stream, q *Request, r *rule, caught map[string]string) {
	paced := r.Pace != nil || slices.ContainsFunc(r.Emit, func(st step) bool { return st.Pace != nil })
	var ids []uint32
	for _, st := range r.Emit {
		if paced {
			p := cmp.Or(st.Pace, r.Pace, &pace{})
			q.Pace = append(q.Pace, Pace{From: len(ids), First: p.TTFT, Each: p.ITL, Burst: p.TokensPerDelta})
		}
		ids = e.cfg.Encode(ids, fill(st.Text, caught))
	}
	given := overlap(s.r.TokenIDs, ids)
	q.Pace = paceFrom(q.Pace, given)
	end := e.ending(s.r)
	end.min += given
	q.Generator = &scriptTokens{ids: ids, given: given, end: end, after: func() Generator { return e.generator(s.r) }}
	s.breakOff(q, r.Cut, given)
}

// overlap returns how many of the ids a prompt ends with already: the longest
// beginning of ids that is an end of prompt.
func overlap(prompt, ids []uint32) int {
	for n := min(len(ids), len(prompt)); n > 0; n-- {
		if slices.Equal(prompt[len(prompt)-n:], ids[:n]) {
			return n
		}
	}
	return 0
}

// paceFrom shifts a pace to where given tokens have been given.
func paceFrom(p []Pace, given int) []Pace {
	for len(p) > 1 && p[1].From <= given {
		p = p[1:]
	}
	for i := range p {
		p[i].From = max(0, p[i].From-given)
	}
	return p
}

// breakOff applies a rule's cut, unless the emission is past it already.
func (s *stream) breakOff(q *Request, c *cutAs, given int) {
	if c == nil || given > c.After || given > 0 && given == c.After {
		return
	}
	after := c.After - given
	switch c.As {
	case cutLength:
		q.MaxTokens = min(q.MaxTokens, after)
		return
	case cutStall:
		q.Cut = &Cut{After: after, Hold: true}
		return
	case cutDeath:
		q.Cut = &Cut{After: after}
		return
	}
	q.Cut = &Cut{After: after}
	s.fault = &engine.Error{
		Kind:       engine.ErrorKind(c.As),
		Message:    cmp.Or(c.Message, "the script ends here"),
		FromEngine: true,
	}
}

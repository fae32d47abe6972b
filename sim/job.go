package sim

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim/trace"
)

// job is one request on its way.
type job struct {
	trace.Request
	n int // in the workload

	waits     int // requests that have to end first
	followers []*job
	ready     time.Duration // when it comes, as far as those have ended

	// While it is under way.
	tokens []uint32 // the prompt, and what was generated where it was lost
	answer []uint32
	asked  int // tokens of the answer that the core has
	// expected is how many it should have, where somebody is asked.
	expected uint32
	query    router.Query
	plan     *router.Plan // of a request in two legs
	leg      leg
	booking  *router.Booking
	lost     []uint64 // workers that were lost under it
	begun    bool     // there was a token since it was placed

	// What is told of it in the end. Tokens that were computed again count once.
	arrived, placed, admitted, first, second, last, ended time.Duration
	ran                                                   bool          // was admitted
	parked                                                time.Duration // by the router, over all attempts
	class                                                 string        // that the router put it into; "": none
	predicted, cached, reused                             int           // tokens of the prompt: by the router, at first, at best
	given                                                 int           // tokens of the answer
	from                                                  [tiers]int    // what was cached, by where it was
	pinned                                                int           // tokens of the prompt, when it was answered
	where                                                 *rank         // that admitted it first
	decoder                                               *rank         // that had its decode leg last
	err                                                   error
}

// leg is a part of a request that one worker does.
type leg uint8

const (
	whole   leg = iota
	prefill     // computes the prompt, and one token that nobody sees
	decode      // gets the prompt's blocks, and answers
)

// settle notes that one of the requests j waits for has ended, and says whether
// it was the last one.
func (j *job) settle(now time.Duration) bool {
	j.waits--
	j.ready = max(j.ready, now+j.Delay)
	return j.waits == 0
}

// ask makes the query of the next attempt.
func (j *job) ask(c *Config) *router.Query {
	if j.tokens == nil {
		j.tokens = j.Prompt.Append(make([]uint32, 0, j.Prompt.Len()))
		j.answer = j.Answer.Append(make([]uint32, 0, j.Answer.Len()))
		if c.Expect != nil {
			j.expected, j.KV.NextIn = c.Expect(&j.Request)
		}
		if j.Thinking > 0 {
			j.KV.Thinking = &kv.Thinking{Start: j.answer[:1]} // its first token is one that begins it
		}
	}
	j.query = router.Query{
		ID: j.ID, Model: c.Model, Tokens: j.tokens, Namespace: j.KV.Namespace, Choices: 1,
		Priority: j.Priority, StrictPriority: j.StrictPriority, Class: j.Class,
		Session: router.Session{ID: j.Session, Parent: j.Parent, Final: j.Final, Input: router.UserInput},
		Exclude: j.lost,
	}
	if j.Tool {
		j.query.Session.Input = router.ToolInput
	}
	switch {
	case c.Expect != nil:
		j.query.Expected = j.expected
	case c.Forecast:
		j.query.Expected = uint32(len(j.answer) - j.given)
	}
	return &j.query
}

// session returns the session that its blocks belong to.
func (j *job) session(c *Config) kvcache.SessionID {
	k := &j.KV.Session
	if k.ID == "" {
		k.ID, k.Parent = j.Session, j.Parent
	}
	return kvcache.SessionOf(kv.SessionKey{Model: c.Model, Salt: j.KV.Namespace.Salt, ID: k.ID})
}

// Next gives the core the next token of the answer.
func (j *job) Next() uint32 {
	j.asked++
	return j.answer[j.asked-1]
}

// token notes that a token has come, and returns how long after the one before
// if there was one.
func (j *job) token(now time.Duration) (gap time.Duration, again bool) {
	j.given++
	switch j.given {
	case 1:
		j.first, j.last = now, now
		return 0, false
	case 2:
		j.second = now
	}
	gap, j.last = now-j.last, now
	return gap, true
}

// release ends the booking.
func (j *job) release() {
	b := j.booking
	j.booking, j.begun = nil, false
	b.Release()
}

// goOn makes the request ready for another worker, whose prompt has in it what
// was generated so far.
func (j *job) goOn(lost uint64) {
	j.tokens = append(j.tokens[:j.Prompt.Len():j.Prompt.Len()], j.answer[:j.given]...)
	j.lost = append(j.lost, lost)
}

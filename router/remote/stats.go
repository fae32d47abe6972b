package remote

import (
	"errors"
	"time"
)

// Stats are what has come of asking a server.
type Stats struct {
	Answers  uint64 // that were followed
	Declined uint64 // in which the server left the choice to the fallback
	// What the fallback has decided because the server did not, by the reason.
	Timeouts    uint64 // no answer in time
	Unreachable uint64 // no connection, or one that broke
	Statuses    uint64 // another status than 200
	Malformed   uint64 // an answer that is none
	WrongRows   uint64 // a choice that is no candidate
	Skipped     uint64 // not asked, since it kept failing
	// Open says that nobody asks the server just now.
	Open bool

	Told uint64 // outcomes that the server has taken
	Lost uint64 // outcomes that it has not
}

// reason is why a server was of no use.
type reason uint8

const (
	timeout reason = iota
	unreachable
	status
	malformed
	wrongRow
)

// refusal is an error with its reason.
type refusal struct {
	reason reason
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

func (s *Stats) count(r reason) {
	switch r {
	case timeout:
		s.Timeouts++
	case unreachable:
		s.Unreachable++
	case status:
		s.Statuses++
	case malformed:
		s.Malformed++
	case wrongRow:
		s.WrongRows++
	}
}

// Stats returns what has come of it so far.
func (p *Policy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.counted
	s.Open = p.breaker.open()
	return s
}

// complaint bounds how often failures are logged.
type complaint struct {
	next   time.Time
	silent int // failures since the last line
}

const complainEvery = 10 * time.Second

// enter says whether to ask the server.
func (p *Policy) enter() (try, ok bool) {
	now := p.config.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	try, ok = p.breaker.enter(now)
	if !ok {
		p.counted.Skipped++
	}
	return try, ok
}

// leave notes that nobody waits for the answer any more.
func (p *Policy) leave(try bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaker.leave(try)
}

// judge notes how the server has done.
func (p *Policy) judge(try bool, err error) {
	now := p.config.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.breaker.open()
	refused, failed := errors.AsType[*refusal](err)
	p.breaker.judge(try, !failed, now)
	switch {
	case err == nil:
		p.counted.Answers++
	case !failed:
		p.counted.Declined++
	default:
		p.counted.count(refused.reason)
	}
	switch is := p.breaker.open(); {
	case was && !is:
		p.config.Logger.Info("the policy server is well again", "url", p.shown)
		p.next = time.Time{}
	case !was && is:
		p.config.Logger.Warn("the policy server keeps failing: it is left alone for a while", "url", p.shown, "error", err)
	case failed && now.Before(p.next):
		p.silent++
	case failed:
		p.config.Logger.Warn("the policy server is of no use: the built-in policy decides", "url", p.shown, "error", err, "more", p.silent)
		p.next, p.silent = now.Add(complainEvery), 0
	}
}

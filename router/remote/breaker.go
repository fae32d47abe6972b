package remote

import "time"

// breaker keeps requests from a server that keeps failing: after some failures
// in a row nobody asks it for a while, then one does, and the while grows each
// time that one fails. It is plain data; its zero value is closed.
type breaker struct {
	failures int       // in a row
	until    time.Time // nobody asks before; zero: closed
	pause    time.Duration
	trying   bool // somebody asks whether it is well again
}

const (
	mostFailures = 5
	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
)

func (b *breaker) open() bool { return !b.until.IsZero() }

// enter says whether to ask the server now, and whether that is a try.
func (b *breaker) enter(now time.Time) (try, ok bool) {
	if !b.open() {
		return false, true
	}
	if b.trying || now.Before(b.until) {
		return false, false
	}
	b.trying = true
	return true, true
}

// leave takes back an enter of which nothing has come.
func (b *breaker) leave(try bool) {
	if try {
		b.trying = false
	}
}

// judge tells how the server has done.
func (b *breaker) judge(try, well bool, now time.Time) {
	b.leave(try)
	switch {
	case well:
		*b = breaker{trying: b.trying}
	case try && b.open():
		b.pause = min(2*b.pause, longestPause)
		b.until = now.Add(b.pause)
	case b.open(): // it was asked before
	default:
		if b.failures++; b.failures >= mostFailures {
			b.pause = firstPause
			b.until = now.Add(b.pause)
		}
	}
}

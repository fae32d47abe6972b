package router

import "time"

// trust is whether what a target tells of its cache is believed. Answers show
// how much of their prompts really was cached; where that keeps contradicting
// what the index said, the target is doubted: the index is rebuilt, and until it
// has been right for a while, what was routed to the target counts instead. An
// index that only lacks something still counts as far as it goes.
//
// It is plain data. The zero value believes, and has seen nothing.
type trust struct {
	// drift is the share of the blocks, expected or found, about which answers
	// and index disagree, of late.
	drift float64
	// claims is the share of those blocks that the index said to be there and that
	// were not, of late. A rebuilt index has to live it down.
	claims float64
	seen   int // answers that drift rests on, up to enough
	// doubted is when belief ended; zero while it lasts.
	doubted time.Time
	// patience is how long the next doubt lasts at least, and lately how often
	// there was one.
	patience time.Duration
	resynced time.Time
}

const (
	// enough is how many answers a judgement takes.
	enough = 12
	// weight is that of the latest answer.
	weight = 1.0 / 8
	// A target is doubted above one share, and believed again below the other, or
	// after the longest doubt anywhere between them.
	tooWrong, rightAgain = 0.25, 0.05
	// A doubt lasts at least so long, twice as long each time it comes back, and
	// not longer than that. After a good while without doubt it is forgotten.
	firstDoubt, longestDoubt = 10 * time.Second, 10 * time.Minute
)

// judgement is what follows from an answer.
type judgement uint8

const (
	asBefore judgement = iota
	doubt              // from now on; rebuild the index of the target
	again              // the rebuilt index is wrong too; rebuild it again
	believe            // from now on
)

func (t *trust) believed() bool { return t.doubted.IsZero() }

// truthful says that what the index says to be there is, however much it lacks.
func (t *trust) truthful() bool { return t.believed() || t.claims < rightAgain }

// answer notes that of so many blocks, expected or found, so many were expected
// and missing, and so many found that were not expected.
func (t *trust) answer(missing, more, blocks int, now time.Time) judgement {
	if blocks <= 0 {
		return asBefore
	}
	share := func(n int) float64 { return float64(min(n, blocks)) / float64(blocks) }
	t.drift += weight * (share(missing+more) - t.drift)
	t.claims += weight * (share(missing) - t.claims)
	t.seen = min(t.seen+1, enough)
	if t.seen < enough {
		return asBefore
	}
	switch {
	case t.believed() && t.drift > tooWrong:
		t.patience = longer(t.patience, now.Sub(t.resynced))
		t.doubted = now
		t.afresh(now)
		return doubt
	case t.believed():
		return asBefore
	case now.Sub(t.resynced) < t.patience:
		return asBefore
	case t.drift < rightAgain, t.drift <= tooWrong && now.Sub(t.resynced) >= longestDoubt:
		t.doubted = time.Time{}
		return believe
	case t.drift > tooWrong:
		t.patience = longer(t.patience, 0)
		t.afresh(now)
		return again
	}
	return asBefore
}

// longer returns how long to be patient the next time, so long after the last.
func longer(patience, since time.Duration) time.Duration {
	if since > 4*longestDoubt {
		return firstDoubt
	}
	return min(max(firstDoubt, 2*patience), longestDoubt)
}

// afresh forgets what was seen of an index that is no more.
func (t *trust) afresh(now time.Time) {
	t.drift, t.seen, t.resynced = 0, 0, now
}

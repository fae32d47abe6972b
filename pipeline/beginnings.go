package pipeline

import (
	"container/list"
	"sync"
	"time"
)

// mostBeginnings is how many sessions are known by their beginning, of about 200
// bytes each.
const mostBeginnings = 1 << 16

// beginnings are the moments at which sessions were first seen: the day that their
// prompts tell as today, on every turn, so that no prompt parts from the one before
// at midnight. It is safe for concurrent use.
type beginnings struct {
	limit int

	mu    sync.Mutex
	known map[session]*list.Element
	used  list.List // of *beginning, the latest in use first
}

type beginning struct {
	session session
	at      time.Time
}

func newBeginnings(limit int) *beginnings {
	return &beginnings{limit: limit, known: map[session]*list.Element{}}
}

// of returns when a session began, which is now if it is not known. The session
// that was used least lately makes room.
func (b *beginnings) of(s session, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.known[s]; e != nil {
		b.used.MoveToFront(e)
		return e.Value.(*beginning).at
	}
	b.known[s] = b.used.PushFront(&beginning{s, now})
	if b.used.Len() > b.limit {
		delete(b.known, b.used.Remove(b.used.Back()).(*beginning).session)
	}
	return now
}

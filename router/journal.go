package router

import (
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Journal is an [Observer] that keeps the newest decisions for people who want to
// know why, a bounded number of each second: all of them where little goes on,
// and a sample where that would cost too much. Nothing of a prompt is in it. Its
// methods may be called from any goroutine.
type Journal struct {
	perSecond int
	now       func() time.Time

	mu      sync.Mutex
	second  time.Time // when the one began that is counted
	taken   int       // in it
	missed  uint64    // decisions that are not in the journal
	entries []Entry   // a ring once it is full
	next    int       // where the next one goes
}

// Entry is one decision.
type Entry struct {
	At        time.Time
	ID, Model string
	Role      engine.Role
	Target    kv.Target
	Worker    string // name
	Reason    Reason
	Session   SessionUse
	Class     string        // in which it waited; "": it did not
	Queue     time.Duration // waited
	Routing   time.Duration // deciding, after that

	PromptTokens, CachedTokens int
	Candidates                 int
	// Best are the four cheapest candidates, the last of which makes room for the one
	// taken if it is none of them.
	Best []Price
}

// Price is what a request would have cost somewhere.
type Price struct {
	Target kv.Target
	Worker string
	Cost   float64 // blocks of BlockSize
	Terms  Terms
	Cached int // blocks, over all tiers
	// BlockSize is in tokens.
	BlockSize int
}

// mostPrices is how many candidates an entry shows.
const mostPrices = 4

// NewJournal keeps up to size decisions, and up to perSecond of each second; both
// are at least 1. now is nil for the real time.
func NewJournal(size, perSecond int, now func() time.Time) *Journal {
	if now == nil {
		now = time.Now
	}
	return &Journal{perSecond: perSecond, now: now, entries: make([]Entry, 0, size)}
}

// Routed implements [Observer].
func (j *Journal) Routed(d *Decision, w *Work) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if now.Sub(j.second) >= time.Second {
		j.second, j.taken = now, 0
	}
	if j.taken == j.perSecond {
		j.missed++
		return
	}
	j.taken++
	rows, taken := w.Best(mostPrices)
	e := Entry{
		At: now, ID: w.ID, Model: d.Model, Role: w.Role, Target: d.Target, Worker: rows[taken].Worker.Name(),
		Reason: Compare(rows, taken).Reason, Session: d.Session, Class: d.Class, Queue: d.Queue, Routing: d.Routing,
		PromptTokens: w.PromptTokens, CachedTokens: d.CachedTokens, Candidates: w.Candidates,
		Best: make([]Price, len(rows)),
	}
	if w.query.pinned() {
		e.Reason = ReasonPin
	}
	for i := range rows {
		c := &rows[i]
		e.Best[i] = Price{
			Target: c.Target, Worker: c.Worker.Name(), Cost: c.Cost, Terms: c.Terms,
			Cached: c.Device + c.Host + c.Disk, BlockSize: c.BlockSize,
		}
	}
	if len(j.entries) < cap(j.entries) {
		j.entries = append(j.entries, e)
		return
	}
	j.entries[j.next] = e
	j.next = (j.next + 1) % len(j.entries)
}

// Ended implements [Observer].
func (*Journal) Ended(*Outcome) {}

// Find returns the newest decision about a request that came at since or later: the one
// about who computes its prompt, where it had two. ok is false for one that is not kept,
// or no longer.
func (j *Journal) Find(id string, since time.Time) (e Entry, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.entries {
		c := &j.entries[(j.next-1-i+2*len(j.entries))%len(j.entries)]
		if c.At.Before(since) {
			break
		}
		if c.ID != id || ok && c.Role == engine.Decode {
			continue
		}
		if e, ok = *c, true; c.Role != engine.Decode {
			break
		}
	}
	return e, ok
}

// Entries returns up to n entries of a model, or of all if it is "", the newest
// first, and how many decisions have not been kept because too many came at once.
// The entries must not be changed.
func (j *Journal) Entries(n int, model string) (list []Entry, missed uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.entries {
		at := (j.next - 1 - i + 2*len(j.entries)) % len(j.entries)
		if len(list) == n {
			break
		}
		if e := j.entries[at]; model == "" || e.Model == model {
			list = append(list, e)
		}
	}
	return list, j.missed
}

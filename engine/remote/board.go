package remote

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
)

// board holds the latest that is known of a worker, for any number of readers.
// Whoever is slow misses what was overtaken, and delays nobody.
type board struct {
	mu      sync.Mutex
	now     posted
	changed chan struct{}
}

// posted is what is known at one moment.
type posted struct {
	status engine.Status
	load   engine.Load // none: unknown
	loadAt time.Time   // when it was true
	loads  uint64      // how many there were
	closed bool        // nothing will be posted any more
}

func newBoard(s engine.Status) *board {
	return &board{now: posted{status: s}, changed: make(chan struct{})}
}

// read returns what is known, and a channel that is closed at the next change.
func (b *board) read() (posted, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.changed
}

// status returns the latest one.
func (b *board) status() engine.Status {
	now, _ := b.read()
	return now.status
}

// edit changes what is known, if change says that it did.
func (b *board) edit(change func(p *posted) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.closed || !change(&b.now) {
		return
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) post(s engine.Status) {
	b.edit(func(p *posted) bool {
		if p.status == s {
			return false
		}
		if s.Epoch != p.status.Epoch {
			p.load, p.loadAt = engine.Load{}, time.Time{}
		}
		p.status = s
		return true
	})
}

func (b *board) postLoad(l engine.Load, at time.Time) {
	b.edit(func(p *posted) bool {
		p.load, p.loadAt = l, at
		p.loads++
		return true
	})
}

// close ends the sequences of all readers.
func (b *board) close() {
	b.edit(func(p *posted) bool {
		p.closed = true
		return true
	})
}

// statuses yields what is known now and every change that is seen.
func (b *board) statuses(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		var told engine.Status
		for first := true; ctx.Err() == nil; first = false {
			now, changed := b.read()
			if first || now.status != told {
				if told = now.status; !yield(told, nil) {
					return
				}
				continue
			}
			if now.closed {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// loads yields each reading that is seen, the one that is known first.
func (b *board) loads(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		var told uint64
		for ctx.Err() == nil {
			now, changed := b.read()
			if now.loads != told && len(now.load.Ranks) > 0 {
				if told = now.loads; !yield(now.load, nil) {
					return
				}
				continue
			}
			if now.closed {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

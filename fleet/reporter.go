package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Reporter tells of one worker that nobody follows: whoever knows it says what
// it is and what its cache does. There is no goroutine and no clock behind it,
// and when a call returns, everybody has heard. What is told goes through the
// same hands as with an engine that is followed.
//
// Its methods may be called from any goroutine. After the worker has left they
// do nothing.
type Reporter struct {
	mu sync.Mutex // one report at a time
	f  *follower
}

// Report lets a worker join of which the caller tells. Its engine may be nil;
// it is never asked for anything but generation.
func (f *Fleet) Report(e Entry) (*Reporter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := cmp.Or(e.ID, ID(e.Name)); f.parting[id] != nil {
		return nil, fmt.Errorf("fleet: add %q (id %d): the worker that had the id has not left yet", e.Name, id)
	}
	w, err := f.joinLocked(e)
	if err != nil {
		return nil, err
	}
	r := &Reporter{f: newFollower(w, slices.Clone(f.sinks))}
	r.f.reported = true
	w.stop = r.end
	return r, nil
}

// end makes everybody forget the worker.
func (r *Reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over() {
		r.f.forget()
		close(r.f.done)
	}
}

func (r *Reporter) over() bool {
	select {
	case <-r.f.done:
		return true
	default:
		return false
	}
}

// Worker returns the worker that is told of.
func (r *Reporter) Worker() *Worker { return r.f.Worker }

// Status tells what the worker is. Another epoch ends the life before it.
func (r *Reporter) Status(s engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over() {
		r.f.become(context.Background(), s) // nothing is started
	}
}

// Load tells the engine's own load, read at some time.
func (r *Reporter) Load(l engine.Load, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over() {
		r.f.Worker.load.Store(&reading{load: l, at: at})
		r.f.overloaded.Store(0)
	}
}

// Events tells what happened in the worker's cache. The slices of b must not
// change any more. It is an error if events are missing before b, or if no card
// was told; then all of the rank has to be told again, as [Reporter.Wanted] says.
func (r *Reporter) Events(b kv.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	card := r.f.Card()
	switch {
	case r.over():
		return nil
	case card == nil:
		return errors.New("fleet: KV events of a worker whose card is not known")
	case r.f.hear(card, b) == hole:
		r.f.anew.Store(true)
		return fmt.Errorf("fleet: KV events of rank %d are missing before number %d", b.Rank, b.First)
	}
	return nil
}

// Wanted says whether somebody wants all events told anew. What was told before
// is then void already; a snapshot of every rank is to follow.
func (r *Reporter) Wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over() || !r.f.anew.Swap(false) {
		return false
	}
	r.f.order.restart()
	_, broken := r.f.order.resume()
	for _, rank := range broken {
		r.f.tell(kv.Batch{Rank: rank, Gap: kv.GapLost})
	}
	return true
}

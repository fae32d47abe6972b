package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Sink is where records go. Its methods are called by one goroutine, one at a time.
type Sink interface {
	// Name is what metrics and logs call it: "file", "stderr", "otel".
	Name() string
	// Write takes records in the order in which they were published. It may hold back what
	// it makes of them, but neither them nor the slice. What it cannot keep it drops, and says how
	// many by [Lost]. It must return soon after ctx is done.
	Write(ctx context.Context, records []*Record) error
	// Close writes what was held back and lets go of everything, within the time that
	// ctx leaves.
	Close(ctx context.Context) error
}

// Ticker is a [Sink] that has something to do from time to time, such as to write
// what it holds back.
type Ticker interface {
	Sink
	// Interval is the time between two calls of Tick.
	Interval() time.Duration
	Tick(ctx context.Context) error
}

// Backlogger is a [Sink] that may be slow for a while, and for which so many records
// are kept at least.
type Backlogger interface {
	Sink
	Backlog() int
}

// Lost is the error of a sink that has dropped records.
type Lost struct {
	Records int
	Err     error
}

// Error implements error.
func (e *Lost) Error() string { return fmt.Sprintf("%d records are lost: %v", e.Records, e.Err) }

// Unwrap returns why.
func (e *Lost) Unwrap() error { return e.Err }

// Bus carries records to sinks. Its zero value has none, and its methods may be called
// at the same time.
type Bus struct {
	mu      sync.RWMutex
	workers []*worker
	closed  bool
}

// Status is what became of the records of one sink.
type Status struct {
	Sink string
	// Published counts all records that were meant for it, Dropped those of them that it
	// has not got, because it was too slow, or could not keep, and Failed the errors that
	// it has told.
	Published, Dropped, Failed uint64
}

// NewBus returns a bus that holds up to capacity records for each sink which has not
// come to them yet, or as many as a [Backlogger] wants, and drops the oldest of more.
// log is told of what goes wrong.
func NewBus(capacity int, log *slog.Logger, sinks ...Sink) *Bus {
	b := new(Bus)
	for _, s := range sinks {
		slots := max(1, capacity)
		if b, ok := s.(Backlogger); ok {
			slots = max(slots, b.Backlog())
		}
		w := &worker{
			sink: s, log: log, ring: ring{slots: make([]*Record, slots)},
			wake: make(chan struct{}, 1), linger: time.NewTimer(longest), stop: make(chan struct{}), done: make(chan struct{}),
		}
		w.ctx, w.cancel = context.WithCancel(context.Background())
		b.workers = append(b.workers, w)
		go w.run()
	}
	return b
}

// Publish hands a record to all sinks. It never waits for one.
func (b *Bus) Publish(r *Record) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return
	}
	r.pending = int32(len(b.workers))
	for _, w := range b.workers {
		w.publish(r)
	}
}

// Status tells of each sink.
func (b *Bus) Status() []Status {
	list := make([]Status, len(b.workers))
	for i, w := range b.workers {
		list[i] = w.status()
	}
	return list
}

// Close takes no more records, lets each sink write what it has got, and closes it.
// What is not written when ctx is done is lost.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return nil
	}
	for _, w := range b.workers {
		w.deadline.Store(&ctx)
		close(w.stop)
	}
	var errs []error
	for _, w := range b.workers {
		select {
		case <-w.done:
			errs = append(errs, w.err)
		case <-ctx.Done():
			w.cancel()
			errs = append(errs, &lateError{w.sink.Name(), ctx.Err()})
		}
	}
	return errors.Join(errs...)
}

// lateError says that a sink was not done in time.
type lateError struct {
	sink string
	err  error
}

func (e *lateError) Error() string {
	return "trace sink " + e.sink + ": not all records were written in time"
}

func (e *lateError) Unwrap() error { return e.err }

// A sink is not woken for each record, which would cost the processor more than
// writing it, but for a batch, or when the first one of a batch has waited for as
// long as no reader of a trace minds.
const (
	batchRecords = 64
	batchBytes   = 1 << 20 // of what was said
	longest      = 100 * time.Millisecond
)

// worker brings records to one sink.
type worker struct {
	sink   Sink
	log    *slog.Logger
	wake   chan struct{} // holds a token when there is a batch in the ring
	linger *time.Timer   // goes off when there may be less in it
	stop   chan struct{}
	done   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	// deadline is the context of Close.
	deadline atomic.Pointer[context.Context]
	err      error // of closing; set before done is closed

	failed, lost atomic.Uint64

	mu   sync.Mutex
	ring ring
}

func (w *worker) publish(r *Record) {
	w.mu.Lock()
	w.ring.push(r)
	first, batch := w.ring.held == 1, w.ring.batch()
	w.mu.Unlock()
	switch {
	case batch:
		select {
		case w.wake <- struct{}{}:
		default:
		}
	case first:
		w.linger.Reset(longest)
	}
}

func (w *worker) status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{w.sink.Name(), w.ring.pushed, w.ring.dropped + w.lost.Load(), w.failed.Load()}
}

// run brings what comes to the sink until it is told to stop, then the rest.
func (w *worker) run() {
	defer close(w.done)
	defer w.cancel()
	defer w.linger.Stop()
	var tick <-chan time.Time
	ticking, _ := w.sink.(Ticker)
	if ticking != nil {
		t := time.NewTicker(max(time.Millisecond, ticking.Interval()))
		defer t.Stop()
		tick = t.C
	}
	batch := make([]*Record, 0, batchRecords)
	var told uint64
	for {
		select {
		case <-w.wake:
			told = w.drain(w.ctx, batch, told)
		case <-w.linger.C:
			told = w.drain(w.ctx, batch, told)
		case <-tick:
			// What a sink then does from time to time it does for all that has come.
			told = w.drain(w.ctx, batch, told)
			w.heed(ticking.Tick(w.ctx))
		case <-w.stop:
			ctx := *w.deadline.Load()
			w.drain(ctx, batch, told)
			w.err = w.sink.Close(ctx)
			w.heed(w.err)
			return
		}
	}
}

// drain brings to the sink what is in the ring, and says what was lost since told
// records were. It returns how many are lost by now.
func (w *worker) drain(ctx context.Context, batch []*Record, told uint64) uint64 {
	for ctx.Err() == nil {
		w.mu.Lock()
		batch = w.ring.pop(batch[:0])
		dropped := w.ring.dropped
		w.mu.Unlock()
		if dropped > told {
			w.log.Warn("trace sink is too slow, its oldest records are dropped", "sink", w.sink.Name(), "records", dropped-told)
			told = dropped
		}
		if len(batch) == 0 {
			break
		}
		for _, r := range batch {
			r.whole()
		}
		w.heed(w.sink.Write(ctx, batch))
		for _, r := range batch {
			r.done()
		}
		clear(batch)
	}
	return told
}

// heed counts an error of the sink, and logs the 1st, 2nd, 4th, 8th of them.
func (w *worker) heed(err error) {
	if err == nil {
		return
	}
	w.lost.Add(uint64(lost(err)))
	if n := w.failed.Add(1); n&(n-1) == 0 {
		w.log.Warn("trace sink fails", "sink", w.sink.Name(), "error", err, "times", n)
	}
}

// lost adds up the records that an error, or those that it joins, says are lost.
func lost(err error) (n int) {
	switch e := err.(type) {
	case *Lost:
		return e.Records
	case interface{ Unwrap() error }:
		return lost(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			n += lost(err)
		}
	}
	return n
}

// ring holds the newest records that were not taken yet.
type ring struct {
	slots           []*Record
	first, held     int
	bytes           int // of what was said
	pushed, dropped uint64
}

// mostBytes is how much of what was said a ring holds: a sink that hangs must not
// take the memory that requests need.
const mostBytes = 256 << 20

// push adds a record, in place of the oldest ones if there is no room.
func (r *ring) push(rec *Record) {
	r.pushed++
	size := rec.bytes()
	for r.held == len(r.slots) || r.held > 0 && r.bytes+size > mostBytes {
		r.dropped++
		r.take().done()
	}
	r.slots[(r.first+r.held)%len(r.slots)] = rec
	r.held++
	r.bytes += size
}

// batch says whether it is time to come for what is held: well before there is no
// room for more.
func (r *ring) batch() bool {
	return r.held >= min(batchRecords, (len(r.slots)+1)/2) || r.bytes >= batchBytes
}

// take removes the oldest record.
func (r *ring) take() *Record {
	rec := r.slots[r.first]
	r.slots[r.first] = nil
	r.first = (r.first + 1) % len(r.slots)
	r.held--
	r.bytes -= rec.bytes()
	return rec
}

// pop takes the oldest records, as many as batch has room for.
func (r *ring) pop(batch []*Record) []*Record {
	for r.held > 0 && len(batch) < cap(batch) {
		batch = append(batch, r.take())
	}
	return batch
}

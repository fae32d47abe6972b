// Package sse writes the answer of a streaming request: the status line, server-
// sent events, keep-alives, and the one error or final frame that ends them.
//
// The one idea: a stage on the way of an answer owns no timer, so the object at
// its very end does. [Writer] holds the status line back until it is known
// whether the answer begins or fails, keeps a silent stream alive, and bundles
// what a fast one writes, all under one lock and with one timer; whoever feeds
// it just calls Event in a loop.
package sse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
)

// Protocol is what one API puts around its events. Its methods are called with
// the writer's lock held, from the goroutine that feeds the writer or from its
// timer, never both at once.
type Protocol interface {
	// AppendOpening appends the frames with which a stream begins, if any.
	AppendOpening(dst []byte) []byte
	// AppendFailure appends the frames with which a stream ends that fails after
	// the status line.
	AppendFailure(dst []byte, err error) []byte
	// AppendEnd appends the final frame of a stream that does not fail.
	AppendEnd(dst []byte) []byte
	// AppendPing appends a sign of life.
	AppendPing(dst []byte) []byte
	// Refuse answers a request that fails before the status line.
	Refuse(w http.ResponseWriter, err error)
}

// Comment is the keep-alive that every client of server-sent events ignores.
const Comment = ": keep-alive\n\n"

// Timing is when a [Writer] acts on its own.
type Timing struct {
	// Hold is how long after the request's arrival the status line may wait for
	// the first event; 0 sends it at once.
	Hold time.Duration
	// KeepAlive is the silence after which a ping is sent; 0 is never.
	KeepAlive time.Duration
	// Write is how long the client may take to accept one flush, at most; at
	// least it has 7/8 of that. 0 is for ever.
	Write time.Duration
	// Coalesce is the shortest time between two flushes. An event that comes
	// sooner waits in a buffer, and later ones join it; 0 flushes every event.
	Coalesce time.Duration
	// CoalesceMost is what that time grows to, by doubling, while each flush
	// takes several events along. A stream whose events come one by one never
	// waits longer than Coalesce.
	CoalesceMost time.Duration
}

// Defaults are the timings of a server without settings.
var Defaults = Timing{
	Hold:         15 * time.Second,
	KeepAlive:    15 * time.Second,
	Write:        60 * time.Second,
	Coalesce:     time.Millisecond,
	CoalesceMost: 8 * time.Millisecond,
}

// maxBuffered is how many bytes may wait for a bundled flush.
const maxBuffered = 16 << 10

// ErrClosed is returned for an event after the end of the stream.
var ErrClosed = errors.New("sse: the stream has ended")

type state uint8

const (
	held state = iota
	open
	closed
)

// Writer writes one streamed answer. It is made when the handler starts and must
// be ended by Close or Fail before the handler returns; no byte is written after
// either has returned.
//
// A write that fails or is overdue cancels the request with
// [engine.ErrClientGone] as cause and closes the writer.
type Writer struct {
	protocol Protocol
	timing   Timing
	cancel   context.CancelCauseFunc

	mu    sync.Mutex
	state state
	rw    http.ResponseWriter
	ctl   *http.ResponseController
	// pending waits for the flush at due. It comes from buffers and goes back
	// there, so that an idle stream holds no memory.
	pending *[]byte
	// flushed is when the last flush began, and window how long after it the
	// next one may begin.
	flushed time.Time
	window  time.Duration
	// waiting counts the events in pending.
	waiting int
	// deadlined is when the connection's write deadline was set.
	deadlined time.Time
	// wake is when the timer fires next; zero when it is not set.
	wake  time.Time
	timer *time.Timer
	// missed is set by a timer that found the lock taken; whoever holds the lock
	// then lets the timer fire again.
	missed atomic.Bool
	// broken is why a write failed, whoever made it.
	broken error
}

var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 2048)) }}

// NewWriter returns a writer for the answer to a request that came at arrived.
// Nothing is sent before the first event, failure, or the end of timing.Hold.
// cancel ends the request.
func NewWriter(rw http.ResponseWriter, p Protocol, arrived time.Time, timing Timing, cancel context.CancelCauseFunc) *Writer {
	w := &Writer{protocol: p, timing: timing, cancel: cancel, rw: rw, ctl: http.NewResponseController(rw)}
	w.mu.Lock()
	defer w.unlock()
	w.wake = arrived.Add(timing.Hold)
	w.timer = time.AfterFunc(time.Until(w.wake), w.tick)
	return w
}

// Event sends frames, which are complete: data lines and the blank line that
// ends them. The first event opens the stream. b may be used again when Event
// returns. The error wraps [engine.ErrClientGone] if this or an earlier write has
// failed, that of the timer included; after the end it is [ErrClosed].
func (w *Writer) Event(b []byte) error {
	now := time.Now()
	w.mu.Lock()
	defer w.unlock()
	switch {
	case w.state == closed:
		return cmp.Or(w.broken, ErrClosed)
	case w.state == held:
		w.begin()
	case now.Sub(w.flushed) < w.window && len(b)+w.buffered() < maxBuffered:
		w.buffer(b)
		w.waiting++
		w.arm(now, w.flushed.Add(w.window))
		return nil
	}
	if w.pending != nil {
		w.buffer(b)
		w.waiting++
		return w.flush(now)
	}
	err := w.write(now, b)
	w.rearm(now)
	return err
}

// SetHeader sets a header of the answer, unless the status line has been sent.
func (w *Writer) SetHeader(name, value string) {
	w.mu.Lock()
	defer w.unlock()
	if w.state == held {
		w.rw.Header().Set(name, value)
	}
}

// Fail ends the stream with an error: with its real status if none was sent yet,
// else with the API's own frames. It does nothing on an ended stream.
func (w *Writer) Fail(err error) {
	w.mu.Lock()
	defer w.unlock()
	switch w.state {
	case held:
		w.close()
		w.deadline(time.Now())
		w.protocol.Refuse(w.rw, err)
	case open:
		w.finish(func(dst []byte) []byte { return w.protocol.AppendFailure(dst, err) })
	}
}

// Close ends the stream with the API's final frame. On an ended stream it does
// nothing but tell of a write that has failed.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.unlock()
	switch w.state {
	case closed:
		return w.broken
	case held:
		w.begin()
	}
	return w.finish(w.protocol.AppendEnd)
}

// Abandon ends the stream without another byte, for a client that has gone.
func (w *Writer) Abandon() {
	w.mu.Lock()
	defer w.unlock()
	w.close()
}

// Opened says whether the status line has been sent.
func (w *Writer) Opened() bool {
	w.mu.Lock()
	defer w.unlock()
	return w.state == open
}

// begin sets the headers, but for a content type that has been set, and puts status line and opening frames before what is
// written next.
func (w *Writer) begin() {
	h := w.rw.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/event-stream")
	}
	h.Set("Cache-Control", "no-cache")
	// Proxies that buffer answers would turn a stream into one late block.
	h.Set("X-Accel-Buffering", "no")
	w.rw.WriteHeader(http.StatusOK)
	w.state = open
	w.append(w.protocol.AppendOpening)
}

func (w *Writer) finish(last func([]byte) []byte) error {
	w.append(last)
	err := w.flush(time.Now())
	w.close()
	return err
}

func (w *Writer) close() {
	w.state = closed
	w.timer.Stop()
	w.release()
}

// tick is the timer. A taken lock means that a write is in progress, which is
// the sign of life that the timer would give.
func (w *Writer) tick() {
	if !w.mu.TryLock() {
		w.missed.Store(true)
		if !w.mu.TryLock() {
			return
		}
		w.missed.Store(false)
	}
	defer w.unlock()
	w.wake = time.Time{}
	now := time.Now()
	switch {
	case w.state == closed:
		return
	case w.state == held:
		w.begin()
		w.flush(now)
	case w.pending != nil && now.Sub(w.flushed) >= w.window:
		w.flush(now)
	case w.pending == nil && w.timing.KeepAlive > 0 && now.Sub(w.flushed) >= w.timing.KeepAlive:
		w.append(w.protocol.AppendPing)
		w.flush(now)
	}
	w.rearm(now)
}

// rearm sets the timer for whatever is due next.
func (w *Writer) rearm(now time.Time) {
	switch {
	case w.state != open:
	case w.pending != nil:
		w.arm(now, w.flushed.Add(w.window))
	case w.timing.KeepAlive > 0:
		w.arm(now, w.flushed.Add(w.timing.KeepAlive))
	}
}

// arm lets the timer fire at t at the latest. A timer that fires too soon finds
// nothing to do and arms itself again, which is cheaper than moving it with
// every event.
func (w *Writer) arm(now, t time.Time) {
	if !w.wake.IsZero() && !t.Before(w.wake) {
		return
	}
	w.wake = t
	w.timer.Reset(t.Sub(now))
}

// unlock lets a timer that came while the lock was held fire again.
func (w *Writer) unlock() {
	w.mu.Unlock()
	if w.missed.Load() && w.missed.CompareAndSwap(true, false) {
		w.timer.Reset(0)
	}
}

func (w *Writer) buffered() int {
	if w.pending == nil {
		return 0
	}
	return len(*w.pending)
}

func (w *Writer) buffer(b []byte) {
	w.append(func(dst []byte) []byte { return append(dst, b...) })
}

// append adds to what waits, and takes a buffer only if there is something.
func (w *Writer) append(f func([]byte) []byte) {
	if w.pending == nil {
		w.pending = buffers.Get().(*[]byte)
	}
	*w.pending = f(*w.pending)
	if len(*w.pending) == 0 {
		w.release()
	}
}

func (w *Writer) release() {
	if w.pending == nil {
		return
	}
	if cap(*w.pending) <= 2*maxBuffered {
		*w.pending = (*w.pending)[:0]
		buffers.Put(w.pending)
	}
	w.pending = nil
}

// flush sends what waits, or just the headers.
func (w *Writer) flush(now time.Time) error {
	var b []byte
	if w.pending != nil {
		b = *w.pending
	}
	err := w.write(now, b)
	w.release()
	w.rearm(now)
	return err
}

func (w *Writer) write(now time.Time, b []byte) error {
	w.flushed = now
	if w.waiting > 1 {
		w.window = min(2*w.window, max(w.timing.Coalesce, w.timing.CoalesceMost))
	} else {
		w.window = w.timing.Coalesce
	}
	w.waiting = 0
	w.deadline(now)
	var err error
	if len(b) > 0 {
		_, err = w.rw.Write(b)
	}
	if err == nil {
		err = w.ctl.Flush()
	}
	if err != nil {
		w.broken = fmt.Errorf("sse: write: %w: %w", engine.ErrClientGone, err)
		w.close()
		w.cancel(engine.ErrClientGone)
	}
	return w.broken
}

// deadline gives the client time to accept the next flush. Moving the deadline
// costs more than encoding an event, so one that is young enough stays. A
// connection that knows no deadlines (a test's recorder) has none.
func (w *Writer) deadline(now time.Time) {
	if w.timing.Write > 0 && now.Sub(w.deadlined) > w.timing.Write/8 {
		w.deadlined = now
		w.ctl.SetWriteDeadline(now.Add(w.timing.Write)) //nolint:errcheck // see above
	}
}

package kvevent_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// network is made of buffers, so that time in it is that of synctest.
type network struct {
	mu        sync.Mutex
	listeners map[string]*pipes
	dials     int
}

func newNetwork() *network { return &network{listeners: make(map[string]*pipes)} }

func (n *network) options() zmtp.Options {
	return zmtp.Options{Dial: n.dial, Listen: n.listen, Jitter: func() float64 { return 0.5 }}
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := connection()
	select {
	case l.accepts <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialled is how many connections were asked for.
func (n *network) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

func (n *network) listen(_ context.Context, _, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &pipes{network: n, address: address, accepts: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// pipes is a listener.
type pipes struct {
	network *network
	address string
	accepts chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepts:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, l.address)
	})
	return nil
}

func (l *pipes) Addr() net.Addr  { return l }
func (l *pipes) Network() string { return "tcp" }
func (l *pipes) String() string  { return l.address }

// wire is one direction of a connection.
type wire struct {
	mu     sync.Mutex
	moved  sync.Cond
	bytes  []byte
	closed bool
	until  time.Time // a read that begins, or waits, then fails
}

// wireBytes is how much is under way at most.
const wireBytes = 64 << 10

// end is one end of a connection. Its writes have no deadlines.
type end struct{ in, out *wire }

func connection() (near, far net.Conn) {
	a, b := new(wire), new(wire)
	a.moved.L, b.moved.L = &a.mu, &b.mu
	return end{a, b}, end{b, a}
}

func (e end) Read(p []byte) (int, error) {
	w := e.in
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.bytes) == 0 {
		if w.closed {
			return 0, io.EOF
		}
		if !w.until.IsZero() && !time.Now().Before(w.until) {
			return 0, os.ErrDeadlineExceeded
		}
		w.moved.Wait()
	}
	n := copy(p, w.bytes)
	w.bytes = w.bytes[n:]
	w.moved.Broadcast()
	return n, nil
}

func (e end) Write(p []byte) (int, error) {
	w := e.out
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := 0; ; {
		if w.closed {
			return n, net.ErrClosed
		}
		some := min(len(p)-n, wireBytes-len(w.bytes))
		w.bytes = append(w.bytes, p[n:n+some]...)
		w.moved.Broadcast()
		if n += some; n == len(p) {
			return n, nil
		}
		w.moved.Wait()
	}
}

// Close ends both directions; what is under way still arrives.
func (e end) Close() error {
	for _, w := range []*wire{e.in, e.out} {
		w.mu.Lock()
		w.closed = true
		w.moved.Broadcast()
		w.mu.Unlock()
	}
	return nil
}

// SetReadDeadline implements [net.Conn].
func (e end) SetReadDeadline(t time.Time) error {
	w := e.in
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = t
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.moved.Broadcast()
		})
	}
	return nil
}

func (e end) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (e end) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (e end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }
func (e end) SetWriteDeadline(time.Time) error { return nil }

// fakeEngine publishes and replays as engines do.
type fakeEngine struct {
	t          *testing.T
	net        *network
	rank       uint32
	events     string
	replays    string // "" = no replay
	connects   bool   // the PUB socket, instead of listening
	topicFrame bool   // in replays
	keeps      int
	log        *slog.Logger // of the source

	pub    *zmtp.Pub
	router *zmtp.Router
	done   chan struct{}

	mu     sync.Mutex
	next   uint64
	buffer []kvevent.Message
	silent bool
	stuck  bool // replays one message and no more
	holds  map[kv.EngineHash]kv.LocalHash
	clock  float64
}

// start begins a life.
func (e *fakeEngine) start() {
	e.t.Helper()
	e.mu.Lock()
	e.next, e.buffer, e.holds = 0, nil, make(map[kv.EngineHash]kv.LocalHash)
	if e.keeps == 0 {
		e.keeps = 10_000
	}
	e.mu.Unlock()
	ctx := context.Background()
	e.pub, e.done = zmtp.NewPub(e.net.options()), make(chan struct{})
	var err error
	if e.connects {
		err = e.pub.Connect(e.events)
	} else {
		_, err = e.pub.Bind(ctx, e.events)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	if e.replays == "" {
		close(e.done)
		return
	}
	e.router = zmtp.NewRouter(e.net.options())
	if _, err := e.router.Bind(ctx, e.replays); err != nil {
		e.t.Fatal(err)
	}
	go e.answer()
}

// stop ends it.
func (e *fakeEngine) stop() {
	_ = e.pub.Close()
	if e.router != nil {
		_ = e.router.Close()
	}
	<-e.done
}

// answer replays.
func (e *fakeEngine) answer() {
	defer close(e.done)
	ctx := context.Background()
	for m, err := range e.router.Messages(ctx) {
		if err != nil {
			return
		}
		if m.Event != zmtp.Data || len(m.Parts) != 2 || len(m.Parts[1]) != 8 {
			continue
		}
		e.mu.Lock()
		buffer, silent, stuck := e.buffer, e.silent, e.stuck
		e.mu.Unlock()
		if silent {
			continue
		}
		send := func(seq uint64, payload []byte) {
			parts := [][]byte{nil}
			if e.topicFrame {
				parts = append(parts, []byte("kv"))
			}
			parts = append(parts, binary.BigEndian.AppendUint64(nil, seq), payload)
			_ = e.router.Send(ctx, m.Peer, parts...)
		}
		for _, b := range buffer {
			if b.Seq >= binary.BigEndian.Uint64(m.Parts[1]) {
				send(b.Seq, b.Payload)
				if stuck {
					break
				}
			}
		}
		if stuck {
			continue
		}
		send(1<<64-1, nil)
	}
}

// publish publishes one message of events, which is lost on the way if lost is
// set.
func (e *fakeEngine) publish(lost bool, events ...any) {
	e.mu.Lock()
	e.clock++
	payload := pack(list{e.clock, list(events), e.rank})
	seq := e.next
	e.next++
	if e.buffer = append(e.buffer, kvevent.Message{Seq: seq, Payload: payload}); len(e.buffer) > e.keeps {
		e.buffer = e.buffer[1:]
	}
	e.mu.Unlock()
	if !lost {
		_ = e.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, seq), payload)
	}
}

// store publishes that a block without parent is there; remove that it is gone.
func (e *fakeEngine) store(hash int) {
	e.publish(false, e.stored(hash))
}

func (e *fakeEngine) stored(hash int) any {
	tokens := []uint32{uint32(hash), e.rank, 3, 4}
	e.holds[kv.EngineHash(hash)] = kv.HashBlock(tokens, kv.HashSeed)
	return list{"BlockStored", list{hash}, nil, tokens, 4, nil, "GPU"}
}

func (e *fakeEngine) removed(hash int) any {
	delete(e.holds, kv.EngineHash(hash))
	return list{"BlockRemoved", list{hash}, "GPU"}
}

func (e *fakeEngine) cleared() any {
	clear(e.holds)
	return list{"AllBlocksCleared"}
}

// receiver takes batches as [kv.Batch] says they are to be taken. Whoever reads
// its fields while batches come holds the lock.
type receiver struct {
	sync.Mutex
	ranks   map[uint32]*heard
	gaps    []kv.GapReason
	batches int
}

// heard is what is known of one rank.
type heard struct {
	epoch, last uint64
	numbered    bool
	state       string // "", partial, rebuilding, exact
	holds       map[kv.EngineHash]kv.LocalHash
}

func (r *receiver) take(b kv.Batch) error {
	r.Lock()
	defer r.Unlock()
	r.batches++
	h := r.ranks[b.Rank]
	if h == nil {
		h = &heard{holds: make(map[kv.EngineHash]kv.LocalHash), epoch: b.Epoch}
		if r.ranks == nil {
			r.ranks = make(map[uint32]*heard)
		}
		r.ranks[b.Rank] = h
	}
	switch {
	case b.Gap != "" && b.Epoch == h.epoch && h.state != "":
		return fmt.Errorf("a gap within epoch %d", b.Epoch)
	case b.Gap != "":
		r.gaps = append(r.gaps, b.Gap)
		*h = heard{holds: make(map[kv.EngineHash]kv.LocalHash), epoch: b.Epoch, state: "partial"}
	case b.Epoch != h.epoch:
		return fmt.Errorf("epoch %d after %d, and no gap", b.Epoch, h.epoch)
	}
	switch {
	case b.Snapshot != kv.SnapshotNone && h.numbered:
		return errors.New("a snapshot within a sequence")
	case b.Snapshot == kv.SnapshotPart:
		h.state = "rebuilding"
	case b.Snapshot == kv.SnapshotEnd:
		h.state, h.last, h.numbered = "exact", b.Last, true
	case len(b.Events) == 0:
		return nil
	case h.numbered && b.First != h.last+1, b.Last-b.First+1 != uint64(len(b.Events)):
		return fmt.Errorf("%d events %d to %d after %d", len(b.Events), b.First, b.Last, h.last)
	default:
		h.last, h.numbered = b.Last, true
	}
	for _, e := range b.Events {
		for _, block := range e.Blocks {
			if e.Kind == kv.Stored {
				h.holds[block.Engine] = block.Local
			} else {
				delete(h.holds, block.Engine)
			}
		}
		if e.Kind == kv.Cleared {
			clear(h.holds)
		}
	}
	return nil
}

// wantGaps says what is wrong with the gaps heard of since it was called last.
func (r *receiver) wantGaps(want ...kv.GapReason) error {
	r.Lock()
	defer r.Unlock()
	got := r.gaps
	r.gaps = nil
	if !slices.Equal(got, want) {
		return fmt.Errorf("gaps %v, want %v", got, want)
	}
	return nil
}

// anew forgets everything.
func (r *receiver) anew() {
	r.Lock()
	defer r.Unlock()
	r.ranks, r.gaps, r.batches = nil, nil, 0
}

func (r *receiver) cursors() []kv.Cursor {
	r.Lock()
	defer r.Unlock()
	var out []kv.Cursor
	for rank, h := range r.ranks {
		if h.numbered {
			out = append(out, kv.Cursor{Rank: rank, Epoch: h.epoch, Sequence: h.last})
		}
	}
	return out
}

// knows says what is wrong with what was heard of an engine.
func (r *receiver) knows(e *fakeEngine, state string) error {
	r.Lock()
	defer r.Unlock()
	h := r.ranks[e.rank]
	switch {
	case h == nil:
		return errors.New("nothing was heard")
	case h.state != state && (state != "partial" || h.state != ""):
		return fmt.Errorf("what is heard is %q and not %q", h.state, state)
	case state == "exact" && !maps.Equal(h.holds, e.holds):
		return fmt.Errorf("heard of %v, and the cache is %v", h.holds, e.holds)
	}
	for hash := range h.holds {
		if _, ok := e.holds[hash]; !ok {
			return fmt.Errorf("heard of %d, which is not there", hash)
		}
	}
	return nil
}

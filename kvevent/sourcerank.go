package kvevent

import (
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// rebindAfter is the wait before a port that was taken is tried again.
const rebindAfter = 5 * time.Second

// sourceRank is the shell around the order of one rank. What was told outlasts
// the loop over a source's events; connections, goroutines and timers do not.
type sourceRank struct {
	config   *SourceConfig
	endpoint Endpoint
	log      *slog.Logger

	// busy has room for one who works with the order, also while that waits for
	// the consumer to take a batch: live and replayed messages wait for each
	// other here.
	busy    chan struct{}
	order   *Order
	tell    teller
	past    OrderStats // of the orders before this one
	foreign uint64

	// Of the present loop.
	ctx       context.Context
	out       chan<- kv.Batch
	peer      *zmtp.Peer // the newest publisher
	joined    bool       // its messages arrive
	unreached bool       // it cannot be reached, which has been said
	timer     *time.Timer
	quit      context.CancelFunc // of the replay that runs
	run       sync.WaitGroup

	// restarted is whether health has found another life that the order has not
	// heard of; again makes the socket connect anew.
	lifeMu    sync.Mutex
	restarted bool
	again     context.CancelFunc

	statsMu sync.Mutex
	stats   SourceStats
}

func newSourceRank(c *SourceConfig, e Endpoint, epoch uint64) *sourceRank {
	r := &sourceRank{config: c, endpoint: e, log: c.Log.With("rank", e.Rank, "endpoint", e.Events), busy: make(chan struct{}, 1)}
	d := c.Decoder
	d.Rank = e.Rank
	r.tell = teller{rank: e.Rank, decoder: NewDecoder(d), epoch: epoch, send: r.send}
	r.order = r.newOrder()
	r.stats.Rank = e.Rank
	r.note()
	return r
}

func (r *sourceRank) newOrder() *Order {
	return NewOrder(OrderConfig{Replays: r.endpoint.Replay != "", Window: r.config.Window}, r)
}

// Apply, Clear, Rebuild and Complete implement [Effects], with Replay and Stop.

func (r *sourceRank) Apply(m Message) (bool, error) { return r.tell.Apply(m) }
func (r *sourceRank) Rebuild()                      { r.tell.Rebuild() }
func (r *sourceRank) Complete()                     { r.tell.Complete() }
func (r *sourceRank) Clear(reason kv.GapReason) {
	r.log.Warn("KV events of the rank are void", "reason", reason)
	r.tell.Clear(reason)
}

// send hands a batch to the consumer. One that is not taken, because the loop
// ends, is known by its number when the next loop begins.
func (r *sourceRank) send(b kv.Batch) {
	select {
	case r.out <- b:
	case <-r.ctx.Done():
	}
}

// listen follows the rank until ctx ends.
func (r *sourceRank) listen(ctx context.Context, out chan<- kv.Batch, from []kv.Cursor) {
	r.begin(ctx, out, from)
	defer r.end()
	for ctx.Err() == nil {
		r.connect(ctx)
	}
}

// enter waits for the order, and says whether the loop still goes on.
func (r *sourceRank) enter(ctx context.Context) bool {
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if ctx.Err() != nil {
		r.leave()
		return false
	}
	return true
}

func (r *sourceRank) leave() { <-r.busy }

// begin goes on where the consumer is, or tells everything anew.
func (r *sourceRank) begin(ctx context.Context, out chan<- kv.Batch, from []kv.Cursor) {
	r.busy <- struct{}{}
	defer r.leave()
	r.ctx, r.out = ctx, out
	r.timer = time.AfterFunc(time.Hour, func() { r.tick(ctx) })
	r.timer.Stop()
	i := slices.IndexFunc(from, func(c kv.Cursor) bool { return c.Rank == r.endpoint.Rank })
	if i >= 0 && r.tell.mode != rebuilding && r.tell.told && from[i].Epoch == r.tell.epoch && from[i].Sequence == r.tell.seq {
		r.order.Resumed(time.Now())
		r.settle()
		return
	}
	r.past.Add(r.order.Stats())
	r.past.Partial = false
	r.order = r.newOrder()
	r.tell.forget()
	r.tell.beginAnew(i >= 0)
	r.note()
}

// end ends the replay and the timer, and waits for them.
func (r *sourceRank) end() {
	r.busy <- struct{}{}
	r.peer, r.joined = nil, false
	r.order.Disconnected(time.Now())
	r.timer.Stop()
	r.note()
	r.leave()
	r.run.Wait()
}

// connect runs one socket, until ctx ends or it has to connect anew.
func (r *sourceRank) connect(ctx context.Context) {
	if !r.enter(ctx) {
		return
	}
	if r.isRestarted() {
		r.peer, r.joined = nil, false
		r.order.Restarted(time.Now())
		r.note()
	}
	r.leave()
	ctx, again := context.WithCancel(ctx)
	defer again()
	r.lifeMu.Lock()
	r.again = again
	if r.restarted {
		again()
	}
	r.lifeMu.Unlock()

	sub := zmtp.NewSub(r.config.Sockets)
	defer sub.Close()
	err := sub.Subscribe(r.config.Topic)
	switch {
	case err != nil:
	case r.endpoint.Bind:
		_, err = sub.Bind(ctx, r.endpoint.Events)
	default:
		err = sub.Connect(r.endpoint.Events)
	}
	if err != nil {
		r.log.Warn("cannot listen to KV events", "error", err, "retry", rebindAfter)
		select {
		case <-ctx.Done():
		case <-time.After(rebindAfter):
		}
		return
	}
	for m, err := range sub.Messages(ctx) {
		if err != nil || !r.enter(ctx) {
			return
		}
		r.hear(m)
		r.settle()
		r.leave()
	}
}

// hear takes what comes from the socket.
func (r *sourceRank) hear(m zmtp.Message) {
	switch m.Event {
	case zmtp.Failed:
		if !r.unreached {
			r.unreached = true
			r.log.Warn("publisher of KV events cannot be reached; it is tried again and again", "error", m.Err)
		}
	case zmtp.Connected:
		// Who has connected last is the one: a process that died can leave a
		// connection behind.
		r.peer, r.joined = m.Peer, false
	case zmtp.Lost:
		if m.Peer == r.peer {
			r.log.Info("publisher of KV events is gone", "error", m.Err)
			r.peer, r.joined = nil, false
			r.order.Disconnected(time.Now())
		}
	case zmtp.Subscribed:
		if m.Peer == r.peer {
			r.join()
		}
	case zmtp.Data:
		// A peer that sends something knows the subscription.
		if m.Peer == r.peer && len(m.Parts) == 3 && len(m.Parts[1]) == 8 {
			r.join()
			r.order.Live(time.Now(), Message{binary.BigEndian.Uint64(m.Parts[1]), m.Parts[2]})
		} else {
			r.foreign++
		}
	}
}

// join says to the order that messages arrive, once for each connection.
func (r *sourceRank) join() {
	if !r.joined {
		r.joined, r.unreached = true, false
		r.log.Info("publisher of KV events is connected")
		r.order.Connected(time.Now())
	}
}

// tick is called by the timer.
func (r *sourceRank) tick(ctx context.Context) {
	if r.enter(ctx) {
		r.order.Tick(time.Now())
		r.settle()
		r.leave()
	}
}

// settle follows each call of the order.
func (r *sourceRank) settle() {
	if at, ok := r.order.Deadline(); ok {
		r.timer.Reset(time.Until(at))
	}
	r.note()
}

// restart notes a new life, and connects anew to hear of it.
func (r *sourceRank) restart() {
	r.lifeMu.Lock()
	defer r.lifeMu.Unlock()
	r.restarted = true
	if r.again != nil {
		r.again()
	}
}

// isRestarted says, once, whether a new life was noted.
func (r *sourceRank) isRestarted() bool {
	r.lifeMu.Lock()
	defer r.lifeMu.Unlock()
	was := r.restarted
	r.restarted = false
	return was
}

// note makes the counters readable for those who must not wait.
func (r *sourceRank) note() {
	order := r.past
	order.Add(r.order.Stats())
	counts := r.tell.decoder.Counts()
	r.statsMu.Lock()
	defer r.statsMu.Unlock()
	r.stats.Connected, r.stats.Foreign, r.stats.Order, r.stats.Decoder = r.joined, r.foreign, order, counts
}

func (r *sourceRank) readStats() SourceStats {
	r.statsMu.Lock()
	defer r.statsMu.Unlock()
	return r.stats
}

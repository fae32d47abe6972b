package kvstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// EventsOptions says where a server tells of its values, so that routers know what
// engines can load instead of computing it.
type EventsOptions struct {
	// Publish is where events are published, as in tcp://*:5558, and Replay where
	// they are told again, with what the store holds; empty for nowhere.
	Publish, Replay string
	// Backend is the store's name in events.
	Backend string
	// MostObjects is how many keys are remembered for whoever comes later; 0 means
	// a million.
	MostObjects int
	// Queue is how many changes may wait to be told, 0 meaning 65,536. Where there
	// are more, all that lies in the store is told anew instead of them.
	Queue int
	// Patience is for how long an answer waits for one who has asked for what was
	// missed and does not read it; 0 means 5 s. He is given no other.
	Patience time.Duration
	Log      *slog.Logger // nil means nobody
}

// Events publishes the changes of a server: one event for each key and tier, in
// RFC #1527's envelope and in the frames of Mooncake's master.
type Events struct {
	opts   EventsOptions
	pub    *zmtp.Pub
	router *zmtp.Router // or nil
	at     [2]string

	mu      sync.Mutex
	changes []Change
	lost    bool    // further ones were dropped
	behind  bool    // that was so, and the store could not be asked what it holds
	store   *Server // or nil
	wake    chan struct{}
	stats   EventsStats

	publisher *kvevent.ObjectPublisher // of Run
}

// EventsStats counts what was told.
type EventsStats struct {
	Told, Lost  int64 // changes
	Recounts    int64 // of all that lies in the store, after some were lost
	Messages    int64
	Replays     int64 // requests for what was missed
	Objects     int   // keys that are remembered
	Subscribers int
}

// NewEvents opens the sockets; they are closed by Close. [Events.Changed] is for
// [Options].Changed.
func NewEvents(ctx context.Context, o EventsOptions) (*Events, error) {
	o.Queue = cmp.Or(o.Queue, 1<<16)
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Events{opts: o, wake: make(chan struct{}, 1), pub: zmtp.NewPub(zmtp.Options{}), publisher: kvevent.NewObjectPublisher(o.Backend, o.MostObjects)}
	var err error
	if e.at[0], err = e.pub.Bind(ctx, o.Publish); err != nil {
		e.pub.Close() //nolint:errcheck // it has said nothing
		return nil, fmt.Errorf("kvstore: events: %w", err)
	}
	if o.Replay == "" {
		return e, nil
	}
	e.router = zmtp.NewRouter(zmtp.Options{})
	if e.at[1], err = e.router.Bind(ctx, o.Replay); err != nil {
		return nil, errors.Join(fmt.Errorf("kvstore: replay of events: %w", err), e.Close())
	}
	return e, nil
}

// Attach says whose changes are told, so that it can be asked what it holds when
// there were too many of them, as there are when it recovers what an earlier life
// has left.
func (e *Events) Attach(s *Server) {
	e.mu.Lock()
	e.store = s
	e.lost, e.behind = e.lost || e.behind, false
	e.mu.Unlock()
	e.rouse()
}

// Addresses returns where events are published and replayed, with the ports that
// were free.
func (e *Events) Addresses() (publish, replay string) { return e.at[0], e.at[1] }

// Close closes the sockets.
func (e *Events) Close() error {
	err := e.pub.Close()
	if e.router != nil {
		err = errors.Join(err, e.router.Close())
	}
	return err
}

// Changed takes note of a change, and does not wait for it to be told.
func (e *Events) Changed(c Change) {
	e.mu.Lock()
	if len(e.changes) < e.opts.Queue && !e.lost {
		e.changes = append(e.changes, c)
		e.stats.Told++
	} else {
		e.lost = true
		e.stats.Lost++
	}
	e.mu.Unlock()
	e.rouse()
}

// rouse lets Run look at what there is to be told.
func (e *Events) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counters as they stand.
func (e *Events) Stats() EventsStats {
	subscribers := e.pub.Subscribers(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stats
	st.Subscribers = subscribers
	return st
}

// question is one for what was missed.
type question struct {
	peer *zmtp.Peer
	from uint64
	gone bool // nobody asks any more
}

// Run tells of changes until ctx ends.
func (e *Events) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	questions, deaf := make(chan question), map[*zmtp.Peer]bool{}
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	if e.router != nil {
		listening.Go(func() { e.listen(ctx, questions) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
			e.tell()
		case q := <-questions:
			switch {
			case q.gone:
				delete(deaf, q.peer)
			case !deaf[q.peer]:
				e.tell() // what the answer speaks of has been told to all
				if !e.answer(ctx, q) {
					deaf[q.peer] = true
				}
			}
		}
	}
}

// tell publishes what has changed.
func (e *Events) tell() {
	e.mu.Lock()
	changes, lost, of := e.changes, e.lost, e.store
	e.changes, e.lost = nil, false
	e.behind = e.behind || lost && of == nil
	e.mu.Unlock()
	e.publish(changes)
	switch {
	case !lost:
	case of == nil:
		e.opts.Log.Warn("more has changed than could be told: whoever listens has to begin anew")
		e.publisher.Lose()
	default:
		e.opts.Log.Info("more has changed than could be told one by one: all that is there is told anew")
		e.recount(of)
	}
	objects, _ := e.publisher.Objects()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Objects = objects
}

// recount tells all that lies in a store, and that this is all.
func (e *Events) recount(of *Server) {
	var all []Change
	of.held(func(c []Change) {
		all = c
		e.mu.Lock()
		defer e.mu.Unlock()
		e.changes, e.lost = nil, false // what they tell of is among all
		e.stats.Recounts++
	})
	e.send(e.publisher.Publish(time.Now(), []kvevent.ObjectEvent{{Kind: kv.Cleared}}))
	for some := range slices.Chunk(all, 1<<12) {
		e.publish(some)
	}
}

// publish tells of changes.
func (e *Events) publish(changes []Change) {
	events := make([]kvevent.ObjectEvent, len(changes))
	for i, c := range changes {
		events[i] = objectEvent(c)
	}
	e.send(e.publisher.Publish(time.Now(), events))
}

func (e *Events) send(messages []kvevent.Message) {
	for _, m := range messages {
		if err := e.pub.Send(kvevent.ObjectFrames(m)...); err != nil && !errors.Is(err, zmtp.ErrClosed) {
			e.opts.Log.Warn("events not published", "number", m.Seq, "error", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Messages += int64(len(messages))
}

// mediumOf is what events call a tier.
func mediumOf(tier string) string {
	switch tier {
	case MemoryTier:
		return "cpu"
	case "disk":
		return tier
	}
	return "external"
}

func objectEvent(c Change) kvevent.ObjectEvent {
	o := kvevent.ObjectEvent{Kind: kv.Removed, Key: c.Key, Medium: mediumOf(c.Tier)}
	if c.Namespace != "default" {
		o.Tenant = c.Namespace
	}
	if c.Stored {
		o.Kind = kv.Stored
	}
	if h, ok := kvevent.SeqOfKey(c.Key); ok {
		o.Seq = []kv.SeqHash{h}
	}
	return o
}

// listen hands on questions until the socket is closed.
func (e *Events) listen(ctx context.Context, to chan<- question) {
	for m, err := range e.router.Messages(ctx) {
		if err != nil {
			return
		}
		q, n := question{peer: m.Peer, gone: m.Event == zmtp.Lost}, len(m.Parts)
		switch {
		case q.gone:
		case m.Event != zmtp.Data || n == 0 || len(m.Parts[n-1]) != 8:
			continue
		default:
			q.from = binary.BigEndian.Uint64(m.Parts[n-1])
		}
		select {
		case to <- q:
		case <-ctx.Done():
			return
		}
	}
}

// answer tells what was missed, and its end, and reports whether all of it could be
// said. The others wait meanwhile.
func (e *Events) answer(ctx context.Context, q question) bool {
	e.mu.Lock()
	e.stats.Replays++
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, e.opts.Patience)
	defer cancel()
	say := func(m kvevent.Message) bool {
		err := e.router.Send(ctx, q.peer, append([][]byte{{}}, kvevent.ObjectFrames(m)...)...)
		return err == nil
	}
	for m := range e.publisher.Replay(time.Now(), q.from) {
		if !say(m) {
			return false
		}
	}
	return say(kvevent.EndOfObjects())
}

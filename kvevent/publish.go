package kvevent

import (
	"fmt"
	"time"

	"github.com/dynago/dynago/kv"
)

// PublisherConfig says for whom events are published.
type PublisherConfig struct {
	Worker uint64
	Rank   uint32
	// Raw says that the events count copies: a block stored twice is there until
	// it was removed twice. Those of a [Source] do not.
	Raw bool
	// MaxBlocks bounds what is remembered of the rank; 0 = [DefaultMaxBlocks]. Of
	// a rank that holds more, a router that knows nothing can be told nothing
	// before it is cleared.
	MaxBlocks int
	// Wait is how long events wait for others to be merged with, at most 15 s; 0
	// merges those that are published together.
	Wait time.Duration
}

// longestWait is the longest time that events may wait to be merged.
const longestWait = 15 * time.Second

// Publisher passes the events of one rank on to routers in other processes. It
// merges and numbers them, from 1 on without holes, and keeps what a router
// needs that has missed some: the newest events, and all that the rank holds.
//
// It is plain data and not safe for concurrent use; time comes in as an
// argument. What it returns is never changed by it later.
type Publisher struct {
	config PublisherConfig
	merge  merger
	copies *copyCounts
	ring   ring
	held   *Holdings
	merged []kv.Event

	// dump is what was told last to a router that knew nothing, and stands for
	// the event of number dumpLast.
	dump     []RouterEvent
	dumpLast uint64
}

// NewPublisher returns a publisher that has published nothing.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	if c.Wait < 0 || c.Wait > longestWait {
		return nil, fmt.Errorf("kvevent: publisher: events are to wait %v, and from 0 to %v is possible", c.Wait, longestWait)
	}
	if c.MaxBlocks <= 0 {
		c.MaxBlocks = DefaultMaxBlocks
	}
	p := &Publisher{config: c, merge: merger{wait: c.Wait}, held: NewHoldings(c.MaxBlocks)}
	if c.Raw {
		p.copies = &copyCounts{most: c.MaxBlocks, of: make(map[copyOf]uint32)}
	}
	return p, nil
}

// Last returns the number of the newest event, 0 if there is none.
func (p *Publisher) Last() uint64 { return p.ring.last }

// Publish takes events as they happened together and returns those that are to
// be sent now, in messages within the limits of one: at most 128 events and
// 8,192 blocks, unless a single event has more.
func (p *Publisher) Publish(now time.Time, events []kv.Event) [][]RouterEvent {
	return p.emit(p.merge.add(p.merged[:0], events, now))
}

// Take publishes a batch of a [Source] or of another engine. A gap becomes a
// clear: it is all that the message of an event can say of it.
func (p *Publisher) Take(now time.Time, b kv.Batch) [][]RouterEvent {
	if b.Gap == "" {
		return p.Publish(now, b.Events)
	}
	return p.Publish(now, append([]kv.Event{{Kind: kv.Cleared}}, b.Events...))
}

// Deadline returns when [Publisher.Tick] is to be called, if ever.
func (p *Publisher) Deadline() (time.Time, bool) { return p.merge.deadline() }

// Tick returns what has waited long enough.
func (p *Publisher) Tick(now time.Time) [][]RouterEvent {
	if at, ok := p.Deadline(); !ok || now.Before(at) {
		return nil
	}
	return p.emit(p.merge.flush(p.merged[:0], now))
}

// emit numbers events and makes messages of them.
func (p *Publisher) emit(events []kv.Event) [][]RouterEvent {
	p.merged = events
	var out [][]RouterEvent
	var message []RouterEvent
	blocks := 0
	for i := range events {
		e := events[i]
		if p.copies != nil && !p.copies.filter(&e) {
			continue
		}
		r := RouterEvent{Worker: p.config.Worker, Rank: p.config.Rank, ID: p.ring.last + 1, Event: e}
		p.held.Apply(&r.Event)
		p.ring.push(r)
		if len(message) == kv.BatchEvents || len(message) > 0 && blocks+len(e.Blocks) > kv.BatchBlocks {
			out = append(out, message)
			message, blocks = nil, 0
		}
		message, blocks = append(message, r), blocks+len(e.Blocks)
	}
	clear(p.merged)
	if len(message) > 0 {
		out = append(out, message)
	}
	return out
}

package kvevent

import (
	"iter"
	"time"

	"github.com/dynago/dynago/kv"
)

// Bounds of what a publisher of objects keeps.
const (
	objectBatch     = 64      // events of one message
	objectRing      = 10_000  // messages kept for replay
	objectRingBytes = 8 << 20 // and their bytes
	// DefaultMostObjects is how many objects a publisher remembers unless told
	// otherwise, to tell somebody who comes later.
	DefaultMostObjects = 1 << 20
)

// ObjectPublisher numbers what happens to the objects of a store, and keeps what
// somebody needs who has missed some of it, or all. It is plain data and not safe
// for concurrent use.
type ObjectPublisher struct {
	backend string
	most    int
	number  uint64 // of the newest message
	id      uint64 // of the newest event
	ring    []Message
	first   int // in ring
	bytes   int
	held    map[objectName]media
	over    bool // there are more than are held
}

type objectName struct{ tenant, key string }

// media is a set of places: one bit each.
type media uint8

// mediaNames are the places that are told apart; any other is the last.
var mediaNames = [...]string{"cpu", "disk", "external", ""}

func mediumBit(name string) media {
	for i, n := range mediaNames {
		if n == name {
			return 1 << i
		}
	}
	return 1 << (len(mediaNames) - 1)
}

// NewObjectPublisher returns the publisher of a store that is called backend and
// holds nothing. Of more than most objects, 0 being [DefaultMostObjects], it can
// tell no newcomer; that lasts until the store is cleared.
func NewObjectPublisher(backend string, most int) *ObjectPublisher {
	if most <= 0 {
		most = DefaultMostObjects
	}
	return &ObjectPublisher{backend: backend, most: most, held: map[objectName]media{}}
}

// Publish numbers events, in the order in which they happened, and returns the
// messages that tell of them.
func (p *ObjectPublisher) Publish(now time.Time, events []ObjectEvent) []Message {
	var out []Message
	for len(events) > 0 {
		n := min(len(events), objectBatch)
		for i := range events[:n] {
			p.id++
			events[i].ID = p.id
			p.hold(&events[i])
		}
		p.number++
		m := Message{p.number, AppendObjectBatch(nil, now, p.backend, events[:n])}
		p.keep(m)
		out = append(out, m)
		events = events[n:]
	}
	return out
}

// Lose tells that events happened which are not known. Who listens sees a hole in
// the numbers, and nobody can be told what the store holds any more.
func (p *ObjectPublisher) Lose() {
	p.number++
	p.ring, p.first, p.bytes = nil, 0, 0
	p.over = true
}

// keep keeps a message for replay.
func (p *ObjectPublisher) keep(m Message) {
	p.ring = append(p.ring, m)
	p.bytes += len(m.Payload)
	for len(p.ring)-p.first > objectRing || p.bytes > objectRingBytes && len(p.ring)-p.first > 1 {
		p.bytes -= len(p.ring[p.first].Payload)
		p.ring[p.first] = Message{}
		p.first++
	}
	if p.first > objectRing {
		p.ring = append([]Message(nil), p.ring[p.first:]...)
		p.first = 0
	}
}

// hold makes an event true of what is held.
func (p *ObjectPublisher) hold(e *ObjectEvent) {
	name := objectName{e.Tenant, e.Key}
	at, known := p.held[name]
	switch e.Kind {
	case kv.Stored:
		if !known && len(p.held) >= p.most {
			p.over = true
			return
		}
		p.held[name] = at | mediumBit(e.Medium)
	case kv.Removed:
		if at &^= mediumBit(e.Medium); at == 0 {
			delete(p.held, name)
		} else if known {
			p.held[name] = at
		}
	case kv.Cleared:
		clear(p.held)
		p.over = false
	}
}

// Objects returns how many objects are held, and whether those are all.
func (p *ObjectPublisher) Objects() (n int, all bool) { return len(p.held), !p.over }

// Replay returns the messages from a number on, if they are kept. Otherwise, and
// from 0 on, it returns what the store holds: messages that all have the number
// of the newest one, of which the first says that there is nothing. It returns
// none where that is not known.
func (p *ObjectPublisher) Replay(now time.Time, from uint64) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		kept := p.ring[p.first:]
		if from == p.number+1 && from > 1 {
			return // nothing was missed
		}
		if from > 0 && len(kept) > 0 && kept[0].Seq <= from && from <= p.number {
			for _, m := range kept[from-kept[0].Seq:] {
				if !yield(m) {
					return
				}
			}
			return
		}
		if p.over {
			return
		}
		batch := []ObjectEvent{{Kind: kv.Cleared}}
		send := func() bool {
			m := Message{p.number, AppendObjectBatch(nil, now, p.backend, batch)}
			batch = batch[:0]
			return yield(m)
		}
		for name, at := range p.held {
			for i, medium := range mediaNames {
				if at&(1<<i) == 0 {
					continue
				}
				batch = append(batch, objectAt(name.tenant, name.key, medium))
				if len(batch) == objectBatch && !send() {
					return
				}
			}
		}
		if len(batch) > 0 {
			send()
		}
	}
}

// objectAt is the event of an object that is somewhere.
func objectAt(tenant, key, medium string) ObjectEvent {
	e := ObjectEvent{Kind: kv.Stored, Tenant: tenant, Key: key, Medium: medium}
	if h, ok := SeqOfKey(key); ok {
		e.Seq = []kv.SeqHash{h}
	}
	return e
}

package zmtp

import "fmt"

// Pub is a PUB socket: it sends each message to the peers that subscribed to a
// prefix of its first part. Its methods may be called from any goroutine.
type Pub struct{ *socket }

// NewPub returns a socket without connections.
func NewPub(o Options) *Pub {
	s := newSocket("PUB", o)
	s.inbox = nil
	s.readLimit = maxCommand // subscribers send nothing but subscriptions
	s.topic = func(p *Peer, on bool, prefix []byte) error {
		if on {
			return p.topics.add(prefix)
		}
		p.topics.remove(prefix)
		return nil
	}
	return &Pub{s}
}

// Send sends a message to whom it may concern, and never waits: a subscriber
// with a full queue loses this message, which [Stats.Dropped] counts, and
// nobody else does. All subscribers see the messages in the same order. The
// parts are the caller's again when it returns.
func (p *Pub) Send(parts ...[]byte) error {
	if err := p.check(parts); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	var wire []byte // one for all
	for _, peer := range p.peers {
		if !peer.topics.match(parts[0]) {
			continue
		}
		if wire == nil {
			wire = encode(parts)
		}
		switch ok, err := peer.out.offer(wire); {
		case err != nil: // it is leaving
		case ok:
			p.stats.sent.Add(1)
		default:
			p.stats.dropped.Add(1)
		}
	}
	return nil
}

// Subscribers returns how many peers would get a message with this first part.
func (p *Pub) Subscribers(topic []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, peer := range p.peers {
		if peer.topics.match(topic) {
			n++
		}
	}
	return n
}

// maxTopics bounds the prefixes that one peer subscribes to.
const maxTopics = 4096

// topics are the prefixes that a peer subscribed to, with how often it did: a
// cancellation undoes one subscription.
type topics struct {
	count   map[string]int
	longest int
}

func (t *topics) add(prefix []byte) error {
	if t.count == nil {
		t.count = map[string]int{}
	}
	if _, ok := t.count[string(prefix)]; !ok && len(t.count) == maxTopics {
		return fmt.Errorf("the peer subscribes to more than %d topics", maxTopics)
	}
	t.count[string(prefix)]++
	t.longest = max(t.longest, len(prefix))
	return nil
}

func (t *topics) remove(prefix []byte) {
	switch n := t.count[string(prefix)]; {
	case n > 1:
		t.count[string(prefix)] = n - 1
	case n == 1:
		delete(t.count, string(prefix))
	}
}

// match says whether a prefix of the topic is among them.
func (t *topics) match(topic []byte) bool {
	if len(t.count) == 0 {
		return false
	}
	for n := range min(len(topic), t.longest) + 1 {
		if t.count[string(topic[:n])] > 0 {
			return true
		}
	}
	return false
}

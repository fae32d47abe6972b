package zmtp

import "sync/atomic"

// Stats are the counts of a socket since it was made.
type Stats struct {
	Peers         int    // connections that stand
	Connected     uint64 // connections that came to stand
	Lost          uint64 // connections that stood and ended
	Failed        uint64 // attempts to connect that failed
	Refused       uint64 // connections accepted that were no peers, or too many
	Received      uint64 // messages
	ReceivedBytes uint64 // of them, as they are on the wire
	Sent          uint64 // messages queued, once per peer
	Dropped       uint64 // messages that a subscriber with a full queue lost
}

type counters struct {
	connected, lost, failed, refused       atomic.Uint64
	received, receivedBytes, sent, dropped atomic.Uint64
}

// Stats returns the counts so far.
func (s *socket) Stats() Stats {
	s.mu.Lock()
	peers := len(s.peers)
	s.mu.Unlock()
	c := &s.stats
	return Stats{
		Peers:     peers,
		Connected: c.connected.Load(),
		Lost:      c.lost.Load(),
		Failed:    c.failed.Load(),
		Refused:   c.refused.Load(),
		Received:  c.received.Load(), ReceivedBytes: c.receivedBytes.Load(),
		Sent:    c.sent.Load(),
		Dropped: c.dropped.Load(),
	}
}

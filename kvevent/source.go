package kvevent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// SourceConfig says where an engine publishes its events, and how to read them.
type SourceConfig struct {
	// Endpoints are those of the engine's ranks, each rank once.
	Endpoints []Endpoint
	// Topic is the prefix of the messages to listen to; empty for all.
	Topic string
	// Window is how many messages the engine keeps for replay; 0 = 10,000.
	Window uint64
	// Decoder says what the worker is like. Its Rank is that of each endpoint.
	Decoder Config
	// Replays bounds the replays that run at a time, over all sources that have
	// it; nil = eight in the process.
	Replays *Replays
	// Sockets are the limits of the sockets.
	Sockets zmtp.Options
	// Log, if not nil, hears of connections that come and go, and of what an
	// operator could do something about.
	Log *slog.Logger
}

// Source listens to the events of one engine, on a socket per rank. What it
// yields is complete and in order, or says that it is not: see [Order].
//
// Its methods may be called from any goroutine, but only one loop ranges over
// its events at a time.
type Source struct {
	config SourceConfig
	ranks  []*sourceRank
	loop   sync.Mutex
}

// NewSource returns a source that is not connected.
func NewSource(c SourceConfig) (*Source, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("kvevent: source: no endpoints")
	}
	if c.Replays == nil {
		c.Replays = processReplays
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{config: c}
	epoch := uint64(time.Now().UnixNano())
	seen := make(map[uint32]bool)
	for _, e := range c.Endpoints {
		if seen[e.Rank] {
			return nil, fmt.Errorf("kvevent: source: two endpoints for rank %d", e.Rank)
		}
		seen[e.Rank] = true
		for _, address := range []string{e.Events, e.Replay} {
			if address == "" && address == e.Replay {
				continue
			}
			if _, err := zmtp.ParseEndpoint(address); err != nil {
				return nil, fmt.Errorf("kvevent: source: rank %d: %w", e.Rank, err)
			}
		}
		s.ranks = append(s.ranks, newSourceRank(&s.config, e, epoch))
	}
	return s, nil
}

// Events yields what the engine's caches tell, rank by rank in order, until ctx
// ends; see [kv.Batch]. It goes on after a cursor if that is where the last loop
// was left, and begins each other rank anew. A rank is known partially until the
// end of a snapshot comes; after a gap it is again.
//
// The batches are the consumer's own. It never gives up: what cannot be reached
// is tried again. The one error is that of a second loop beside the first.
func (s *Source) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if !s.loop.TryLock() {
			yield(kv.Batch{}, errors.New("kvevent: source: another loop reads these events"))
			return
		}
		defer s.loop.Unlock()
		ctx, cancel := context.WithCancel(ctx)
		var run sync.WaitGroup
		defer run.Wait()
		defer cancel()
		out := make(chan kv.Batch)
		for _, r := range s.ranks {
			run.Go(func() { r.listen(ctx, out, from) })
		}
		for {
			select {
			case b := <-out:
				if !yield(b, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// Restarted tells the source what the engine's health has found out: that its
// process is another one than before. Everything told is void, and the sockets
// connect anew. It does not wait for that. That is always news, since what was
// told may be of either.
func (s *Source) Restarted() (news bool) {
	for _, r := range s.ranks {
		r.restart()
	}
	return true
}

// SourceStats is what one rank of a source has seen. It is plain data.
type SourceStats struct {
	Rank      uint32
	Connected bool
	// Foreign counts messages that were none of events, or came from a second
	// publisher at the same endpoint.
	Foreign uint64
	Order   OrderStats
	Decoder Counts
}

// Stats returns what the ranks have seen, in the order of the endpoints. It does
// not wait for a loop that does not take its events.
func (s *Source) Stats() []SourceStats {
	out := make([]SourceStats, len(s.ranks))
	for i, r := range s.ranks {
		out[i] = r.readStats()
	}
	return out
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// ingested is what it took to read the engines' messages and to apply them.
type ingested struct {
	Blocks   int     `json:"blocks"` // stored and removed, of the second half
	Stored   int     `json:"stored"` // of them
	Bytes    int     `json:"bytes"`  // of the payloads
	Messages int     `json:"messages"`
	Process  float64 `json:"process"` // processor seconds of the whole process
	Wall     float64 `json:"wall"`
	Allocs   float64 `json:"allocs"` // allocations per block
	Failed   int     `json:"failed"` // messages, events and blocks that were refused
	Lost     int     `json:"lost"`   // messages that did not come in their order
}

// source is one engine.
type source struct {
	target  kv.Target
	decoder *kvevent.Decoder
	next    uint64 // number of the next message
}

// frames subscribes to the engines of a history, which are another process, and
// reads and applies all that they tell, on one core. The first half fills caches
// and buffers; the second is counted.
func frames(c contestant, corpus string, h *workload.Corpus, blockTokens int) (n ingested, err error) {
	runtime.GOMAXPROCS(1)
	dir, err := os.MkdirTemp("", "dynago-frames-")
	if err != nil {
		return n, err
	}
	defer os.RemoveAll(dir)
	pub, err := startPublisher(corpus, blockTokens, dir)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, pub.stop()) }()

	sub := zmtp.NewSub(zmtp.Options{Heartbeat: -1})
	defer sub.Close()
	sources := make(map[string]*source, h.Workers)
	if err := sub.Subscribe(""); err != nil {
		return n, err
	}
	for i := range h.Workers {
		sources[endpoint(dir, i)] = &source{target: kv.Target{Worker: uint64(i) + 1}, decoder: kvevent.NewDecoder(kvevent.Config{BlockSize: blockTokens})}
		if err := sub.Connect(endpoint(dir, i)); err != nil {
			return n, err
		}
	}
	return n, n.read(c.new(), sub, sources, pub, messagesOf(h))
}

// messagesOf returns how many messages the engines send: one for each store.
func messagesOf(h *workload.Corpus) int {
	n := 0
	for _, op := range h.Ops {
		if op.Kind == workload.Store || op.Kind == workload.Extend {
			n++
		}
	}
	return n
}

func (n *ingested) read(x index, sub *zmtp.Sub, sources map[string]*source, pub *publisher, messages int) error {
	subscribed, seen := 0, 0
	var began clock
	var allocated uint64
	for m, err := range sub.Messages(context.Background()) {
		switch {
		case err != nil:
			return err
		case m.Event == zmtp.Subscribed:
			if subscribed++; subscribed == len(sources) {
				if err := pub.begin(); err != nil {
					return err
				}
			}
			continue
		case m.Event == zmtp.Lost || m.Event == zmtp.Failed:
			return fmt.Errorf("connection to the publisher: %s: %w", m.Event, m.Err)
		case m.Event != zmtp.Data:
			continue
		}
		if seen == messages/2 {
			n.Blocks, n.Stored, n.Bytes = 0, 0, 0
			began, allocated = now(), mallocs()
		}
		n.apply(x, sources[m.Peer.Endpoint()], m.Parts)
		if seen++; seen == messages {
			break
		}
	}
	spent := now().since(began)
	n.Process, n.Wall, n.Messages = spent.Process, spent.Wall, seen-messages/2
	n.Allocs = float64(mallocs()-allocated) / float64(n.Blocks)
	for _, s := range sources {
		counts := s.decoder.Counts()
		for range counts.Drops() {
			n.Failed++
		}
	}
	return nil
}

func (n *ingested) apply(x index, s *source, parts [][]byte) {
	if len(parts) != 3 || len(parts[1]) != 8 || binary.BigEndian.Uint64(parts[1]) != s.next {
		n.Lost++
		return
	}
	s.next++
	n.Bytes += len(parts[2])
	_, events, err := s.decoder.Decode(parts[2])
	if err != nil {
		n.Failed++
		return
	}
	for _, e := range events {
		n.Blocks += len(e.Blocks)
		if e.Kind == kv.Stored {
			n.Stored += len(e.Blocks)
		}
		if x.Apply(s.target, e) != nil {
			n.Failed++
		}
	}
}

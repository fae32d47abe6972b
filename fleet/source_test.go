package fleet_test

import (
	"context"
	"encoding/binary"
	"iter"
	"maps"
	"sync"
	"testing"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// published is an engine that publishes its events on sockets, as vLLM does, and
// keeps them all for replay.
type published struct {
	*fake
	source *kvevent.Source
	pub    *zmtp.Pub

	mu   sync.Mutex
	past [][]byte
}

func newPublished(t *testing.T) *published {
	p := &published{fake: newFake(), pub: zmtp.NewPub(zmtp.Options{})}
	router := zmtp.NewRouter(zmtp.Options{})
	t.Cleanup(func() { _, _ = p.pub.Close(), router.Close() })
	events, err := p.pub.Bind(t.Context(), "tcp://127.0.0.1:*")
	if err != nil {
		t.Fatal(err)
	}
	replay, err := router.Bind(t.Context(), "tcp://127.0.0.1:*")
	if err != nil {
		t.Fatal(err)
	}
	go p.answer(t.Context(), router)
	p.source, err = kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: []kvevent.Endpoint{{Events: events, Replay: replay}},
		Decoder:   kvevent.Config{BlockSize: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *published) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return p.source.Events(ctx, from)
}

// publish publishes a store of one block, or numbers it and loses it.
func (p *published) publish(key byte, lost bool) {
	payload := append([]byte("\x92\x00\x91\x95\xabBlockStored\x91"), key) // time, and a list of one event
	payload = append(payload, "\xc0\x94\x01\x02\x03"...)                  // no parent; four tokens
	payload = append(payload, key, 4)
	p.mu.Lock()
	seq := uint64(len(p.past))
	p.past = append(p.past, payload)
	p.mu.Unlock()
	if !lost {
		_ = p.pub.Send(nil, binary.BigEndian.AppendUint64(nil, seq), payload)
	}
}

// answer replays what it is asked for.
func (p *published) answer(ctx context.Context, router *zmtp.Router) {
	for m, err := range router.Messages(ctx) {
		if err != nil {
			return
		}
		if m.Event != zmtp.Data {
			continue
		}
		p.mu.Lock()
		past := p.past
		p.mu.Unlock()
		for seq := binary.BigEndian.Uint64(m.Parts[1]); seq < uint64(len(past)); seq++ {
			_ = router.Send(ctx, m.Peer, nil, binary.BigEndian.AppendUint64(nil, seq), past[seq])
		}
		_ = router.Send(ctx, m.Peer, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
	}
}

// announcing is a sink that says when something has changed, and when the worker
// was forgotten.
type announcing struct {
	*blocks
	changed   chan struct{}
	forgotten chan struct{}
}

func (s announcing) RemoveWorker(id uint64) {
	s.blocks.RemoveWorker(id)
	s.forgotten <- struct{}{}
}

func (s announcing) Apply(target kv.Target, b kv.Batch) {
	s.blocks.Apply(target, b)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// until waits until the sink holds the keys 1 to n.
func (s announcing) until(n int) {
	want := make(map[kv.EngineHash]bool)
	for key := range n {
		want[kv.EngineHash(key+1)] = true
	}
	same := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return maps.Equal(s.holds, want)
	}
	for !same() {
		<-s.changed
	}
}

// What kvevent reads from an engine's sockets is what a fleet takes, whether it
// came live or again, and also where a reader begins anew.
func TestEventsOfASource(t *testing.T) {
	p := newPublished(t)
	sink := announcing{&blocks{holds: make(map[kv.EngineHash]bool)}, make(chan struct{}, 1), make(chan struct{}, 8)}
	f := fleet.New(fleet.Config{})
	if err := f.Subscribe(sink); err != nil {
		t.Fatal(err)
	}
	p.publish(1, true) // before anybody listens
	if _, err := f.Add(fleet.Entry{Name: "p", ID: 7, Engine: p}); err != nil {
		t.Fatal(err)
	}
	p.cards <- ready(1)
	sink.until(1)
	p.publish(2, false)
	sink.until(2)
	p.publish(3, true)
	p.publish(4, false)
	sink.until(4)
	if sink.gaps > 0 {
		t.Errorf("%d gaps, though all came in the end", sink.gaps)
	}
	p.cards <- ready(2)
	<-sink.forgotten // and everything is heard again
	sink.until(4)
	if s := p.source.Stats()[0]; s.Order.Partial || s.Order.Missed > 0 {
		t.Errorf("%+v", s.Order)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

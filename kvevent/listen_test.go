package kvevent_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex"
)

// bus carries messages from a republisher to a listener, as packets do: lost,
// twice, late. What it carries is the bytes of the wire.
type bus struct {
	packets chan []byte

	mu     sync.Mutex
	draw   func(n int) int
	faulty bool
	late   []byte
}

// fault makes the bus lose and delay from now on, or not, and says whether it
// did.
func (b *bus) fault(on bool) (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was = b.faulty
	b.faulty = on
	return was
}

// chance is true once in n times while the bus is faulty.
func (b *bus) chance(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faulty && b.draw(n) == 0
}

func (b *bus) Send(_ context.Context, events []kvevent.RouterEvent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	packet := kvevent.AppendRouterEvents(nil, kvevent.Maps, events)
	n := 1
	if b.faulty {
		switch b.draw(10) {
		case 0:
			return errors.New("lost")
		case 1:
			n = 2
		case 2:
			b.late, packet = packet, b.late
		}
	}
	for range n {
		if packet != nil {
			b.packets <- packet
		}
	}
	return nil
}

func (b *bus) messages(ctx context.Context) iter.Seq2[[]kvevent.RouterEvent, error] {
	return func(yield func([]kvevent.RouterEvent, error) bool) {
		var d kvevent.RouterDecoder
		for {
			select {
			case p := <-b.packets:
				if p == nil {
					yield(nil, errors.New("the bus has broken down"))
					return
				}
				events, err := d.Decode(p)
				if !yield(events, err) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// pair is a worker's process and a router's.
type pair struct {
	t        *testing.T
	bus      *bus
	worker   *kvevent.Republisher
	truth    *kvindex.Index
	batches  chan kv.Batch
	config   kvevent.ListenConfig
	mu       sync.Mutex
	view     *kvindex.Index
	receiver receiver
	err      error
	ended    chan struct{}
	stop     context.CancelFunc
}

func newPair(t *testing.T, draw func(n int) int, wait time.Duration) *pair {
	p := &pair{
		t: t, bus: &bus{draw: draw, packets: make(chan []byte, 4096)},
		truth: kvindex.New(), batches: make(chan kv.Batch), view: kvindex.New(), ended: make(chan struct{}),
	}
	w, err := kvevent.NewRepublisher(kvevent.RepublisherConfig{Worker: 70, Wait: wait, Send: p.bus.Send})
	if err != nil {
		t.Fatal(err)
	}
	p.worker = w
	p.config = kvevent.ListenConfig{
		Worker: 7, First: 3, Ranks: 2, Messages: p.bus.messages,
		Ask: func(ctx context.Context, q kvevent.Recovery) (kvevent.Answer, error) {
			time.Sleep(10 * time.Millisecond) // the question is on its way
			if p.bus.chance(4) {
				return kvevent.Answer{}, errors.New("no answer")
			}
			a := p.republisher().Answer(q)
			time.Sleep(100 * time.Millisecond) // the answer is
			// The transport knows by which name the worker goes here.
			a.Worker = q.Worker
			for i := range a.Events {
				a.Events[i].Worker = q.Worker
			}
			return a, ctx.Err()
		},
	}
	return p
}

func (p *pair) republisher() *kvevent.Republisher {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

func (p *pair) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		_ = p.republisher().Run(ctx, func(yield func(kv.Batch, error) bool) {
			for {
				select {
				case b := <-p.batches:
					if !yield(b, nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		})
	})
	go func() {
		defer close(p.ended)
		for b, err := range kvevent.Listen(ctx, p.config) {
			if err != nil {
				p.err = err
				break
			}
			p.hear(b)
		}
	}()
	p.stop = func() {
		begun := time.Now()
		cancel()
		run.Wait()
		<-p.ended
		if d := time.Since(begun); d > 150*time.Millisecond { // the time of an Ask
			p.t.Errorf("the end took %v", d)
		}
	}
}

func (p *pair) hear(b kv.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.receiver.take(b); err != nil {
		p.t.Error(err)
	}
	target := kv.Target{Worker: 7, Rank: b.Rank}
	if b.Gap != "" {
		p.view.RemoveTarget(target)
	}
	for _, e := range b.Events {
		_ = p.view.Apply(target, e)
	}
}

// happen gives a batch to the worker's process.
func (p *pair) happen(b kv.Batch) {
	target := kv.Target{Worker: 7, Rank: b.Rank}
	if b.Gap != "" {
		p.truth.RemoveTarget(target)
	}
	for _, e := range b.Events {
		_ = p.truth.Apply(target, e)
	}
	p.batches <- b
}

// expect waits until all has arrived and been asked for, and compares.
func (p *pair) expect(state string) {
	p.t.Helper()
	was := p.bus.fault(false)
	for rank := range uint32(2) { // after which losses are seen
		p.happen(kv.Batch{Rank: 3 + rank, Events: []kv.Event{gone(kv.TierDevice, 99)}})
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	p.bus.fault(was)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receiver.Lock()
	defer p.receiver.Unlock()
	if got, want := scores(p.view), scores(p.truth); state == "exact" && got != want {
		p.t.Fatalf("the router knows\n%s, the worker\n%s", got, want)
	}
	for rank := range uint32(2) {
		if h := p.receiver.ranks[3+rank]; h == nil || h.state != state && (state != "partial" || h.state != "") {
			p.t.Fatalf("rank %d is %+v, want %s", 3+rank, h, state)
		}
	}
}

func TestListen(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				draw := rand.New(rand.NewPCG(seed, 5)).IntN
				p := newPair(t, rand.New(rand.NewPCG(seed, 6)).IntN, wait)
				p.start()
				p.expect("exact")
				p.bus.fault(true)
				for range 5 {
					for range 60 {
						b := kv.Batch{Rank: 3 + uint32(draw(2)), Events: []kv.Event{tree(draw), tree(draw)}}
						if draw(50) == 0 {
							b.Gap = kv.GapLost // the worker has missed something itself
						}
						p.happen(b)
						if draw(10) == 0 {
							time.Sleep(time.Duration(draw(300)) * time.Millisecond)
						}
					}
					p.expect("exact")
				}
				p.stop()
				if p.worker.Failed() == 0 {
					t.Error("nothing was ever lost")
				}
			})
		}
	}
}

// What the worker held before anybody listened is asked for, even if it tells
// nothing more.
func TestListenAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(int) int { return 1 }, 0)
		p.start()
		time.Sleep(time.Second)
		synctest.Wait()
		p.receiver.Lock()
		for rank := range uint32(2) {
			if h := p.receiver.ranks[3+rank]; h == nil || h.state != "exact" {
				t.Errorf("rank %d is %+v, want exact", 3+rank, h)
			}
		}
		p.receiver.Unlock()
		p.stop()
	})
}

// Where nobody can be asked each loss makes a rank partial.
func TestListenWithoutRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(int) int { return 0 }, 0) // which loses everything
		p.config.Ask = nil
		p.start()
		p.happen(kv.Batch{Rank: 3, Events: []kv.Event{chain(kv.TierDevice, 0, 1)}})
		p.expect("exact")
		p.bus.fault(true)
		for rank := range uint32(2) {
			p.happen(kv.Batch{Rank: 3 + rank, Events: []kv.Event{gone(kv.TierDevice, 1)}})
		}
		p.expect("partial")
		if err := p.receiver.wantGaps(kv.GapLost, kv.GapLost); err != nil {
			t.Error(err)
		}
		p.bus.packets <- nil
		<-p.ended
		if p.err == nil || p.err.Error() != "the bus has broken down" {
			t.Errorf("error %v", p.err)
		}
		p.stop()
	})
}

// Another publisher of the same worker begins from 1, with an empty cache.
func TestListenReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(int) int { return 1 }, 0)
		replaced := make(chan struct{})
		p.config.Replaced = replaced
		p.start()
		p.happen(kv.Batch{Rank: 3, Events: []kv.Event{chain(kv.TierDevice, 0, 1, 2)}})
		p.expect("exact")
		p.mu.Lock()
		p.worker, _ = kvevent.NewRepublisher(kvevent.RepublisherConfig{Worker: 70, Send: p.bus.Send})
		p.mu.Unlock()
		replaced <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		p.receiver.Lock()
		if n := len(p.receiver.ranks[3].holds); n != 0 || p.receiver.ranks[3].state != "exact" {
			t.Errorf("%d blocks of a publisher that is gone, %s", n, p.receiver.ranks[3].state)
		}
		p.receiver.Unlock()
		close(replaced)         // nobody will follow, and
		time.Sleep(time.Second) // time goes on: the loop waits
		if err := p.receiver.wantGaps(kv.GapRestart, kv.GapRestart); err != nil {
			t.Error(err)
		}
		p.stop()
	})
}

// Events of ranks that the worker does not have are left out.
func TestListenForeignRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(int) int { return 1 }, 0)
		p.start()
		for _, rank := range []uint32{0, 2, 5, 1<<32 - 1} {
			p.happen(kv.Batch{Rank: rank, Events: []kv.Event{chain(kv.TierDevice, 0, 1)}})
		}
		p.truth = kvindex.New()
		p.expect("exact")
		p.stop()
	})
}

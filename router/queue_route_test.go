package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// Whatever makes room is followed at once by whoever can use it: to look at
// everybody afterwards finds nobody.
func TestNoRoomIsLeft(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { noRoomIsLeft(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func noRoomIsLeft(t *testing.T, random *rand.Rand) {
	h := newHouse(t, queueing(0))
	defer h.fleet.Close()
	for id := range uint64(4) {
		h.join(1+id, card(hundred, func(c *engine.Card) {
			c.DPSize = 2
			if id == 0 {
				c.Taints = []string{"big"}
			}
		}))
	}
	a := h.arrivals()
	leave := make(map[string]context.CancelFunc)
	var running []*router.Booking
	told := func() int {
		n := len(a.names)
		for _, id := range a.names {
			delete(leave, id)
			if b := a.bookings[id]; b != nil {
				running = append(running, b)
			}
		}
		a.names = nil
		return n
	}
	waited := 0
	for i := range 300 {
		switch n := random.IntN(8); {
		case n < 4:
			q := router.Query{ID: fmt.Sprint(i), Tokens: count(uint32(100*i), 1+random.IntN(60)), StrictPriority: uint32(random.IntN(2))}
			switch random.IntN(4) {
			case 0:
				q.PinWorker, q.PinRank = uint64(1+random.IntN(4)), new(uint32(random.IntN(2)))
			case 1:
				q.Require = []string{"big"}
			}
			ctx, cancel := context.WithCancel(t.Context())
			leave[q.ID] = cancel
			a.submit(ctx, q)
		case n == 4:
			for _, cancel := range leave {
				cancel()
				synctest.Wait()
				break
			}
		case len(running) == 0:
		case n == 5:
			running[random.IntN(len(running))].Prefilled()
		default:
			at := random.IntN(len(running))
			running[at].Release()
			running = append(running[:at], running[at+1:]...)
		}
		told()
		waited += len(leave)
		h.router.Tick(time.Now())
		if n := told(); n > 0 {
			t.Fatalf("after %d steps %d had room that nobody told them of", i, n)
		}
	}
	if waited < 300 {
		t.Errorf("only %d waited in all", waited)
	}
	for len(running) > 0 {
		running[0].Release()
		running = running[1:]
		told()
	}
	if s := h.router.Queues()[0].Classes[0]; s.Requests != 0 || s.Tokens != 0 || len(leave) != 0 {
		t.Errorf("left behind: %+v, %d", s, len(leave))
	}
}

// Those who are pinned wait for their own worker; and room that is made while
// another is told of his is not forgotten.
func TestRoomMadeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		h.join(2, card(hundred))
		a := h.arrivals()
		for id := range uint64(2) {
			a.submit(t.Context(), router.Query{ID: fmt.Sprint("load", id+1), Tokens: count(uint32(1000*id), 80), PinWorker: id + 1})
		}
		a.expect("load", "load1", "load2")
		h.router.Submit(t.Context(), &router.Query{Model: "m", Tokens: count(5000, 80), PinWorker: 1}, func(b *router.Booking, err error) {
			a.names = append(a.names, "first")
			a.bookings["load2"].Release()
		})
		a.submit(t.Context(), router.Query{ID: "second", Tokens: count(6000, 80), PinWorker: 2})
		a.submit(t.Context(), router.Query{ID: "third", Tokens: count(7000, 80), PinWorker: 2})
		a.expect("while both are busy")
		a.bookings["load1"].Release()
		a.expect("one has ended, and then the other", "first", "second")
	})
}

// A request ends on one of many workers, all of them busy; one of a thousand who
// wait takes its place, and another comes. A quarter of them are pinned.
func BenchmarkTurnover(b *testing.B) {
	for _, workers := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			h := newHouse(b, queueing(0))
			defer h.fleet.Close()
			for id := range uint64(workers) {
				h.join(id+1, card(hundred))
			}
			ctx := context.Background()
			var running []*router.Booking
			sent := 0
			submit := func() {
				q := &router.Query{Model: "m", Tokens: count(uint32(sent)*8, 8)}
				if sent%4 == 0 {
					q.PinWorker = uint64(1 + sent%workers)
				}
				sent++
				h.router.Submit(ctx, q, func(k *router.Booking, err error) {
					if err != nil {
						b.Fatal(err)
					}
					running = append(running, k)
				})
			}
			for len(running) < workers || sent < workers+1000 {
				submit()
			}
			b.ReportAllocs()
			for b.Loop() {
				k := running[0]
				if running = running[1:]; cap(running) == len(running) {
					running = append(make([]*router.Booking, 0, 2*workers), running...)
				}
				k.Release()
				submit()
			}
			b.StopTimer()
			if n := len(running); n < workers {
				b.Errorf("%d of %d workers have something to do", n, workers)
			}
		})
	}
}

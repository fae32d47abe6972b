package zmtp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

func TestDealerRouter(t *testing.T) {
	pairs(t, func(t *testing.T, join func(a, b socket)) {
		dealer, router := newDealer(t, zmtp.Options{Identity: []byte("me")}), newRouter(t, zmtp.Options{})
		d, r := read(t, dealer), read(t, router)
		join(router, dealer)
		d.want(zmtp.Connected)
		c := r.want(zmtp.Connected)
		if string(c.Peer.Identity()) != "me" || c.Peer.SocketType() != "DEALER" {
			t.Errorf("the peer is %s %q", c.Peer.SocketType(), c.Peer.Identity())
		}
		send(t, dealer, "", number(7))
		m := r.wantParts("", number(7))
		for n := range 3 {
			send(t, to{router, m.Peer}, "", number(n), strings.Repeat("x", n*100_000))
		}
		for n := range 3 {
			d.wantParts("", number(n), strings.Repeat("x", n*100_000))
		}
	})
}

// Messages are dealt to peers in turn, and to those alone that have room.
func TestDealerTakesTurns(t *testing.T) {
	dealer := newDealer(t, zmtp.Options{})
	var routers []*reader
	for range 3 {
		router := newRouter(t, zmtp.Options{})
		connect(t, dealer, bind(t, router, "tcp://127.0.0.1:*"))
		r := read(t, router)
		r.want(zmtp.Connected)
		routers = append(routers, r)
	}
	waitFor(t, func() bool { return dealer.Stats().Peers == 3 })
	for n := range 9 {
		send(t, dealer, number(n))
	}
	seen := map[uint64]bool{}
	for _, r := range routers {
		for range 3 {
			seen[sequence(r.want(zmtp.Data).Parts[0])] = true
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d of 9 messages came", len(seen))
	}
}

// A dealer without a peer that has room waits for one, until its context ends or
// it is closed.
func TestDealerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, read := make(chan struct{}), make(chan struct{})
		var peer *scripted
		dealer := newDealer(t, zmtp.Options{HighWater: 2, Dial: pipes(t, true, func(p *scripted) {
			peer = p
			<-begin
			p.greet(hello30+readyRouter, 64+2+41)
			<-read
			p.listen()
		})})
		connect(t, dealer, "tcp://engine:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := dealer.Send(ctx, []byte("none")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a peer: %v", err)
		}
		sent := make(chan error, 1)
		go func() { sent <- dealer.Send(t.Context(), []byte("one")) }()
		synctest.Wait()
		close(begin)
		if err := <-sent; err != nil {
			t.Errorf("when the peer had come: %v", err)
		}
		send(t, dealer, "two")
		full, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := dealer.Send(full, []byte("none")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a full queue: %v", err)
		}
		go func() { sent <- dealer.Send(t.Context(), []byte("three")) }()
		synctest.Wait()
		close(read)
		if err := <-sent; err != nil {
			t.Errorf("when there was room: %v", err)
		}
		synctest.Wait()
		if heard := peer.all(); !strings.HasSuffix(heard, "\x00\x03one\x00\x03two\x00\x05three") {
			t.Errorf("the peer heard %q", heard)
		}
		_ = dealer.Close()
		if err := dealer.Send(t.Context(), nil); !errors.Is(err, zmtp.ErrClosed) {
			t.Errorf("a closed socket: %v", err)
		}
	})
}

// A dealer that waits learns that it is closed.
func TestDealerClosedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dealer := newDealer(t, zmtp.Options{Dial: unreachable})
		connect(t, dealer, "tcp://engine:1")
		sent := make(chan error, 1)
		go func() { sent <- dealer.Send(t.Context(), []byte("none")) }()
		synctest.Wait()
		_ = dealer.Close()
		if err := <-sent; !errors.Is(err, zmtp.ErrClosed) {
			t.Errorf("it waited until %v", err)
		}
	})
}

// A peer that does not read holds up nobody but who writes to it, and that one
// until its context ends, the connection ends, or the socket is closed.
func TestRouterWaitsForOnePeerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangUp := make(chan struct{})
		var quick *scripted
		deaf := pipes(t, true, func(p *scripted) {
			p.greet(hello30+readyDealer, 64+2+41)
			p.say("\x00\x04deaf")
			<-hangUp
		})
		hears := pipes(t, false, func(p *scripted) {
			quick = p
			p.say(hello30, readyDealer, "\x00\x05quick")
			<-p.done
		})
		router := newRouter(t, zmtp.Options{HighWater: 3, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "deaf:1" {
				return deaf(ctx, network, address)
			}
			return hears(ctx, network, address)
		}})
		connect(t, router, "tcp://deaf:1")
		connect(t, router, "tcp://quick:1")
		peers := map[string]*zmtp.Peer{}
		for m, err := range router.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Event == zmtp.Data {
				peers[string(m.Parts[0])] = m.Peer
			}
			if len(peers) == 2 {
				break
			}
		}
		for range 3 {
			send(t, to{router, peers["deaf"]}, "x")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := router.Send(ctx, peers["deaf"], []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a full queue: %v", err)
		}
		stuck := make(chan error, 1)
		go func() { stuck <- router.Send(t.Context(), peers["deaf"], []byte("x")) }()
		synctest.Wait()
		for n := range 20 {
			send(t, to{router, peers["quick"]}, fmt.Sprintf("m%02d", n))
			synctest.Wait()
		}
		if !quick.has("m19") {
			t.Errorf("the quick peer heard %q", quick.all())
		}
		close(hangUp)
		if err := <-stuck; !errors.Is(err, zmtp.ErrGone) {
			t.Errorf("a peer that hung up: %v", err)
		}
		if err := router.Send(t.Context(), peers["deaf"], []byte("x")); !errors.Is(err, zmtp.ErrGone) {
			t.Errorf("a peer that is gone: %v", err)
		}
		if err := router.Send(t.Context(), peers["quick"]); err == nil {
			t.Error("a message without parts was sent")
		}
		_ = router.Close()
	})
}

// A peer of an attempt that failed can be written to as little as one that is
// gone.
func TestRouterFailedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := newRouter(t, zmtp.Options{Dial: unreachable})
		connect(t, router, "tcp://engine:1")
		failed := read(t, router).want(zmtp.Failed)
		if err := router.Send(t.Context(), failed.Peer, []byte("x")); !errors.Is(err, zmtp.ErrGone) {
			t.Errorf("a peer that never was: %v", err)
		}
		_ = router.Close()
	})
}

// A socket that comes back is another peer, whatever it calls itself.
func TestRouterTellsLivesApart(t *testing.T) {
	router := newRouter(t, zmtp.Options{})
	at := bind(t, router, "tcp://127.0.0.1:*")
	r := read(t, router)
	var peers []*zmtp.Peer
	for life := range 2 {
		dealer := newDealer(t, zmtp.Options{Identity: []byte("same")})
		connect(t, dealer, at)
		send(t, dealer, number(life))
		c := r.want(zmtp.Connected)
		if m := r.wantParts(number(life)); m.Peer != c.Peer || string(m.Peer.Identity()) != "same" {
			t.Errorf("life %d: message of %+v", life, m.Peer)
		}
		peers = append(peers, c.Peer)
		_ = dealer.Close()
		r.want(zmtp.Lost)
	}
	if peers[0] == peers[1] || peers[0].Epoch() != 1 || peers[1].Epoch() != 2 {
		t.Errorf("epochs %d and %d", peers[0].Epoch(), peers[1].Epoch())
	}
}

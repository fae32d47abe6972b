package zmtp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// An endpoint where nobody is, is dialled ever more rarely; after a connection
// that stood, at once again.
func TestRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		last := time.Now()
		good := pipes(t, false, func(p *scripted) {
			p.say(hello31, readyPub)
			synctest.Wait()
		})
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			waits = append(waits, time.Since(last).Round(time.Millisecond))
			last = time.Now()
			if network != "tcp" || address != "engine:5557" {
				t.Errorf("dialled %s %s", network, address)
			}
			if len(waits) == 10 {
				return good(ctx, network, address)
			}
			return unreachable(ctx, network, address)
		}
		sub := newSub(t, zmtp.Options{Dial: dial, Jitter: func() float64 { return 0.5 }}, "")
		r := read(t, sub)
		connect(t, sub, "tcp://engine:5557")
		for range 9 {
			failed := r.want(zmtp.Failed)
			if got, want := failed.Err.Error(), "connect to tcp://engine:5557: nobody listens"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if failed.Peer.Epoch() != 0 || failed.Peer.Endpoint() != "tcp://engine:5557" {
				t.Errorf("epoch %d of %s", failed.Peer.Epoch(), failed.Peer.Endpoint())
			}
		}
		c := r.want(zmtp.Connected)
		lost := r.want(zmtp.Lost)
		if c.Peer != lost.Peer || c.Peer.Epoch() != 1 || c.Peer.SocketType() != "PUB" {
			t.Errorf("connected %+v, lost %+v", c.Peer, lost.Peer)
		}
		r.want(zmtp.Failed)
		r.want(zmtp.Failed)
		const ms = time.Millisecond
		want := []time.Duration{0, 75 * ms, 150 * ms, 300 * ms, 600 * ms, 1200 * ms, 2400 * ms, 3750 * ms, 3750 * ms, 3750 * ms, 75 * ms, 150 * ms}
		for i, w := range want {
			if waits[i] != w {
				t.Errorf("dial %d came after %v, want %v", i, waits[i], w)
			}
		}
		if s := sub.Stats(); s.Failed != 11 || s.Connected != 1 || s.Lost != 1 || s.Peers != 0 {
			t.Errorf("%+v", s)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A peer that never greets, or never gets ready, does not hold us up for ever.
func TestHandshakeTimeout(t *testing.T) {
	for _, said := range []string{"", hello31[:30], hello31, hello31 + readyPub[:12]} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			dial := pipes(t, false, func(p *scripted) {
				p.say(said)
				<-p.done
			})
			sub := newSub(t, zmtp.Options{Dial: dial}, "")
			r := read(t, sub)
			connect(t, sub, "tcp://engine:5557")
			r.want(zmtp.Failed)
			if took := time.Since(begin); took != 10*time.Second {
				t.Errorf("after %d bytes it was given up after %v", len(said), took)
			}
			_ = sub.Close()
		})
	}
}

// A publisher has subscriptions when it has answered twice and a moment has
// passed; its messages come in their place.
func TestSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan string)
		var peer *scripted
		dial := pipes(t, false, func(p *scripted) {
			peer = p
			p.say(hello31, readyPub)
			for what := range steps {
				p.say(what)
			}
		})
		sub := newSub(t, zmtp.Options{Dial: dial}, "kv")
		r := read(t, sub)
		connect(t, sub, "tcp://engine:5557")
		r.want(zmtp.Connected)
		synctest.Wait()
		if !peer.has("\x04\x0c\x09SUBSCRIBEkv"+askProbe) || peer.has(askConfirm) {
			t.Errorf("the publisher heard %q", peer.all())
		}
		steps <- sayProbe
		synctest.Wait()
		if !peer.has(askConfirm) {
			t.Errorf("the publisher heard %q", peer.all())
		}
		steps <- "\x00\x02m1" + sayConfirm + "\x00\x02m2"
		confirmed := time.Now()
		r.wantParts("m1")
		r.wantParts("m2")
		r.want(zmtp.Subscribed)
		if waited := time.Since(confirmed); waited != 5*time.Millisecond {
			t.Errorf("subscribed %v after the confirmation", waited)
		}
		// A heartbeat's answer confirms nothing.
		steps <- sayAlive
		steps <- "\x00\x02m3"
		r.wantParts("m3")

		if err := sub.Unsubscribe("kv"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !peer.has("\x04\x09\x06CANCELkv" + askProbe) {
			t.Errorf("the publisher heard %q", peer.all())
		}
		steps <- sayProbe + sayConfirm
		r.want(zmtp.Subscribed)
		// Messages without a pause do not put it off for ever.
		if err := sub.Subscribe("other"); err != nil {
			t.Fatal(err)
		}
		steps <- sayProbe + sayConfirm
		go func() {
			defer close(steps)
			for range 20 {
				steps <- "\x00\x04busy"
				<-time.After(time.Millisecond)
			}
		}()
		n := 0
		for m := r.next(); m.Event == zmtp.Data; m = r.next() {
			n++
		}
		if n < 4 || n > 7 {
			t.Errorf("subscribed after %d messages, one each millisecond", n)
		}
		_ = sub.Close()
		for range steps { // what is left of the script
			continue
		}
	})
}

// A publisher of version 3.0 hears messages instead of commands, and no question.
func TestOldPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peer *scripted
		hang := make(chan struct{})
		dial := pipes(t, false, func(p *scripted) {
			peer = p
			p.say(hello30, readyPub)
			<-hang
		})
		sub := newSub(t, zmtp.Options{Dial: dial}, "kv")
		r := read(t, sub)
		connect(t, sub, "tcp://engine:5557")
		r.want(zmtp.Connected)
		r.want(zmtp.Subscribed)
		if err := errors.Join(sub.Unsubscribe("kv"), sub.Subscribe("kv2")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, said := range []string{"\x00\x03\x01kv", "\x00\x03\x00kv", "\x00\x04\x01kv2"} {
			if !peer.has(said) {
				t.Errorf("the publisher did not hear %q", said)
			}
		}
		<-time.After(time.Hour)
		if peer.has("PING") {
			t.Error("it was asked whether it is there")
		}
		if s := sub.Stats(); s.Peers != 1 {
			t.Errorf("%+v: it was given up", s)
		}
		close(hang)
		_ = sub.Close()
	})
}

// A peer that answers questions is given up when it no longer does; one that
// never did is not.
func TestHeartbeat(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers int // answers to the first questions
		data    int // messages, one every 14 s, before it falls silent
		lost    time.Duration
	}{
		{name: "never there", answers: 0, lost: 0},
		{name: "falls silent", answers: 1, lost: 15 * time.Second},
		{name: "falls silent later", answers: 4, lost: 30 * time.Second},
		{name: "has messages instead", answers: 1, data: 5, lost: 70*time.Second + 15*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				var peer *scripted
				dial := pipes(t, true, func(p *scripted) {
					peer = p
					go p.listen()
					p.say(hello31, readyPub)
					if tt.answers > 0 {
						p.say(sayAlive)
					}
					for n := 1; n < tt.answers; n++ {
						<-time.After(5 * time.Second)
						p.say(sayAlive)
					}
					for range tt.data {
						<-time.After(14 * time.Second)
						p.say("\x00\x04data")
					}
					<-hang
				})
				sub := newSub(t, zmtp.Options{Dial: dial}, "")
				begin := time.Now()
				connect(t, sub, "tcp://engine:5557")
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				data, lost := 0, time.Duration(0)
				for m, err := range sub.Messages(ctx) {
					if err != nil {
						break
					}
					if m.Event == zmtp.Data {
						data++
					}
					if m.Event == zmtp.Lost {
						lost = time.Since(begin)
						if got, want := m.Err.Error(), "the peer has been silent for 15s"; got != want {
							t.Errorf("lost because %s, want %s", got, want)
						}
						break
					}
				}
				if lost != tt.lost || data != tt.data {
					t.Errorf("%d messages, lost after %v; want %d and %v", data, lost, tt.data, tt.lost)
				}
				if !peer.has(askAlive) {
					t.Error("it was never asked")
				}
				close(hang)
				_ = sub.Close()
			})
		})
	}
}

// A subscriber that says nothing for an hour is slow, not dead.
func TestSilentSubscriberStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var peer *scripted
		pub := newPub(t, zmtp.Options{Dial: pipes(t, false, func(p *scripted) {
			peer = p
			p.say(hello31, readySub, sayAlive, "\x04\x0a\x09SUBSCRIBE")
			<-hang
		})})
		connect(t, pub, "tcp://sub:1")
		<-time.After(time.Hour)
		if n := pub.Subscribers(nil); n != 1 || peer.has("PING") {
			t.Errorf("%d subscribers; it heard %q", n, peer.all())
		}
		close(hang)
		_ = pub.Close()
	})
}

// Questions of a peer are answered with what they hold.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var peer *scripted
		dial := pipes(t, false, func(p *scripted) {
			peer = p
			p.say(hello31, readyRouter, "\x04\x0b\x04PING\x00\x32four", "\x04\x09\x07UNKNOWN!")
			<-hang
		})
		dealer := newDealer(t, zmtp.Options{Dial: dial})
		connect(t, dealer, "tcp://engine:5557")
		synctest.Wait()
		if !peer.has("\x04\x09\x04PONGfour") {
			t.Errorf("the peer heard %q", peer.all())
		}
		if s := dealer.Stats(); s.Peers != 1 {
			t.Errorf("%+v: a command that is not known ended the connection", s)
		}
		close(hang)
		_ = dealer.Close()
	})
}

// What a connection is lost for is said.
func TestLostBecause(t *testing.T) {
	for _, tt := range []struct{ name, said, want string }{
		{"end", "", "the peer closed the connection"},
		{"end amid a message", "\x01\x01a", "the peer closed the connection"},
		{"error", "\x04\x09\x05ERROR\x02no", `the peer reports an error: "no"`},
		{"large message", "\x02\x00\x00\x00\x00\x08\x00\x00\x01", "too large: more than 134217728 bytes"},
		{"unknown flags", "\xf0\x00", "unknown flags 0xf0"},
		{"bad PING", "\x04\x06\x04PING\x00", "a PING of 1 bytes"},
		{"bad command", "\x04\x02\x04P", "a command without a whole name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := pipes(t, false, func(p *scripted) {
					p.say(hello31, readyPub, "\x00\x04last", tt.said)
					synctest.Wait()
				})
				sub := newSub(t, zmtp.Options{Dial: dial}, "")
				r := read(t, sub)
				connect(t, sub, "tcp://engine:5557")
				r.want(zmtp.Connected)
				r.wantParts("last")
				lost := r.want(zmtp.Lost)
				if !strings.Contains(lost.Err.Error(), tt.want) {
					t.Errorf("%v, want %s", lost.Err, tt.want)
				}
				if tooLarge := strings.Contains(tt.want, "too large"); errors.Is(lost.Err, zmtp.ErrTooLarge) != tooLarge {
					t.Errorf("%v is not the error it should be", lost.Err)
				}
				_ = sub.Close()
			})
		})
	}
}

// However a socket is stuck, Close frees it, at once and wholly: a bubble does
// not end while goroutines of it run.
func TestCloseWhileStuck(t *testing.T) {
	hang := func(p *scripted) { <-p.done }
	for _, tt := range []struct {
		name string
		dial func(t *testing.T) func(ctx context.Context, network, address string) (net.Conn, error)
	}{
		{"dialling", func(*testing.T) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}},
		{"waiting to dial", func(*testing.T) func(context.Context, string, string) (net.Conn, error) { return unreachable }},
		{"greeting", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			return pipes(t, false, hang)
		}},
		{"getting ready", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			return pipes(t, false, func(p *scripted) {
				p.say(hello31)
				hang(p)
			})
		}},
		{"reading", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			return pipes(t, false, func(p *scripted) {
				p.say(hello31, readyPub)
				hang(p)
			})
		}},
		{"amid a message", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			return pipes(t, false, func(p *scripted) {
				p.say(hello31, readyPub, "\x01\x02kv\x00\x09abc")
				hang(p)
			})
		}},
		{"handing over", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			return pipes(t, false, func(p *scripted) {
				p.say(hello31, readyPub)
				for n := 0; n < 1000 && p.conn != nil; n++ {
					p.say("\x00\x04data")
				}
				hang(p)
			})
		}},
		{"writing", func(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
			hang := make(chan struct{})
			t.Cleanup(func() { close(hang) })
			return pipes(t, true, func(p *scripted) {
				p.greet(hello31+readyPub, 64+27) // and no byte more
				<-hang
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sub := newSub(t, zmtp.Options{Dial: tt.dial(t)}, "")
				connect(t, sub, "tcp://engine:5557")
				synctest.Wait()
				begin := time.Now()
				if err := errors.Join(sub.Close(), sub.Close()); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("Close took %v", took)
				}
				for _, err := range sub.Messages(t.Context()) {
					if !errors.Is(err, zmtp.ErrClosed) && err != nil {
						t.Errorf("the stream ended: %v", err)
					}
				}
				if err := sub.Connect("tcp://engine:5557"); !errors.Is(err, zmtp.ErrClosed) {
					t.Errorf("Connect: %v", err)
				}
				if err := sub.Subscribe("kv"); !errors.Is(err, zmtp.ErrClosed) {
					t.Errorf("Subscribe: %v", err)
				}
			})
		})
	}
}

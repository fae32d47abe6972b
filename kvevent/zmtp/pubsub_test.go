package zmtp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// pairs are the ways to join two sockets.
func pairs(t *testing.T, run func(t *testing.T, join func(a, b socket))) {
	for _, network := range []string{"tcp", "ipc"} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first binds %v", network, first), func(t *testing.T) {
				run(t, func(a, b socket) {
					t.Helper()
					endpoint := "tcp://127.0.0.1:*"
					if network == "ipc" {
						endpoint = "ipc://" + filepath.Join(t.TempDir(), "s")
					}
					if !first {
						a, b = b, a
					}
					connect(t, b, bind(t, a, endpoint))
				})
			})
		}
	}
}

func TestPubSub(t *testing.T) {
	pairs(t, func(t *testing.T, join func(a, b socket)) {
		pub, sub := newPub(t, zmtp.Options{}), newSub(t, zmtp.Options{}, "kv", "log")
		r := read(t, sub)
		join(pub, sub)
		c := r.want(zmtp.Connected)
		if c.Peer.SocketType() != "PUB" || c.Peer.Address() == "" || c.Peer.Endpoint() == "" {
			t.Errorf("the peer is %+v", c.Peer)
		}
		r.want(zmtp.Subscribed)
		large := strings.Repeat("z", 3<<20)
		messages := [][]string{
			{"kv", number(0), "payload"}, {"none", "x"}, {"k"}, {""}, {"kv"}, {"kvx", "", ""}, {"log", large}, {"log", large[:1<<20], "", large[:300], large},
		}
		for _, m := range messages {
			send(t, pub, m...)
		}
		for _, i := range []int{0, 4, 5, 6, 7} {
			if m := r.wantParts(messages[i]...); m.Peer != c.Peer {
				t.Errorf("it came from %+v", m.Peer)
			}
		}
		if p, s := pub.Stats(), sub.Stats(); p.Sent != 5 || p.Dropped != 0 || s.Received != 5 || s.Peers != 1 {
			t.Errorf("publisher %+v, subscriber %+v", p, s)
		}
	})
}

// Every message comes once and in order, whatever its size and number of parts.
func TestPubSubMany(t *testing.T) {
	pub, sub := newPub(t, zmtp.Options{}), newSub(t, zmtp.Options{}, "")
	connect(t, sub, bind(t, pub, "tcp://127.0.0.1:*"))
	r := read(t, sub)
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)
	const count = 20_000
	body := make([]byte, 300_000)
	for i := range body {
		body[i] = byte(i % 251)
	}
	parts := func(rng *rand.Rand, n int) [][]byte {
		list := [][]byte{[]byte(number(n))}
		for range rng.IntN(4) {
			size := rng.IntN(300)
			if rng.IntN(500) == 0 {
				size = rng.IntN(len(body))
			}
			list = append(list, body[:size])
		}
		return list
	}
	go func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for n := range count {
			_ = pub.Send(parts(rng, n)...)
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range count {
		m, want := r.want(zmtp.Data), parts(rng, n)
		if len(m.Parts) != len(want) {
			t.Fatalf("message %d has %d parts, want %d", n, len(m.Parts), len(want))
		}
		for i := range want {
			if string(m.Parts[i]) != string(want[i]) {
				t.Fatalf("message %d: part %d differs", n, i)
			}
		}
	}
}

// Several publishers at one subscriber: each one's order is kept, and each is
// known by its connection.
func TestSeveralPublishers(t *testing.T) {
	sub := newSub(t, zmtp.Options{}, "")
	at := bind(t, sub, "tcp://127.0.0.1:*")
	const publishers, count = 5, 2000
	for p := range publishers {
		pub := newPub(t, zmtp.Options{})
		connect(t, pub, at)
		go func() {
			for pub.Subscribers(nil) == 0 {
				<-time.After(time.Millisecond)
			}
			for n := range count {
				_ = pub.Send([]byte{byte(p)}, []byte(number(n)))
			}
		}()
	}
	r := read(t, sub)
	next := map[byte]uint64{}
	from := map[*zmtp.Peer]byte{}
	for seen := 0; seen < publishers*count; {
		m := r.next()
		if m.Event != zmtp.Data {
			continue
		}
		seen++
		p := m.Parts[0][0]
		if known, ok := from[m.Peer]; ok && known != p {
			t.Fatalf("connection %d speaks for two publishers", m.Peer.Epoch())
		}
		from[m.Peer] = p
		if n := sequence(m.Parts[1]); n != next[p] {
			t.Fatalf("publisher %d: message %d, want %d", p, n, next[p])
		}
		next[p]++
	}
}

// A subscriber that does not read loses messages beyond its queue, the newest,
// and it alone; what is lost is counted.
func TestHighWater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resume := make(chan struct{})
		var slow, quick *scripted
		slowDial := pipes(t, true, func(p *scripted) {
			slow = p
			p.greet(hello31+readySub, 64+27)
			p.say("\x00\x01\x01")
			<-resume
			p.listen()
		})
		quickDial := pipes(t, false, func(p *scripted) {
			quick = p
			p.say(hello31, readySub, "\x04\x0a\x09SUBSCRIBE")
			<-p.done
		})
		pub := newPub(t, zmtp.Options{HighWater: 10, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "slow:1" {
				return slowDial(ctx, network, address)
			}
			return quickDial(ctx, network, address)
		}})
		connect(t, pub, "tcp://slow:1")
		connect(t, pub, "tcp://quick:1")
		synctest.Wait()
		if n := pub.Subscribers([]byte("x")); n != 2 {
			t.Fatalf("%d subscribers", n)
		}
		for n := range 25 {
			send(t, pub, fmt.Sprintf("m%02d", n))
			synctest.Wait()
		}
		if s := pub.Stats(); s.Dropped != 15 || s.Sent != 35 {
			t.Errorf("%+v, want 15 dropped", s)
		}
		for n := range 25 {
			if !quick.has(fmt.Sprintf("m%02d", n)) {
				t.Errorf("the quick subscriber lacks message %d", n)
			}
		}
		close(resume)
		synctest.Wait()
		for n := range 25 {
			if got := slow.has(fmt.Sprintf("m%02d", n)); got != (n < 10) {
				t.Errorf("the slow subscriber has message %d: %v", n, got)
			}
		}
		send(t, pub, "m99")
		synctest.Wait()
		if !slow.has("m99") {
			t.Error("the slow subscriber does not get messages again")
		}
		_ = pub.Close()
	})
}

// Bytes are bounded as messages are, but one message finds room always.
func TestQueueBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		var peer *scripted
		pub := newPub(t, zmtp.Options{QueueBytes: 1000, Dial: pipes(t, true, func(p *scripted) {
			peer = p
			p.greet(hello31+readySub, 64+27)
			p.say("\x00\x01\x01")
			<-read
			p.listen()
		})})
		connect(t, pub, "tcp://slow:1")
		synctest.Wait()
		send(t, pub, strings.Repeat("x", 5000))
		send(t, pub, "y")
		if s := pub.Stats(); s.Sent != 1 || s.Dropped != 1 {
			t.Errorf("%+v", s)
		}
		close(read)
		synctest.Wait()
		for range 3 {
			send(t, pub, strings.Repeat("z", 400))
			send(t, pub, strings.Repeat("z", 400))
			synctest.Wait()
		}
		if s := pub.Stats(); s.Sent != 7 || peer.times(strings.Repeat("z", 400)) != 6 {
			t.Errorf("%+v: there is no room again", s)
		}
		_ = pub.Close()
	})
}

// A publisher counts subscriptions of a peer, in both forms, and forgets them
// with the connection.
func TestSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan string)
		pub := newPub(t, zmtp.Options{Dial: pipes(t, false, func(p *scripted) {
			p.say(hello31, readySub)
			for s := range steps {
				p.say(s)
			}
		})})
		connect(t, pub, "tcp://sub:1")
		for _, step := range []struct {
			said string
			want map[string]int
		}{
			{"\x04\x0c\x09SUBSCRIBEkv", map[string]int{"kv": 1, "kvx": 1, "k": 0, "": 0, "x": 0}},
			{"\x00\x03\x01kv", map[string]int{"kv": 1}},
			{"\x04\x09\x06CANCELkv", map[string]int{"kv": 1}},
			{"\x00\x03\x00kv", map[string]int{"kv": 0}},
			{"\x00\x03\x00kv", map[string]int{"kv": 0}},
			{"\x00\x01\x01", map[string]int{"kv": 1, "": 1}},
			{"\x00\x02\x01k\x00\x01\x00", map[string]int{"kv": 1, "": 0}},
			{askAlive + "\x00\x02\x01q" + askAlive + "\x00\x02\x01r", map[string]int{"q": 1, "r": 1}},
			// What is no subscription has no meaning.
			{"\x00\x01\x01" + "\x00\x00\x00\x02\x02x\x01\x02\x01x\x00\x00\x04\x03\x02ab", map[string]int{"": 1}},
			{"\x00\x01\x00", map[string]int{"kv": 1, "x": 0, "": 0}},
		} {
			steps <- step.said
			synctest.Wait()
			for topic, want := range step.want {
				if got := pub.Subscribers([]byte(topic)); got != want {
					t.Errorf("after %q: %d subscribers of %q, want %d", step.said, got, topic, want)
				}
			}
		}
		close(steps)
		synctest.Wait()
		if n := pub.Subscribers([]byte("kv")); n != 0 {
			t.Errorf("%d subscribers when the connection has ended", n)
		}
		_ = pub.Close()
	})
}

// Messages of many senders come to all subscribers in one order.
func TestOneOrder(t *testing.T) {
	pub := newPub(t, zmtp.Options{})
	at := bind(t, pub, "tcp://127.0.0.1:*")
	var readers []*reader
	for range 3 {
		sub := newSub(t, zmtp.Options{}, "")
		connect(t, sub, at)
		r := read(t, sub)
		r.want(zmtp.Connected)
		r.want(zmtp.Subscribed)
		readers = append(readers, r)
	}
	const senders, count = 4, 500
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := range count {
				_ = pub.Send([]byte{byte(s)}, []byte(number(n)))
			}
		})
	}
	all.Wait()
	for range senders * count {
		first := readers[0].want(zmtp.Data).Clone()
		for _, r := range readers[1:] {
			r.wantParts(string(first.Parts[0]), string(first.Parts[1]))
		}
	}
}

// A loop may be left and begun again; nothing is lost in between.
func TestLoopsFollowEachOther(t *testing.T) {
	pub, sub := newPub(t, zmtp.Options{}), newSub(t, zmtp.Options{}, "")
	connect(t, sub, bind(t, pub, "tcp://127.0.0.1:*"))
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
	const count = 7 * 43
	for n := range count {
		send(t, pub, number(n))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for n := 0; n < count; {
		for m, err := range sub.Messages(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Event != zmtp.Data {
				continue
			}
			if sequence(m.Parts[0]) != uint64(n) {
				t.Fatalf("message %d, want %d", sequence(m.Parts[0]), n)
			}
			if n++; n%7 == 0 {
				break
			}
		}
	}
}

// The end of a context ends the loop with its cause, also while messages come,
// and a loop begun amid another is told so.
func TestLoopEnds(t *testing.T) {
	pub, sub := newPub(t, zmtp.Options{}), newSub(t, zmtp.Options{}, "")
	connect(t, sub, bind(t, pub, "tcp://127.0.0.1:*"))
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
	for n := range 100 {
		send(t, pub, number(n))
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	data, ends := 0, 0
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			ends++
			if !errors.Is(err, why) {
				t.Errorf("the loop ended with %v", err)
			}
			continue
		}
		if m.Event == zmtp.Data {
			data++
			cancel(why)
			for _, err := range sub.Messages(t.Context()) {
				if err == nil || !strings.Contains(err.Error(), "another loop") {
					t.Fatalf("a second loop: %v", err)
				}
			}
		}
	}
	if data != 1 || ends != 1 {
		t.Errorf("%d messages and %d ends", data, ends)
	}
	waiting, stop := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, stop)
	ends = 0
	for _, err := range sub.Messages(waiting) {
		if err != nil {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d ends", ends)
	}
}

// A clone stays when the buffer of its message is read into again.
func TestClone(t *testing.T) {
	part := []byte("kept")
	m := zmtp.Message{Event: zmtp.Data, Parts: [][]byte{part, {}}}
	c := m.Clone()
	copy(part, "lost")
	m.Parts[1] = part
	if len(c.Parts) != 2 || string(c.Parts[0]) != "kept" || len(c.Parts[1]) != 0 {
		t.Errorf("the clone holds %q", c.Parts)
	}
}

// What is beyond the limits is not sent, whether or not somebody would get it.
func TestSendLimits(t *testing.T) {
	pub := newPub(t, zmtp.Options{MaxMessage: 100, MaxParts: 2})
	for _, parts := range [][][]byte{{make([]byte, 101)}, {make([]byte, 60), make([]byte, 60)}, {nil, nil, nil}} {
		if err := pub.Send(parts...); !errors.Is(err, zmtp.ErrTooLarge) {
			t.Errorf("%d parts: %v", len(parts), err)
		}
	}
	if err := pub.Send(); err == nil {
		t.Error("a message without parts was sent")
	}
	if err := pub.Send(make([]byte, 60), make([]byte, 40)); err != nil {
		t.Error(err)
	}
	_ = pub.Close()
	if err := pub.Send(nil); !errors.Is(err, zmtp.ErrClosed) {
		t.Errorf("a closed socket: %v", err)
	}
	if err := newPub(t, zmtp.Options{MaxMessage: -1}).Send(make([]byte, 128<<20+1)); !errors.Is(err, zmtp.ErrTooLarge) {
		t.Errorf("a limit below zero is none: %v", err)
	}
	sub := newSub(t, zmtp.Options{})
	if err := sub.Subscribe(strings.Repeat("x", 9000)); err == nil {
		t.Error("a prefix that no command can hold was taken")
	}
}

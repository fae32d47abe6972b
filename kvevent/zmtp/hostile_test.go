package zmtp_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// Whoever comes that is no peer is turned away, and harms nobody who is one.
func TestBoundAmongStrangers(t *testing.T) {
	sub := newSub(t, zmtp.Options{}, "")
	at := bind(t, sub, "tcp://127.0.0.1:*")
	address := strings.TrimPrefix(at, "tcp://")
	pub := newPub(t, zmtp.Options{})
	connect(t, pub, at)
	r := read(t, sub)
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)

	strangers := map[string]func() error{
		"HTTP": func() error {
			resp, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + address + "/")
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		},
		"TLS": func() error {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
		"noise": func() error { return ended(rawDial(t, at), strings.Repeat("\x00\x80\xaa", 1000)) },
		"a publisher's enemy": func() error {
			return ended(rawDial(t, at), hello31+"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH")
		},
		"huge READY": func() error { return ended(rawDial(t, at), hello31+"\x06\x00\x00\x00\xff\x00\x00\x00\x00") },
	}
	for name, come := range strangers {
		if err := come(); err == nil {
			t.Errorf("%s was welcome", name)
		}
	}
	_ = rawDial(t, at).Close()
	waitFor(t, func() bool { return sub.Stats().Refused >= uint64(len(strangers)) })
	send(t, pub, "still", "here")
	r.wantParts("still", "here")
	if s := sub.Stats(); s.Connected != 1 || s.Peers != 1 {
		t.Errorf("%+v", s)
	}
}

// ended says something and returns why the connection ended.
func ended(conn net.Conn, said string) error {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, said)
	if n, err := io.Copy(io.Discard, conn); err != nil {
		return err
	} else if n > 1000 {
		return nil
	}
	return io.EOF
}

// A peer that claims to send much and does not costs what it sends.
func TestClaimsCostNothing(t *testing.T) {
	sub := newSub(t, zmtp.Options{MaxMessage: 1 << 40}, "")
	at := bind(t, sub, "tcp://127.0.0.1:*")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const peers = 20
	for range peers {
		_, _ = io.WriteString(rawDial(t, at), hello30+readyPub+"\x02\x00\x00\x00\xff\x00\x00\x00\x00some")
	}
	waitFor(t, func() bool { return sub.Stats().Peers == peers })
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d claims made us take %d bytes", peers, grown)
	}
}

// A message of the largest size passes, and one byte more ends the connection.
func TestMaxMessage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parts []int
		good  bool
	}{
		{"as large as can be", []int{60_000, 40_000}, true},
		{"too large", []int{100_001}, false},
		{"too large together", []int{60_000, 40_001}, false},
		{"as many parts as can be", []int{1, 2, 3, 4}, true},
		{"too many parts", []int{1, 2, 3, 4, 5}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pub, sub := newPub(t, zmtp.Options{}), newSub(t, zmtp.Options{MaxMessage: 100_000, MaxParts: 4}, "")
			connect(t, sub, bind(t, pub, "tcp://127.0.0.1:*"))
			r := read(t, sub)
			r.want(zmtp.Connected)
			r.want(zmtp.Subscribed)
			var parts []string
			for _, n := range tt.parts {
				parts = append(parts, strings.Repeat("x", n))
			}
			send(t, pub, "before")
			send(t, pub, parts...)
			send(t, pub, "after")
			r.wantParts("before")
			if tt.good {
				r.wantParts(parts...)
				r.wantParts("after")
				return
			}
			lost := r.want(zmtp.Lost)
			if !strings.Contains(lost.Err.Error(), "too large") {
				t.Errorf("lost because %v", lost.Err)
			}
			r.want(zmtp.Connected) // and it goes on
		})
	}
}

// More connections than may be are closed at once, and there is room again when
// one has ended.
func TestMaxPeers(t *testing.T) {
	pub := newPub(t, zmtp.Options{MaxPeers: 2})
	at := bind(t, pub, "tcp://127.0.0.1:*")
	first, second := rawDial(t, at), rawDial(t, at)
	for _, conn := range []net.Conn{first, second} {
		if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	third := rawDial(t, at)
	_ = third.SetDeadline(time.Now().Add(5 * time.Second))
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("a third peer was greeted")
	}
	_ = first.Close()
	sub := newSub(t, zmtp.Options{}, "")
	connect(t, sub, at)
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
}

// A subscriber cannot make a publisher remember without end.
func TestTooManySubscriptions(t *testing.T) {
	pub := newPub(t, zmtp.Options{})
	at := bind(t, pub, "tcp://127.0.0.1:*")
	var said bytes.Buffer
	said.WriteString(hello30 + readySub)
	for n := range 4097 {
		said.WriteString("\x00\x05\x01")
		said.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
	}
	if err := ended(rawDial(t, at), said.String()); err == nil {
		t.Error("4097 subscriptions were taken")
	}
	waitFor(t, func() bool { return pub.Stats().Lost == 1 })
	if err := ended(rawDial(t, at), hello30+readySub+"\x02\x00\x00\x00\x00\x00\x00\x20\x01"); err == nil {
		t.Error("a subscription of 8 KiB was taken")
	}
}

// A peer that asks and asks, and does not read the answers, fills no memory.
func TestQuestionsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peer *scripted
		listen := make(chan struct{})
		sub := newSub(t, zmtp.Options{Dial: pipes(t, true, func(p *scripted) {
			peer = p
			p.greet(hello30+readyPub, 64+27)
			p.say(strings.Repeat("\x04\x17\x04PING\x00\x000123456789abcdef", 20_000))
			<-listen
			p.listen()
		})})
		connect(t, sub, "tcp://engine:1")
		synctest.Wait()
		close(listen)
		synctest.Wait()
		// 64 KiB wait, and what is being written is as much again at most.
		if n := peer.times("PONG"); n < 1000 || n > 2*(64<<10)/23+2 {
			t.Errorf("%d answers", n)
		}
		_ = sub.Close()
	})
}

// Answers to questions that nobody asked are believed, but fill no memory
// either.
func TestAnswersWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peer *scripted
		listen := make(chan struct{})
		sub := newSub(t, zmtp.Options{Dial: pipes(t, true, func(p *scripted) {
			peer = p
			p.greet(hello31+readyPub, 64+27)
			p.say(strings.Repeat(sayProbe, 20_000))
			<-listen
			p.listen()
		})})
		connect(t, sub, "tcp://engine:1")
		synctest.Wait()
		close(listen)
		synctest.Wait()
		if n := peer.times("confirm"); n < 1000 || n > 2*(64<<10)/len(askConfirm)+2 {
			t.Errorf("%d further questions", n)
		}
		_ = sub.Close()
	})
}

// Peers that come and go leave nothing behind.
func TestNothingIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	sub := newSub(t, zmtp.Options{}, "")
	at := bind(t, sub, "tcp://127.0.0.1:*")
	for n := range 50 {
		conn := rawDial(t, at)
		_, _ = io.WriteString(conn, hello31+readyPub+"\x00\x01x"[:n%4])
		_ = conn.Close()
	}
	pub := newPub(t, zmtp.Options{})
	connect(t, pub, at)
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
	for range 100 {
		send(t, pub, "kv")
	}
	_ = pub.Close()
	_ = sub.Close()
	// Close waits for all that a socket runs; the runtime may need a moment to
	// count it as ended.
	waitFor(t, func() bool { return runtime.NumGoroutine() <= before })
}

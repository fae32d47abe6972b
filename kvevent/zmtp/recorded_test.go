package zmtp

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

// meet lets a socket meet a side of a recorded session, which says what it said
// then and stays until the returned function is called.
func meet(t *testing.T, s *socket, said []byte) (leave func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := theirs.Read(buf); err != nil {
				return
			}
		}
	}()
	if err := s.start(func() { _, _ = s.serve(ours, "tcp://recorded:1") }); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write(said); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() {
		_ = theirs.Close()
		synctest.Wait()
	}
}

// find returns a recorded session and its side of a kind.
func find(t *testing.T, title, kind string) []byte {
	t.Helper()
	for _, s := range recorded(t) {
		for side := range s.kinds {
			if s.kinds[side] == kind && strings.Contains(s.title, title) {
				return s.sent[side]
			}
		}
	}
	t.Fatalf("no %s of a session %q is recorded", kind, title)
	return nil
}

// wantMessages reads from an inbox what must be in it.
func wantMessages(t *testing.T, b *inbox, want ...string) {
	t.Helper()
	for m, err := range b.messages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Event != Data {
			continue
		}
		if got := strings.Join(texts(m.Parts), "|"); got != want[0] {
			t.Errorf("received %q, want %q", got, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			return
		}
	}
}

func TestRecordedPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := NewSub(Options{})
		leave := meet(t, sub.socket, find(t, "Three parts", "PUB"))
		wantMessages(t, sub.inbox, "kv|\x00\x00\x00\x00\x00\x00\x00\x00|"+strings.Repeat("x", 256), "kv||last")
		leave()
		leave = meet(t, sub.socket, find(t, "PING and PONG", "PUB"))
		wantMessages(t, sub.inbox, "still here")
		leave()
		_ = sub.Close()
	})
}

func TestRecordedSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub := NewPub(Options{})
		said := find(t, "Three parts", "SUB")
		cancelled := strings.Index(string(said), "\x04\x09\x06CANCEL")
		leave := meet(t, pub.socket, said[:cancelled])
		if pub.Subscribers([]byte("kv")) != 1 || pub.Subscribers([]byte("other")) != 0 {
			t.Error("the subscription has no effect")
		}
		leave()
		leave = meet(t, pub.socket, said)
		if pub.Subscribers([]byte("kv")) != 0 || pub.Stats().Peers != 1 {
			t.Error("the cancellation has no effect")
		}
		leave()
		_ = pub.Close()
	})
}

func TestRecordedRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dealer := NewDealer(Options{})
		leave := meet(t, dealer.socket, find(t, "three answers", "ROUTER"))
		wantMessages(t, dealer.inbox, "|\x00\x00\x00\x00\x00\x00\x00\x07|payload", "|\x00\x00\x00\x00\x00\x00\x00\x08|payload", "|\xff\xff\xff\xff\xff\xff\xff\xff|")
		leave()
		_ = dealer.Close()
	})
}

func TestRecordedDealers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := NewRouter(Options{})
		leave := meet(t, router.socket, find(t, "three answers", "DEALER"))
		wantMessages(t, router.inbox, "|\x00\x00\x00\x00\x00\x00\x00\x07")
		leave()
		leave = meet(t, router.socket, find(t, "REQ", "REQ"))
		wantMessages(t, router.inbox, "|question")
		leave()
		_ = router.Close()
	})
}

// Whatever a peer says after its greeting, a socket ends the connection or goes
// on, hands over whole messages within the limits, and can be closed.
func FuzzPeer(f *testing.F) {
	f.Add(byte(0), []byte("\x01\x02kv\x00\x05hello\x04\x07\x04PING\x00\x00"))
	f.Add(byte(1), []byte("\x00\x03\x01kv\x04\x0c\x09SUBSCRIBEkv\x04\x09\x06CANCELkv\x00\x01\x00"))
	f.Add(byte(2), []byte("\x01\x00\x00\x08question\x04\x09\x05ERROR\x02no"))
	f.Fuzz(func(t *testing.T, kind byte, said []byte) {
		o := Options{MaxMessage: 100, MaxParts: 3}
		var s *socket
		peer := ""
		switch kind % 3 {
		case 0:
			s, peer = NewSub(o).socket, "PUB"
		case 1:
			s, peer = NewPub(o).socket, "SUB"
		case 2:
			s, peer = NewRouter(o).socket, "DEALER"
		}
		ours, theirs := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			_, _ = s.serve(ours, "tcp://fuzz:1")
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(appendReady(append([]byte(nil), greeting[:]...), metadata{socketType: peer}))
			_, _ = theirs.Write(said)
			_ = theirs.Close()
		}()
		if s.inbox != nil {
			for m, err := range s.inbox.messages(ctx) {
				if err != nil || m.Event == Lost {
					break
				}
				if _, size := wireSize(m.Parts); m.Event == Data && (len(m.Parts) == 0 || len(m.Parts) > 3 || size > 100) {
					t.Errorf("a message of %d bytes in %d parts", size, len(m.Parts))
				}
			}
		}
		<-ctx.Done()
		_ = s.Close()
		if n := s.Stats(); n.Peers != 0 || n.Connected != n.Lost {
			t.Errorf("%+v", n)
		}
	})
}

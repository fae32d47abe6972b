package zmtp

import (
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

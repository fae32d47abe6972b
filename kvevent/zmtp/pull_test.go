package zmtp_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/kvevent/zmtp"
)

const readyPush = "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"

func newPull(t testing.TB, o zmtp.Options) *zmtp.Pull { return kept(t, zmtp.NewPull(o)) }

// Any number of peers send, each over a connection of its own.
func TestPull(t *testing.T) {
	pull := newPull(t, zmtp.Options{})
	at := bind(t, pull, "tcp://127.0.0.1:*")
	r := read(t, pull)
	for n := range 3 {
		conn := rawDial(t, at)
		said := hello31 + readyPush + "\x01\x05topic\x01\x01" + string(rune('0'+n)) + "\x00\x02ok"
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if c := r.want(zmtp.Connected); c.Peer.SocketType() != "PUSH" || c.Peer.Epoch() != uint64(n+1) {
			t.Errorf("a %s, connection %d", c.Peer.SocketType(), c.Peer.Epoch())
		}
		r.wantParts("topic", string(rune('0'+n)), "ok")
	}
	if s := pull.Stats(); s.Received != 3 || s.Peers != 3 {
		t.Errorf("%+v", s)
	}
}

// Who is no PUSH is told so, and hung up on.
func TestPullTakesPushAlone(t *testing.T) {
	for _, ready := range []string{readyPub, readySub, readyDealer, readyRouter} {
		pull := newPull(t, zmtp.Options{})
		conn := rawDial(t, bind(t, pull, "tcp://127.0.0.1:*"))
		if _, err := conn.Write([]byte(hello31 + ready + "\x00\x02no")); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return pull.Stats().Refused == 1 })
		if s := pull.Stats(); s.Connected != 0 || s.Received != 0 {
			t.Errorf("%q: %+v", ready[len(ready)-6:], s)
		}
	}
}

// A message beyond the limits ends its connection, and no other.
func TestPullLimits(t *testing.T) {
	pull := newPull(t, zmtp.Options{MaxMessage: 1000, MaxParts: 3})
	at := bind(t, pull, "tcp://127.0.0.1:*")
	r := read(t, pull)
	for _, said := range []string{"\x02\x00\x00\x00\x00\x7f\xff\xff\xff", "\x01\x01a\x01\x01b\x01\x01c\x00\x01d"} {
		conn := rawDial(t, at)
		if _, err := conn.Write([]byte(hello31 + readyPush + said)); err != nil {
			t.Fatal(err)
		}
		r.want(zmtp.Connected)
		if lost := r.want(zmtp.Lost); !strings.Contains(lost.Err.Error(), "too large") {
			t.Errorf("%v", lost.Err)
		}
	}
	conn := rawDial(t, at)
	if _, err := conn.Write([]byte(hello31 + readyPush + "\x00\x02ok")); err != nil {
		t.Fatal(err)
	}
	r.want(zmtp.Connected)
	r.wantParts("ok")
}

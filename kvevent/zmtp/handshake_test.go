package zmtp

import (
	"bytes"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"
)

// tape is a connection to a peer that has said everything already.
type tape struct {
	io.Reader
	sent bytes.Buffer
}

func (t *tape) Write(b []byte) (int, error) { return t.sent.Write(b) }

func greet(change func(g []byte)) string {
	g := bytes.Clone(greeting[:])
	change(g)
	return string(g)
}

func TestShake(t *testing.T) {
	plain := string(greeting[:])
	older := greet(func(g []byte) { g[11] = 0 })
	readyPub := string(appendReady(nil, metadata{socketType: "PUB"}))
	for _, tt := range []struct {
		name, peer string
		minor      byte
		problem    string
		told       string // what of it the peer is told
	}{
		{name: "a publisher", peer: plain + readyPub, minor: 1},
		{name: "an older publisher", peer: older + readyPub, minor: 0},
		{name: "a later version", peer: greet(func(g []byte) { g[10], g[11] = 4, 0 }) + readyPub, minor: 1},
		{name: "any padding", peer: greet(func(g []byte) { copy(g[1:], "\xff\x00\x01\x02") }) + readyPub, minor: 1},
		{name: "commands before READY", peer: plain + string(appendPing(nil, "")) + readyPub, minor: 1},
		{name: "a long READY", peer: plain + "\x06\x00\x00\x00\x00\x00\x00\x00\x19" + readyPub[2:], minor: 1},

		{name: "HTTP", peer: "HTTP/1.1 400 Bad Request\r\n", problem: `does not speak ZMTP: its first bytes are "H`},
		{name: "TLS", peer: "\x16\x03\x01\x02\x00", problem: "it seems, TLS"},
		{name: "TLS alert", peer: "\x15\x03\x01\x00\x02\x02\x46", problem: "first bytes are 15"},
		{name: "ZMTP 1", peer: "\x01\x00", problem: "does not speak ZMTP 3"},
		{name: "ZMTP 1 with a long identity", peer: "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00", problem: "does not speak ZMTP 3"},
		{name: "ZMTP 2", peer: greet(func(g []byte) { g[10] = 1 }), problem: "older ZMTP, revision 1"},
		{name: "CURVE", peer: greet(func(g []byte) { copy(g[mechanismAt:], "CURVE") }), problem: `"CURVE"; only NULL`, told: "CURVE"},
		{name: "nobody", peer: "", problem: "instead of greeting"},
		{name: "half a greeting", peer: plain[:40], problem: "instead of greeting"},
		{name: "nothing after the greeting", peer: plain, problem: "closed the connection after the greeting"},
		{name: "half a READY", peer: plain + readyPub[:9], problem: "closed the connection after the greeting"},
		{name: "a wrong type", peer: plain + string(appendReady(nil, metadata{socketType: "PULL"})), problem: `a PULL socket; a SUB socket talks to ["PUB" "XPUB"]`, told: "PULL"},
		{name: "an error", peer: plain + string(appendError(nil, "too many")), problem: `"too many"`},
		{name: "a message first", peer: plain + "\x00\x01x", problem: "a message before it is ready"},
		{name: "a command without a name", peer: plain + "\x04\x00", problem: "without a whole name"},
		{name: "a large READY", peer: plain + "\x06\x00\x00\x00\x00\x7f\x00\x00\x00", problem: "a command of 2130706432 bytes"},
		{name: "commands without end", peer: plain + strings.Repeat(string(appendPing(nil, "")), 100), problem: "no READY"},
		{name: "READY without a type", peer: plain + string(appendCommand(nil, ready)), problem: "without Socket-Type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const rest = "\x00\x04rest"
			peer := &tape{Reader: strings.NewReader(tt.peer)}
			if tt.problem == "" {
				peer.Reader = strings.NewReader(tt.peer + rest)
			}
			got, err := shake(peer, metadata{socketType: "SUB"})
			if !bytes.HasPrefix(peer.sent.Bytes(), greeting[:]) {
				t.Error("there was no greeting")
			}
			if tt.problem != "" {
				if !says(err, tt.problem) {
					t.Errorf("%v, want %q", err, tt.problem)
				}
				if told := strings.Contains(peer.sent.String(), "\x05ERROR"); told != (tt.told != "") || !strings.Contains(peer.sent.String(), tt.told) {
					t.Errorf("the peer was sent %q", peer.sent.String()[greetingSize:])
				}
				return
			}
			if err != nil || got.minor != tt.minor || got.socketType != "PUB" {
				t.Errorf("%+v, %v", got, err)
			}
			if left, _ := io.ReadAll(peer); string(left) != rest {
				t.Errorf("it left %q, want %q", left, rest)
			}
		})
	}
}

// The sockets of libzmq, as recorded, are greeted as they greet each other.
func TestShakeRecorded(t *testing.T) {
	fits := 0
	for _, s := range recorded(t) {
		for side, kind := range s.kinds {
			if partners[kind] == nil {
				continue // not one of ours
			}
			peer := &tape{Reader: bytes.NewReader(s.sent[1-side])}
			got, err := shake(peer, metadata{kind, s.identity(t, side)})
			if s.refused() {
				if err == nil {
					t.Errorf("%s: %s took its peer", s.title, kind)
				}
				continue
			}
			if err != nil || got.minor != 1 || got.socketType != s.kinds[1-side] {
				t.Errorf("%s: %s: %+v, %v", s.title, kind, got, err)
			}
			want := bytes.Clone(s.sent[side][:peer.sent.Len()])
			copy(want[1:9], greeting[1:9]) // padding has no meaning
			if !bytes.Equal(peer.sent.Bytes(), want) {
				t.Errorf("%s: %s sent\n%x, libzmq\n%x", s.title, kind, peer.sent.Bytes(), want)
			}
			fits++
		}
	}
	if fits < 6 {
		t.Errorf("only %d sides were recorded", fits)
	}
}

// session is what two sockets of libzmq said to each other.
type session struct {
	title string
	kinds [2]string
	sent  [2][]byte
}

// refused says whether the recorded sockets did not become friends.
func (s session) refused() bool { return strings.Contains(s.title, "do not fit") }

// identity returns what a side called itself.
func (s session) identity(t *testing.T, side int) []byte {
	t.Helper()
	if len(s.sent[side]) == greetingSize {
		return nil
	}
	m, err := readReady(bytes.NewReader(s.sent[side][greetingSize:]))
	if err != nil {
		t.Fatal(err)
	}
	return m.identity
}

// recorded reads testdata/libzmq.txt.
func recorded(t *testing.T) []session {
	t.Helper()
	text, err := os.ReadFile("testdata/libzmq.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []session
	for _, paragraph := range strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:] {
		lines := strings.Split(paragraph, "\n")
		s := session{title: strings.TrimPrefix(lines[0], "# ")}
		for i, line := range lines[1:] {
			kind, sent, _ := strings.Cut(line, " ")
			s.kinds[i] = kind
			if s.sent[i], err = hex.DecodeString(sent); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, s)
	}
	return list
}

// A peer of any kind is taken or refused, and never asked for more than a
// handshake.
func FuzzShake(f *testing.F) {
	f.Add(greeting[:])
	f.Add([]byte(greet(func(g []byte) { g[11] = 0 }) + string(appendReady(nil, metadata{socketType: "PUB"}))))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		peer := &tape{Reader: bytes.NewReader(said)}
		got, err := shake(peer, metadata{socketType: "SUB"})
		if err == nil && got.socketType != "PUB" && got.socketType != "XPUB" {
			t.Errorf("it took %q", got.socketType)
		}
		if err == nil && got.minor > said[11] && said[10] == major {
			t.Errorf("minor version %d of %d", got.minor, said[11])
		}
	})
}

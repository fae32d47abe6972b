package zmtp_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// A socket path that a dead process left behind is taken over; one that is in
// use, or is no socket, is not.
func TestBindPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	pub := newPub(t, zmtp.Options{})
	if at := bind(t, pub, "ipc://"+path); at != "ipc://"+path {
		t.Errorf("bound at %s", at)
	}
	if _, err := newPub(t, zmtp.Options{}).Bind(t.Context(), "ipc://"+path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a path in use: %v", err)
	}
	sub := newSub(t, zmtp.Options{}, "")
	connect(t, sub, "ipc://"+path)
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
	_ = pub.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the path of a closed socket: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newPub(t, zmtp.Options{}).Bind(t.Context(), "ipc://"+file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

func TestBindPort(t *testing.T) {
	pub := newPub(t, zmtp.Options{})
	at := bind(t, pub, "tcp://127.0.0.1:*")
	if strings.HasSuffix(at, ":0") || !strings.HasPrefix(at, "tcp://127.0.0.1:") {
		t.Errorf("bound at %s", at)
	}
	if _, err := newSub(t, zmtp.Options{}).Bind(t.Context(), at); err == nil || !strings.Contains(err.Error(), "bind "+at) {
		t.Errorf("a port in use: %v", err)
	}
	_ = pub.Close()
	if again := bind(t, newPub(t, zmtp.Options{}), at); again != at {
		t.Errorf("bound at %s, want %s", again, at)
	}
	if all := bind(t, newPub(t, zmtp.Options{}), "tcp://*:*"); !strings.HasPrefix(all, "tcp://") || strings.HasSuffix(all, ":0") {
		t.Errorf("bound at %s", all)
	}
}

func TestBadEndpoints(t *testing.T) {
	sub := newSub(t, zmtp.Options{})
	for endpoint, want := range map[string]string{
		"tcp://*:5557":       "zmtp: connect: endpoint tcp://*:5557 is a wildcard: one binds it, but connects to one host and port",
		"tcp://127.0.0.1:0":  "zmtp: connect: endpoint tcp://127.0.0.1:0 is a wildcard: one binds it, but connects to one host and port",
		"udp://127.0.0.1:1":  `zmtp: connect: endpoint "udp://127.0.0.1:1" must begin with tcp:// or ipc://`,
		"tcp://127.0.0.1:kv": `zmtp: connect: endpoint "tcp://127.0.0.1:kv": the port must be a number up to 65535, or *`,
	} {
		if err := sub.Connect(endpoint); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", endpoint, err, want)
		}
	}
	if _, err := sub.Bind(t.Context(), "tcp://5557"); err == nil || !strings.HasPrefix(err.Error(), "zmtp: bind: ") {
		t.Errorf("%v", err)
	}
}

func TestBadIdentity(t *testing.T) {
	for id, good := range map[string]bool{"me": true, strings.Repeat("x", 255): true, strings.Repeat("x", 256): false, "\x00me": false} {
		dealer := newDealer(t, zmtp.Options{Identity: []byte(id)})
		_, err := dealer.Bind(t.Context(), "tcp://127.0.0.1:*")
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "identity") {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}

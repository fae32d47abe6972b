package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvcache/peer"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func open(t testing.TB, opts peer.Options) *peer.Store {
	t.Helper()
	s, err := peer.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// patient is for tests in which a slow machine is no matter.
func patient(s *redis) peer.Options {
	return peer.Options{Address: s.address, Lookup: 10 * time.Second}
}

func TestDriver(t *testing.T) {
	storetest.Run(t, storetest.Kit{
		Open: func(t testing.TB) (store.Driver, func() store.Driver) {
			opts := patient(serve(t))
			opts.Prefix = "a[b]*"
			return open(t, opts), func() store.Driver { return open(t, opts) }
		},
		Largest: 1 << 20, Steps: 40,
	})
}

// TestServer runs the contract against the server at PEER_ADDRESS, with the
// password PEER_PASSWORD. Without, there is the one of these tests.
func TestServer(t *testing.T) {
	address := os.Getenv("PEER_ADDRESS")
	if address == "" {
		return
	}
	var n atomic.Int64
	storetest.Run(t, storetest.Kit{
		Open: func(t testing.TB) (store.Driver, func() store.Driver) {
			opts := peer.Options{
				Address: address, Password: os.Getenv("PEER_PASSWORD"), Lookup: 10 * time.Second,
				Prefix: fmt.Sprintf("run%d[%d]", time.Now().UnixNano(), n.Add(1)),
			}
			return open(t, opts), func() store.Driver { return open(t, opts) }
		},
		Largest: 1 << 20, Steps: 40,
	})
}

// What a server lost, changed or was given by others is a miss, and never wrong
// bytes.
func TestTornValues(t *testing.T) {
	r := serve(t)
	s, ctx := open(t, patient(r)), t.Context()
	for name, tear := range map[string]func(){
		"bytes evicted":   func() { delete(r.data, "kkv_bytes") },
		"header evicted":  func() { delete(r.data, "kmetadata") },
		"other bytes":     func() { r.data["kkv_bytes"] = "4567" },
		"fewer bytes":     func() { r.data["kkv_bytes"] = "012" },
		"foreign header":  func() { r.data["kmetadata"] = strings.Repeat("\x01", 28) },
		"header with rot": func() { r.data["kmetadata"] = r.data["kmetadata"][:40] + "!" },
	} {
		if err := s.Put(ctx, "k", []byte("0123"), []byte("tag!")); err != nil {
			t.Fatal(name, err)
		}
		r.mu.Lock()
		tear()
		r.mu.Unlock()
		for range 2 {
			if v, err := s.Get(ctx, "k"); err == nil {
				t.Errorf("%s: read %q", name, v.Bytes)
			}
		}
		if err := s.Put(ctx, "k", []byte("0123"), nil); err != nil {
			t.Fatal(name, err)
		}
		if v, err := s.Get(ctx, "k"); err != nil || string(v.Bytes) != "0123" {
			t.Errorf("%s: after another Put: %v", name, err)
		}
	}
	if c := s.Counts(); c.Corrupt != 5 || c.Failures != 0 {
		t.Errorf("counts %+v", c)
	}
}

// A peer that closed connections which were kept is asked anew, without anybody
// noticing.
func TestConnectionsThatWereClosed(t *testing.T) {
	r := serve(t)
	s := open(t, patient(r))
	for i := range 5 {
		if err := s.Put(t.Context(), fmt.Sprint(i), []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
		r.hangUp()
	}
	if c := s.Counts(); c.Failures != 0 {
		t.Errorf("counts %+v", c)
	}
}

// A connection that breaks in the middle of a Put leaves nothing, and not the
// header of what was there before.
func TestBrokenPut(t *testing.T) {
	r := serve(t)
	s := open(t, patient(r))
	if err := s.Put(t.Context(), "k", []byte("old"), nil); err != nil {
		t.Fatal(err)
	}
	r.do(func(words []string) string {
		if words[0] == "SET" && strings.HasSuffix(words[1], "metadata") {
			return hangUp
		}
		return ""
	})
	if err := s.Put(t.Context(), "k", []byte("new one"), nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Put: %v", err)
	}
	if e, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat: %+v, %v", e, err)
	}
	if v, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get: %+v, %v", v, err)
	}
}

func TestPasswords(t *testing.T) {
	r := serve(t)
	r.password = "secret"
	for _, tt := range []struct {
		user, password, says string
	}{{"", "secret", ""}, {"me", "secret", ""}, {"", "wrong", "WRONGPASS"}, {"", "", "NOAUTH"}} {
		opts := patient(r)
		opts.User, opts.Password = tt.user, tt.password
		err := open(t, opts).Put(t.Context(), "k", nil, nil)
		if tt.says == "" && err != nil || tt.says != "" && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A server that has no memory left is full, and has nothing of the value.
func TestFullServer(t *testing.T) {
	r := serve(t)
	s := open(t, patient(r))
	r.do(func(words []string) string {
		if words[0] == "SET" && strings.HasSuffix(words[1], "kv_bytes") {
			return "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
		}
		return ""
	})
	if err := s.Put(t.Context(), "k", []byte("v"), nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("Put: %v", err)
	}
	if e, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat: %+v, %v", e, err)
	}
}

// Answers that are none end the connection; those that lie about lengths cost
// neither memory nor time.
func TestBadAnswers(t *testing.T) {
	for _, answer := range []string{
		"$999999999999999999\r\n", "$-2\r\n", "*1000000000\r\n", "*-7\r\n", "\r\n", "?\r\n", "$3\r\nabcd\r\n", "*2\r\n:1\r\n:2\n",
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", strings.Repeat("x", 10_000), "*1\r\n$-1\r\n", "+OK\r\n", ":x\r\n", "-ERR no\r\n",
	} {
		r := serve(t)
		s := open(t, patient(r))
		r.do(func([]string) string { return answer })
		if v, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%.40q: %v, %v", answer, v, err)
		}
	}
}

// A peer that does not answer is a miss after 50 ms, and after five of them at
// once, but for one try each five seconds.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := peer.New(peer.Options{
			Address: "peer:6379",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					b := make([]byte, 1024)
					for {
						if _, err := theirs.Read(b); err != nil {
							return
						}
					}
				}()
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		took := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) || time.Since(start) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(start), want)
			}
		}
		for range 5 {
			took(peer.Lookup)
		}
		took(0)
		time.Sleep(store.BreakerPause)
		took(peer.Lookup)
		took(0)
		if c := s.Counts(); c.Failures != 6 || c.Refused != 2 || !c.Open {
			t.Errorf("counts %+v", c)
		}
		time.Sleep(store.BreakerPause)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who gives up: %v", err)
		}
	})
}

// A peer that begins an answer and then says nothing more holds up those who only
// want to know whether something is there for 50 ms as well, and those who want it
// for as long as a transfer may take.
func TestPeerThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := peer.New(peer.Options{
			Address: "peer:6379", Password: "secret",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					b := make([]byte, 1024)
					for {
						n, err := theirs.Read(b)
						if err != nil {
							return
						}
						if strings.Contains(string(b[:n]), "AUTH") {
							theirs.Write([]byte("+OK\r\n"))
						} else {
							theirs.Write([]byte("$"))
						}
					}
				}()
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		start := time.Now()
		if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) || time.Since(start) != peer.Lookup {
			t.Errorf("Stat: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) || time.Since(start) != peer.Transfer {
			t.Errorf("Get: %v after %v", err, time.Since(start))
		}
	})
}

// The strings of one answer are bounded together, and what holds nothing as well.
func TestAnswersWithoutEnd(t *testing.T) {
	name := "$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n"
	for _, tt := range []struct {
		answer string
		fits   bool
	}{
		{"*2\r\n:0\r\n*9\r\n" + strings.Repeat(name, 9), true},
		{"*2\r\n:0\r\n*11\r\n" + strings.Repeat(name, 11), false},
		{"*2\r\n*6\r\n" + strings.Repeat(name, 6) + "*6\r\n" + strings.Repeat(name, 6), false},
		{"*60000\r\n" + strings.Repeat("*0\r\n", 60_000), false},
	} {
		if _, err := peer.Reread([]byte(tt.answer)); (err == nil) != tt.fits {
			t.Errorf("%.30q…, %d bytes: %v", tt.answer, len(tt.answer), err)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, opts := range map[string]peer.Options{
		"want HOST:PORT":  {Address: "localhost"},
		"may be negative": {Address: "localhost:6379", MaxValue: -1},
	} {
		if _, err := peer.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opts, err, want)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "-ERR\r\n", ":12\r\n", "$3\r\nabc\r\n", "*2\r\n$-1\r\n:1\r\n", "*-1\r\n", "$100\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := peer.Reread(b)
		if err == nil && again == "" {
			t.Errorf("%q is nothing", b)
		}
		if err == nil {
			if twice, err := peer.Reread([]byte(again)); err != nil || twice != again {
				t.Errorf("%q became %q, which became %q, %v", b, again, twice, err)
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, 36))
	f.Add(make([]byte, 50))
	f.Fuzz(func(t *testing.T, b []byte) {
		sealed := peer.Sealed(b)
		again, ok := peer.Reencode(sealed)
		if ok && string(again) != string(sealed) {
			t.Errorf("%x became %x", sealed, again)
		}
	})
}

func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	l.Close() // nobody is there
	s, err := peer.New(peer.Options{Address: l.Addr().String()})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	_, err = s.Get(context.Background(), "block")
	fmt.Println(errors.Is(err, store.ErrUnavailable))
	// Output: true
}

package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvstore"
)

// Who has shown no token sends nothing long.
func TestStrangers(t *testing.T) {
	s, address := start(t, 1<<20, kvstore.Options{Namespaces: []kvstore.Namespace{{Name: "n", Token: "secret"}}})
	for what, sent := range map[string]string{
		"unauthenticated multibulk length": "*11\r\n",
		"unauthenticated bulk length":      "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n",
	} {
		c := dial(t, address)
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c.r)
		if err != nil || !strings.Contains(string(answer), what) {
			t.Errorf("%q: %q, %v, want %s and the end", sent, answer, err, what)
		}
	}
	c := dial(t, address)
	c.want([2]string{"AUTH secret", "+OK"})
	if got := c.do("SET", "k", strings.Repeat("v", 20000)); got != "+OK" {
		t.Errorf("with the token: %s", got)
	}
	if n := s.Stats().Receiving; n > 64<<10 {
		t.Errorf("%d bytes are held", n)
	}
}

// Arguments count as memory that is taken, and none of it is kept.
func TestLongArguments(t *testing.T) {
	s, address := start(t, 1<<20, kvstore.Options{MaxPending: 1 << 20})
	c := dial(t, address)
	args := []string{"EXISTS"}
	for range 100 {
		args = append(args, strings.Repeat("k", 60_000))
	}
	if got := c.do(args...); !strings.HasPrefix(got, "-BUSY") {
		t.Errorf("6 MB of names with room for one: %s", got)
	}
	if got := c.do(args[:9]...); got != ":0" {
		t.Errorf("half a MB of names: %s", got)
	}
	c.want([2]string{"PING", "+PONG"})
	if n := s.Stats().Receiving; n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
	for i := range args {
		args[i] = strings.Repeat("k", 70_000)
	}
	args[0] = "EXISTS"
	if got := c.do(args...); got != "-ERR argument of 70000 bytes is too long: at most 65536" {
		t.Errorf("names that are all too long: %.300s", got)
	}
}

// counting counts what is read.
type counting struct {
	store.Driver
	gets atomic.Int64
	wait time.Duration
}

func (d *counting) Get(ctx context.Context, key string) (*store.Value, error) {
	d.gets.Add(1)
	if d.wait > 0 {
		<-time.After(d.wait) // it is slow
	}
	return d.Driver.Get(ctx, key)
}

func inMemory(t *testing.T) store.Driver {
	driver, err := memory.New(memory.Options{Capacity: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

// For a client that has gone nothing more is read.
func TestNobodyReads(t *testing.T) {
	driver := &counting{Driver: inMemory(t)}
	s, address := startOver(t, driver, kvstore.Options{})
	c := dial(t, address)
	c.do("SET", "v", strings.Repeat("v", 1<<20))
	args := []string{"MGET"}
	for range 20_000 {
		args = append(args, "v")
	}
	if _, err := c.Write(request(args...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
		t.Fatal(err)
	}
	c.Close()
	until(t, "the connection is given up", func() bool { return s.Stats().Clients == 0 })
	if n := driver.gets.Load(); n > 1000 {
		t.Errorf("%d values were read for nobody", n)
	}
}

// A request that has begun to come has its own time, however long those before it
// took to be answered.
func TestTimeOfARequest(t *testing.T) {
	driver := &counting{Driver: inMemory(t), wait: 150 * time.Millisecond}
	_, address := startOver(t, driver, kvstore.Options{Stall: 300 * time.Millisecond})
	c := dial(t, address)
	c.do("SET", "v", "value")
	sent := strings.Repeat(string(request("GET", "v")), 4) + "*1\r\n$4\r\nPI"
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got, err := c.read(); got != "value" {
			t.Fatalf("%s, %v", got, err)
		}
	}
	if _, err := io.WriteString(c, "NG\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.read(); got != "+PONG" {
		t.Errorf("%s, %v", got, err)
	}
}

// What clients may ask for without end is bounded: sessions, and times to live of
// values that are replaced or gone.
func TestBounds(t *testing.T) {
	s, address := start(t, 1<<20, kvstore.Options{})
	c := dial(t, address)
	c.want([2]string{"SET v 1", "+OK"})
	const sessions = 1 << 14
	for i := range sessions + 1 {
		want := ":1"
		if i == sessions {
			want = "-ERR KV.RETAIN: 16384 sessions are open, and that is the most: close some, or wait until they end"
		}
		if got := c.do("KV.RETAIN", "v", "SESSION", fmt.Sprint(i)); got != want {
			t.Fatalf("session %d: %s", i, got)
		}
	}
	c.want(
		[2]string{"KV.RETAIN v SESSION 5", ":1"},
		[2]string{"KV.SESSION CLOSE 5", "idle"},
		[2]string{"KV.RETAIN v SESSION new", ":1"},
	)
	for i := range 1000 {
		c.do("SET", "w", "1", "EX", fmt.Sprint(1000+i))
		c.do("SET", "x", "1", "EX", fmt.Sprint(1000+i))
		c.do("DEL", "x")
	}
	if n := s.Stats().Namespaces[0].Expiring; n > 100 {
		t.Errorf("%d times to live are kept of one value", n)
	}
	c.want([2]string{"KEYS " + strings.Repeat("*a", 600), "-ERR the pattern is too long: at most 1024 bytes"})
}

// full is a listener of a system that has no room for connections at first.
type full struct {
	net.Listener
	times atomic.Int64
}

func (f *full) Accept() (net.Conn, error) {
	if f.times.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return f.Listener.Accept()
}

// A server does not end as the system has no room for connections for a while.
func TestNoRoomForConnections(t *testing.T) {
	s, _ := start(t, 1<<20, kvstore.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &full{Listener: l}
	f.times.Store(2)
	served := make(chan error, 1)
	go func() { served <- s.Serve(f) }()
	dial(t, l.Addr().String()).want([2]string{"PING", "+PONG"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.Shutdown(ctx) //nolint:errcheck // it cuts off the client
	if err := <-served; err != nil {
		t.Errorf("serving ended: %v", err)
	}
}

// Who shows no token, or tries one after the other, takes nobody's place.
func TestStrangersGo(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{Stall: 100 * time.Millisecond, Namespaces: []kvstore.Namespace{{Name: "n", Token: "secret"}}})
	known, silent, busy, guesses := dial(t, address), dial(t, address), dial(t, address), dial(t, address)
	known.want([2]string{"AUTH secret", "+OK"})
	for what, end := range map[string]func() error{
		"silent": func() error { _, err := silent.read(); return err },
		"busy": func() error {
			for {
				busy.Write(request("PING")) //nolint:errcheck // reading tells
				if _, err := busy.read(); err != nil {
					return err
				}
			}
		},
		"guessing": func() error {
			n := 0
			for range 20 {
				guesses.Write(request("AUTH", "guess")) //nolint:errcheck // reading tells
			}
			for ; n <= 10; n++ {
				if _, err := guesses.read(); err != nil {
					return err
				}
			}
			return fmt.Errorf("%d answers", n)
		},
	} {
		if err := end(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "answers") {
			t.Errorf("one that is %s is still there: %v", what, err)
		}
	}
	known.want([2]string{"PING", "+PONG"})
}

// What a page in a browser sends is not taken for what its user wants.
func TestBrowsers(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{})
	for _, sent := range []string{"POST / HTTP/1.1\r\nSET a 1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\nSET a 1\r\n"} {
		c := dial(t, address)
		io.WriteString(c, sent) //nolint:errcheck // reading tells
		if answer, _ := io.ReadAll(c.r); strings.Contains(string(answer), "+OK") {
			t.Errorf("%q: %q", sent, answer)
		}
	}
	dial(t, address).want([2]string{"EXISTS a", ":0"})
}

package kvstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvstore"
)

// clock is one that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// start serves until the test ends.
func start(t testing.TB, capacity int64, o kvstore.Options) (s *kvstore.Server, address string) {
	t.Helper()
	driver, err := memory.New(memory.Options{Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	return startOver(t, driver, o)
}

// startOver serves what lies in a driver until the test ends.
func startOver(t testing.TB, driver store.Driver, o kvstore.Options) (s *kvstore.Server, address string) {
	t.Helper()
	o.Driver = driver
	s, err := kvstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Shutdown(ctx) //nolint:errcheck // clients that hang are some tests' subject
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		driver.Close() //nolint:errcheck // it is memory
	})
	return s, l.Addr().String()
}

// client is the plainest one.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a hang is a failure either way
	return &client{t, c, bufio.NewReader(c)}
}

func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// do sends a request and returns the answer as text: +simple, -error, :number,
// string, nil or _, [list] and {map}.
func (c *client) do(args ...string) string {
	c.t.Helper()
	if _, err := c.Write(request(args...)); err != nil {
		c.t.Fatalf("%.40q: %v", args, err)
	}
	s, err := c.read()
	if err != nil {
		c.t.Fatalf("%.40q: %v", args, err)
	}
	return s
}

func (c *client) read() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch n, _ := strconv.Atoi(line[1:]); {
	case line == "$-1":
		return "nil", nil
	case line[0] == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return "", err
		}
		return string(b[:n]), nil
	case line[0] == '*':
		parts := make([]string, n)
		for i := range parts {
			if parts[i], err = c.read(); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(parts, " ") + "]", nil
	case line[0] == '%':
		parts := make([]string, 2*n)
		for i := range parts {
			if parts[i], err = c.read(); err != nil {
				return "", err
			}
		}
		return "{" + strings.Join(parts, " ") + "}", nil
	}
	return line, nil
}

// want checks the answers of requests, written with spaces between arguments.
func (c *client) want(rows ...[2]string) {
	c.t.Helper()
	for _, row := range rows {
		if got := c.do(strings.Fields(row[0])...); got != row[1] {
			c.t.Errorf("%s\n got %.200s\nwant %s", row[0], got, row[1])
		}
	}
}

func TestCommands(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{})
	c := dial(t, address)
	c.want([][2]string{
		{"PING", "+PONG"},
		{"ping hello", "hello"},
		{"ECHO x", "x"},
		{"HELLO 4", "-NOPROTO unsupported protocol version: want 2 or 3"},
		{"HELLO 3", "{server redis version 7.0.0 proto :3 id :1 mode standalone role master modules []}"},
		{"GET a", "_"},
		{"CONFIG GET appendonly", "{appendonly no}"},
		{"HELLO 2 SETNAME me", "[server redis version 7.0.0 proto :2 id :1 mode standalone role master modules []]"},
		{"CLIENT GETNAME", "me"},
		{"CLIENT SETINFO lib-name x", "+OK"},
		{"CLIENT KILL x", "-ERR unknown subcommand or wrong number of arguments for 'client'. Want SETNAME, SETINFO, GETNAME or ID."},
		{"SELECT 0", "+OK"},
		{"SELECT 1", "-ERR DB index is out of range: there is 0 only; key spaces are namespaces, and AUTH opens them"},
		{"AUTH x", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"GET a", "nil"},
		{"SET a 1", "+OK"},
		{"SET a 12 NX", "nil"},
		{"SET b 3 XX", "nil"},
		{"SET a 123 XX", "+OK"},
		{"SET b 4 NX PX 100000", "+OK"},
		{"SET a 1 NX XX", "-ERR syntax error"},
		{"SET a 1 EX", "-ERR syntax error"},
		{"SET a 1 EX x", "-ERR value is not an integer or out of range"},
		{"SET a 1 EX 0", "-ERR invalid expire time in 'set' command"},
		{"SET a 1 EX 9223372036854775", "-ERR invalid expire time in 'set' command"},
		{"GET a", "123"},
		{"STRLEN a", ":3"},
		{"STRLEN z", ":0"},
		{"TYPE a", "+string"},
		{"TYPE z", "+none"},
		{"EXISTS a a b z", ":3"},
		{"MGET a z b", "[123 nil 4]"},
		{"DBSIZE", ":2"},
		{"KEYS a*", "[a]"},
		{"SCAN 0 MATCH b COUNT 100", "[0 [b]]"},
		{"SCAN 0 COUNT 1", "[1 [a]]"},
		{"SCAN 1 COUNT 1", "[0 [b]]"},
		{"SCAN 0 TYPE list", "[0 []]"},
		{"SCAN x", "-ERR invalid cursor"},
		{"DEL a z", ":1"},
		{"UNLINK b", ":1"},
		{"DBSIZE", ":0"},
		{"KEYS *", "[]"},
		{"GET", "-ERR wrong number of arguments for 'get' command"},
		{"GET a b", "-ERR wrong number of arguments for 'get' command"},
		{"LPUSH a b", "-ERR unknown command 'LPUSH'"},
		{"CONFIG GET save", "[save ]"},
		{"COMMAND DOCS", "[]"},
	}...)
	if got := c.do("INFO"); !strings.Contains(got, "redis_version:7.0.0\r\n") {
		t.Errorf("INFO: %s", got)
	}
	if got := c.do("QUIT"); got != "+OK" {
		t.Errorf("QUIT: %s", got)
	}
	if _, err := c.read(); err != io.EOF {
		t.Errorf("after QUIT: %v", err)
	}
}

func TestAnyBytesAndPipelines(t *testing.T) {
	_, address := start(t, 64<<20, kvstore.Options{})
	c := dial(t, address)
	var sent bytes.Buffer
	values := make([]string, 40)
	for i := range values {
		values[i] = strings.Repeat(string([]byte{0, '\r', '\n', byte(i), 0xff}), i*i*40)
		sent.Write(request("SET", "k\x00\r\n"+strconv.Itoa(i), values[i]))
		sent.Write(request("GET", "k\x00\r\n"+strconv.Itoa(i)))
	}
	sent.WriteString("PING\r\n")
	go c.Write(sent.Bytes()) //nolint:errcheck // the answers tell
	for i, v := range values {
		for _, want := range []string{"+OK", v} {
			if got, err := c.read(); got != want || err != nil {
				t.Fatalf("value %d of %d bytes: got %d bytes, %v", i, len(v), len(got), err)
			}
		}
	}
	if got, err := c.read(); got != "+PONG" || err != nil {
		t.Errorf("inline: %q, %v", got, err)
	}
}

func TestExpiry(t *testing.T) {
	now := &clock{now: time.Unix(1e9, 0)}
	_, address := start(t, 1<<20, kvstore.Options{Now: now.Now})
	c := dial(t, address)
	c.want([][2]string{{"SET a 1 EX 10", "+OK"}, {"SET b 1 PX 500", "+OK"}, {"SET c 1 EX 1", "+OK"}, {"SET c 2", "+OK"}}...)
	now.pass(500 * time.Millisecond)
	c.want([][2]string{{"MGET a b c", "[1 nil 2]"}, {"SET a 2 EX 20", "+OK"}}...)
	now.pass(10 * time.Second)
	c.want([][2]string{{"MGET a c", "[2 2]"}, {"DBSIZE", ":2"}}...)
	now.pass(10 * time.Second)
	c.want([][2]string{{"EXISTS a", ":0"}, {"DBSIZE", ":1"}}...)
}

const chunkKey = "meta/llama@2@0@%04x@bfloat16"

// A pair is there, or not: its metadata never without its bytes.
func TestPairs(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{Lease: -1})
	c := dial(t, address)
	key := fmt.Sprintf(chunkKey, 1)
	c.want([][2]string{
		{"SET " + key + "metadata early", "+OK"},
		{"EXISTS " + key + "metadata", ":0"},
		{"SET " + key + "kv_bytes b", "+OK"},
		{"KV.PREFIX meta/llama 0001", ":0"},
		{"SET " + key + "metadata m", "+OK"},
		{"SET " + key + " alone", "+OK"},
		{"KV.PREFIX meta/llama 0001 0002", ":1"},
		{"KV.PREFIX other 0001", ":0"},
		{"MGET " + key + "metadata " + key + "kv_bytes " + key, "[m b alone]"},
		{"DBSIZE", ":3"},
		{"DEL " + key + "kv_bytes", ":1"},
		{"KV.PREFIX meta/llama 0001", ":0"},
		{"EXISTS " + key + "metadata " + key, ":1"},
		{"SET " + key + "kv_bytes b", "+OK"},
		{"SET " + key + "metadata m", "+OK"},
		{"DEL " + key + "metadata", ":1"},
		{"EXISTS " + key + "kv_bytes", ":1"},
		{"SET metadata plain", "+OK"},
		{"GET metadata", "plain"},
	}...)
	value := strings.Repeat("v", 100_000)
	for i := range 50 {
		key := fmt.Sprintf(chunkKey, 0x100+i)
		c.do("SET", key+"kv_bytes", value)
		c.do("SET", key+"metadata", "m")
		// The first one stays as long as it is asked for.
		c.do("GET", fmt.Sprintf(chunkKey, 0x100)+"kv_bytes")
	}
	there := 0
	for i := range 50 {
		key := fmt.Sprintf(chunkKey, 0x100+i)
		m, b := c.do("EXISTS", key+"metadata"), c.do("EXISTS", key+"kv_bytes")
		if m != b {
			t.Errorf("chunk %d: metadata %s, bytes %s", i, m, b)
		}
		if m == ":1" {
			there++
		}
		if want := i == 0 || i > 40; want != (m == ":1") {
			t.Errorf("chunk %d is there: %s", i, m)
		}
	}
	if there != 10 {
		t.Errorf("%d chunks are there, want 10", there)
	}
}

// What is worth keeping stays, in the order of package kvcache.
func TestRetention(t *testing.T) {
	now := &clock{now: time.Unix(1e9, 0)}
	_, address := start(t, 1<<20, kvstore.Options{Lease: -1, PinBudget: 0.25, Now: now.Now})
	c := dial(t, address)
	value := strings.Repeat("v", 100_000)
	flood := func(name string) {
		for i := range 20 {
			c.do("SET", name+strconv.Itoa(i), value)
		}
	}
	for _, k := range []string{"dear", "pinned", "pinned2", "pinned3", "low", "session", "eph"} {
		c.do("SET", k, value)
	}
	c.want([][2]string{
		{"KV.RETAIN dear PRIO 80 DURATION 60000", ":1"},
		{"KV.RETAIN pinned PIN 60000 SESSION s", ":1"},
		{"KV.RETAIN pinned2 PIN 60000", ":1"},
		{"KV.RETAIN pinned3 PIN 60000", "-DENIED no room in the pin budget"},
		{"KV.RETAIN low PRIO 1", ":1"},
		{"KV.RETAIN eph CLASS eph", ":1"},
		{"KV.RETAIN nobody PRIO 1", ":0"},
		{"KV.RETAIN dear PRIO 101", "-ERR KV.RETAIN: PRIO 101: want 0 to 100"},
		{"KV.RETAIN dear DURATION 1", "-ERR KV.RETAIN: DURATION without PRIO"},
		{"KV.RETAIN dear PIN -1", "-ERR KV.RETAIN: PIN -1: want milliseconds, 0 to those of a year"},
		{"KV.RETAIN dear CLASS x", "-ERR KV.RETAIN: CLASS x: want eph or norm"},
		{"KV.RETAIN dear WISH x", "-ERR KV.RETAIN: WISH: want PRIO, DURATION, PIN, SESSION, CLASS or EPOCH"},
	}...)
	c.do("SET", "dear", value+"!") // what was asked for outlives what it was asked for
	for _, k := range []string{"a", "b", "c", "d"} {
		c.do("SET", k, value)
	}
	// Ten have room. Of eleven the ephemeral one goes, then the one of low priority.
	c.want([][2]string{{"DBSIZE", ":10"}, {"KEYS eph", "[]"}}...)
	c.do("SET", "e", value)
	c.want([][2]string{{"KEYS low", "[]"}, {"DBSIZE", ":10"}, {"EXISTS pinned3 session", ":2"}}...)
	flood("x")
	c.want([][2]string{
		{"EXISTS low pinned3 session", ":0"},
		{"EXISTS dear pinned pinned2", ":3"},
		{"KV.SESSION CLOSE s", "idle"},
		{"KV.SESSION CLOSE s", "unknown"},
	}...)
	flood("y")
	c.want([][2]string{{"EXISTS pinned", ":0"}, {"EXISTS dear pinned2", ":2"}}...)
	now.pass(time.Hour)
	flood("z")
	c.want([2]string{"EXISTS dear pinned2", ":0"})
}

// What was read stays for the lease, as long as anything else can go.
func TestLease(t *testing.T) {
	now := &clock{now: time.Unix(1e9, 0)}
	_, address := start(t, 1<<20, kvstore.Options{Now: now.Now})
	c := dial(t, address)
	value := strings.Repeat("v", 100_000)
	c.do("SET", "read", value)
	c.do("SET", "other", value)
	c.do("GET", "read")
	for i := range 20 {
		c.do("SET", "x"+strconv.Itoa(i), value)
	}
	now.pass(5 * time.Second)
	c.want([][2]string{{"EXISTS read", ":1"}, {"EXISTS other", ":0"}}...)
	now.pass(11 * time.Second)
	c.do("SET", "y", value)
	for i := range 20 {
		c.do("GET", "x"+strconv.Itoa(i))
	}
	c.do("GET", "y")
	// All but one are read: the one goes, then the oldest lease.
	c.do("SET", "z", value)
	c.do("SET", "z2", value)
	c.want([][2]string{{"EXISTS read", ":0"}, {"EXISTS z2", ":1"}}...)
}

func TestLeaseIsRenewed(t *testing.T) {
	now := &clock{now: time.Unix(1e9, 0)}
	_, address := start(t, 1<<20, kvstore.Options{Now: now.Now})
	c := dial(t, address)
	value := strings.Repeat("v", 100_000)
	c.do("SET", "read", value)
	for range 2 {
		c.do("GET", "read")
		now.pass(6 * time.Second)
	}
	for i := range 20 {
		c.do("SET", "x"+strconv.Itoa(i), value)
	}
	c.want([2]string{"EXISTS read", ":1"})
}

// A pin counts what is there now.
func TestPinnedValueGrows(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{PinBudget: 0.25})
	c := dial(t, address)
	c.want([][2]string{{"SET a 1", "+OK"}, {"KV.RETAIN a PIN 60000", ":1"}, {"GET a", "1"}, {"SET a 12345", "+OK"}}...)
	if got := c.do("KV.STATS"); !strings.Contains(got, " pinned_bytes :5 ") {
		t.Errorf("want 5 bytes pinned: %s", got)
	}
}

// Whoever has most of what it may have gives, if it can.
func TestNamespacesShareTheMemory(t *testing.T) {
	_, address := start(t, 1<<20, kvstore.Options{Lease: -1, Namespaces: []kvstore.Namespace{{Name: "a", Token: "a"}, {Name: "b", Token: "b"}}})
	c := dial(t, address)
	value := strings.Repeat("v", 100_000)
	c.do("AUTH", "b")
	for i := range 10 {
		c.do("SET", "x"+strconv.Itoa(i), value)
	}
	c.do("AUTH", "a")
	for i := range 7 {
		if got := c.do("SET", "y"+strconv.Itoa(i), value); got != "+OK" {
			t.Errorf("value %d of the other: %s", i, got)
		}
	}
	c.want([2]string{"DBSIZE", ":5"})
	c.do("AUTH", "b")
	c.want([2]string{"DBSIZE", ":5"})
}

func TestNamespaces(t *testing.T) {
	_, address := start(t, 4<<20, kvstore.Options{Lease: -1, Namespaces: []kvstore.Namespace{
		{Name: "evicts", Token: "one", Quota: 1000}, {Name: "denies", Token: "two", Quota: 1000, Deny: true}, {Name: "rest", Token: "three"},
	}})
	c := dial(t, address)
	c.want([][2]string{
		{"GET a", "-NOAUTH Authentication required."},
		{"HELLO", "-NOAUTH HELLO must be called with the client already authenticated, or with AUTH"},
		{"AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"AUTH denies one", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"AUTH one", "+OK"},
		{"SET a 1", "+OK"},
		{"AUTH denies two", "+OK"},
		{"EXISTS a", ":0"},
	}...)
	value := strings.Repeat("v", 600)
	c.do("SET", "a", value)
	c.want([][2]string{{"SET b " + value, "-OOM quota of the namespace is used up"}, {"SET a " + value + "x", "+OK"}, {"EXISTS a b", ":1"}}...)
	c.want([][2]string{{"AUTH one", "+OK"}, {"SET b " + value, "+OK"}, {"SET c " + value, "+OK"}, {"KEYS *", "[c]"}}...)
	c.want([2]string{"SET d " + value + value, "-OOM quota of the namespace is used up"})
	c.want([][2]string{{"AUTH three", "+OK"}, {"KEYS *", "[]"}}...)

	for name, bad := range map[string][]kvstore.Namespace{
		"without a name": {{}}, "given twice": {{Name: "a"}, {Name: "a"}}, "same token": {{Name: "a", Token: "x"}, {Name: "b", Token: "x"}},
		"nothing to deny": {{Name: "a", Deny: true}}, "printable": {{Name: "a b"}},
	} {
		driver, _ := memory.New(memory.Options{Capacity: 1})
		if _, err := kvstore.New(kvstore.Options{Driver: driver, Namespaces: bad}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	_, address := start(t, 32<<20, kvstore.Options{MaxValue: 2 << 20, MaxPending: 3 << 20, MaxConns: 2})
	c := dial(t, address)
	large := strings.Repeat("v", 2<<20+1)
	if got := c.do("SET", "a", large); got != "-ERR value of 2097153 bytes is too large: at most 2097152 are stored" {
		t.Errorf("too large: %s", got)
	}
	if got := c.do("GET", large); got != "-ERR argument of 2097153 bytes is too long: at most 65536" {
		t.Errorf("too long: %s", got)
	}
	// One that has announced, and sent, most of what may be received.
	other := dial(t, address)
	fmt.Fprintf(other, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2097152\r\n%s", large[:2<<20-1])
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(c.do("INFO"), "receiving_memory:2097152\r\n"); {
		if time.Now().After(deadline) {
			t.Fatal("what is being received is not counted")
		}
	}
	if got := c.do("SET", "b", large[:2<<20]); got != "-BUSY too many values are being received, try again" {
		t.Errorf("while another one sends: %s", got)
	}
	if _, err := io.ReadAll(dial(t, address)); err != nil {
		t.Errorf("a third client: %v", err)
	}
	other.Close()
	for deadline := time.Now().Add(10 * time.Second); c.do("SET", "b", large[:2<<20]) != "+OK"; {
		if time.Now().After(deadline) {
			t.Fatal("memory of a client that has gone is not given back")
		}
	}
	c.want([2]string{"EXISTS a", ":0"})
}

func TestLiars(t *testing.T) {
	for sent, want := range map[string]string{
		"*1000000\r\n":               "-ERR Protocol error: invalid multibulk length",
		"*x\r\n":                     "-ERR Protocol error: invalid multibulk length",
		"*1\r\n$-1\r\n":              "-ERR Protocol error: invalid bulk length",
		"*1\r\n$536870913\r\n":       "-ERR Protocol error: invalid bulk length",
		"*1\r\n:1\r\n":               `-ERR Protocol error: expected '$', got ":"`,
		"*1\r\n$4\r\nPINGxx":         "-ERR Protocol error: bulk string is longer than it said",
		strings.Repeat("x", 200_000): "-ERR Protocol error: too big inline request",
		"*0\r\n*-1\r\n\r\nPING\r\n":  "+PONG",
	} {
		_, address := start(t, 1<<20, kvstore.Options{})
		c := dial(t, address)
		go io.WriteString(c, sent) //nolint:errcheck // the answer tells
		if got, err := c.read(); got != want {
			t.Errorf("%.30q\n got %s %v\nwant %s", sent, got, err, want)
		}
	}
}

// A client that stops within a request, or does not read its answer, is let go.
func TestStall(t *testing.T) {
	_, address := start(t, 256<<20, kvstore.Options{Stall: 500 * time.Millisecond})
	c := dial(t, address)
	large := strings.Repeat("v", 64<<20)
	if got := c.do("SET", "a", large); got != "+OK" {
		t.Fatal(got)
	}
	for range 3 {
		if _, err := c.Write(request("GET", "a")); err != nil {
			t.Fatal(err)
		}
	}
	half := dial(t, address)
	io.WriteString(half, "*2\r\n$3\r\nGET\r\n$5\r\nab") //nolint:errcheck // reading tells
	if b, err := io.ReadAll(half); len(b) > 0 || err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("half a request: %q, %v", b, err)
	}
	third := dial(t, address)
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(third.do("INFO"), "connected_clients:1\r\n"); {
		if time.Now().After(deadline) {
			t.Fatal("a client that does not read is still there")
		}
	}
	if got := third.do("GET", "a"); got != large {
		t.Errorf("afterwards: %d bytes", len(got))
	}
}

// Whatever many clients do at once, what is read is what was stored.
func TestManyClients(t *testing.T) {
	_, address := start(t, 2<<20, kvstore.Options{Lease: 10 * time.Millisecond})
	var all sync.WaitGroup
	for n := range 8 {
		c := dial(t, address)
		all.Go(func() {
			for i := range 400 {
				key := fmt.Sprintf(chunkKey, (i*7+n)%24)
				value := key + strings.Repeat(string(rune('a'+n)), 60_000+n*5000)
				switch (i + n) % 5 {
				case 0, 1:
					for _, part := range []string{"kv_bytes", "metadata"} {
						if got := c.do("SET", key+part, value); got != "+OK" {
							t.Errorf("SET: %s", got)
						}
						value = key
					}
				case 2, 3:
					if m := c.do("GET", key+"metadata"); m != "nil" && m != key {
						t.Errorf("metadata of %s: %q", key, m)
					}
					got := c.do("GET", key+"kv_bytes")
					rest, ok := strings.CutPrefix(got, key)
					if got != "nil" && (!ok || strings.Trim(rest, rest[:1]) != "") {
						t.Errorf("bytes of %s are not what anybody stored", key)
					}
				case 4:
					c.do("DEL", key+"kv_bytes")
				}
			}
		})
	}
	all.Wait()
	c := dial(t, address)
	for i := range 24 {
		key := fmt.Sprintf(chunkKey, i)
		if c.do("EXISTS", key+"metadata") == ":1" && c.do("EXISTS", key+"kv_bytes") == ":0" {
			t.Errorf("metadata of %s without its bytes", key)
		}
		c.do("DEL", key+"kv_bytes")
	}
	if got := c.do("KV.STATS"); !strings.HasPrefix(got, "[keys :0 values :0 bytes :0 ") {
		t.Errorf("nothing is left, and yet %s", got)
	}
}

func TestShutdown(t *testing.T) {
	s, address := start(t, 1<<20, kvstore.Options{})
	idle := dial(t, address)
	idle.want([2]string{"SET a 1", "+OK"})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("shutting down: %v", err)
	}
	if _, err := idle.read(); err != io.EOF {
		t.Errorf("an idle client: %v", err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("it still accepts")
	}
}

func Example() {
	driver, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		panic(err)
	}
	defer driver.Close()
	s, err := kvstore.New(kvstore.Options{Driver: driver})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go s.Serve(l)
	defer s.Shutdown(context.Background())

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	fmt.Fprint(c, "SET key value\r\nSTRLEN key\r\nQUIT\r\n")
	answers, _ := io.ReadAll(c)
	fmt.Printf("%q\n", answers)
	// Output: "+OK\r\n:5\r\n+OK\r\n"
}

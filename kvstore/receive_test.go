package kvstore_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvstore"
)

// roomy is a store in memory, of which tests count the entries.
func roomy(t *testing.T, capacity int64) *memory.Store {
	t.Helper()
	driver, err := memory.New(memory.Options{Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

func body(seed, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return string(b)
}

// settled wants so many entries, and nothing on its way.
func settled(t *testing.T, s *kvstore.Server, driver *memory.Store, entries int) {
	t.Helper()
	until(t, fmt.Sprintf("%d entries, and nothing on its way", entries), func() bool {
		return driver.Usage().Entries == entries && s.Stats().Receiving < 5<<20 // a short buffer may be kept
	})
}

// Values of all lengths come back as they were, whichever way they were received,
// and replace each other.
func TestReceivedValues(t *testing.T) {
	driver := roomy(t, 64<<20)
	s, address := startOver(t, driver, kvstore.Options{})
	c := dial(t, address)
	for i, size := range []int{64<<10 - 1, 64 << 10, 256<<10 + 1, 1<<20 - 1, 3 << 20, 8 << 20, 8<<20 + 1, 100, 1 << 20} {
		want := body(i, size)
		if got := c.do("SET", "v", want); got != "+OK" {
			t.Fatalf("%d bytes: %.100s", size, got)
		}
		if got := c.do("GET", "v"); got != want {
			t.Fatalf("%d bytes: they are others", size)
		}
		settled(t, s, driver, 1)
	}
	if used := driver.Usage().Used; used > 1<<20+8192 {
		t.Errorf("%d bytes are used for one of a MiB", used)
	}
}

// What is received and not stored leaves nothing: for it was there, it is too much,
// it is not allowed, its client has gone or lies.
func TestReceivedForNothing(t *testing.T) {
	driver := roomy(t, 64<<20)
	s, address := startOver(t, driver, kvstore.Options{
		Stall:      200 * time.Millisecond,
		Namespaces: []kvstore.Namespace{{Name: "open"}, {Name: "closed", Token: "secret", Quota: 1 << 20, Deny: true}},
	})
	c := dial(t, address)
	long := body(1, 1<<20)
	c.do("SET", "v", "first")
	if got := c.do("SET", "v", long, "NX"); got != "nil" {
		t.Errorf("what was there: %.100s", got)
	}
	if got := c.do("SET", "v", long, "EX"); got != "-ERR syntax error" {
		t.Errorf("half an option: %.100s", got)
	}
	closed := dial(t, address)
	closed.want([2]string{"AUTH secret", "+OK"})
	if got := closed.do("SET", "w", body(2, 2<<20)); !strings.HasPrefix(got, "-OOM quota") {
		t.Errorf("beyond the quota: %.100s", got)
	}
	for what, sent := range map[string]string{
		"gone":   "*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$1048576\r\n" + long[:300_000],
		"a liar": "*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$1048576\r\n" + long + "no end of a line",
	} {
		other := dial(t, address)
		if _, err := io.WriteString(other, sent); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		other.Close()
	}
	stalled := dial(t, address)
	if _, err := io.WriteString(stalled, "*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$1048576\r\nslowly"); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for it, and it is given up.
	c.want([2]string{"SET v second", "+OK"}, [2]string{"GET v", "second"})
	if _, err := io.ReadAll(stalled.r); err != nil {
		t.Errorf("the one that stalls: %v", err)
	}
	settled(t, s, driver, 1)
	c.want([2]string{"GET v", "second"})
}

// Where memory is full, room is made for what is received.
func TestReceivedInFullMemory(t *testing.T) {
	driver := roomy(t, 16<<20)
	s, address := startOver(t, driver, kvstore.Options{})
	c := dial(t, address)
	for i := range 100 {
		if got := c.do("SET", fmt.Sprint(i), body(i, 1<<20)); got != "+OK" {
			t.Fatalf("value %d: %.100s", i, got)
		}
		if got := c.do("GET", fmt.Sprint(i)); got != body(i, 1<<20) {
			t.Fatalf("value %d is not there, or another", i)
		}
	}
	settled(t, s, driver, s.Stats().Namespaces[0].Values)
	if n := s.Stats().Namespaces[0].Values; n < 12 || n > 15 {
		t.Errorf("%d values of a MiB in 16", n)
	}
}

//go:build linux

package disk_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

// Whichever call on the files fails, and for how long, the store goes on, and a
// key has what it had before, or nothing, or what was put.
func TestEveryCallFails(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for from := range 120 {
			for _, times := range []int{1, 3} {
				failing(t, sync, from, times)
			}
		}
	}
}

func failing(t *testing.T, sync bool, from, times int) {
	now := time.Unix(1e9, 0)
	opts := disk.Options{Capacity: 20 << 12, Sync: sync, Now: func() time.Time { return now }}
	p, calls := &platter{}, 0
	s, err := disk.Over(t.Context(), opts, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	p.fail = func(string) error {
		if calls++; calls > from && calls <= from+times {
			return syscall.EIO
		}
		return nil
	}
	rnd := rand.New(rand.NewPCG(uint64(from), 7))
	may := map[string][]*state{} // what a key may be
	for i := range 40 {
		now = now.Add(time.Minute) // past all pauses
		key := fmt.Sprint("key", rnd.IntN(4))
		if may[key] == nil {
			may[key] = []*state{nil}
		}
		switch rnd.IntN(6) {
		case 0:
			if err := s.Delete(t.Context(), key); err == nil {
				may[key] = []*state{nil}
			} else {
				may[key] = append(may[key], nil)
			}
		case 1:
			got, err := get(t, s, key)
			if err == nil && !has(may[key], got) {
				t.Fatalf("calls %d to %d fail: %s is %s", from, from+times, key, show(got))
			}
			if err != nil {
				if again, err := get(t, s, key); again != nil || err != nil {
					t.Fatalf("%s is there after it could not be read: %v", key, err)
				}
				may[key] = append(may[key], nil) // erased, or found again after a restart
			}
		default:
			value := storetest.Bytes(uint64(i), []int{10, 3000, 9000}[rnd.IntN(3)])
			err := s.Put(t.Context(), key, value, nil)
			switch {
			case err == nil:
				may[key] = []*state{{string(value), ""}}
			case errors.Is(err, store.ErrUnavailable):
				may[key] = append(may[key], &state{string(value), ""})
			case !errors.Is(err, store.ErrFull):
				t.Fatalf("Put: %v", err)
			}
		}
	}
	p.fail = nil
	for range 2 {
		for key, states := range may {
			got, err := get(t, s, key)
			if err != nil || !has(states, got) {
				t.Fatalf("calls %d to %d fail: in the end %s is %s, %v", from, from+times, key, show(got), err)
			}
		}
		if u := s.Usage(); u.Used > u.Capacity || u.Used < 0 {
			t.Fatalf("usage %+v", u)
		}
		if s, err = disk.Over(t.Context(), opts, p.values(), p.records()); err != nil {
			t.Fatal(err)
		}
	}
}

func has(states []*state, s *state) bool {
	for _, o := range states {
		if same(o, s) {
			return true
		}
	}
	return false
}

// A disk that fails is left alone, for longer each time, and serves again as
// soon as it can.
func TestPauses(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 1 << 20, Now: func() time.Time { return now }}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	value := storetest.Bytes(1, 5000)
	put := func(key string) error { return s.Put(t.Context(), key, value, nil) }
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	tried := 0
	p.fail = func(op string) error {
		if op == "read" {
			return nil
		}
		tried++
		return syscall.EIO
	}
	for _, pause := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if err := put("k"); !errors.Is(err, syscall.EIO) || !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("a disk that fails: %v", err)
		}
		before := tried
		now = now.Add(pause - 1)
		if err := put("k"); !errors.Is(err, store.ErrUnavailable) || tried != before {
			t.Fatalf("in a pause: %v, %d calls", err, tried-before)
		}
		if got, err := get(t, s, "before"); err != nil || got == nil || got.value != string(value) {
			t.Fatalf("what was there: %v, %v", show(got), err)
		}
		now = now.Add(1)
	}
	p.fail = nil
	if err := put("k"); err != nil {
		t.Fatal(err)
	}
	if c := s.Counts(); c.WriteFailures != 3 || c.Refused != 3 {
		t.Errorf("counts %+v", c)
	}
	// What went well once begins anew.
	p.fail = func(string) error { return syscall.EIO }
	if err := put("k"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	p.fail, now = nil, now.Add(store.MinPause)
	if err := put("k"); err != nil {
		t.Errorf("after the shortest pause: %v", err)
	}
}

// A full disk bounds the store to what it has: it asks to evict, not for
// patience, unless evicting cannot help.
func TestFullDisk(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 1 << 20, Step: 256 << 10, Now: func() time.Time { return now }}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	full := false
	p.fail = func(op string) error {
		if op == "size" && full {
			return syscall.ENOSPC
		}
		return nil
	}
	full = true
	if err := s.Put(t.Context(), "none", make([]byte, 5000), nil); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("no room at all: %v", err)
	}
	full, now = false, now.Add(time.Minute)
	big := make([]byte, 60<<10)
	if err := s.Put(t.Context(), "first", big, nil); err != nil {
		t.Fatal(err)
	}
	full = true
	n := 0
	for ; err == nil; n++ {
		err = s.Put(t.Context(), fmt.Sprint(n), big, nil)
	}
	if !errors.Is(err, store.ErrFull) || n < 3 || n > 4 {
		t.Fatalf("after %d values: %v", n, err)
	}
	if err := s.Delete(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "another", big, nil); err != nil {
		t.Fatalf("after one was evicted: %v", err)
	}
	if err := s.Put(t.Context(), "huge", make([]byte, 300<<10), nil); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("a value longer than what the disk gave: %v", err)
	}
	full, now = false, now.Add(time.Minute)
	if err := s.Put(t.Context(), "huge", make([]byte, 300<<10), nil); err != nil {
		t.Fatalf("when there is room again: %v", err)
	}
}

// Where the disk has no room for another record, evicting helps, and nobody has to
// wait for it.
func TestFullOfRecords(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 1 << 20, Now: func() time.Time { return now }}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	put := func() error {
		n++
		return s.Put(t.Context(), fmt.Sprint(n), []byte("v"), nil)
	}
	p.fail = func(op string) error {
		if op == "size" {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := put(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no room at all: %v", err)
	}
	fail := p.fail
	p.fail, now = nil, now.Add(time.Minute)
	if err := put(); err != nil {
		t.Fatal(err)
	}
	for p.fail = fail; err == nil && n < 1000; {
		err = put()
	}
	if !errors.Is(err, store.ErrFull) || n > 100 {
		t.Fatalf("value %d: %v", n, err)
	}
	if err := s.Delete(t.Context(), "10"); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Errorf("after one was evicted: %v", err)
	}
	p.fail, now = nil, now.Add(time.Minute)
	if err := put(); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

// What a value leaves free of its last page is zero, and not another's bytes.
func TestPadding(t *testing.T) {
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 1 << 20}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	unaligned := bytes.Repeat([]byte{0xff}, 8192)[1:]
	for range 2 {
		for _, n := range []int{8191, 5000} {
			if err := s.Put(t.Context(), "k", unaligned[:n], nil); err != nil {
				t.Fatal(err)
			}
			last := p.log[len(p.log)-1]
			for i := len(p.log) - 1; last.file != 0; i-- {
				last = p.log[i]
			}
			if rest := last.data[n:]; len(rest) != 8192-n || len(bytes.Trim(rest, "\x00")) > 0 {
				t.Errorf("after %d bytes there are %x", n, bytes.Trim(rest, "\x00"))
			}
		}
	}
}

// An entry that cannot be read is gone, and only that.
func TestReadFails(t *testing.T) {
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 1 << 20}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if err := s.Put(t.Context(), key, storetest.Bytes(1, 5000), nil); err != nil {
			t.Fatal(err)
		}
	}
	p.fail = func(op string) error {
		if op == "read" {
			return syscall.EIO
		}
		return nil
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, syscall.EIO) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	p.fail = nil
	if got, err := get(t, s, "a"); got != nil || err != nil {
		t.Errorf("a is %s, %v", show(got), err)
	}
	if got, err := get(t, s, "b"); got == nil || err != nil {
		t.Errorf("b is %s, %v", show(got), err)
	}
	if c, u := s.Counts(), s.Usage(); c.ReadFailures != 1 || u.Used != 8192 {
		t.Errorf("counts %+v, usage %+v", c, u)
	}
}

// TestWriter is the process that TestKill kills: it puts values into the store
// in DISK_TEST_DIR until it dies, and says so before and after each.
func TestWriter(t *testing.T) {
	dir := os.Getenv("DISK_TEST_DIR")
	if dir == "" {
		return // not the child
	}
	s, err := disk.Open(context.Background(), disk.Options{Dir: dir, Capacity: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for {
		key, seed, size := rnd.IntN(8), rnd.Uint64N(1<<40), rnd.IntN(1<<20)
		if rnd.IntN(4) == 0 {
			size = rnd.IntN(300)
		}
		deleting := rnd.IntN(6) == 0
		if deleting {
			seed, size = 0, -1
		}
		fmt.Printf("\nbegin %d %d %d\n", key, seed, size)
		if deleting {
			err = s.Delete(context.Background(), fmt.Sprint(key))
		} else {
			err = s.Put(context.Background(), fmt.Sprint(key), storetest.Bytes(seed, size), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nend %d %d %d\n", key, seed, size)
	}
}

// A process that is killed loses nothing that it acknowledged.
func TestKill(t *testing.T) {
	dir, rnd := t.TempDir(), rand.New(rand.NewPCG(5, 5))
	type content struct {
		seed uint64
		size int
	}
	have := map[int]content{}
	puts := 0
	for range 12 {
		child := exec.Command(os.Args[0], "-test.run=^TestWriter$")
		child.Env = append(os.Environ(), "DISK_TEST_DIR="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// Killed after so many changes and a moment, wherever that is.
		lines, enough := bufio.NewScanner(out), 1+rnd.IntN(40)
		moment := time.Duration(rnd.IntN(3000)) * time.Microsecond
		var under int
		var next *content
		for lines.Scan() {
			var word string
			var key int
			var c content
			if n, _ := fmt.Sscan(lines.Text(), &word, &key, &c.seed, &c.size); n < 4 {
				if text := strings.TrimSpace(lines.Text()); text != "" {
					t.Logf("child: %s", text)
				}
				continue
			}
			if word == "begin" {
				under, next = key, &c
				continue
			}
			puts++
			have[key], next = c, nil
			if enough--; enough == 0 {
				time.AfterFunc(moment, func() { child.Process.Kill() })
			}
		}
		var exit *exec.ExitError
		if err := child.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended by itself: %v", err)
		}

		s, err := disk.Open(t.Context(), disk.Options{Dir: dir, Capacity: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		is := func(c content, got *state) bool {
			if got == nil {
				return c.size < 0
			}
			return c.size >= 0 && got.value == string(storetest.Bytes(c.seed, c.size))
		}
		for key := range 8 {
			got, err := get(t, s, fmt.Sprint(key))
			c, known := have[key]
			if !known {
				c = content{size: -1}
			}
			switch {
			case err == nil && is(c, got):
			case next != nil && under == key && (err != nil || is(*next, got)):
				have[key] = *next
				if err != nil {
					have[key] = content{size: -1}
				}
			default:
				t.Errorf("key %d is %s (%v), want %+v", key, show(got), err, c)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d changes, 12 kills", puts)
}

// TestLimited is the process that TestQuota starts: no file of its may be
// longer than a mebibyte.
func TestLimited(t *testing.T) {
	dir := os.Getenv("DISK_TEST_LIMITED")
	if dir == "" {
		return // not the child
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(unix.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	s, err := disk.Open(t.Context(), disk.Options{Dir: dir, Capacity: 16 << 20, Step: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	value := func(i int) []byte { return storetest.Bytes(uint64(i), 100_000) }
	n := 0
	for ; err == nil; n++ {
		err = s.Put(t.Context(), fmt.Sprint(n), value(n), nil)
	}
	if !errors.Is(err, store.ErrFull) || n != 11 || s.Counts().WriteFailures != 1 {
		t.Fatalf("value %d: %v, %+v", n, err, s.Counts())
	}
	for i := range 10 {
		if err := s.Delete(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), fmt.Sprint(n+i), value(n+i), nil); err != nil {
			t.Fatalf("after %d was evicted: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = disk.Open(t.Context(), disk.Options{Dir: dir, Capacity: 16 << 20, Step: 256 << 10}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if got, err := get(t, s, fmt.Sprint(n+i)); err != nil || got == nil || got.value != string(value(n+i)) {
			t.Fatalf("value %d is %s, %v", n+i, show(got), err)
		}
	}
}

// Where the system gives no more room, the store lives in what it has.
func TestQuota(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^TestLimited$")
	child.Env = append(os.Environ(), "DISK_TEST_LIMITED="+t.TempDir())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

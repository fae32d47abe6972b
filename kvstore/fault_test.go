package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvstore"
)

// broken is a driver that fails as long as fail says so.
type broken struct {
	*disk.Store
	fail  atomic.Bool
	tried atomic.Int64
}

func (b *broken) failure() error {
	if b.fail.Load() {
		b.tried.Add(1)
		return fmt.Errorf("the disk is broken: %w", store.ErrUnavailable)
	}
	return nil
}

func (b *broken) Put(ctx context.Context, key string, value, tag []byte) error {
	if err := b.failure(); err != nil {
		return err
	}
	return b.Store.Put(ctx, key, value, tag)
}

func (b *broken) Load(ctx context.Context, key string, into []byte) (uint64, error) {
	if err := b.failure(); err != nil {
		return 0, err
	}
	return b.Store.Load(ctx, key, into)
}

func (b *broken) Get(ctx context.Context, key string) (*store.Value, error) {
	if err := b.failure(); err != nil {
		return nil, err
	}
	return b.Store.Get(ctx, key)
}

func (b *broken) Retag(ctx context.Context, key string, tag []byte) error {
	if err := b.failure(); err != nil {
		return err
	}
	return b.Store.Retag(ctx, key, tag)
}

// While the disk fails, the store goes on in memory; when it is back, it gets what
// it has missed, and no client has seen an error.
func TestDiskFailsForAWhile(t *testing.T) {
	h, b := breakable(t, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	ok := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%.60q, want %.60q", got, want)
		}
	}
	for i := range 20 {
		ok(c.do("SET", fmt.Sprint("k", i), value(i, 100_000)), "+OK")
	}
	b.fail.Store(true)
	for i := range 5 {
		ok(c.do("SET", fmt.Sprint("n", i), value(i, 100_000)), "+OK")
		ok(c.do("GET", fmt.Sprint("n", i)), value(i, 100_000))
		ok(c.do("GET", fmt.Sprint("k", i)), "nil")
	}
	ok(c.do("SET", "k19", "new"), "+OK") // of which the disk has an older value
	ok(c.do("GET", "k19"), "new")
	ok(c.do("KV.RETAIN", "n0", "PRIO", "80"), ":1")
	if d := h.tier("disk"); !d.Failing || d.Failed == 0 {
		t.Errorf("of a disk that fails: %+v", d)
	}
	// Without anybody asking for anything, it is tried again.
	before := b.tried.Load()
	h.until("tried", func() bool { return b.tried.Load() > before+2 })
	b.fail.Store(false)
	h.until("written when the disk is back", func() bool { return h.tiers("n0") == "memory disk" && h.tiers("k19") == "memory disk" })
	for i := range 19 {
		ok(c.do("GET", fmt.Sprint("k", i)), value(i, 100_000))
	}
	if d := h.tier("disk"); d.Failing {
		t.Errorf("of a disk that is back: %+v", d)
	}
	c = h.again()
	ok(c.do("GET", "k19"), "new")
	ok(c.do("GET", "n0"), value(0, 100_000))
	if e, _ := h.Tenant("", "").Look("n0"); e.Retention.Priority != 80 {
		t.Errorf("what was asked for it: %+v", e)
	}
}

// What a driver cannot read and has dropped is forgotten, though it was only told
// that the disk fails.
func TestUnreadable(t *testing.T) {
	h, b := breakable(t, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	for i := range 20 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	b.fail.Store(true)
	if err := b.Store.Delete(t.Context(), "default k0"); err != nil {
		t.Fatal(err)
	}
	c.want([][2]string{{"GET k0", "nil"}, {"GET k1", "nil"}, {"EXISTS k0", ":0"}, {"EXISTS k1", ":1"}}...)
}

// Without a disk, what is sent now is worth more than what was pinned in memory.
func TestDiskFailsAndMemoryIsPinned(t *testing.T) {
	h, b := breakable(t, kvstore.Options{Lease: -1, PinBudget: 1})
	c := dial(t, h.address)
	for i := range 10 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
		c.want([2]string{fmt.Sprintf("KV.RETAIN k%d PIN 60000", i), ":1"})
	}
	b.fail.Store(true)
	for i := range 3 {
		if got := c.do("SET", "new", value(i, 100_000)) + c.do("GET", "new"); got != "+OK"+value(i, 100_000) {
			t.Errorf("%.60q", got)
		}
	}
}

// breakable is a house whose disk can be broken.
func breakable(t *testing.T, o kvstore.Options) (*house, *broken) {
	t.Helper()
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 16 << 20, Step: 1 << 20}, options: o}
	d, err := disk.Open(t.Context(), h.disk)
	if err != nil {
		t.Fatal(err)
	}
	b := &broken{Store: d}
	h.over(b)
	t.Cleanup(func() { h.end() })
	return h, b
}

// A server that ends while the disk fails ends, and does not bring back what was
// replaced.
func TestEndWhileDiskFails(t *testing.T) {
	h, b := breakable(t, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	c.want([2]string{"SET a old", "+OK"})
	b.fail.Store(true)
	c.want([][2]string{{"SET a new", "+OK"}, {"SET b new", "+OK"}, {"GET a", "new"}}...)
	c = h.again()
	c.want([2]string{"MGET a b", "[nil nil]"})
}

// Flipped bits, wherever they are, cost values and change none.
func TestFlippedBits(t *testing.T) {
	h := home(t, 1<<20, 16<<20, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	fill := func() {
		for i := range 60 {
			c.do("SET", fmt.Sprintf(chunkKey, i)+"kv_bytes", value(i, 100_000))
			c.do("SET", fmt.Sprintf(chunkKey, i)+"metadata", value(i, 28))
		}
	}
	check := func() (missed int) {
		t.Helper()
		for i := range 60 {
			key := fmt.Sprintf(chunkKey, i)
			for part, want := range map[string]string{"metadata": value(i, 28), "kv_bytes": value(i, 100_000)} {
				switch got := c.do("GET", key+part); got {
				case want:
				case "nil":
					missed++
				default:
					t.Errorf("%s of chunk %d is not what was put: %.60q", part, i, got)
				}
			}
		}
		return missed
	}
	random := rand.New(rand.NewPCG(1, 2))
	flip := func(name string, times int) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(h.disk.Dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			at := random.Int64N(info.Size())
			var b [1]byte
			if _, err := f.ReadAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 1 << random.IntN(8)
			if _, err := f.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	flip("values.v1", 40) // under a running server
	if missed := check(); missed == 0 || h.Stats().Corrupt == 0 {
		t.Errorf("%d values missed, %+v", missed, h.Stats())
	}
	if missed := check(); missed == 0 {
		t.Error("what was lost is there again")
	}
	fill()
	for range 5 {
		h.end()
		flip("values.v1", 10)
		flip("records.v1", 30)
		h.begin()
		c = dial(t, h.address)
		check()
	}
	fill()
	if missed := check(); missed > 0 {
		t.Errorf("%d values missed after they were put again", missed)
	}
}

// Files of another version, or of another program, are none of ours.
func TestForeignFiles(t *testing.T) {
	h := home(t, 1<<20, 4<<20, kvstore.Options{})
	c := dial(t, h.address)
	c.want([2]string{"SET a 1", "+OK"})
	h.end()
	noise := strings.Repeat("a file of something else ", 10_000)
	for _, name := range []string{"records.v1", "records.v2", "values.v2"} {
		if err := os.WriteFile(filepath.Join(h.disk.Dir, name), []byte(noise), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.begin()
	c = dial(t, h.address)
	c.want([][2]string{{"DBSIZE", ":0"}, {"SET a 2", "+OK"}}...)
	c = h.again()
	c.want([2]string{"GET a", "2"})
	if b, err := os.ReadFile(filepath.Join(h.disk.Dir, "records.v2")); err != nil || string(b) != noise {
		t.Errorf("a file of another version was touched: %v", err)
	}
}

// A tag that makes no sense is that of a value for which nothing was asked, and a
// key that makes none is removed.
func TestForeignEntries(t *testing.T) {
	h := home(t, 1<<20, 4<<20, kvstore.Options{})
	h.end()
	d, err := disk.Open(t.Context(), h.disk)
	if err != nil {
		t.Fatal(err)
	}
	for key, tag := range map[string]string{
		"default a": "", "default b": strings.Repeat("\xff", 56), "default c": "short", "nospace": "",
		"default " + fmt.Sprintf(chunkKey, 1) + "metadata": "",
	} {
		if err := d.Put(t.Context(), key, []byte("v"), []byte(tag)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	h.begin()
	c := dial(t, h.address)
	c.want([][2]string{{"MGET a b c", "[v v v]"}, {"DBSIZE", ":3"}}...)
	if e, ok := h.Tenant("", "").Look("b"); !ok || e.Retention.Priority != 35 || !e.Expires.IsZero() {
		t.Errorf("with a tag that makes no sense: %+v", e)
	}
	if used := h.tier("disk"); used.Used != 3 {
		t.Errorf("on disk: %+v", used)
	}
	h.end()
	if d, err = disk.Open(t.Context(), h.disk); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n := d.Usage().Entries; n != 3 {
		t.Errorf("%d entries are left", n)
	}
}

// What a lower tier has lost is a miss, or comes from another one.
func TestLostBelow(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 16 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: far}
	d, err := disk.Open(t.Context(), h.disk)
	if err != nil {
		t.Fatal(err)
	}
	h.over(d)
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for i := range 20 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	h.until("copied", func() bool { return h.tier("external").Waiting == 0 })
	for i := range 4 {
		if err := d.Delete(t.Context(), fmt.Sprint("default k", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i < 6; i++ {
		if err := far.Delete(t.Context(), fmt.Sprint("default k", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		want := value(i, 100_000)
		if i == 2 || i == 3 {
			want = "nil" // lost in both
		}
		if got := c.do("GET", fmt.Sprint("k", i)); got != want {
			t.Errorf("value %d: %.40q", i, got)
		}
	}
	c.want([][2]string{{"EXISTS k2", ":0"}, {"DBSIZE", ":18"}}...)
	if lost := h.tier("disk").Lost; lost != 4 {
		t.Errorf("the disk has lost %d", lost)
	}
}

// stuck is a driver that answers nothing before its context ends, or release.
type stuck struct {
	store.Driver
	release chan struct{}
	waiting atomic.Int64
}

func (s *stuck) wait(ctx context.Context) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.release:
		return nil
	}
}

func (s *stuck) Put(ctx context.Context, key string, value, tag []byte) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Driver.Put(ctx, key, value, tag)
}

func (s *stuck) Delete(ctx context.Context, key string) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Driver.Delete(ctx, key)
}

// An object store that hangs holds nobody up, not even the end.
func TestLaterTierHangs(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	hangs := &stuck{Driver: far, release: make(chan struct{})}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: hangs}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for round := range 2 {
		for i := range 60 {
			if got := c.do("SET", fmt.Sprint("k", i), value(i+round, 100_000)); got != "+OK" {
				t.Fatal(got)
			}
			if got := c.do("GET", fmt.Sprint("k", i)); got != value(i+round, 100_000) {
				t.Fatalf("value %d: %.40q", i, got)
			}
			c.do("DEL", fmt.Sprint("k", i-10))
		}
	}
	h.until("it is being told", func() bool { return hangs.waiting.Load() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := h.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end: %v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
	h.end()
	close(hangs.release)
	c = h.again()
	h.until("it has what it should", func() bool { return h.tier("external").Waiting == 0 })
	for i := 51; i < 60; i++ {
		if got := c.do("GET", fmt.Sprint("k", i)); got != value(i+1, 100_000) {
			t.Errorf("value %d: %.40q", i, got)
		}
	}
}

// What is replaced, or deleted, while it is on its way below is not what is there in
// the end.
func TestChangedOnTheWay(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	hangs := &stuck{Driver: far, release: make(chan struct{})}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: hangs}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	c.want([][2]string{{"SET replaced old", "+OK"}, {"SET deleted old", "+OK"}}...)
	h.until("both on their way", func() bool { return hangs.waiting.Load() == 2 })
	c.want([][2]string{{"SET replaced new", "+OK"}, {"DEL deleted", ":1"}}...)
	close(hangs.release)
	h.until("all told", func() bool { return h.tier("external").Waiting == 0 })
	v, err := far.Get(t.Context(), "default replaced")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	if string(v.Bytes) != "new" || far.Usage().Entries != 1 {
		t.Errorf("%q, and %d entries", v.Bytes, far.Usage().Entries)
	}
	if got := h.tiers("replaced"); got != "memory disk external" {
		t.Errorf("it lies in %q", got)
	}
}

// away is a driver that can be told not to answer.
type away struct {
	store.Driver
	is    atomic.Bool
	asked atomic.Int64
}

func (a *away) Get(ctx context.Context, key string) (*store.Value, error) {
	if a.is.Load() {
		return nil, store.ErrUnavailable
	}
	return a.Driver.Get(ctx, key)
}

func (a *away) Stat(ctx context.Context, key string) (store.Entry, error) {
	a.asked.Add(1)
	if a.is.Load() {
		return store.Entry{}, store.ErrUnavailable
	}
	return a.Driver.Stat(ctx, key)
}

// Nobody is told that there is what lies in an object store only that is away.
func TestLaterTierIsAway(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	a := &away{Driver: far}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: a}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for i := range 60 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
		h.until("it is copied", func() bool { return h.tier("external").Waiting == 0 })
	}
	if got := h.tiers("k0"); got != "external" {
		t.Fatalf("k0 lies in %q", got)
	}
	c.want([2]string{"EXISTS k0", ":1"})
	if n := a.asked.Load(); n != 0 {
		t.Errorf("a store that is well is asked %d times", n)
	}
	a.is.Store(true)
	c.want([][2]string{{"GET k0", "nil"}, {"EXISTS k0", ":0"}, {"STRLEN k0", ":0"}, {"TYPE k0", "+none"}, {"EXISTS k59", ":1"}}...)
	a.is.Store(false)
	c.want([][2]string{{"EXISTS k0", ":1"}, {"EXISTS k1", ":1"}}...)
	if n := a.asked.Load(); n != 4 {
		t.Errorf("it is asked %d times, want 4", n)
	}
	if got := c.do("GET", "k0"); got != value(0, 100_000) {
		t.Errorf("%.20q", got)
	}
}

// unseen is a driver that is not looked through before it may be, and swept then.
type unseen struct {
	store.Driver
	open  chan struct{}
	swept atomic.Int64
}

func (u *unseen) Sweep(ctx context.Context) (removed int, err error) {
	select {
	case <-u.open:
		u.swept.Add(1)
	default:
		u.swept.Add(1000) // before it was looked through
	}
	return 1, nil
}

func (u *unseen) Scan(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		select {
		case <-u.open:
		case <-ctx.Done():
			yield(store.Entry{}, ctx.Err())
			return
		}
		for e, err := range u.Driver.Scan(ctx) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// What is deleted, or flushed, before it is found in an object store does not come
// back from there.
func TestRemovedBeforeFound(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	pair := fmt.Sprintf(chunkKey, 1)
	keys := []string{"a", "b", pair + "kv_bytes", pair + "metadata"}
	for _, flush := range []bool{false, true} {
		h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, later: far}
		h.begin()
		c := dial(t, h.address)
		for _, key := range keys {
			c.do("SET", key, "old")
		}
		h.until("all is copied", func() bool { return h.tier("external").Waiting == 0 })
		h.end()
		u := &unseen{Driver: far, open: make(chan struct{})}
		h.later, h.disk.Dir = u, t.TempDir() // the machine was lost
		h.begin()
		c = dial(t, h.address)
		c.want([2]string{"EXISTS a", ":0"})
		if flush {
			h.Tenant("", "").Flush()
		} else {
			c.do("DEL", "a", pair+"kv_bytes")
			h.until("it is told", func() bool { return h.tier("external").Waiting == 0 })
		}
		c.do("SET", "b", "new")
		h.until("it is copied", func() bool { return h.tiers("b") == "memory disk external" })
		c.do("SET", "last", "v")
		close(u.open)
		h.until("it is looked through", func() bool { return far.Usage().Entries == 2 && h.tier("external").Waiting == 0 })
		h.until("it is swept once", func() bool { return u.swept.Load() == 1 })
		if got := c.do("MGET", "a", "b", keys[2], keys[3], "last"); got != "[nil new nil nil v]" {
			t.Errorf("flushed %v: %s", flush, got)
		}
		c.do("DEL", "b", "last")
		h.until("it is empty", func() bool { return far.Usage().Entries == 0 })
		h.end()
	}
}

// An older value that lies further below does not come back.
func TestOlderValueBelow(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: far}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	c.want([2]string{"SET a new", "+OK"})
	h.until("copied", func() bool { return h.tier("external").Waiting == 0 })
	h.end()
	if err := far.Put(t.Context(), "default a", []byte("old"), make([]byte, 56)); err != nil {
		t.Fatal(err)
	}
	h.begin()
	h.until("put right", func() bool { return h.tiers("a") == "disk external" })
	v, err := far.Get(t.Context(), "default a")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	if string(v.Bytes) != "new" {
		t.Errorf("%q", v.Bytes)
	}
}

// Slow readers of what has no room in memory do not take more than they may: the
// others miss, until they have gone.
func TestSlowReadersFromDisk(t *testing.T) {
	h := home(t, 64<<10, 64<<20, kvstore.Options{Lease: -1, MaxPending: 30 << 20, Stall: time.Minute})
	c := dial(t, h.address)
	long := value(1, 24<<20)
	for _, k := range []string{"a", "b"} {
		c.do("SET", k, long)
	}
	slow := dial(t, h.address)
	if _, err := slow.Write(request("GET", "a")); err != nil {
		t.Fatal(err)
	}
	h.until("somebody reads", func() bool { return h.tier("disk").Hits == 1 })
	if got := c.do("GET", "b"); got != "nil" || h.Stats().Busy != 1 {
		t.Errorf("beside a slow reader: %d bytes, %+v", len(got), h.Stats())
	}
	if got, err := slow.read(); got != long || err != nil {
		t.Errorf("the slow reader: %d bytes, %v", len(got), err)
	}
	h.until("there is room", func() bool { return c.do("GET", "b") == long })
}

// gated lets each reader wait, and counts them.
type gated struct {
	*disk.Store
	reads atomic.Int64
	open  chan struct{}
}

func (g *gated) Load(ctx context.Context, key string, into []byte) (uint64, error) {
	g.reads.Add(1)
	<-g.open
	return g.Store.Load(ctx, key, into)
}

func (g *gated) Get(ctx context.Context, key string) (*store.Value, error) {
	g.reads.Add(1)
	<-g.open
	return g.Store.Get(ctx, key)
}

// Of many who want one value that lies on disk, one reads it.
func TestOneReadsForMany(t *testing.T) {
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{}}
	d, err := disk.Open(t.Context(), h.disk)
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{Store: d, open: make(chan struct{})}
	h.over(g)
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for i := range 20 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	looked := h.Stats().Hits
	var all sync.WaitGroup
	for range 8 {
		c := dial(t, h.address)
		all.Go(func() {
			if got := c.do("GET", "k0"); got != value(0, 100_000) {
				t.Errorf("%.40q", got)
			}
		})
	}
	h.until("all have asked", func() bool {
		for _, s := range h.Stats().Commands {
			if s.Name == "GET" {
				return s.Calls == 8
			}
		}
		return false
	})
	close(g.open)
	all.Wait()
	if n := g.reads.Load(); n != 1 || h.Stats().Hits != looked+8 {
		t.Errorf("%d reads of the disk for %d hits", n, h.Stats().Hits-looked)
	}
}

// What expires does so while something else is read, and what is read itself once
// it has been.
func TestExpiryWhileReading(t *testing.T) {
	now := &clock{now: time.Now()}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}, options: kvstore.Options{Now: now.Now}}
	d, err := disk.Open(t.Context(), h.disk)
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{Store: d, open: make(chan struct{})}
	h.over(g)
	t.Cleanup(func() { h.end() })
	c, reader := dial(t, h.address), dial(t, h.address)
	c.do("SET", "slow", value(0, 100_000), "EX", "1")
	c.do("SET", "other", "v", "EX", "2")
	for i := range 20 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	if _, err := reader.Write(request("GET", "slow")); err != nil {
		t.Fatal(err)
	}
	h.until("it is being read", func() bool { return g.reads.Load() == 1 })
	now.pass(3 * time.Second)
	c.want([2]string{"GET other", "nil"})
	close(g.open)
	if got, err := reader.read(); got != value(0, 100_000) || err != nil {
		t.Errorf("who asked in time: %.20q, %v", got, err)
	}
	c.want([2]string{"GET slow", "nil"})
	if n := h.Stats().Expired; n != 2 {
		t.Errorf("%d values have expired, want 2", n)
	}
}

// A client that goes in the middle of a value leaves nothing of it anywhere.
func TestHalfAValue(t *testing.T) {
	h := home(t, 1<<20, 16<<20, kvstore.Options{})
	liar := dial(t, h.address)
	fmt.Fprintf(liar, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8000000\r\n%s", strings.Repeat("v", 7_999_000))
	liar.Close()
	longer := dial(t, h.address)
	fmt.Fprintf(longer, "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$5000000\r\n%s", strings.Repeat("v", 6_000_000))
	io.ReadAll(longer) //nolint:errcheck // it is cut off
	c := dial(t, h.address)
	c.want([][2]string{{"DBSIZE", ":0"}, {"EXISTS a b", ":0"}}...)
	if used := h.tier("disk").Used; used != 0 {
		t.Errorf("%d bytes on disk", used)
	}
}

// What many do at once, with little room in both tiers, never gives bytes that
// nobody put, and the books are right in the end.
func TestManyClientsInTiers(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 2 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: time.Millisecond, PinBudget: 0.25}, later: far}
	h.begin()
	t.Cleanup(func() { h.end() })
	var all sync.WaitGroup
	for n := range 6 {
		c := dial(t, h.address)
		all.Go(func() {
			for i := range 300 {
				key := fmt.Sprintf(chunkKey, (i*7+n*3)%30)
				value := key + strings.Repeat(string(rune('a'+n)), 40_000+n*9000)
				switch (i + n) % 8 {
				case 0, 1:
					c.do("SET", key+"kv_bytes", value)
					c.do("SET", key+"metadata", key, "PX", "60000")
				case 2, 3, 4:
					if m := c.do("GET", key+"metadata"); m != "nil" && m != key {
						t.Errorf("metadata of %s: %q", key, m)
					}
					got := c.do("GET", key+"kv_bytes")
					rest, ok := strings.CutPrefix(got, key)
					if got != "nil" && (!ok || strings.Trim(rest, rest[:1]) != "") {
						t.Errorf("bytes of %s are not what anybody stored", key)
					}
				case 5:
					c.do("KV.RETAIN", key+"kv_bytes", "PRIO", "60", "PIN", "5000", "SESSION", key)
				case 6:
					c.do("KV.RETAIN", key+"kv_bytes", "CLASS", "eph")
				case 7:
					c.do("DEL", key+"kv_bytes")
				}
			}
		})
	}
	all.Wait()
	c := h.again()
	for i := range 30 {
		key := fmt.Sprintf(chunkKey, i)
		if c.do("EXISTS", key+"metadata") == ":1" && c.do("EXISTS", key+"kv_bytes") == ":0" {
			t.Errorf("metadata of %s without its bytes", key)
		}
		c.do("DEL", key+"kv_bytes")
	}
	h.until("all is gone", func() bool { return h.tier("external").Waiting == 0 })
	st := h.Stats()
	for _, tier := range st.Tiers {
		if tier.Used != 0 {
			t.Errorf("nothing is left, and yet %+v", tier)
		}
	}
	if n := st.Namespaces[0]; n.Keys != 0 || n.Values != 0 || n.Used != 0 {
		t.Errorf("nothing is left, and yet %+v", n)
	}
	if far.Usage().Entries != 0 {
		t.Errorf("the third tier has %d entries", far.Usage().Entries)
	}
}

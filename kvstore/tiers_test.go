package kvstore_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvstore"
)

// house is a server over memory and a directory, which can end and begin again.
type house struct {
	t       testing.TB
	memory  int64
	disk    disk.Options
	options kvstore.Options
	later   store.Driver // a third tier, if not nil
	most    int64        // what that may hold, if not 64 MiB

	*kvstore.Server
	address string
	end     func()
}

// home returns a server over so much memory and disk.
func home(t testing.TB, memory, capacity int64, o kvstore.Options) *house {
	t.Helper()
	h := &house{t: t, memory: memory, disk: disk.Options{Dir: t.TempDir(), Capacity: capacity, Step: 1 << 20}, options: o}
	h.begin()
	t.Cleanup(func() { h.end() })
	return h
}

func (h *house) begin() {
	h.t.Helper()
	d, err := disk.Open(h.t.Context(), h.disk)
	if err != nil {
		h.t.Fatal(err)
	}
	h.over(d)
}

// over begins with a driver in place of the disk.
func (h *house) over(d store.Driver) {
	h.t.Helper()
	m, err := memory.New(memory.Options{Capacity: h.memory})
	if err != nil {
		h.t.Fatal(err)
	}
	o := h.options
	o.Driver, o.Below = m, []kvstore.Tier{{Name: "disk", Driver: d, PinBudget: 0.5}}
	if h.later != nil {
		o.Below = append(o.Below, kvstore.Tier{Name: "external", Driver: h.later, Capacity: cmp.Or(h.most, 64<<20), Later: true})
	}
	if h.Server, err = kvstore.New(o); err != nil {
		h.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	h.address = l.Addr().String()
	h.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			h.t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			h.t.Errorf("serving: %v", err)
		}
		d.Close() //nolint:errcheck // what it has is looked at by the next one
		m.Close() //nolint:errcheck // it is memory
	})
}

// again ends the server and begins another one over the same directory.
func (h *house) again() *client {
	h.t.Helper()
	h.end()
	h.begin()
	return dial(h.t, h.address)
}

// tier returns what is known of a tier.
func (h *house) tier(name string) kvstore.TierStats {
	for _, t := range h.Stats().Tiers {
		if t.Name == name {
			return t
		}
	}
	h.t.Fatalf("no tier %s", name)
	return kvstore.TierStats{}
}

// tiers returns where a value lies.
func (h *house) tiers(key string) string {
	e, _ := h.Tenant("", "").Look(key)
	return strings.Join(e.Tiers, " ")
}

func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			h.t.Fatalf("still not: %s; %+v", what, h.Stats().Tiers)
		}
	}
}

func value(i, n int) string {
	s := fmt.Sprintf("value %d: ", i)
	return s + strings.Repeat(string(rune('a'+i%26)), n-len(s))
}

// What has no room in memory comes from the disk, and is in memory then.
func TestDiskBelowMemory(t *testing.T) {
	h := home(t, 1<<20, 16<<20, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	for i := range 50 {
		if got := c.do("SET", fmt.Sprint("k", i), value(i, 100_000)); got != "+OK" {
			t.Fatal(got)
		}
	}
	for i, want := range map[int]string{0: "disk", 49: "memory disk"} {
		if got := h.tiers(fmt.Sprint("k", i)); got != want {
			t.Errorf("value %d lies in %q, want %q", i, got, want)
		}
	}
	for range 2 {
		for i := range 50 {
			if got := c.do("GET", fmt.Sprint("k", i)); got != value(i, 100_000) {
				t.Fatalf("value %d: %.40s", i, got)
			}
		}
	}
	c.do("GET", "k0")
	before := h.tier("memory").Hits
	c.do("GET", "k0")
	if after := h.tier("memory").Hits; h.tiers("k0") != "memory disk" || after != before+1 {
		t.Errorf("what was read lies in %q, and was read from memory %d times", h.tiers("k0"), after-before)
	}
	m, d := h.tier("memory"), h.tier("disk")
	if d.Used != 50*100_000 || m.Used > 1<<20 || m.Evicted < 40 || d.Evicted != 0 || h.Stats().Evicted != 0 {
		t.Errorf("memory %+v\ndisk %+v", m, d)
	}
}

// A value longer than all memory, and one longer than the disk, have a place.
func TestLongValues(t *testing.T) {
	h := home(t, 1<<20, 8<<20, kvstore.Options{})
	c := dial(t, h.address)
	long := value(1, 3<<20)
	c.do("SET", "long", long)
	if got := c.do("GET", "long"); got != long || h.tiers("long") != "disk" {
		t.Errorf("%d bytes, which lie in %q", len(got), h.tiers("long"))
	}
	if got := c.do("SET", "longer", value(2, 9<<20)); !strings.HasPrefix(got, "-ERR value not stored: ") {
		t.Errorf("longer than all: %.80s", got)
	}
	if got := c.do("SET", "long", value(2, 9<<20)); !strings.HasPrefix(got, "-ERR value not stored: ") {
		t.Errorf("longer than all: %.80s", got)
	}
	if n := h.Stats().Namespaces[0]; n.Values != 0 || n.Used != 0 || c.do("EXISTS", "long") != ":0" {
		t.Errorf("of what was to be replaced is left %+v", n)
	}
	name := strings.Repeat("n", 1000) // longer than what the disk keeps names of
	if got := c.do("SET", name, "v") + c.do("GET", name); got != "+OKv" || h.tiers(name) != "memory" {
		t.Errorf("a long name: %s, %q", got, h.tiers(name))
	}
}

// All that was acknowledged is there after a restart, with what was asked for it.
func TestRestart(t *testing.T) {
	now := &clock{now: time.Unix(2e9, 0)}
	h := home(t, 1<<20, 4<<20, kvstore.Options{Lease: -1, Now: now.Now})
	c := dial(t, h.address)
	big := strings.Repeat("v", 100_000)
	chunk := fmt.Sprintf(chunkKey, 7)
	for _, k := range []string{"dear", "pinned", "owned", "eph", chunk + "kv_bytes", "low"} {
		c.do("SET", k, big)
	}
	c.want([][2]string{
		{"SET " + chunk + "metadata m", "+OK"},
		{"SET small 1", "+OK"},
		{"SET brief 1 PX 60000", "+OK"},
		{"SET briefer 1 PX 1000", "+OK"},
		{"KV.RETAIN dear PRIO 80", ":1"},
		{"KV.RETAIN pinned PIN 60000", ":1"},
		{"KV.RETAIN owned PIN 60000 SESSION s EPOCH 7", ":1"},
		{"KV.RETAIN low PRIO 1", ":1"},
		{"KV.RETAIN eph CLASS eph", ":1"},
		{"DEL eph", ":1"},
	}...)
	now.pass(5 * time.Second)
	c.do("GET", "pinned") // which is pinned from now on for as long
	c = h.again()
	if e, _ := h.Tenant("", "").Look("pinned"); e.Retention.PinDeadline != time.Unix(2e9+65, 0).UnixMilli() {
		t.Errorf("of a pin that was renewed is left %+v", e.Retention)
	}
	c.want([][2]string{
		{"DBSIZE", ":8"},
		{"MGET small brief briefer eph", "[1 1 nil nil]"},
		{"KV.PREFIX meta/llama 0007", ":1"},
		{"GET " + chunk + "metadata", "m"},
		{"KV.RETAIN owned PRIO 0 EPOCH 6", ":1"}, // too late
	}...)
	if e, ok := h.Tenant("", "").Look("owned"); !ok || !e.Retention.SoftPin || e.Retention.Epoch != 7 || e.Retention.Priority == 0 ||
		e.Retention.PinDeadline != time.Unix(2e9+60, 0).UnixMilli() {
		t.Errorf("of what was pinned for a session is left %+v", e)
	}
	if got := c.do("GET", "dear"); got != big {
		t.Errorf("%d bytes", len(got))
	}
	for i := range 100 {
		c.do("SET", fmt.Sprint("x", i), big)
	}
	// 4 MiB of pages of 4 KiB hold 40 of these.
	c.want([][2]string{{"EXISTS low small", ":0"}, {"EXISTS dear pinned owned", ":3"}, {"KV.SESSION CLOSE s", "idle"}}...)
	for i := range 100 {
		c.do("SET", fmt.Sprint("y", i), big)
	}
	c.want([][2]string{{"EXISTS owned", ":0"}, {"EXISTS dear pinned", ":2"}}...)
	now.pass(61 * time.Second)
	c.want([2]string{"EXISTS brief", ":0"})
	c = h.again()
	for i := range 100 {
		c.do("SET", fmt.Sprint("z", i), big)
	}
	c.want([][2]string{{"EXISTS pinned", ":0"}, {"EXISTS dear", ":1"}}...)
}

// A pin that is renewed again and again is so after a kill, too.
func TestRenewedPinOutlivesKill(t *testing.T) {
	now := &clock{now: time.Unix(2e9, 0)}
	h := home(t, 1<<20, 4<<20, kvstore.Options{Now: now.Now})
	c := dial(t, h.address)
	c.want([][2]string{{"SET a 1", "+OK"}, {"KV.RETAIN a PIN 60000", ":1"}}...)
	for range 10 {
		now.pass(11 * time.Second)
		c.want([2]string{"GET a", "1"})
	}
	h.until("written", func() bool { return h.tier("disk").Waiting == 0 })
	h.killed()
	if e, _ := h.Tenant("", "").Look("a"); e.Retention.PinDeadline != time.Unix(2e9+170, 0).UnixMilli() {
		t.Errorf("%+v", e.Retention)
	}
}

// In no tier is there metadata without its bytes, and both go together.
func TestPairsInTiers(t *testing.T) {
	h := home(t, 1<<20, 2<<20, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	for i := range 60 {
		key := fmt.Sprintf(chunkKey, i)
		c.do("SET", key+"kv_bytes", value(i, 100_000))
		c.do("SET", key+"metadata", "m")
		if i%3 == 0 {
			c.do("GET", fmt.Sprintf(chunkKey, i/2)+"kv_bytes")
		}
	}
	for round := range 2 {
		there := 0
		for i := range 60 {
			key := fmt.Sprintf(chunkKey, i)
			m, b := c.do("GET", key+"metadata"), c.do("GET", key+"kv_bytes")
			if (m == "m") != (b == value(i, 100_000)) || (m == "nil") != (b == "nil") {
				t.Errorf("round %d, chunk %d: metadata %q, %d bytes", round, i, m, len(b))
			}
			if m == "m" {
				there++
			}
		}
		if there < 15 || there > 20 {
			t.Errorf("round %d: %d chunks in 2 MiB", round, there)
		}
		c = h.again()
	}
}

// A store that begins with less keeps what has room, and one that begins with other
// namespaces keeps those of before until it needs their room.
func TestRestartWithOtherOptions(t *testing.T) {
	h := home(t, 1<<20, 8<<20, kvstore.Options{Lease: -1, Namespaces: []kvstore.Namespace{{Name: "a", Token: "a"}, {Name: "b", Token: "b"}}})
	c := dial(t, h.address)
	for _, n := range []string{"a", "b"} {
		c.do("AUTH", n)
		for i := range 20 {
			c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
		}
	}
	h.disk.Capacity = 3 << 20
	h.options.Namespaces = []kvstore.Namespace{{Name: "b", Token: "b", Quota: 1_000_000}}
	c = h.again()
	c.want([2]string{"AUTH b", "+OK"})
	for i := range 20 {
		if got := c.do("GET", fmt.Sprint("k", i)); got != "nil" && got != value(i, 100_000) {
			t.Errorf("value %d: %.40s", i, got)
		}
	}
	for i := range 30 {
		if got := c.do("SET", fmt.Sprint("n", i), value(i, 100_000)); got != "+OK" {
			t.Fatal(got)
		}
	}
	if got := c.do("DBSIZE"); got != ":10" {
		t.Errorf("within the quota: %s", got)
	}
	if used := h.tier("disk").Used; used > 3<<20 {
		t.Errorf("%d bytes on disk", used)
	}
	h.options.Namespaces = []kvstore.Namespace{{Name: "a", Token: "a"}, {Name: "b", Token: "b"}}
	c = h.again()
	c.want([][2]string{{"AUTH b", "+OK"}, {"DBSIZE", ":10"}, {"AUTH a", "+OK"}}...)
	for i := range 20 {
		if got := c.do("GET", fmt.Sprint("k", i)); got != "nil" && got != value(i, 100_000) {
			t.Errorf("value %d of the namespace that comes back: %.40s", i, got)
		}
	}
}

// What nobody can read any more goes before all that somebody can.
func TestClosedNamespacesGoFirst(t *testing.T) {
	h := home(t, 1<<20, 3<<20, kvstore.Options{Lease: -1, Namespaces: []kvstore.Namespace{{Name: "a", Token: "a"}, {Name: "b", Token: "b"}}})
	c := dial(t, h.address)
	for n, values := range map[string]int{"a": 8, "b": 18} {
		c.do("AUTH", n)
		for i := range values {
			c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
		}
	}
	h.options.Namespaces = h.options.Namespaces[1:]
	c = h.again()
	c.do("AUTH", "b")
	for i := 18; i < 26; i++ {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	c.want([2]string{"DBSIZE", ":26"})
	if n := h.Stats().Namespaces[1]; n.Name != "a" || n.Values > 4 {
		t.Errorf("of those of before are left %+v", n)
	}
}

func TestTwoOnOneDirectory(t *testing.T) {
	h := home(t, 1<<20, 1<<20, kvstore.Options{})
	if _, err := disk.Open(t.Context(), h.disk); err == nil || !strings.Contains(err.Error(), "each store needs a directory of its own") {
		t.Errorf("a second one: %v", err)
	}
}

// Ephemeral values do not stay on disk, unless somebody else asks for them.
func TestEphemeralStaysAbove(t *testing.T) {
	h := home(t, 1<<20, 4<<20, kvstore.Options{Lease: -1})
	c := dial(t, h.address)
	key := fmt.Sprintf(chunkKey, 1)
	c.want([][2]string{
		{"SET " + key + "kv_bytes v", "+OK"},
		{"SET " + key + "metadata m", "+OK"},
		{"KV.RETAIN " + key + "kv_bytes CLASS eph SESSION s", ":1"},
	}...)
	for range 2 {
		if got := h.tiers(key + "kv_bytes"); got != "memory" {
			t.Errorf("it lies in %q", got)
		}
		c.want([][2]string{{"SET " + key + "kv_bytes v", "+OK"}, {"SET " + key + "metadata m", "+OK"}}...)
	}
	if used := h.tier("disk").Used; used != 0 {
		t.Errorf("%d bytes on disk", used)
	}
	c.want([2]string{"GET " + key + "kv_bytes", "v"})
	c.want([2]string{"GET " + key + "metadata", "m"})
	h.until("on disk, as somebody wanted it", func() bool { return h.tiers(key+"kv_bytes") == "memory disk" })
	c = h.again()
	c.want([2]string{"MGET " + key + "metadata " + key + "kv_bytes", "[m v]"})
}

// A tier without a bound of its own holds what it may, and the others are not
// touched by what leaves it.
func TestBoundOfLaterTier(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 8 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: far, most: 1_000_000}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for i := range 30 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	c.do("SET", "long", value(1, 1_000_001))
	h.until("all told", func() bool { return h.tier("external").Waiting == 0 })
	// Of the four that are copied at once each may find room.
	if e := h.tier("external"); e.Used > 1_300_000 || e.Used < 800_000 || int64(far.Usage().Entries)*100_000 != e.Used || e.Evicted < 17 {
		t.Errorf("%+v, %+v", e, far.Usage())
	}
	for i := range 30 {
		if got := c.do("GET", fmt.Sprint("k", i)); got != value(i, 100_000) {
			t.Errorf("value %d: %.40q", i, got)
		}
	}
	if got := h.tiers("long"); got != "memory disk" && got != "disk" {
		t.Errorf("a value longer than the third tier lies in %q", got)
	}
}

// A third tier gets values when there is time, and has them when the others do not.
func TestLaterTier(t *testing.T) {
	far, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 2 << 20, Step: 1 << 20}, options: kvstore.Options{Lease: -1}, later: far}
	h.begin()
	t.Cleanup(func() { h.end() })
	c := dial(t, h.address)
	for i := range 50 {
		key := fmt.Sprint("k", i)
		c.do("SET", key, value(i, 100_000))
		h.until("copied", func() bool { return strings.HasSuffix(h.tiers(key), "external") })
	}
	if got := h.tiers("k0"); got != "external" {
		t.Errorf("the first one lies in %q", got)
	}
	if got := c.do("GET", "k0"); got != value(0, 100_000) || h.tiers("k0") != "memory disk external" {
		t.Errorf("%d bytes, which lie in %q", len(got), h.tiers("k0"))
	}
	c.do("SET", "k1", "new")
	h.until("new everywhere", func() bool { return h.tiers("k1") == "memory disk external" })
	c.want([2]string{"DEL k2", ":1"})
	c.want([2]string{"KV.RETAIN k3 PRIO 90", ":1"})
	h.until("all told", func() bool { return h.tier("external").Waiting == 0 })
	if e, err := far.Stat(t.Context(), "default k1"); err != nil || e.Size != 3 {
		t.Errorf("what was replaced: %+v, %v", e, err)
	}
	if e, err := far.Stat(t.Context(), "default k2"); err == nil {
		t.Errorf("what was deleted is still there: %+v", e)
	}
	if e, err := far.Stat(t.Context(), "default k3"); err != nil || e.Tag[0] != 90 {
		t.Errorf("what was asked for: %+v, %v", e, err)
	}

	// Without the disk, all is there, with what was asked for it.
	h.end()
	h.disk.Dir = t.TempDir()
	h.begin()
	c = dial(t, h.address)
	h.until("found", func() bool { return h.Stats().Namespaces[0].Keys == 49 })
	for i := 3; i < 50; i++ {
		if got := c.do("GET", fmt.Sprint("k", i)); got != value(i, 100_000) {
			t.Errorf("value %d: %.40s", i, got)
		}
	}
	if e, _ := h.Tenant("", "").Look("k3"); e.Retention.Priority != 90 {
		t.Errorf("what was asked for: %+v", e)
	}
}

// There are no more values than there may be, now and after a restart with fewer, and
// those of the namespace that has most go.
func TestMostValues(t *testing.T) {
	h := home(t, 1<<20, 16<<20, kvstore.Options{MaxValues: 20, Lease: -1, Namespaces: []kvstore.Namespace{{Name: "b", Token: "b"}, {Name: "a"}}})
	c, other := dial(t, h.address), dial(t, h.address)
	other.want([][2]string{{"AUTH b", "+OK"}, {"SET mine 1", "+OK"}, {"SET mine 2", "+OK"}}...)
	for i := range 50 {
		c.do("SET", fmt.Sprint("k", i), value(i, 5000))
	}
	c.want([][2]string{{"DBSIZE", ":19"}, {"EXISTS k30 k31 k49", ":2"}, {"SET k49 new", "+OK"}, {"DBSIZE", ":19"}}...)
	other.want([2]string{"GET mine", "2"})
	h.options.MaxValues = 10
	c = h.again()
	c.want([][2]string{{"DBSIZE", ":9"}, {"EXISTS k40 k41 k49", ":2"}}...)
	if n := h.tier("disk").Used; n > 10*5000 {
		t.Errorf("%d bytes lie on disk", n)
	}
}

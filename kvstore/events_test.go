package kvstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvstore"
)

// told is a store that tells of its values.
func told(t *testing.T, capacity int64, o kvstore.Options, eo kvstore.EventsOptions) (events *kvstore.Events, address string) {
	t.Helper()
	eo.Publish, eo.Backend = "tcp://127.0.0.1:*", "test"
	eo.Replay = "tcp://127.0.0.1:*"
	events, err := kvstore.NewEvents(t.Context(), eo)
	if err != nil {
		t.Fatal(err)
	}
	o.Changed = events.Changed
	_, address = start(t, capacity, o)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { events.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		events.Close() //nolint:errcheck // nobody listens any more
	})
	return events, address
}

// follower is what a reader of the events takes the store to hold.
type follower struct {
	mu       sync.Mutex
	keys     map[string]bool
	restarts int
	number   uint64
}

func follow(t *testing.T, e *kvstore.Events) *follower {
	t.Helper()
	publish, replay := e.Addresses()
	source, err := kvevent.NewObjectSource(kvevent.ObjectSourceConfig{Events: publish, Replay: replay})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{keys: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for b, err := range source.Batches(ctx) {
			if err != nil {
				return
			}
			f.apply(b)
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
	return f
}

func (f *follower) apply(b kvevent.ObjectBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Restart {
		f.restarts++
		clear(f.keys)
	}
	f.number = b.Number
	for _, e := range b.Events {
		name := e.Tenant + "/" + e.Key
		if (e.Kind == kv.Stored) == f.keys[name] {
			f.keys["told twice: "+name] = true
		}
		if e.Kind == kv.Stored {
			f.keys[name] = true
		} else {
			delete(f.keys, name)
		}
	}
}

func (f *follower) holds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.keys))
}

// agrees waits until the follower takes the store to hold what it says itself.
func (f *follower) agrees(t *testing.T, c *client, tenant string) {
	t.Helper()
	answer := strings.Trim(c.do("KEYS", "*"), "[]")
	var want []string
	for key := range strings.FieldsSeq(answer) {
		want = append(want, tenant+"/"+key)
	}
	slices.Sort(want)
	for deadline := time.Now().Add(20 * time.Second); ; {
		got := f.holds()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the follower has %d keys, the store %d:\n%.300v\n%.300v", len(got), len(want), got, want)
		}
		time.Sleep(time.Millisecond) // what it waits for comes over a socket
	}
}

// Whoever listens from the beginning, and whoever comes later, knows what lies in
// the store: through evictions, deletions, and values that are replaced.
func TestEventsTellWhatIsThere(t *testing.T) {
	below, err := memory.New(memory.Options{Capacity: 3 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o := kvstore.Options{Lease: -1, Below: []kvstore.Tier{{Name: "disk", Driver: below}}}
	events, address := told(t, 1<<20, o, kvstore.EventsOptions{})
	early := follow(t, events)
	c := dial(t, address)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		key := fmt.Sprintf("m@1@0@%02x@half", random.IntN(80))
		switch random.IntN(6) {
		case 0:
			c.do("DEL", key+"kv_bytes")
		case 1:
			c.do("SET", fmt.Sprint(random.IntN(50)), strings.Repeat("x", random.IntN(9000)))
		default:
			c.do("SET", key+"kv_bytes", strings.Repeat("x", 4096+random.IntN(30000)))
			c.do("SET", key+"metadata", "m")
		}
		if i%500 == 499 {
			early.agrees(t, c, "")
		}
	}
	late := follow(t, events)
	late.agrees(t, c, "")
	c.do("SET", "one", "more")
	early.agrees(t, c, "")
	late.agrees(t, c, "")
	if early.restarts > 2 {
		t.Errorf("the early one began anew %d times", early.restarts)
	}
}

// Namespaces are tenants.
func TestEventsOfNamespaces(t *testing.T) {
	events, address := told(t, 1<<20, kvstore.Options{Namespaces: []kvstore.Namespace{{Name: "n"}}}, kvstore.EventsOptions{})
	c := dial(t, address)
	c.do("SET", "a", "1")
	follow(t, events).agrees(t, c, "n")
}

// More changes than may wait are not told; whoever listens forgets what it knew.
func TestEventsThatAreLost(t *testing.T) {
	events, err := kvstore.NewEvents(t.Context(), kvstore.EventsOptions{Publish: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*", Queue: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	stored := func(key string) {
		events.Changed(kvstore.Change{Namespace: "default", Key: key, Tier: kvstore.MemoryTier, Stored: true})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	defer run.Wait()
	defer cancel()
	f := follow(t, events)
	for range 3 { // before anything is told of them
		stored("a")
	}
	run.Go(func() { events.Run(ctx) })
	until(t, "a change is lost", func() bool { return events.Stats().Lost == 1 && events.Stats().Messages == 1 })
	until(t, "the follower listens", func() bool { return events.Stats().Subscribers == 1 })
	stored("b")
	until(t, "it knows of what came behind the hole only", func() bool { return slices.Equal(f.holds(), []string{"/b"}) })
}

// More than may wait comes to the store at once, and at its start more than that lies
// in it: whoever listens, and whoever comes later, knows what is there nevertheless.
func TestEventsAfterTooMany(t *testing.T) {
	h := &house{t: t, memory: 1 << 20, disk: disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Step: 1 << 20}}
	h.begin()
	c := dial(t, h.address)
	for i := range 100 {
		c.do("SET", fmt.Sprint("old", i), "v")
	}
	c.do("SET", chunkKey+"kv_bytes", "v")
	c.do("SET", chunkKey+"metadata", "v")
	h.end()
	events, err := kvstore.NewEvents(t.Context(), kvstore.EventsOptions{Publish: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*", Queue: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	h.options.Changed = events.Changed
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	defer run.Wait()
	defer cancel()
	run.Go(func() { events.Run(ctx) })
	h.begin()
	defer h.end()
	events.Attach(h.Server)
	first := follow(t, events)
	c = dial(t, h.address)
	first.agrees(t, c, "")
	var sets []byte
	for i := range 3000 {
		sets = append(sets, request("SET", fmt.Sprint("new", i%500), "v")...)
		sets = append(sets, request("DEL", fmt.Sprint("new", (i+250)%500))...)
	}
	go c.Write(sets) //nolint:errcheck // reading tells
	for range 6000 {
		if _, err := c.read(); err != nil {
			t.Fatal(err)
		}
	}
	first.agrees(t, c, "")
	follow(t, events).agrees(t, c, "")
	if events.Stats().Recounts == 0 {
		t.Error("there were never too many")
	}
}

// Who asks for what was missed, and does not read the answer, holds others up once.
func TestEventsForTheDeaf(t *testing.T) {
	events, err := kvstore.NewEvents(t.Context(), kvstore.EventsOptions{Publish: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*", Queue: 1 << 20, Patience: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	const all = 100_000
	for i := range all {
		events.Changed(kvstore.Change{Namespace: "default", Key: fmt.Sprint(i), Tier: kvstore.MemoryTier, Stored: true})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	defer run.Wait()
	defer cancel()
	run.Go(func() { events.Run(ctx) })
	_, replay := events.Addresses()
	deaf, err := net.Dial("tcp", strings.TrimPrefix(replay, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
	said := string(greeting) + "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
	said += strings.Repeat("\x01\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00", 30)
	if _, err := deaf.Write([]byte(said)); err != nil {
		t.Fatal(err)
	}
	until(t, "the first question is answered", func() bool { return events.Stats().Replays == 1 })
	f := follow(t, events)
	until(t, "another one knows all", func() bool { return len(f.holds()) == all })
	if n := events.Stats().Replays; n > 10 {
		t.Errorf("%d questions were answered", n)
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond) // what it waits for comes over a socket
	}
}

// Both halves of a pair, of a key that is a hash, and of a value on two tiers.
func TestEventsAsTheyAreWritten(t *testing.T) {
	below, err := memory.New(memory.Options{Capacity: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	var changes []kvstore.Change
	var mu sync.Mutex
	_, address := start(t, 1<<20, kvstore.Options{
		Below: []kvstore.Tier{{Name: "disk", Driver: below}},
		Changed: func(c kvstore.Change) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, c)
		},
	})
	c := dial(t, address)
	c.do("SET", "0x10", "v")
	c.do("DEL", "0x10")
	mu.Lock()
	defer mu.Unlock()
	var got []string
	for _, x := range changes {
		got = append(got, fmt.Sprintf("%s %s %v", x.Key, x.Tier, x.Stored))
	}
	want := []string{"0x10 memory true", "0x10 disk true", "0x10 memory false", "0x10 disk false"}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("changes %q, want %q", got, want)
	}
}

package carry_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/carry"
	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
)

const blockBytes = 5000

// content is what a block consists of: a function of its hash, so that anything else
// in its slot can be seen.
func content(h kv.SeqHash) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(h))
	b := make([]byte, blockBytes)
	rand.NewChaCha8(seed).Read(b) //nolint:errcheck // never fails
	return b
}

// ram is the memory of a device.
type ram [][]byte

func newRAM(slots int) ram {
	r := make(ram, slots)
	for i := range r {
		r[i] = make([]byte, blockBytes)
	}
	return r
}

func (r ram) Block(slot int) []byte { return r[slot] }

// worker is a registry over tiers that have bytes.
type worker struct {
	t       fataler
	ram     ram
	r       *kvcache.Registry
	c       *carry.Carrier
	tiers   [4]*kvcache.Tier
	places  map[kv.Tier]*carry.Place
	woken   chan struct{}
	now     time.Duration
	zero    time.Time
	drivers [4]store.Driver
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

type setup struct {
	slots    [4]int
	drivers  [4]store.Driver
	layout   string
	restored int // how many blocks are to be found on the disk; -1: any
	cfg      kvcache.Config
}

func newWorker(t fataler, s setup) *worker {
	t.Helper()
	w := &worker{
		t: t, ram: newRAM(s.slots[0]), places: map[kv.Tier]*carry.Place{}, woken: make(chan struct{}, 1),
		zero: time.Now(), drivers: s.drivers,
	}
	for k, n := range s.slots {
		if n == 0 {
			continue
		}
		w.tiers[k] = kvcache.NewTier(kv.Tier(k), kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Reject: k > 0}))
		switch kv.Tier(k) {
		case kv.TierHost, kv.TierDisk:
			w.places[kv.Tier(k)] = carry.Own(s.drivers[k], s.layout, n, blockBytes)
		case kv.TierShared:
			w.places[kv.Tier(k)] = carry.Shared(s.drivers[k], s.layout, blockBytes)
		}
	}
	if p := w.places[kv.TierDisk]; p != nil {
		if n, err := p.Restore(context.Background(), w.tiers[kv.TierDisk], w.zero); err != nil || s.restored >= 0 && n != s.restored {
			t.Fatalf("%d blocks restored, want %d: %v", n, s.restored, err)
		}
	}
	cfg := s.cfg
	cfg.Device, cfg.Host, cfg.Disk, cfg.Shared, cfg.BlockBytes, cfg.Zero = w.tiers[0], w.tiers[1], w.tiers[2], w.tiers[3], blockBytes, w.zero
	var err error
	if w.r, err = kvcache.NewRegistry(cfg); err != nil {
		t.Fatalf("%v", err)
	}
	w.c, err = carry.New(w.r, carry.Config{Device: w.ram, Places: w.places, Zero: w.zero, Wake: func() {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// compute does what a request does that computes what is not on the device.
func (w *worker) compute(seq []kv.SeqHash) {
	w.t.Helper()
	d := w.tiers[0]
	refs := d.Match(0, nil, seq)
	w.check(seq, refs)
	for k := len(refs); k < len(seq); k++ {
		var ok bool
		if refs, ok = d.Allocate(refs, 1); !ok {
			break
		}
		ref := refs[k]
		copy(w.ram[ref], content(seq[k]))
		b := kvcache.Block{Hash: seq[k], Local: kv.LocalHash(seq[k] + 7)}
		parent := kvcache.Root
		if k > 0 {
			b.Parent, parent = seq[k-1], refs[k-1]
		}
		d.Register(ref, b, parent)
	}
	w.r.WriteThrough(w.now, refs)
	d.Release(refs)
}

// load brings what is below up to the device, and returns how long the prefix is that
// lies there then.
func (w *worker) load(seq []kv.SeqHash) int {
	w.t.Helper()
	d := w.tiers[0]
	base := d.Match(0, nil, seq)
	under := kvcache.Root
	if len(base) > 0 {
		under = base[len(base)-1]
	}
	id, n, ok := w.r.Load(w.now, seq[len(base):], under)
	if !ok || n == 0 {
		d.Release(base)
		return len(base)
	}
	w.await(func() bool {
		for _, l := range w.r.Loaded() {
			if l.ID == id {
				base = append(base, l.Refs...)
				return true
			}
		}
		return false
	})
	w.check(seq, base)
	d.Release(base)
	return len(base)
}

// check compares blocks of the device with what they are to be.
func (w *worker) check(seq []kv.SeqHash, refs []kvcache.Ref) {
	w.t.Helper()
	for i, ref := range refs {
		if !bytes.Equal(w.ram[ref], content(seq[i])) {
			w.t.Fatalf("block %d of the sequence, in slot %d, has other bytes", i, ref)
		}
	}
}

// await lets things happen until done.
func (w *worker) await(done func() bool) {
	w.t.Helper()
	give := time.After(20 * time.Second)
	for w.c.Advance(w.now); !done(); w.c.Advance(w.now) {
		if at, ok := w.c.Next(); ok && at > w.now {
			w.now = at
			continue
		}
		select {
		case <-w.woken:
		case <-give:
			w.t.Fatalf("it never happens: %+v", w.r.Ways())
		}
	}
}

// rest waits until nothing is on its way.
func (w *worker) rest() {
	w.t.Helper()
	w.await(func() bool {
		for _, way := range w.r.Ways() {
			if way.Moving+way.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// end ends the worker as a crash does, or as an orderly end if it remembers.
func (w *worker) end(remember bool) {
	w.t.Helper()
	w.c.Close()
	w.r.Abandon(w.now)
	if p := w.places[kv.TierDisk]; p != nil && remember {
		if err := p.Remember(context.Background(), w.tiers[kv.TierDisk], w.zero); err != nil {
			w.t.Fatalf("%v", err)
		}
	}
}

func chain(from kv.SeqHash, n int) []kv.SeqHash {
	seq := make([]kv.SeqHash, n)
	for i := range seq {
		seq[i] = from*1000 + kv.SeqHash(i) + 1
	}
	return seq
}

func newMemory(t fataler) store.Driver {
	t.Helper()
	m, err := memory.New(memory.Options{Capacity: 4 << 20})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return m
}

func newDisk(t fataler, dir string) store.Driver {
	t.Helper()
	d, err := disk.Open(context.Background(), disk.Options{Dir: dir, Capacity: 4 << 20, Step: 1 << 20, Buffered: true})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func Example() {
	host, _ := memory.New(memory.Options{Capacity: 1 << 20})
	device := newRAM(2)
	tiers := [2]*kvcache.Tier{kvcache.NewTier(kv.TierDevice, kvcache.New(2)), kvcache.NewTier(kv.TierHost, kvcache.New(8))}
	r, _ := kvcache.NewRegistry(kvcache.Config{Device: tiers[0], Host: tiers[1], BlockBytes: blockBytes})
	woken := make(chan struct{}, 1)
	c, _ := carry.New(r, carry.Config{
		Device: device, Places: map[kv.Tier]*carry.Place{kv.TierHost: carry.Own(host, "a-model", 8, blockBytes)},
		Wake: func() { woken <- struct{}{} },
	})
	defer c.Close()

	refs, _ := tiers[0].Allocate(nil, 1)
	copy(device.Block(int(refs[0])), "computed")
	tiers[0].Register(refs[0], kvcache.Block{Hash: 7}, kvcache.Root)
	r.WriteThrough(0, refs)
	c.Advance(0)
	<-woken
	c.Advance(1)
	v, _ := host.Get(context.Background(), "a-model/0")
	defer v.Release()
	fmt.Println(tiers[1].Has(7), string(v.Bytes[:8]))
	// Output: true computed
}

// What went down comes back as it was, whatever path it took, and after a restart.
func TestDownAndUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots [4]int
		cfg   kvcache.Config
	}{
		{"host", [4]int{4, 16, 0, 0}, kvcache.Config{}},
		{"disk", [4]int{4, 0, 16, 0}, kvcache.Config{}},
		{"host and disk", [4]int{4, 4, 16, 0}, kvcache.Config{}},
		{"past the host", [4]int{4, 4, 16, 0}, kvcache.Config{NoReadThrough: true}},
		{"store below host", [4]int{4, 4, 0, 16}, kvcache.Config{}},
		{"store below disk", [4]int{4, 0, 4, 16}, kvcache.Config{}},
		{"all", [4]int{4, 4, 4, 16}, kvcache.Config{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := setup{slots: tt.slots, layout: "L", cfg: tt.cfg}
			s.drivers = [4]store.Driver{nil, newMemory(t), newDisk(t, t.TempDir()), newMemory(t)}
			w := newWorker(t, s)
			a, b, c := chain(1, 4), chain(2, 4), chain(3, 4)
			for _, seq := range [][]kv.SeqHash{a, b, c} {
				w.compute(seq)
				w.rest()
			}
			for _, seq := range [][]kv.SeqHash{a, b, c, a} {
				if n := w.load(seq); n != 4 {
					t.Errorf("%d blocks of 4", n)
				}
				w.rest()
			}
			if n := w.c.Counts(); n != (carry.Counts{}) {
				t.Errorf("%+v", n)
			}
			w.end(true)
		})
	}
}

// A disk is found again by whoever has the same layout, and the retention with it.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s := setup{slots: [4]int{4, 0, 12, 0}, layout: "L"}
	life := func(layout string, restored int, do func(*worker)) {
		t.Helper()
		s.layout, s.restored = layout, restored
		s.drivers[kv.TierDisk] = newDisk(t, dir)
		w := newWorker(t, s)
		do(w)
		w.end(true)
		s.drivers[kv.TierDisk].Close()
	}
	life("L", 0, func(w *worker) {
		w.compute(chain(1, 4))
		w.rest()
		w.compute(chain(2, 4))
		w.rest()
		w.tiers[kv.TierDisk].Pool().SetRetention(chain(1, 1), kvcache.Retention{Priority: 90})
	})
	life("L", 8, func(w *worker) {
		ref, _ := w.tiers[kv.TierDisk].Pool().Find(chain(1, 1)[0])
		if r := w.tiers[kv.TierDisk].Pool().Record(ref, w.zero); r.Priority != 90 {
			t.Errorf("%+v, want what was asked for at the end of the life before", r)
		}
		if b := w.tiers[kv.TierDisk].Block(ref); b.Local != kv.LocalHash(chain(1, 1)[0]+7) {
			t.Errorf("%+v", b)
		}
		if n := w.load(chain(2, 4)) + w.load(chain(1, 4)); n != 8 {
			t.Errorf("%d blocks of 8", n)
		}
		w.compute(chain(3, 4))
		w.rest()
	})
	s.slots[kv.TierDisk] = 5 // the newest stay
	life("L", 5, func(w *worker) {
		if n := w.load(chain(3, 4)); n != 4 {
			t.Errorf("%d blocks of 4", n)
		}
	})
	life("another", 0, func(w *worker) {
		if n := w.load(chain(3, 4)); n != 0 {
			t.Errorf("%d blocks of another model", n)
		}
	})
	life("L", 0, func(*worker) {}) // what nobody could use has gone
}

// Two workers with one store; what it loses is computed.
func TestSharedStore(t *testing.T) {
	shared := newMemory(t)
	var s setup
	s.slots, s.layout = [4]int{8, 8, 0, 8}, "L"
	at := func(layout string) *worker {
		s.layout = layout
		s.drivers = [4]store.Driver{nil, newMemory(t), nil, shared}
		return newWorker(t, s)
	}
	first, second, other := at("L"), at("L"), at("M")
	seq := chain(1, 6)
	first.compute(seq)
	first.rest()
	learn := func(w *worker, seq []kv.SeqHash) int {
		return carry.Learn(w.tiers[kv.TierShared], w.places[kv.TierShared].Look(t.Context(), seq, time.Second), w.zero)
	}
	if n := learn(second, chain(2, 3)) + learn(other, seq); n != 0 {
		t.Errorf("%d blocks are known that nobody has stored", n)
	}
	if n := learn(second, append(seq[:6:6], 99)); n != 6 {
		t.Errorf("%d blocks of 6 are known", n)
	}
	if n := learn(second, seq); n != 0 {
		t.Errorf("%d blocks are learned twice", n)
	}
	shared.Delete(t.Context(), fmt.Sprintf("L/%016x", uint64(seq[4])))
	if n := second.load(seq); n != 4 {
		t.Errorf("%d blocks, want the 4 before one that the store has lost", n)
	}
	if n := second.c.Counts(); n.Missing != 1 {
		t.Errorf("%+v", n)
	}
	for _, w := range []*worker{first, second, other} {
		w.end(false)
	}
}

// faulty is a driver some of whose answers are wrong or do not come.
type faulty struct {
	store.Driver
	mu    sync.Mutex
	rng   *rand.Rand
	every int // one call in so many goes wrong
	keys  []string
	down  atomic.Bool
}

func (f *faulty) roll() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rng.IntN(f.every) > 0 {
		return 0
	}
	return 1 + f.rng.IntN(5)
}

// note keeps a key in mind, and returns one under which something else may lie.
func (f *faulty) note(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys, key)
	return f.keys[f.rng.IntN(len(f.keys))]
}

func (f *faulty) Put(ctx context.Context, key string, value, tag []byte) error {
	f.note(key)
	if f.down.Load() {
		return store.ErrUnavailable
	}
	switch f.roll() {
	case 1:
		return store.ErrUnavailable
	case 2:
		return store.ErrFull
	case 3: // the tag of a block that nobody has
		other := bytes.Clone(tag)
		other[7]++
		return f.Driver.Put(ctx, key, value, other)
	}
	return f.Driver.Put(ctx, key, value, tag)
}

func (f *faulty) Get(ctx context.Context, key string) (*store.Value, error) {
	if f.down.Load() {
		return nil, store.ErrUnavailable
	}
	switch f.roll() {
	case 1:
		return nil, store.ErrUnavailable
	case 2:
		return nil, fmt.Errorf("flipped: %w", store.ErrCorrupt)
	case 3:
		return nil, store.ErrNotFound
	case 4:
		v, err := f.Driver.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		defer v.Release()
		return store.NewValue(v.Entry, bytes.Clone(v.Bytes[:len(v.Bytes)-1]), nil), nil // cut
	case 5:
		return f.Driver.Get(ctx, f.note(key))
	}
	return f.Driver.Get(ctx, key)
}

// A value that lies in the place of another one, and is whole, is not taken for it.
func TestAnotherBlockInItsPlace(t *testing.T) {
	host := newMemory(t)
	w := newWorker(t, setup{slots: [4]int{4, 8, 0, 0}, layout: "L", drivers: [4]store.Driver{nil, host}})
	seq := chain(1, 4)
	w.compute(seq)
	w.rest()
	var old [2]*store.Value
	for i := range old {
		old[i], _ = host.Get(t.Context(), fmt.Sprintf("L/%d", i+1))
	}
	for i, v := range old {
		if err := host.Put(t.Context(), fmt.Sprintf("L/%d", 2-i), v.Bytes, v.Tag); err != nil {
			t.Fatal(err)
		}
	}
	w.compute(chain(2, 4)) // which drives the others from the device
	w.rest()
	if n := w.load(seq); n != 1 {
		t.Errorf("%d blocks, want the one before those that were exchanged", n)
	}
	if n := w.c.Counts(); n.Corrupt == 0 {
		t.Errorf("%+v", n)
	}
	w.end(false)
}

// halting is a driver that is slow, and then fails.
type halting struct {
	store.Driver
	asked chan struct{}
	fail  chan struct{}
}

func (h *halting) Get(ctx context.Context, _ string) (*store.Value, error) {
	h.asked <- struct{}{}
	select {
	case <-h.fail:
	case <-ctx.Done():
	}
	return nil, store.ErrUnavailable
}

// Those who have queued for a tier that fails do not wait until it is tried again.
func TestNobodyWaitsForWhatIsAway(t *testing.T) {
	for _, past := range []bool{false, true} {
		h := &halting{newMemory(t), make(chan struct{}, 9), make(chan struct{})}
		s := setup{slots: [4]int{6, 8, 0, 8}, layout: "L", drivers: [4]store.Driver{nil, newMemory(t), nil, newMemory(t)}}
		w := newWorker(t, s)
		w.compute(chain(1, 4))
		w.rest()
		w.compute(chain(2, 2))
		w.rest()
		w.end(false)

		s.drivers[kv.TierHost] = newMemory(t)
		h.Driver = s.drivers[kv.TierShared]
		s.drivers[kv.TierShared] = h
		one := kvcache.WayConfig{Transfers: 1, Batch: 1}
		s.cfg = kvcache.Config{NoReadThrough: past, Ways: map[kvcache.Edge]kvcache.WayConfig{
			{From: kv.TierShared, To: kv.TierDevice}: one, {From: kv.TierShared, To: kv.TierHost}: one,
		}}
		w = newWorker(t, s)
		for _, seq := range [][]kv.SeqHash{chain(1, 4), chain(2, 2)} {
			carry.Learn(w.tiers[kv.TierShared], w.places[kv.TierShared].Look(t.Context(), seq, time.Second), w.zero)
			if _, n, ok := w.r.Load(w.now, seq, kvcache.Root); n != len(seq) || !ok {
				t.Fatalf("a load of %d blocks, %v", n, ok)
			}
		}
		ended := 0
		w.c.Advance(w.now)
		<-h.asked
		close(h.fail)
		w.await(func() bool {
			for _, l := range w.r.Loaded() {
				ended++
				w.tiers[0].Release(l.Refs)
			}
			return ended == 2
		})
		if w.now != 0 || len(h.asked) > 0 {
			t.Errorf("they have waited for %v, and asked %d times more", w.now, len(h.asked))
		}
		w.end(false)
	}
}

// Whatever happens to the tiers, what is found on the device is what was computed.
func TestAnything(t *testing.T) {
	dirs := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := fmt.Sprintf("%s/%d", dirs, n)
		seed := rapid.Uint64().Draw(t, "seed")
		every := rapid.SampledFrom([]int{3, 6, 1 << 30}).Draw(t, "one call fails in")
		wrap := func(d store.Driver) *faulty {
			return &faulty{Driver: d, rng: rand.New(rand.NewPCG(seed, 1)), every: every}
		}
		shared := wrap(newMemory(t))
		s := setup{
			slots: [4]int{rapid.IntRange(3, 8).Draw(t, "device"), rapid.IntRange(0, 6).Draw(t, "host"), rapid.IntRange(1, 8).Draw(t, "disk"), rapid.IntRange(0, 8).Draw(t, "shared")},
			cfg:   kvcache.Config{NoReadThrough: rapid.Bool().Draw(t, "past the host")}, layout: "L",
		}
		begin := func() (*worker, *faulty) {
			onDisk := wrap(newDisk(t, dir))
			s.drivers = [4]store.Driver{nil, wrap(newMemory(t)), onDisk, shared}
			s.restored = -1
			return newWorker(t, s), onDisk
		}
		w, onDisk := begin()
		seq := func() []kv.SeqHash {
			return chain(kv.SeqHash(rapid.IntRange(1, 4).Draw(t, "chain")), rapid.IntRange(1, 6).Draw(t, "blocks"))
		}
		compute := func(*rapid.T) { w.compute(seq()) }
		load := func(*rapid.T) { w.load(seq()) }
		t.Repeat(map[string]func(*rapid.T){
			"compute": compute, "compute more": compute, "and more": compute,
			"load": load, "load more": load, "and then": load,
			"let go": func(*rapid.T) {
				d, q := w.tiers[0], seq()
				base := d.Match(0, nil, q)
				under := kvcache.Root
				if len(base) > 0 {
					under = base[len(base)-1]
				}
				if id, n, ok := w.r.Load(w.now, q[len(base):], under); ok && n > 0 {
					w.c.Advance(w.now)
					if !w.r.Cancel(id) {
						for _, l := range w.r.Loaded() {
							d.Release(l.Refs)
						}
					}
				}
				d.Release(base)
			},
			"prefetch": func(t *rapid.T) {
				w.r.Prefetch(w.now, kvcache.PrefetchRequest{Hashes: seq(), Target: kv.Tier(rapid.IntRange(0, min(1, s.slots[1])).Draw(t, "target"))})
			},
			"look": func(*rapid.T) {
				if p := w.places[kv.TierShared]; p != nil {
					carry.Learn(w.tiers[kv.TierShared], p.Look(context.Background(), seq(), time.Second), w.zero)
				}
			},
			"advance": func(*rapid.T) { w.c.Advance(w.now) },
			"wait":    func(*rapid.T) { w.now += time.Minute; w.rest() },
			"away":    func(*rapid.T) { shared.down.Store(!shared.down.Load()) },
			"restart": func(t *rapid.T) {
				w.end(rapid.Bool().Draw(t, "in order"))
				onDisk.Close()
				w, onDisk = begin()
			},
		})
		w.end(true)
		onDisk.Close()
	})
}

// Package storetest holds the contract of [store.Driver] as tests, which every
// driver's own tests run.
//
// The one idea: whatever lies below, a map of byte strings must be able to tell
// what a driver answers. Drivers differ in what they lose when they are opened
// again, and in how much they hold; a [Kit] says so.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kvcache/store"
)

// Kit is how a driver is made and what it promises.
type Kit struct {
	// Open returns an empty driver, and how to close it and open it again, which
	// is nil if that loses everything. Cleanup is the kit's affair.
	Open func(t testing.TB) (d store.Driver, again func() store.Driver)
	// Largest is the longest value that histories use, Room what the driver
	// holds; 0 means that it never is full.
	Largest, Room int
	// Ordered drivers scan in the order of the Puts.
	Ordered bool
	// Steps scales the random histories; 0 means 100.
	Steps int
}

// Run runs all tests of the contract.
func Run(t *testing.T, kit Kit) {
	t.Run("basics", func(t *testing.T) { basics(t, kit) })
	t.Run("histories", func(t *testing.T) { histories(t, kit) })
	t.Run("readers hold", func(t *testing.T) { readersHold(t, kit) })
	t.Run("limits", func(t *testing.T) { limits(t, kit) })
	t.Run("contexts", func(t *testing.T) { contexts(t, kit) })
	t.Run("at once", func(t *testing.T) { atOnce(t, kit) })
	t.Run("closed", func(t *testing.T) { closed(t, kit) })
	if kit.Room > 0 {
		t.Run("full", func(t *testing.T) { full(t, kit) })
	}
}

// Bytes returns n bytes that tell seed and place.
func Bytes(seed uint64, n int) []byte {
	out := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < n; i += 8 {
		x := rnd.Uint64()
		for j := i; j < min(n, i+8); j++ {
			out[j] = byte(x)
			x >>= 8
		}
	}
	return out
}

// want fails unless d has value and tag under key.
func want(t errorer, d store.Driver, key string, value, tag []byte) {
	t.Helper()
	ctx := context.Background()
	e, err := d.Stat(ctx, key)
	if err != nil || e.Key != key || e.Size != int64(len(value)) || !bytes.Equal(e.Tag, tag) || e.Stored.IsZero() {
		t.Errorf("Stat(%q) = %+v, %v; want %d bytes, tag %x", key, e, err, len(value), tag)
	}
	v, err := d.Get(ctx, key)
	if err != nil {
		t.Errorf("Get(%q): %v", key, err)
		return
	}
	defer v.Release()
	if !bytes.Equal(v.Bytes, value) || v.Key != key || v.Size != int64(len(value)) || !bytes.Equal(v.Tag, tag) {
		t.Errorf("Get(%q) = %d bytes (equal: %v), %+v; want %d bytes, tag %x", key, len(v.Bytes), bytes.Equal(v.Bytes, value), v.Entry, len(value), tag)
	}
}

// wantNone fails unless d has nothing under key.
func wantNone(t errorer, d store.Driver, key string) {
	t.Helper()
	ctx := context.Background()
	if e, err := d.Stat(ctx, key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat(%q) = %+v, %v; want none", key, e, err)
	}
	if v, err := d.Get(ctx, key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get(%q) = %v, %v; want none", key, v, err)
	}
}

type errorer interface {
	Helper()
	Errorf(format string, args ...any)
}

// scan returns the keys of d, in order.
func scan(t testing.TB, d store.Driver) []string {
	t.Helper()
	var keys []string
	for e, err := range d.Scan(t.Context()) {
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

func basics(t *testing.T, kit Kit) {
	d, again := kit.Open(t)
	ctx := t.Context()
	wantNone(t, d, "nothing")
	if err := d.Delete(ctx, "nothing"); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
	sizes := []int{0, 1, 28, 511, 4095, 4096, 4097, 65536, 1 << 20}
	values := map[string][]byte{}
	tags := map[string][]byte{}
	var order []string
	for i, n := range sizes {
		if n > kit.Largest {
			continue
		}
		key := fmt.Sprintf("model/a b%%+?#\x00é@%d", n)
		values[key], tags[key] = Bytes(uint64(i), n), Bytes(uint64(i), i*7%store.MaxTag)
		order = append(order, key)
		if err := d.Put(ctx, key, values[key], tags[key]); err != nil {
			t.Fatalf("Put of %d bytes: %v", n, err)
		}
	}
	check := func() {
		t.Helper()
		for key := range values {
			want(t, d, key, values[key], tags[key])
		}
		got := scan(t, d)
		if !kit.Ordered {
			slices.Sort(got)
			slices.Sort(order)
		}
		if !slices.Equal(got, order) {
			t.Errorf("Scan = %q, want %q", got, order)
		}
		for range d.Scan(ctx) {
			break
		}
	}
	check()

	// The same key anew, with another length, then another tag.
	key := order[1]
	values[key], tags[key] = Bytes(99, 5000), []byte("new")
	if err := d.Put(ctx, key, values[key], tags[key]); err != nil {
		t.Fatal(err)
	}
	order = append(slices.Delete(order, 1, 2), key)
	check()
	if r, ok := d.(store.Retagger); ok {
		tags[key] = []byte("newer")
		if err := r.Retag(ctx, key, tags[key]); err != nil {
			t.Fatal(err)
		}
		want(t, d, key, values[key], tags[key])
		if err := r.Retag(ctx, "nothing", nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Retag of nothing: %v", err)
		}
	}
	if again != nil {
		d = again()
		check()
	}
	if err := d.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	wantNone(t, d, key)
	delete(values, key)
	order = slices.DeleteFunc(order, func(k string) bool { return k == key })
	check()
}

// histories compares a driver with a map over random histories.
func histories(t *testing.T, kit Kit) {
	type held struct{ value, tag []byte }
	steps := kit.Steps
	if steps == 0 {
		steps = 100
	}
	rapid.Check(t, func(rt *rapid.T) {
		d, again := kit.Open(t)
		ctx := t.Context()
		model := map[string]held{}
		key := rapid.SampledFrom([]string{"a", "b", "a/b", "c", "d", "e", "f"})
		for range rapid.IntRange(1, steps).Draw(rt, "steps") {
			switch k := key.Draw(rt, "key"); rapid.IntRange(0, 9).Draw(rt, "op") {
			case 0, 1, 2, 3:
				n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, kit.Largest)).Draw(rt, "size")
				h := held{Bytes(rapid.Uint64().Draw(rt, "seed"), n), rapid.SliceOfN(rapid.Byte(), 0, store.MaxTag).Draw(rt, "tag")}
				switch err := d.Put(ctx, k, h.value, h.tag); {
				case err == nil:
					model[k] = h
				case kit.Room == 0 || !errors.Is(err, store.ErrFull):
					rt.Fatalf("Put: %v", err)
				}
			case 4, 5, 6:
				if h, ok := model[k]; ok {
					want(rt, d, k, h.value, h.tag)
				} else {
					wantNone(rt, d, k)
				}
			case 7:
				if err := d.Delete(ctx, k); err != nil {
					rt.Fatalf("Delete: %v", err)
				}
				delete(model, k)
			case 8:
				r, ok := d.(store.Retagger)
				h, there := model[k]
				if !ok || !there {
					break
				}
				h.tag = rapid.SliceOfN(rapid.Byte(), 0, store.MaxTag).Draw(rt, "tag")
				if err := r.Retag(ctx, k, h.tag); err != nil {
					rt.Fatalf("Retag: %v", err)
				}
				model[k] = h
			case 9:
				if again != nil && rapid.IntRange(0, 3).Draw(rt, "again") == 0 {
					d = again()
				}
			}
		}
		for k, h := range model {
			want(rt, d, k, h.value, h.tag)
		}
		if got := slices.Sorted(slices.Values(scan(t, d))); !slices.Equal(got, slices.Sorted(maps.Keys(model))) {
			rt.Fatalf("Scan = %q", got)
		}
		if m, ok := d.(store.Measured); ok {
			if u := m.Usage(); u.Entries != len(model) || u.Used > u.Capacity || u.Used < 0 {
				rt.Fatalf("Usage = %+v with %d entries", u, len(model))
			}
		}
		if err := d.Close(); err != nil {
			rt.Fatalf("Close: %v", err)
		}
	})
}

// A value that is held stays what it was, whatever happens to its key and to
// the memory around it.
func readersHold(t *testing.T, kit Kit) {
	d, _ := kit.Open(t)
	ctx := t.Context()
	first := Bytes(1, kit.Largest)
	if err := d.Put(ctx, "k", first, nil); err != nil {
		t.Fatal(err)
	}
	v, err := d.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := d.Delete(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		if err := d.Put(ctx, "k", Bytes(uint64(i+2), kit.Largest), nil); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(v.Bytes, first) {
		t.Error("a value that is held has changed")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(v.Bytes, first) {
		t.Error("a value that is held has changed with the end of its store")
	}
	v.Release()
}

func limits(t *testing.T, kit Kit) {
	d, _ := kit.Open(t)
	ctx := t.Context()
	if err := d.Put(ctx, "k", nil, make([]byte, store.MaxTag+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a tag that is too long: %v", err)
	}
	if err := d.Put(ctx, strings.Repeat("k", 1<<20), nil, nil); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a key of 1 MiB: %v", err)
	}
	if kit.Room > 0 {
		if err := d.Put(ctx, "k", make([]byte, kit.Room+1), nil); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("a value longer than the store: %v", err)
		}
	}
	wantNone(t, d, "k")
	if err := d.Put(ctx, "k", []byte("v"), make([]byte, store.MaxTag)); err != nil {
		t.Errorf("the longest tag: %v", err)
	}
}

func contexts(t *testing.T, kit Kit) {
	d, _ := kit.Open(t)
	if err := d.Put(t.Context(), "k", []byte("v"), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Put":    func() error { return d.Put(ctx, "k", []byte("w"), nil) },
		"Get":    func() error { _, err := d.Get(ctx, "k"); return err },
		"Stat":   func() error { _, err := d.Stat(ctx, "k"); return err },
		"Delete": func() error { return d.Delete(ctx, "k") },
		"Scan": func() error {
			for _, err := range d.Scan(ctx) {
				return err
			}
			return nil
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
	}
	want(t, d, "k", []byte("v"), nil)
}

// Many goroutines on few keys: every value that is read is one that was put
// under its key.
func atOnce(t *testing.T, kit Kit) {
	d, again := kit.Open(t)
	ctx := t.Context()
	const keys, workers, rounds = 4, 8, 40
	size := min(kit.Largest, 20_000)
	value := func(key int, seed uint64) []byte {
		b := Bytes(uint64(key)<<32|seed, size-key)
		b[0], b[1] = byte(key), byte(seed)
		return b
	}
	check := func(key int, v *store.Value) {
		if len(v.Bytes) != size-key || !bytes.Equal(v.Bytes, value(key, uint64(v.Bytes[1]))) || string(v.Tag) != string(v.Bytes[:2]) {
			t.Errorf("key %d has %d bytes that were never put there", key, len(v.Bytes))
		}
		v.Release()
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for range rounds {
				k := rnd.IntN(keys)
				key := fmt.Sprint(k)
				switch rnd.IntN(5) {
				case 0, 1:
					v := value(k, rnd.Uint64N(200))
					if err := d.Put(ctx, key, v, v[:2]); err != nil && !errors.Is(err, store.ErrFull) {
						t.Errorf("Put: %v", err)
					}
				case 2, 3:
					switch v, err := d.Get(ctx, key); {
					case err == nil:
						check(k, v)
					case !errors.Is(err, store.ErrNotFound):
						t.Errorf("Get: %v", err)
					}
				case 4:
					if err := d.Delete(ctx, key); err != nil {
						t.Errorf("Delete: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	before := map[string]byte{}
	for k := range keys {
		if v, err := d.Get(ctx, fmt.Sprint(k)); err == nil {
			before[v.Key] = v.Bytes[1]
			check(k, v)
		}
	}
	if again == nil {
		return
	}
	d = again()
	for k := range keys {
		key := fmt.Sprint(k)
		seed, there := before[key]
		v, err := d.Get(ctx, key)
		if there != (err == nil) {
			t.Errorf("key %s was there: %v; after opening again: %v", key, there, err)
		}
		if err == nil {
			if v.Bytes[1] != seed {
				t.Errorf("key %s has another value after opening again", key)
			}
			check(k, v)
		}
	}
}

func closed(t *testing.T, kit Kit) {
	d, _ := kit.Open(t)
	if err := d.Put(t.Context(), "k", []byte("v"), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := d.Put(t.Context(), "k", nil, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	if _, err := d.Get(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
}

// A store that is full says so, loses nothing, and has room again for as much as
// was deleted.
func full(t *testing.T, kit Kit) {
	d, _ := kit.Open(t)
	ctx := t.Context()
	size := kit.Largest / 2
	n := 0
	for ; ; n++ {
		err := d.Put(ctx, fmt.Sprint(n), Bytes(uint64(n), size), nil)
		if errors.Is(err, store.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 2*kit.Room/size {
			t.Fatalf("never full: %d values of %d bytes", n, size)
		}
	}
	if n*size < kit.Room*3/4 {
		t.Errorf("full with %d values of %d bytes, in room for %d", n, size, kit.Room)
	}
	for round := range 3 * n {
		victim := fmt.Sprint(round)
		want(t, d, victim, Bytes(uint64(round), size), nil)
		if err := d.Delete(ctx, victim); err != nil {
			t.Fatal(err)
		}
		if err := d.Put(ctx, fmt.Sprint(n+round), Bytes(uint64(n+round), size), nil); err != nil {
			t.Fatalf("no room where a value of the same length was: %v", err)
		}
	}
}

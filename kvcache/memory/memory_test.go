package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func Example() {
	ctx := context.Background()
	s, err := memory.New(memory.Options{Capacity: 64 << 20})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	if err := s.Put(ctx, "block", []byte("keys and values"), nil); err != nil {
		panic(err)
	}
	v, err := s.Get(ctx, "block")
	if err != nil {
		panic(err)
	}
	defer v.Release()
	fmt.Printf("%s\n", v.Bytes)
	// Output: keys and values
}

func open(t testing.TB) *memory.Store {
	s, err := memory.New(memory.Options{Capacity: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDriver(t *testing.T) {
	storetest.Run(t, storetest.Kit{
		Open:    func(t testing.TB) (store.Driver, func() store.Driver) { return open(t), nil },
		Largest: 1 << 20, Room: 4 << 20, Ordered: true,
	})
}

// Small values, which do not lie in the arena, count as well.
func TestSmallValuesCount(t *testing.T) {
	s, ctx := open(t), t.Context()
	n, err := 0, error(nil)
	for ; err == nil && n < 100_000; n++ {
		err = s.Put(ctx, fmt.Sprintf("%08d", n), make([]byte, 100), nil)
	}
	if u := s.Usage(); !errors.Is(err, store.ErrFull) || u.Used > u.Capacity || n < 9_000 {
		t.Errorf("%d values, %+v, %v", n, u, err)
	}
	for i := range n - 1 {
		if err := s.Retag(ctx, fmt.Sprintf("%08d", i), make([]byte, store.MaxTag)); err != nil {
			t.Fatal(err)
		}
	}
	if u := s.Usage(); u.Used > u.Capacity {
		t.Errorf("with longer tags: %+v", u)
	}
}

// Memory that changes under a value is found when the value is read.
func TestFlippedBit(t *testing.T) {
	for _, size := range []int{100, 10_000} {
		s, ctx := open(t), t.Context()
		if err := s.Put(ctx, "k", storetest.Bytes(1, size), nil); err != nil {
			t.Fatal(err)
		}
		v, err := s.Get(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		v.Bytes[size-1] ^= 1
		if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want corrupt", size, err)
		}
		v.Release()
		if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%d bytes: %v, want none after corruption was found", size, err)
		}
		if u := s.Usage(); u.Used != 0 {
			t.Errorf("%d bytes used of nothing", u.Used)
		}
	}
}

func BenchmarkGet2MiB(b *testing.B) {
	for _, unchecked := range []bool{false, true} {
		b.Run(fmt.Sprintf("unchecked=%v", unchecked), func(b *testing.B) {
			s, err := memory.New(memory.Options{Capacity: 300 << 20, Unchecked: unchecked})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			const n, size = 100, 2 << 20
			value := storetest.Bytes(1, size)
			for i := range n {
				if err := s.Put(b.Context(), fmt.Sprint(i), value, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(size)
			for i := 0; b.Loop(); i++ {
				v, err := s.Get(b.Context(), fmt.Sprint(i%n))
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
}

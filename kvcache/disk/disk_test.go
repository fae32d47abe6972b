package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	for life := range 2 {
		s, err := disk.Open(ctx, disk.Options{Dir: dir, Capacity: 1 << 20})
		if err != nil {
			panic(err)
		}
		if life == 0 {
			if err := s.Put(ctx, "block", []byte("keys and values"), nil); err != nil {
				panic(err)
			}
		}
		for e, err := range s.Scan(ctx) {
			fmt.Println(e.Key, e.Size, err)
		}
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// block 15 <nil>
	// block 15 <nil>
}

// opened returns a store and how to open it again.
func opened(t testing.TB, opts disk.Options) (*disk.Store, func() *disk.Store) {
	var s *disk.Store
	again := func() *disk.Store {
		t.Helper()
		if s != nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		next, err := disk.Open(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		return s
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return again(), again
}

func TestDriver(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		t.Run(fmt.Sprintf("buffered=%v", buffered), func(t *testing.T) {
			storetest.Run(t, storetest.Kit{
				Open: func(t testing.TB) (store.Driver, func() store.Driver) {
					s, again := opened(t, disk.Options{Dir: t.TempDir(), Capacity: 4 << 20, Buffered: buffered})
					return s, func() store.Driver { return again() }
				},
				Largest: 1 << 20, Room: 4 << 20, Ordered: true, Steps: 40,
			})
		})
	}
}

// A value finds room wherever pages are free, up to sixteen places, and is whole
// after a restart.
func TestScattered(t *testing.T) {
	s, again := opened(t, disk.Options{Dir: filepath.Join(t.TempDir(), "a", "b"), Capacity: 64 << 12, Sync: true})
	for i := range 64 {
		if err := s.Put(t.Context(), fmt.Sprint(i), storetest.Bytes(uint64(i), 4096), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 32 {
		if err := s.Delete(t.Context(), fmt.Sprint(2*i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(t.Context(), "too many", make([]byte, 17<<12), nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("17 pages in 17 places: %v", err)
	}
	want := map[string][]byte{"a": storetest.Bytes(100, 16<<12), "b": storetest.Bytes(101, 15<<12+1)}
	for key, value := range want {
		if err := s.Put(t.Context(), key, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 32 {
		want[fmt.Sprint(2*i+1)] = storetest.Bytes(uint64(2*i+1), 4096)
	}
	if u := s.Usage(); u.Used != u.Capacity {
		t.Errorf("usage %+v, want full", u)
	}
	for range 2 {
		for key, value := range want {
			v, err := s.Get(t.Context(), key)
			if err != nil || !bytes.Equal(v.Bytes, value) {
				t.Errorf("%s: %v", key, err)
				continue
			}
			v.Release()
		}
		s = again()
	}
}

package memory_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func TestFill(t *testing.T) {
	s, err := memory.New(memory.Options{Capacity: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		want := storetest.Bytes(uint64(size), size)
		v, err := s.Fill(t.Context(), "k", int64(size), []byte("tag"), func(b []byte) (uint64, error) {
			if len(b) != size {
				t.Errorf("%d bytes to fill, want %d", len(b), size)
			}
			if whole := (size + 4095) / 4096 * 4096; size >= 4096 && (cap(b) != whole || uintptr(unsafe.Pointer(&b[0]))%4096 != 0) {
				t.Errorf("%d bytes at %p with room for %d", size, &b[0], cap(b))
			}
			copy(b, want)
			return store.Sum(want), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Bytes) != string(want) || string(v.Tag) != "tag" || v.Size != int64(size) || cap(v.Bytes) != size {
			t.Errorf("%d bytes: %+v", size, v.Entry)
		}
		v.Release()
		got, err := s.Get(t.Context(), "k")
		if err != nil || string(got.Bytes) != string(want) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		got.Release()
	}

	before, wrong := s.Usage(), errors.New("wrong")
	if _, err := s.Fill(t.Context(), "k", 5000, nil, func([]byte) (uint64, error) { return 0, wrong }); !errors.Is(err, wrong) {
		t.Errorf("of fill: %v", err)
	}
	if after := s.Usage(); after != before {
		t.Errorf("after a fill that failed: %+v, before %+v", after, before)
	}
	v, err := s.Get(t.Context(), "k")
	if err != nil || v.Size != 100_000 {
		t.Fatalf("what was there before: %v", err)
	}
	v.Release()
	v, err = s.Fill(t.Context(), "lie", 5000, nil, func([]byte) (uint64, error) { return 1, nil })
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
	if _, err := s.Get(t.Context(), "lie"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("with a checksum that is not its own: %v", err)
	}
	if _, err := s.Fill(t.Context(), "long", 2<<20, nil, nil); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too long: %v", err)
	}
	if _, err := s.Fill(t.Context(), "full", 1<<20-8192, nil, nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("beside others: %v", err)
	}
}

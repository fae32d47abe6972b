package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	s, _ := opened(t, disk.Options{Dir: dir, Capacity: 1 << 20})
	memory := make([]byte, 1<<20)
	start := (4096 - int(uintptr(unsafe.Pointer(&memory[0]))%4096)) % 4096
	for _, size := range []int{0, 1, 300, 4095, 4096, 4097, 100_000} {
		want := storetest.Bytes(uint64(size), size)
		if err := s.Put(t.Context(), "k", want, nil); err != nil {
			t.Fatal(err)
		}
		whole := (size + 4095) / 4096 * 4096
		for name, into := range map[string][]byte{
			"at a page":            memory[start : start+size : start+whole],
			"at a page, no room":   memory[start : start+size : start+size],
			"anywhere":             memory[start+1 : start+1+size : start+1+size],
			"anywhere, with room":  memory[start+100 : start+100+size],
			"memory of its own":    make([]byte, size),
			"at a page, much room": memory[start : start+size],
		} {
			clear(memory)
			sum, err := s.Load(t.Context(), "k", into)
			if err != nil || sum != store.Sum(want) || string(into) != string(want) {
				t.Errorf("%d bytes, %s: %v", size, name, err)
			}
		}
		if _, err := s.Load(t.Context(), "k", make([]byte, size+1)); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%d bytes into one more: %v", size, err)
		}
		if _, err := s.Stat(t.Context(), "k"); err != nil {
			t.Errorf("%d bytes, after one tried with another length: %v", size, err)
		}
	}
	if _, err := s.Load(t.Context(), "none", nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "values.v1"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, info.Size()), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), "k", make([]byte, 100_000)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("zeros: %v", err)
	}
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after that: %v", err)
	}
}

package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/storetest"
)

const (
	benchValue  = 2 << 20
	benchValues = 256
)

// BenchmarkRead compares the store with what the disk can do: the same bytes,
// read from one file with O_DIRECT, by as many readers, and thrown away.
func BenchmarkRead(b *testing.B) {
	s, _ := opened(b, disk.Options{Dir: b.TempDir(), Capacity: benchValues * benchValue})
	value := storetest.Bytes(1, benchValue)
	plain, err := os.OpenFile(filepath.Join(b.TempDir(), "plain"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	if err := unix.Fallocate(int(plain.Fd()), 0, 0, benchValues*benchValue); err != nil {
		b.Fatal(err)
	}
	buf := alignedBuffer()
	copy(buf, value)
	for i := range benchValues {
		if err := s.Put(b.Context(), fmt.Sprint(i), value, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := plain.WriteAt(buf, int64(i)*benchValue); err != nil {
			b.Fatal(err)
		}
	}
	for _, readers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("plain/readers=%d", readers), func(b *testing.B) {
			each(b, readers, func(i int, buf []byte) error {
				_, err := plain.ReadAt(buf, int64(i)*benchValue)
				return err
			})
		})
		b.Run(fmt.Sprintf("store/readers=%d", readers), func(b *testing.B) {
			each(b, readers, func(i int, _ []byte) error {
				v, err := s.Get(b.Context(), fmt.Sprint(i))
				if err == nil {
					v.Release()
				}
				return err
			})
		})
	}
}

// each reads b.N values with so many readers.
func each(b *testing.B, readers int, read func(i int, buf []byte) error) {
	b.SetBytes(benchValue)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			buf := alignedBuffer()
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := read(int(i*37%benchValues), buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func alignedBuffer() []byte {
	b := make([]byte, benchValue+4096)
	skip := (4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)) % 4096
	return b[skip:][:benchValue]
}

func BenchmarkPut(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			s, _ := opened(b, disk.Options{Dir: b.TempDir(), Capacity: benchValues * benchValue, Sync: sync})
			value := storetest.Bytes(1, benchValue)
			b.SetBytes(benchValue)
			for i := 0; b.Loop(); i++ {
				if err := s.Put(b.Context(), fmt.Sprint(i%(benchValues/2)), value, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen opens a store of many entries.
func BenchmarkOpen(b *testing.B) {
	const n = 100_000
	dir := b.TempDir()
	s, err := disk.Open(b.Context(), disk.Options{Dir: dir, Capacity: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if err := s.Put(b.Context(), fmt.Sprint(i), []byte("value"), nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		if s, err = disk.Open(b.Context(), disk.Options{Dir: dir, Capacity: 1 << 20}); err != nil {
			b.Fatal(err)
		}
		if s.Usage().Entries != n {
			b.Fatalf("usage %+v", s.Usage())
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

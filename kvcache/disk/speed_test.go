//go:build linux

package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/storetest"
)

const (
	benchValue  = 2 << 20
	benchValues = 256
	benchTurn   = 32 // values read at a turn
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
	readPlain := func(i int, buf []byte) error {
		_, err := plain.ReadAt(buf, int64(i)*benchValue)
		return err
	}
	readStore := func(i int, _ []byte) error {
		v, err := s.Get(b.Context(), fmt.Sprint(i))
		if err == nil {
			v.Release()
		}
		return err
	}
	for _, readers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			// By turns, as a disk is not the same from one second to the next.
			buffers := make([][]byte, readers)
			for i := range buffers {
				buffers[i] = alignedBuffer()
			}
			var ratios []float64
			var took [2]time.Duration
			for b.Loop() {
				p, s := each(b, buffers, readPlain), each(b, buffers, readStore)
				took[0] += p
				took[1] += s
				ratios = append(ratios, 100*float64(p)/float64(s))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "%-of-plain")
			for i, name := range []string{"plain-MB/s", "store-MB/s"} {
				b.ReportMetric(float64(b.N)*benchTurn*benchValue/1e6/took[i].Seconds(), name)
			}
		})
	}
}

// each reads benchTurn values, with a reader to each buffer, and returns how
// long that took.
func each(b *testing.B, buffers [][]byte, read func(i int, buf []byte) error) time.Duration {
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for _, buf := range buffers {
		wg.Go(func() {
			for i := next.Add(1); i <= benchTurn; i = next.Add(1) {
				if err := read(int(i*37%benchValues), buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
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

//go:build linux

package kvstore_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dynago/dynago/kvstore"
)

const (
	benchValue  = 2 << 20
	benchValues = 256
	benchTurn   = 64 // values read at a turn
)

// BenchmarkDiskGet compares reading values that lie on the disk only with reading
// the same bytes from one file with O_DIRECT, by as many readers.
func BenchmarkDiskGet(b *testing.B) {
	h := home(b, 64<<20, benchValues*benchValue+64<<20, kvstore.Options{})
	plain, err := os.OpenFile(filepath.Join(b.TempDir(), "plain"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	if err := unix.Fallocate(int(plain.Fd()), 0, 0, benchValues*benchValue); err != nil {
		b.Fatal(err)
	}
	c := dial(b, h.address)
	buf := alignedBuffer()
	copy(buf, value(7, benchValue))
	for i := range benchValues {
		if got := c.do("SET", fmt.Sprint("k", i), string(buf)); got != "+OK" {
			b.Fatal(got)
		}
		if _, err := plain.WriteAt(buf, int64(i)*benchValue); err != nil {
			b.Fatal(err)
		}
	}
	for _, readers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			clients, buffers := make([]*client, readers), make([][]byte, readers)
			for i := range clients {
				clients[i], buffers[i] = dial(b, h.address), alignedBuffer()
				clients[i].SetDeadline(time.Time{}) //nolint:errcheck // it was set before
			}
			var next atomic.Int64
			each := func(read func(reader int, value int64) error) time.Duration {
				var wg sync.WaitGroup
				var done atomic.Int64
				begun := time.Now()
				for r := range readers {
					wg.Go(func() {
						for done.Add(1) <= benchTurn {
							if err := read(r, next.Add(1)%benchValues); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			var ratios []float64
			var took [2]time.Duration
			for b.Loop() {
				p := each(func(r int, i int64) error {
					_, err := plain.ReadAt(buffers[r], i*benchValue)
					return err
				})
				s := each(func(r int, i int64) error { return clients[r].get(fmt.Sprint("k", i), buffers[r]) })
				took[0], took[1] = took[0]+p, took[1]+s
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

// get reads a value into b, which is as long.
func (c *client) get(key string, b []byte) error {
	if _, err := c.Write(request("GET", key)); err != nil {
		return err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("$%d\r\n", len(b)); line != want {
		return fmt.Errorf("%s: %q", key, strings.TrimSpace(line))
	}
	if _, err := io.ReadFull(c.r, b); err != nil {
		return err
	}
	_, err = c.r.Discard(2)
	return err
}

func alignedBuffer() []byte {
	b := make([]byte, benchValue+4096)
	skip := (4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)) % 4096
	return b[skip:][:benchValue]
}

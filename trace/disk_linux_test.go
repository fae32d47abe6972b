package trace_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/trace"
)

// A device that is always full costs what is written to it, and nothing else.
func TestDeviceIsFull(t *testing.T) {
	f := open(t, trace.FileConfig{Path: "/dev/full", Plain: true, BufferBytes: 1 << 20, FlushInterval: time.Second})
	write(t, f, "a", "b")
	wantLost(t, 2, f.Tick(t.Context()))
	write(t, f, "c")
	wantLost(t, 1, f.Close(t.Context()))
}

func wantLost(t *testing.T, n int, err error) {
	t.Helper()
	lost, ok := errors.AsType[*trace.Lost](err)
	if !ok || lost.Records != n {
		t.Errorf("got %v, want %d records lost", err, n)
	}
}

// limit lets no file of this process grow beyond so many bytes.
func limit(t *testing.T, bytes uint64) (lift func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

// Where a disk is full in the middle of what is written, what was there before stays
// readable, and what comes later is, too.
func TestDiskFillsUp(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run("plain "+strconv.FormatBool(plain), func(t *testing.T) {
			dir := t.TempDir()
			c := fileConfig(filepath.Join(dir, "trace"))
			c.Plain = plain
			f := open(t, c)
			write(t, f, "before")
			if err := f.Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			lift := limit(t, 4096)
			noise := rand.New(rand.NewPCG(1, 2))
			for range 1000 {
				write(t, f, strconv.FormatUint(noise.Uint64(), 36))
			}
			wantLost(t, 1000, f.Tick(t.Context()))
			write(t, f, "small")
			if err := f.Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			lift()
			write(t, f, "after")
			if err := f.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var lines []byte
			for _, name := range files(t, dir) {
				path := filepath.Join(dir, name)
				if plain {
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					lines = append(lines, b...)
					continue
				}
				lines = append(lines, bytes.Join(members(t, path), nil)...)
			}
			if got := ids(t, lines, false); !slices.Equal(got, []string{"before", "small", "after"}) {
				t.Errorf("got %q", got)
			}
		})
	}
}

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// file is what a store needs of a file. Calls may overlap.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// Grow makes room for size bytes, which read as zeros, or fails.
	Grow(size int64) error
	// Truncate gives back what lies beyond size.
	Truncate(size int64) error
	// Sync returns when the disk has what was written.
	Sync() error
}

// osFile is a file of the system. With O_DIRECT, addresses, lengths and
// positions are multiples of a page.
type osFile struct {
	*os.File
	mu     sync.Mutex
	direct atomic.Bool
}

// openFile opens or makes the file, past the page cache if that is wanted and
// the file system can.
func openFile(name string, direct bool) (*osFile, error) {
	f := &osFile{}
	if direct && directFlag != 0 {
		opened, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|directFlag, 0o600)
		if err == nil {
			f.File = opened
			f.direct.Store(true)
			return f, nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return nil, err
		}
	}
	opened, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.File = opened
	return f, nil
}

// ReadAt implements [io.ReaderAt].
func (f *osFile) ReadAt(b []byte, off int64) (int, error) {
	direct := f.direct.Load()
	n, err := f.File.ReadAt(b, off)
	if n == 0 && direct && f.refuses(err) {
		return f.File.ReadAt(b, off)
	}
	return n, err
}

// WriteAt implements [io.WriterAt].
func (f *osFile) WriteAt(b []byte, off int64) (int, error) {
	direct := f.direct.Load()
	n, err := f.File.WriteAt(b, off)
	if n == 0 && direct && f.refuses(err) {
		return f.File.WriteAt(b, off)
	}
	return n, err
}

// refuses reports whether err is that of a file system which opens files with
// O_DIRECT and then wants none of it; if so, the file is buffered from now on.
func (f *osFile) refuses(err error) bool {
	if !errors.Is(err, syscall.EINVAL) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.direct.Load() && bufferFile(f.File) != nil {
		return false
	}
	f.direct.Store(false)
	return true
}

// Size implements file.
func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Grow implements file: with blocks that are there, or as a hole where the file
// system knows no preallocation.
func (f *osFile) Grow(size int64) error {
	have, err := f.Size()
	if err != nil || have >= size {
		return err
	}
	err = preallocate(f.File, have, size-have)
	if errors.Is(err, errors.ErrUnsupported) {
		return f.Truncate(size)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: room for %d bytes: %w", f.Name(), size, err), f.Truncate(have))
	}
	return nil
}

// Sync implements file.
func (f *osFile) Sync() error {
	err := datasync(f.File)
	if err != nil {
		return fmt.Errorf("%s: syncing: %w", f.Name(), err)
	}
	return nil
}

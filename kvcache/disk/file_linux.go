package disk

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// directFlag opens a file past the page cache; 0 where there is no such thing.
const directFlag = unix.O_DIRECT

// bufferFile puts an open file back to the page cache.
func bufferFile(f *os.File) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&^unix.O_DIRECT)
	return err
}

// preallocate makes n bytes of room from off on.
func preallocate(f *os.File, off, n int64) error {
	return uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, off, n) })
}

// datasync returns when the disk has what was written to f.
func datasync(f *os.File) error {
	return uninterrupted(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// uninterrupted repeats a call that a signal interrupts.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

//go:build !linux

package disk

import (
	"errors"
	"os"
)

// directFlag opens a file past the page cache; 0 where there is no such thing.
const directFlag = 0

// bufferFile puts an open file back to the page cache.
func bufferFile(*os.File) error { return nil }

// preallocate makes n bytes of room from off on.
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// datasync returns when the disk has what was written to f.
func datasync(f *os.File) error { return f.Sync() }

//go:build linux || darwin

package janitor

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/dynago/dynago/kvcache/store"
)

// setAttribute sets the record of a file; errors.ErrUnsupported where the file
// system has no attributes.
func setAttribute(f *os.File, record []byte) error {
	return unix.Fsetxattr(int(f.Fd()), attribute, record, 0)
}

// getAttribute returns the record of a file.
func getAttribute(f *os.File) ([]byte, error) {
	b := make([]byte, store.MaxTag)
	n, err := unix.Fgetxattr(int(f.Fd()), attribute, b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

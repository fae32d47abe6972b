//go:build !unix

package disk

import "os"

// lock makes the lock file of a store. Without locks of the system, nothing
// keeps a second process away.
func lock(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// syncDir is for systems that name files for good as they make them.
func syncDir(string) error { return nil }

//go:build unix

package memory

import "golang.org/x/sys/unix"

// newArena maps n bytes, which the system gives as they are written.
func newArena(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// freeArena gives an arena back.
func freeArena(b []byte) error { return unix.Munmap(b) }

//go:build unix

package httpapi

import (
	"net"
	"syscall"
)

// peeks says that quiet can tell.
const peeks = true

// quiet says whether nothing has come on a connection, not even its end.
func quiet(conn net.Conn) bool {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var came error
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, came = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && (came == syscall.EAGAIN || came == syscall.EWOULDBLOCK)
}

//go:build unix

package httpapi

import (
	"net"
	"syscall"
)

// peeks says that quiet can tell.
const peeks = true

// rawOf returns what quiet and receive look at; nil where they cannot tell.
func rawOf(conn net.Conn) syscall.RawConn {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// quiet says whether nothing has come on a connection, not even its end.
func quiet(raw syscall.RawConn) bool {
	var one [1]byte
	n, open := received(raw, one[:], syscall.MSG_PEEK)
	return open && n == 0
}

// receive reads what has come on a connection, without waiting.
func receive(raw syscall.RawConn, p []byte) (n int, open bool) {
	return received(raw, p, 0)
}

func received(raw syscall.RawConn, p []byte, flags int) (n int, open bool) {
	if raw == nil {
		return 0, true
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		n, _, failed = syscall.Recvfrom(int(fd), p, flags|syscall.MSG_DONTWAIT)
	})
	if failed == syscall.EAGAIN || failed == syscall.EWOULDBLOCK {
		return 0, err == nil
	}
	return max(n, 0), err == nil && failed == nil && n > 0
}

//go:build !unix

package httpapi

import (
	"net"
	"syscall"
)

// peeks says that quiet cannot tell: there the transport of net/http is used.
const peeks = false

func rawOf(net.Conn) syscall.RawConn { return nil }

func quiet(syscall.RawConn) bool { return false }

func receive(syscall.RawConn, []byte) (n int, open bool) { return 0, false }

package zmtp

import (
	"bytes"
	"errors"
	"fmt"
)

// A greeting is the first thing that either side sends:
//
//	FF, 8 bytes of padding, 7F | major, minor | mechanism, 20 bytes | as-server | 31 zeros
const (
	greetingSize  = 64
	signatureSize = 10
	mechanismAt   = 12
	mechanismSize = 20
)

const (
	major = 3
	minor = 1 // knows PING and PONG, SUBSCRIBE and CANCEL
)

// greeting is ours. The padding is libzmq's, which old peers take for the
// length of a message.
var greeting = func() (g [greetingSize]byte) {
	g[0], g[8], g[9] = 0xff, 1, 0x7f
	g[10], g[11] = major, minor
	copy(g[mechanismAt:], "NULL")
	return g
}()

// checkSignature says what is wrong with the first bytes of a peer: as many as
// are here, up to a signature.
func checkSignature(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == 0x16:
		return errors.New("the peer does not speak ZMTP but, it seems, TLS")
	case len(b) > 0 && (b[0] < 0x80 && b[0] >= ' '):
		return fmt.Errorf("the peer does not speak ZMTP: its first bytes are %q", b)
	case len(b) > 0 && b[0] != 0xff, len(b) >= signatureSize && b[9]&1 == 0:
		return fmt.Errorf("the peer does not speak ZMTP 3: its first bytes are % x", b)
	}
	return nil
}

// parseGreeting returns the minor version that a peer announces.
func parseGreeting(b *[greetingSize]byte) (peerMinor byte, err error) {
	if err := checkSignature(b[:signatureSize]); err != nil {
		return 0, err
	}
	if b[10] < major {
		return 0, fmt.Errorf("the peer speaks an older ZMTP, revision %d; it must speak 3.0 or later", b[10])
	}
	mechanism := b[mechanismAt : mechanismAt+mechanismSize]
	if name := bytes.TrimRight(mechanism, "\x00"); string(name) != "NULL" {
		return 0, fmt.Errorf("the peer wants the security mechanism %q; only NULL is spoken here", name)
	}
	if b[10] > major {
		return minor, nil // it steps down to ours
	}
	return b[11], nil
}

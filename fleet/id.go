package fleet

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// ID returns the id of a worker that brings none: SipHash-1-3 with a zero key
// over the bytes of its name and one 0xFF, cut to 53 bits so that JSON clients
// can carry it. The query part of a URL is not part of the name. The same name
// has the same id wherever and whenever it is made.
func ID(name string) uint64 {
	name, _, _ = strings.Cut(name, "?")
	return sip13(append([]byte(name), 0xFF)) & (1<<53 - 1)
}

// sip13 is SipHash with one compression and three finalisation rounds and the
// key 0, 0 (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
func sip13(b []byte) uint64 {
	s := sip{0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261, 0x7465646279746573}
	tail := uint64(len(b)) << 56
	for len(b) >= 8 {
		s.add(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	s.add(tail)
	s[2] ^= 0xFF
	for range 3 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sip [4]uint64

func (s *sip) add(word uint64) {
	s[3] ^= word
	s.round()
	s[0] ^= word
}

func (s *sip) round() {
	s[0] += s[1]
	s[2] += s[3]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[1]
	s[0] += s[3]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] = bits.RotateLeft64(s[2], 32)
}

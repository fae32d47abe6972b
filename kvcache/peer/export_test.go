package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Reread reads an answer and returns it as it is on the wire.
func Reread(b []byte) (string, error) {
	left := budget(1 << 20)
	r, err := readReply(bufio.NewReaderSize(bytes.NewReader(b), maxLine), &left, 0)
	if err != nil {
		return "", err
	}
	return wire(r), nil
}

func wire(r reply) string {
	switch r := r.(type) {
	case simple:
		return fmt.Sprintf("+%s\r\n", string(r))
	case fault:
		return fmt.Sprintf("-%s\r\n", string(r))
	case number:
		return fmt.Sprintf(":%d\r\n", int64(r))
	case bulk:
		return fmt.Sprintf("$%d\r\n%s\r\n", len(r), []byte(r))
	case array:
		out := fmt.Sprintf("*%d\r\n", len(r))
		for _, item := range r {
			out += wire(item)
		}
		return out
	}
	return "$-1\r\n"
}

// Sealed returns b as a header whose checksum and magic are right.
func Sealed(b []byte) []byte {
	out := append([]byte{}, b...)
	if len(out) < headLength {
		return out
	}
	binary.LittleEndian.PutUint32(out[8:], headMagic)
	binary.LittleEndian.PutUint64(out, xxh3.Hash(out[8:]))
	return out
}

// Reencode decodes a header and encodes it again.
func Reencode(b []byte) ([]byte, bool) {
	h, ok := decodeHeader(b)
	return h.encode(), ok
}

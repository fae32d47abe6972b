package disk

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// What tests need to put a store over files that fail.
type File = file

// Over is Open over two files.
var Over = over

// Reencode decodes a record and encodes it again.
func Reencode(b []byte) ([]byte, error) {
	r, err := decode(b)
	if err != nil {
		return nil, err
	}
	return r.encode()[:], nil
}

// Sealed returns a record of these bytes, with a checksum and a magic that are
// right.
func Sealed(b []byte) []byte {
	out := make([]byte, slot)
	copy(out[8:], b)
	binary.LittleEndian.PutUint32(out[8:], magic)
	binary.LittleEndian.PutUint64(out, xxh3.Hash(out[8:]))
	return out
}

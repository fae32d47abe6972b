package trace

import (
	"encoding/binary"
	"math/bits"
)

// Most of a row of a long prompt is the digits of hashes, which are large numbers. They
// are made eight at a time, in two thirds of the time that strconv takes, which makes them
// in pairs.

const (
	tenTo8  = 1e8
	tenTo16 = 1e16
)

// appendUint appends n in decimal.
func appendUint(b []byte, n uint64) []byte {
	switch {
	case n < tenTo8:
		return appendFirst(b, n)
	case n < tenTo16:
		b = appendFirst(b, n/tenTo8)
		return binary.LittleEndian.AppendUint64(b, eightDigits(n%tenTo8))
	}
	b = appendFirst(b, n/tenTo16)
	n %= tenTo16
	b = binary.LittleEndian.AppendUint64(b, eightDigits(n/tenTo8))
	return binary.LittleEndian.AppendUint64(b, eightDigits(n%tenTo8))
}

// appendFirst appends a number below 10⁸ without zeros in front.
func appendFirst(b []byte, n uint64) []byte {
	digits := eightDigits(n)
	zeros := min(7, bits.TrailingZeros64(digits-each*'0')/8)
	b = binary.LittleEndian.AppendUint64(b, digits>>(8*zeros))
	return b[:len(b)-zeros]
}

// eightDigits returns the digits of a number below 10⁸ as ASCII, the first of them in the
// lowest byte. The number is halved into lanes of four digits, these into lanes of two,
// and these into digits; all lanes of a word are divided by one multiplication, which is
// exact for numbers as small as theirs.
func eightDigits(n uint64) uint64 {
	fours := n/10000 | n%10000<<32
	hundreds := fours * 5243 >> 19 & 0x0000007f_0000007f
	twos := hundreds | (fours-hundreds*100)<<16
	tens := twos * 103 >> 10 & 0x000f_000f_000f_000f
	return (tens | (twos-tens*10)<<8) + each*'0'
}

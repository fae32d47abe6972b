package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/zeebo/xxh3"
)

// A record in a file:
//
//	"dynresp1"  length of head u32  CRC-32C of head u32  head  body  XXH3 of body u64
//
// Numbers have their low byte first. The head holds all that an index has to
// know, so that it can be read alone; in it, numbers are varints, and a text is
// its length and its bytes. The body is the JSON of the input, of the output,
// what stands before and behind the output in the object, and the events.
const (
	magic     = "dynresp1"
	prefixLen = len(magic) + 8
	sumLen    = 8
	// maxHead and maxBody bound the record that may be read.
	maxHead = 64 << 20
	maxBody = 1 << 42
)

// errTorn says that a file is not a whole record.
var errTorn = errors.New("store: not a whole record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is what the head of a file tells.
type head struct {
	record Record // without JSON
	// parent is the record that this one stands on, if it does, and sum that of the
	// conversation up to here.
	parent         string
	sum            sum
	input, output  []int // lengths
	head, tail     int
	events         int
	bytes          int64 // of the file
	extra, bodyLen int64
}

// appendRecord appends the bytes of a record that stands on parent, and with which
// a conversation of that sum ends.
func appendRecord(dst []byte, r *Record, parent string, s sum) []byte {
	begin := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, make([]byte, 8)...)
	for _, s := range [...]string{r.ID, r.Tenant, parent, r.Previous, r.Status} {
		dst = appendText(dst, s)
	}
	dst = append(dst, s[:]...)
	dst = binary.AppendVarint(dst, r.Created.UnixNano())
	dst = binary.AppendVarint(dst, r.Expires.UnixNano())
	for _, items := range [...][]Item{r.Input, r.Output} {
		dst = binary.AppendUvarint(dst, uint64(len(items)))
		for i := range items {
			dst = appendText(dst, items[i].ID)
			dst = binary.AppendUvarint(dst, uint64(len(items[i].JSON)))
		}
	}
	for _, b := range [...][]byte{r.head, r.tail, r.Events} {
		dst = binary.AppendUvarint(dst, uint64(len(b)))
	}
	head := dst[begin+prefixLen:]
	binary.LittleEndian.PutUint32(dst[begin+len(magic):], uint32(len(head)))
	binary.LittleEndian.PutUint32(dst[begin+len(magic)+4:], crc32.Checksum(head, castagnoli))

	body := len(dst)
	for _, items := range [...][]Item{r.Input, r.Output} {
		for i := range items {
			dst = append(dst, items[i].JSON...)
		}
	}
	for _, b := range [...][]byte{r.head, r.tail, r.Events} {
		dst = append(dst, b...)
	}
	return binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[body:]))
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// headLength reads how long the head is from the first prefixLen bytes.
func headLength(prefix []byte) (int, error) {
	if len(prefix) < prefixLen || string(prefix[:len(magic)]) != magic {
		return 0, errTorn
	}
	n := binary.LittleEndian.Uint32(prefix[len(magic):])
	if n > maxHead {
		return 0, errTorn
	}
	return int(n), nil
}

// decodeHead reads the head of a file, which may go on behind it.
func decodeHead(b []byte) (*head, error) {
	n, err := headLength(b)
	if err != nil || len(b) < prefixLen+n {
		return nil, errTorn
	}
	text := b[prefixLen : prefixLen+n]
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(b[len(magic)+4:]) {
		return nil, errTorn
	}
	r := reader{b: text}
	h := &head{}
	h.record.ID, h.record.Tenant, h.parent = r.text(), r.text(), r.text()
	h.record.Previous, h.record.Status = r.text(), r.text()
	copy(h.sum[:], r.bytes(len(h.sum)))
	h.record.Created, h.record.Expires = time.Unix(0, r.varint()), time.Unix(0, r.varint())
	h.record.Input, h.input = r.items()
	h.record.Output, h.output = r.items()
	h.head, h.tail, h.events = r.length(), r.length(), r.length()
	if r.failed || len(r.b) > 0 {
		return nil, errTorn
	}
	h.extra = int64(h.head) + int64(h.tail) + int64(h.events)
	h.bodyLen = h.extra
	for _, lengths := range [...][]int{h.input, h.output} {
		for _, n := range lengths {
			// No sum of lengths may wrap around and look small.
			if h.bodyLen += int64(n); h.bodyLen > maxBody {
				return nil, errTorn
			}
		}
	}
	h.bytes = int64(prefixLen+n+sumLen) + h.bodyLen
	return h, nil
}

// decodeRecord reads a whole file. The record aliases b.
func decodeRecord(b []byte) (*Record, error) {
	h, err := decodeHead(b)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != h.bytes {
		return nil, fmt.Errorf("%w: %d bytes, want %d", errTorn, len(b), h.bytes)
	}
	body := b[int64(len(b))-sumLen-h.bodyLen : len(b)-sumLen]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(b[len(b)-sumLen:]) {
		return nil, fmt.Errorf("%w: its checksum is wrong", errTorn)
	}
	next := func(n int) []byte {
		piece := body[:n:n]
		body = body[n:]
		return piece
	}
	r := &h.record
	for i, n := range h.input {
		r.Input[i].JSON = next(n)
	}
	for i, n := range h.output {
		r.Output[i].JSON = next(n)
	}
	r.head, r.tail, r.Events = next(h.head), next(h.tail), next(h.events)
	return r, nil
}

// reader reads what a head holds. After a failure it yields nothing.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) fail() { r.failed, r.b = true, nil }

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// length reads a number that fits an int with much room.
func (r *reader) length() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<40 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) text() string { return string(r.bytes(r.length())) }

func (r *reader) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// items reads ids and lengths. An item takes two bytes at least, so that no
// number makes it ask for more memory than the head is long.
func (r *reader) items() ([]Item, []int) {
	n := r.length()
	if n > len(r.b)/2 {
		r.fail()
		return nil, nil
	}
	items, lengths := make([]Item, n), make([]int, n)
	for i := range items {
		items[i].ID = r.text()
		lengths[i] = r.length()
	}
	return items, lengths
}

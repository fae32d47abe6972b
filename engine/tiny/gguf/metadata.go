package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
)

// Metadata are the keys of a file. A value is a string, a bool, a number of the
// type that the file has for it (int8 to uint64, float32, float64), or a slice of
// one of these.
type Metadata map[string]any

// What a file may ask for: a small file cannot make this program allocate more
// than it holds, nor a large one more than this for one text.
const (
	maxKeys = 1 << 16
	maxText = 16 << 20
)

// ReadMetadata reads the keys, which stand before all else, and nothing behind
// them. They may take so many bytes at most. Lists whose key is not to be kept are
// passed over: their value is an empty list.
func ReadMetadata(from io.Reader, bytes int64, keep func(key string) bool) (Metadata, error) {
	r := &reader{from: bufio.NewReaderSize(from, 1<<16), left: bytes}
	h, err := r.header()
	if err != nil {
		return nil, plain(err)
	}
	m, err := r.metadata(h.keys, keep)
	return m, plain(err)
}

// Text returns a text, or "" if the key has none.
func (m Metadata) Text(key string) string {
	s, _ := m[key].(string)
	return s
}

// Flag returns a boolean, or otherwise if the key has none.
func (m Metadata) Flag(key string, otherwise bool) bool {
	if b, ok := m[key].(bool); ok {
		return b
	}
	return otherwise
}

// Number returns a number of any type, if the key has one.
func (m Metadata) Number(key string) (float64, bool) { return number(reflect.ValueOf(m[key])) }

// Texts returns a list of texts; of a key that is absent, none.
func (m Metadata) Texts(key string) ([]string, error) {
	v, ok := m[key]
	list, right := v.([]string)
	if ok && !right {
		return nil, fmt.Errorf("%s: want a list of texts", key)
	}
	return list, nil
}

// Numbers returns a list of numbers of any type; of a key that is absent, none.
func (m Metadata) Numbers(key string) ([]float64, error) {
	v, ok := m[key]
	if !ok {
		return nil, nil
	}
	list, right := numbers(reflect.ValueOf(v))
	if !right {
		return nil, fmt.Errorf("%s: want a list of numbers", key)
	}
	return list, nil
}

func (m Metadata) alignment() (int64, error) {
	const key = "general.alignment"
	if _, ok := m[key]; !ok {
		return defaultAlignment, nil
	}
	n, _ := m.Number(key)
	if n < 1 || n > maxAlignment || int64(n)&(int64(n)-1) != 0 || n != math.Trunc(n) {
		return 0, fmt.Errorf("%s: %v: want a power of two, at most %d", key, m[key], maxAlignment)
	}
	return int64(n), nil
}

// reader reads from the front of a file. Numbers are little-endian.
type reader struct {
	from *bufio.Reader
	left int64 // bytes that may still be read
	buf  [8]byte
}

type header struct{ tensors, keys uint64 }

func (r *reader) header() (h header, err error) {
	begin, err := r.bytes(len(magic))
	if err != nil {
		return h, err
	}
	if string(begin) != magic {
		return h, fmt.Errorf("begins with %q: want a GGUF file, which begins with %q", begin, magic)
	}
	version, err := r.uint32()
	if err != nil {
		return h, err
	}
	if version != 2 && version != 3 {
		if version>>16 != 0 {
			return h, errors.New("its numbers are big-endian: want a little-endian GGUF file")
		}
		return h, fmt.Errorf("GGUF version %d: want 2 or 3", version)
	}
	if h.tensors, err = r.uint64(); err != nil {
		return h, err
	}
	h.keys, err = r.uint64()
	return h, err
}

func (r *reader) metadata(keys uint64, keep func(key string) bool) (Metadata, error) {
	if keys > maxKeys {
		return nil, fmt.Errorf("%d keys: want at most %d", keys, maxKeys)
	}
	m := Metadata{}
	for i := range keys {
		key, err := r.text(maxText)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		if _, twin := m[key]; twin {
			return nil, fmt.Errorf("%s: want it once, and it is there twice", key)
		}
		if m[key], err = r.value(keep == nil || keep(key)); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return m, nil
}

func (r *reader) value(keep bool) (any, error) {
	kind, err := r.uint32()
	switch {
	case err != nil:
		return nil, err
	case kind == kindText:
		return r.text(maxText)
	case kind == kindList:
		return r.list(keep)
	}
	number, err := numberKind(kind)
	if err != nil {
		return nil, err
	}
	b, err := r.bytes(number.size)
	if err != nil {
		return nil, err
	}
	return number.one(b), nil
}

func (r *reader) list(keep bool) (any, error) {
	kind, err := r.uint32()
	if err != nil {
		return nil, err
	}
	n, err := r.uint64()
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindText:
		return r.texts(n, keep)
	case kindList:
		return nil, errors.New("a list of lists: want one of texts or numbers")
	}
	number, err := numberKind(kind)
	if err != nil {
		return nil, err
	}
	if n > uint64(r.left)/uint64(number.size) {
		return nil, io.ErrUnexpectedEOF
	}
	bytes := int64(n) * int64(number.size)
	r.left -= bytes
	if !keep {
		_, err := io.CopyN(io.Discard, r.from, bytes)
		return number.many(nil), err
	}
	raw := make([]byte, bytes)
	if _, err := io.ReadFull(r.from, raw); err != nil {
		return nil, err
	}
	return number.many(raw), nil
}

func (r *reader) texts(n uint64, keep bool) ([]string, error) {
	var list []string
	for i := range n {
		s, err := r.text(maxText)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if keep {
			list = append(list, s)
		}
	}
	return list, nil
}

func (r *reader) text(most uint64) (string, error) {
	n, err := r.uint64()
	if err != nil {
		return "", err
	}
	if n > most {
		return "", fmt.Errorf("a text of %d bytes: want at most %d", n, most)
	}
	if n > uint64(r.left) {
		return "", io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	r.left -= int64(n)
	_, err = io.ReadFull(r.from, b)
	return string(b), err
}

func (r *reader) uint32() (uint32, error) {
	b, err := r.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) uint64() (uint64, error) {
	b, err := r.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// bytes reads up to eight bytes, valid until the next call.
func (r *reader) bytes(n int) ([]byte, error) {
	if r.left -= int64(n); r.left < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	_, err := io.ReadFull(r.from, r.buf[:n])
	return r.buf[:n], err
}

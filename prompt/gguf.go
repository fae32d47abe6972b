package prompt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// gguf is the metadata of a GGUF file, the form of llama.cpp: a model's settings
// and vocabulary, which stand before the weights.
//
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
type gguf map[string]any

// The types of a value. The numbers of a fixed size are read as float64, which
// holds all that matter here exactly, and lists as []string or []float64.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufList
	ggufUint64
	ggufInt64
	ggufFloat64
)

// ggufSizes are the bytes of the values that have a fixed size.
var ggufSizes = [...]int{
	ggufUint8: 1, ggufInt8: 1, ggufUint16: 2, ggufInt16: 2, ggufUint32: 4, ggufInt32: 4, ggufFloat32: 4,
	ggufBool: 1, ggufUint64: 8, ggufInt64: 8, ggufFloat64: 8,
}

// What a file may ask for: a small file cannot make this program allocate more
// than it holds, nor a large one more than this.
const (
	maxGGUFKeys   = 1 << 16
	maxGGUFString = 16 << 20
	maxGGUFBytes  = 1 << 30
)

// readGGUF reads the metadata of a file of the folder.
func (s *Snapshot) readGGUF(name string) (gguf, error) {
	path := filepath.Join(s.dir, name)
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, plainError(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plainError(err)
	}
	defer f.Close()
	return parseGGUF(f, min(info.Size(), maxGGUFBytes))
}

// parseGGUF reads metadata of at most so many bytes. Of lists only those of the
// tokenizer are kept.
func parseGGUF(from io.Reader, size int64) (gguf, error) {
	r := &ggufReader{from: bufio.NewReaderSize(from, 1<<16), left: size}
	g, err := r.header()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends within its metadata: want a complete file")
	}
	return g, err
}

type ggufReader struct {
	from *bufio.Reader
	left int64 // bytes that may still be read
	buf  [8]byte
}

func (r *ggufReader) header() (gguf, error) {
	magic, err := r.bytes(4)
	if err != nil {
		return nil, err
	}
	if string(magic) != "GGUF" {
		return nil, fmt.Errorf("begins with %q: want a GGUF file, which begins with \"GGUF\"", magic)
	}
	version, err := r.uint32()
	if err != nil {
		return nil, err
	}
	if version != 2 && version != 3 {
		if version>>16 != 0 {
			return nil, errors.New("its numbers are big-endian: want a little-endian GGUF file")
		}
		return nil, fmt.Errorf("GGUF version %d: want 2 or 3", version)
	}
	if _, err := r.uint64(); err != nil { // the number of tensors
		return nil, err
	}
	keys, err := r.uint64()
	if err != nil {
		return nil, err
	}
	if keys > maxGGUFKeys {
		return nil, fmt.Errorf("%d keys: want at most %d", keys, maxGGUFKeys)
	}
	g := gguf{}
	for i := range keys {
		key, err := r.text()
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		kind, err := r.uint32()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if g[key], err = r.value(kind, strings.HasPrefix(key, "tokenizer.")); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return g, nil
}

// value reads a value; of a list that need not be kept, nothing remains.
func (r *ggufReader) value(kind uint32, keep bool) (any, error) {
	switch kind {
	case ggufString:
		return r.text()
	case ggufBool:
		n, err := r.number(kind)
		return n != 0, err
	case ggufList:
		return r.list(keep)
	}
	return r.number(kind)
}

func (r *ggufReader) list(keep bool) (any, error) {
	kind, err := r.uint32()
	if err != nil {
		return nil, err
	}
	n, err := r.uint64()
	if err != nil {
		return nil, err
	}
	// Each element has a byte at least; a list that cannot be is not begun.
	if n > uint64(r.left) {
		return nil, io.ErrUnexpectedEOF
	}
	var texts []string
	var numbers []float64
	for i := range n {
		switch kind {
		case ggufString:
			s, err := r.text()
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			if keep {
				texts = append(texts, s)
			}
		case ggufList:
			return nil, errors.New("a list of lists: want one of texts or numbers")
		default:
			v, err := r.number(kind)
			if err != nil {
				return nil, err
			}
			if keep {
				numbers = append(numbers, v)
			}
		}
	}
	if kind == ggufString {
		return texts, nil
	}
	return numbers, nil
}

func (r *ggufReader) number(kind uint32) (float64, error) {
	if kind >= uint32(len(ggufSizes)) || ggufSizes[kind] == 0 {
		return 0, fmt.Errorf("type %d: want 0 to %d", kind, ggufFloat64)
	}
	clear(r.buf[:])
	if _, err := r.bytes(ggufSizes[kind]); err != nil {
		return 0, err
	}
	bits := binary.LittleEndian.Uint64(r.buf[:])
	switch kind {
	case ggufInt8:
		return float64(int8(bits)), nil
	case ggufInt16:
		return float64(int16(bits)), nil
	case ggufInt32:
		return float64(int32(bits)), nil
	case ggufInt64:
		return float64(int64(bits)), nil
	case ggufFloat32:
		return float64(math.Float32frombits(uint32(bits))), nil
	case ggufFloat64:
		return math.Float64frombits(bits), nil
	}
	return float64(bits), nil
}

func (r *ggufReader) text() (string, error) {
	n, err := r.uint64()
	if err != nil {
		return "", err
	}
	if n > maxGGUFString {
		return "", fmt.Errorf("a text of %d bytes: want at most %d", n, maxGGUFString)
	}
	if n > uint64(r.left) {
		return "", io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	r.left -= int64(n)
	_, err = io.ReadFull(r.from, b)
	return string(b), err
}

func (r *ggufReader) uint32() (uint32, error) {
	b, err := r.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *ggufReader) uint64() (uint64, error) {
	b, err := r.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// bytes reads up to eight bytes, valid until the next call.
func (r *ggufReader) bytes(n int) ([]byte, error) {
	if r.left -= int64(n); r.left < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	_, err := io.ReadFull(r.from, r.buf[:n])
	return r.buf[:n], err
}

// Package safetensors reads and writes the files in which Hugging Face keeps
// tensors: a header in JSON, which says where each one lies, then their bytes. A
// model in several files has an index beside them.
//
// The one idea is that of the format: all bytes behind the header belong to
// exactly one tensor each. That is checked before anything is read or allocated
// for it, so a header cannot claim what the file does not have.
//
// https://huggingface.co/docs/safetensors
package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Tensor is an entry of the header.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // slowest dimension first; none for a single number

	begin, end int64 // within the data
}

// Bytes is how many bytes the tensor takes.
func (t Tensor) Bytes() int64 { return t.end - t.begin }

// Type is how numbers are stored, as headers name it.
type Type string

// The types of weights that are not quantised.
const (
	F32  Type = "F32"
	F16  Type = "F16"
	BF16 Type = "BF16"
)

// sizes are the bytes of the types of the format that take whole bytes. Files may
// have tensors of all of them.
var sizes = map[Type]int64{
	"F64": 8, "I64": 8, "U64": 8, "C64": 8,
	"F32": 4, "I32": 4, "U32": 4,
	"F16": 2, "BF16": 2, "I16": 2, "U16": 2,
	"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}

// File is a file whose header has been read and found right. It is not changed
// afterwards, and may be used by several goroutines.
type File struct {
	Tensors []Tensor          // by where they lie
	Notes   map[string]string // what the header has under __metadata__

	from   io.ReaderAt
	data   int64 // where the data begins
	byName map[string]int
}

const (
	maxHeader = 100_000_000 // as the format has it
	maxDims   = 8
	maxSide   = 1 << 40
)

// Read reads a file's header, which is all but the tensors' bytes. It is an error
// if the tensors do not fill the rest of the file exactly, one behind the other.
func Read(from io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if _, err := io.ReadFull(io.NewSectionReader(from, 0, size), length[:]); err != nil {
		return nil, short(err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("a header of %d bytes: want at most %d in a file of %d", n, min(maxHeader, size-8), size)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(from, 8, int64(n)), raw); err != nil {
		return nil, short(err)
	}
	f := &File{from: from, data: 8 + int64(n), byName: map[string]int{}}
	if err := f.parse(raw); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return f, f.place(size - f.data)
}

func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends within its header: want a complete file")
	}
	return err
}

// place sorts the tensors and checks that they fill the data.
func (f *File) place(size int64) error {
	slices.SortFunc(f.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.Name, b.Name))
	})
	at := int64(0)
	for i, t := range f.Tensors {
		if t.begin != at {
			return fmt.Errorf("tensor %s: begins at byte %d of the data: want %d, where the one before it ends", t.Name, t.begin, at)
		}
		if at = t.end; at > size {
			return fmt.Errorf("tensor %s: ends at byte %d of %d: want a complete file", t.Name, at, size)
		}
		f.byName[t.Name] = i
	}
	if at != size {
		return fmt.Errorf("%d bytes behind the last tensor: want none", size-at)
	}
	return nil
}

// Tensor returns the entry of a name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Data reads a tensor's bytes: little-endian, row after row. The caller owns them.
func (f *File) Data(t Tensor) ([]byte, error) {
	b := make([]byte, t.Bytes())
	if _, err := io.ReadFull(io.NewSectionReader(f.from, f.data+t.begin, t.Bytes()), b); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return b, nil
}

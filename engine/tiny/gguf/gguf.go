// Package gguf reads and writes GGUF files, the form in which llama.cpp keeps a
// model: keys with values (settings, the vocabulary), then a table of tensors,
// then their bytes.
//
// The one idea: nothing that a file claims is believed before it has been held
// against the file's size. So a broken or hostile file costs an error and no more
// memory than a small multiple of itself, and what Read returns can be used
// without further checks: every tensor lies within the file, alone, in a type of
// this package.
//
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
package gguf

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Tensor is an entry of the table: a matrix or vector, and where its bytes lie.
type Tensor struct {
	Name string
	Type Type
	// Shape has the slowest dimension first, as Hugging Face and PyTorch write it:
	// rows, then columns. In the file they stand the other way round.
	Shape []int

	offset, size int64 // within the file; bytes
}

// Bytes is how many bytes the tensor takes.
func (t Tensor) Bytes() int64 { return t.size }

// File is a file whose metadata and table have been read and found right. It is
// not changed afterwards, and may be used by several goroutines.
type File struct {
	Metadata Metadata
	Tensors  []Tensor // in the order of the table

	from   io.ReaderAt
	byName map[string]int
}

const (
	magic = "GGUF"

	// defaultAlignment is what offsets of tensors are a multiple of in a file that
	// does not say otherwise with the key general.alignment.
	defaultAlignment = 32

	maxAlignment = 1 << 20
	maxDims      = 4
	maxName      = 1 << 10
	// The least that an entry of the table takes: two lengths, a type, an offset.
	minEntry = 8 + 4 + 4 + 8
)

// Read reads all of a file but the tensors' bytes, which are read by Data. It is
// an error if a tensor has another type than those of this package, does not lie
// within the file, or shares bytes with another one.
func Read(from io.ReaderAt, size int64) (*File, error) {
	r := &reader{from: bufio.NewReaderSize(io.NewSectionReader(from, 0, size), 1<<16), left: size}
	f, err := r.file(size)
	if err != nil {
		return nil, plain(err)
	}
	f.from = from
	return f, nil
}

// Tensor returns the entry of a name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Data reads a tensor's bytes as they are stored: little-endian, row after row.
// The caller owns them.
func (f *File) Data(t Tensor) ([]byte, error) {
	b := make([]byte, t.size)
	if _, err := io.ReadFull(io.NewSectionReader(f.from, t.offset, t.size), b); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return b, nil
}

func (r *reader) file(size int64) (*File, error) {
	h, err := r.header()
	if err != nil {
		return nil, err
	}
	f := &File{byName: map[string]int{}}
	if f.Metadata, err = r.metadata(h.keys, nil); err != nil {
		return nil, err
	}
	alignment, err := f.Metadata.alignment()
	if err != nil {
		return nil, err
	}
	if h.tensors > uint64(r.left)/minEntry {
		return nil, fmt.Errorf("%d tensors: want at most %d, since %d bytes are left", h.tensors, r.left/minEntry, r.left)
	}
	for i := range h.tensors {
		t, err := r.entry(alignment)
		if err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
		if _, twin := f.byName[t.Name]; twin {
			return nil, fmt.Errorf("tensor %s: want it once, and it is there twice", t.Name)
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	begin := padded(size-r.left, alignment)
	return f, place(f.Tensors, begin, size)
}

// entry reads an entry of the table. Its offset is still that within the data.
func (r *reader) entry(alignment int64) (Tensor, error) {
	var t Tensor
	var err error
	if t.Name, err = r.text(maxName); err != nil {
		return t, err
	}
	dims, err := r.uint32()
	if err != nil {
		return t, err
	}
	if dims == 0 || dims > maxDims {
		return t, fmt.Errorf("%s: %d dimensions: want 1 to %d", t.Name, dims, maxDims)
	}
	t.Shape = make([]int, dims)
	for i := range t.Shape {
		n, err := r.uint64()
		if err != nil {
			return t, err
		}
		if n == 0 || n > maxSide {
			return t, fmt.Errorf("%s: a side of %d: want 1 to %d", t.Name, n, maxSide)
		}
		t.Shape[len(t.Shape)-1-i] = int(n)
	}
	kind, err := r.uint32()
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	if t.size, err = t.Type.Size(t.Shape); err != nil {
		return t, fmt.Errorf("%s: %w", t.Name, err)
	}
	offset, err := r.uint64()
	if err != nil {
		return t, err
	}
	if offset > maxOffset || int64(offset)%alignment != 0 {
		return t, fmt.Errorf("%s: offset %d: want a multiple of %d", t.Name, offset, alignment)
	}
	t.offset = int64(offset)
	return t, nil
}

// place turns offsets within the data into those within the file, and checks that
// each tensor lies there alone.
func place(tensors []Tensor, begin, size int64) error {
	inOrder := make([]*Tensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		t.offset += begin
		if t.offset > size || t.size > size-t.offset {
			return fmt.Errorf("tensor %s: bytes %d to %d of a file of %d: want a complete file", t.Name, t.offset, t.offset+t.size, size)
		}
		inOrder[i] = t
	}
	slices.SortFunc(inOrder, func(a, b *Tensor) int { return cmp.Compare(a.offset, b.offset) })
	for i, t := range inOrder[min(1, len(inOrder)):] {
		if before := inOrder[i]; before.offset+before.size > t.offset {
			return fmt.Errorf("tensor %s: begins at byte %d, within tensor %s: want each by itself", t.Name, t.offset, before.Name)
		}
	}
	return nil
}

// padded is the next multiple of the alignment, a power of two.
func padded(n, alignment int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// plain says in words that a file ends too early.
func plain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends within its metadata: want a complete file")
	}
	return err
}

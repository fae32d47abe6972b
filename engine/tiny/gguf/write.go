package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
)

// Source is a tensor that is to be written.
type Source struct {
	Name  string
	Type  Type
	Shape []int  // slowest dimension first, as in Tensor
	Data  []byte // as File.Data returns it
}

// Write writes a file of version 3. Keys are written in order of their names,
// tensors as they are given, so the same arguments give the same bytes. It is an
// error if Read would not take the file.
func Write(to io.Writer, m Metadata, tensors []Source) error {
	alignment, err := m.alignment()
	if err != nil {
		return err
	}
	head := []byte(magic)
	head = binary.LittleEndian.AppendUint32(head, 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(m)))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if head, err = appendValue(appendText(head, key), m[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	names := map[string]bool{}
	offset := int64(0)
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if names[t.Name] {
			return fmt.Errorf("tensor %s: want it once, and it is there twice", t.Name)
		}
		names[t.Name] = true
		head = binary.LittleEndian.AppendUint32(appendText(head, t.Name), uint32(len(t.Shape)))
		for _, side := range slices.Backward(t.Shape) {
			head = binary.LittleEndian.AppendUint64(head, uint64(side))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.Type))
		head = binary.LittleEndian.AppendUint64(head, uint64(offset))
		offset = padded(offset+int64(len(t.Data)), alignment)
	}
	w := bufio.NewWriter(to)
	zeros := make([]byte, alignment)
	put := func(b []byte) {
		w.Write(b) // an error stays in w until it is flushed
		w.Write(zeros[:padded(int64(len(b)), alignment)-int64(len(b))])
	}
	put(head)
	for _, t := range tensors {
		put(t.Data)
	}
	return w.Flush()
}

func (t Source) check() error {
	if len(t.Name) > maxName {
		return fmt.Errorf("a name of %d bytes: want at most %d", len(t.Name), maxName)
	}
	if len(t.Shape) < 1 || len(t.Shape) > maxDims {
		return fmt.Errorf("%d dimensions: want 1 to %d", len(t.Shape), maxDims)
	}
	size, err := t.Type.Size(t.Shape)
	if err != nil {
		return err
	}
	if size != int64(len(t.Data)) {
		return fmt.Errorf("%d bytes: want %d for %s of shape %v", len(t.Data), size, t.Type, t.Shape)
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends a value with its kind before it.
func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return appendText(binary.LittleEndian.AppendUint32(b, kindText), v), nil
	case []string:
		b = appendList(b, kindText, len(v))
		for _, s := range v {
			b = appendText(b, s)
		}
		return b, nil
	}
	t := reflect.TypeOf(v)
	for kind, f := range fixedKinds {
		switch {
		case f.size == 0:
		case t == f.value:
			return binary.Append(binary.LittleEndian.AppendUint32(b, uint32(kind)), binary.LittleEndian, v)
		case t == reflect.SliceOf(f.value):
			return binary.Append(appendList(b, uint32(kind), reflect.ValueOf(v).Len()), binary.LittleEndian, v)
		}
	}
	return nil, fmt.Errorf("a value of type %T: want a text, a boolean, a number of fixed size, or a slice of these", v)
}

func appendList(b []byte, kind uint32, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, kindList)
	b = binary.LittleEndian.AppendUint32(b, kind)
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// Source is a tensor that is to be written.
type Source struct {
	Name  string
	Type  Type
	Shape []int
	Data  []byte // as File.Data returns it
}

// Write writes a file with the tensors as they are given.
func Write(to io.Writer, notes map[string]string, tensors []Source) error {
	type entry struct {
		DType   Type   `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	members := map[string]any{}
	if notes != nil {
		members["__metadata__"] = notes
	}
	at := 0
	for _, t := range tensors {
		if _, twin := members[t.Name]; twin || t.Name == "__metadata__" {
			return fmt.Errorf("tensor %s: want it once, under a name of its own", t.Name)
		}
		width := int(sizes[t.Type])
		if width == 0 {
			return fmt.Errorf("tensor %s: dtype %q is none of the format", t.Name, t.Type)
		}
		size := width
		for _, side := range t.Shape {
			size *= side
		}
		if size != len(t.Data) {
			return fmt.Errorf("tensor %s: %d bytes: want %d for %s of shape %v", t.Name, len(t.Data), size, t.Type, t.Shape)
		}
		members[t.Name] = entry{t.Type, append([]int{}, t.Shape...), [2]int{at, at + size}}
		at += size
	}
	header, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return err
	}
	// Data begins at a multiple of eight bytes.
	header = append(header, bytes.Repeat([]byte(" "), -len(header)&7)...)
	if len(header) > maxHeader {
		return errors.New("the header is too long")
	}
	parts := [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header}
	for _, t := range tensors {
		parts = append(parts, t.Data)
	}
	for _, part := range parts {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// parse reads the header member by member: the first that is wrong ends it, so
// what is kept is never much more than the header's own text.
func (f *File) parse(raw []byte) error {
	in := jsontext.NewDecoder(bytes.NewReader(raw))
	if in.PeekKind() != '{' {
		return errors.New("want a JSON object")
	}
	if _, err := in.ReadToken(); err != nil {
		return err
	}
	for in.PeekKind() != '}' {
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		if name := token.String(); name == "__metadata__" {
			if err := json.UnmarshalDecode(in, &f.Notes); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		} else if err := f.entry(in, name); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return err
	}
	// Blanks fill the header up.
	if _, err := in.ReadToken(); err != io.EOF {
		return errors.New("want nothing behind its JSON object")
	}
	return nil
}

// entry reads one tensor's member.
func (f *File) entry(in *jsontext.Decoder, name string) error {
	var e struct {
		DType   Type    `json:"dtype"`
		Shape   numbers `json:"shape"`
		Offsets numbers `json:"data_offsets"`
	}
	if err := json.UnmarshalDecode(in, &e); err != nil {
		return err
	}
	width, ok := sizes[e.DType]
	if !ok {
		return fmt.Errorf("dtype %q: want one of the format's that take whole bytes, such as F32, F16, BF16", e.DType)
	}
	if e.Shape == nil {
		return errors.New("want a shape, and there is none")
	}
	t := Tensor{Name: name, Type: e.DType, Shape: make([]int, len(e.Shape))}
	count := int64(1)
	for i, side := range e.Shape {
		if side > maxSide || side > 0 && count > maxSide/side {
			return fmt.Errorf("shape %v: want less than %d numbers", e.Shape, int64(maxSide))
		}
		count *= side
		t.Shape[i] = int(side)
	}
	if len(e.Offsets) != 2 {
		return fmt.Errorf("data_offsets %v: want where it begins and where it ends", e.Offsets)
	}
	t.begin, t.end = e.Offsets[0], e.Offsets[1]
	if t.end-t.begin != count*width {
		return fmt.Errorf("data_offsets %v: want %d bytes for %s of shape %v", e.Offsets, count*width, t.Type, t.Shape)
	}
	f.Tensors = append(f.Tensors, t)
	return nil
}

// numbers are a few numbers from 0 upwards.
type numbers []int64

// UnmarshalJSONFrom reads no more of them than a shape may have.
func (n *numbers) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	token, err := in.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != '[' {
		return errors.New("want a list of numbers")
	}
	for *n = (numbers{}); in.PeekKind() != ']'; {
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		var v int64
		if token.Kind() == '0' {
			v, err = token.Int()
		}
		if token.Kind() != '0' || err != nil || v < 0 {
			return fmt.Errorf("%s: want a whole number, 0 or more", token)
		}
		if len(*n) == maxDims {
			return fmt.Errorf("want at most %d numbers", maxDims)
		}
		*n = append(*n, v)
	}
	_, err = in.ReadToken()
	return err
}

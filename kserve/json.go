package kserve

import (
	"errors"
	"math"
	"strconv"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// FromJSON decodes a request of REST: the whole body is JSON if header is negative,
// else its first header bytes are, and the rest is the data of inputs that say so, in
// their order. Version and model stand in the path, and are the caller's to set.
// Errors are of kind [engine.InvalidArgument] and begin with "Failed to parse request: ".
// The request shares memory with body.
func FromJSON(body []byte, header int) (*Request, Binary, error) {
	text, tail, err := cut(body, header)
	if err != nil {
		return nil, Binary{}, unparsed(err)
	}
	d := jsonRequest{request: &Request{}, tail: tail}
	err = d.read(wire.NewReader(text, ""))
	if _, broken := err.(*wire.SyntaxError); broken {
		// Some clients write texts as they are, line breaks included.
		if mended, ok := wire.EscapeControls(text); ok {
			d = jsonRequest{request: &Request{}, tail: tail}
			err = d.read(wire.NewReader(mended, ""))
		}
	}
	if err != nil {
		return nil, Binary{}, unparsed(err)
	}
	if len(d.tail) > 0 {
		return nil, Binary{}, refused("%d bytes follow those that inputs claim by binary_data_size", len(d.tail))
	}
	return d.request, d.binary, nil
}

// unparsed is the error of a body that is not what it should be.
func unparsed(err error) error {
	if _, ok := errors.AsType[*engine.Error](err); ok {
		return err
	}
	if syntax, ok := errors.AsType[*wire.SyntaxError](err); ok {
		err = syntax.Cause
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		refusal := refused("%s", e.Message)
		refusal.Param = e.Param
		return refusal
	}
	return refused("%s", err)
}

// jsonRequest is a request that is being read.
type jsonRequest struct {
	request *Request
	binary  Binary
	tail    []byte  // what inputs have not claimed yet
	faults  []error // of the inputs so far
}

func (d *jsonRequest) read(r *wire.Reader) error {
	err := r.Object("an object", func(name []byte) (err error) {
		if null, err := r.Null(); null || err != nil {
			return err
		}
		switch string(name) {
		case "id":
			d.request.ID, err = jsonText(r)
		case "parameters":
			d.request.Parameters, err = jsonParameters(r)
		case "inputs":
			d.request.Inputs, d.faults = nil, nil
			err = r.Array("an array of tensors", func(int) error { return d.input(r) })
		case "outputs":
			d.request.Outputs = nil
			err = r.Array("an array of outputs", func(int) error { return d.output(r) })
		default:
			err = r.Skip()
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	if err == nil {
		err = unique(d.request.Inputs)
	}
	if err != nil {
		return err
	}
	for i, fault := range d.faults {
		d.request.fault(i, fault)
	}
	return d.binary.all(d.request)
}

// input reads one tensor. Its members may come in any order, so its data is looked at
// when the others are known.
func (d *jsonRequest) input(r *wire.Reader) error {
	var t engine.Tensor
	var data []byte
	err := r.Object("a tensor", func(name []byte) (err error) {
		if null, err := r.Null(); null || err != nil {
			return err
		}
		switch string(name) {
		case "name":
			t.Name, err = jsonText(r)
		case "datatype":
			t.Datatype, err = jsonText(r)
		case "shape":
			t.Shape = []int64{}
			err = r.Array("an array of integers", func(int) error {
				n, err := r.Integer(math.MinInt64, math.MaxInt64)
				t.Shape = append(t.Shape, n)
				return err
			})
		case "parameters":
			t.Parameters, err = jsonTensorParameters(r)
		case "data":
			data, err = r.Raw()
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if t.Shape == nil {
		return refused("input tensor '%s' has no shape", t.Name)
	}
	fault, err := d.fill(&t, data)
	if err != nil {
		return err
	}
	d.request.Inputs = append(d.request.Inputs, t)
	d.faults = append(d.faults, fault)
	return nil
}

// output reads what is wanted of one output.
func (d *jsonRequest) output(r *wire.Reader) error {
	var o Wanted
	err := r.Object("an output", func(name []byte) (err error) {
		if null, err := r.Null(); null || err != nil {
			return err
		}
		switch string(name) {
		case "name":
			o.Name, err = jsonText(r)
		case "parameters":
			o.Parameters, err = jsonTensorParameters(r)
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	d.request.Outputs = append(d.request.Outputs, o)
	return nil
}

// jsonText reads a string as it is, with what no text of a conversation has.
func jsonText(r *wire.Reader) (string, error) {
	if r.Kind() != '"' {
		return "", r.Mistyped("a string")
	}
	raw, err := r.Raw()
	if err != nil {
		return "", err
	}
	return string(appendText(nil, raw)), nil
}

// jsonTensorParameters reads the parameters of an input or an output.
func jsonTensorParameters(r *wire.Reader) (engine.Parameters, error) {
	all, err := jsonParameters(r)
	if _, shared := all[sharedMemory]; shared && err == nil {
		err = noSharedMemory()
	}
	return all, err
}

// jsonParameters reads an object of strings, booleans and numbers. Whole numbers stay
// exact as long as 64 bits hold them.
func jsonParameters(r *wire.Reader) (engine.Parameters, error) {
	var all engine.Parameters
	err := r.Object("an object of parameters", func(raw []byte) error {
		name := string(appendValid(nil, raw)) // as workers cannot be told any other
		var value any
		var err error
		switch r.Kind() {
		case '"':
			value, err = jsonText(r)
		case 't', 'f':
			value, err = r.Boolean()
		case '0':
			value, err = jsonNumber(r)
		case 'n':
			err = r.Skip()
			if err == nil {
				err = refused("Parameter '%s' has no value", wire.Clip(name))
			}
		default:
			err = r.Mistyped("a string, a number or a boolean")
		}
		if err != nil {
			return err
		}
		if all == nil {
			all = engine.Parameters{}
		}
		all[name] = value
		return nil
	})
	return all, err
}

// jsonNumber reads a number as the first that holds it of int64, uint64 and float64.
func jsonNumber(r *wire.Reader) (any, error) {
	raw, err := r.Raw()
	if err != nil {
		return nil, err
	}
	text := string(raw)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, wire.Malformed(r.Path(), "number %s is out of range", wire.Clip(text))
	}
	return f, nil
}

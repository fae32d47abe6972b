package kserve

import (
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// The binary extension of REST: the data of tensors stands behind the JSON, in the
// order of the tensors, and parameters say which ones and how much. These parameters
// are of this wire alone, and are gone from what is decoded.

const (
	binarySize   = "binary_data_size"   // of an input or of an output in a response
	binaryOutput = "binary_data"        // of a wanted output
	binaryAll    = "binary_data_output" // of a request: of all outputs that do not say
)

// Binary says which outputs a client of REST takes as bytes behind the JSON.
type Binary struct {
	other bool
	named map[string]bool // outputs that say
}

// of says whether an output goes out as bytes.
func (b Binary) of(output string) bool {
	if said, ok := b.named[output]; ok {
		return said
	}
	return b.other
}

// all takes what a request says of its outputs out of its parameters.
func (b *Binary) all(r *Request) (err error) {
	if b.other, _, err = takeBool(&r.Parameters, binaryAll, ""); err != nil {
		return err
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		wanted, said, err := takeBool(&o.Parameters, binaryOutput, "output '"+o.Name+"': ")
		if err != nil {
			return err
		}
		if said {
			if b.named == nil {
				b.named = map[string]bool{}
			}
			b.named[o.Name] = wanted
		}
	}
	return nil
}

// takeBool takes a parameter away. where begins the error.
func takeBool(from *engine.Parameters, name, where string) (value, ok bool, err error) {
	said, there := take(from, name)
	if !there {
		return false, false, nil
	}
	if value, ok = said.(bool); !ok {
		return false, false, refused("%sparameter '%s' must be true or false", where, name)
	}
	return value, true, nil
}

// take takes a parameter away. Where none is left there are no parameters.
func take(from *engine.Parameters, name string) (value any, ok bool) {
	if value, ok = (*from)[name]; !ok {
		return nil, false
	}
	delete(*from, name)
	if len(*from) == 0 {
		*from = nil
	}
	return value, true
}

// cut divides a body into its JSON and what stands behind it.
func cut(body []byte, header int) (text, tail []byte, err error) {
	switch {
	case header < 0:
		return body, nil, nil
	case header > len(body):
		return nil, nil, refused("Inference-Header-Content-Length is %d, and the body has %d bytes", header, len(body))
	}
	return body[:header], body[header:], nil
}

// fill gives an input its data: what it claims of the bytes behind the JSON, or what
// stands in the JSON. What does not fit datatype or shape is a fault.
func (d *jsonRequest) fill(t *engine.Tensor, data []byte) (fault, err error) {
	claim, claims := take(&t.Parameters, binarySize)
	switch {
	case claims && data != nil:
		return nil, refused("input tensor '%s' has both data and %s", t.Name, binarySize)
	case data != nil:
		return readJSON(t, data)
	case !claims:
		return nil, refused("unable to find data for input tensor '%s'", t.Name)
	}
	size, ok := claim.(int64)
	if !ok || size < 0 {
		return nil, refused("input tensor '%s': %s must be a number of bytes", t.Name, binarySize)
	}
	if size > int64(len(d.tail)) {
		return nil, refused("input tensor '%s': %s is %d, and %d bytes are left behind the JSON: is the header Inference-Header-Content-Length right?", t.Name, binarySize, size, len(d.tail))
	}
	t.Data, d.tail = d.tail[:size:size], d.tail[size:]
	d.request.Raw = true
	return checkInput(t), nil
}

// FromBytes makes the request of a body that is nothing but the data of the one input
// that a model wants, which is what a header length of 0 says. Outputs go out as
// bytes. A dimension that may have any length has the one that follows from the size,
// a batch is of one, and a body of BYTES is one element as it is. Errors are as those
// of [FromJSON].
func FromBytes(body []byte, config *inferencepb.ModelConfig) (*Request, Binary, error) {
	t, err := onlyInput(config)
	if err != nil {
		return nil, Binary{}, err
	}
	size, known := engine.ElementSize(t.Datatype)
	switch {
	case !known:
		return nil, Binary{}, refused("Invalid data type '%s' of input tensor '%s'", t.Datatype, t.Name)
	case size == 0:
		body, size = appendElement(make([]byte, 0, 4+len(body)), body), 4+len(body)
	}
	t.Data = body
	if err := deduce(t, int64(len(body)/size)); err != nil {
		return nil, Binary{}, err
	}
	r := &Request{Inputs: []engine.Tensor{*t}, Raw: true}
	r.fault(0, checkInput(&r.Inputs[0]))
	return r, Binary{other: true}, nil
}

// onlyInput returns the input of a model that has no other, but for those that
// requests may leave out.
func onlyInput(config *inferencepb.ModelConfig) (*engine.Tensor, error) {
	var only *engine.Tensor
	inputs := config.GetInput()
	for _, input := range inputs {
		if input.GetOptional() && len(inputs) > 1 {
			continue
		}
		if only != nil {
			return nil, refused("a body of bytes alone is for models of one input, and model '%s' has %d", config.GetName(), len(inputs))
		}
		only = &engine.Tensor{Name: input.GetName(), Datatype: wordOf(input.GetDataType()), Shape: slices.Clone(input.GetDims())}
	}
	if only == nil {
		return nil, refused("a body of bytes alone is for models of one input, and model '%s' has none", config.GetName())
	}
	if config.GetMaxBatchSize() > 0 {
		only.Shape = slices.Insert(only.Shape, 0, 1)
	}
	return only, nil
}

// deduce finds the length of the dimension that may have any, from how many elements
// there are.
func deduce(t *engine.Tensor, elements int64) error {
	free, rest := -1, int64(1)
	for i, n := range t.Shape {
		switch {
		case n >= 0:
			rest *= n
		case free >= 0:
			return refused("a body of bytes alone does not tell the shape of input tensor '%s', which has several dimensions of any length", t.Name)
		default:
			free = i
		}
	}
	if free >= 0 && rest > 0 {
		t.Shape[free] = elements / rest
	}
	return nil
}

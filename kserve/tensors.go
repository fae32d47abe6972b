package kserve

import (
	"github.com/dynago/dynago/engine"
)

// Tensors returns a request as a model of tensors takes it, if the data of all inputs
// are what datatypes and shapes say. Errors are of kind [engine.InvalidArgument]. It
// shares memory with r.
func (r *Request) Tensors() (*engine.TensorRequest, error) {
	for _, err := range r.faults {
		if err != nil {
			return nil, err
		}
	}
	t := &engine.TensorRequest{
		ID: r.ID, Model: r.Model, Version: r.Version, Inputs: r.Inputs, Parameters: r.Parameters,
	}
	for i := range r.Outputs {
		t.Outputs = append(t.Outputs, r.Outputs[i].Name)
	}
	return t, nil
}

// FromTensors returns what a model of tensors has answered to r: under the id of the
// request, whatever the worker says, and with the outputs that it asks for. It shares
// memory with answer.
func (r *Request) FromTensors(answer *engine.TensorResponse) *Response {
	out := &Response{
		ID: r.ID, Model: answer.Model, Version: Version, Outputs: answer.Outputs, Parameters: answer.Parameters,
	}
	if out.Model == "" {
		out.Model = r.Model
	}
	out.Select(r.Outputs)
	return out
}

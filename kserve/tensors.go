package kserve

import (
	"encoding/json"
	"maps"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
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

// TakeExt takes the extension object out of the parameters of a call of tensors, where
// it stands as JSON in a string: the worker is sent the object instead, and what it
// says of where the call is to run is returned. It is nil if there is none. Errors are
// of kind [engine.InvalidArgument]; with strict, an unknown member is one. The
// parameters of the client's request stay as they are.
func TakeExt(t *engine.TensorRequest, strict bool) (*nvext.Ext, error) {
	value, ok := t.Parameters[parameterNVExt]
	if !ok {
		return nil, nil
	}
	text, ok := value.(string)
	if !ok {
		return nil, refused("invalid nvext: expected a string that holds a JSON object, got %s", described(value))
	}
	ext, _, err := nvext.Decode([]byte(text), strict)
	if err != nil {
		return nil, refused("invalid nvext: %s", err)
	}
	t.Parameters = maps.Clone(t.Parameters)
	delete(t.Parameters, parameterNVExt)
	if ext != nil {
		t.Ext = json.RawMessage(text)
	}
	return ext, nil
}

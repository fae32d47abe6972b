package kserve

import (
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/openai"
)

// CompletionFromProto decodes a call of a model of text from a message. Of the two
// inputs that every such model has it says more exactly than [FromProto] what is wrong
// with them.
func CompletionFromProto(m *inferencepb.ModelInferRequest, o openai.Options) (*Completion, error) {
	raw := m.GetRawInputContents()
	for i, in := range m.GetInputs() {
		if len(raw) > 0 && len(raw) != len(m.GetInputs()) {
			break
		}
		t := &engine.Tensor{Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape()}
		var err error
		switch {
		case len(raw) > 0:
			err = checkBytes(t, len(raw[i]))
		case in.GetContents() != nil:
			err = checkNumbers(t, in.GetContents())
		}
		if err != nil {
			return nil, err
		}
	}
	r, err := FromProto(m)
	if err != nil {
		return nil, err
	}
	return DecodeCompletion(r, o)
}

// checkBytes checks one of the two inputs, if it is one, that came as so many bytes.
func checkBytes(t *engine.Tensor, size int) error {
	err := checkShape(t)
	switch {
	case err != nil:
		return err
	case t.Name == textInput && size < 4:
		return refused("'%s' raw input must be length-prefixed (>= 4 bytes), got %d", textInput, size)
	case isStream(t.Name) && size == 0:
		return refused("'%s' raw input must contain at least one byte", streamInput)
	}
	return nil
}

// checkNumbers checks one of the two inputs, if it is one, that came as elements of a
// message.
func checkNumbers(t *engine.Tensor, c *inferencepb.InferTensorContents) error {
	err := checkShape(t)
	switch {
	case err != nil:
		return err
	case t.Name == textInput && len(c.GetBytesContents()) != 1:
		return refused("'%s' must contain exactly one element, got %d", textInput, len(c.GetBytesContents()))
	case isStream(t.Name) && len(c.GetBoolContents()) != 1:
		return refused("'%s' must contain exactly one element, got %d", streamInput, len(c.GetBoolContents()))
	}
	return nil
}

package kserve

import (
	"unicode/utf8"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// sharedMemory is the tensor parameter by which clients say that data lies in memory
// that they share with the server.
const sharedMemory = "shared_memory_region"

// FromProto decodes a request, be it one of text or of tensors. Errors are of kind
// [engine.InvalidArgument] and begin with "Failed to parse request: ". The request
// shares memory with m.
func FromProto(m *inferencepb.ModelInferRequest) (*Request, error) {
	if sharesMemory(m) {
		return nil, noSharedMemory()
	}
	raw := m.GetRawInputContents()
	if len(raw) > 0 && len(raw) != len(m.GetInputs()) {
		return nil, refused("`raw_input_contents` must be used for all inputs, got %d for %d inputs", len(raw), len(m.GetInputs()))
	}
	parameters, err := readParameters(m.GetParameters())
	if err != nil {
		return nil, err
	}
	r := &Request{
		ID: m.GetId(), Model: m.GetModelName(), Version: m.GetModelVersion(),
		Inputs: make([]engine.Tensor, len(m.GetInputs())), Parameters: parameters, Raw: len(raw) > 0,
	}
	for i, input := range m.GetInputs() {
		t := &r.Inputs[i]
		t.Name, t.Datatype, t.Shape = input.GetName(), input.GetDatatype(), input.GetShape()
		t.Parameters, err = readParameters(input.GetParameters())
		if err != nil {
			return nil, err
		}
		switch contents := input.GetContents(); {
		case r.Raw && contents != nil:
			return nil, refused("contents of input tensor '%s' must not be given where `raw_input_contents` is used", t.Name)
		case r.Raw:
			t.Data = raw[i]
			r.fault(i, checkInput(t))
		case contents != nil:
			r.fault(i, readContents(t, contents))
		default:
			return nil, refused("unable to find data for input tensor '%s'", t.Name)
		}
	}
	if err := unique(r.Inputs); err != nil {
		return nil, err
	}
	for _, output := range m.GetOutputs() {
		parameters, err := readParameters(output.GetParameters())
		if err != nil {
			return nil, err
		}
		r.Outputs = append(r.Outputs, Wanted{output.GetName(), parameters})
	}
	return r, nil
}

// sharesMemory says whether an input or an output lies in memory of the client. Where
// inputs do, bytes are there for the others alone, so that nothing else fits either.
func sharesMemory(m *inferencepb.ModelInferRequest) bool {
	for _, input := range m.GetInputs() {
		if _, shared := input.GetParameters()[sharedMemory]; shared {
			return true
		}
	}
	for _, output := range m.GetOutputs() {
		if _, shared := output.GetParameters()[sharedMemory]; shared {
			return true
		}
	}
	return false
}

func noSharedMemory() error {
	return refused("shared memory is not supported, tensors must be in the request")
}

// unique says which name two inputs have, if any do.
func unique(inputs []engine.Tensor) error {
	const few = 16 // that are compared faster than looked up
	if len(inputs) <= few {
		for i := range inputs {
			for j := range i {
				if inputs[i].Name == inputs[j].Name {
					return twice(inputs[i].Name)
				}
			}
		}
		return nil
	}
	seen := make(map[string]bool, len(inputs))
	for i := range inputs {
		if seen[inputs[i].Name] {
			return twice(inputs[i].Name)
		}
		seen[inputs[i].Name] = true
	}
	return nil
}

func twice(name string) error { return refused("Duplicate input name: '%s'", name) }

// ToProto encodes a response: with outputs as bytes if raw, else as numbers. A
// response with an output of FP16 or BF16, for which there are no numbers, has bytes
// in any case; the two forms never mix. Errors say what is wrong with the response,
// of kind [engine.Internal]. The message shares memory with r, and neither may be
// changed while the other is used.
func ToProto(r *Response, raw bool) (*inferencepb.ModelInferResponse, error) {
	for _, s := range []string{r.ID, r.Model, r.Version} {
		if !utf8.ValidString(s) {
			return nil, engine.Errorf(engine.Internal, "%q in the response is not valid UTF-8", s)
		}
	}
	parameters, err := parameterMessages(r.Parameters)
	if err != nil {
		return nil, err
	}
	m := &inferencepb.ModelInferResponse{
		ModelName: r.Model, ModelVersion: r.Version, Id: r.ID, Parameters: parameters,
	}
	if len(r.Outputs) == 0 {
		return m, nil
	}
	raw = raw || halves(r.Outputs)
	outputs := make([]inferencepb.ModelInferResponse_InferOutputTensor, len(r.Outputs))
	m.Outputs = make([]*inferencepb.ModelInferResponse_InferOutputTensor, len(r.Outputs))
	if raw {
		m.RawOutputContents = make([][]byte, len(r.Outputs))
	}
	for i := range r.Outputs {
		t, out := &r.Outputs[i], &outputs[i]
		if !utf8.ValidString(t.Name) || !utf8.ValidString(t.Datatype) {
			return nil, engine.Errorf(engine.Internal, "output tensor %q of %q: name and datatype must be valid UTF-8", t.Name, t.Datatype)
		}
		out.Name, out.Datatype, out.Shape = t.Name, t.Datatype, t.Shape
		out.Parameters, err = parameterMessages(t.Parameters)
		if err != nil {
			return nil, err
		}
		switch {
		case !raw:
			out.Contents, err = contentsOf(t)
		case t.Datatype == "BOOL":
			m.RawOutputContents[i] = plainBools(t.Data)
		default:
			m.RawOutputContents[i] = t.Data
		}
		if err != nil {
			return nil, err
		}
		m.Outputs[i] = out
	}
	return m, nil
}

// Select leaves in a response the outputs that are wanted, each once and in the
// order in which they are wanted; all if none are. What is wanted and is not there is
// left out.
func (r *Response) Select(wanted []Wanted) {
	if len(wanted) == 0 {
		return
	}
	const few = 256 // comparisons that take less time than a table
	if len(wanted)*len(r.Outputs) > few {
		r.lookUp(wanted)
		return
	}
	selected := make([]engine.Tensor, 0, len(wanted))
	for i := range wanted {
		if named(selected, wanted[i].Name) != nil {
			continue
		}
		if t := named(r.Outputs, wanted[i].Name); t != nil {
			selected = append(selected, *t)
		}
	}
	r.Outputs = selected
}

// lookUp is Select for many names. Clients may want as many as they please.
func (r *Response) lookUp(wanted []Wanted) {
	at := make(map[string]int, len(r.Outputs))
	for i := len(r.Outputs) - 1; i >= 0; i-- {
		at[r.Outputs[i].Name] = i // so that the first of a name stays
	}
	var selected []engine.Tensor
	for i := range wanted {
		if j, ok := at[wanted[i].Name]; ok {
			selected = append(selected, r.Outputs[j])
			delete(at, wanted[i].Name)
		}
	}
	r.Outputs = selected
}

// named returns the first tensor of a name, or nil.
func named(tensors []engine.Tensor, name string) *engine.Tensor {
	for i := range tensors {
		if tensors[i].Name == name {
			return &tensors[i]
		}
	}
	return nil
}

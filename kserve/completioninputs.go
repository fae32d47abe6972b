package kserve

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// The inputs that models of text are shown to have. The second has two names.
const (
	textInput      = "text_input"
	streamingInput = "streaming"
	streamInput    = "stream"
)

// completionInputs says how each input is read.
var completionInputs = map[string]func(*completionDecoder, *engine.Tensor) error{
	textInput:      (*completionDecoder).text,
	streamingInput: (*completionDecoder).stream,
	streamInput:    (*completionDecoder).stream,

	"sampling_parameters": (*completionDecoder).sampling,
	"exclude_input_in_output": func(d *completionDecoder, t *engine.Tensor) error {
		excluded, err := flag(t)
		d.echo = new(!excluded)
		return err
	},
	"return_finish_reason": func(_ *completionDecoder, t *engine.Tensor) error { // which always comes
		_, err := flag(t)
		return err
	},
	"return_num_input_tokens":   count(numInputTokens),
	"return_num_output_tokens":  count(numOutputTokens),
	"return_logprobs":           lacking,
	"return_cumulative_logprob": lacking,
	"image": func(*completionDecoder, *engine.Tensor) error {
		return refused("'image' is not supported: models of text see no images here")
	},
}

// checkShape says what is wrong with the type or the shape of one of the two inputs.
func checkShape(t *engine.Tensor) error {
	switch {
	case t.Name == textInput && t.Datatype != "BYTES":
		return refused("Expected '%s' to be of type BYTES for string input, got %s", textInput, t.Datatype)
	case t.Name == textInput && !single(t.Shape):
		return refused("Expected '%s' to have shape [1], got %s", textInput, shown(t.Shape))
	case isStream(t.Name) && t.Datatype != "BOOL":
		return refused("Expected '%s' to be of type BOOL, got %s", t.Name, t.Datatype)
	case isStream(t.Name) && (len(t.Shape) != 1 || t.Shape[0] != 1):
		return refused("Expected '%s' to have shape [1], got %s", streamInput, shown(t.Shape))
	}
	return nil
}

func isStream(name string) bool { return name == streamingInput || name == streamInput }

func (d *completionDecoder) text(t *engine.Tensor) error {
	if err := checkShape(t); err != nil {
		return err
	}
	text, ok := onlyElement(t.Data)
	switch {
	case d.out.Raw && len(t.Data) < 4:
		return refused("'%s' raw input must be length-prefixed (>= 4 bytes), got %d", textInput, len(t.Data))
	case d.out.Raw && d.fault != nil:
		return d.fault
	case !ok:
		return refused("'%s' must contain exactly one element", textInput)
	}
	d.prompt, d.prompted = wire.CleanText(string(text)), true
	return nil
}

func (d *completionDecoder) stream(t *engine.Tensor) error {
	if err := checkShape(t); err != nil {
		return err
	}
	switch {
	case d.out.Raw && len(t.Data) == 0:
		return refused("'%s' raw input must contain at least one byte", streamInput)
	case d.out.Raw && d.fault != nil:
		return d.fault
	case len(t.Data) != 1:
		return refused("'%s' must contain exactly one element", streamInput)
	}
	d.out.Stream = t.Data[0] != 0
	return nil
}

// sampling reads members of a completions request from one JSON object.
func (d *completionDecoder) sampling(t *engine.Tensor) error {
	if t.Datatype != "BYTES" {
		return refused("Expected '%s' to be of type BYTES, got %s", t.Name, t.Datatype)
	}
	text, ok := onlyElement(t.Data)
	if !ok || !single(t.Shape) {
		return refused("'%s' must contain exactly one element, a JSON object", t.Name)
	}
	r := wire.NewReader(text, t.Name)
	err := r.Object("a JSON object", func(name []byte) error {
		value, err := r.Raw()
		if err != nil {
			return err
		}
		return d.member(t.Name, string(name), value)
	})
	if err == nil && r.End() != nil {
		return refused("%s: expected one JSON object, and nothing behind it", t.Name)
	}
	switch e := err.(type) {
	case nil:
		return nil
	case *engine.Error:
		return e
	case *wire.SyntaxError:
		return refused("%s: expected a JSON object: %s", t.Name, e.Cause.Message)
	}
	return refused("%s", err.(*wire.Error).Message)
}

// member takes one member of the object. What is said elsewhere, or says nothing of
// sampling, is not to be said here as well.
func (d *completionDecoder) member(in, name string, value []byte) error {
	switch name {
	case "model", "prompt", "prompt_embeds", "stream", "stream_options", "user":
		return refused("%s: '%s' does not belong here", in, name)
	}
	return d.set(name, loosened(name, value))
}

// count makes an output that tells of tokens a part of the answer.
func count(o output) func(*completionDecoder, *engine.Tensor) error {
	return func(d *completionDecoder, t *engine.Tensor) (err error) {
		d.counts[o], err = flag(t)
		return err
	}
}

// lacking refuses an input that asks for what is not told, and lets it decline.
func lacking(_ *completionDecoder, t *engine.Tensor) error {
	wanted, err := flag(t)
	if err == nil && wanted {
		return refused("'%s' is not supported: responses carry no log probabilities", t.Name)
	}
	return err
}

// flag reads an input of one truth value.
func flag(t *engine.Tensor) (bool, error) {
	switch {
	case t.Datatype != "BOOL":
		return false, refused("Expected '%s' to be of type BOOL, got %s", t.Name, t.Datatype)
	case !single(t.Shape) || len(t.Data) != 1:
		return false, refused("'%s' must contain exactly one element, got shape %s", t.Name, shown(t.Shape))
	}
	return t.Data[0] != 0, nil
}

// single says whether a tensor of this shape is one element, alone or in a batch.
func single(shape []int64) bool {
	return len(shape) == 1 && shape[0] == 1 || len(shape) == 2 && shape[0] == 1 && shape[1] == 1
}

// onlyElement returns the one element of a tensor of texts.
func onlyElement(data []byte) ([]byte, bool) {
	if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) != uint64(len(data)-4) {
		return nil, false
	}
	return data[4:], true
}

// shown writes a shape as clients know it.
func shown(shape []int64) string {
	return "[" + strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ", ") + "]"
}

// listOutputs finds out what responses carry: what the client lists, or all that there
// always is and what it has asked for by inputs.
func (d *completionDecoder) listOutputs(r *Request) error {
	list := make([]output, 0, 4)
	for _, wanted := range r.Outputs {
		o, ok := outputsByName[wanted.Name]
		if !ok {
			return refused("unexpected inference output '%s' for model '%s', outputs are 'text_output', 'finish_reason'", wanted.Name, r.Model)
		}
		if !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		list = append(list, textOutput, finishReason)
		for o, wanted := range d.counts {
			if wanted {
				list = append(list, output(o))
			}
		}
	}
	d.out.outputs = list
	return nil
}

package kserve

import (
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
)

// Completion is one call of a model of text: a completions request in the form of
// tensors and parameters. Models are shown to have two inputs; the others are those of
// Triton's backend for language models, so that its clients find them here.
type Completion struct {
	// ID and Model are what responses say. Model is what the client has called it,
	// unless the caller puts a better name there.
	ID, Model string
	Chat      *chat.Request
	Ext       *nvext.Ext // nil if the client sent none
	// ExtDropped says that there was a parameter nvext, which the operator does not
	// let have an effect.
	ExtDropped bool
	// Stream asks for one response for each piece of the answer, and Raw for responses
	// whose outputs are bytes.
	Stream, Raw bool
	// Timeout is how long the client is willing to wait for the whole answer; 0: it
	// does not say.
	Timeout time.Duration
	// PromptCacheKey and SequenceID name, if not empty, what the request continues;
	// SequenceEnd says that nothing more of the sequence will come.
	PromptCacheKey, SequenceID string
	SequenceEnd                bool
	// Unknown lists what was passed over, for the log: parameters, members of
	// sampling_parameters, and members of nvext as paths.
	Unknown []string

	choices int
	outputs []output
}

// DecodeCompletion reads a call of a model of text. What inputs and parameters say of
// sampling has the names, the ranges and the errors of completions over HTTP; where
// both say it, parameters win. Every error is of kind [engine.InvalidArgument].
func DecodeCompletion(r *Request, o openai.Options) (*Completion, error) {
	d := completionDecoder{
		options: o,
		out:     &Completion{ID: r.ID, Model: r.Model, Raw: r.Raw},
		pieces:  openai.NewPieces(o),
	}
	if err := d.decode(r); err != nil {
		return nil, err
	}
	return d.out, nil
}

// CompletionFromProto is [FromProto] for a call of a model of text.
func CompletionFromProto(m *inferencepb.ModelInferRequest, o openai.Options) (*Completion, error) {
	r, err := FromProto(m)
	if err != nil {
		return nil, err
	}
	return DecodeCompletion(r, o)
}

// completionDecoder is what is known of a call while it is read.
type completionDecoder struct {
	options openai.Options
	out     *Completion
	pieces  *openai.Pieces

	fault    error // what is wrong with the data of the input being read
	prompt   string
	prompted bool             // there was one
	echo     *bool            // as an input of its own says it
	counts   [allOutputs]bool // of tokens, that inputs ask for
}

func (d *completionDecoder) decode(r *Request) error {
	for i := range r.Inputs {
		t := &r.Inputs[i]
		read := completionInputs[t.Name]
		if read == nil {
			return refused("Invalid input name: %s, supported inputs are 'text_input', 'stream'", t.Name)
		}
		if d.fault = r.faultOf(i); d.fault != nil && t.Name != textInput && !isStream(t.Name) {
			return d.fault
		}
		if err := read(d, t); err != nil {
			return err
		}
	}
	if !d.prompted {
		return refused("Missing required input: '%s'", textInput)
	}
	if err := d.listOutputs(r); err != nil {
		return err
	}
	if d.echo != nil {
		if err := d.set("echo", jsonBool(*d.echo)); err != nil {
			return err
		}
	}
	if err := d.parameters(r.Parameters); err != nil {
		return err
	}
	call, err := d.pieces.Call(r.Model, d.prompt)
	if err != nil {
		return reject(err)
	}
	request := call.Requests[0]
	request.API = chat.APIKServe
	request.Sampling.Logprobs = nil // no response has a place for them
	c := d.out
	c.Model, c.Chat, c.Ext = call.Model, request, call.Ext
	c.ExtDropped = c.ExtDropped || call.ExtDropped
	c.PromptCacheKey, c.choices = call.PromptCacheKey, call.Choices()
	c.Unknown = append(c.Unknown, call.Unknown...)
	return nil
}

// set gives a member of the completions request its value, which is JSON.
func (d *completionDecoder) set(name string, value []byte) error {
	if err := d.pieces.Set(name, value); err != nil {
		return reject(err)
	}
	return nil
}

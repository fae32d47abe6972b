// Package kserve is the KServe v2 protocol without its wires: one neutral form of
// requests and responses, into which gRPC and REST decode and from which they
// encode, and which becomes a conversation for models of text and tensors for all
// others.
//
// The one idea: the elements of a tensor are bytes, little-endian and row-major,
// from the wire of a client to the wire of a worker. What comes in that form is
// checked and never copied; what comes as numbers in a message or as JSON is turned
// into it once, and back once if the answer is to go out that way.
package kserve

import (
	"github.com/dynago/dynago/engine"
)

// Version is that of every model.
const Version = "1"

// Request is one call of a model. It is read-only once it is decoded: its tensors
// share memory with the message that it came in.
type Request struct {
	ID, Model, Version string
	// Inputs have names of their own each. Whether their data are what datatype and
	// shape say is for the model to judge: one of text has words of its own for what
	// is wrong with its few inputs, and for all others [Request.Tensors] tells.
	Inputs     []engine.Tensor
	Outputs    []Wanted // none: all
	Parameters engine.Parameters
	// Raw says that inputs came as bytes. Answers go in the form in which requests
	// came.
	Raw bool

	faults []error // what is wrong with the data of each input; nil: nothing
}

// fault remembers what is wrong with the data of an input, if anything is.
func (r *Request) fault(input int, err error) {
	if err == nil {
		return
	}
	if r.faults == nil {
		r.faults = make([]error, len(r.Inputs))
	}
	r.faults[input] = err
}

// faultOf returns what is wrong with the data of an input, or nil.
func (r *Request) faultOf(input int) error {
	if r.faults == nil {
		return nil
	}
	return r.faults[input]
}

// Wanted is an output that a client asks for.
type Wanted struct {
	Name       string
	Parameters engine.Parameters
}

// Response is one answer of a call.
type Response struct {
	ID, Model, Version string
	Outputs            []engine.Tensor
	Parameters         engine.Parameters
}

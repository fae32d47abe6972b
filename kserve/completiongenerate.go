package kserve

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// FromGenerate decodes a body of Triton's generate extension: one object in which
// inputs and parameters stand side by side, at the top or in a member parameters. What
// has the name of an input of models of text is one; the rest are parameters, of which
// arrays and objects are kept as JSON. Where a name is repeated the last value counts.
// If streamed, an answer comes in pieces unless the body says otherwise. Errors are of
// kind [engine.InvalidArgument].
func FromGenerate(body []byte, model, version string, streamed bool) (*Request, error) {
	g := generateReader{r: Request{Model: model, Version: version}}
	err := g.read(body)
	if _, broken := err.(*wire.SyntaxError); broken {
		if mended, ok := wire.EscapeControls(body); ok {
			g = generateReader{r: Request{Model: model, Version: version}}
			err = g.read(mended)
		}
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		err = broken.Cause
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return nil, refused("%s", e.Message)
	}
	if err != nil {
		return nil, err
	}
	if streamed && !slices.ContainsFunc(g.r.Inputs, func(t engine.Tensor) bool { return isStream(t.Name) }) {
		g.put(truthInput(streamingInput, true))
	}
	return &g.r, nil
}

// generateReader is what is known of a call while its body is read.
type generateReader struct{ r Request }

func (g *generateReader) read(body []byte) error {
	r := wire.NewReader(body, "")
	err := r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "id":
			return g.id(r)
		case "parameters":
			if null, err := r.Null(); null {
				return err
			}
			return r.Object("an object", func(name []byte) error { return g.member(r, wire.CleanText(string(name))) })
		}
		return g.member(r, wire.CleanText(string(name)))
	})
	if err == nil {
		err = r.End()
	}
	return err
}

// id reads the id of a request, which some clients count.
func (g *generateReader) id(r *wire.Reader) (err error) {
	switch r.Kind() {
	case 'n':
		return r.Skip()
	case '0':
		raw, err := r.Raw()
		g.r.ID = string(raw)
		return err
	}
	g.r.ID, err = r.Text("a string")
	return err
}

// member reads an input or a parameter.
func (g *generateReader) member(r *wire.Reader, name string) error {
	if null, err := r.Null(); null {
		return err
	}
	if completionInputs[name] != nil {
		return g.input(r, name)
	}
	value, err := parameterValue(r)
	if err != nil {
		return err
	}
	if g.r.Parameters == nil {
		g.r.Parameters = engine.Parameters{}
	}
	g.r.Parameters[name] = value
	return nil
}

// input reads what is a tensor of one element elsewhere.
func (g *generateReader) input(r *wire.Reader, name string) error {
	switch kind := r.Kind(); {
	case name == "sampling_parameters" && kind == '{':
		object, err := r.Raw()
		g.put(textTensor(name, object))
		return err
	case name == textInput || name == "sampling_parameters" || name == "image":
		text, err := r.Text("a string")
		g.put(textTensor(name, text))
		return err
	}
	value, err := r.Boolean()
	g.put(truthInput(name, value))
	return err
}

// put adds an input, or gives one its last value.
func (g *generateReader) put(t engine.Tensor) {
	if old := named(g.r.Inputs, t.Name); old != nil {
		*old = t
		return
	}
	g.r.Inputs = append(g.r.Inputs, t)
}

func textTensor[T string | []byte](name string, text T) engine.Tensor {
	return engine.Tensor{Name: name, Datatype: "BYTES", Shape: []int64{1}, Data: appendElement(make([]byte, 0, 4+len(text)), text)}
}

func truthInput(name string, value bool) engine.Tensor {
	t := engine.Tensor{Name: name, Datatype: "BOOL", Shape: []int64{1}, Data: []byte{0}}
	if value {
		t.Data[0] = 1
	}
	return t
}

// parameterValue reads a parameter.
func parameterValue(r *wire.Reader) (any, error) {
	switch r.Kind() {
	case '"':
		return r.Text("a string")
	case 't', 'f':
		return r.Boolean()
	}
	number := r.Kind() == '0'
	raw, err := r.Raw()
	if err != nil {
		return nil, err
	}
	if !number {
		return string(wire.CleanRaw(raw)), nil
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return nil, wire.Malformed(r.Path(), "number %s is out of range", wire.Clip(raw))
	}
	return f, nil
}

// AppendGenerated appends a response of a model of text as the object of the generate
// extension: outputs and parameters side by side, an output of one element as that
// element.
func AppendGenerated(dst []byte, r *Response) []byte {
	dst = append(dst, '{')
	if r.ID != "" {
		dst = append(wire.AppendString(append(dst, `"id":`...), r.ID), ',')
	}
	dst = wire.AppendString(append(dst, `"model_name":`...), r.Model)
	dst = wire.AppendString(append(dst, `,"model_version":`...), r.Version)
	for i := range r.Outputs {
		dst = appendMember(dst, r.Outputs[i].Name)
		dst = appendElements(dst, &r.Outputs[i])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Parameters)) {
		dst = appendMember(dst, name)
		switch v := r.Parameters[name].(type) {
		case bool:
			dst = strconv.AppendBool(dst, v)
		case int64:
			dst = strconv.AppendInt(dst, v, 10)
		case uint64:
			dst = strconv.AppendUint(dst, v, 10)
		case float64:
			dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
		case string:
			if name == parameterNVExt { // it is JSON already
				dst = append(dst, v...)
			} else {
				dst = wire.AppendString(dst, v)
			}
		}
	}
	return append(dst, '}')
}

func appendMember(dst []byte, name string) []byte {
	return append(wire.AppendString(append(dst, ','), name), ':')
}

// appendElements appends the elements of an output of a model of text.
func appendElements(dst []byte, t *engine.Tensor) []byte {
	array := len(t.Shape) != 1 || t.Shape[0] != 1
	if array {
		dst = append(dst, '[')
	}
	first := true
	next := func() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
	}
	if t.Datatype == "BYTES" {
		eachElement(t.Data, func(text []byte) bool {
			next()
			dst = wire.AppendString(dst, string(text))
			return true
		})
	} else {
		for data := t.Data; len(data) >= 4; data = data[4:] {
			next()
			dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data)), 10)
		}
	}
	if array {
		dst = append(dst, ']')
	}
	return dst
}

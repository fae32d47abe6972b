package kserve

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// Platform is that of models whose workers name none.
const Platform = "dynamo"

// ServerMetadata tells what the server is, and which extensions of the protocol it
// has, in Triton's words. Binary says that bytes can follow the JSON of a body.
func ServerMetadata(version string, binary bool) *inferencepb.ServerMetadataResponse {
	m := &inferencepb.ServerMetadataResponse{
		Name: "dynago", Version: version,
		Extensions: []string{"model_configuration", "parameters", "statistics"},
	}
	if binary {
		m.Extensions = append(m.Extensions, "binary_tensor_data")
	}
	return m
}

// Kind says what a model looks like to clients.
type Kind uint8

// Kinds of models.
const (
	Hidden  Kind = iota // none that is served here
	Text                // two inputs and two outputs, whatever the model
	Tensors             // inputs and outputs that its workers describe
)

// KindOf returns what the model of a card looks like. A worker that takes tensors is
// taken at its word, whatever else it takes. A card of nil is of no model.
func KindOf(card *engine.Card) Kind {
	switch {
	case card == nil:
		return Hidden
	case card.Accept(engine.InputTensor):
		return Tensors
	case card.Accept(engine.InputTokens), card.Accept(engine.InputChat), card.Accept(engine.InputText):
		return Text
	}
	return Hidden
}

// Metadata tells which tensors a model takes and gives. Card is that of a worker of
// the model; nil if nobody has told of it. An error is of kind [engine.NotFound] for
// models that are not served here, and [engine.InvalidArgument] for those whose
// workers do not describe themselves.
func Metadata(name string, card *engine.Card) (*inferencepb.ModelMetadataResponse, error) {
	config, err := Config(name, card)
	if err != nil {
		return nil, err
	}
	m := &inferencepb.ModelMetadataResponse{
		Name: cmp.Or(config.Name, name), Versions: []string{Version}, Platform: config.Platform,
	}
	for _, in := range config.Input {
		m.Inputs = append(m.Inputs, tensorMetadata(config, in.GetName(), in.GetDataType(), in.GetDims()))
	}
	for _, out := range config.Output {
		m.Outputs = append(m.Outputs, tensorMetadata(config, out.GetName(), out.GetDataType(), out.GetDims()))
	}
	return m, nil
}

// tensorMetadata describes a tensor as requests and responses have it: with the
// dimension of the batch, which configurations leave out.
func tensorMetadata(config *inferencepb.ModelConfig, name string, datatype inferencepb.DataType, dims []int64) *inferencepb.ModelMetadataResponse_TensorMetadata {
	if config.MaxBatchSize > 0 {
		dims = slices.Concat([]int64{-1}, dims)
	}
	return &inferencepb.ModelMetadataResponse_TensorMetadata{Name: name, Datatype: wordOf(datatype), Shape: dims}
}

// Config tells the configuration of a model: the one of Triton that its workers have
// registered, as they have, or one made of what they take and give. Errors are those
// of [Metadata]. The configuration is the caller's own.
func Config(name string, card *engine.Card) (*inferencepb.ModelConfig, error) {
	switch KindOf(card) {
	case Text:
		return textConfig(name), nil
	case Tensors:
		return tensorConfig(name, card.Tensor)
	}
	return nil, NotFound(name)
}

// textConfig is that of all models of text. Their other inputs are not told of:
// clients and their tests compare the list.
func textConfig(name string) *inferencepb.ModelConfig {
	return &inferencepb.ModelConfig{
		Name: name, Platform: Platform, Backend: Platform,
		Input: []*inferencepb.ModelInput{
			{Name: "text_input", DataType: inferencepb.DataType_TYPE_STRING, Dims: []int64{1}},
			{Name: "streaming", DataType: inferencepb.DataType_TYPE_BOOL, Dims: []int64{1}, Optional: true},
		},
		Output: []*inferencepb.ModelOutput{
			{Name: "text_output", DataType: inferencepb.DataType_TYPE_STRING, Dims: []int64{-1}},
			{Name: "finish_reason", DataType: inferencepb.DataType_TYPE_STRING, Dims: []int64{-1}},
		},
	}
}

func tensorConfig(name string, c *engine.TensorConfig) (*inferencepb.ModelConfig, error) {
	switch {
	case c == nil, c.Name == "" && len(c.Inputs)+len(c.Outputs)+len(c.Triton) == 0:
		return nil, undescribed(name, "no model config is provided")
	case len(c.Triton) > 0:
		config := &inferencepb.ModelConfig{}
		if err := proto.Unmarshal(c.Triton, config); err != nil {
			return nil, undescribed(name, "failed to decode Protobuf message: "+err.Error())
		}
		return config, nil
	}
	config := &inferencepb.ModelConfig{Name: cmp.Or(c.Name, name), Platform: Platform, Backend: Platform}
	for i := range c.Inputs {
		s := &c.Inputs[i]
		config.Input = append(config.Input, &inferencepb.ModelInput{
			Name: s.Name, DataType: numbers[s.Datatype], Dims: slices.Clone(s.Shape), Optional: s.Optional,
		})
	}
	for i := range c.Outputs {
		s := &c.Outputs[i]
		config.Output = append(config.Output, &inferencepb.ModelOutput{
			Name: s.Name, DataType: numbers[s.Datatype], Dims: slices.Clone(s.Shape),
		})
	}
	return config, nil
}

// undescribed is the error of a model of tensors whose workers do not say of which.
func undescribed(name, why string) error {
	return &engine.Error{
		Kind: engine.InvalidArgument, Message: "Model '" + name + "' has type Tensor but: " + why, Param: "model",
	}
}

// States of models, in Triton's words.
const (
	StateReady       = "READY"
	StateUnavailable = "UNAVAILABLE"
)

// Model is what the list of models needs to know of one.
type Model struct {
	Name   string
	Card   *engine.Card
	Ready  bool
	Reason string // why it is not ready, for people
}

// Index lists the models that are served here in the order in which they are given,
// or of them only those that are ready. A repository other than the whole fleet,
// whose name is empty, is an error of kind [engine.Unsupported].
func Index(models []Model, request *inferencepb.RepositoryIndexRequest) (*inferencepb.RepositoryIndexResponse, error) {
	if request.GetRepositoryName() != "" {
		return nil, engine.Errorf(engine.Unsupported, "'repository_name' specification is not supported")
	}
	list := &inferencepb.RepositoryIndexResponse{}
	for i := range models {
		m := &models[i]
		switch {
		case KindOf(m.Card) == Hidden:
		case m.Ready:
			list.Models = append(list.Models, &inferencepb.RepositoryIndexResponse_ModelIndex{Name: m.Name, Version: Version, State: StateReady})
		case !request.GetReady():
			list.Models = append(list.Models, &inferencepb.RepositoryIndexResponse_ModelIndex{Name: m.Name, Version: Version, State: StateUnavailable, Reason: m.Reason})
		}
	}
	return list, nil
}

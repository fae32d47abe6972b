package kserve_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

func accepting(forms ...engine.Input) *engine.Card { return &engine.Card{Model: "m", Accepts: forms} }

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		card *engine.Card
		want kserve.Kind
	}{
		{nil, kserve.Hidden},
		{accepting(), kserve.Hidden},
		{accepting("images"), kserve.Hidden},
		{accepting(engine.InputTokens), kserve.Text},
		{accepting(engine.InputText), kserve.Text},
		{accepting(engine.InputChat), kserve.Text},
		{accepting(engine.InputTensor), kserve.Tensors},
		{accepting(engine.InputTokens, engine.InputTensor), kserve.Tensors},
	} {
		if got := kserve.KindOf(c.card); got != c.want {
			t.Errorf("%+v is of kind %d, want %d", c.card, got, c.want)
		}
	}
}

// tensorCard is that of a worker that registers a configuration of Triton.
func tensorCard(triton []byte) *engine.Card {
	card := accepting(engine.InputTensor)
	card.Tensor = &engine.TensorConfig{Triton: triton}
	return card
}

// encoded is a configuration as a worker would register it.
func encoded(t *testing.T, text string) []byte {
	t.Helper()
	b, err := proto.Marshal(parsed[inferencepb.ModelConfig](t, text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestModelsDescribed(t *testing.T) {
	plain := accepting(engine.InputTensor)
	plain.Tensor = &engine.TensorConfig{
		Name:    "scorer",
		Inputs:  []engine.TensorSpec{{Name: "x", Datatype: "FP32", Shape: []int64{-1, 3}}, {Name: "label", Datatype: "BYTES", Shape: []int64{1}, Optional: true}},
		Outputs: []engine.TensorSpec{{Name: "y", Datatype: "BF16", Shape: []int64{}}, {Name: "z", Datatype: "TEXT"}},
	}
	unnamed := accepting(engine.InputTensor)
	unnamed.Tensor = &engine.TensorConfig{Outputs: []engine.TensorSpec{{Name: "y", Datatype: "INT8", Shape: []int64{1}}}}

	for _, c := range []struct {
		name             string
		card             *engine.Card
		metadata, config string
	}{
		{
			"text", accepting(engine.InputTokens),
			`name: "m" versions: "1" platform: "dynamo"
			inputs { name: "text_input" datatype: "BYTES" shape: 1 } inputs { name: "streaming" datatype: "BOOL" shape: 1 }
			outputs { name: "text_output" datatype: "BYTES" shape: -1 } outputs { name: "finish_reason" datatype: "BYTES" shape: -1 }`,
			`name: "m" platform: "dynamo" backend: "dynamo"
			input { name: "text_input" data_type: TYPE_STRING dims: 1 } input { name: "streaming" data_type: TYPE_BOOL dims: 1 optional: true }
			output { name: "text_output" data_type: TYPE_STRING dims: -1 } output { name: "finish_reason" data_type: TYPE_STRING dims: -1 }`,
		},
		{
			"tensors", plain,
			`name: "scorer" versions: "1" platform: "dynamo"
			inputs { name: "x" datatype: "FP32" shape: [-1, 3] } inputs { name: "label" datatype: "BYTES" shape: 1 }
			outputs { name: "y" datatype: "BF16" } outputs { name: "z" datatype: "INVALID" }`,
			`name: "scorer" platform: "dynamo" backend: "dynamo"
			input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } input { name: "label" data_type: TYPE_STRING dims: 1 optional: true }
			output { name: "y" data_type: TYPE_BF16 } output { name: "z" data_type: TYPE_INVALID }`,
		},
		{
			"tensors without a name", unnamed,
			`name: "m" versions: "1" platform: "dynamo" outputs { name: "y" datatype: "INT8" shape: 1 }`,
			`name: "m" platform: "dynamo" backend: "dynamo" output { name: "y" data_type: TYPE_INT8 dims: 1 }`,
		},
		{
			"Triton's, with a batch",
			tensorCard(encoded(t, `name: "resnet" platform: "onnx" max_batch_size: 8
				input { name: "a" data_type: TYPE_STRING dims: [3, -1] } output { name: "b" data_type: TYPE_FP16 dims: 2 } output { name: "c" data_type: 99 }
				model_transaction_policy { decoupled: true } parameters { key: "k" value { string_value: "v" } }`)),
			`name: "resnet" versions: "1" platform: "onnx" inputs { name: "a" datatype: "BYTES" shape: [-1, 3, -1] }
			outputs { name: "b" datatype: "FP16" shape: [-1, 2] } outputs { name: "c" datatype: "INVALID" shape: -1 }`,
			`name: "resnet" platform: "onnx" max_batch_size: 8
			input { name: "a" data_type: TYPE_STRING dims: [3, -1] } output { name: "b" data_type: TYPE_FP16 dims: 2 } output { name: "c" data_type: 99 }
			model_transaction_policy { decoupled: true } parameters { key: "k" value { string_value: "v" } }`,
		},
		{
			"Triton's, that says little", tensorCard(encoded(t, `backend: "python"`)),
			`name: "m" versions: "1"`, `backend: "python"`,
		},
	} {
		metadata, err := kserve.Metadata("m", c.card)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(parsed[inferencepb.ModelMetadataResponse](t, c.metadata), metadata, protocmp.Transform()); diff != "" {
			t.Errorf("%s: metadata (-want +got):\n%s", c.name, diff)
		}
		config, err := kserve.Config("m", c.card)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(parsed[inferencepb.ModelConfig](t, c.config), config, protocmp.Transform()); diff != "" {
			t.Errorf("%s: config (-want +got):\n%s", c.name, diff)
		}
	}
}

// A configuration of Triton is worth more than what stands beside it.
func TestTritonConfigFirst(t *testing.T) {
	card := tensorCard(encoded(t, `name: "theirs"`))
	card.Tensor.Name, card.Tensor.Inputs = "ours", []engine.TensorSpec{{Name: "x", Datatype: "INT8"}}
	m, err := kserve.Metadata("m", card)
	if err != nil || m.Name != "theirs" || len(m.Inputs) != 0 {
		t.Errorf("metadata is %v, %v", m, err)
	}
}

// What we do not know of a configuration goes out as it came in, too.
func TestUnknownFieldsSurvive(t *testing.T) {
	in := parsed[inferencepb.ModelConfig](t, `name: "m" input { name: "x" data_type: TYPE_INT8 }`)
	in.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 5))
	in.Input[0].ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 78, protowire.BytesType), "new"))
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	config, err := kserve.Config("m", tensorCard(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(config)
	if err != nil || string(out) != string(b) {
		t.Errorf("%x has become %x, %v", b, out, err)
	}
}

// What is told may be changed by who is told.
func TestConfigIsTheCallers(t *testing.T) {
	card := accepting(engine.InputTensor)
	card.Tensor = &engine.TensorConfig{Inputs: []engine.TensorSpec{{Name: "x", Datatype: "INT8", Shape: []int64{1}}}}
	config, err := kserve.Config("m", card)
	if err != nil {
		t.Fatal(err)
	}
	config.Input[0].Dims[0] = 9
	if card.Tensor.Inputs[0].Shape[0] != 1 {
		t.Error("the card has changed with it")
	}
}

func TestModelsThatAreNotDescribed(t *testing.T) {
	for _, c := range []struct {
		name string
		card *engine.Card
		kind engine.ErrorKind
		want string
	}{
		{"unknown", nil, engine.NotFound, "Model 'm' not found"},
		{"hidden", accepting("images"), engine.NotFound, "Model 'm' not found"},
		{"no config", accepting(engine.InputTensor), engine.InvalidArgument, "Model 'm' has type Tensor but: no model config is provided"},
		{"empty config", tensorCard(nil), engine.InvalidArgument, "Model 'm' has type Tensor but: no model config is provided"},
		{"garbage", tensorCard([]byte("\xff\xff")), engine.InvalidArgument, "Model 'm' has type Tensor but: failed to decode Protobuf message"},
	} {
		_, one := kserve.Metadata("m", c.card)
		_, two := kserve.Config("m", c.card)
		for _, err := range []error{one, two} {
			if engine.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q of kind %s", c.name, err, c.want, c.kind)
			}
		}
	}
}

func TestIndex(t *testing.T) {
	models := []kserve.Model{
		{Name: "a", Card: accepting(engine.InputTokens), Ready: true, Reason: "left over"},
		{Name: "b", Card: accepting(engine.InputTensor), Reason: "loading"},
		{Name: "c", Card: accepting("images"), Ready: true},
		{Name: "d", Ready: true},
	}
	for _, c := range []struct{ request, want string }{
		{``, `models { name: "a" version: "1" state: "READY" } models { name: "b" version: "1" state: "UNAVAILABLE" reason: "loading" }`},
		{`ready: true`, `models { name: "a" version: "1" state: "READY" }`},
	} {
		list, err := kserve.Index(models, parsed[inferencepb.RepositoryIndexRequest](t, c.request))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed[inferencepb.RepositoryIndexResponse](t, c.want), list, protocmp.Transform()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.request, diff)
		}
	}
	_, err := kserve.Index(models, &inferencepb.RepositoryIndexRequest{RepositoryName: "r"})
	if engine.KindOf(err) != engine.Unsupported || !strings.Contains(err.Error(), "'repository_name' specification is not supported") {
		t.Errorf("a repository by name: %v", err)
	}
}

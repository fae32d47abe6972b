package kserve_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/openai"
)

// Whatever a client sends is refused, or comes back as it was from a worker that
// echoes it.
func FuzzFromProto(f *testing.F) {
	for _, c := range datatypes {
		said := `model_name: "m" id: "7" parameters { key: "k" value { double_param: 1 } } inputs { name: "x" datatype: "` + c.datatype + `" shape: ` + c.shape
		for _, text := range []string{said + ` contents { ` + c.contents + ` } }`, said + ` } raw_input_contents: ` + octets(c.data)} {
			b, err := proto.Marshal(parsed[inferencepb.ModelInferRequest](f, text))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &inferencepb.ModelInferRequest{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		r, err := kserve.FromProto(m)
		if err != nil {
			told(t, err)
			return
		}
		if c, err := kserve.DecodeCompletion(r, openai.Options{}); err != nil {
			told(t, err)
		} else if c.Chat == nil {
			t.Error("a completion without a conversation")
		}
		in, err := r.Tensors()
		if err != nil {
			told(t, err)
			return
		}
		for i := range in.Inputs {
			if err := in.Inputs[i].Check(); err != nil {
				t.Errorf("taken, but: %v", err)
			}
		}
		r.Outputs = nil
		for _, raw := range []bool{false, true} {
			echoed(t, r, in, raw)
		}
	})
}

// told checks that a client can be told of an error.
func told(t *testing.T, err error) {
	t.Helper()
	if engine.KindOf(err) != engine.InvalidArgument || err.Error() == "" {
		t.Errorf("%v is of kind %s", err, engine.KindOf(err))
	}
}

// echoed sends tensors back in a form and reads them again.
func echoed(t *testing.T, r *kserve.Request, in *engine.TensorRequest, raw bool) {
	t.Helper()
	m, err := kserve.ToProto(r.FromTensors(&engine.TensorResponse{Outputs: in.Inputs, Parameters: in.Parameters}), raw)
	if err != nil {
		t.Fatalf("an echo is no response: %v", err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("a response is no message: %v", err)
	}
	out := &inferencepb.ModelInferResponse{}
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	again := &inferencepb.ModelInferRequest{RawInputContents: out.RawOutputContents, Parameters: out.Parameters}
	for _, o := range out.Outputs {
		again.Inputs = append(again.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{
			Name: o.Name, Datatype: o.Datatype, Shape: o.Shape, Parameters: o.Parameters, Contents: o.Contents,
		})
	}
	back, err := kserve.FromProto(again)
	if err != nil {
		t.Fatalf("an echo is no request: %v", err)
	}
	tensors, err := back.Tensors()
	if err != nil {
		t.Fatalf("an echo is no request: %v", err)
	}
	if len(tensors.Parameters) != len(in.Parameters) {
		t.Errorf("parameters %v have become %v", in.Parameters, tensors.Parameters)
	}
	for i := range in.Inputs {
		if a, b := in.Inputs[i], tensors.Inputs[i]; a.Name != b.Name || !bytes.Equal(a.Data, b.Data) || len(a.Parameters) != len(b.Parameters) {
			t.Errorf("%v has become %v", a, b)
		}
	}
}

// A configuration that a worker registers is whatever bytes it likes.
func FuzzTritonConfig(f *testing.F) {
	f.Add([]byte("\x0a\x01m\x2a\x05\x0a\x01x\x10\x0d"))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		card := tensorCard(b)
		config, err := kserve.Config("m", card)
		metadata, also := kserve.Metadata("m", card)
		if err != nil {
			told(t, err)
			told(t, also)
			return
		}
		if len(metadata.Inputs) != len(config.Input) || len(metadata.Outputs) != len(config.Output) || metadata.Name == "" {
			t.Errorf("%v is described as %v", config, metadata)
		}
		before := &inferencepb.ModelConfig{}
		if proto.Unmarshal(b, before) == nil && !proto.Equal(before, config) {
			t.Errorf("%x has become %v", b, config)
		}
	})
}

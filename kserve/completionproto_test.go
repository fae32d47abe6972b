package kserve_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/openai"
)

type (
	input    = inferencepb.ModelInferRequest_InferInputTensor
	contents = inferencepb.InferTensorContents
)

// What is wrong with the inputs that every model of text has is said in the words of
// such models, in either form of a message.
func TestRefusedMessagesForText(t *testing.T) {
	text := func(datatype string, c *contents, shape ...int64) *input {
		return &input{Name: "text_input", Datatype: datatype, Shape: shape, Contents: c}
	}
	stream := func(name, datatype string, c *contents, shape ...int64) *input {
		return &input{Name: name, Datatype: datatype, Shape: shape, Contents: c}
	}
	one := &contents{BytesContents: [][]byte{[]byte("a")}}
	good := text("BYTES", one, 1)
	const prompt = "\x01\x00\x00\x00a"
	for _, tc := range []struct {
		inputs []*input
		raw    []string
		text   string
	}{
		{nil, nil, "Missing required input: 'text_input'"},
		{[]*input{text("FP32", one, 1)}, nil, "Expected 'text_input' to be of type BYTES for string input, got FP32"},
		{[]*input{text("STRING", one, 1)}, nil, "Expected 'text_input' to be of type BYTES for string input, got STRING"},
		{[]*input{text("BYTES", one, 2)}, nil, "Expected 'text_input' to have shape [1], got [2]"},
		{[]*input{text("BYTES", &contents{}, 1)}, nil, "'text_input' must contain exactly one element"},
		{[]*input{text("BYTES", nil, 1)}, nil, "unable to find data for input tensor 'text_input'"},
		{[]*input{good, good}, nil, "Duplicate input name: 'text_input'"},
		{[]*input{good, stream("streaming", "INT8", &contents{IntContents: []int32{1}}, 1)}, nil, "Expected 'streaming' to be of type BOOL, got INT8"},
		{[]*input{good, stream("stream", "BOOL", &contents{BoolContents: []bool{true}}, 2)}, nil, "Expected 'stream' to have shape [1], got [2]"},
		{[]*input{good, stream("stream", "BOOL", &contents{}, 1)}, nil, "'stream' must contain exactly one element"},
		{[]*input{good, stream("max_tokens", "INT32", &contents{}, 1)}, nil, "Invalid input name: max_tokens, supported inputs are 'text_input', 'stream'"},
		{[]*input{good, stream("return_num_input_tokens", "BOOL", &contents{}, 1)}, nil, "input tensor 'return_num_input_tokens': shape implies 1 elements but data has 0"},

		{[]*input{text("BYTES", nil, 1)}, []string{"abc"}, "'text_input' raw input must be length-prefixed (>= 4 bytes)"},
		{[]*input{text("BYTES", nil, 1)}, []string{"\x02\x00\x00\x00a"}, "Invalid length-prefixed BYTES input for 'text_input', length exceeds raw input size"},
		{[]*input{text("BYTES", nil, 1)}, []string{prompt + "b"}, "Invalid length-prefixed BYTES input for 'text_input', extra bytes at the end"},
		{[]*input{text("BYTES", nil, 1)}, []string{prompt + prompt}, "Raw input element count for 'text_input' does not match expected size, expected 1 elements, got 2 elements"},
		{[]*input{text("FP32", nil, 1)}, []string{"abc"}, "Expected 'text_input' to be of type BYTES for string input, got FP32"},
		{[]*input{text("BYTES", nil, 2)}, []string{prompt}, "Expected 'text_input' to have shape [1], got [2]"},
		{[]*input{text("BYTES", one, 1)}, []string{prompt}, "contents of input tensor 'text_input' must not be given"},
		{[]*input{text("BYTES", nil, 1), stream("stream", "BOOL", nil, 1)}, []string{prompt, ""}, "'stream' raw input must contain at least one byte"},
		{[]*input{text("BYTES", nil, 1), stream("stream", "BOOL", nil, 1)}, []string{prompt, "\x01\x00"}, "Raw input element count for 'stream' does not match"},
		{[]*input{text("BYTES", nil, 1), stream("stream", "BOOL", nil, 1)}, []string{prompt}, "`raw_input_contents` must be used for all inputs"},
	} {
		m := &inferencepb.ModelInferRequest{ModelName: "tiny", Inputs: tc.inputs}
		for _, data := range tc.raw {
			m.RawInputContents = append(m.RawInputContents, []byte(data))
		}
		_, err := kserve.CompletionFromProto(m, openai.Options{})
		if err == nil || !strings.Contains(err.Error(), "Failed to parse request: "+tc.text) {
			t.Errorf("want %q, got %v", tc.text, err)
		}
	}
}

// A message in either form is the same call, and its answer goes out in that form.
func TestMessagesOfModelsOfText(t *testing.T) {
	shape := []int64{1}
	for _, raw := range []bool{false, true} {
		m := &inferencepb.ModelInferRequest{ModelName: "tiny", Id: "0", Inputs: []*input{
			{Name: "text_input", Datatype: "BYTES", Shape: []int64{1, 1}}, {Name: "stream", Datatype: "BOOL", Shape: shape},
		}}
		if raw {
			m.RawInputContents = [][]byte{[]byte("\x03\x00\x00\x00a\x00b"), {7}}
		} else {
			m.Inputs[0].Contents = &contents{BytesContents: [][]byte{[]byte("a\x00b")}}
			m.Inputs[1].Contents = &contents{BoolContents: []bool{true}}
		}
		c, err := kserve.CompletionFromProto(m, openai.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Raw != raw || !c.Stream || c.Chat.Prompt.Text != "a\uFFFDb" {
			t.Errorf("%+v", c)
		}
		whole, err := c.Fold(stream(nil, river...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := kserve.ToProto(whole, c.Raw)
		if err != nil {
			t.Fatal(err)
		}
		tokens := func(n int64) *inferencepb.InferParameter {
			return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: n}}
		}
		want := &inferencepb.ModelInferResponse{
			ModelName: "tiny", ModelVersion: "1", Id: "0",
			Parameters: map[string]*inferencepb.InferParameter{"prompt_tokens": tokens(4), "completion_tokens": tokens(5)},
			Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{
				{Name: "text_output", Datatype: "BYTES", Shape: shape}, {Name: "finish_reason", Datatype: "BYTES", Shape: shape},
			},
		}
		if raw {
			want.RawOutputContents = [][]byte{[]byte("\x11\x00\x00\x00Rhine, Elbe, Oder"), []byte("\x04\x00\x00\x00stop")}
		} else {
			want.Outputs[0].Contents = &contents{BytesContents: [][]byte{[]byte("Rhine, Elbe, Oder")}}
			want.Outputs[1].Contents = &contents{BytesContents: [][]byte{[]byte("stop")}}
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

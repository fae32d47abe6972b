package kserve_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/openai"
)

func TestFromGenerate(t *testing.T) {
	for name, tc := range map[string]struct {
		body     string
		streamed bool
		want     *kserve.Request
	}{
		"a prompt": {`{"text_input":"a"}`, false, &kserve.Request{Inputs: []engine.Tensor{texts("text_input", "a")}}},
		"all places": {
			`{"id":"x","text_input":"a","stream":false,"max_tokens":5,"parameters":{"temperature":0.5,"seed":18446744073709551615,"ignore_eos":true,"exclude_input_in_output":true}}`, true,
			&kserve.Request{
				ID:         "x",
				Inputs:     []engine.Tensor{texts("text_input", "a"), flag("stream", false), flag("exclude_input_in_output", true)},
				Parameters: engine.Parameters{"max_tokens": int64(5), "temperature": 0.5, "seed": uint64(1<<64 - 1), "ignore_eos": true},
			},
		},
		"in pieces unless it says otherwise": {
			`{"text_input":"a","id":7,"parameters":null}`, true,
			&kserve.Request{ID: "7", Inputs: []engine.Tensor{texts("text_input", "a"), flag("streaming", true)}},
		},
		"objects": {
			`{"text_input":"a","sampling_parameters":{"top_k":2},"nvext":{"agent_hints":{"osl":1}},"stop":["a","b"],"seed":null}`, false,
			&kserve.Request{
				Inputs:     []engine.Tensor{texts("text_input", "a"), texts("sampling_parameters", `{"top_k":2}`)},
				Parameters: engine.Parameters{"nvext": `{"agent_hints":{"osl":1}}`, "stop": `["a","b"]`},
			},
		},
		"the last counts": {
			`{"text_input":"a","n":1,"parameters":{"n":2,"text_input":"b"}}`, false,
			&kserve.Request{Inputs: []engine.Tensor{texts("text_input", "b")}, Parameters: engine.Parameters{"n": int64(2)}},
		},
		"raw line ends": {"{\"text_input\":\"a\nb\"}", false, &kserve.Request{Inputs: []engine.Tensor{texts("text_input", "a\nb")}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kserve.FromGenerate([]byte(tc.body), "tiny", "1", tc.streamed)
			tc.want.Model, tc.want.Version = "tiny", "1"
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(kserve.Request{})); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestRefusedGenerate(t *testing.T) {
	for body, text := range map[string]string{
		``:                                   "the JSON text ends too early",
		`{"text_input":"a"`:                  "the JSON text ends too early",
		`[]`:                                 "expected an object, got an array",
		`{} {}`:                              "more than one JSON value in the body",
		`{"text_input":1}`:                   "text_input: expected a string, got a number",
		`{"text_input":"a","stream":"yes"}`:  "stream: expected a boolean, got a string",
		`{"text_input":"a","parameters":[]}`: "parameters: expected an object, got an array",
		`{"text_input":"a","parameters":{"n":1e999}}`: "parameters.n: number 1e999 is out of range",
		`{"text_input":"a","id":true}`:                "id: expected a string, got a boolean",
		`{"text_input":"a","sampling_parameters":[]}`: "sampling_parameters: expected a string, got an array",
	} {
		_, err := kserve.FromGenerate([]byte(body), "tiny", "", false)
		e, ok := errors.AsType[*engine.Error](err)
		if !ok || e.Kind != engine.InvalidArgument || e.Message != "Failed to parse request: "+text {
			t.Errorf("%s: %v, want %q", body, err, text)
		}
	}
}

func TestAppendGenerated(t *testing.T) {
	got := string(kserve.AppendGenerated(nil, response(
		engine.Parameters{"prompt_tokens": int64(4), "nvext": `{"stop_reason":"x"}`},
		texts("text_output", "a\n\"b\""), texts("finish_reason", "stop"), numbers("num_output_tokens", 3))))
	want := `{"id":"job-7","model_name":"tiny","model_version":"1","text_output":"a\n\"b\"","finish_reason":"stop","num_output_tokens":3,"nvext":{"stop_reason":"x"},"prompt_tokens":4}`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	got = string(kserve.AppendGenerated([]byte("data: "), &kserve.Response{
		Model: "tiny", Version: "1", Outputs: []engine.Tensor{texts("text_output", "a", ""), numbers("num_output_tokens", 3, 0)},
	}))
	if want = `data: {"model_name":"tiny","model_version":"1","text_output":["a",""],"num_output_tokens":[3,0]}`; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// What can be read makes a call or a refusal, and its answer is JSON.
func FuzzFromGenerate(f *testing.F) {
	for _, body := range []string{
		`{"text_input":"a","stream":true,"parameters":{"temperature":0.5,"stop":["a"],"nvext":{}}}`,
		`{"id":1,"text_input":"\u0000","sampling_parameters":{"n":"2"},"max_tokens":1}`, "{\"text_input\":\"a\n\"}", `[`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := kserve.FromGenerate(body, "tiny", "", true)
		if err != nil {
			e, ok := errors.AsType[*engine.Error](err)
			if r != nil || !ok || e.Kind != engine.InvalidArgument || !strings.HasPrefix(e.Message, "Failed to parse request: ") {
				t.Fatalf("%+v, %v", r, err)
			}
			return
		}
		c, err := kserve.DecodeCompletion(r, openai.Options{})
		if err != nil {
			return
		}
		whole, err := c.Fold(stream(nil, river...))
		if err != nil {
			t.Fatal(err)
		}
		if out := kserve.AppendGenerated(nil, whole); !json.Valid(out) {
			t.Fatalf("%s", out)
		}
	})
}

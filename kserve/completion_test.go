package kserve_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/openai"
)

// texts returns an input or an output of texts.
func texts(name string, elements ...string) engine.Tensor {
	t := engine.Tensor{Name: name, Datatype: "BYTES", Shape: []int64{int64(len(elements))}}
	for _, e := range elements {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(len(e)))
		t.Data = append(t.Data, e...)
	}
	return t
}

func flag(name string, value bool) engine.Tensor {
	t := engine.Tensor{Name: name, Datatype: "BOOL", Shape: []int64{1}, Data: []byte{0}}
	if value {
		t.Data[0] = 1
	}
	return t
}

func numbers(name string, elements ...uint32) engine.Tensor {
	t := engine.Tensor{Name: name, Datatype: "UINT32", Shape: []int64{int64(len(elements))}}
	for _, e := range elements {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, e)
	}
	return t
}

// asks is a call with a prompt, and with what else is given: inputs, parameters, or
// outputs by name.
func asks(more ...any) *kserve.Request {
	r := &kserve.Request{ID: "job-7", Model: "tiny", Inputs: []engine.Tensor{texts("text_input", "Name three rivers")}}
	for _, m := range more {
		switch m := m.(type) {
		case engine.Tensor:
			r.Inputs = append(r.Inputs, m)
		case engine.Parameters:
			r.Parameters = m
		case string:
			r.Outputs = append(r.Outputs, kserve.Wanted{Name: m})
		}
	}
	return r
}

func decoded(t *testing.T, r *kserve.Request, o openai.Options) *kserve.Completion {
	t.Helper()
	c, err := kserve.DecodeCompletion(r, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stream is an answer of these events, and then the error, if it is one.
func stream(err error, events ...chat.Event) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(chat.Event{}, err)
		}
	}
}

func begins(choice, prompt int) chat.Event {
	return chat.Event{Kind: chat.Start, Choice: choice, Usage: chat.Usage{Prompt: prompt}}
}

func opens(choice int) chat.Event {
	return chat.Event{Kind: chat.BlockStart, Choice: choice, BlockKind: chat.Text}
}

func says(choice int, text string, ids ...uint32) chat.Event {
	return chat.Event{Kind: chat.TextDelta, Choice: choice, Text: text, IDs: ids}
}

func closes(choice int) chat.Event { return chat.Event{Kind: chat.BlockStop, Choice: choice} }

func ends(choice int, reason chat.FinishReason, prompt, output int) chat.Event {
	return chat.Event{Kind: chat.Finished, Choice: choice, Finish: chat.Finish{Reason: reason}, Usage: chat.Usage{Prompt: prompt, Output: output}}
}

func last(e chat.Event) chat.Event {
	e.Last = true
	return e
}

func collect(events iter.Seq2[*kserve.Response, error]) (all []*kserve.Response, err error) {
	for r, e := range events {
		if e != nil {
			return all, e
		}
		all = append(all, r)
	}
	return all, nil
}

func used(prompt, output int64) engine.Parameters {
	return engine.Parameters{"prompt_tokens": prompt, "completion_tokens": output}
}

func TestSamplingOfCalls(t *testing.T) {
	sampling := func(members string) engine.Tensor { return texts("sampling_parameters", members) }
	same := func(want chat.Sampling) func(*testing.T, *kserve.Completion) {
		return func(t *testing.T, c *kserve.Completion) {
			t.Helper()
			if diff := cmp.Diff(want, c.Chat.Sampling); diff != "" {
				t.Error(diff)
			}
		}
	}
	for name, tc := range map[string]struct {
		call  *kserve.Request
		check func(*testing.T, *kserve.Completion)
	}{
		"nothing": {asks(), same(chat.Sampling{})},
		"integers": {
			asks(engine.Parameters{"max_tokens": int64(5), "min_tokens": uint64(2), "top_k": "40", "seed": int64(-9), "n": float64(3)}),
			same(chat.Sampling{MaxTokens: new(5), MinTokens: 2, TopK: new(40), Seed: new(int64(-9)), N: 3}),
		},
		"numbers": {
			asks(engine.Parameters{
				"temperature": 0.5, "top_p": "0.9", "min_p": int64(0), "presence_penalty": -0.5, "frequency_penalty": " 1 ", "repetition_penalty": uint64(2),
			}),
			same(chat.Sampling{
				Temperature: new(0.5), TopP: new(0.9), MinP: new(0.0), PresencePenalty: new(-0.5), FrequencyPenalty: new(1.0), RepetitionPenalty: new(2.0),
			}),
		},
		"explicit zero":          {asks(engine.Parameters{"temperature": int64(0)}), same(chat.Sampling{Temperature: new(0.0)})},
		"end of sequence":        {asks(engine.Parameters{"ignore_eos": true}), same(chat.Sampling{IgnoreEOS: true})},
		"end of sequence, named": {asks(engine.Parameters{"ignore_eos": "True"}), same(chat.Sampling{IgnoreEOS: true})},
		"stop":                   {asks(engine.Parameters{"stop": "END"}), same(chat.Sampling{Stop: []string{"END"}})},
		"stops":                  {asks(engine.Parameters{"stop": `["a", "b\n"]`}), same(chat.Sampling{Stop: []string{"a", "b\n"}})},
		"bracket":                {asks(engine.Parameters{"stop": `[INST]`}), same(chat.Sampling{Stop: []string{"[INST]"}})},
		"numbers are no stops":   {asks(engine.Parameters{"stop": `[1, 2]`}), same(chat.Sampling{Stop: []string{"[1, 2]"}})},
		"members": {
			asks(sampling(`{"max_tokens":7,"temperature":"0.1","top_p":"0.95","ignore_eos":"true","stop":["x"],"stop_token_ids":[3],"skip_special_tokens":"false","logit_bias":{"5":-100}}`)),
			same(chat.Sampling{
				MaxTokens: new(7), Temperature: new(0.1), TopP: new(0.95), IgnoreEOS: true, Stop: []string{"x"}, StopIDs: []uint32{3},
				KeepSpecial: true, LogitBias: map[uint32]float64{5: -100},
			}),
		},
		"parameters win": {
			asks(sampling(`{"max_tokens":7,"seed":1}`), engine.Parameters{"max_tokens": int64(8)}),
			same(chat.Sampling{MaxTokens: new(8), Seed: new(int64(1))}),
		},
		"no log probabilities": {asks(sampling(`{"logprobs":2}`)), same(chat.Sampling{})},
		"reserved and strange": {
			asks(engine.Parameters{
				"priority": uint64(1), "sequence_start": true, "headers": "x", "binary_data_output": true, "triton_enable_empty_final_response": true,
				"max_new_tokens": int64(3), "model": "other", "prompt": "other", "echo": true, "stream": true,
			}),
			func(t *testing.T, c *kserve.Completion) {
				same(chat.Sampling{})(t, c)
				if want := []string{"parameters.echo", "parameters.max_new_tokens", "parameters.model", "parameters.priority", "parameters.prompt", "parameters.stream"}; !cmp.Equal(c.Unknown, want) {
					t.Errorf("passed over: %q", c.Unknown)
				}
				if c.Model != "tiny" || c.Stream || c.Ext != nil || c.Chat.Prompt.Echo || c.Chat.Prompt.Text != "Name three rivers" {
					t.Errorf("%+v", c)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t, decoded(t, tc.call, openai.Options{RejectUnknown: true})) })
	}
}

// What is passed over is listed for the log, which has room for so much.
func TestUnknownOfCalls(t *testing.T) {
	many := engine.Parameters{}
	for i := range 100 {
		many[fmt.Sprint("p", i)] = true
	}
	if n := len(decoded(t, asks(many), openai.Options{}).Unknown); n != 32 {
		t.Errorf("%d names are listed", n)
	}
	c := decoded(t, asks(engine.Parameters{"\x00": true, "nvext": `{"later":1}`}, texts("sampling_parameters", `{"use_beam_search":false}`)), openai.Options{})
	if want := []string{"parameters.\uFFFD", "use_beam_search", "nvext.later"}; !cmp.Equal(c.Unknown, want) {
		t.Errorf("passed over: %q", c.Unknown)
	}
}

func TestCallsOfModelsOfText(t *testing.T) {
	c := decoded(t, asks(), openai.Options{})
	if c.ID != "job-7" || c.Model != "tiny" || c.Stream || c.Ext != nil || c.Timeout != 0 || c.SequenceID != "" || c.SequenceEnd {
		t.Errorf("%+v", c)
	}
	if r := c.Chat; r.API != chat.APIKServe || r.Model != "tiny" || !cmp.Equal(*r.Prompt, chat.Prompt{Text: "Name three rivers"}) {
		t.Errorf("%+v", r)
	}
	for name, tc := range map[string]struct {
		call  *kserve.Request
		holds func(*kserve.Completion) bool
	}{
		"streaming":           {asks(flag("streaming", true)), func(c *kserve.Completion) bool { return c.Stream }},
		"stream":              {asks(flag("stream", true)), func(c *kserve.Completion) bool { return c.Stream }},
		"not streaming":       {asks(flag("stream", false)), func(c *kserve.Completion) bool { return !c.Stream }},
		"the input is wanted": {asks(flag("exclude_input_in_output", false)), func(c *kserve.Completion) bool { return c.Chat.Prompt.Echo }},
		"and not":             {asks(texts("sampling_parameters", `{"echo":true}`), flag("exclude_input_in_output", true)), func(c *kserve.Completion) bool { return !c.Chat.Prompt.Echo }},
		"or by its own name":  {asks(texts("sampling_parameters", `{"echo":"true"}`)), func(c *kserve.Completion) bool { return c.Chat.Prompt.Echo }},
		"timeout":             {asks(engine.Parameters{"timeout": int64(1500)}), func(c *kserve.Completion) bool { return c.Timeout == 1500*time.Microsecond }},
		"endless timeout":     {asks(engine.Parameters{"timeout": uint64(1 << 62)}), func(c *kserve.Completion) bool { return c.Timeout > time.Hour*24*365*290 }},
		"sequence":            {asks(engine.Parameters{"sequence_id": int64(-12), "sequence_end": true}), func(c *kserve.Completion) bool { return c.SequenceID == "-12" && c.SequenceEnd }},
		"large sequence":      {asks(engine.Parameters{"sequence_id": uint64(1<<64 - 1)}), func(c *kserve.Completion) bool { return c.SequenceID == "18446744073709551615" }},
		"named sequence":      {asks(engine.Parameters{"sequence_id": "a/b"}), func(c *kserve.Completion) bool { return c.SequenceID == "a/b" }},
		"no sequence":         {asks(engine.Parameters{"sequence_id": int64(0)}), func(c *kserve.Completion) bool { return c.SequenceID == "" }},
		"cache key":           {asks(texts("sampling_parameters", `{"prompt_cache_key":"k"}`)), func(c *kserve.Completion) bool { return c.PromptCacheKey == "k" }},
		"a batch of one": {
			&kserve.Request{Model: "tiny", Inputs: []engine.Tensor{{Name: "text_input", Datatype: "BYTES", Shape: []int64{1, 1}, Data: []byte("\x01\x00\x00\x00a")}}},
			func(c *kserve.Completion) bool { return c.Chat.Prompt.Text == "a" },
		},
		"bad units": {
			&kserve.Request{Model: "tiny", Inputs: []engine.Tensor{texts("text_input", "a\x00b\xff\xfec")}},
			func(c *kserve.Completion) bool { return c.Chat.Prompt.Text == "a\uFFFDb\uFFFD\uFFFDc" },
		},
		"nothing that need be refused": {
			asks(flag("return_logprobs", false), flag("return_cumulative_logprob", false), flag("return_finish_reason", false)),
			func(c *kserve.Completion) bool { return true },
		},
		"the model of the operator": {
			&kserve.Request{Inputs: []engine.Tensor{texts("text_input", "a")}},
			func(c *kserve.Completion) bool { return c.Model == "usual" && c.Chat.Model == "usual" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c := decoded(t, tc.call, openai.Options{DefaultModel: "usual"}); !tc.holds(c) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// What is refused of sampling names its member.
func TestRefusedMembers(t *testing.T) {
	for name, call := range map[string]*kserve.Request{
		"temperature":           asks(engine.Parameters{"temperature": int64(3)}),
		"max_tokens":            asks(texts("sampling_parameters", `{"max_tokens":1.5}`)),
		"nvext.agent_hints.osl": asks(engine.Parameters{"nvext": `{"agent_hints":{"osl":-1}}`}),
	} {
		_, err := kserve.DecodeCompletion(call, openai.Options{})
		if e, ok := errors.AsType[*engine.Error](err); !ok || e.Param != name {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

func TestRefusedCalls(t *testing.T) {
	only := func(inputs ...engine.Tensor) *kserve.Request { return &kserve.Request{Model: "tiny", Inputs: inputs} }
	shaped := func(t engine.Tensor, shape ...int64) engine.Tensor {
		t.Shape = shape
		return t
	}
	typed := func(t engine.Tensor, datatype string) engine.Tensor {
		t.Datatype = datatype
		return t
	}
	for _, tc := range []struct {
		call *kserve.Request
		text string
	}{
		{only(), "Missing required input: 'text_input'"},
		{only(flag("stream", true)), "Missing required input: 'text_input'"},
		{only(typed(texts("text_input", "a"), "FP32")), "Expected 'text_input' to be of type BYTES for string input, got FP32"},
		{only(texts("text_input", "a", "b")), "Expected 'text_input' to have shape [1], got [2]"},
		{only(shaped(texts("text_input", "a"), 1, 1, 1)), "Expected 'text_input' to have shape [1], got [1, 1, 1]"},
		{only(shaped(texts("text_input", "a"))), "Expected 'text_input' to have shape [1], got []"},
		{only(shaped(texts("text_input"), 1)), "'text_input' must contain exactly one element"},
		{only(shaped(texts("text_input", "a", "b"), 1)), "'text_input' must contain exactly one element"},
		{only(texts("text_input", "")), "Prompt string cannot be empty"},
		{asks(typed(flag("streaming", true), "INT8")), "Expected 'streaming' to be of type BOOL, got INT8"},
		{asks(shaped(flag("stream", true), 1, 1)), "Expected 'stream' to have shape [1], got [1, 1]"},
		{asks(shaped(engine.Tensor{Name: "stream", Datatype: "BOOL"}, 1)), "'stream' must contain exactly one element"},
		{asks(texts("max_tokens", "a")), "Invalid input name: max_tokens, supported inputs are 'text_input', 'stream'"},
		{asks(texts("image", "a")), "'image' is not supported"},
		{asks(flag("return_logprobs", true)), "'return_logprobs' is not supported"},
		{asks(flag("return_cumulative_logprob", true)), "'return_cumulative_logprob' is not supported"},
		{asks(texts("return_num_input_tokens", "a")), "Expected 'return_num_input_tokens' to be of type BOOL, got BYTES"},
		{asks(shaped(flag("exclude_input_in_output", true), 2)), "'exclude_input_in_output' must contain exactly one element, got shape [2]"},
		{asks(flag("sampling_parameters", true)), "Expected 'sampling_parameters' to be of type BYTES, got BOOL"},
		{asks(texts("sampling_parameters", "{}", "{}")), "'sampling_parameters' must contain exactly one element, a JSON object"},
		{asks(texts("sampling_parameters", "temperature=1")), "sampling_parameters: expected a JSON object: "},
		{asks(texts("sampling_parameters", `["a"]`)), "sampling_parameters: expected a JSON object, got an array"},
		{asks(texts("sampling_parameters", `{} {}`)), "sampling_parameters: expected one JSON object, and nothing behind it"},
		{asks(texts("sampling_parameters", `{"max_tokens":1`)), "sampling_parameters: expected a JSON object: the JSON text ends too early"},
		{asks(texts("sampling_parameters", `{"prompt":"b"}`)), "sampling_parameters: 'prompt' does not belong here"},
		{asks(texts("sampling_parameters", `{"prompt_embeds":"b"}`)), "sampling_parameters: 'prompt_embeds' does not belong here"},
		{asks(texts("sampling_parameters", `{"model":"b"}`)), "sampling_parameters: 'model' does not belong here"},
		{asks(texts("sampling_parameters", `{"user":"b"}`)), "sampling_parameters: 'user' does not belong here"},
		{asks(texts("sampling_parameters", `{"stream":true}`)), "sampling_parameters: 'stream' does not belong here"},
		{asks(texts("sampling_parameters", `{"stream_options":{}}`)), "sampling_parameters: 'stream_options' does not belong here"},
		{asks(texts("sampling_parameters", `{"temperature":"hot"}`)), "temperature: expected a number, got a string"},
		{asks(texts("sampling_parameters", `{"use_beam_search":true}`)), "Unsupported parameter(s): `use_beam_search`"},
		{asks(texts("sampling_parameters", `{"max_tokens":0}`)), "Max tokens must be greater than 0, got 0"},
		{asks(engine.Parameters{"temperature": int64(3)}), "Temperature must be between 0 and 2, got 3"},
		{asks(engine.Parameters{"temperature": "warm"}), `parameter 'temperature' must be a number, or a decimal number in a string, got the string "warm"`},
		{asks(engine.Parameters{"temperature": true}), "parameter 'temperature' must be a number, or a decimal number in a string, got true"},
		{asks(engine.Parameters{"temperature": math.NaN()}), "parameter 'temperature' must be a finite number"},
		{asks(engine.Parameters{"temperature": math.Inf(-1)}), "parameter 'temperature' must be a finite number"},
		{asks(engine.Parameters{"max_tokens": 1.5}), "max_tokens: expected an integer, got 1.5"},
		{asks(engine.Parameters{"max_tokens": uint64(1 << 63)}), "max_tokens: expected an integer, got 9223372036854775808"},
		{asks(engine.Parameters{"top_p": 0.0}), "Top_p must be between 0 and 1, got 0"},
		{asks(engine.Parameters{"n": int64(129)}), "n must be between 1 and 128, got 129"},
		{asks(engine.Parameters{"n": int64(2), "temperature": int64(0)}), "When n > 1, temperature must be greater than 0"},
		{asks(engine.Parameters{"min_tokens": int64(9), "max_tokens": int64(8)}), "min_tokens must be less than or equal to max_tokens"},
		{asks(engine.Parameters{"ignore_eos": int64(1)}), "parameter 'ignore_eos' must be true or false, got 1"},
		{asks(engine.Parameters{"stop": int64(1)}), "parameter 'stop' must be a string, or a JSON array of strings in a string, got 1"},
		{asks(engine.Parameters{"stop": ""}), "Stop sequence cannot be empty"},
		{asks(engine.Parameters{"timeout": int64(-1)}), "parameter 'timeout' must be a number of microseconds, got -1"},
		{asks(engine.Parameters{"timeout": "soon"}), `parameter 'timeout' must be a number of microseconds, got the string "soon"`},
		{asks(engine.Parameters{"nvext": int64(1)}), "invalid nvext: expected a string that holds a JSON object, got 1"},
		{asks(engine.Parameters{"nvext": ""}), "invalid nvext: the JSON text ends too early"},
		{asks(engine.Parameters{"nvext": "[]"}), "invalid nvext: expected an object"},
		{asks(engine.Parameters{"nvext": "yes"}), "invalid nvext: invalid character 'y'"},
		{asks(engine.Parameters{"nvext": `{"agent_hints":`}), "invalid nvext: the JSON text ends too early"},
		{asks(engine.Parameters{"nvext": `{"agent_hints":{"osl":-1}}`}), "invalid nvext: nvext.agent_hints.osl: expected an unsigned 32-bit integer"},
		{asks(engine.Parameters{"nvext": `{"extra_fields":["completion_token_ids"]}`, "n": int64(2)}), "invalid nvext: `nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice"},
		{asks("text_output", "logits"), "unexpected inference output 'logits' for model 'tiny'"},
	} {
		c, err := kserve.DecodeCompletion(tc.call, openai.Options{RejectUnknown: true})
		if err == nil {
			t.Errorf("want %q, got %+v", tc.text, c)
			continue
		}
		e, ok := errors.AsType[*engine.Error](err)
		if !ok || e.Kind != engine.InvalidArgument || !strings.HasPrefix(e.Message, "Failed to parse request: "+tc.text) {
			t.Errorf("want %q, got %v", tc.text, err)
		}
	}
}

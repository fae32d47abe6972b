package trtllm

import (
	"slices"

	"github.com/go-json-experiment/json"
)

// fields are the members that a server's /v1/completions takes.
type fields []string

func (f fields) has(name string) bool { return slices.Contains(f, name) }

// oldest are those that every version has, for servers that do not tell theirs.
var oldest = fields{
	"model", "prompt", "stream", "stream_options", "max_tokens", "n", "best_of", "use_beam_search", "temperature", "top_p", "top_k",
	"top_p_min", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "length_penalty", "seed", "stop",
	"stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "logprobs", "logit_bias", "detokenize",
	"skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens", "add_special_tokens", "echo", "response_format",
	"lora_request", "disaggregated_params", "user", "suffix",
}

// legFields are those of disaggregated_params, for servers that do not tell theirs.
var legFields = fields{
	"request_type", "first_gen_tokens", "ctx_request_id", "encoded_opaque_state", "draft_tokens", "disagg_request_id", "schedule_style",
}

// description is what a server says of itself (OpenAPI).
type description struct {
	fields fields // of completions; nil: it does not tell
	legs   fields // of their disaggregated_params
	paths  []string
}

// describe reads it.
func describe(document []byte) (d description) {
	var told struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(document, &told) != nil {
		return d
	}
	names := func(schema string) (f fields) {
		for name := range told.Components.Schemas[schema].Properties {
			f = append(f, name)
		}
		return f
	}
	d.fields, d.legs = names("CompletionRequest"), names("DisaggregatedParams")
	for path := range told.Paths {
		d.paths = append(d.paths, path)
	}
	return d
}

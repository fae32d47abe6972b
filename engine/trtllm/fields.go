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

// fieldsOf reads them from the server's description of itself (OpenAPI); nil if
// it does not tell.
func fieldsOf(document []byte) fields {
	var d struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(document, &d) != nil {
		return nil
	}
	var f fields
	for name := range d.Components.Schemas["CompletionRequest"].Properties {
		f = append(f, name)
	}
	slices.Sort(f)
	return f
}

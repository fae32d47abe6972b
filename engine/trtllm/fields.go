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

// describe reads them from the server's description of itself (OpenAPI), and its
// routes; nil if it does not tell.
func describe(document []byte) (f fields, paths []string) {
	var d struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(document, &d) != nil {
		return nil, nil
	}
	for name := range d.Components.Schemas["CompletionRequest"].Properties {
		f = append(f, name)
	}
	for path := range d.Paths {
		paths = append(paths, path)
	}
	return f, paths
}

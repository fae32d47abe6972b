//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// shape says of each member that an object must have what it may be: "string",
// "integer", "number", "boolean", "object", "any", "null", the name of another
// shape, or "[x]" for a list of x, several with | between them. A member whose name
// ends with ? may be missing. Objects may have more.
type shape map[string]string

// shapes are what Open Responses wants of objects: of a response, of items and
// their parts, and of events.
var shapes = map[string]shape{
	"response": {
		"id": "string", "object": "string", "created_at": "integer", "completed_at": "integer|null", "status": "string",
		"incomplete_details": "object|null", "model": "string", "previous_response_id": "string|null", "instructions": "string|null",
		"output": "[item]", "error": "error|null", "tools": "[tool]", "tool_choice": "string|object", "truncation": "string",
		"parallel_tool_calls": "boolean", "text": "text", "top_p": "number", "presence_penalty": "number", "frequency_penalty": "number",
		"top_logprobs": "integer", "temperature": "number", "reasoning": "reasoning settings|null", "usage": "usage|null",
		"max_output_tokens": "integer|null", "max_tool_calls": "integer|null", "store": "boolean", "background": "boolean",
		"service_tier": "string", "metadata": "any", "safety_identifier": "string|null", "prompt_cache_key": "string|null",
	},
	"compaction resource": {"id": "string", "object": "string", "output": "[item]", "created_at": "integer", "usage": "usage"},
	"error":               {"code": "string", "message": "string"},
	"text":                {"format": "object"},
	"reasoning settings":  {"effort": "string|null", "summary": "string|null"},
	"usage": {
		"input_tokens": "integer", "output_tokens": "integer", "total_tokens": "integer",
		"input_tokens_details": "cached", "output_tokens_details": "reasoned",
	},
	"cached":   {"cached_tokens": "integer"},
	"reasoned": {"reasoning_tokens": "integer"},
	"tool":     {"type": "string", "name?": "string", "description?": "string|null", "parameters?": "object|null", "strict?": "boolean|null"},

	"item":               {"type": "string"}, // and what its type wants
	"item message":       {"id": "string", "status": "string", "role": "string", "content": "[part]"},
	"item function_call": {"id": "string", "call_id": "string", "name": "string", "arguments": "string", "status": "string"},
	"item reasoning":     {"id": "string", "summary": "[part]", "content?": "[part]", "encrypted_content?": "string"},
	"item compaction":    {"id": "string", "encrypted_content": "string"},

	"part":                {"type": "string"},
	"part output_text":    {"text": "string", "annotations": "[object]", "logprobs": "[object]"},
	"part input_text":     {"text": "string"},
	"part summary_text":   {"text": "string"},
	"part reasoning_text": {"text": "string"},
	"part refusal":        {"refusal": "string"},

	"event":                                        {"type": "string", "sequence_number": "integer"},
	"event response.created":                       {"response": "response"},
	"event response.in_progress":                   {"response": "response"},
	"event response.completed":                     {"response": "response"},
	"event response.incomplete":                    {"response": "response"},
	"event response.failed":                        {"response": "response"},
	"event response.output_item.added":             {"output_index": "integer", "item": "item"},
	"event response.output_item.done":              {"output_index": "integer", "item": "item"},
	"event response.content_part.added":            {"item_id": "string", "output_index": "integer", "content_index": "integer", "part": "part"},
	"event response.content_part.done":             {"item_id": "string", "output_index": "integer", "content_index": "integer", "part": "part"},
	"event response.output_text.delta":             {"item_id": "string", "output_index": "integer", "content_index": "integer", "delta": "string", "logprobs": "[object]"},
	"event response.output_text.done":              {"item_id": "string", "output_index": "integer", "content_index": "integer", "text": "string", "logprobs": "[object]"},
	"event response.function_call_arguments.delta": {"item_id": "string", "output_index": "integer", "delta": "string"},
	"event response.function_call_arguments.done":  {"item_id": "string", "output_index": "integer", "arguments": "string"},
	"event response.reasoning_summary_part.added":  {"item_id": "string", "output_index": "integer", "summary_index": "integer", "part": "part"},
	"event response.reasoning_summary_part.done":   {"item_id": "string", "output_index": "integer", "summary_index": "integer", "part": "part"},
	"event response.reasoning_summary_text.delta":  {"item_id": "string", "output_index": "integer", "summary_index": "integer", "delta": "string"},
	"event response.reasoning_summary_text.done":   {"item_id": "string", "output_index": "integer", "summary_index": "integer", "text": "string"},
}

// typed are the shapes of which there is one for each type.
var typed = []string{"item", "part", "event"}

// fits reports where a value does not have a shape.
func fits(t testing.TB, path, kinds string, v any) {
	t.Helper()
	var reasons []string
	for kind := range strings.SplitSeq(kinds, "|") {
		faults := misfits(path, kind, v)
		if len(faults) == 0 {
			return
		}
		reasons = append(reasons, faults...)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	t.Errorf("%s\nin %.2000s", strings.Join(reasons, "\n"), text)
}

func misfits(path, kind string, v any) (faults []string) {
	wrong := []string{fmt.Sprintf("%s is %T, want %s", path, v, kind)}
	switch kind {
	case "any":
		return nil
	case "null":
		if v != nil {
			return wrong
		}
		return nil
	case "string", "boolean", "object":
		kinds := map[string]bool{"string": false, "boolean": false, "object": false}
		switch v.(type) {
		case string:
			kinds["string"] = true
		case bool:
			kinds["boolean"] = true
		case map[string]any:
			kinds["object"] = true
		}
		if !kinds[kind] {
			return wrong
		}
		return nil
	case "number", "integer":
		if n, ok := v.(float64); !ok || kind == "integer" && n != math.Trunc(n) {
			return wrong
		}
		return nil
	}
	if element, ok := strings.CutPrefix(kind, "["); ok {
		list, ok := v.([]any)
		if !ok {
			return wrong
		}
		for i, e := range list {
			faults = append(faults, misfits(fmt.Sprintf("%s[%d]", path, i), strings.TrimSuffix(element, "]"), e)...)
		}
		return faults
	}
	object, ok := v.(map[string]any)
	if !ok {
		return wrong
	}
	faults = misfitsOf(path, shapes[kind], object)
	if slices.Contains(typed, kind) {
		own := shapes[fmt.Sprintf("%s %v", kind, object["type"])]
		if own == nil {
			return append(faults, fmt.Sprintf("%s has type %v, which is no %s of Open Responses", path, object["type"], kind))
		}
		faults = append(faults, misfitsOf(path, own, object)...)
	}
	return faults
}

func misfitsOf(path string, s shape, object map[string]any) (faults []string) {
	for _, member := range slices.Sorted(maps.Keys(s)) {
		name, optional := strings.CutSuffix(member, "?")
		v, has := object[name]
		if !has && optional {
			continue
		}
		if !has {
			faults = append(faults, fmt.Sprintf("%s.%s is missing", path, name))
			continue
		}
		var reasons []string
		fit := false
		for kind := range strings.SplitSeq(s[member], "|") {
			r := misfits(path+"."+name, kind, v)
			if fit = len(r) == 0; fit {
				break
			}
			reasons = append(reasons, r...)
		}
		if !fit {
			faults = append(faults, reasons...)
		}
	}
	return faults
}

package standing_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

const responsesRoute = "/v1/responses"

const responsesSession = `
rules:
  - when: {result: "rains"}
    emit: "The weather is <b>fine</b>, see for yourself."
  - when: {user: "plain"}
    emit: "Nothing to do here, 東京 👍🏽 said so."
  - when: {user: "think"}
    emit: "<think>\nIs it so?  Let me see.\n</think>\n\nIt is, indeed; quite unmistakably."
  - when: {user: "call"}
    emit: "<think>\nI must look.\n</think>\n\nOne moment, please.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":  \"München\", \"n\": 1.50}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call>"
  - when: {user: "edit"}
    emit: "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\":\"*** Begin Patch\\n+\\u00fc \\\"x\\\" </tool_call>\\n\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"fs__weather\", \"arguments\": {}}\n</tool_call>"
`

var responsesTools = []any{
	object{"type": "function", "name": "weather", "strict": false, "parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}}},
	object{"type": "custom", "name": "apply_patch", "format": object{"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
	object{"type": "namespace", "name": "fs", "description": "files", "tools": []any{object{"type": "function", "name": "weather"}, object{"type": "function", "name": "list"}}},
	object{"type": "web_search", "external_web_access": false},
}

// 7, for Responses. A prompt begins with the one before it and its answer, token
// for token, whichever way a client brings the conversation back.
func TestThePrefixSurvivesResponses(t *testing.T) {
	model, err := prompt.Load(demo.File, prompt.Parsers{})
	check(t, err)
	for name, tc := range map[string]struct {
		more   object
		stream bool
		// forget is what the client does not send back of an item.
		forget []string
	}{
		"unary":  {},
		"stream": {stream: true},
		"short":  {more: object{"max_output_tokens": 6}},
		"codex": {
			more:   object{"include": []any{"reasoning.encrypted_content"}, "reasoning": object{"summary": "auto"}, "store": false, "parallel_tool_calls": true},
			stream: true, forget: []string{"id", "status", "content in reasoning"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			h := build(t, plan{script: responsesSession, encode: choppy(model, 7), wrap: j.around})
			input := []any{object{"type": "message", "role": "developer", "content": []any{object{"type": "input_text", "text": "Be kind."}}}}
			var before *generation
			for i, text := range []string{"plain", "call", "", "think", "edit", "", "call", "", "plain", "think"} {
				if last := input[len(input)-1].(object)["type"]; text == "" && last != "function_call_output" {
					continue // the answer was cut before a call
				}
				if text == "edit" && tc.more["max_output_tokens"] != nil {
					continue // of half a call nothing is left that a client could bring back
				}
				if text != "" {
					input = append(input, object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}})
				}
				body := object{"model": demo.Name, "input": input, "tools": responsesTools, "prompt_cache_key": "0199"}
				maps.Copy(body, tc.more)
				var answer object
				if tc.stream {
					s := h.stream(t, responsesRoute, body)
					answer = s.chunks[len(s.chunks)-1]["response"].(object)
				} else {
					answer = h.unary(t, responsesRoute, body)
				}
				made := j.take()[0]
				if before != nil {
					want := slices.Concat(before.prompt, before.ids)
					if now := made.prompt; len(now) < len(want) || !slices.Equal(now[:len(want)], want) {
						t.Fatalf("prompt %d\n%q\ndoes not begin with\n%q", i, model.Tokenizer.Decode(now, false), model.Tokenizer.Decode(want, false))
					}
				}
				before = made
				for n, v := range answer["output"].([]any) {
					item := v.(object)
					for _, name := range tc.forget {
						if name == "content in reasoning" && item["type"] == "reasoning" {
							name = "content"
						}
						delete(item, name)
					}
					input = append(input, item)
					if text == "edit" && n == 0 && item["input"] != "*** Begin Patch\n+ü \"x\" </tool_call>\n" {
						t.Errorf("the patch is %v", item)
					}
				}
				for _, v := range answer["output"].([]any) {
					kind := v.(object)["type"].(string)
					if kind == "function_call" || kind == "custom_tool_call" {
						input = append(input, object{"type": kind + "_output", "call_id": v.(object)["call_id"], "output": fmt.Sprint("It rains <tool_call> in ", i)})
					}
				}
			}
			h.idle(t)
		})
	}
}

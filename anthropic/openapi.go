package anthropic

import "encoding/json"

// Schemas that occur more than once.
const (
	aContent = `{"oneOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/components/schemas/InputBlock"}}]}`
	aFormat  = `{"type":["object","null"],"required":["type","schema"],"properties":{"type":{"const":"json_schema"},"schema":{"type":"object"}}}`
	aMark    = `{"type":["object","null"],"properties":{"type":{"type":"string","default":"ephemeral"},"ttl":{"type":["string","integer"],"default":"5m"}}}`
)

// RequestSchema returns the JSON schema of the body of a messages request, or of a
// count_tokens request, which needs less. It is made from the table that decodes
// both.
func RequestSchema(count bool) map[string]any {
	properties := make(map[string]json.RawMessage, len(fields))
	for _, f := range fields {
		properties[f.name] = json.RawMessage(f.schema)
	}
	required := []string{"model", "messages"}
	if !count {
		required = append(required, "max_tokens")
	}
	return map[string]any{"type": "object", "required": required, "properties": properties}
}

// Schemas returns the JSON schemas that requests and answers refer to, by name:
// AnsweredMessage is an answer, TokenCount that of count_tokens, and
// MessagesError a refusal.
func Schemas() map[string]string {
	return map[string]string{
		"InputMessage":    `{"type":"object","required":["role"],"properties":{"role":{"enum":["user","assistant","system"]},"content":` + aContent + `}}`,
		"InputBlock":      `{"type":"object","required":["type"],"properties":{"type":{"type":"string","examples":["text","image","document","search_result","thinking","redacted_thinking","tool_use","tool_result"]},"text":{"type":"string"},"thinking":{"type":"string"},"signature":{"type":"string"},"data":{"type":"string"},"id":{"type":"string"},"name":{"type":"string"},"input":{},"tool_use_id":{"type":"string"},"is_error":{"type":"boolean"},"source":{},"content":{},"cache_control":` + aMark + `}}`,
		"InputTool":       `{"type":"object","properties":{"type":{"type":["string","null"]},"name":{"type":"string","minLength":1,"maxLength":256},"description":{"type":["string","null"]},"input_schema":{"type":"object"},"strict":{"type":["boolean","null"]},"defer_loading":{"type":"boolean"},"cache_control":` + aMark + `}}`,
		"AnsweredBlock":   `{"type":"object","required":["type"],"properties":{"type":{"enum":["text","thinking","tool_use"]},"text":{"type":"string"},"thinking":{"type":"string"},"signature":{"type":"string"},"id":{"type":"string"},"name":{"type":"string"},"input":{"type":"object"}}}`,
		"AnsweredMessage": `{"type":"object","required":["id","type","role","model","content","stop_reason","stop_sequence","usage"],"properties":{"id":{"type":"string"},"type":{"const":"message"},"role":{"const":"assistant"},"model":{"type":"string"},"content":{"type":"array","items":{"$ref":"#/components/schemas/AnsweredBlock"}},"stop_reason":{"enum":["end_turn","stop_sequence","max_tokens","model_context_window_exceeded","tool_use","refusal"]},"stop_sequence":{"type":["string","null"]},"stop_details":{"type":["object","null"]},"container":{"type":"null"},"usage":{"type":"object","required":["input_tokens","output_tokens","cache_read_input_tokens","cache_creation_input_tokens"],"properties":{"input_tokens":{"type":"integer"},"output_tokens":{"type":"integer"},"cache_read_input_tokens":{"type":"integer"},"cache_creation_input_tokens":{"type":"integer"},"cache_creation":{"type":["object","null"],"properties":{"ephemeral_5m_input_tokens":{"type":"integer"},"ephemeral_1h_input_tokens":{"type":"integer"}}},"server_tool_use":{"type":"null"},"service_tier":{"type":"null"},"output_tokens_details":{"type":"object","properties":{"thinking_tokens":{"type":"integer"}}}}},"nvext":{"$ref":"#/components/schemas/NVExtAnswer"}}}`,
		"TokenCount":      `{"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer"}}}`,
		"MessagesError":   `{"type":"object","required":["type","error"],"properties":{"type":{"const":"error"},"error":{"type":"object","required":["type","message"],"properties":{"type":{"type":"string"},"message":{"type":"string"},"details":{"type":"object"}}},"request_id":{"type":"string"}}}`,
	}
}

package responses

import (
	"encoding/json"

	"github.com/dynago/dynago/openai"
)

// Description returns what the OpenAPI document tells of the routes of this
// protocol. The schema of a request comes from the table that decodes it.
func Description() openai.Description {
	one := `[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}`
	const path = "/v1/responses"
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "post", Path: path, ID: "createResponse", Summary: "Answer a conversation of items",
				Body: schemaOf(fields), Answer: response, Streams: true,
			},
			{
				Method: "get", Path: path + "/{id}", ID: "retrieveResponse", Summary: "Fetch a stored response, or its events",
				Answer: response, Streams: true,
				Params: one + `,{"name":"stream","in":"query","schema":{"type":"boolean"}},{"name":"starting_after","in":"query","schema":{"type":"integer"}}]`,
			},
			{
				Method: "delete", Path: path + "/{id}", ID: "deleteResponse", Summary: "Forget a stored response", Params: one + "]",
				Answer: `{"type":"object","required":["id","object","deleted"],"properties":{"id":{"type":"string"},"object":{"const":"response"},"deleted":{"type":"boolean"}}}`,
			},
			{
				Method: "post", Path: path + "/{id}/cancel", ID: "cancelResponse", Summary: "Stop a response that is being made",
				Answer: response, Params: one + "]",
			},
			{
				Method: "get", Path: path + "/{id}/input_items", ID: "listInputItems", Summary: "List what a stored response answers",
				Answer: `{"type":"object","required":["object","data","first_id","last_id","has_more"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/ResponseItem"}},"first_id":{"type":["string","null"]},"last_id":{"type":["string","null"]},"has_more":{"type":"boolean"}}}`,
				Params: one + `,{"name":"limit","in":"query","schema":{"type":"integer","minimum":1,"maximum":100}},{"name":"order","in":"query","schema":{"enum":["asc","desc"]}},{"name":"after","in":"query","schema":{"type":"string"}}]`,
			},
			{
				Method: "post", Path: path + "/input_tokens", ID: "countInputTokens", Summary: "Count the tokens of a prompt", Body: schemaOf(fields),
				Answer: `{"type":"object","required":["object","input_tokens"],"properties":{"object":{"const":"response.input_tokens"},"input_tokens":{"type":"integer"}}}`,
			},
			{
				Method: "post", Path: path + "/compact", ID: "compactResponse", Summary: "Make a summary of a conversation that stands for it", Body: schemaOf(fields),
				Answer: `{"type":"object","required":["id","object","created_at","output","usage"],"properties":{"id":{"type":"string"},"object":{"const":"response.compaction"},"created_at":{"type":"integer"},"output":{"type":"array","items":{"$ref":"#/components/schemas/ResponseItem"}},"usage":{"type":"object"}}}`,
			},
		},
		Schemas: map[string]string{
			"Response":     `{"type":"object","required":["id","object","created_at","status","model","output","error","incomplete_details","usage"],"properties":{"id":{"type":"string"},"object":{"const":"response"},"created_at":{"type":"integer"},"completed_at":{"type":["integer","null"]},"status":{"enum":["queued","in_progress","completed","incomplete","failed","cancelled"]},"model":{"type":"string"},"output":{"type":"array","items":{"$ref":"#/components/schemas/ResponseItem"}},"error":{"type":["object","null"],"properties":{"code":{"type":"string"},"message":{"type":"string"}}},"incomplete_details":{"type":["object","null"],"properties":{"reason":{"enum":["max_output_tokens","content_filter"]}}},"usage":{"type":["object","null"],"properties":{"input_tokens":{"type":"integer"},"input_tokens_details":{"type":"object"},"output_tokens":{"type":"integer"},"output_tokens_details":{"type":"object"},"total_tokens":{"type":"integer"}}},"nvext":{"$ref":"#/components/schemas/NVExtAnswer"}}}`,
			"ResponseItem": `{"type":"object","properties":{"type":{"type":"string"},"id":{"type":"string"},"role":{"enum":["user","assistant","system","developer"]},"content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"text":{"type":"string"}}}}]},"call_id":{"type":"string"},"name":{"type":"string"},"arguments":{"type":"string"},"input":{"type":"string"},"output":{"oneOf":[{"type":"string"},{"type":"array"}]},"summary":{"type":"array"},"encrypted_content":{"type":["string","null"]}}}`,
		},
	}
}

const response = `{"$ref":"#/components/schemas/Response"}`

// schemaOf returns the JSON schema of a body.
func schemaOf(fields []field) map[string]any {
	properties := make(map[string]json.RawMessage, len(fields))
	for _, f := range fields {
		properties[f.name] = json.RawMessage(f.schema)
	}
	return map[string]any{"type": "object", "required": required, "properties": properties}
}

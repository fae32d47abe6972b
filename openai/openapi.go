package openai

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// Operation is one route of the OpenAPI document.
type Operation struct {
	Method, Path string
	ID, Summary  string
	Body         any            // schema of the request, or nil
	Media        string         // type of its body; empty means application/json
	Answer       string         // schema of the answer
	Status       int            // of the answer; 0 means 200
	Streams      bool           // answers with server-sent events if asked to
	Params       string         // OpenAPI parameters, or empty
	Refusal      string         // schema of the other answers; empty means OpenAI's
	Refusals     map[int]string // when they come; nil means as with a request for a model
}

// Description is what another package tells of its routes.
type Description struct {
	Operations []Operation
	Schemas    map[string]string // that its operations refer to, by name
}

const modelParameter = `[{"name":"model","in":"path","required":true,"description":"may hold slashes","schema":{"type":"string"}}]`

var operations = []Operation{
	{Method: "post", Path: "/v1/chat/completions", ID: "createChatCompletion", Summary: "Answer a conversation", Body: chatTable.schema(), Answer: ref("ChatCompletion"), Streams: true},
	{Method: "post", Path: "/v1/completions", ID: "createCompletion", Summary: "Continue one or several prompts", Body: completionTable.schema(), Answer: ref("Completion"), Streams: true},
	{Method: "get", Path: "/v1/models", ID: "listModels", Summary: "List the models that can serve now", Answer: ref("ModelList")},
	{Method: "get", Path: "/v1/models/{model}", ID: "retrieveModel", Summary: "Describe one model", Answer: ref("Model"), Params: modelParameter},
	{Method: "post", Path: "/tokenize", ID: "tokenize", Summary: "Turn a prompt or a conversation into token IDs", Body: tokenizeTable.schema(), Answer: ref("Tokens")},
	{Method: "post", Path: "/v1/tokenize", ID: "tokenizeV1", Summary: "The same as /tokenize", Body: tokenizeTable.schema(), Answer: ref("Tokens")},
	{Method: "post", Path: "/detokenize", ID: "detokenize", Summary: "Turn token IDs into text", Body: detokenizeTable.schema(), Answer: ref("Prompt")},
	{Method: "post", Path: "/v1/detokenize", ID: "detokenizeV1", Summary: "The same as /detokenize", Body: detokenizeTable.schema(), Answer: ref("Prompt")},
}

// refusal is the schema of an answer that is none.
const refusal = `{"$ref":"#/components/schemas/Error"}`

func ref(name string) string { return `{"$ref":"#/components/schemas/` + name + `"}` }

// schemas are those of the answers, and of the parts of requests that have a
// structure of their own.
var schemas = map[string]string{
	"Message":        `{"type":"object","required":["role"],"properties":{"role":{"enum":["system","developer","user","assistant","tool","function"]},"content":{"oneOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/components/schemas/ContentPart"}},{"type":"null"}]},"name":{"type":"string"},"tool_calls":{"type":"array","items":{"$ref":"#/components/schemas/ToolCall"}},"tool_call_id":{"type":"string"},"reasoning_content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},"refusal":{"type":["string","null"]}}}`,
	"ContentPart":    `{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"text":{"type":"string"},"image_url":{"type":"object","required":["url"],"properties":{"url":{"type":"string"},"detail":{"type":"string"}}}}}`,
	"Tool":           `{"type":"object","required":["type","function"],"properties":{"type":{"type":"string"},"function":{"type":"object","required":["name"],"properties":{"name":{"type":"string","minLength":1,"maxLength":256},"description":{"type":"string"},"parameters":{"type":"object"},"strict":{"type":"boolean"}}}}}`,
	"ToolCall":       `{"type":"object","required":["id","type","function"],"properties":{"id":{"type":"string"},"type":{"const":"function"},"function":{"type":"object","required":["name","arguments"],"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}}`,
	"Usage":          `{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],"properties":{"prompt_tokens":{"type":"integer"},"completion_tokens":{"type":"integer"},"total_tokens":{"type":"integer"},"prompt_tokens_details":{"type":"object","properties":{"cached_tokens":{"type":"integer"}}},"completion_tokens_details":{"type":"object","properties":{"reasoning_tokens":{"type":"integer"}}}}}`,
	"ChatCompletion": `{"type":"object","required":["id","object","created","model","choices","usage"],"properties":{"id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},"model":{"type":"string"},"choices":{"type":"array","items":{"type":"object","required":["index","message","finish_reason"],"properties":{"index":{"type":"integer"},"message":{"$ref":"#/components/schemas/Message"},"finish_reason":{"enum":["stop","length","tool_calls","content_filter"]},"logprobs":{"type":["object","null"]}}}},"usage":{"$ref":"#/components/schemas/Usage"},"service_tier":{"type":["string","null"]},"system_fingerprint":{"type":["string","null"]},"nvext":{"$ref":"#/components/schemas/NVExtAnswer"}}}`,
	"Completion":     `{"type":"object","required":["id","object","created","model","choices","usage"],"properties":{"id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},"choices":{"type":"array","items":{"type":"object","required":["index","text","finish_reason"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},"finish_reason":{"enum":["stop","length","content_filter"]},"logprobs":{"type":["object","null"]}}}},"usage":{"$ref":"#/components/schemas/Usage"},"system_fingerprint":{"type":"string"},"nvext":{"$ref":"#/components/schemas/NVExtAnswer"}}}`,
	"Model":          `{"type":"object","required":["id","object","created","owned_by"],"properties":{"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"},"context_window":{"type":"integer"},"max_output_tokens":{"type":"integer"}}}`,
	"ModelList":      `{"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}}`,
	"Tokens":         `{"type":"object","required":["tokens","count"],"properties":{"tokens":{"type":"array","items":{"type":"integer"}},"count":{"type":"integer"},"max_model_len":{"type":"integer"}}}`,
	"Prompt":         `{"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}}`,
	"Error":          `{"type":"object","required":["error","message","type","code"],"properties":{"error":{"type":"object","required":["message","type","param","code"],"properties":{"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}},"message":{"type":"string"},"type":{"type":"string"},"code":{"type":"integer"},"details":{"type":"object"}}}`,
}

//go:embed nvext.json
var extension []byte

// extensionSchemas are those of what requests and answers have beside what their APIs
// know. All of these refer to them.
func extensionSchemas() map[string]string {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(extension, &raw); err != nil {
		panic("openai: nvext.json: " + err.Error())
	}
	named := make(map[string]string, len(raw))
	for name, schema := range raw {
		named[name] = string(schema)
	}
	return named
}

// OpenAPI returns the OpenAPI 3.1 document of the routes whose bodies this
// package knows, as JSON. Request schemas come from the tables that decode them.
// overloadStatus is the status for "all busy"; 0 means [wire.StatusOverloaded].
// Routes of other packages stand in more.
func OpenAPI(title, version string, overloadStatus int, more ...Description) []byte {
	if overloadStatus == 0 {
		overloadStatus = wire.StatusOverloaded
	}
	type object = map[string]any
	paths := map[string]object{}
	ofModels := map[int]string{
		400: "The request is malformed or breaks a rule",
		404: "The model is unknown",
		503: "The model or the service is not ready", overloadStatus: "All workers are busy",
	}
	all := Description{operations, schemas}.with(Description{Schemas: extensionSchemas()})
	for _, d := range more {
		all = all.with(d)
	}
	for _, op := range all.Operations {
		content := object{"application/json": object{"schema": json.RawMessage(op.Answer)}}
		if op.Streams {
			content["text/event-stream"] = object{"schema": object{"type": "string"}}
		}
		responses := object{strconv.Itoa(cmp.Or(op.Status, http.StatusOK)): object{"description": "OK", "content": content}}
		refusals := op.Refusals
		if refusals == nil {
			refusals = ofModels
		}
		for status, what := range refusals {
			responses[strconv.Itoa(status)] = object{"description": what, "content": object{
				"application/json": object{"schema": json.RawMessage(cmp.Or(op.Refusal, refusal))},
			}}
		}
		entry := object{"operationId": op.ID, "summary": op.Summary, "responses": responses}
		if op.Body != nil {
			entry["requestBody"] = object{"required": true, "content": object{
				cmp.Or(op.Media, "application/json"): object{"schema": op.Body},
			}}
		}
		if op.Params != "" {
			entry["parameters"] = json.RawMessage(op.Params)
		}
		if paths[op.Path] == nil {
			paths[op.Path] = object{}
		}
		paths[op.Path][op.Method] = entry
	}
	components := make(map[string]json.RawMessage, len(all.Schemas))
	for name, schema := range all.Schemas {
		components[name] = json.RawMessage(schema)
	}
	doc, err := json.Marshal(object{
		"openapi": "3.1.0", "info": object{"title": title, "version": version},
		"paths": paths, "components": object{"schemas": components},
	})
	if err != nil {
		panic("openai: a schema in the tables is no JSON: " + err.Error())
	}
	return doc
}

// with returns what both tell. A name that both have would hide one of its schemas.
func (d Description) with(more Description) Description {
	both := maps.Clone(d.Schemas)
	for name, schema := range more.Schemas {
		if _, ok := both[name]; ok {
			panic("openai: there are two schemas of the name " + name)
		}
		both[name] = schema
	}
	return Description{slices.Concat(d.Operations, more.Operations), both}
}

// schema returns the JSON schema of a body.
func (t *table) schema() map[string]any {
	properties := make(map[string]json.RawMessage, len(t.fields))
	for _, f := range t.fields {
		properties[f.name] = json.RawMessage(f.schema)
	}
	return map[string]any{"type": "object", "required": t.required, "properties": properties}
}

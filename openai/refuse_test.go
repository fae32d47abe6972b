package openai_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
)

// refusal is one rule of the API: a body that breaks it, and what the client is
// told.
type refusal struct {
	body    string
	status  int    // 0 = 400
	param   string // path of the member at fault
	code    string // "" = invalid_value
	message string
}

const (
	validation = "Validation: "
	undecoded  = "Failed to deserialize the JSON body into the target type: "
)

// ask is a chat body with members added to it.
func ask(members string) string {
	return `{"model":"m","messages":[{"role":"user","content":"Hi"}],` + members + `}`
}

// talk is a chat body with the given messages.
func talk(messages string) string { return `{"model":"m","messages":[` + messages + `]}` }

// complete is a completions body with members added to it.
func complete(members string) string { return `{"model":"m","prompt":"Once",` + members + `}` }

func function(members string) string {
	return `"tools":[{"type":"function","function":{` + members + `}}]`
}

// many joins n copies of s.
func many(n int, s string) string { return strings.Repeat(s+",", n-1) + s }

var chatRefusals = []refusal{
	// The body itself.
	{``, 0, "", "", undecoded + "the JSON text ends too early"},
	{`{"model":"m",`, 0, "", "", undecoded + "the JSON text ends too early"},
	{`[]`, 0, "", "", undecoded + "expected an object, got an array"},
	{`null`, 0, "", "", undecoded + "expected an object, got null"},
	{`{"model":"m"} {}`, 0, "", "", undecoded + "more than one JSON value in the body"},
	{`{"model":"m" "x"}`, 0, "", "", undecoded + "invalid character '\"' after object value (expecting ',' or '}') after offset 13"},
	{`{"model":"m","x":` + strings.Repeat("[", 20000), 0, "", "", undecoded + "exceeded max depth"},

	// Types, by path.
	{`{"model":7}`, 0, "model", "", undecoded + "model: expected a string, got a number"},
	{`{"model":"m","messages":{}}`, 0, "messages", "", undecoded + "messages: expected an array of messages, got an object"},
	{talk(`{"role":"user","content":"a"},{"role":"user","content":5}`), 0, "messages[1].content", "", undecoded + "messages[1].content: expected a string or an array of content parts, got a number"},
	{talk(`{"role":"user","content":[{"type":"text","text":7}]}`), 0, "messages[0].content[0].text", "", undecoded + "messages[0].content[0].text: expected a string, got a number"},
	{talk(`{"role":"user","content":[true]}`), 0, "messages[0].content[0]", "", undecoded + "messages[0].content[0]: expected a content part object, got a boolean"},
	{talk(`"Hi"`), 0, "messages[0]", "", undecoded + "messages[0]: expected a message object, got a string"},
	{ask(`"stream":"yes"`), 0, "stream", "", undecoded + "stream: expected a boolean, got a string"},
	{ask(`"temperature":"hot"`), 0, "temperature", "", undecoded + "temperature: expected a number, got a string"},
	{ask(`"temperature":1e999`), 0, "temperature", "", undecoded + "temperature: number 1e999 is out of range"},
	{ask(`"seed":1.5`), 0, "seed", "", undecoded + "seed: expected an integer, got 1.5"},
	{ask(`"seed":9223372036854775808`), 0, "seed", "", undecoded + "seed: expected an integer, got 9223372036854775808"},
	{ask(`"n":1e999999999`), 0, "n", "", undecoded + "n: expected an integer, got 1e999999999"},
	{ask(`"min_tokens":-1`), 0, "min_tokens", "", undecoded + "min_tokens: expected an integer from 0 to 4294967295, got -1"},
	{ask(`"metadata":[]`), 0, "metadata", "", undecoded + "metadata: expected an object, got an array"},
	{ask(`"chat_template_args":"x"`), 0, "chat_template_args", "", undecoded + "chat_template_args: expected an object, got a string"},
	{ask(`"tools":[7]`), 0, "tools[0]", "", undecoded + "tools[0]: expected a tool object, got a number"},
	{ask(`"tools":[{"type":"function","function":"f"}]`), 0, "tools[0].function", "", undecoded + "tools[0].function: expected a function object, got a string"},
	{ask(`"tools":[{},{"function":{"name":7}}]`), 0, "tools[0].function", "missing_required_parameter", validation + "tools[0].function is required"},
	{ask(`"tool_choice":7`), 0, "tool_choice", "", undecoded + `tool_choice: expected "none", "auto", "required" or an object that names a function, got a number`},

	// What has to be there.
	{`{"messages":[{"role":"user","content":"Hi"}]}`, 0, "model", "missing_required_parameter", validation + "Model cannot be empty"},
	{`{"model":"  ","messages":[{"role":"user","content":"Hi"}]}`, 0, "model", "missing_required_parameter", validation + "Model cannot be empty"},
	{`{"model":"m"}`, 0, "messages", "missing_required_parameter", validation + "The 'messages' field cannot be empty. At least one message is required."},
	{talk(``), 0, "messages", "missing_required_parameter", validation + "The 'messages' field cannot be empty. At least one message is required."},
	{`{"model":"m","messages":null}`, 0, "messages", "missing_required_parameter", validation + "The 'messages' field cannot be empty. At least one message is required."},
	{ask(`"user":" "`), 0, "user", "", validation + "User ID cannot be empty"},

	// Streams.
	{ask(`"stream_options":{"include_usage":true}`), 0, "stream_options", "", validation + "The 'stream_options' field is only allowed when 'stream' is set to true."},
	{ask(`"stream":true,"stream_options":{}`), 0, "stream_options.include_usage", "missing_required_parameter", validation + "`stream_options.include_usage` is required when `stream_options` is given"},

	// Sampling.
	{ask(`"temperature":2.1`), 0, "temperature", "", validation + "Temperature must be between 0 and 2, got 2.1"},
	{ask(`"temperature":-0.1`), 0, "temperature", "", validation + "Temperature must be between 0 and 2, got -0.1"},
	{ask(`"top_p":0`), 0, "top_p", "", validation + "Top_p must be between 0 and 1, got 0"},
	{ask(`"top_p":1.01`), 0, "top_p", "", validation + "Top_p must be between 0 and 1, got 1.01"},
	{ask(`"top_k":-2`), 0, "top_k", "", validation + "Top_k must be null or greater than or equal to -1"},
	{ask(`"min_p":-1`), 0, "min_p", "", validation + "Min_p must be between 0 and 1, got -1"},
	{ask(`"frequency_penalty":3`), 0, "frequency_penalty", "", validation + "Frequency penalty must be between -2 and 2, got 3"},
	{ask(`"presence_penalty":-3`), 0, "presence_penalty", "", validation + "Presence penalty must be between -2 and 2, got -3"},
	{ask(`"repetition_penalty":0`), 0, "repetition_penalty", "", validation + "Repetition penalty must be between 0 and 2, got 0"},
	{ask(`"n":0`), 0, "n", "", validation + "n must be between 1 and 128, got 0"},
	{ask(`"n":129`), 0, "n", "", validation + "n must be between 1 and 128, got 129"},
	{ask(`"n":2,"temperature":0`), 0, "n", "", validation + "When n > 1, temperature must be greater than 0 to ensure diverse outputs. Got n=2, temperature=0"},
	{ask(`"n":2,"nvext":{"greed_sampling":true}`), 0, "n", "", validation + "When n > 1, temperature must be greater than 0 to ensure diverse outputs. Got n=2, temperature=0"},
	{ask(`"max_tokens":0`), 0, "max_tokens", "", validation + "Max tokens must be greater than 0, got 0"},
	{ask(`"max_tokens":-5`), 0, "max_tokens", "", validation + "Max tokens must be greater than 0, got -5"},
	{ask(`"max_tokens":1048577`), 0, "max_tokens", "", validation + "Max tokens must not exceed 1048576, got 1048577"},
	{ask(`"max_completion_tokens":0`), 0, "max_completion_tokens", "", validation + "Max completion tokens must be greater than 0, got 0"},
	{ask(`"max_completion_tokens":1048577`), 0, "max_completion_tokens", "", validation + "Max completion tokens must not exceed 1048576, got 1048577"},
	{ask(`"min_tokens":11,"max_tokens":10`), 0, "min_tokens", "", validation + "min_tokens must be less than or equal to max_tokens"},
	{ask(`"min_tokens":11,"max_tokens":20,"max_completion_tokens":10`), 0, "min_tokens", "", validation + "min_tokens must be less than or equal to max_tokens"},
	{ask(`"logit_bias":{"5":101}`), 0, "logit_bias.5", "", validation + "Logit bias for token '5' must be between -100 and 100, got 101"},
	{ask(`"logit_bias":{"5":"a"}`), 0, "logit_bias.5", "", validation + "Logit bias value for token '5' must be a number, got a string"},
	{ask(`"logit_bias":{"x":1}`), 0, "logit_bias.x", "", validation + "Logit bias key 'x' must be a token ID"},
	{ask(`"top_logprobs":2`), 0, "top_logprobs", "", validation + "top_logprobs is only allowed when logprobs is true"},
	{ask(`"logprobs":false,"top_logprobs":2`), 0, "top_logprobs", "", validation + "top_logprobs is only allowed when logprobs is true"},
	{ask(`"logprobs":true,"top_logprobs":21`), 0, "top_logprobs", "", validation + "Top_logprobs must be between 0 and 20, got 21"},

	// Stops.
	{ask(`"stop":""`), 0, "stop", "", validation + "Stop sequence cannot be empty"},
	{ask(`"stop":["a",""]`), 0, "stop[1]", "", validation + "Stop sequence at index 1 cannot be empty"},
	{ask(`"stop":[` + many(33, `"a"`) + `]`), 0, "stop", "", validation + "Maximum of 32 stop sequences allowed, got 33"},
	{ask(`"stop":[` + many(33, `5`) + `]`), 0, "stop", "", validation + "Maximum of 32 stop token IDs allowed, got 33"},
	{ask(`"stop":7`), 0, "stop", "", undecoded + "stop: expected a string, an array of strings or an array of token IDs, got a number"},
	{ask(`"stop":["a",7]`), 0, "stop[1]", "", undecoded + "stop[1]: expected a string or a token ID, got a number"},
	{ask(`"stop":[7,"a"]`), 0, "stop[1]", "", undecoded + "stop[1]: expected a token ID, as before it, got a string"},

	// What is passed through has texts of its own.
	{ask(`"cache_salt":7`), 0, "cache_salt", "", validation + "`cache_salt` must be a string"},
	{ask(`"stop_token_ids":["a"]`), 0, "stop_token_ids[0]", "", validation + "`stop_token_ids` must be an array of token IDs"},
	{ask(`"stop_token_ids":7`), 0, "stop_token_ids", "", validation + "`stop_token_ids` must be an array of token IDs"},
	{ask(`"allowed_token_ids":[-1]`), 0, "allowed_token_ids[0]", "", validation + "`allowed_token_ids` must be an array of token IDs"},
	{ask(`"logprob_token_ids":{}`), 0, "logprob_token_ids", "", validation + "`logprob_token_ids` must be an array of token IDs"},
	{ask(`"bad_words_token_ids":[1]`), 0, "bad_words_token_ids[0]", "", validation + "`bad_words_token_ids` must be an array of token ID arrays"},
	{ask(`"detokenize":1`), 0, "detokenize", "", validation + "`detokenize` must be a boolean"},

	// Tools.
	{ask(`"tools":[` + many(1537, `{"type":"function","function":{"name":"a"}}`) + `]`), 0, "tools", "", validation + "Maximum of 1536 tools are supported, got 1537"},
	{ask(function(`"name":""`)), 0, "tools[0].function.name", "missing_required_parameter", validation + "Function name at index 0 cannot be empty"},
	{ask(function(`"description":"x"`)), 0, "tools[0].function.name", "missing_required_parameter", validation + "Function name at index 0 cannot be empty"},
	{ask(function(`"name":"` + strings.Repeat("é", 129) + `"`)), 0, "tools[0].function.name", "", validation + "Function name at index 0 exceeds 256 byte limit, got 258 bytes"},
	{ask(function(`"name":"a b"`)), 0, "tools[0].function.name", "", validation + `Function at index 0 has an invalid name: "a b". Control characters, blanks, quotes, < and > are not allowed.`},
	{ask(function(`"name":"a<b"`)), 0, "tools[0].function.name", "", validation + `Function at index 0 has an invalid name: "a<b". Control characters, blanks, quotes, < and > are not allowed.`},
	{ask(function(`"name":"a\tb"`)), 0, "tools[0].function.name", "", validation + `Function at index 0 has an invalid name: "a\tb". Control characters, blanks, quotes, < and > are not allowed.`},
	{ask(function(`"name":"a\u007fb"`)), 0, "tools[0].function.name", "", validation + `Function at index 0 has an invalid name: "a\x7fb". Control characters, blanks, quotes, < and > are not allowed.`},
	{ask(function(`"name":"a","parameters":"x"`)), 0, "tools[0].function.parameters", "", validation + `Function parameters at index 0 for "a" must be a JSON Schema object`},
	{ask(`"tool_choice":"required"`), 0, "tool_choice", "", validation + `tool_choice is "required" but tools is empty`},
	{ask(`"tool_choice":"required","tools":[]`), 0, "tool_choice", "", validation + `tool_choice is "required" but tools is empty`},
	{ask(`"tool_choice":"any"`), 0, "tool_choice", "", validation + `tool_choice must be none, auto or required, or name a function, got "any"`},
	{ask(`"tool_choice":{"type":"function","function":{"name":"b"}},` + function(`"name":"a"`)), 0, "tool_choice", "", validation + `tool named "b" in tool_choice is not present in tools`},
	{ask(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + many(1537, `{"name":"a"}`) + `]}},` + function(`"name":"a"`)), 0, "tool_choice.allowed_tools.tools", "", validation + "Maximum of 1536 allowed tools are supported, got 1537"},
	{ask(`"tool_choice":{"type":"function"}`), 0, "tool_choice.function.name", "missing_required_parameter", validation + "tool_choice.function.name is required"},
	{ask(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}},` + function(`"name":"a"`)), 0, "tool_choice.allowed_tools.tools", "", validation + "tool_choice requires a call of a tool but allows none: tool_choice.allowed_tools.tools is empty"},
	{ask(`"tool_choice":{"type":"magic"}`), 0, "tool_choice.type", "", validation + `tool_choice.type must be function or allowed_tools, got "magic"`},
	{ask(`"functions":[]`), 501, "functions", "unsupported_parameter", validation + "`functions` is deprecated. Please migrate to use `tools` instead."},
	{ask(`"function_call":"auto"`), 501, "function_call", "unsupported_parameter", validation + "`function_call` is deprecated. Please migrate to use `tool_choice` instead."},

	// The output's format.
	{ask(`"response_format":{"type":"xml"}`), 0, "response_format.type", "", validation + `response_format.type must be text, json_object or json_schema, got "xml"`},
	{ask(`"response_format":{}`), 0, "response_format.type", "missing_required_parameter", validation + "response_format.type is required"},
	{ask(`"response_format":{"type":"json_schema"}`), 0, "response_format.json_schema.schema", "missing_required_parameter", validation + "`response_format.json_schema.schema` is required when `response_format.type` is `json_schema`"},
	{ask(`"response_format":{"type":"json_schema","json_schema":{"name":"a"}}`), 0, "response_format.json_schema.schema", "missing_required_parameter", validation + "`response_format.json_schema.schema` is required when `response_format.type` is `json_schema`"},
	{ask(`"response_format":{"type":"json_schema","json_schema":{"name":"","schema":{}}}`), 0, "response_format.json_schema.name", "missing_required_parameter", validation + "`response_format.json_schema.name` cannot be empty"},
	{ask(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":[]}}`), 0, "response_format.json_schema.schema", "", validation + "`response_format.json_schema.schema` must be a JSON object, got array"},
	{ask(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":true}}`), 0, "response_format.json_schema.schema", "", validation + "`response_format.json_schema.schema` must be a JSON object, got boolean"},
	{ask(`"guided_choice":[]`), 0, "guided_choice", "", validation + "guided_choice cannot be empty"},
	{ask(`"guided_json":"{"`), 0, "guided_json", "", validation + "guided_json does not hold valid JSON"},
	{ask(`"guided_json":7`), 0, "guided_json", "", validation + "guided_json must be a JSON Schema object, or a string that holds one"},
	{ask(`"guided_json":{},"guided_regex":"a"`), 0, "guided_regex", "", validation + "Only one of the guided options can be used, got guided_json, guided_regex"},
	{ask(`"guided_grammar":"` + strings.Repeat("(", 501) + `"`), 0, "guided_grammar", "", validation + "guided_grammar is nested deeper than 500"},
	{ask(`"guided_regex":"a","tool_choice":"required",` + function(`"name":"a"`)), 0, "guided_regex", "", validation + "guided_regex cannot be used together with a tool_choice that forces a tool call"},

	// Reasoning and the template.
	{ask(`"reasoning_effort":"huge"`), 0, "reasoning_effort", "", validation + `reasoning_effort must be one of none, minimal, low, medium, high, xhigh, max, got "huge"`},
	{ask(`"thinking":{"type":"maybe"}`), 0, "thinking.type", "", validation + `thinking.type must be enabled, disabled or adaptive, got "maybe"`},
	{ask(`"thinking":7`), 0, "thinking", "", undecoded + "thinking: expected a boolean or an object, got a number"},
	{ask(`"chat_template_kwargs":{"chat_template":"x"}`), 0, "chat_template_args.chat_template", "unsupported_parameter", validation + "`chat_template` is not supported inside `chat_template_args`"},
	{ask(`"continue_final_message":true,"add_generation_prompt":true`), 0, "continue_final_message", "", validation + "Cannot set both `continue_final_message` and `add_generation_prompt` to true: either the last message goes on, or a new one begins"},
	{ask(`"continue_final_message":true,"chat_template_args":{"add_generation_prompt":true}`), 0, "continue_final_message", "", validation + "Cannot set both `continue_final_message` and `add_generation_prompt` to true: either the last message goes on, or a new one begins"},
	{ask(`"add_generation_prompt":true,"chat_template_args":{"continue_final_message":true}`), 0, "chat_template_args.continue_final_message", "", validation + "Cannot set both `continue_final_message` and `add_generation_prompt` to true: either the last message goes on, or a new one begins"},
	{ask(`"continue_final_message":"yes"`), 0, "continue_final_message", "", undecoded + "continue_final_message: expected a boolean, got a string"},
	{ask(`"add_generation_prompt":1`), 0, "add_generation_prompt", "", undecoded + "add_generation_prompt: expected a boolean, got a number"},
	{ask(`"documents":"x"`), 0, "documents", "", undecoded + "documents: expected an array of objects, got a string"},
	{ask(`"documents":[{"a":"b"},"x"]`), 0, "documents[1]", "", undecoded + "documents[1]: expected an object of strings, got a string"},
	{ask(`"documents":[{"a":["b"]}]`), 0, "documents[0].a", "", undecoded + "documents[0].a: expected a string, got an array"},
	{ask(`"modalities":["text","audio"]`), 0, "modalities", "unsupported_parameter", validation + "modalities: audio output is not supported"},

	// Messages.
	{talk(`{"content":"x"}`), 0, "messages[0].role", "missing_required_parameter", validation + "messages[0].role is required"},
	{talk(`{"role":"robot","content":"x"}`), 0, "messages[0].role", "", validation + `messages[0].role must be one of system, developer, user, assistant, tool, function, got "robot"`},
	{talk(`{"role":"user"}`), 0, "messages[0].content", "missing_required_parameter", validation + "messages[0].content is required: a string or an array of content parts"},
	{talk(`{"role":"user","content":null}`), 0, "messages[0].content", "missing_required_parameter", validation + "messages[0].content is required: a string or an array of content parts"},
	{talk(`{"role":"tool","content":"x"}`), 0, "messages[0].tool_call_id", "missing_required_parameter", validation + "messages[0].tool_call_id is required"},
	{talk(`{"role":"function","content":"x"}`), 0, "messages[0].name", "missing_required_parameter", validation + "messages[0].name is required"},
	{talk(`{"role":"assistant","reasoning_content":7}`), 0, "messages[0].reasoning_content", "", undecoded + "messages[0].reasoning_content: expected a string or an array of strings, got a number"},

	// Parts, in the newest user turn.
	{talk(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"hologram"}]}`), 0, "messages[0].content[1].type", "", validation + `messages[0].content[1].type "hologram" is not a known content part`},
	{talk(`{"role":"user","content":[{"text":"a"}]}`), 0, "messages[0].content[0].type", "missing_required_parameter", validation + "messages[0].content[0].type is required"},
	{talk(`{"role":"user","content":[{}]}`), 0, "messages[0].content[0].type", "missing_required_parameter", validation + "messages[0].content[0].type is required"},
	{talk(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}`), 0, "messages[0].content[0].type", "", validation + `messages[0].content[0].type must be text, got "image_url"`},
	{talk(`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}`), 0, "messages[0].content[0]", "unsupported_parameter", validation + "Model 'm' does not support audio input: messages[0].content[0]"},
	{talk(`{"role":"user","content":[{"type":"video_url","video_url":{"url":"http://x/y.mp4"}}]}`), 0, "messages[0].content[0]", "unsupported_parameter", validation + "Model 'm' does not support video input: messages[0].content[0]"},
	{talk(`{"role":"user","content":[{"type":"image_url"}]}`), 0, "messages[0].content[0]", "missing_required_parameter", validation + "messages[0].content[0] part has neither `url` nor `uuid`; at least one is required"},

	// The extension object.
	{ask(`"nvext":7`), 0, "nvext", "", undecoded + "nvext: expected an object"},
	{ask(`"nvext":{"agent_hints":{"osl":-3}}`), 0, "nvext.agent_hints.osl", "", undecoded + "nvext.agent_hints.osl: expected an unsigned 32-bit integer"},
	{ask(`"n":2,"nvext":{"extra_fields":["completion_token_ids"]}`), 0, "nvext.extra_fields", "", validation + "`nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice"},
}

var completionRefusals = []refusal{
	{`{"model":"m"}`, 0, "prompt", "missing_required_parameter", validation + "At least one of 'prompt' or 'prompt_embeds' must be provided"},
	{`{"model":"m","prompt":""}`, 0, "prompt", "missing_required_parameter", validation + "Prompt string cannot be empty"},
	{`{"model":"m","prompt":[]}`, 0, "prompt", "missing_required_parameter", validation + "Prompt string array cannot be empty"},
	{`{"model":"m","prompt":["a",""]}`, 0, "prompt[1]", "", validation + "Prompt string at index 1 cannot be empty"},
	{`{"model":"m","prompt":[[1],[]]}`, 0, "prompt[1]", "", validation + "Prompt integer array at index 1 cannot be empty"},
	{`{"model":"m","prompt":[1,"a"]}`, 0, "prompt[1]", "", undecoded + "prompt[1]: expected a number, as before it, got a string"},
	{`{"model":"m","prompt":[1,-1]}`, 0, "prompt[1]", "", undecoded + "prompt[1]: expected an integer from 0 to 4294967295, got -1"},
	{`{"model":"m","prompt":[[1],["a"]]}`, 0, "prompt[1][0]", "", undecoded + "prompt[1][0]: expected an integer, got a string"},
	{`{"model":"m","prompt":7}`, 0, "prompt", "", undecoded + "prompt: expected a string, an array of strings, of token IDs, or of arrays of token IDs, got a number"},
	{`{"model":"m","prompt":["a","b"],"n":65}`, 0, "prompt", "", validation + "Total choices (batch_size × n = 2 × 65 = 130) exceeds maximum of 128"},
	{complete(`"suffix":"x"`), 0, "suffix", "unsupported_parameter", validation + "suffix is not supported"},
	{complete(`"suffix":"` + strings.Repeat("x", 10001) + `"`), 0, "suffix", "", validation + "Suffix is too long, maximum 10000 characters"},
	{complete(`"logprobs":6`), 0, "logprobs", "", validation + "Logprobs must be between 0 and 5, got 6"},
	{complete(`"logprobs":true`), 0, "logprobs", "", undecoded + "logprobs: expected an integer, got a boolean"},
	{complete(`"best_of":21`), 0, "best_of", "", validation + "Best_of must be between 0 and 20, got 21"},
	{complete(`"best_of":1,"n":2`), 0, "best_of", "", validation + "Best_of must be greater than or equal to n, got best_of=1 and n=2"},
	{complete(`"best_of":3,"n":2`), 0, "best_of", "unsupported_parameter", validation + "best_of greater than n is not supported, got best_of=3 and n=2"},
	{complete(`"echo":1`), 0, "echo", "", undecoded + "echo: expected a boolean, got a number"},
	{`{"model":"m","prompt_embeds":"!"}`, 0, "prompt_embeds", "", validation + "prompt_embeds must be valid base64-encoded data"},
	{`{"model":"m","prompt_embeds":"AAAA"}`, 0, "prompt_embeds", "", validation + "prompt_embeds decoded data must be at least 100 bytes, got 3 bytes"},
	{`{"model":"m","prompt_embeds":"` + strings.Repeat("AAAA", 40) + `"}`, 501, "prompt_embeds", "unsupported_parameter", validation + "prompt_embeds is not supported"},
	{complete(`"nvext":{"token_data":[]}`), 0, "nvext.token_data", "", undecoded + "nvext.token_data: must not be empty"},
	{`{"model":"m","prompt":["a","b"],"nvext":{"token_data":[1,3]}}`, 0, "nvext.token_data", "", validation + "nvext.token_data requires exactly one prompt, got 2"},
}

var tokenizeRefusals = []refusal{
	{`{"prompt":"a"}`, 0, "model", "missing_required_parameter", validation + "Model cannot be empty"},
	{`{"model":"m"}`, 0, "prompt", "missing_required_parameter", validation + "At least one of 'prompt' or 'messages' must be provided"},
	{`{"model":"m","prompt":["a"],"messages":[{"role":"user","content":"a"}]}`, 0, "prompt", "", validation + "Only one of 'prompt' and 'messages' can be given"},
	{`{"model":"m","prompt":[1]}`, 0, "prompt", "", validation + "prompt must be one string"},
	{`{"model":"m","prompt":["a","b"]}`, 0, "prompt", "", validation + "prompt must be one string"},
}

var detokenizeRefusals = []refusal{
	{`{"tokens":[1]}`, 0, "model", "missing_required_parameter", validation + "Model cannot be empty"},
	{`{"model":"m"}`, 0, "tokens", "missing_required_parameter", validation + "The 'tokens' field is required: an array of token IDs"},
	{`{"model":"m","tokens":[1,"a"]}`, 0, "tokens[1]", "", undecoded + "tokens[1]: expected an integer, got a string"},
}

func TestRefusals(t *testing.T) {
	for route, of := range map[string]struct {
		rules  []refusal
		decode func([]byte) error
	}{
		"chat":       {chatRefusals, func(b []byte) error { _, err := openai.DecodeChat(b, openai.Options{}); return err }},
		"completion": {completionRefusals, func(b []byte) error { _, err := openai.DecodeCompletion(b, openai.Options{}); return err }},
		"tokenize":   {tokenizeRefusals, func(b []byte) error { _, err := openai.DecodeTokenize(b, openai.Options{}); return err }},
		"detokenize": {detokenizeRefusals, func(b []byte) error { _, err := openai.DecodeDetokenize(b, openai.Options{}); return err }},
	} {
		for i, rule := range of.rules {
			t.Run(fmt.Sprintf("%s/%d", route, i), func(t *testing.T) { rule.check(t, of.decode([]byte(rule.body))) })
		}
	}
}

func (r *refusal) check(t *testing.T, err error) {
	t.Helper()
	shown := r.body[:min(len(r.body), 200)]
	e, ok := err.(*wire.Error)
	if !ok {
		t.Fatalf("%s: got error %v (%T), want an *wire.Error", shown, err, err)
	}
	if e.Status != max(400, r.status) || e.Param != r.param {
		t.Errorf("%s: got status %d, param %q, want %d, %q", shown, e.Status, e.Param, max(400, r.status), r.param)
	}
	code := r.code
	if code == "" {
		code = "invalid_value"
	}
	if e.Type != "invalid_request_error" || e.Code != code {
		t.Errorf("%s: got type %q, code %q, want code %q", shown, e.Type, e.Code, code)
	}
	if e.Error() != r.message && !(strings.HasSuffix(r.message, "max depth") && strings.HasPrefix(e.Error(), r.message)) {
		t.Errorf("%s:\n got %s\nwant %s", shown, e.Error(), r.message)
	}
}

func TestUnknownMembers(t *testing.T) {
	body := []byte(ask(`"verbosity":"low","frob":{"a":[1]},"verbosity":"high","nvext":{"agent_hints":{"mood":1},"x":2},"tools":[{"type":"web_search"}]`))
	c, err := openai.DecodeChat(body, openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "verbosity frob tools[0].type=web_search nvext.agent_hints.mood nvext.x"
	if got := strings.Join(c.Unknown, " "); got != want {
		t.Errorf("ignored %s, want %s", got, want)
	}

	_, err = openai.DecodeChat([]byte(ask(`"verbosity":"low","frob":1`)), openai.Options{RejectUnknown: true})
	(&refusal{body: "RejectUnknown", param: "verbosity", code: "unsupported_parameter", message: validation + "Unsupported parameter(s): `verbosity`, `frob`"}).check(t, err)

	_, err = openai.DecodeChat(body, openai.Options{StrictNVExt: true})
	(&refusal{body: "StrictNVExt", param: "nvext.agent_hints.mood", message: undecoded + "nvext.agent_hints.mood: unknown field"}).check(t, err)

	c, err = openai.DecodeChat(body, openai.Options{DisableNVExt: true, StrictNVExt: true})
	if err != nil || c.Ext != nil {
		t.Errorf("nvext switched off: got %v, %v", c.Ext, err)
	}
}

// A body cannot hold more than there is room for, however short it is: each message,
// part and call takes much more than its shortest form. Nobody waits for the end of
// a list to find that out.
func TestWithoutEnd(t *testing.T) {
	const lots = 1 << 17
	for name, tt := range map[string]struct{ body, path string }{
		"messages": {`{"model":"m","messages":[` + many(lots+1, `{}`) + `,{"role":5}]}`, "messages[131071]"},
		"parts":    {`{"model":"m","messages":[{"role":"user","content":[` + many(lots, `"x"`) + `,5]}]}`, "messages[0].content[131070]"},
		"calls":    {`{"model":"m","messages":[{"role":"assistant","tool_calls":[` + many(lots, `{"function":{"name":"f"}}`) + `,5]}]}`, "messages[0].tool_calls[131070]"},
		"thoughts": {`{"model":"m","messages":[{"role":"assistant","reasoning_content":[` + many(lots, `""`) + `,5]}]}`, "messages[0].reasoning_content[131070]"},
		"choices":  {`{"model":"m","guided_choice":[` + many(lots+1, `""`) + `,5]}`, "guided_choice[131071]"},
		"words":    {`{"model":"m","bad_words_token_ids":[` + many(lots+1, `[]`) + `,5]}`, "bad_words_token_ids[131071]"},
	} {
		_, err := openai.DecodeChat([]byte(tt.body), openai.Options{})
		var e *wire.Error
		if !errors.As(err, &e) || e.Param != tt.path {
			t.Errorf("%s: %v at %q, want %q", name, err, e.Param, tt.path)
		}
	}
	for name, list := range map[string]string{"texts": many(lots+1, `"x"`) + `,5`, "ids": many(lots+1, `[1]`) + `,5`} {
		_, err := openai.DecodeCompletion([]byte(`{"model":"m","prompt":[`+list+`]}`), openai.Options{})
		var e *wire.Error
		if !errors.As(err, &e) || e.Param != "prompt[131071]" || !strings.Contains(e.Message, "131072 prompts") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Of what is counted to its end, no more than the limit is read.
	body := `{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[` + many(1536, `{"type":"function","function":{"name":"a"}}`) + `,5,5]}`
	if _, err := openai.DecodeChat([]byte(body), openai.Options{}); err == nil || !strings.Contains(err.Error(), "got 1538") {
		t.Errorf("tools: %v", err)
	}
}

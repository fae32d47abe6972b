package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
)

func p[T any](v T) *T { return &v }

// request decodes a chat body that must be accepted.
func request(t *testing.T, body string) *chat.Request {
	t.Helper()
	c, err := openai.DecodeChat([]byte(body), openai.Options{})
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	return c.Requests[0]
}

// same compares, with nil and empty alike.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%.200s: -want +got\n%s", what, d)
	}
}

func TestSampling(t *testing.T) {
	for members, want := range map[string]chat.Sampling{
		`"store":true`: {},
		`"temperature":0.5,"top_p":1,"min_p":0,"frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":2,"seed":-9007199254740993`: {
			Temperature: p(0.5), TopP: p(1.0), MinP: p(0.0), FrequencyPenalty: p(-2.0), PresencePenalty: p(2.0),
			RepetitionPenalty: p(2.0), Seed: p(int64(-9007199254740993)),
		},
		`"temperature":0.5,"temperature":null,"top_k":0`: {TopK: p(-1)},
		`"top_k":-1,"n":1e1`:                             {TopK: p(-1), N: 10},
		`"top_k":40,"n":2.0,"temperature":1`:             {TopK: p(40), N: 2, Temperature: p(1.0)},
		`"max_tokens":10`:                                {MaxTokens: p(10)},
		`"max_tokens":10,"max_completion_tokens":20`:     {MaxTokens: p(20)},
		`"max_tokens":10,"min_tokens":10`:                {MaxTokens: p(10), MinTokens: 10},
		`"stop":"END"`:                                   {Stop: []string{"END"}},
		`"stop":"token_id:7"`:                            {Stop: []string{"token_id:7"}},
		`"stop":["a","b"],"stop_token_ids":[5]`:          {Stop: []string{"a", "b"}, StopIDs: []uint32{5}},
		`"stop":[3,4],"stop_token_ids":[5]`:              {StopIDs: []uint32{3, 4}},
		`"stop":[]`:                                      {},
		`"stop":null`:                                    {},
		`"ignore_eos":true,"stop":["a"]`:                 {IgnoreEOS: true, Stop: []string{"a"}},
		`"include_stop_str_in_output":true`:              {IncludeStop: true},
		`"skip_special_tokens":false`:                    {KeepSpecial: true},
		`"skip_special_tokens":true`:                     {},
		`"logprobs":true`:                                {Logprobs: p(1)},
		`"logprobs":true,"top_logprobs":0`:               {Logprobs: p(1)},
		`"logprobs":true,"top_logprobs":20`:              {Logprobs: p(20)},
		`"logprobs":false`:                               {},
		`"prompt_logprobs":2`:                            {PromptLogprobs: p(2)},
		`"logit_bias":{"5":-100,"7":1.5}`:                {LogitBias: map[uint32]float64{5: -100, 7: 1.5}},
		`"allowed_token_ids":[1,2]`:                      {AllowedIDs: []uint32{1, 2}},
		`"bad_words_token_ids":[[1],[2,3]]`:              {BadWords: [][]uint32{{1}, {2, 3}}},
		`"detokenize":false,"logprob_token_ids":[1]`:     {},
		`"temperature":1.5,"top_p":0.5,"top_k":5,"min_p":0.1,"presence_penalty":1,"nvext":{"greed_sampling":true}`: {Temperature: p(0.0), PresencePenalty: p(1.0)},
	} {
		same(t, members, request(t, ask(members)).Sampling, want)
	}
}

func TestMessages(t *testing.T) {
	text := func(s string) chat.Block { return chat.Block{Kind: chat.Text, Text: s} }
	thought := func(s string) chat.Block { return chat.Block{Kind: chat.Thought, Text: s} }
	call := func(id, name, args string) chat.Block {
		return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: name, Kind: chat.ToolFunction, Args: args}}
	}
	image := func(path string) chat.Block {
		return chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "base64", MediaType: "image/png", Data: "AAAA", Detail: "low", Path: path}}
	}
	const (
		png   = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}`
		calls = `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1.0}"}},{"id":"b","type":"function","function":{"name":"g","arguments":{"y": 1e2}}}]`
	)
	for messages, want := range map[string][]chat.Turn{
		`{"role":"system","content":"S"},{"role":"developer","content":[{"type":"text","text":"D"}],"name":"boss"},{"role":"user","content":"U","name":"ann"}`: {
			{Role: chat.RoleSystem, Blocks: []chat.Block{text("S")}},
			{Role: chat.RoleDeveloper, Name: "boss", Blocks: []chat.Block{text("D")}},
			{Role: chat.RoleUser, Name: "ann", Blocks: []chat.Block{text("U")}},
		},
		`{"content":[{"type":"text","text":"a"},{"text":"b","type":"text","cache_control":{"type":"ephemeral"}},"c"],"role":"user","weight":1}`: {
			{Role: chat.RoleUser, Blocks: []chat.Block{text("a"), text("b"), text("c")}},
		},
		`{"role":"user","content":""}`: {{Role: chat.RoleUser}},
		// Arguments are kept as they came: string or object, valid or not.
		`{"role":"assistant","content":null,` + calls + `}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{call("a", "f", `{"x": 1.0}`), call("b", "g", `{"y": 1e2}`)}},
		},
		`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{broken"}},{"id":"b","function":{"name":"g"}},{"id":"c","function":{"name":"h","arguments":[1]}}]}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{call("a", "f", "{broken"), call("b", "g", ""), call("c", "h", "[1]")}},
		},
		`{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"custom","custom":{"name":"sh","input":"ls"}}]}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "a", Name: "sh", Kind: chat.ToolCustom, Args: "ls"}}}},
		},
		`{"role":"assistant","content":"x","function_call":{"name":"f","arguments":"{}"}}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{text("x"), call("", "f", "{}")}},
		},
		// Reasoning: one text, segments around the calls, either spelling.
		`{"role":"assistant","reasoning_content":"R","content":"x",` + calls + `}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("R"), text("x"), call("a", "f", `{"x": 1.0}`), call("b", "g", `{"y": 1e2}`)}},
		},
		`{"role":"assistant","reasoning_content":["0","","2"],"content":"x",` + calls + `}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("0"), text("x"), call("a", "f", `{"x": 1.0}`), call("b", "g", `{"y": 1e2}`), thought("2")}},
		},
		`{"role":"assistant","reasoning_content":["0","1","2"],"content":null,` + calls + `}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("0"), call("a", "f", `{"x": 1.0}`), thought("1"), call("b", "g", `{"y": 1e2}`), thought("2")}},
		},
		`{"role":"assistant","reasoning_content":["0","1"],"content":"x"}`: {
			{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("0"), thought("1"), text("x")}},
		},
		`{"role":"assistant","reasoning":"R","content":"x"}`:                              {{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("R"), text("x")}}},
		`{"role":"assistant","reasoning":"R","reasoning_content":"C","content":"x"}`:      {{Role: chat.RoleAssistant, Blocks: []chat.Block{thought("C"), text("x")}}},
		`{"role":"assistant","reasoning":{"effort":1},"content":"x"}`:                     {{Role: chat.RoleAssistant, Blocks: []chat.Block{text("x")}}},
		`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"refusal":""}`: {{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Refusal, Text: "no"}}}},
		`{"role":"assistant","content":null,"refusal":"no"}`:                              {{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Refusal, Text: "no"}}}},
		// Tools' answers.
		`{"role":"tool","tool_call_id":"a","content":"R"},{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"x"},` + png + `]},{"role":"function","name":"f","content":"F"},{"role":"tool","tool_call_id":"c","content":null}`: {
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "a", Blocks: []chat.Block{text("R")}}}}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "b", Blocks: []chat.Block{text("x"), image("messages[1].content[1]")}}}}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{Name: "f", Blocks: []chat.Block{text("F")}}}}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "c"}}}},
		},
		// History is never refused: images and parts that no one knows.
		`{"role":"user","content":[` + png + `,{"type":"hologram","x":1}]},{"role":"assistant","content":[{"type":"text","text":"y"},{"type":"thinking","thinking":"T"},{"type":"thinking","thinking":[1]}]},{"role":"user","content":"z"}`: {
			{Role: chat.RoleUser, Blocks: []chat.Block{image("messages[0].content[0]"), {Kind: chat.Opaque, Wire: json.RawMessage(`{"type":"hologram","x":1}`)}}},
			{Role: chat.RoleAssistant, Blocks: []chat.Block{text("y"), thought("T"), {Kind: chat.Opaque, Wire: json.RawMessage(`{"type":"thinking","thinking":[1]}`)}}},
			{Role: chat.RoleUser, Blocks: []chat.Block{text("z")}},
		},
		`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}},{"type":"image_url"},{"type":"image_url","image_url":"http://h/i"},{"type":"image_url","uuid":"u1"},{"type":"file","file":{"file_id":"f1"}}]},{"role":"assistant","content":"y"}`: {
			{Role: chat.RoleUser, Blocks: []chat.Block{
				{Kind: chat.Opaque, Wire: json.RawMessage(`{"type":"input_audio","input_audio":{"data":"AA"}}`)},
				{Kind: chat.Opaque, Wire: json.RawMessage(`{"type":"image_url"}`)},
				{Kind: chat.Image, Media: &chat.Media{Source: "url", Data: "http://h/i", Path: "messages[0].content[2]"}},
				{Kind: chat.Image, Media: &chat.Media{Source: "file", Data: "u1", Path: "messages[0].content[3]"}},
				{Kind: chat.Document, Media: &chat.Media{Source: "file", Data: "f1", Path: "messages[0].content[4]"}},
			}},
			{Role: chat.RoleAssistant, Blocks: []chat.Block{text("y")}},
		},
	} {
		same(t, messages, request(t, talk(messages)).Turns, want)
	}

	// Whether a model is shown those of the newest turn is not decided here.
	same(t, "newest", request(t, talk(`{"role":"user","content":[`+png+`]}`)).Turns[0].Blocks, []chat.Block{image("messages[0].content[0]")})
}

func TestTools(t *testing.T) {
	const first = `{"type":"function", "function":{"name":"mcp.fs:read-1","parameters": {"type":"object","z":1,"a":1e2},"strict":true}}`
	const second = `{"function":{"description":"d","name":"b","parameters":null}}`
	tools := `"tools":[` + first + `,{"type":"web_search"},` + second + `]`
	want := []chat.Tool{
		{Kind: chat.ToolFunction, Name: "mcp.fs:read-1", Schema: json.RawMessage(`{"type":"object","z":1,"a":1e2}`), Strict: p(true), Wire: json.RawMessage(first)},
		{Kind: chat.ToolFunction, Name: "b", Description: "d", Wire: json.RawMessage(second)},
	}
	same(t, tools, request(t, ask(tools)).Tools, want)

	for choice, want := range map[string]chat.ToolChoice{
		`"store":1`:                   {},
		`"tool_choice":null`:          {},
		`"tool_choice":"auto"`:        {Mode: chat.ToolAuto},
		`"tool_choice":"none"`:        {Mode: chat.ToolNone},
		`"tool_choice":"required"`:    {Mode: chat.ToolRequired},
		`"parallel_tool_calls":false`: {Parallel: p(false)},
		`"tool_choice":{"type":"function","function":{"name":"b"}}`:                                                                        {Mode: chat.ToolNamed, Names: []string{"b"}},
		`"tool_choice":{"type":"function","name":"b"}`:                                                                                     {Mode: chat.ToolNamed, Names: []string{"b"}},
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`:                                                {Mode: chat.ToolNone},
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"b"}}]}}`: {Mode: chat.ToolRequired, Names: []string{"b"}},
	} {
		same(t, choice, request(t, ask(choice+`,`+tools)).ToolChoice, want)
	}
	if r := request(t, ask(`"tools":[],"tool_choice":"auto"`)); len(r.Tools) != 0 {
		t.Error("an empty list of tools holds tools")
	}
}

func TestOutputFormat(t *testing.T) {
	schema := json.RawMessage(`{"type": "object"}`)
	for members, want := range map[string]chat.OutputFormat{
		`"response_format":{"type":"text"}`:        {},
		`"response_format":null`:                   {},
		`"response_format":{"type":"json_object"}`: {Kind: chat.FormatJSONObject},
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type": "object"},"strict":true}}`: {Kind: chat.FormatJSONSchema, Name: "n", Schema: schema, Strict: p(true)},
		`"guided_json":{"type": "object"}`:                                                            {Kind: chat.FormatJSONSchema, Schema: schema},
		`"guided_json":"{\"type\": \"object\"}"`:                                                      {Kind: chat.FormatJSONSchema, Schema: schema},
		`"guided_json":{"type": "object"},"response_format":{"type":"json_object"}`:                   {Kind: chat.FormatJSONSchema, Schema: schema},
		`"guided_regex":"a+","guided_decoding_backend":"x"`:                                           {Kind: chat.FormatRegex, Pattern: "a+"},
		`"guided_choice":["a","b"]`:                                                                   {Kind: chat.FormatChoice, Choices: []string{"a", "b"}},
		`"guided_grammar":"root ::= \"` + strings.Repeat("(", 600) + `\""`:                            {Kind: chat.FormatGrammar, Pattern: `root ::= "` + strings.Repeat("(", 600) + `"`},
		`"guided_whitespace_pattern":" "`:                                                             {},
		`"response_format":{"type":"json_object"},"tool_choice":"required",` + function(`"name":"a"`): {},
		`"response_format":{"type":"json_object"},"tool_choice":"auto",` + function(`"name":"a"`):     {Kind: chat.FormatJSONObject},
	} {
		same(t, members, request(t, ask(members)).Output, want)
	}
}

func TestThinking(t *testing.T) {
	on, off := p(true), p(false)
	for members, want := range map[string]struct {
		chat.Thinking
		args string
	}{
		`"store":1`:                                                                          {chat.Thinking{}, ``},
		`"reasoning_effort":"high"`:                                                          {chat.Thinking{Enabled: on, Effort: "high"}, `{"thinking":true,"enable_thinking":true,"reasoning_effort":"high"}`},
		`"reasoning_effort":"none"`:                                                          {chat.Thinking{Enabled: off, Effort: "none"}, `{"thinking":false,"enable_thinking":false,"reasoning_effort":"none"}`},
		`"thinking":true`:                                                                    {chat.Thinking{Enabled: on}, `{"thinking":true,"enable_thinking":true}`},
		`"thinking":{"type":"disabled"}`:                                                     {chat.Thinking{Enabled: off}, `{"thinking":false,"enable_thinking":false}`},
		`"thinking":{"type":"enabled","budget_tokens":64}`:                                   {chat.Thinking{Enabled: on, Budget: p(64)}, `{"thinking":true,"enable_thinking":true}`},
		`"thinking":{"type":"adaptive"}`:                                                     {chat.Thinking{Adaptive: true}, ``},
		`"thinking":false,"reasoning_effort":"high"`:                                         {chat.Thinking{Enabled: off, Effort: "high"}, `{"thinking":false,"enable_thinking":false,"reasoning_effort":"high"}`},
		`"chat_template_kwargs":{"enable_thinking":false,"x": 1.50}`:                         {chat.Thinking{Enabled: off}, `{"enable_thinking":false,"x":1.50,"thinking":false}`},
		`"chat_template_args":{"thinking":1}`:                                                {chat.Thinking{Enabled: on}, `{"thinking":true,"enable_thinking":true}`},
		`"chat_template_args":{"thinking":0}`:                                                {chat.Thinking{Enabled: off}, `{"thinking":false,"enable_thinking":false}`},
		`"chat_template_args":{"enable_thinking":"Yes"}`:                                     {chat.Thinking{Enabled: on}, `{"enable_thinking":true,"thinking":true}`},
		`"chat_template_args":{"thinking_mode":"disabled"}`:                                  {chat.Thinking{Enabled: off}, `{"thinking_mode":"disabled","thinking":false,"enable_thinking":false}`},
		`"chat_template_args":{"thinking_mode":"adaptive"}`:                                  {chat.Thinking{}, `{"thinking_mode":"adaptive"}`},
		`"chat_template_args":{"thinking":"adaptive"}`:                                       {chat.Thinking{}, `{"thinking":"adaptive"}`},
		`"chat_template_args":{"thinking_mode":"disabled"},"thinking":true`:                  {chat.Thinking{Enabled: on}, `{"thinking_mode":"enabled","thinking":true,"enable_thinking":true}`},
		`"chat_template_args":{"reasoning_effort":"low"},"reasoning_effort":"max"`:           {chat.Thinking{Enabled: on, Effort: "max"}, `{"reasoning_effort":"max","thinking":true,"enable_thinking":true}`},
		`"chat_template_args":{"reasoning_effort":"low"}`:                                    {chat.Thinking{Enabled: on, Effort: "low"}, `{"reasoning_effort":"low","thinking":true,"enable_thinking":true}`},
		`"chat_template_args":{}`:                                                            {chat.Thinking{}, ``},
		`"thinking":{"type":"enabled","budget_tokens":64},"nvext":{"max_thinking_tokens":9}`: {chat.Thinking{Enabled: on, Budget: p(9)}, `{"thinking":true,"enable_thinking":true}`},
	} {
		r := request(t, ask(members))
		same(t, members, r.Thinking, want.Thinking)
		same(t, members, string(r.TemplateArgs), want.args)
	}
}

func TestTemplateArguments(t *testing.T) {
	for members, want := range map[string]string{
		`"add_generation_prompt":true`:                                `{"add_generation_prompt":true}`,
		`"continue_final_message":true`:                               `{"continue_final_message":true}`,
		`"continue_final_message":true,"add_generation_prompt":false`: `{"add_generation_prompt":false,"continue_final_message":true}`,
		`"continue_final_message":false,"add_generation_prompt":true`: `{"add_generation_prompt":true,"continue_final_message":false}`,
		`"continue_final_message":null,"add_generation_prompt":null`:  ``,
		`"documents":[{"title":"T","text":"a\u0000b"},{}]`:            `{"documents":[{"title":"T","text":"a\ufffdb"},{}]}`,
		`"documents":[]`: `{"documents":[]}`,
		`"documents":[{"a":"b"}],"documents":null`:                                                                                           ``,
		`"documents":[{"a":"b"}],"chat_template_args":{"documents":1}`:                                                                       `{"documents":[{"a":"b"}]}`,
		`"chat_template_kwargs":{"x":1,"continue_final_message":true},"add_generation_prompt":false,"continue_final_message":false`:          `{"x":1,"continue_final_message":false,"add_generation_prompt":false}`,
		`"chat_template_kwargs":{"add_generation_prompt":true},"continue_final_message":true,"add_generation_prompt":false,"thinking":false`: `{"add_generation_prompt":false,"continue_final_message":true,"thinking":false,"enable_thinking":false}`,
	} {
		c, err := openai.DecodeChat([]byte(ask(members)), openai.Options{RejectUnknown: true})
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		same(t, members, string(c.Requests[0].TemplateArgs), want)
	}
}

// Very many members take no longer than their bytes do.
func TestManyMembers(t *testing.T) {
	const n = 200_000
	var args strings.Builder
	for i := range n {
		fmt.Fprintf(&args, `"name%06d":%d,`, i, i)
	}
	began := time.Now()
	r := request(t, ask(`"chat_template_kwargs":{`+args.String()+`"name000000":7}`))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if got := string(r.TemplateArgs); !strings.HasPrefix(got, `{"name000000":7,"name000001":1,`) || strings.Count(got, ":") != n {
		t.Errorf("%d members: %.100s", strings.Count(got, ":"), got)
	}
}

func TestCall(t *testing.T) {
	type flags struct{ Stream, IncludeUsage, ContinuousUsage bool }
	for members, want := range map[string]flags{
		`"stream":false`: {},
		`"stream":null`:  {},
		`"stream":true`:  {Stream: true},
		`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`:    {Stream: true, IncludeUsage: true},
		`"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`:  {true, true, true},
		`"stream":true,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`: {Stream: true},
		`"stream":true,"stream_options":null`:                                                  {Stream: true},
	} {
		c, err := openai.DecodeChat([]byte(ask(members)), openai.Options{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, members, flags{c.Stream, c.IncludeUsage, c.ContinuousUsage}, want)
		c, err = openai.DecodeChat([]byte(ask(members)), openai.Options{ForceUsage: true})
		if err != nil || c.IncludeUsage != c.Stream {
			t.Errorf("%s: forced usage gives %v, %v", members, c.IncludeUsage, err)
		}
	}

	c, err := openai.DecodeChat([]byte(`{"messages":[{"role":"user","content":"Hi"}],"prompt_cache_key":"k","cache_salt":"s","metadata":{"a":"x","b":{"c": 1}},"nvext":null}`),
		openai.Options{DefaultModel: "d"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "model", c.Model+" "+c.Requests[0].Model+" "+c.PromptCacheKey, "d d k")
	same(t, "salt", c.Ext, &nvext.Ext{CacheSalt: "s"})
	same(t, "metadata", c.Requests[0].Metadata, map[string]string{"a": "x", "b": `{"c": 1}`})

	c, err = openai.DecodeChat([]byte(ask(`"cache_salt":"s","nvext":{"cache_salt":"t","token_data":[1,2]}`)), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "nvext salt wins", c.Ext.CacheSalt, "t")
	// What stands in for the prompt is the prompt stage's to apply.
	same(t, "token_data", c.Ext.TokenData, []uint32{1, 2})
	if c.Requests[0].Prompt != nil || request(t, ask(`"nvext":{"use_raw_prompt":true}`)).Prompt != nil {
		t.Error("an extension object turned a conversation into a prompt")
	}
}

func TestCompletion(t *testing.T) {
	for members, want := range map[string][]chat.Prompt{
		`"prompt":"a"`:                               {{Text: "a"}},
		`"prompt":["a","b"]`:                         {{Text: "a"}, {Text: "b"}},
		`"prompt":[1,2]`:                             {{IDs: []uint32{1, 2}}},
		`"prompt":[[1],[2,3]]`:                       {{IDs: []uint32{1}}, {IDs: []uint32{2, 3}}},
		`"prompt":"a","echo":true`:                   {{Text: "a", Echo: true}},
		`"prompt":"a","add_special_tokens":false`:    {{Text: "a", NoSpecialTokens: true}},
		`"prompt":"a","suffix":"","best_of":2,"n":2`: {{Text: "a"}},
	} {
		c, err := openai.DecodeCompletion([]byte(`{"model":"m",`+members+`}`), openai.Options{})
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		var got []chat.Prompt
		for _, r := range c.Requests {
			got = append(got, *r.Prompt)
		}
		same(t, members, got, want)
		if c.Choices() != len(want)*c.Requests[0].Sampling.Choices() {
			t.Errorf("%s: %d choices", members, c.Choices())
		}
	}
	c, err := openai.DecodeCompletion([]byte(complete(`"logprobs":0,"echo":true,"nvext":{"max_thinking_tokens":3}`)), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Requests[0].Sampling
	same(t, "echoed logprobs", []*int{s.Logprobs, s.PromptLogprobs, c.Requests[0].Thinking.Budget}, []*int{p(0), p(0), p(3)})
}

// TestBadUnits holds that what is no text becomes U+FFFD unit by unit, and that
// raw control characters in strings are forgiven, everywhere alike.
func TestBadUnits(t *testing.T) {
	for in, want := range map[string]string{
		`a\ud800b`:           "a\uFFFDb",
		`\udc00\ud800`:       "\uFFFD\uFFFD",
		`\ud83d\ude00`:       "😀",
		`\uD83D\uDE00\u0000`: "😀\uFFFD",
		"\xff\xfe":           "\uFFFD\uFFFD",
		"é\xc3":              "é\uFFFD",
		"\xed\xa0\x80":       "\uFFFD\uFFFD\uFFFD",
		"a\nb\tc":            "a\nb\tc",
		"a\x00b":             "a\uFFFDb",
		`\"\\\/\b\f\n\r\t`:   "\"\\/\b\f\n\r\t",
		"\\\"\n\\\\":         "\"\n\\",
	} {
		r := request(t, talk(`{"role":"user","content":"`+in+`"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"`+in+`"}}]}`))
		same(t, in, r.Turns[0].Blocks[0].Text, want)
		same(t, in, r.Turns[1].Blocks[0].Use.Args, want)

		// Raw values stay JSON that any decoder takes.
		r = request(t, ask(function(`"name":"f","description":"`+in+`","parameters":{"d":"`+in+`"}`)))
		same(t, in, r.Tools[0].Description, want)
		for _, raw := range [][]byte{r.Tools[0].Schema, r.Tools[0].Wire} {
			if !json.Valid(raw) || strings.Contains(string(raw), "\uFFFD") != strings.Contains(want, "\uFFFD") && !strings.Contains(string(raw), `\ufffd`) {
				t.Errorf("%q: kept as %q", in, raw)
			}
		}
		var schema struct{ D string }
		if err := json.Unmarshal(r.Tools[0].Schema, &schema); err != nil || schema.D != want {
			t.Errorf("%q: schema holds %q, %v", in, schema.D, err)
		}
	}
}

func TestLastMemberWins(t *testing.T) {
	r := request(t, `{"model":"m","messages":[{"role":"user","content":"a"}],"stop":["x","y"],"stop":[3],"logit_bias":{"1":1},"logit_bias":{"2":2},
		"messages":[{"role":"user","content":"b"}],"tools":[{"function":{"name":"f"}}],"tools":null,"m\u006fdel":"n"}`)
	same(t, "turns", r.Turns, []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "b"}}}})
	same(t, "sampling", r.Sampling, chat.Sampling{StopIDs: []uint32{3}, LogitBias: map[uint32]float64{2: 2}})
	if len(r.Tools) != 0 || r.Model != "n" {
		t.Errorf("got tools %v, model %s", r.Tools, r.Model)
	}
}

func TestTokenize(t *testing.T) {
	c, err := openai.DecodeTokenize([]byte(`{"model":"m","prompt":"a","add_special_tokens":false,"return_token_strs":true}`), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "prompt", c, &openai.TokenizeCall{
		Request:          &chat.Request{API: chat.APICompletions, Model: "m", Prompt: &chat.Prompt{Text: "a", NoSpecialTokens: true}},
		GenerationPrompt: true, Unknown: []string{"return_token_strs"},
	})
	c, err = openai.DecodeTokenize([]byte(`{"model":"m","messages":[{"role":"user","content":"a"}],`+function(`"name":"f"`)+`,"add_generation_prompt":false,"chat_template_kwargs":{"x":1}}`), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.GenerationPrompt || len(c.Request.Turns) != 1 || len(c.Request.Tools) != 1 || string(c.Request.TemplateArgs) != `{"x":1,"add_generation_prompt":false}` {
		t.Errorf("got %+v", c.Request)
	}
	c, err = openai.DecodeTokenize([]byte(`{"model":"m","messages":[{"role":"assistant","content":"a"}],"add_generation_prompt":false,"continue_final_message":true,"documents":[]}`), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Request.TemplateArgs); c.GenerationPrompt || len(c.Unknown) > 0 || got != `{"add_generation_prompt":false,"continue_final_message":true,"documents":[]}` {
		t.Errorf("got %s, %v", got, c.Unknown)
	}
	d, err := openai.DecodeDetokenize([]byte(`{"model":"m","tokens":[]}`), openai.Options{})
	if err != nil || d.Model != "m" || d.Tokens == nil {
		t.Errorf("got %+v, %v", d, err)
	}
	same(t, "tokens", string(openai.AppendTokens(nil, []uint32{1, 22}, 4096)), `{"tokens":[1,22],"count":2,"max_model_len":4096}`)
	same(t, "no tokens", string(openai.AppendTokens(nil, nil, 0)), `{"tokens":[],"count":0}`)
	same(t, "text", string(openai.AppendPrompt(nil, "a\"b")), `{"prompt":"a\"b"}`)
}

// A call of nothing, as some models make it, ends no session: it is in its place and
// not shown.
func TestCallsOfNothing(t *testing.T) {
	for _, nothing := range []string{`{"id":"a","function":{}}`, `{"id":"a","function":{"name":"","arguments":"{}"}}`, `{"id":"a"}`} {
		messages := `{"role":"assistant","tool_calls":[` + nothing + `,{"id":"b","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"no such tool"}`
		same(t, messages, request(t, talk(messages)).Turns, []chat.Turn{
			{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Opaque}, {Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "b", Name: "f", Kind: chat.ToolFunction, Args: "{}"}}}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "a", Blocks: []chat.Block{{Kind: chat.Text, Text: "no such tool"}}}}}},
		})
	}
	const old = `{"role":"assistant","content":"x","function_call":{}}`
	same(t, old, request(t, talk(old)).Turns[0].Blocks, []chat.Block{{Kind: chat.Text, Text: "x"}, {Kind: chat.Opaque}})
}

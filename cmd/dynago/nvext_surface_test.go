//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// spoken are the APIs of conversations, whose answers may have thoughts.
var spoken = []string{"chat", "responses", "messages"}

// surfaceRows are what the object itself promises, and its fields of sampling and
// prompt.
var surfaceRows = slices.Concat(samplingRows, promptRows, thinkingRows, besideRows, badRows(), offRows)

var samplingRows = []row{
	{
		field: "greed_sampling", nvext: `{"greed_sampling":true}`, more: `"temperature":1.5,"top_p":0.5`,
		check: func(t *testing.T, c *crossing) {
			s := &c.only(t).Sampling
			if s.Temperature == nil || *s.Temperature != 0 || s.TopP != nil && *s.TopP == 0.5 {
				t.Errorf("temperature %v, top_p %v at the worker", s.Temperature, s.TopP)
			}
		},
	},
	{
		field: "greed_sampling that is false", nvext: `{"greed_sampling":false}`, more: `"temperature":1.5,"top_p":0.5`,
		check: func(t *testing.T, c *crossing) {
			s := &c.only(t).Sampling
			if s.Temperature == nil || *s.Temperature != 1.5 || s.TopP == nil || *s.TopP != 0.5 {
				t.Errorf("temperature %v, top_p %v at the worker", s.Temperature, s.TopP)
			}
		},
	},
	{
		field: "greed_sampling of two choices", nvext: `{"greed_sampling":true}`, more: `"n":2`,
		apis: []string{"chat", "completions"}, status: 400, says: "temperature must be greater than 0",
	},
}

// idsOf are the tokens of a text, control tokens among them.
func idsOf(t *testing.T, text string) []uint32 {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := model.Encode(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// listOf writes the tokens of a text as a client does.
func tokensOf(text string) string {
	model, err := demoModel()
	if err != nil {
		panic(err)
	}
	ids, err := model.Encode(nil, text)
	if err != nil {
		panic(err)
	}
	list, _ := json.Marshal(ids)
	return string(list)
}

const (
	plainText   = "<|im_start|>user\nWhich rivers cross Paris?<|im_end|>\n<|im_start|>assistant\n"
	openThought = "<|im_start|>user\nhalf a thought<|im_end|>\n<|im_start|>assistant\n<think>\n"
	rawText     = "Once upon a time, with no template at all"
)

// gives checks that a worker got the tokens of a text, and the client their count.
func gives(text string) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		want := idsOf(t, text)
		if got := c.only(t).TokenIDs; !slices.Equal(got, want) {
			t.Errorf("the worker got %v, want %v", got, want)
		}
		if prompt, _ := c.usage(t); prompt != len(want) {
			t.Errorf("the client is told of %d tokens, want %d", prompt, len(want))
		}
	}
}

var promptRows = []row{
	{field: "use_raw_prompt", nvext: `{"use_raw_prompt":true}`, prompt: rawText, apis: []string{"chat", "completions"}, check: gives(rawText)},
	{
		field: "use_raw_prompt where it says nothing", nvext: `{"use_raw_prompt":true}`, prompt: rawText, apis: []string{"responses", "messages"},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).TokenIDs; len(got) <= len(idsOf(t, rawText)) {
				t.Errorf("the template was left out: %v", got)
			}
		},
	},
	{
		field: "use_raw_prompt of two messages", nvext: `{"use_raw_prompt":true}`, apis: []string{"chat"},
		more: `"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]`, status: 400, says: "requires exactly one text message",
	},
	{field: "token_data", nvext: `{"token_data":` + tokensOf(plainText) + `}`, check: gives(plainText)},
	{field: "token_data that the prompt agrees with", nvext: `{"token_data":` + tokensOf(plainText) + `}`, more: `"prompt":` + tokensOf(plainText), apis: []string{"completions"}, check: gives(plainText)},
	{
		field: "token_data against the prompt", nvext: `{"token_data":` + tokensOf(plainText) + `}`, more: `"prompt":[1,2,3]`, apis: []string{"completions"},
		status: 400, says: `prompt and nvext\.token_data differ`,
	},
	{
		field: "token_data of two prompts", nvext: `{"token_data":` + tokensOf(plainText) + `}`, more: `"prompt":["a","b"]`, apis: []string{"completions"},
		status: 400, says: `nvext\.token_data requires exactly one prompt`,
	},
	{field: "token_data of nothing", nvext: `{"token_data":[]}`, status: 400, says: `nvext\.token_data: must not be empty`},
	{field: "token_data beyond the vocabulary", nvext: `{"token_data":[1,4294967295]}`, status: 400, says: "token id 4294967295 at index 1 is not in the vocabulary"},
	{
		field: "token_data that opens a thought", nvext: `{"token_data":` + tokensOf(openThought) + `}`, prompt: "half a thought", apis: spoken, modes: []bool{false},
		check: func(t *testing.T, c *crossing) {
			want := map[string]string{
				"chat":      `"reasoning_content":"A thought\."`,
				"responses": `"type":"reasoning_text"`,
				"messages":  `"thinking":"A thought\."`,
			}[c.api]
			if !regexp.MustCompile(want).MatchString(c.reply.body) || !strings.Contains(c.reply.body, "And done.") {
				t.Errorf("no thought in %s", c.reply.body)
			}
		},
	},
}

// cutAt checks that a thought was cut after so many tokens: what the worker was then
// plainText has them, and what ends a thought.
func cutAt(tokens int) func(t *testing.T, c *crossing) {
	return func(t *testing.T, c *crossing) {
		if len(c.sent) != 2 {
			t.Fatalf("workers were asked %d times, want 2", len(c.sent))
		}
		if c.sent[0].worker != c.sent[1].worker {
			t.Errorf("it went on on another worker")
		}
		first, second := c.sent[0].TokenIDs, c.sent[1].TokenIDs
		if len(second) < len(first) || !slices.Equal(second[:len(first)], first) {
			t.Fatalf("it does not go on where it was: %v, then %v", first, second)
		}
		model, err := demoModel()
		if err != nil {
			t.Fatal(err)
		}
		text, err := model.Text(second[len(first):])
		if err != nil {
			t.Fatal(err)
		}
		thought, _, ended := strings.Cut(strings.TrimPrefix(text, "<think>"), "</think>")
		if n := len(idsOf(t, strings.TrimSpace(thought))); !ended || n > tokens+1 {
			t.Errorf("after %q, %d tokens of thought for %d", text, n, tokens)
		}
	}
}

var thinkingRows = []row{
	{field: "max_thinking_tokens", nvext: `{"max_thinking_tokens":4}`, prompt: "Please ponder {here}.", apis: spoken, check: cutAt(4)},
	{field: "max_thinking_tokens of plenty", nvext: `{"max_thinking_tokens":1000}`, prompt: "Please ponder {here}.", apis: spoken, check: func(t *testing.T, c *crossing) { c.only(t) }},
	{field: "budget_tokens", more: `"thinking":{"type":"enabled","budget_tokens":4}`, prompt: "Please ponder {here}.", apis: []string{"messages"}, check: cutAt(4)},
	{
		field: "max_thinking_tokens before budget_tokens", nvext: `{"max_thinking_tokens":4}`, more: `"thinking":{"type":"enabled","budget_tokens":1000}`,
		prompt: "Please ponder {here}.", apis: []string{"messages"}, check: cutAt(4),
	},
}

const (
	uploads = "https://store.example/traces"
	stamp   = 1790000000123.25
)

var besideRows = []row{
	{
		field: "request_timestamp_ms", nvext: `{"request_timestamp_ms":1790000000123.25}`,
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).RequestTimestampMS; got == nil || *got != stamp {
				t.Errorf("the worker is told %v", got)
			}
		},
	},
	{
		field: "annotations of others", nvext: `{"annotations":["request_id","job:{here}","formatted_prompt","token_ids"]}`,
		check: func(t *testing.T, c *crossing) {
			if got, want := c.only(t).Annotations, []string{c.fill("job:{here}")}; !slices.Equal(got, want) {
				t.Errorf("the worker is told %q, want %q", got, want)
			}
		},
	},
	{
		field: "routed_experts", nvext: `{"extra_fields":["routed_experts"]}`,
		check: func(t *testing.T, c *crossing) {
			if !c.only(t).RoutedExperts {
				t.Error("the worker is not asked for the experts")
			}
		},
	},
	{
		field: "metadata_upload", nvext: `{"metadata_upload":{"url":"  https://store.example/traces/{here} "}}`, flags: []string{"--metadata-upload-prefix", uploads},
		check: func(t *testing.T, c *crossing) {
			if got, want := string(c.only(t).Extra), c.fill(`{"nvext":{"metadata_upload":{"url":"https://store.example/traces/{here}"}}}`); got != want {
				t.Errorf("the worker is told %s, want %s", got, want)
			}
		},
	},
	{
		field: "metadata_upload elsewhere", nvext: `{"metadata_upload":{"url":"https://evil.example/traces"}}`, flags: []string{"--metadata-upload-prefix", uploads},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).Extra; got != nil {
				t.Errorf("the worker is told %s", got)
			}
		},
	},
	{
		field: "metadata_upload without leave", nvext: `{"metadata_upload":{"url":"https://store.example/traces"}}`,
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).Extra; got != nil {
				t.Errorf("the worker is told %s", got)
			}
		},
	},
	{
		field: "x-dynamo-meta-*", header: []string{"x-dynamo-meta-Run", " {here} ", "x-dynamo-meta-authorization", "me", "x-dynamo-meta-key", "Bearer x"},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).Meta; len(got) != 1 || got["run"] != c.fill("{here}") {
				t.Errorf("the worker is told %q", got)
			}
		},
	},
	{
		field: "x-dynamo-meta-* of too much", status: 431, says: "metadata headers exceed the limit of 64 entries",
		header: func() (h []string) {
			for i := range 65 {
				h = append(h, fmt.Sprintf("x-dynamo-meta-%d", i), "v")
			}
			return h
		}(),
	},
	{
		field: "x-dynago-debug", nvext: `{"backend_instance_id":{other},"agent_context":{"session_type_id":"t","session_id":"r","trajectory_id":"{here}"}}`, header: []string{"x-dynago-debug", "1"},
		check: func(t *testing.T, c *crossing) {
			var told struct {
				Session   string
				First     bool
				Placement struct {
					Worker uint64 `json:"worker_id"`
					Blocks int
				}
			}
			if err := json.Unmarshal([]byte(c.header.Get("x-dynago-debug")), &told); err != nil || told.Session != c.fill("{here}") || !told.First || told.Placement.Worker != c.ids[1] || told.Placement.Blocks == 0 {
				t.Errorf("told %q, %v", c.header.Get("x-dynago-debug"), err)
			}
		},
	},
	{field: "null", nvext: `null`, check: func(t *testing.T, c *crossing) { c.only(t) }},
	{
		field: "members that are null", nvext: `{"greed_sampling":null,"token_data":null,"agent_hints":{"priority":null},"session_control":null,"backend_instance_id":null,"extra_fields":null}`, more: `"temperature":1.5`,
		check: func(t *testing.T, c *crossing) {
			if s := c.only(t); s.Sampling.Temperature == nil || *s.Sampling.Temperature != 1.5 || s.Priority != nil {
				t.Errorf("sampling %+v, priority %v", s.Sampling, s.Priority)
			}
		},
	},
}

// badRows are values that no client may send, and what it is told.
func badRows() (rows []row) {
	for ext, says := range map[string]string{
		`5`:                             `nvext: expected an object`,
		`[]`:                            `nvext: expected an object`,
		`{"greed_sampling":"yes"}`:      `nvext\.greed_sampling: expected a boolean`,
		`{"use_raw_prompt":1}`:          `nvext\.use_raw_prompt: expected a boolean`,
		`{"annotations":"request_id"}`:  `nvext\.annotations: expected an array`,
		`{"extra_fields":["timing",7]}`: `nvext\.extra_fields\[1\]: expected a string`,
		`{"backend_instance_id":-1}`:    `nvext\.backend_instance_id: expected a worker id`,
		`{"decode_worker_id":"0x10"}`:   `nvext\.decode_worker_id: expected a worker id`,
		`{"prefill_worker_id":18446744073709551616}`:   `nvext\.prefill_worker_id: expected a worker id`,
		`{"dp_rank":4294967296}`:                       `nvext\.dp_rank: expected an unsigned 32-bit integer`,
		`{"prefill_dp_rank":1.5}`:                      `nvext\.prefill_dp_rank: expected an unsigned 32-bit integer`,
		`{"token_data":[1,-2]}`:                        `nvext\.token_data\[1\]: expected an unsigned 32-bit integer`,
		`{"token_data":"1,2"}`:                         `nvext\.token_data: expected an array`,
		`{"max_thinking_tokens":-1}`:                   `nvext\.max_thinking_tokens: expected an unsigned 32-bit integer`,
		`{"agent_hints":7}`:                            `nvext\.agent_hints: expected an object`,
		`{"agent_hints":{"priority":2147483648}}`:      `nvext\.agent_hints\.priority: expected a signed 32-bit integer`,
		`{"agent_hints":{"priority":"high"}}`:          `nvext\.agent_hints\.priority: expected a signed 32-bit integer`,
		`{"agent_hints":{"strict_priority":-1}}`:       `nvext\.agent_hints\.strict_priority: expected an unsigned 32-bit integer`,
		`{"agent_hints":{"osl":4294967296}}`:           `nvext\.agent_hints\.osl: expected an unsigned 32-bit integer`,
		`{"agent_hints":{"speculative_prefill":"on"}}`: `nvext\.agent_hints\.speculative_prefill: expected a boolean`,
		`{"agent_hints":{"next_request_in":8}}`:        `nvext\.agent_hints\.next_request_in: expected a string`,
		`{"agent_hints":{"latency_sensitivity":[]}}`:   `nvext\.agent_hints\.latency_sensitivity: expected a number`,
		`{"agent_context":{}}`:                         `nvext\.agent_context\.session_type_id: is required`,
		`{"agent_context":{"session_type_id":"a","session_id":"b","trajectory_id":" "}}`: `nvext\.agent_context\.trajectory_id: is required`,
		`{"session_control":{"action":"open"}}`:                                          `nvext\.session_control\.session_id: is required`,
		`{"session_control":{"session_id":"s","action":"end"}}`:                          `nvext\.session_control\.action: must be open, bind or close`,
		`{"session_control":{"session_id":"s","action":"bind","timeout":0}}`:             `session timeout must be greater than zero`,
		`{"session_control":{"session_id":"s","timeout":-5}}`:                            `nvext\.session_control\.timeout: expected an unsigned 32-bit integer`,
		`{"session_control":{"session_id":"` + strings.Repeat("x", 257) + `"}}`:          `nvext\.session_control\.session_id: must have at most 256 bytes`,
		`{"cache_control":{"type":"persistent"}}`:                                        `nvext\.cache_control\.type: must be ephemeral`,
		`{"cache_control":{"ttl":{}}}`:                                                   `nvext\.cache_control\.ttl: expected a string`,
		`{"retention":{"ranges":[{"start":9,"end":3,"priority":1}]}}`:                    `nvext\.retention\.ranges\[0\]\.end: must be greater than start`,
		`{"retention":{"ranges":[{"start":0,"priority":101}]}}`:                          `nvext\.retention\.ranges\[0\]\.priority: must be from 0 to 100`,
		`{"cache_salt":7}`:                                            `nvext\.cache_salt: expected a string`,
		`{"metadata_upload":{}}`:                                      `nvext\.metadata_upload\.url: is required`,
		`{"request_timestamp_ms":"now"}`:                              `nvext\.request_timestamp_ms: expected a number`,
		`{"routing_constraints":{"required_taints":"gpu"}}`:           `nvext\.routing_constraints\.required_taints: expected an array`,
		`{"routing_constraints":{"preferred_taints":{"gpu":"much"}}}`: `nvext\.routing_constraints\.preferred_taints\.gpu: expected a number`,
		`{"router":{"ttft_target":"fast"}}`:                           `nvext\.router\.ttft_target: expected a number`,
		`{"router":{"itl_target":true}}`:                              `nvext\.router\.itl_target: expected a number`,
	} {
		rows = append(rows, row{field: "bad " + ext, nvext: ext, status: 400, says: says})
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.field, b.field) })
	return rows
}

var (
	strict = []string{"--strict-nvext"}
	off    = []string{"--disable-frontend-nvext"}
)

var offRows = []row{
	{field: "a new member", nvext: `{"mood":"calm","agent_hints":{"mood":1},"router":{"x":{}}}`, check: func(t *testing.T, c *crossing) { c.only(t) }},
	{field: "a new member, strictly", nvext: `{"mood":"calm"}`, flags: strict, status: 400, says: `nvext\.mood: unknown field`},
	{field: "a new member of an object, strictly", nvext: `{"agent_hints":{"priority":1,"mood":1}}`, flags: strict, status: 400, says: `nvext\.agent_hints\.mood: unknown field`},
	{field: "a new member of a list, strictly", nvext: `{"retention":{"ranges":[{"start":0,"priority":1,"mood":1}]}}`, flags: strict, status: 400, says: `nvext\.retention\.ranges\[0\]\.mood: unknown field`},
	{field: "new annotations and fields, strictly", nvext: `{"annotations":["novel"],"extra_fields":["novel"]}`, flags: strict, check: func(t *testing.T, c *crossing) { c.only(t) }},
	{
		field: "everything, turned off", flags: off, more: `"temperature":1.5`,
		nvext:  `{"greed_sampling":true,"token_data":[1,2],"backend_instance_id":1,"agent_hints":{"priority":7,"osl":9},"cache_salt":"x","session_control":{"session_id":"s","action":"open"},"cache_control":{"ttl":"1h"},"extra_fields":["worker_id","timing","routed_experts"],"annotations":["request_id","query_instance_id:","x"],"metadata_upload":{"url":"u"},"request_timestamp_ms":1,"routing_constraints":{"required_taints":["none"]},"novel":1}`,
		header: []string{"x-worker-instance-id", "1", "x-dp-rank", "7", "x-dynamo-request-priority", "7", "x-tenant-id", "t", "x-dynamo-meta-run", "1", "x-dynago-debug", "1"},
		check: func(t *testing.T, c *crossing) {
			s := c.only(t)
			if s.Sampling.Temperature == nil || *s.Sampling.Temperature != 1.5 || len(s.TokenIDs) == 2 || s.Priority != nil || s.Expected != 0 || s.KV.Namespace.Salt != "" ||
				s.KV.Session.ID != "" || len(s.KV.Pins) > 0 || s.Extra != nil || s.RequestTimestampMS != nil || s.Meta != nil || s.Annotations != nil || s.RoutedExperts {
				t.Errorf("the worker got %+v", s.Request)
			}
			if strings.Contains(c.reply.body, "nvext") || strings.Contains(c.reply.body, "request_id") || c.header.Get("x-dynago-debug") != "" || c.header.Get("x-dynago-session") != "" {
				t.Errorf("the answer tells %q and %s", c.header, c.reply.body)
			}
			until(t, "one warning", func() bool {
				return strings.Count(c.log.String(), `msg="nvext is turned off: the request is served without" target=frontend request_id=`+c.header.Get("Request-Id")) == 1
			})
		},
	},
	{field: "a broken one, turned off", nvext: `{"agent_hints":{"priority":"x"}}`, flags: off, check: func(t *testing.T, c *crossing) { c.only(t) }},
	{
		field: "turned off by the environment", nvext: `{"greed_sampling":true}`, more: `"temperature":1.5`, env: []string{"DYN_DISABLE_FRONTEND_NVEXT=YES"},
		check: func(t *testing.T, c *crossing) {
			if s := c.only(t); s.Sampling.Temperature == nil || *s.Sampling.Temperature != 1.5 {
				t.Errorf("sampling %+v", s.Sampling)
			}
		},
	},
	{
		field: "identity, with all turned off", header: []string{"x-dynamo-session-id", "{here}"}, flags: off,
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).KV.Session.ID; got != c.fill("{here}") {
				t.Errorf("session %q", got)
			}
			if n := strings.Count(c.log.String(), "target=frontend request_id="+c.header.Get("Request-Id")+" body="); n != 0 {
				t.Errorf("%d warnings", n)
			}
		},
	},
}

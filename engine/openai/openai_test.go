package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/openai"
	"github.com/dynago/dynago/internal/fake/hostile"
	"github.com/dynago/dynago/internal/fake/ollama"
	"github.com/dynago/dynago/kv"
)

func p[T any](v T) *T { return &v }

func attach(t *testing.T, h http.Handler, change func(*openai.Config)) *openai.Engine {
	t.Helper()
	s := httptest.NewServer(h)
	cfg := openai.Config{Config: httpapi.Config{URL: s.URL}, Model: "m", Interval: 2 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	e, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		s.Close()
	})
	return e
}

// says is a server that answers with events.
func says(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, d := range data {
			io.WriteString(w, "data: "+d+"\n\n")
		}
	}
}

func ask(q *chat.Request) *engine.Request {
	return &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Chat: q, Stop: engine.Stop{MaxTokens: 64}}
}

func hello() *chat.Request {
	return &chat.Request{Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Hello"}}}}}
}

func text(s string) chat.Block { return chat.Block{Kind: chat.Text, Text: s} }

// Bodies are golden: testdata/bodies has one for each request here. With
// UPDATE_GOLDEN=1 the files are written anew.
func TestBodies(t *testing.T) {
	weather := chat.Tool{Kind: chat.ToolFunction, Name: "weather", Description: "Tells it.", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}
	search := chat.Tool{Kind: chat.ToolFunction, Name: "search", Deferred: true}
	for name, c := range map[string]struct {
		change  func(*openai.Config)
		request func(*engine.Request)
	}{
		"plain":     {},
		"unlimited": {request: func(r *engine.Request) { r.Stop.MaxTokens = 0 }},
		"all": {request: func(r *engine.Request) {
			r.Sampling = engine.Sampling{Temperature: p(0.2), TopP: p(0.9), Seed: p(int64(7)), FrequencyPenalty: p(0.5), PresencePenalty: p(-0.5), TopK: p(3), MinP: p(0.1), RepetitionPenalty: p(1.1)}
			r.Stop.MinTokens = 2
			r.Stop.Strings = []string{"END"}
			r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`), Strict: p(true)}
			r.Chat.Thinking.Effort = "low"
			r.Chat.Tools = []chat.Tool{weather, search, {Kind: chat.ToolServer, Name: "web"}}
			r.Chat.ToolChoice = chat.ToolChoice{Mode: chat.ToolRequired, Parallel: p(false)}
		}},
		"bare": {request: func(r *engine.Request) {
			r.Chat.Turns[0].Raw = true
			r.Sampling.LogitBias = map[uint32]float64{7: -100, 12: 1.5}
		}},
		"bare and unlimited": {change: func(c *openai.Config) { c.ContextLength = 100 }, request: func(r *engine.Request) { r.Chat.Turns[0].Raw, r.Stop.MaxTokens = true, 0 }},
		"bare and long":      {change: func(c *openai.Config) { c.ContextLength = 5 }, request: func(r *engine.Request) { r.Chat.Turns[0].Raw, r.Stop.MaxTokens = true, 0 }},
		"developer": {request: func(r *engine.Request) {
			r.Chat.Turns = append(r.Chat.Turns, chat.Turn{Role: chat.RoleDeveloper, Blocks: []chat.Block{text("Be kind.")}})
			r.Chat.TemplateArgs = json.RawMessage(`{"enable_thinking":false}`)
		}},
		"object": {request: func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject} }},
		"named": {request: func(r *engine.Request) {
			r.Chat.Tools, r.Chat.ToolChoice = []chat.Tool{weather}, chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"weather"}}
		}},
		"hidden": {request: func(r *engine.Request) {
			r.Chat.Tools, r.Chat.ToolChoice = []chat.Tool{weather}, chat.ToolChoice{Mode: chat.ToolNone, Hidden: true}
		}},
		"extra": {change: func(c *openai.Config) { c.ExtraBody = json.RawMessage(`{"top_k":5,"x":[1]}`) }, request: func(r *engine.Request) { r.Extra = json.RawMessage(`{"top_k":6}`) }},
		"conversation": {request: func(r *engine.Request) {
			r.Chat.System = []chat.Block{text("Be "), text("brief.")}
			r.Chat.Tools = []chat.Tool{weather, search}
			r.Chat.Turns = []chat.Turn{
				{Role: chat.RoleUser, Name: "ann", Blocks: []chat.Block{text("What is it?"), {Kind: chat.Image, Media: &chat.Media{Source: "base64", MediaType: "image/png", Data: "AAAA", Detail: "low"}}, {Kind: chat.Image, Media: &chat.Media{Source: "url", Data: "https://h/x.png"}}}},
				{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Thought, Text: "Look."}, {Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c1", Name: "weather", Args: `{"b": 1,"a":2}`}}, {Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c2", Name: "weather", Args: `{`}}}},
				{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "c1", Blocks: []chat.Block{text("sun"), {Kind: chat.ToolReference, Text: "search"}}}}, {Kind: chat.ToolResult, Result: &chat.Result{ID: "c2", IsError: true, Blocks: []chat.Block{text("no")}}}, text("And?"), {Kind: chat.Opaque}}},
				{Role: chat.RoleAssistant, Blocks: []chat.Block{text("Sun."), {Kind: chat.Refusal, Text: "No more."}}},
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Traceparent") + "\n" + string(body)
				says(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`)(w, r)
			}), c.change)
			r := ask(hello())
			r.Trace.Parent = "00-a-b-01"
			if c.request != nil {
				c.request(r)
			}
			if _, err := chat.Fold(e.Chat(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			got = strings.NewReplacer(`,"`, ",\n\"", `,{`, ",\n{").Replace(got) + "\n"
			file := filepath.Join("testdata", "bodies", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	user := func(b chat.Block) func(*engine.Request) {
		return func(r *engine.Request) { r.Chat.Turns[0].Blocks = []chat.Block{b} }
	}
	for name, c := range map[string]struct {
		change func(*engine.Request)
		kind   engine.ErrorKind
		param  string
	}{
		"no conversation": {func(r *engine.Request) { r.Chat = nil }, engine.Internal, ""},
		"a bare prompt":   {func(r *engine.Request) { r.Chat.Prompt = &chat.Prompt{Text: "x"} }, engine.Internal, ""},
		"a form of a prompt": {func(r *engine.Request) {
			r.Chat.Turns[0].Raw, r.Format = true, &chat.OutputFormat{Kind: chat.FormatJSONObject}
		}, engine.Unsupported, ""},
		"a salt":        {func(r *engine.Request) { r.KV.Namespace = kv.Namespace{Salt: "x"} }, engine.Unsupported, ""},
		"an adapter":    {func(r *engine.Request) { r.KV.Namespace = kv.Namespace{LoRA: "x"} }, engine.Unsupported, ""},
		"logprobs":      {func(r *engine.Request) { r.Logprobs = p(1) }, engine.Unsupported, ""},
		"a regex":       {func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatRegex} }, engine.Unsupported, ""},
		"a custom tool": {func(r *engine.Request) { r.Chat.Tools = []chat.Tool{{Kind: chat.ToolCustom, Name: "x"}} }, engine.Unsupported, ""},
		"extras":        {func(r *engine.Request) { r.Extra = json.RawMessage(`{"messages":[]}`) }, engine.InvalidArgument, ""},
		"a document":    {user(chat.Block{Kind: chat.Document, Media: &chat.Media{Path: "messages[0].content[0]"}}), engine.InvalidArgument, "messages[0].content[0]"},
		"a file":        {user(chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "file", Path: "messages[0].content[0]"}}), engine.InvalidArgument, "messages[0].content[0]"},
	} {
		asked := false
		e := attach(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }), nil)
		r := ask(hello())
		c.change(r)
		_, err := chat.Fold(e.Chat(t.Context(), r))
		told, ok := errors.AsType[*engine.Error](err)
		if !ok || told.Kind != c.kind || told.Param != c.param || asked {
			t.Errorf("%s: %v, asked %v; want %s", name, err, asked, c.kind)
		}
	}
}

func delta(d string) string {
	return `{"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}`
}

func done(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const counts = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`

func TestStreams(t *testing.T) {
	first := `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`
	use := func(id, args string) chat.Block {
		return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: "f", Kind: chat.ToolFunction, Args: args}}
	}
	counted := chat.Usage{Prompt: 9, Cached: p(4), Output: 5, Reasoning: p(2)}
	for name, c := range map[string]struct {
		events []string
		blocks []chat.Block
		finish chat.Finish
		usage  chat.Usage
		kind   engine.ErrorKind
	}{
		"text": {
			events: []string{delta(`{"role":"assistant","content":""}`), delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), done("stop"), counts, "[DONE]"},
			blocks: []chat.Block{text("Hello")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: counted,
		},
		"without counts": {
			events: []string{delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), done("length")},
			blocks: []chat.Block{text("Hello")}, finish: chat.Finish{Reason: chat.FinishLength}, usage: chat.Usage{Prompt: 3, Output: 2},
		},
		"thoughts": {
			events: []string{delta(`{"reasoning_content":"hm"}`), delta(`{"reasoning":"m"}`), delta(`{"content":"A"}`), done("stop"), counts},
			blocks: []chat.Block{{Kind: chat.Thought, Text: "hmm"}, text("A")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: counted,
		},
		"calls": {
			events: []string{delta(`{"content":"A"}`), delta(first), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}},{"index":1,"function":{"name":"f","arguments":"{}"}}]}`), done("tool_calls"), counts},
			blocks: []chat.Block{text("A"), use("c1", `{"a": 1}`), use("call_r-1_1", "{}")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"calls that end with a stop": {
			events: []string{delta(first), done("stop"), counts},
			blocks: []chat.Block{use("c1", "")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"a stop string": {
			events: []string{delta(`{"content":"A"}`), `{"choices":[{"delta":{},"finish_reason":"stop","stop_reason":"\"END"}]}`, counts},
			blocks: []chat.Block{text("A")}, finish: chat.Finish{Reason: chat.FinishStopSequence, StopText: `"END`}, usage: counted,
		},
		"a refusal": {
			events: []string{delta(`{"refusal":"No."}`), done("content_filter"), counts},
			blocks: []chat.Block{{Kind: chat.Refusal, Text: "No."}}, finish: chat.Finish{Reason: chat.FinishContentFilter}, usage: counted,
		},
		"counts with every event": {
			events: []string{strings.Replace(counts, `[]`, `[{"delta":{"content":"A"}}]`, 1), strings.Replace(counts, `[]`, `[{"delta":{},"finish_reason":"stop"}]`, 1)},
			blocks: []chat.Block{text("A")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: counted,
		},
		"calls that nobody counts": {
			events: []string{delta(first), delta(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]}`), delta(`{"tool_calls":[{"index":0,"id":"c2","function":{"name":"f","arguments":"{}"}}]}`), done("tool_calls"), counts},
			blocks: []chat.Block{use("c1", "{"), use("c2", "{}")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"an id, and then a name": {
			events: []string{delta(`{"tool_calls":[{"index":0,"id":"c1","type":"function"}]}`), delta(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"id":"c2"}]}`), delta(`{"tool_calls":[{"index":1,"id":"c2","function":{"name":"f"}}]}`), done("tool_calls"), counts},
			blocks: []chat.Block{use("c1", "{}"), use("c2", "")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"a name, and then an id": {
			events: []string{delta(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}`), delta(`{"tool_calls":[{"index":0,"id":"c1"}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"function":{"name":"f"}}]}`), delta(`{"tool_calls":[{"index":1,"id":"c2","function":{"name":"f","arguments":"{}"}}]}`), done("tool_calls"), counts},
			blocks: []chat.Block{use("c1", "{}"), use("c2", "{}")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"a name, and no id": {
			events: []string{delta(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`), delta(`{"content":"A"}`), delta(`{"tool_calls":[{"index":1,"function":{"name":"f"}}]}`), delta(`{"tool_calls":[{"index":2,"function":{"name":"f"}}]}`), done("tool_calls"), counts},
			blocks: []chat.Block{use("call_r-1_0", ""), text("A"), use("call_r-1_1", ""), use("call_r-1_2", "")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"a completion": {
			events: []string{`{"choices":[{"index":0,"text":"Hel","finish_reason":null}]}`, `{"choices":[{"index":0,"text":"lo","finish_reason":"stop"}]}`, counts},
			blocks: []chat.Block{text("Hello")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: counted,
		},
		"gives up":        {events: []string{delta(`{"content":"A"}`), done("error")}, kind: engine.Internal},
		"breaks off":      {events: []string{delta(`{"content":"A"}`), done("abort")}, kind: engine.EngineShutdown},
		"an error of old": {events: []string{`{"object":"error","message":"x","code":400}`}, kind: engine.InvalidArgument},
		"counts without sense": {
			events: []string{delta(`{"content":"A"}`), done("stop"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":-1}}}`},
			blocks: []chat.Block{text("A")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: chat.Usage{Prompt: 9, Cached: p(9), Reasoning: p(0)},
		},
		"other choices":        {events: []string{`{"choices":[{"index":1,"delta":{"content":"B"},"finish_reason":"stop"}]}`, delta(`{"content":"A"}`), done("stop"), counts}, blocks: []chat.Block{text("A")}, finish: chat.Finish{Reason: chat.FinishStop}, usage: counted},
		"no end":               {events: []string{delta(`{"content":"A"}`), "[DONE]"}, kind: engine.StreamIncomplete},
		"nothing":              {kind: engine.StreamIncomplete},
		"an error":             {events: []string{delta(`{"content":"A"}`), `{"error":{"message":"x","code":503}}`}, kind: engine.Unavailable},
		"an error as a word":   {events: []string{`{"error":"x"}`}, kind: engine.Internal},
		"no JSON":              {events: []string{`x`}, kind: engine.Internal},
		"a call without name":  {events: []string{delta(`{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}`)}, kind: engine.Internal},
		"an id without name":   {events: []string{delta(`{"tool_calls":[{"index":0,"id":"c1"}]}`), done("tool_calls")}, kind: engine.Internal},
		"an id before a text":  {events: []string{delta(`{"tool_calls":[{"index":0,"id":"c1"}]}`), delta(`{"content":"A"}`)}, kind: engine.Internal},
		"a call that was over": {events: []string{delta(first), delta(`{"content":"A"}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}`)}, kind: engine.Internal},
	} {
		answers, err := chat.Fold(attach(t, says(c.events...), nil).Chat(t.Context(), ask(hello())))
		if c.kind != "" {
			if engine.KindOf(err) != c.kind || err == nil {
				t.Errorf("%s: %v, want %s", name, err, c.kind)
			}
			continue
		}
		if err != nil || len(answers) != 1 {
			t.Errorf("%s: %v, %v", name, answers, err)
			continue
		}
		if a := answers[0]; !reflect.DeepEqual(a.Blocks, c.blocks) || !reflect.DeepEqual(a.Finish, c.finish) || !reflect.DeepEqual(a.Usage, c.usage) {
			t.Errorf("%s: %+v\nwant %+v, %+v, %+v", name, a, c.blocks, c.finish, c.usage)
		}
	}
}

// The whole way to a server that has a door for chat completions, and back.
func TestOllamasDoor(t *testing.T) {
	script, err := mock.LoadScript(strings.NewReader(`
rules:
  - when: {tool: f}
    emit: "Sun."
  - when: {user: call, offers: f}
    emit: "<think>Hm.</think>A<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
  - when: {user: Once}
    emit: " upon a time"
  - when: {user: stop}
    emit: "one END two"
`))
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	f, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "m", Args: args, Script: script}, Loaded: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	e := attach(t, f, func(c *openai.Config) { c.Model = "m:latest" })
	ask := func(r *engine.Request) chat.Answer {
		t.Helper()
		r.Stop.MaxTokens = 200
		answers, err := chat.Fold(e.Chat(t.Context(), r))
		if err != nil || len(answers) != 1 {
			t.Fatalf("%v, %v", answers, err)
		}
		return answers[0]
	}
	say := func(text string) *engine.Request {
		r := &engine.Request{ID: "r-1", Chat: hello(), Sampling: engine.Sampling{Temperature: p(0.0)}}
		r.Chat.Turns[0].Blocks[0].Text = text
		return r
	}
	r := say("call")
	r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "f", Schema: json.RawMessage(`{"type":"object"}`)}}
	a := ask(r)
	if len(a.Blocks) != 4 || a.Blocks[0].Text != "Hm." || a.Blocks[1].Text != "A" || a.Blocks[2].Use.Args != `{"x":1}` || a.Blocks[3].Use.Args != "{}" ||
		a.Finish.Reason != chat.FinishToolUse || a.Usage.Prompt == 0 || a.Usage.Output == 0 {
		t.Errorf("%+v", a)
	}
	r.Chat.Turns = append(r.Chat.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: a.Blocks},
		chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: a.Blocks[2].Use.ID, Name: "f", Blocks: []chat.Block{text("ok")}}}}})
	if a = ask(r); a.Finish.Reason == "" {
		t.Errorf("with the result: %+v", a)
	}
	r = say("Once")
	r.Chat.Turns[0].Raw = true
	if a = ask(r); len(a.Blocks) != 1 || a.Blocks[0].Text != " upon a time" || a.Usage.Prompt != 4 {
		t.Errorf("a bare prompt: %+v", a)
	}
	r = say("stop")
	r.Stop.Strings = []string{"END"}
	if a = ask(r); a.Blocks[0].Text != "one " {
		t.Errorf("a stop string: %+v", a)
	}
	r = say("anything")
	r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"enum":[7]}`)}
	if a = ask(r); a.Blocks[0].Text != "7" {
		t.Errorf("a form: %+v", a)
	}
}

// A server without completions says so in words.
func TestNoCompletions(t *testing.T) {
	for _, body := range []string{`{"error":{"message":"File Not Found","code":404}}`, ``} {
		e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, body)
		}), nil)
		for raw, want := range map[bool]string{true: "no /v1/completions", false: ""} {
			r := ask(hello())
			r.Chat.Turns[0].Raw = raw
			_, err := chat.Fold(e.Chat(t.Context(), r))
			if err == nil || raw && engine.KindOf(err) != engine.Unsupported || !strings.Contains(err.Error(), want) || !raw && strings.Contains(err.Error(), "/v1/completions") {
				t.Errorf("raw %v: %v", raw, err)
			}
		}
	}
}

// A call that the limit cuts is marked.
func TestTruncatedCalls(t *testing.T) {
	cut := false
	e := attach(t, says(delta(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}`), done("length")), nil)
	for ev, err := range e.Chat(t.Context(), ask(hello())) {
		if err != nil {
			t.Fatal(err)
		}
		cut = cut || ev.Kind == chat.BlockStop && ev.Truncated
	}
	if !cut {
		t.Error("a call without its end is not marked")
	}
}

func TestSpoiltStreams(t *testing.T) {
	h := says(delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), done("stop"), counts)
	for name, spoil := range hostile.Harmless() {
		answers, err := chat.Fold(attach(t, spoil.Handler(h), nil).Chat(t.Context(), ask(hello())))
		if err != nil || answers[0].Blocks[0].Text != "Hello" || answers[0].Usage.Output != 5 {
			t.Errorf("%s: %+v, %v", name, answers, err)
		}
	}
	for cut := 1; cut < 400; cut += 9 {
		answers, err := chat.Fold(attach(t, hostile.Spoil{Cut: cut}.Handler(h), nil).Chat(t.Context(), ask(hello())))
		switch {
		case err == nil && answers[0].Blocks[0].Text != "Hello":
			t.Errorf("cut after %d bytes: %+v", cut, answers)
		case err != nil && engine.KindOf(err) != engine.Disconnected:
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
	for _, spoil := range []hostile.Spoil{{Page: true}, {Type: "text/plain"}} {
		if _, err := chat.Fold(attach(t, spoil.Handler(h), nil).Chat(t.Context(), ask(hello()))); err == nil {
			t.Errorf("%+v was taken", spoil)
		}
	}
}

func TestEnds(t *testing.T) {
	gone := make(chan struct{}, 2)
	e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		says(delta(`{"content":"A"}`))(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var end error
	seq := e.Chat(ctx, ask(hello()))
	for _, err := range seq {
		if err == nil {
			for l := range e.Load(t.Context()) {
				if l.Ranks[0].Running != 1 || l.Ranks[0].Waiting != engine.Unknown {
					t.Errorf("load %+v", l)
				}
				break
			}
		}
		cancel(engine.ErrInactive)
		end = err
	}
	<-gone
	if engine.KindOf(end) != engine.ResponseTimeout {
		t.Errorf("cancelled: %v", end)
	}
	for _, err := range seq {
		if engine.KindOf(err) != engine.Internal {
			t.Errorf("a second loop: %v", err)
		}
	}
	for range e.Chat(t.Context(), ask(hello())) {
		break
	}
	<-gone
	for l := range e.Load(t.Context()) {
		if l.Ranks[0].Running != 0 {
			t.Errorf("load %+v", l)
		}
		break
	}
	e.Close()
	if _, err := chat.Fold(e.Chat(t.Context(), ask(hello()))); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("closed: %v", err)
	}
}

func TestCard(t *testing.T) {
	list := `{"data":[{"id":"other"},{"id":"m","owned_by":"llamacpp","max_model_len":4096}]}`
	for name, c := range map[string]struct {
		list, model string
		want        engine.Card
		reason      string
	}{
		"named":     {list, "m", engine.Card{Model: "m", Engine: "llamacpp", ContextLength: 4096}, ""},
		"the first": {list, "", engine.Card{Model: "other", Engine: "openai"}, ""},
		"absent":    {list, "x", engine.Card{}, "the server does not list the model x"},
		"none":      {`{"data":[]}`, "", engine.Card{}, "the server lists no model"},
	} {
		e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, c.list) }), func(cfg *openai.Config) { cfg.Model = c.model })
		for st, err := range e.Card(t.Context()) {
			switch {
			case err != nil || st.Reason != c.reason || st.Epoch == 0 || (st.State == engine.Ready) != (c.reason == ""):
				t.Errorf("%s: %+v, %v", name, st, err)
			case st.Card != nil && (st.Card.Model != c.want.Model || st.Card.Engine != c.want.Engine || st.Card.ContextLength != c.want.ContextLength ||
				!st.Card.Accept(engine.InputChat) || st.Card.Accept(engine.InputTokens) || !st.Card.Features.Has(engine.FeatureWantsChat)):
				t.Errorf("%s: %+v", name, st.Card)
			}
			break
		}
	}
}

func Example() {
	server := httptest.NewServer(says(delta(`{"content":"Good "}`), delta(`{"content":"day."}`), done("stop")))
	defer server.Close()
	e, err := openai.New(openai.Config{Config: httpapi.Config{URL: server.URL}, Model: "m"})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	answers, err := chat.Fold(e.Chat(context.Background(), ask(hello())))
	if err != nil {
		panic(err)
	}
	fmt.Println(answers[0].Blocks[0].Text, answers[0].Finish.Reason)
	// Output: Good day. stop
}

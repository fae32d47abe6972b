package ollama_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/dynago/dynago/engine/ollama"
	fake "github.com/dynago/dynago/internal/fake/ollama"
)

// serve starts a server that takes no time.
func serve(t *testing.T, change func(*fake.Config)) *fake.Server {
	t.Helper()
	args := mock.DefaultArgs()
	args.SpeedupRatio, args.MaxNumSeqs = 0, 4
	cfg := fake.Config{Mock: mock.Config{Model: "tiny", Args: args, Seed: 1}}
	if change != nil {
		change(&cfg)
	}
	s, err := fake.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// attach makes an adapter of a server that is looked at every few milliseconds.
func attach(t *testing.T, h http.Handler, change func(*ollama.Config)) *ollama.Engine {
	t.Helper()
	s := httptest.NewServer(h)
	cfg := ollama.Config{Config: httpapi.Config{URL: s.URL}, Interval: 2 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	e, err := ollama.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return e
}

// scripted is an adapter of a server that answers all requests in one way.
func scripted(t *testing.T, f *fake.Server, change func(*ollama.Config), answer http.HandlerFunc) *ollama.Engine {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", f)
	mux.HandleFunc("POST /api/chat", answer)
	mux.HandleFunc("POST /api/generate", answer)
	e := attach(t, mux, change)
	ready(t, e)
	return e
}

func ready(t *testing.T, e engine.Engine) engine.Status {
	t.Helper()
	return await(t, e, func(st engine.Status) bool { return st.State == engine.Ready })
}

// await returns the first status that is as wanted.
func await(t *testing.T, e engine.Engine, is func(engine.Status) bool) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var st engine.Status
	for s, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if st = s; is(st) {
			return st
		}
	}
	t.Fatalf("still %+v", st)
	return st
}

func text(s string) chat.Block { return chat.Block{Kind: chat.Text, Text: s} }

func hello(s string) *chat.Request {
	return &chat.Request{Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{text(s)}}}}
}

func ask(q *chat.Request) *engine.Request {
	return &engine.Request{ID: "r-1", Chat: q, Stop: engine.Stop{MaxTokens: 64}, Sampling: engine.Sampling{Temperature: new(0.0)}}
}

func script(t *testing.T, rules string) *mock.Script {
	t.Helper()
	s, err := mock.LoadScript(strings.NewReader(rules))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer runs a request that must succeed.
func answer(t *testing.T, e *ollama.Engine, r *engine.Request) chat.Answer {
	t.Helper()
	answers, err := chat.Fold(e.Chat(t.Context(), r))
	if err != nil || len(answers) != 1 {
		t.Fatalf("%+v, %v", answers, err)
	}
	return answers[0]
}

// The whole way there and back: thoughts, calls with their results, bare prompts,
// forms, limits and stop strings.
func TestAnswers(t *testing.T) {
	f := serve(t, func(c *fake.Config) {
		c.Made, c.Mock.Script = 1024, script(t, `
rules:
  - when: {user: weather, turn: 0}
    emit: "<think>Hm, é.</think>Let me see.<tool_call>{\"name\":\"sky\",\"arguments\":{\"b\": 1, \"a\":\"é\"}}</tool_call>"
  - when: {turn: 1}
    emit: "<think></think>Sun."
  - when: {user: stop}
    emit: "<think>x</think>one two END three"
  - when: {user: long}
    emit: "<think>x</think>`+strings.Repeat("long ", 60)+`"
  - when: {user: Once}
    emit: " upon <think>a time"
`)
	})
	e := attach(t, f, nil)
	ready(t, e)
	q := hello("the weather")
	q.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "sky", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)}}
	r := ask(q)
	r.Stop.MaxTokens = 400
	a := answer(t, e, r)
	want := []chat.Block{
		{Kind: chat.Thought, Text: "Hm, é."},
		text("Let me see."),
		{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_0", Name: "sky", Kind: chat.ToolFunction, Args: `{"b":1,"a":"é"}`}},
	}
	if !reflect.DeepEqual(a.Blocks, want) || a.Finish.Reason != chat.FinishToolUse || a.Usage.Prompt == 0 || a.Usage.Output == 0 || a.Usage.Cached != nil {
		t.Errorf("%+v\nwant %+v", a, want)
	}
	q.Turns = append(q.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: a.Blocks},
		chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "call_0", Blocks: []chat.Block{text("clear")}}}}})
	if a = answer(t, e, ask(q)); len(a.Blocks) != 1 || a.Blocks[0].Text != "Sun." || a.Finish.Reason != chat.FinishStop {
		t.Errorf("with the result: %+v", a)
	}
	r = ask(hello("stop"))
	r.Stop.Strings = []string{"END"}
	if a = answer(t, e, r); a.Blocks[1].Text != "one two " || a.Finish.Reason != chat.FinishStop {
		t.Errorf("a stop string: %+v", a)
	}
	if a = answer(t, e, ask(hello("long"))); a.Finish.Reason != chat.FinishLength || a.Usage.Output != 64 {
		t.Errorf("the limit: %+v", a)
	}
	bare := hello("Once")
	bare.Turns[0].Raw = true
	if a = answer(t, e, ask(bare)); len(a.Blocks) != 1 || a.Blocks[0].Text != " upon <think>a time" || a.Usage.Prompt != 4 {
		t.Errorf("a bare prompt: %+v", a)
	}
	r = ask(hello("anything"))
	r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"enum":[7]}},"required":["n"],"additionalProperties":false}`)}
	r.Chat.Thinking.Enabled = new(false)
	var n struct{ N int }
	if a = answer(t, e, r); json.Unmarshal([]byte(a.Blocks[0].Text), &n) != nil || n.N != 7 {
		t.Errorf("a form: %+v", a)
	}
}

// A prompt that is longer than the context is refused, also by a server that cuts
// it, and one that just fits is not.
func TestQuirk27LongPromptsAreNotCut(t *testing.T) {
	for _, cuts := range []bool{false, true} {
		f := serve(t, func(c *fake.Config) { c.Made, c.CutsAlways = 300, cuts })
		e := attach(t, f, nil)
		ready(t, e)
		answer(t, e, ask(hello(strings.Repeat("x", 200))))
		if f.Context() != 300 {
			t.Errorf("loaded with a context of %d", f.Context())
		}
		_, err := chat.Fold(e.Chat(t.Context(), ask(hello(strings.Repeat("x", 300)))))
		told, ok := errors.AsType[*engine.Error](err)
		if !ok || told.Kind != engine.InvalidArgument || told.Code != "context_length_exceeded" {
			t.Errorf("it cuts %v: %v", cuts, err)
		}
	}
}

// What was cached may be missing in the server's count of the prompt, and is not
// taken for nothing.
func TestQuirk27CountsMayOmitWhatWasCached(t *testing.T) {
	e := attach(t, serve(t, func(c *fake.Config) { c.OmitsCached, c.Mock.Args.BlockSize = true, 2 }), nil)
	ready(t, e)
	long := hello(strings.Repeat("x", 50))
	first, second := answer(t, e, ask(long)), answer(t, e, ask(long))
	if first.Usage.Prompt < 50 || second.Usage.Prompt >= first.Usage.Prompt || second.Usage.Cached != nil || second.Usage.Output != first.Usage.Output {
		t.Errorf("%+v, %+v", first.Usage, second.Usage)
	}
}

// Bodies are golden: testdata/bodies has one for each request here. With
// UPDATE_GOLDEN=1 the files are written anew.
func TestBodies(t *testing.T) {
	weather := chat.Tool{Kind: chat.ToolFunction, Name: "weather", Description: "Tells it.", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}
	image := func(source string) chat.Block {
		return chat.Block{Kind: chat.Image, Media: &chat.Media{Source: source, MediaType: "image/png", Data: "AAAA"}}
	}
	for name, c := range map[string]struct {
		serve   func(*fake.Config)
		change  func(*ollama.Config)
		request func(*engine.Request)
	}{
		"plain":     {},
		"unlimited": {request: func(r *engine.Request) { r.Stop.MaxTokens, r.Sampling.Temperature = 0, nil }},
		"all": {
			change: func(c *ollama.Config) {
				c.ContextLength, c.KeepAlive = 1024, new(90*time.Second)
				c.ExtraBody = json.RawMessage(`{"options":{"num_gpu":1,"top_k":9},"x":[1]}`)
			},
			request: func(r *engine.Request) {
				r.Sampling = engine.Sampling{
					Temperature: new(0.2), TopP: new(0.9), MinP: new(0.1), TopK: new(-1), Seed: new(int64(-1)),
					FrequencyPenalty: new(0.5), PresencePenalty: new(-0.5), RepetitionPenalty: new(1.1),
				}
				r.Stop.Strings = []string{"END"}
				r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`), Strict: new(true)}
				r.Chat.Thinking.Effort = "max"
				r.Chat.Tools = []chat.Tool{weather, {Kind: chat.ToolFunction, Name: "bare"}, {Kind: chat.ToolServer, Name: "web"}}
				r.Extra = json.RawMessage(`{"options":{"top_k":8}}`)
			},
		},
		"preset": {
			serve: func(c *fake.Config) {
				c.Parameters = "num_ctx                        512\ntemperature                    0.6\nstop                           \"<|im_end|>\"\nstop                           \"<|eot|>\"\n"
			},
			change: func(c *ollama.Config) { c.KeepAlive = new(-time.Second) },
			request: func(r *engine.Request) {
				r.Sampling.Temperature, r.Stop.Strings = nil, []string{"END"}
				r.Chat.Thinking.Enabled = new(false)
				r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject}
			},
		},
		"allowed": {request: func(r *engine.Request) {
			r.Chat.Tools = []chat.Tool{weather, {Kind: chat.ToolFunction, Name: "other"}}
			r.Chat.ToolChoice = chat.ToolChoice{Mode: chat.ToolAuto, Names: []string{"weather"}}
			r.Chat.Thinking.Effort = "minimal"
		}},
		"no calls": {request: func(r *engine.Request) {
			r.Chat.Tools, r.Chat.ToolChoice = []chat.Tool{weather}, chat.ToolChoice{Mode: chat.ToolNone}
			r.Chat.Thinking.Effort = "none"
		}},
		"bare":             {request: func(r *engine.Request) { r.Chat.Turns[0].Raw = true }},
		"cannot think":     {serve: func(c *fake.Config) { c.Capabilities = []string{"completion"} }, request: func(r *engine.Request) { r.Chat.Thinking.Enabled = new(true) }},
		"tells no ability": {serve: func(c *fake.Config) { c.Bare = true }, request: func(r *engine.Request) { r.Chat.Turns[0].Blocks = append(r.Chat.Turns[0].Blocks, image("base64")) }},
		"said twice": {request: func(r *engine.Request) {
			r.Chat.Turns = append(r.Chat.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c", Name: "f", Args: `{"a":1,"a":2}`}}}})
		}},
		"conversation": {request: func(r *engine.Request) {
			r.Chat.System = []chat.Block{text("Be "), text("brief.")}
			r.Chat.Tools = []chat.Tool{weather}
			r.Chat.Turns = []chat.Turn{
				{Role: chat.RoleDeveloper, Blocks: []chat.Block{text("And kind.")}},
				{Role: chat.RoleUser, Name: "ann", Blocks: []chat.Block{text("What is it? "), image("url"), {Kind: chat.Document}}},
				{Role: chat.RoleAssistant, Blocks: []chat.Block{
					{Kind: chat.Thought, Text: "Look."},
					{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c1", Name: "weather", Args: `{"b": 1,"a":2}`}},
					{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c2", Name: "weather", Args: `{`}},
					{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c3", Name: "weather", Args: ` `}},
				}},
				{Role: chat.RoleUser, Blocks: []chat.Block{
					{Kind: chat.ToolResult, Result: &chat.Result{ID: "c1", Blocks: []chat.Block{text("sun "), image("base64")}}},
					{Kind: chat.ToolResult, Result: &chat.Result{ID: "c9", Blocks: []chat.Block{text("?")}}},
					text("And?"),
					{Kind: chat.Opaque},
				}},
				{Role: chat.RoleAssistant, Blocks: []chat.Block{text("Sun."), {Kind: chat.Refusal, Text: " No more."}}},
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			e := scripted(t, serve(t, c.serve), c.change, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Traceparent") + "\n" + string(body)
				says(last)(w, r)
			})
			r := ask(hello("Hello"))
			r.Trace.Parent = "00-a-b-01"
			if c.request != nil {
				c.request(r)
			}
			answer(t, e, r)
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

// What cannot be said is refused before it is sent.
func TestRefused(t *testing.T) {
	media := func(kind chat.Kind, source string) func(*engine.Request) {
		return func(r *engine.Request) {
			r.Chat.Turns[0].Blocks = []chat.Block{{Kind: kind, Media: &chat.Media{Source: source, Path: "messages[0].content[0]"}}}
		}
	}
	tool := chat.Tool{Kind: chat.ToolFunction, Name: "x"}
	for name, c := range map[string]struct {
		can    []string
		change func(*engine.Request)
		kind   engine.ErrorKind
		param  string
	}{
		"no conversation":  {nil, func(r *engine.Request) { r.Chat = nil }, engine.Internal, ""},
		"no turns":         {nil, func(r *engine.Request) { r.Chat.Prompt = &chat.Prompt{Text: "x"} }, engine.Internal, ""},
		"another life":     {nil, func(r *engine.Request) { r.Epoch = 1 }, engine.Stale, ""},
		"a salt":           {nil, func(r *engine.Request) { r.KV.Namespace.Salt = "x" }, engine.Unsupported, ""},
		"an adapter":       {nil, func(r *engine.Request) { r.KV.Namespace.LoRA = "x" }, engine.Unsupported, ""},
		"logprobs":         {nil, func(r *engine.Request) { r.Logprobs = new(1) }, engine.Unsupported, ""},
		"biases":           {nil, func(r *engine.Request) { r.Sampling.LogitBias = map[uint32]float64{1: 1} }, engine.Unsupported, ""},
		"a regex":          {nil, func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatRegex} }, engine.Unsupported, ""},
		"a forced call":    {nil, func(r *engine.Request) { r.Chat.Tools, r.Chat.ToolChoice.Mode = []chat.Tool{tool}, chat.ToolRequired }, engine.Unsupported, ""},
		"a named call":     {nil, func(r *engine.Request) { r.Chat.Tools, r.Chat.ToolChoice.Mode = []chat.Tool{tool}, chat.ToolNamed }, engine.Unsupported, ""},
		"a custom tool":    {nil, func(r *engine.Request) { r.Chat.Tools = []chat.Tool{{Kind: chat.ToolCustom, Name: "x"}} }, engine.Unsupported, ""},
		"tools":            {[]string{"completion"}, func(r *engine.Request) { r.Chat.Tools = []chat.Tool{tool} }, engine.Unsupported, ""},
		"extras":           {nil, func(r *engine.Request) { r.Extra = json.RawMessage(`{"messages":[]}`) }, engine.InvalidArgument, ""},
		"another context":  {nil, func(r *engine.Request) { r.Extra = json.RawMessage(`{"options":{"num_ctx":1}}`) }, engine.InvalidArgument, ""},
		"a document":       {nil, media(chat.Document, "base64"), engine.InvalidArgument, "messages[0].content[0]"},
		"an image's place": {[]string{"completion", "vision"}, media(chat.Image, "url"), engine.InvalidArgument, "messages[0].content[0]"},
		"an image":         {nil, media(chat.Image, "base64"), engine.InvalidArgument, "messages[0].content[0]"},
	} {
		asked := false
		e := scripted(t, serve(t, func(f *fake.Config) { f.Capabilities = c.can }), nil, func(http.ResponseWriter, *http.Request) { asked = true })
		r := ask(hello("Hello"))
		c.change(r)
		_, err := chat.Fold(e.Chat(t.Context(), r))
		told, ok := errors.AsType[*engine.Error](err)
		if !ok || told.Kind != c.kind || told.Param != c.param || asked {
			t.Errorf("%s: %v, asked %v; want %s", name, err, asked, c.kind)
		}
	}
}

func TestConfigurations(t *testing.T) {
	for _, extra := range []string{`{"stream":false}`, `[]`, `{`, `{"options":1}`, `{"options":{"num_ctx":1}}`} {
		if _, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: "http://h"}, ExtraBody: json.RawMessage(extra)}); err == nil {
			t.Errorf("extra_body %s is taken", extra)
		}
	}
	if _, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: "h"}}); err == nil {
		t.Error("an address that is none is taken")
	}
}

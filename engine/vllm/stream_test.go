package vllm_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// attach attaches to a server that is a fake, except for the routes given.
func attach(t *testing.T, c fake.Config, routes map[string]http.HandlerFunc) *served {
	t.Helper()
	c.Mock.Args, c.Mock.Model, c.Mock.Source, c.Mock.ContextLength = args(), "m", mock.SourceRandom, 8192
	server, err := fake.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route := routes[r.URL.Path]; route != nil {
			route(w, r)
			return
		}
		server.ServeHTTP(w, r)
	}))
	e, err := vllm.New(vllm.Config{URL: h.URL, Every: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{e, server, h}
	t.Cleanup(func() { s.Close() })
	return s
}

// says answers with a text as a stream of events.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, text)
	}
}

// refuses answers with a status and a body.
func refuses(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// chunk is one event with ids, and a finish reason unless that is empty.
func chunk(reason string, ids ...int) string {
	finish := "null"
	if reason != "" {
		finish = fmt.Sprintf("%q", reason)
	}
	list := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(ids), "[]")), ",")
	return fmt.Sprintf(`data: {"request_id":"a","choices":[{"index":0,"token_ids":[%s],"logprobs":null,"finish_reason":%s}]}`, list, finish) + "\n\n"
}

const (
	done  = "data: [DONE]\n\n"
	spent = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":null}}` + "\n\n"
)

var attempts atomic.Int64

// attemptID is that of one attempt: a server runs no two of one id.
func attemptID() string { return fmt.Sprintf("u-%d", attempts.Add(1)) }

func ask() *engine.Request {
	return &engine.Request{ID: attemptID(), TokenIDs: []uint32{7, 8, 9}, Stop: engine.Stop{MaxTokens: 9, IDs: []uint32{50}, Hidden: []uint32{2, 50}}}
}

func TestStreams(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		min        int
		ids        []uint32
		finish     engine.Finish
		output     int
		matched    []uint32
		kind       engine.ErrorKind // of the error; "": none
	}{
		{name: "length", text: chunk("", 1) + chunk("length", 3, 4) + spent + done, ids: []uint32{1, 3, 4}, finish: engine.FinishLength, output: 3},
		{name: "CRLF and comments", text: ": hello\r\n\r\n" + strings.ReplaceAll(chunk("", 1)+chunk("length", 3), "\n", "\r\n") + done, ids: []uint32{1, 3}, finish: engine.FinishLength, output: 2},
		{name: "no blank behind the colon", text: strings.ReplaceAll(chunk("length", 1), "data: ", "data:") + done, ids: []uint32{1}, finish: engine.FinishLength, output: 1},
		{name: "done twice", text: chunk("length", 1) + done + done, ids: []uint32{1}, finish: engine.FinishLength, output: 1},
		{name: "done is lost", text: chunk("length", 1), ids: []uint32{1}, finish: engine.FinishLength, output: 1},
		{name: "a reason without ids", text: chunk("", 1, 2) + chunk("stop") + done, ids: []uint32{1}, finish: engine.FinishEOS, output: 2},
		{name: "hidden end", text: chunk("", 1) + chunk("stop", 2) + done, ids: []uint32{1}, finish: engine.FinishEOS, output: 2},
		{name: "hidden at the limit", text: chunk("length", 1, 2) + done, ids: []uint32{1}, finish: engine.FinishEOS, output: 2},
		{name: "listed end", text: chunk("", 1) + chunk("stop", 50) + done, ids: []uint32{1, 50}, finish: engine.FinishStop, output: 2, matched: []uint32{50}},
		{name: "an end of the engine's own", text: chunk("stop", 1, 99) + done, ids: []uint32{1, 99}, finish: engine.FinishEOS, output: 2},
		{name: "a hidden id that ends nothing", text: chunk("", 1, 2) + chunk("", 3) + chunk("length", 4) + done, ids: []uint32{1, 2, 3, 4}, finish: engine.FinishLength, output: 4},
		{name: "a hidden id too early", text: chunk("", 2) + chunk("length", 4) + done, min: 3, ids: []uint32{2, 4}, finish: engine.FinishLength, output: 2},
		{name: "a hidden id too early to end anything", text: chunk("length", 1, 2) + done, min: 3, ids: []uint32{1, 2}, finish: engine.FinishLength, output: 2},
		{name: "a reason of late builds", text: chunk("repetition", 1, 1) + done, ids: []uint32{1, 1}, finish: engine.FinishStop, output: 2},
		{name: "another choice", text: `data: {"choices":[{"index":1,"token_ids":[5],"finish_reason":null}]}` + "\n\n" + chunk("length", 1) + done, ids: []uint32{1}, finish: engine.FinishLength, output: 1},

		{name: "done without a reason", text: chunk("", 1) + done, ids: []uint32{1}, kind: engine.StreamIncomplete},
		{name: "nothing", text: "", kind: engine.StreamIncomplete},
		{name: "cut in a piece", text: chunk("", 1) + strings.TrimSpace(chunk("length", 3))[:40], ids: []uint32{1}, kind: engine.StreamIncomplete},
		{name: "no JSON", text: "data: <html>\n\n", kind: engine.Internal},
		{name: "aborted", text: chunk("", 1) + chunk("abort"), ids: []uint32{1}, kind: engine.EngineShutdown},
		{name: "failed", text: chunk("error"), kind: engine.Internal},
		{name: "an error inside", text: chunk("", 1) + `data: {"error":{"message":"too long","type":"BadRequestError","code":400}}` + "\n\n" + done, ids: []uint32{1}, kind: engine.InvalidArgument},
		{name: "an error at the top", text: `data: {"object":"error","message":"busy","code":429}` + "\n\n", kind: engine.WorkerOverloaded},
		{name: "an error without a status", text: `data: {"error":"oh"}` + "\n\n", kind: engine.Internal},
		{name: "the core is dead", text: chunk("", 1) + `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}` + "\n\n", ids: []uint32{1}, kind: engine.EngineShutdown},
		{name: "text alone", text: `data: {"choices":[{"index":0,"text":"hello","finish_reason":null}]}` + "\n\n", kind: engine.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": says(tt.text)})
			s.ready(t)
			r := ask()
			r.Stop.MinTokens = tt.min
			ids, last, err := s.run(t, r)
			if !slices.Equal(ids, tt.ids) {
				t.Errorf("ids %v, want %v", ids, tt.ids)
			}
			if tt.kind != "" {
				if err == nil || engine.KindOf(err) != tt.kind {
					t.Errorf("ended with %v, want %s", err, tt.kind)
				}
				return
			}
			if err != nil || last.Finish != tt.finish || last.Usage.Output != tt.output || last.Usage.Prompt != 3 || !slices.Equal(last.MatchedIDs, tt.matched) {
				t.Errorf("%+v, usage %+v, %v", last, last.Usage, err)
			}
			if strings.Contains(tt.text, "repetition") != (string(last.EngineData) == `{"finish_reason":"repetition"}`) {
				t.Errorf("engine data %s", last.EngineData)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		kind   engine.ErrorKind
		code   string
	}{
		{"too long", 400, `{"error":{"message":"This model's maximum context length is 8 tokens","type":"BadRequestError","code":400}}`, engine.InvalidArgument, "context_length_exceeded"},
		{"an old shape", 400, `{"object":"error","message":"no","type":"BadRequestError","code":400}`, engine.InvalidArgument, ""},
		{"validation", 422, `{"detail":[{"type":"missing"}]}`, engine.InvalidArgument, ""},
		{"key", 401, `{"error":"Unauthorized"}`, engine.Denied, ""},
		{"adapter", 404, `{"error":{"message":"The model does not exist","type":"NotFoundError","code":404}}`, engine.NotFound, ""},
		{"busy", 429, `{}`, engine.WorkerOverloaded, ""},
		{"loading", 503, ``, engine.Unavailable, ""},
		{"gateway", 502, `<html>`, engine.Unavailable, ""},
		{"broken", 500, `{"error":{"message":"oh","code":500}}`, engine.Internal, ""},
		{"a page", 200, `<html>`, engine.Internal, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": refuses(tt.status, tt.body)})
			s.ready(t)
			ids, _, err := s.run(t, ask())
			if e, ok := err.(*engine.Error); !ok || e.Kind != tt.kind || e.Code != tt.code || len(ids) > 0 {
				t.Errorf("%v after %d ids, want %s %s", err, len(ids), tt.kind, tt.code)
			}
		})
	}
}

// A connection that breaks can be carried on elsewhere, and what came is kept.
func TestBroken(t *testing.T) {
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": func(w http.ResponseWriter, r *http.Request) {
		says(chunk("", 1, 3))(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}})
	s.ready(t)
	ids, _, err := s.run(t, ask())
	if engine.KindOf(err) != engine.Disconnected || !slices.Equal(ids, []uint32{1, 3}) {
		t.Errorf("%v, %v", ids, err)
	}
}

// A connection that breaks behind the finish reason takes nothing away.
func TestBrokenAfterTheEnd(t *testing.T) {
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": func(w http.ResponseWriter, r *http.Request) {
		says(chunk("length", 1))(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}})
	s.ready(t)
	if ids, last, err := s.run(t, ask()); err != nil || last.Finish != engine.FinishLength || len(ids) != 1 {
		t.Errorf("%v, %+v, %v", ids, last, err)
	}
}

// An answer that has finished is whole, whatever the server says behind its end, or
// if it never stops.
func TestSilentAfterTheEnd(t *testing.T) {
	for name, behind := range map[string]string{
		"nothing":     "",
		"more tokens": chunk("", 9) + chunk("stop", 9, 9),
		"no JSON":     "data: {\n\n",
	} {
		s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": func(w http.ResponseWriter, r *http.Request) {
			says(chunk("length", 1)+behind)(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}})
		s.ready(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		var ids []uint32
		for d, err := range s.Generate(ctx, ask()) {
			if ids = append(ids, d.TokenIDs...); err != nil || d.Finish != engine.Running && d.Finish != engine.FinishLength {
				t.Errorf("%s behind the end: %+v, %v", name, d, err)
			}
			cancel(engine.ErrInactive) // once the first of it has come
		}
		cancel(nil)
		if !slices.Equal(ids, []uint32{1}) {
			t.Errorf("%s behind the end: ids %v", name, ids)
		}
	}
}

// A build that has lost the route, or forbids it, is asked over the other one.
func TestDowngrade(t *testing.T) {
	for status, body := range map[int]string{
		404: `{"detail":"Not Found"}`,
		405: `{"detail":"Method Not Allowed"}`,
		403: `{"error":{"message":"Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.","type":"PermissionDeniedError","param":null,"code":403}}`,
	} {
		s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": refuses(status, body)})
		s.ready(t)
		r := ask()
		r.Stop = engine.Stop{MaxTokens: 4}
		if ids, last, err := s.run(t, r); err != nil || len(ids) != 4 || last.Finish != engine.FinishLength {
			t.Errorf("%d: %v, %+v, %v", status, ids, last, err)
		}
	}
}

// Who leaves is told of by name where the server hears that.
func TestAbort(t *testing.T) {
	for _, c := range []fake.Config{{TokensOnly: true}, {Version: "0.32.0"}} {
		c.Mock.Args = slowArgs()
		s := serve(t, c, nil)
		s.ready(t)
		for range s.Generate(t.Context(), &engine.Request{ID: "gone-1", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 4000}}) {
			break
		}
		s.awaitAbort(t, "gone-1")
	}
}

// Absent is unknown until the server has once told of cached tokens.
func TestCachedTokensAreLearned(t *testing.T) {
	details := `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}` + "\n\n"
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": says(chunk("length", 1) + details + done)})
	if s.ready(t).Features.Has(engine.FeatureCachedTokens) {
		t.Fatal("the card says what nobody has told")
	}
	if _, last, err := s.run(t, ask()); err != nil || last.Usage.Cached != nil {
		t.Errorf("cached %v before the card says so, %v", last.Usage, err)
	}
	if !s.ready(t).Features.Has(engine.FeatureCachedTokens) {
		t.Fatal("the card does not say what was told")
	}
	if _, last, err := s.run(t, ask()); err != nil || last.Usage.Cached == nil || *last.Usage.Cached != 2 {
		t.Errorf("usage %+v, %v", last.Usage, err)
	}
}

// Alternatives are in falling order, the sampled id stands apart with the rank that
// it has, and what cannot come is as unlikely as the engine says. Builds tell ids as
// numbers, or in a text.
func TestLogprobs(t *testing.T) {
	two := 2
	for content, want := range map[string]engine.Logprob{
		`{"token":"token_id:5","logprob":-3.0,"top_logprobs":[{"token":"token_id:5","logprob":-3.0},{"token":"token_id:7","logprob":-0.1},{"token":"token_id:6","logprob":-9999.0},{"token":"hello","logprob":-0.2}]}`: {
			ID: 5, Logprob: -3, Rank: 2, Top: []engine.Logprob{{ID: 7, Logprob: -0.1, Rank: 1}, {ID: 5, Logprob: -3, Rank: 2}},
		},
		`{"token_id":5,"logprob":-3.0,"rank":57,"top_logprobs":[{"token_id":5,"logprob":-3.0,"rank":57},{"token_id":7,"logprob":-0.1,"rank":1},{"token_id":6,"logprob":-2.0,"rank":2}]}`: {
			ID: 5, Logprob: -3, Rank: 57, Top: []engine.Logprob{{ID: 7, Logprob: -0.1, Rank: 1}, {ID: 6, Logprob: -2, Rank: 2}},
		},
	} {
		text := `data: {"choices":[{"index":0,"token_ids":[5],"finish_reason":"length","logprobs":{"content":[` + content + "]}}]}\n\n" + done
		s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": says(text)})
		s.ready(t)
		r := ask()
		r.Logprobs = &two
		var got []engine.Logprob
		for d, err := range s.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d.Logprobs...)
		}
		if !reflect.DeepEqual(got, []engine.Logprob{want}) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// What a page does not say is unknown, which is not zero.
func TestLoad(t *testing.T) {
	var page atomic.Value
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, r *http.Request) {
		if text, ok := page.Load().(string); !ok || text == "" {
			refuses(500, "")(w, r)
		} else {
			_, _ = io.WriteString(w, text)
		}
	}})
	u := engine.Unknown
	for _, tt := range []struct {
		name, page string
		want       []engine.RankLoad
	}{
		{"no page", "", []engine.RankLoad{{Rank: 0, Running: u, Waiting: u, WaitingTokens: u, UsedBlocks: u, TotalBlocks: u, PrefixHits: u, PrefixQueries: u, Preemptions: u}}},
		{"no metrics", "such is life {", []engine.RankLoad{{Rank: 0, Running: u, Waiting: u, WaitingTokens: u, UsedBlocks: u, TotalBlocks: u, PrefixHits: u, PrefixQueries: u, Preemptions: u}}},
		{"two ranks", `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} NaN
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="400"} 1
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 64
`, []engine.RankLoad{{Rank: 0, Running: 3, Waiting: u, WaitingTokens: u, UsedBlocks: 100, TotalBlocks: 400, PrefixHits: u, PrefixQueries: u, Preemptions: u}, {Rank: 1, Running: 0, Waiting: u, WaitingTokens: u, UsedBlocks: u, TotalBlocks: 400, PrefixHits: 64, PrefixQueries: u, Preemptions: u}}},
		{"an old build", `# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 2
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 1
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1
`, []engine.RankLoad{{Rank: 0, Running: u, Waiting: 2, WaitingTokens: u, UsedBlocks: 10, TotalBlocks: 10, PrefixHits: u, PrefixQueries: u, Preemptions: u}}},
	} {
		page.Store(tt.page)
		// The card that the page makes comes before the load that it tells.
		for range s.Card(t.Context()) {
			break
		}
		for l := range s.Load(t.Context()) {
			if !reflect.DeepEqual(l.Ranks, tt.want) {
				t.Errorf("%s: %+v, want %+v", tt.name, l.Ranks, tt.want)
			}
			break
		}
	}
}

func TestLives(t *testing.T) {
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	first := s.await(t, engine.Ready)
	s.server.Kill()
	if dead := s.await(t, engine.Failed); dead.Epoch != first.Epoch || dead.Reason == "" {
		t.Errorf("dead: %+v", dead)
	}
	if _, _, err := s.run(t, ask()); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a dead engine: %v, want unavailable", err)
	}
	s.server.Restart()
	second := s.await(t, engine.Ready)
	if second.Epoch == first.Epoch {
		t.Error("a process that was started anew leads the same life")
	}
	r := ask()
	r.Epoch = first.Epoch
	if _, _, err := s.run(t, r); engine.KindOf(err) != engine.Stale {
		t.Errorf("a request of the first life: %v, want stale", err)
	}
	s.http.CloseClientConnections()
	s.http.Close()
	if gone := s.await(t, engine.Dead); gone.Epoch != second.Epoch {
		t.Errorf("gone: %+v", gone)
	}
}

// Nothing is there at first, and then it loads; both are no failure.
func TestLoading(t *testing.T) {
	starting := args()
	starting.StartupTime = 0.05
	s := serve(t, fake.Config{Mock: mock.Config{Args: starting}}, func(c *vllm.Config) { c.Model = "other" })
	if st := s.await(t, engine.Loading); !strings.Contains(st.Reason, `"other"`) || st.Epoch == 0 {
		t.Errorf("%+v", st)
	}
	e, err := vllm.New(vllm.Config{URL: "http://127.0.0.1:1", Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for st := range e.Card(t.Context()) {
		if st.State != engine.Loading || st.Reason == "" {
			t.Errorf("%+v", st)
		}
		break
	}
}

func TestPromptLogprobsKeepTheirPlace(t *testing.T) {
	one := 1
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	r := ask()
	r.PromptLogprobs = &one
	n := 0
	for d, err := range s.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if d.PromptLogprobs != nil {
			n++
			if !math.IsNaN(d.PromptLogprobs[0].Logprob) || d.PromptLogprobs[2].ID != 9 || len(d.PromptLogprobs[2].Top) != 1 {
				t.Errorf("%+v", d.PromptLogprobs)
			}
		}
	}
	if n != 1 {
		t.Errorf("told %d times", n)
	}
}

// A look that brings nothing says nothing by itself; several in a row do. What the
// metrics told stays so while they cannot be read.
func TestPatience(t *testing.T) {
	var broken, blind atomic.Bool
	var looks atomic.Int64
	var s *served
	s = attach(t, fake.Config{}, map[string]http.HandlerFunc{
		"/health": func(http.ResponseWriter, *http.Request) {
			if broken.Load() {
				looks.Add(1)
				panic(http.ErrAbortHandler)
			}
		},
		"/metrics": func(w http.ResponseWriter, r *http.Request) {
			if blind.Load() {
				refuses(500, "")(w, r)
				return
			}
			s.server.ServeHTTP(w, r)
		},
	})
	first := s.await(t, engine.Ready)
	blind.Store(true)
	if now := s.await(t, engine.Ready); now != first || now.Card.BlockSize != 16 {
		t.Errorf("without metrics: %+v, card %+v", now, now.Card)
	}
	broken.Store(true)
	for range 2 {
		for st := range s.Card(t.Context()) {
			if st != first {
				t.Errorf("after %d looks that brought nothing: %+v", looks.Load(), st)
			}
			break
		}
	}
	s.await(t, engine.Suspect)
	s.await(t, engine.Dead)
	broken.Store(false)
	if st := s.await(t, engine.Ready); st.Epoch == first.Epoch {
		t.Error("a server that was gone, and does not say since when it runs, leads the same life")
	}
	blind.Store(false)
	same := s.await(t, engine.Ready)
	broken.Store(true)
	s.await(t, engine.Suspect)
	s.await(t, engine.Dead)
	broken.Store(false)
	if st := s.await(t, engine.Ready); st.Epoch != same.Epoch {
		t.Error("a process that was out of reach, and runs as before, leads another life")
	}
}

// A build that gives no ids cannot be a token machine, and says so at once.
func TestTooOld(t *testing.T) {
	for _, c := range []fake.Config{
		{Version: "0.9.0", NoGenerate: true, NoTokenIDs: true},
		{Version: "0.10.1", NoGenerate: true, NoDocs: true},
	} {
		c.Mock.Args = args()
		if st := serve(t, c, nil).await(t, engine.Failed); !strings.Contains(st.Reason, c.Version) {
			t.Errorf("reason %q does not name the version", st.Reason)
		}
	}
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	enginetest.Silence(t, s.server, func(t *testing.T, url string) engine.Engine {
		e, err := vllm.New(vllm.Config{URL: url, Every: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}

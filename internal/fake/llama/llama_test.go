package llama_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/llama"
)

func start(t *testing.T, cfg llama.Config) (*llama.Server, string) {
	t.Helper()
	cfg.Mock.Model = "tiny"
	if cfg.Mock.Args == (mock.Args{}) {
		cfg.Mock.Args = mock.DefaultArgs()
		cfg.Mock.Args.SpeedupRatio, cfg.Mock.Args.MaxNumSeqs = 0, 2
	}
	s, err := llama.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return s, h.URL
}

func do(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestRoutes(t *testing.T) {
	_, url := start(t, llama.Config{Mock: mock.Config{EOS: []uint32{2}}, ContextLength: 100, Adapters: []string{"a.gguf"}, SlotActions: true})
	_, bare := start(t, llama.Config{NoMetrics: true, NoSlots: true, Alias: "org/tiny"})
	for _, c := range []struct {
		method, url, body string
		status            int
		want              string
	}{
		{"GET", url + "/health", "", 200, `{"status":"ok"}`},
		{"GET", url + "/props", "", 200, `{"build_info":"b9000-fake","default_generation_settings":{"n_ctx":100},"eos_token":"</s>","is_sleeping":false,"model_path":"models/tiny.gguf","total_slots":2}`},
		{"GET", url + "/slots", "", 200, `[{"id":0,"is_processing":false,"n_ctx":100},{"id":1,"is_processing":false,"n_ctx":100}]`},
		{"GET", url + "/lora-adapters", "", 200, `[{"id":0,"path":"a.gguf","scale":1}]`},
		{"GET", url + "/v1/models", "", 200, `{"data":[{"id":"tiny","object":"model","owned_by":"llamacpp"}],"object":"list"}`},
		{"POST", url + "/tokenize", `{"content":"a w300é"}`, 200, `{"tokens":[97,300,195,169]}`},
		{"POST", url + "/tokenize", `{"content":"</s>","parse_special":true}`, 200, `{"tokens":[2]}`},
		{"POST", url + "/tokenize", `{"content":""}`, 200, `{"tokens":[]}`},
		{"POST", url + "/detokenize", `{"tokens":[97,300,195,169]}`, 200, `{"content":"a w300é"}`},
		{"POST", url + "/slots/1?action=erase", `{}`, 200, `{"id_slot":1,"n_erased":0}`},
		{"POST", url + "/slots/7?action=erase", `{}`, 400, `{"error":{"code":400,"message":"Invalid slot ID","type":"invalid_request_error"}}`},
		{"POST", url + "/slots/0?action=none", `{}`, 400, `{"error":{"code":400,"message":"Invalid action","type":"invalid_request_error"}}`},
		{"GET", url + "/nothing", "", 404, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`},
		{"POST", url + "/completion", `{"prompt":[]}`, 400, `{"error":{"code":400,"message":"\"prompt\" must not be empty","type":"invalid_request_error"}}`},
		{"POST", url + "/completion", `{"prompt":[` + strings.Repeat("1,", 99) + `1]}`, 400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`},
		{"GET", bare + "/props", "", 200, `{"build_info":"b9000-fake","default_generation_settings":{"n_ctx":1048576},"is_sleeping":false,"model_alias":"org/tiny","model_path":"models/tiny.gguf","total_slots":2}`},
		{"GET", bare + "/v1/models", "", 200, `{"data":[{"id":"org/tiny","object":"model","owned_by":"llamacpp"}],"object":"list"}`},
		{"GET", bare + "/metrics", "", 501, "{\"error\":{\"code\":501,\"message\":\"This server does not support metrics endpoint. Start it with `--metrics`\",\"type\":\"not_supported_error\"}}"},
		{"GET", bare + "/slots", "", 501, "{\"error\":{\"code\":501,\"message\":\"This server does not support slots endpoint. Start it with `--slots`\",\"type\":\"not_supported_error\"}}"},
		{"POST", bare + "/slots/0?action=erase", `{}`, 501, "{\"error\":{\"code\":501,\"message\":\"This server does not support slots action. Start it with `--slot-save-path`\",\"type\":\"not_supported_error\"}}"},
	} {
		if status, got := do(t, c.method, c.url, c.body); status != c.status || got != c.want {
			t.Errorf("%s %s: %d %s\nwant %d %s", c.method, c.url, status, got, c.status, c.want)
		}
	}
}

// last returns the last event of a stream.
func last(t *testing.T, stream string) (out struct {
	StopType  string `json:"stop_type"`
	Slot      int    `json:"id_slot"`
	Predicted int    `json:"tokens_predicted"`
	Timings   struct {
		Cached int `json:"cache_n"`
		Prompt int `json:"prompt_n"`
	} `json:"timings"`
},
) {
	t.Helper()
	events := strings.Split(strings.TrimSpace(stream), "\n\n")
	if err := json.Unmarshal([]byte(strings.TrimPrefix(events[len(events)-1], "data: ")), &out); err != nil {
		t.Fatalf("%v in %s", err, stream)
	}
	return out
}

// Slots are chosen by what they remember, or as asked for.
func TestSlots(t *testing.T) {
	_, url := start(t, llama.Config{})
	for i, c := range []struct {
		body                     string
		slot, cached, made, rest int
	}{
		{`{"prompt":[1,2,3,4],"n_predict":2,"stream":true}`, 0, 0, 2, 4},
		{`{"prompt":[9,8,7,6],"n_predict":2,"stream":true}`, 1, 0, 2, 4},
		{`{"prompt":[1,2,3,4,5,6],"n_predict":1,"stream":true}`, 0, 4, 1, 2},
		{`{"prompt":[9,8,7,6],"n_predict":1,"stream":true}`, 1, 3, 1, 1},
		{`{"prompt":[9,8,7,6],"n_predict":1,"stream":true,"id_slot":4}`, 0, 0, 1, 4},
		{`{"prompt":[5,5,5],"n_predict":0,"stream":true}`, 1, 0, 0, 3},
		{`{"prompt":[5,5,5],"n_predict":1,"stream":true}`, 1, 2, 1, 1},
	} {
		_, text := do(t, "POST", url+"/completion", c.body)
		got := last(t, text)
		if got.Slot != c.slot || got.Timings.Cached != c.cached || got.Timings.Prompt != c.rest || got.Predicted != c.made || got.StopType != "limit" {
			t.Errorf("request %d: %+v, want %+v", i, got, c)
		}
	}
	_, text := do(t, "GET", url+"/metrics", "")
	for _, line := range []string{"llamacpp:prompt_tokens_total 19\n", "llamacpp:tokens_predicted_total 8\n", "llamacpp:requests_deferred 0\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

func TestOneAnswer(t *testing.T) {
	_, url := start(t, llama.Config{Mock: mock.Config{EOS: []uint32{2}, Source: mock.SourceEcho}})
	status, got := do(t, "POST", url+"/completion", `{"prompt":[104,105,240,159],"return_tokens":true}`)
	want := `{"content":"hi\ufffd\ufffd","id_slot":0,"index":0,"stop":true,"stop_type":"eos","stopping_word":"","timings":{"cache_n":0,"predicted_n":5,"prompt_n":4},` +
		`"tokens":[104,105,240,159],"tokens_cached":9,"tokens_evaluated":4,"tokens_predicted":5,"truncated":false}`
	if got = strings.ReplaceAll(got, "\ufffd", `\ufffd`); status != 200 || got != want {
		t.Errorf("%d %s\nwant %s", status, got, want)
	}
}

// What waits for a slot leaves with its client, and ends with its server.
func TestWaiting(t *testing.T) {
	args := mock.DefaultArgs()
	args.MaxNumSeqs, args.TimingModel, args.DecodeMS = 1, "constant", 20
	s, url := start(t, llama.Config{Mock: mock.Config{Args: args}})
	post := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, "POST", url+"/completion", strings.NewReader(`{"prompt":[1,2],"n_predict":1000,"stream":true}`))
			if err != nil {
				done <- err
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		return done
	}
	until := func(line string) {
		t.Helper()
		text := ""
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if _, text = do(t, "GET", url+"/metrics", ""); strings.Contains(text, line) {
				return
			}
		}
		t.Fatalf("never %q, but\n%s", line, text)
	}
	first := post(t.Context())
	until("requests_processing 1\n")
	ctx, leave := context.WithCancel(t.Context())
	second := post(ctx)
	until("requests_deferred 1\n")
	leave()
	if err := <-second; err == nil {
		t.Error("it left, and had an answer")
	}
	until("requests_deferred 0\n")
	third := post(t.Context())
	until("requests_deferred 1\n")
	s.Restart()
	for _, done := range []<-chan error{first, third} {
		if err := <-done; err == nil {
			t.Error("an answer survived the restart")
		}
	}
	until("requests_processing 0\n")
}

func TestBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune(" w0129é😀"))).Draw(t, "text")
		var back []byte
		for _, id := range (llama.Bytes{}).Encode(text) {
			back = append(back, llama.Bytes{}.Spell(id)...)
		}
		if string(back) != text || !utf8.ValidString(text) {
			t.Fatalf("%q became %q", text, back)
		}
	})
}

func Example() {
	s, err := llama.New(llama.Config{Mock: mock.Config{Model: "tiny", Source: mock.SourceEcho, EOS: []uint32{2}}})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/completion", strings.NewReader(`{"prompt":[104,105],"stream":true,"return_tokens":true}`)))
	for line := range strings.Lines(w.Body.String()) {
		if i := strings.Index(line, `"tokens":`); i >= 0 {
			fmt.Println(strings.SplitAfter(line[i:], "]")[0])
		}
	}
	// Output:
	// "tokens":[104]
	// "tokens":[105]
	// "tokens":[2]
	// "tokens":[]
}

package ollama_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/ollama"
)

func start(t *testing.T, cfg ollama.Config) (*ollama.Server, string) {
	t.Helper()
	cfg.Mock.Model = "tiny"
	if cfg.Mock.Args == (mock.Args{}) {
		cfg.Mock.Args = mock.DefaultArgs()
		cfg.Mock.Args.SpeedupRatio = 0
	}
	s, err := ollama.New(cfg)
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
	_, url := start(t, ollama.Config{Others: []string{"big:8b"}, Capabilities: []string{"completion"}, Parameters: "temperature 1", Queue: 1})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 200, "Ollama is running"},
		{"GET", "/api/version", "", 200, `{"version":"0.99.0-fake"}`},
		{"GET", "/api/tags", "", 200, `{"models":[{"digest":"sha256:1","model":"tiny:latest","name":"tiny:latest","size":1},{"digest":"sha256:other-0","model":"big:8b","name":"big:8b","size":1}]}`},
		{"GET", "/api/ps", "", 200, `{"models":[]}`},
		{"POST", "/api/show", `{"model":"tiny"}`, 200, `{"capabilities":["completion"],"model_info":{"fake.context_length":2048,"general.architecture":"fake"},"parameters":"temperature 1","template":"{{ .Prompt }}"}`},
		{"POST", "/api/show", `{"model":"none"}`, 404, `{"error":"model 'none' not found"}`},
		{"POST", "/api/chat", `{"model":"none"}`, 404, `{"error":"model 'none' not found"}`},
		{"POST", "/api/chat", `{"model":"tiny","think":true,"messages":[{}]}`, 400, `{"error":"\"tiny\" does not support thinking"}`},
		{"POST", "/api/chat", `{"model":"tiny","tools":[{}],"messages":[{}]}`, 400, `{"error":"tiny does not support tools"}`},
		{"POST", "/api/chat", `{"model":"tiny","messages":[{"images":["AA"]}]}`, 500, `{"error":"this model is missing data required for image input"}`},
		{"POST", "/api/generate", `{"model":"tiny","prompt":"` + strings.Repeat("x", 257) + `","truncate":false}`, 400, `{"error":"the input length exceeds the context length"}`},
		{"GET", "/api/ps", "", 200, `{"models":[{"context_length":256,"digest":"sha256:1","model":"tiny:latest","name":"tiny:latest","size":1,"size_vram":1}]}`},
	} {
		if status, got := do(t, c.method, url+c.path, c.body); status != c.status || got != c.want {
			t.Errorf("%s %s %s: %d %s\nwant %d %s", c.method, c.path, c.body, status, got, c.status, c.want)
		}
	}
}

// told is a line, or an answer that came as a whole.
type told struct {
	Message struct {
		Content  string `json:"content"`
		Thinking string `json:"thinking"`
		Calls    []any  `json:"tool_calls"`
	} `json:"message"`
	Response string `json:"response"`
	Done     bool   `json:"done"`
	Reason   string `json:"done_reason"`
	Prompt   int    `json:"prompt_eval_count"`
	Output   int    `json:"eval_count"`
}

// fold adds the lines of an answer up.
func fold(t *testing.T, stream string) (all told) {
	t.Helper()
	for line := range strings.Lines(stream) {
		var l told
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if all.Done {
			t.Errorf("%q behind the end", line)
		}
		l.Message.Content = all.Message.Content + l.Message.Content
		l.Message.Thinking = all.Message.Thinking + l.Message.Thinking
		l.Message.Calls = append(all.Message.Calls, l.Message.Calls...)
		l.Response = all.Response + l.Response
		all = l
	}
	if !all.Done {
		t.Errorf("%q has no end", stream)
	}
	return all
}

// However an answer is asked for, it says the same: thoughts, texts and calls each
// at their place.
func TestAnswers(t *testing.T) {
	script, err := mock.LoadScript(strings.NewReader(`
rules:
  - when: {user: call}
    emit: "<think>hm é</think>A<b<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>C<tool_call>no</tool_call><tool_call>cut"
default:
  emit: "Not {{user}}!"
`))
	if err != nil {
		t.Fatal(err)
	}
	_, url := start(t, ollama.Config{Mock: mock.Config{Script: script}})
	ask := func(path, body string) told {
		t.Helper()
		status, text := do(t, "POST", url+path, body)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, text)
		}
		return fold(t, text)
	}
	for _, stream := range []bool{true, false} {
		body := fmt.Sprintf(`{"model":"tiny","stream":%v,"tools":[{"function":{"name":"f"}}],"messages":[{"role":"user","content":"call"}]}`, stream)
		a := ask("/api/chat", body)
		if a.Message.Thinking != "hm é" || a.Message.Content != "A<bC<tool_call>no</tool_call><tool_call>cut" || len(a.Message.Calls) != 1 || a.Reason != "stop" || a.Prompt == 0 {
			t.Errorf("stream %v: %+v", stream, a)
		}
	}
	for _, c := range []struct {
		body, thinking, content, reason string
	}{
		{`"messages":[{"role":"user","content":"x"}]`, "", "Not x!", "stop"},
		{`"messages":[{"role":"user","content":"call"}],"think":false,"options":{"stop":["é</t","é<"]}`, "", "<think>hm ", "stop"},
		{`"messages":[{"role":"user","content":"call"}],"options":{"num_predict":9}`, "hm", "", "length"},
		{`"messages":[{"role":"user","content":"call"}],"options":{"stop":["A<"]}`, "hm é", "", "stop"},
	} {
		a := ask("/api/chat", `{"model":"tiny",`+c.body+`}`)
		if a.Message.Thinking != c.thinking || a.Message.Content != c.content || a.Reason != c.reason {
			t.Errorf("%s: %+v", c.body, a)
		}
	}
	if a := ask("/api/generate", `{"model":"tiny","prompt":"Once","raw":true,"options":{"num_predict":3}}`); a.Response != "Not" || a.Prompt != 4 || a.Output != 3 || a.Reason != "length" {
		t.Errorf("a bare prompt: %+v", a)
	}
}

// What is too long is cut without a word, the oldest first, unless that is
// forbidden, and unless the server cuts always.
func TestCuts(t *testing.T) {
	for _, always := range []bool{false, true} {
		_, url := start(t, ollama.Config{Made: 100, CutsAlways: always})
		long := `"messages":[{"role":"system","content":"s"},{"role":"user","content":"` + strings.Repeat("x", 90) + `"},{"role":"user","content":"y"}]`
		if _, text := do(t, "POST", url+"/api/chat", `{"model":"tiny","options":{"num_predict":1},`+long+`}`); fold(t, text).Prompt != len("<|system|>s<|user|>y<|assistant|>") {
			t.Errorf("cut to %s", text)
		}
		status, _ := do(t, "POST", url+"/api/chat", `{"model":"tiny","truncate":false,"options":{"num_predict":1},`+long+`}`)
		if want := map[bool]int{false: 400, true: 200}[always]; status != want {
			t.Errorf("always %v: %d, want %d", always, status, want)
		}
		status, text := do(t, "POST", url+"/api/generate", `{"model":"tiny","prompt":"`+strings.Repeat("x", 150)+`"}`)
		if status != 200 || fold(t, text).Prompt != 100 {
			t.Errorf("one long prompt: %d %s", status, text)
		}
	}
}

// A model is loaded for its requests and leaves when it is told to, or when its
// time is over.
func TestMemory(t *testing.T) {
	s, url := start(t, ollama.Config{KeepAlive: time.Nanosecond})
	say := func(body string) string {
		t.Helper()
		status, text := do(t, "POST", url+"/api/generate", body)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, text)
		}
		return text
	}
	if text := say(`{"model":"tiny","keep_alive":-1,"options":{"num_ctx":512}}`); s.Context() != 512 || !strings.Contains(text, `"done_reason":"load"`) {
		t.Errorf("loaded with %d: %s", s.Context(), text)
	}
	say(`{"model":"tiny","keep_alive":"1h","prompt":"x","options":{"num_ctx":9999,"num_predict":1}}`)
	if s.Context() != 2048 {
		t.Errorf("loaded with %d", s.Context())
	}
	if text := say(`{"model":"tiny","keep_alive":0}`); s.Context() != 0 || !strings.Contains(text, `"done_reason":"unload"`) {
		t.Errorf("still loaded with %d: %s", s.Context(), text)
	}
	say(`{"model":"tiny","keep_alive":0,"prompt":"x","options":{"num_predict":1}}`)
	if s.Context() != 0 {
		t.Error("it stayed")
	}
	say(`{"model":"tiny","prompt":"x","options":{"num_predict":1}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for s.Context() != 0 {
		if ctx.Err() != nil {
			t.Fatal("its time was over, and it stayed")
		}
	}
	if status, text := do(t, "POST", url+"/api/generate", `{"model":"tiny","keep_alive":"soon"}`); status != 400 {
		t.Errorf("%d %s", status, text)
	}
}

// What was cached may be left out of the count, and is gone when the model is
// loaded anew.
func TestCache(t *testing.T) {
	_, url := start(t, ollama.Config{OmitsCached: true})
	count := func(context int) int {
		_, text := do(t, "POST", url+"/api/generate", fmt.Sprintf(`{"model":"tiny","prompt":"%s","options":{"num_ctx":%d,"num_predict":1}}`, strings.Repeat("x", 200), context))
		return fold(t, text).Prompt
	}
	first, again, anew := count(512), count(512), count(1024)
	if first != 200 || again >= first || anew != 200 {
		t.Errorf("%d, %d, and anew %d", first, again, anew)
	}
}

func Example() {
	s, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "tiny"}})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	h := httptest.NewServer(s)
	defer h.Close()
	resp, err := http.Get(h.URL + "/api/version")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	fmt.Println(resp.Status)
	// Output: 200 OK
}

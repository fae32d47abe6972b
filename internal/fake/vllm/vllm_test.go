package vllm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/vllm"
)

func serve(t *testing.T, c vllm.Config) func(path, body string) (status int, answer string) {
	t.Helper()
	c.Mock.Args = mock.DefaultArgs()
	c.Mock.Args.SpeedupRatio, c.Mock.Args.BlockSize, c.Mock.Args.MaxNumSeqs = 0, 16, 4
	c.Mock.Model, c.Mock.Source, c.Mock.ContextLength = "m", mock.SourceRandom, 64
	s, err := vllm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return func(path, body string) (int, string) {
		t.Helper()
		resp, err := http.Post(h.URL+path, "application/json", strings.NewReader(body))
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
}

// The server refuses what a real one refuses, with the status and words by which
// clients know it.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		vllm.Config
		body   string // of completions
		status int
		says   string
	}{
		{vllm.Config{}, `{"model":"m","prompt":[1],"max_tokens":64}`, 400, "maximum context length"},
		{vllm.Config{}, `{"model":"x","prompt":[1],"max_tokens":1}`, 404, `"type":"NotFoundError"`},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"priority":1}`, 400, "priority"},
		{vllm.Config{Priority: true}, `{"prompt":[1],"max_tokens":1,"priority":1}`, 200, `"finish_reason":"length"`},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"thinking_token_budget":5}`, 400, "thinking_token_budget"},
		{vllm.Config{Reasoning: true}, `{"prompt":[1],"max_tokens":1,"thinking_token_budget":5}`, 200, ""},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"cache_salt":""}`, 400, "cache_salt"},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"cache_salt":"` + strings.Repeat("x", 1025) + `"}`, 400, "1024"},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"logprobs":21}`, 400, "greater than max allowed"},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"n":5}`, 400, "n must be"},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"stream":true,"prompt_logprobs":0}`, 400, "prompt_logprobs"},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":1,"min_tokens":2}`, 400, "min_tokens"},
		{vllm.Config{OldErrors: true}, `{"prompt":[1],"max_tokens":64}`, 400, `"object":"error"`},
		{vllm.Config{}, `{`, 400, "cannot be read"},
		{vllm.Config{}, `{"prompt":[1]}`, 200, `"completion_tokens":16`},
		{vllm.Config{}, `{"prompt":[1],"max_tokens":null}`, 200, `"completion_tokens":16`},
	} {
		status, answer := serve(t, tt.Config)("/v1/completions", tt.body)
		if status != tt.status || !strings.Contains(answer, tt.says) {
			t.Errorf("%s: %d %s, want %d %q", tt.body, status, answer, tt.status, tt.says)
		}
	}
	ask := serve(t, vllm.Config{NoGenerate: true})
	if status, answer := ask("/inference/v1/generate", `{}`); status != 404 || !strings.Contains(answer, "Not Found") {
		t.Errorf("a route that is not there: %d %s", status, answer)
	}
	if status, _ := ask("/health", `{}`); status != 405 {
		t.Errorf("a method that is not there: %d", status)
	}
}

// Texts become tokens and texts again, and a rendered prompt is one that can be sent.
func TestTexts(t *testing.T) {
	ask := serve(t, vllm.Config{})
	for _, tt := range []struct{ path, body, want string }{
		{"/tokenize", `{"model":"m","prompt":"hi"}`, `{"count":2,"max_model_len":64,"token_strs":null,"tokens":[104,105]}`},
		{"/detokenize", `{"tokens":[104,105,300]}`, `{"prompt":"hi 300"}`},
		{"/v1/completions/render", `{"prompt":["a","b"]}`, `[{"token_ids":[97]},{"token_ids":[98]}]`},
		{"/v1/completions/render", `{"prompt":[7,8]}`, `[{"token_ids":[7,8]}]`},
		{"/v1/chat/completions/render", `{"messages":[]}`, `{"token_ids":[97,115,115,105,115,116,97,110,116,58,32]}`},
	} {
		if status, answer := ask(tt.path, tt.body); status != 200 || strings.TrimSpace(answer) != tt.want {
			t.Errorf("%s %s: %d %s, want %s", tt.path, tt.body, status, answer, tt.want)
		}
	}
	for body, status := range map[string]int{`{`: 400, `{"model":"x","prompt":"a"}`: 404, `{}`: 400} {
		if got, answer := ask("/tokenize", body); got != status {
			t.Errorf("%s: %d %s, want %d", body, got, answer, status)
		}
	}
}

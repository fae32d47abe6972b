package frontend_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/openai"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// conversations is a server over a server of chat completions, whose model nobody
// here has files of. It thinks, says what it was told last, and calls a tool if it
// has one. A prompt without messages it continues.
func conversations(t *testing.T) *server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Content string }
			Tools    []json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
			return
		}
		said, err := json.Marshal("You said: " + body.Messages[len(body.Messages)-1].Content)
		if err != nil {
			t.Error(err)
		}
		end := "stop"
		events := []string{`{"choices":[{"delta":{"reasoning_content":"Well."}}]}`, `{"choices":[{"delta":{"content":` + string(said) + `}}]}`}
		if len(body.Tools) > 0 {
			end = "tool_calls"
			events = append(events, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_7","function":{"name":"look","arguments":"{\"at\":1}"}}]}}]}`)
		}
		events = append(events, `{"choices":[{"delta":{},"finish_reason":"`+end+`"}]}`, `{"choices":[],"usage":{"prompt_tokens":33,"completion_tokens":12}}`, "[DONE]")
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			io.WriteString(w, "data: "+e+"\n\n")
		}
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Prompt string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
			return
		}
		more, err := json.Marshal(", said " + body.Prompt)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"text":`+string(more)+`,"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":4}}`+"\n\ndata: [DONE]\n\n")
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	e, err := openai.New(openai.Config{Config: httpapi.Config{URL: site.URL}, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(fleet.Config{})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		e.Close()
	})
	r, err := router.New(router.Config{}, f)
	if err != nil {
		t.Fatal(err)
	}
	p := pipeline.New(pipeline.Config{Fleet: f, Router: r, Load: func(*engine.Card) (*prompt.Model, error) { return nil, errors.New("no files") }})
	if _, err := f.Add(fleet.Entry{Name: "site", Engine: e, ID: 1}); err != nil {
		t.Fatal(err)
	}
	s := start(t, p)
	eventually(t, func() bool { return strings.Contains(s.do("GET", "/v1/models", "").body, `"m"`) }, func() string { return "the model is not listed" })
	return s
}

// All APIs speak through a server that knows one of them.
func TestConversations(t *testing.T) {
	s := conversations(t)
	const (
		tool      = `[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
		messages  = `"messages":[{"role":"user","content":"Good day"}]`
		reply     = `You said: Good day`
		completes = `{"model":"m","prompt":"Good day","max_tokens":20}`
	)
	for name, c := range map[string]struct {
		path, body string
		status     int
		want       []string
	}{
		"chat": {
			"/v1/chat/completions", `{"model":"m",` + messages + `}`, 200,
			[]string{`"content":"` + reply + `"`, `"reasoning_content":"Well."`, `"finish_reason":"stop"`, `"prompt_tokens":33`, `"completion_tokens":12`},
		},
		"chat, streamed": {
			"/v1/chat/completions", `{"model":"m","stream":true,"tools":` + tool + `,` + messages + `}`, 200,
			[]string{`"content":"` + reply + `"`, `"reasoning_content":"Well."`, `"name":"look"`, `{\"at\":1}`, `"id":"call_7"`, `"finish_reason":"tool_calls"`, "data: [DONE]"},
		},
		"completions": {"/v1/completions", completes, 200, []string{`"text":", said Good day"`, `"finish_reason":"stop"`, `"prompt_tokens":2`}},
		"messages": {
			"/v1/messages", `{"model":"m","max_tokens":20,"thinking":{"type":"enabled","budget_tokens":10},"tools":[{"name":"look","input_schema":{"type":"object"}}],` + messages + `}`, 200,
			[]string{`"type":"thinking","thinking":"Well."`, `"text":"` + reply + `"`, `"type":"tool_use"`, `"input":{"at":1}`, `"stop_reason":"tool_use"`, `"input_tokens":33`, `"output_tokens":12`},
		},
		"messages, streamed": {
			"/v1/messages", `{"model":"m","max_tokens":20,"stream":true,` + messages + `}`, 200,
			[]string{"event: message_start", `"thinking_delta","thinking":"Well."`, `"text_delta","text":"` + reply + `"`, `"stop_reason":"end_turn"`, "event: message_stop"},
		},
		"responses": {
			"/v1/responses", `{"model":"m","input":"Good day","tools":[{"type":"function","name":"look","parameters":{"type":"object"}}]}`, 200,
			[]string{`"text":"` + reply + `"`, `"type":"function_call"`, `"name":"look"`, `"status":"completed"`, `"input_tokens":33`},
		},
		"log probabilities": {"/v1/chat/completions", `{"model":"m","logprobs":true,` + messages + `}`, 400, []string{`logprobs is not supported by model 'm'`, `"param":"logprobs"`}},
		"token prompt":      {"/v1/completions", `{"model":"m","prompt":[1,2]}`, 400, []string{`a prompt of token ids is not supported by model 'm'`}},
		"counting":          {"/v1/messages/count_tokens", `{"model":"m",` + messages + `}`, 501, []string{`its tokenizer is not here`}},
		"counting input":    {"/v1/responses/input_tokens", `{"model":"m","input":"Good day"}`, 501, []string{`its tokenizer is not here`}},
		"tokenizing":        {"/tokenize", `{"model":"m","prompt":"Good day"}`, 501, []string{`its tokenizer is not here`}},
		"detokenizing":      {"/detokenize", `{"model":"m","tokens":[1]}`, 501, []string{`its tokenizer is not here`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.do("POST", c.path, c.body, "Content-Type", "application/json")
			if got.status != c.status {
				t.Fatalf("%d %s, want %d", got.status, got.body, c.status)
			}
			for _, want := range c.want {
				if !strings.Contains(got.body, want) {
					t.Errorf("no %s in %s", want, got.body)
				}
			}
		})
	}
	s.metric(`dynago_thinking_budget_total{by="nobody",model="m"} 1`)
	if a := s.do("GET", "/v1/models/m", ""); a.status != 200 || strings.Contains(a.body, "context_window") {
		t.Errorf("the model: %d %s; its context is not known", a.status, a.body)
	}
}

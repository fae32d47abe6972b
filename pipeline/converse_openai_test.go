package pipeline_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/openai"
	"github.com/dynago/dynago/pipeline"
)

// site is a server of chat completions, and what it was asked.
type site struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []map[string]any
}

// newSite serves one model; answer says what comes of a question.
func newSite(t *testing.T, answer http.HandlerFunc) *site {
	s := &site{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"test/model","owned_by":"someone"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", streams(`{"choices":[{"index":0,"text":" upon a time","finish_reason":"stop"}]}`, tellsUse))
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.bodies = append(s.bodies, body)
		s.mu.Unlock()
		answer(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *site) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// streams answers with events.
func streams(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, d := range data {
			io.WriteString(w, "data: "+d+"\n\n")
			w.(http.Flusher).Flush()
		}
	}
}

// attached is an adapter of a site.
func attached(t *testing.T, s *site) *openai.Engine {
	e, err := openai.New(openai.Config{Config: httpapi.Config{URL: s.URL}, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

const (
	saysHi   = `{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi "}}]}`
	saysYou  = `{"choices":[{"index":0,"delta":{"content":"you."}}]}`
	stops    = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	tellsUse = `{"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":16}}}`
)

// The whole way to a server of chat completions and back.
func TestServerOfConversations(t *testing.T) {
	use := func(use chat.Usage) *chat.Usage { return &use }
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		text    string
		thought string
		usage   *chat.Usage
	}{
		"counted":     {streams(saysHi, saysYou, stops, tellsUse, "[DONE]"), "Hi you.", "", use(chat.Usage{Prompt: 21, Cached: new(16), Output: 4})},
		"not counted": {streams(saysHi, saysYou, stops, "[DONE]"), "Hi you.", "", use(chat.Usage{Prompt: 4, Output: 2})},
		"thoughts":    {streams(`{"choices":[{"index":0,"delta":{"reasoning":"Hm."}}]}`, saysHi, saysYou, stops, tellsUse), "Hi you.", "Hm.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.answer)
			h := newRoom(t, pipeline.Config{}, attached(t, s))
			r := request("Hello")
			r.Chat.System = []chat.Block{{Kind: chat.Text, Text: "Be kind"}}
			r.Chat.Sampling.Temperature = new(0.5)
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if err != nil {
				t.Fatal(err)
			}
			got := map[chat.Kind]string{}
			for _, b := range answers[0].Blocks {
				got[b.Kind] += b.Text
			}
			if got[chat.Text] != c.text || got[chat.Thought] != c.thought || answers[0].Finish.Reason != chat.FinishStop {
				t.Errorf("answer %+v", answers[0])
			}
			if c.usage != nil {
				if diff := cmp.Diff(*c.usage, answers[0].Usage); diff != "" {
					t.Error(diff)
				}
			}
			want := map[string]any{
				"model": "test/model", "temperature": 0.5, "stream": true, "stream_options": map[string]any{"include_usage": true},
				"messages": []any{map[string]any{"role": "system", "content": "Be kind"}, map[string]any{"role": "user", "content": "Hello"}},
			}
			if diff := cmp.Diff([]map[string]any{want}, s.bodies); diff != "" {
				t.Error(diff)
			}
			h.released(t)
		})
	}
}

// A prompt without messages goes where no template is put around it.
func TestServerOfCompletions(t *testing.T) {
	s := newSite(t, streams(saysHi, stops))
	h := newRoom(t, pipeline.Config{}, attached(t, s))
	r := request("")
	r.Chat.API, r.Chat.Turns, r.Chat.Prompt = chat.APICompletions, nil, &chat.Prompt{Text: "Once"}
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || texts(answers)[0] != " upon a time" || s.asked() != 0 {
		t.Errorf("%+v, %v, and %d conversations", answers, err, s.asked())
	}
	h.released(t)
}

// What servers do when they fail, and who sees it.
func TestServersOfConversationsFail(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc // of the first server; the second one is well
		moves  bool
		kind   engine.ErrorKind
	}{
		"loading":        {status(503, `{"error":{"message":"loading"}}`), true, ""},
		"breaks at once": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, ""},
		"breaks later":   {func(w http.ResponseWriter, r *http.Request) { streams(saysHi)(w, r); panic(http.ErrAbortHandler) }, false, engine.Disconnected},
		"ends early":     {streams(saysHi, "[DONE]"), false, engine.StreamIncomplete},
		"refuses":        {status(400, `{"error":{"message":"too long"}}`), false, engine.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			bad := newSite(t, c.answer)
			good := newSite(t, streams(saysHi, saysYou, stops, tellsUse))
			h := newRoom(t, pipeline.Config{MigrationLimit: 3}, attached(t, bad), attached(t, good))
			answers, err := chat.Fold(h.Run(t.Context(), request("Hello")))
			if c.kind == "" && (err != nil || texts(answers)[0] != "Hi you.") || c.kind != "" && (err == nil || engine.KindOf(err) != c.kind) {
				t.Errorf("answers %+v, error %v, want kind %q", answers, err, c.kind)
			}
			if bad.asked() == 0 || good.asked() != 0 != c.moves { // a kept connection that breaks is tried again
				t.Errorf("the servers were asked %d and %d times", bad.asked(), good.asked())
			}
			h.released(t)
		})
	}
}

// A server whose reader has gone sees the connection close.
func TestServerOfConversationsIsLeft(t *testing.T) {
	gone := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		streams(saysHi)(w, r)
		<-r.Context().Done()
		close(gone)
	})
	h := newRoom(t, pipeline.Config{}, attached(t, s))
	for e, err := range h.Run(t.Context(), request("Hello")) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == chat.TextDelta {
			break
		}
	}
	<-gone
	h.released(t)
}

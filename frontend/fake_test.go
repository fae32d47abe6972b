package frontend_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// fake is a backend whose answers a test writes.
type fake struct {
	// run, if not nil, is the answer; otherwise it is [hello].
	run func(ctx context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error]

	flow   pipeline.Flow
	mu     sync.Mutex
	models []pipeline.ModelInfo
	seen   []*pipeline.Request
}

func newFake() *fake {
	return &fake{models: []pipeline.ModelInfo{
		{ID: "acme/demo", Aliases: []string{"demo"}, Ready: true, Workers: 2, Roles: map[engine.Role]pipeline.RoleInfo{engine.Aggregated: {Workers: 2}}, ContextLength: 4096, BlockSize: 16, TotalBlocks: 100, MaxSeqs: 8, MaxBatchedTokens: 2048},
		{ID: "sleepy", Reason: "no worker is ready"},
	}}
}

func (f *fake) Run(ctx context.Context, requests ...*pipeline.Request) iter.Seq2[chat.Event, error] {
	f.mu.Lock()
	f.seen = append(f.seen, requests...)
	f.mu.Unlock()
	for _, r := range requests {
		if r.Chat.Model != "demo" && r.Chat.Model != "acme/demo" {
			return failing(&engine.Error{Kind: engine.NotFound, Message: "The model `" + r.Chat.Model + "` does not exist", Param: "model"})
		}
		*r.Notes = pipeline.Notes{
			Model: "acme/demo", PromptTokens: 7, Template: time.Millisecond, Tokenize: time.Millisecond,
			Routing: time.Microsecond, Attempts: 1,
		}
	}
	if f.run != nil {
		return f.run(ctx, requests)
	}
	return hello(len(requests) * requests[0].Chat.Sampling.Choices())
}

func (f *fake) Models() []pipeline.ModelInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.models
}

func (f *fake) Card(model string) *engine.Card {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.models {
		if m.ID == model {
			return m.Card
		}
	}
	return nil
}

func (f *fake) Workers() []pipeline.WorkerInfo {
	return []pipeline.WorkerInfo{{
		ID: 42, Name: "mock-0", Model: "acme/demo", State: "ready",
		Ranks:  []pipeline.RankInfo{{Requests: 1, DecodeBlocks: 5, PrefillTokens: 9}},
		Events: fleet.EventCounts{Applied: 21, Voided: 22, Ignored: 23, Torn: 24, Foreign: 25, Opened: 26},
	}, {
		ID: 43, Name: "mock-1", Model: "acme/demo", State: "ready", Role: engine.Prefill,
		Ranks: []pipeline.RankInfo{{PrefillTokens: 7}},
	}}
}

func (f *fake) Flow() *pipeline.Flow { return &f.flow }

func (f *fake) Dropped() []pipeline.DropCount {
	return []pipeline.DropCount{{Drop: pipeline.Drop{Family: "hermes", Reason: "malformed"}, Count: 3}}
}

func (f *fake) Caches() pipeline.CacheInfo {
	return pipeline.CacheInfo{
		Index: kvindex.Stats{
			Targets: 2, Prefixes: 50, Blocks: 70,
			Stored: 100, Removed: 30, Cleared: 1,
			ParentNotFound: 4, InvalidSequence: 3, Full: 2, BlockNotFound: 5, Unsupported: 6, Conflicts: 7, Duplicates: 8,
		},
		Intake: router.IntakeCounts{Unknown: 11, Unheard: 12, Overfull: 13, Muted: 14},
		Views: []router.CacheView{{
			Target: kv.Target{Worker: 42, Rank: 1}, Doubted: true, Drift: 0.5,
			Answers: 10, Predicted: 1000, Reported: 900, Witnesses: 8, Missing: 3, Surprising: 2, Doubts: 1, Resyncs: 4, Silent: true,
		}},
		SharedErrors: 9,
	}
}

func (f *fake) Tokenize(r *chat.Request, _ bool) ([]uint32, int, error) {
	if r.Model != "demo" {
		return nil, 0, &engine.Error{Kind: engine.NotFound, Param: "model", Message: "no such model"}
	}
	return []uint32{1, 2, 3}, 4096, nil
}

func (f *fake) Detokenize(_ string, ids []uint32) (string, error) {
	return strings.Repeat("x", len(ids)), nil
}

// requests returns what has arrived so far.
func (f *fake) requests() []*pipeline.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// hello answers every choice with two tokens.
func hello(choices int) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for c := range choices {
			for _, e := range helloEvents() {
				e.Choice = c
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func helloEvents() []chat.Event {
	cached := 4
	usage := chat.Usage{Prompt: 7, Cached: &cached, Output: 2}
	return []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 7}},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Hello", IDs: []uint32{1}},
		{Kind: chat.TextDelta, Text: " world", IDs: []uint32{2}},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: usage},
	}
}

// beginning is hello up to its first token.
func beginning() []chat.Event { return helloEvents()[:3] }

func failing(err error) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) { yield(chat.Event{}, err) }
}

// then yields events and goes on with next.
func then(events []chat.Event, next func(yield func(chat.Event, error) bool)) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		next(yield)
	}
}

// server is a running server.
type server struct {
	*frontend.Server
	t    *testing.T
	url  string
	log  *logBuffer
	http *http.Client
}

func start(t *testing.T, backend frontend.Backend, change ...func(*frontend.Config)) *server {
	t.Helper()
	log := &logBuffer{}
	c := frontend.Config{Backend: backend, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&c)
	}
	s, err := frontend.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &server{Server: s, t: t, url: "http://" + l.Addr().String(), log: log, http: client}
}

// answer is what a client received.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request and reads the whole answer. Headers come in pairs.
func (s *server) do(method, path, body string, header ...string) answer {
	s.t.Helper()
	resp := s.open(method, path, strings.NewReader(body), header...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (s *server) open(method, path string, body io.Reader, header ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// metric waits until the page holds a line, which is written just after the
// answer that it counts.
func (s *server) metric(line string) {
	s.t.Helper()
	var page string
	eventually(s.t, func() bool {
		page = s.do("GET", "/metrics", "").body
		return strings.Contains(page, "\n"+line+"\n")
	}, func() string { return "no line " + line + " in\n" + page })
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool, why func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal(why())
		}
		wait := time.NewTimer(5 * time.Millisecond)
		<-wait.C
	}
}

const (
	ask       = `{"model":"demo","messages":[{"role":"user","content":"secret words"}]}`
	askStream = `{"model":"demo","stream":true,"messages":[{"role":"user","content":"secret words"}]}`
)

// logBuffer collects log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// quickly is a timing for tests that wait for what a stream does on its own.
func quickly(hold, keepAlive, write time.Duration) func(*frontend.Config) {
	return func(c *frontend.Config) {
		c.Timing = &sse.Timing{Hold: hold, KeepAlive: keepAlive, Write: write, Coalesce: time.Millisecond}
	}
}

// withKeys writes a keys file and makes a server want its keys.
func withKeys(t *testing.T, text string) func(*frontend.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := frontend.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *frontend.Config) { c.Keys = keys }
}

//go:build realengine

package engines_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dynago is the binary in front of engines.
type dynago struct {
	*process
	url string
}

// serve starts it. It does not wait for the engines.
func serve(t testing.TB, engines ...string) *dynago {
	t.Helper()
	port := freePorts(t, 1)[0]
	args := []string{setting(t, "DYNAGO_BINARY"), "serve", "--http-port", strconv.Itoa(port)}
	for _, e := range engines {
		args = append(args, "--engine", e)
	}
	d := &dynago{start(t, "dynago", nil, args...), local(port)}
	eventually(t, 20*time.Second, "dynago listens", func() bool {
		if !d.running() {
			t.Fatalf("dynago has ended:\n%s", d.printed())
		}
		status, _ := ask("GET", d.url+"/live", "")
		return status == http.StatusOK
	})
	t.Cleanup(func() {
		for line := range strings.Lines(d.printed()) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic:") {
				t.Errorf("dynago printed: %s", line)
			}
		}
	})
	return d
}

// worker is one entry of /admin/workers.
type worker struct {
	ID     uint64 `json:"worker_id"`
	URL    string `json:"worker"`
	Model  string `json:"model"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

func (d *dynago) worker(t testing.TB, url string) worker {
	t.Helper()
	status, text := ask("GET", d.url+"/admin/workers", "")
	var list struct{ Workers []worker }
	if err := json.Unmarshal([]byte(text), &list); status != http.StatusOK || err != nil {
		t.Fatalf("/admin/workers: status %d %s", status, text)
	}
	for _, w := range list.Workers {
		if w.URL == url {
			return w
		}
	}
	t.Fatalf("/admin/workers does not know %s: %s", url, text)
	return worker{}
}

// awaits waits until an engine is in a state.
func (d *dynago) awaits(t testing.TB, url, state string, within time.Duration) {
	t.Helper()
	eventually(t, within, url+" is "+state, func() bool { return d.worker(t, url).State == state })
}

// at pins a request to an engine.
func (d *dynago) at(t testing.TB, url string) http.Header {
	t.Helper()
	return http.Header{"X-Dynamo-Worker-Instance-Id": {strconv.FormatUint(d.worker(t, url).ID, 10)}}
}

// heard is how much the engines have told of their caches.
func (d *dynago) heard(t testing.TB) float64 {
	t.Helper()
	return metric(t, d.url, "dynamo_component_kv_cache_events_applied") + metric(t, d.url, "dynago_worker_kv_event_batches_total")
}

// settled waits until no engine has told of its cache for a while: events come
// after the answers that they belong to.
func (d *dynago) settled(t testing.TB) {
	t.Helper()
	last, since := -1.0, time.Now()
	eventually(t, 30*time.Second, "the index has settled", func() bool {
		if now := d.heard(t); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// prediction is what the router expected to be cached, and what was.
type prediction struct{ predicted, reported, wrong float64 }

func (d *dynago) prediction(t testing.TB) prediction {
	t.Helper()
	const name = "dynago_cache_prediction_"
	return prediction{
		metric(t, d.url, name+"predicted_tokens_total"),
		metric(t, d.url, name+"reported_tokens_total"),
		metric(t, d.url, name+"wrong_blocks_total"),
	}
}

func (p prediction) since(old prediction) prediction {
	return prediction{p.predicted - old.predicted, p.reported - old.reported, p.wrong - old.wrong}
}

// question is a chat request.
type question struct {
	text   string
	tokens int         // to answer with; 0 for 16
	header http.Header // besides the usual one
	more   map[string]any
}

func (q question) body(stream bool) string {
	o := map[string]any{
		"model": "tiny", "temperature": 0, "max_tokens": max(q.tokens, 1), "stream": stream,
		"messages": []any{map[string]any{"role": "user", "content": q.text}},
	}
	if q.tokens == 0 {
		o["max_tokens"] = 16
	}
	if stream {
		o["stream_options"] = map[string]any{"include_usage": true}
	}
	maps.Copy(o, q.more)
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is made of plain values
	}
	return string(text)
}

func (q question) post(ctx context.Context, url string, stream bool) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(q.body(stream)))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.header)
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// answer is what came back.
type answer struct {
	Text, Finish string
	Usage        struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	logprobs int
}

// cached returns how much of the prompt the engine had, or -1 where it does not say.
func (a *answer) cached() int {
	if a.Usage.Details == nil {
		return -1
	}
	return a.Usage.Details.Cached
}

type choice struct {
	Message struct{ Content string }
	Delta   struct{ Content string }
	Finish  string `json:"finish_reason"`
	Log     *struct {
		Content []struct{ Logprob float64 }
	} `json:"logprobs"`
}

// chat asks a server, dynago or an engine itself, and wants an answer.
func chat(t testing.TB, url string, q question) *answer {
	t.Helper()
	resp, err := q.post(t.Context(), url, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	a := &answer{}
	var got struct {
		Choices []choice
		Usage   json.RawMessage
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if err := json.Unmarshal(got.Usage, &a.Usage); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c := &got.Choices[0]
	a.Text, a.Finish = c.Message.Content, c.Finish
	if c.Log != nil {
		a.logprobs = len(c.Log.Content)
	}
	return a
}

// stream is an answer on its way.
type stream struct {
	cancel context.CancelFunc
	first  chan struct{} // closed when the first text has come
	done   chan struct{} // closed at the end
	pieces chan struct{} // one for each piece of text, as long as there is room
	answer answer        // of which all is there when done is closed
	err    error
}

// open begins a stream. Its status is looked at when it ends.
func open(t testing.TB, url string, q question) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{cancel: cancel, first: make(chan struct{}), done: make(chan struct{}), pieces: make(chan struct{}, 100_000)}
	t.Cleanup(cancel)
	go func() {
		defer close(s.done)
		s.err = s.read(ctx, url, q)
	}()
	return s
}

func (s *stream) read(ctx context.Context, url string, q question) error {
	resp, err := q.post(ctx, url, true)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		var chunk struct {
			Choices []choice
			Usage   json.RawMessage
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return fmt.Errorf("%s: %w", data, err)
		}
		if len(chunk.Error) > 0 {
			return fmt.Errorf("the stream has an error: %s", data)
		}
		for _, c := range chunk.Choices {
			if c.Delta.Content != "" {
				if s.answer.Text == "" {
					close(s.first)
				}
				s.answer.Text += c.Delta.Content
				s.pieces <- struct{}{}
			}
			if c.Finish != "" {
				s.answer.Finish = c.Finish
			}
		}
		if len(chunk.Usage) > 0 && string(chunk.Usage) != "null" {
			if err := json.Unmarshal(chunk.Usage, &s.answer.Usage); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the stream ended without [DONE] after %d bytes", len(s.answer.Text))
}

// hears waits for pieces of text.
func (s *stream) hears(t testing.TB, pieces int) {
	t.Helper()
	for range pieces {
		select {
		case <-s.pieces:
		case <-s.done:
			t.Fatalf("the stream ended early: %v", s.err)
		case <-time.After(60 * time.Second):
			t.Fatal("the stream says nothing for a minute")
		}
	}
}

// end waits for the whole answer.
func (s *stream) end(t testing.TB, within time.Duration) *answer {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(within):
		t.Fatalf("the stream has not ended after %v", within)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return &s.answer
}

// story is a text that differs from others from its first word.
func story(n, length int) string {
	text := fmt.Sprintf("%d is the number of this story.", n)
	for i := 0; len(text) < length; i++ {
		text += fmt.Sprintf(" In part %d we tell you what the world is and that it is.", i)
	}
	return text[:length]
}

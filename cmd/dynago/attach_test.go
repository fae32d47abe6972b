//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/fake/llama"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/internal/fake/vllm"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
)

// demoModel is what the servers of these tests serve.
var demoModel = sync.OnceValues(func() (*prompt.Model, error) { return prompt.Load(demo.File, prompt.Parsers{}) })

// demoFolder writes the demo model's files, as those of a model that lies on disk.
func demoFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		text, err := demo.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mockOf is the mock engine behind a server: all of these tests say the same.
func mockOf(t *testing.T, name string, slow bool) mock.Config {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.SpeedupRatio = 16, 1024, 0
	if slow {
		args.SpeedupRatio, args.TimingModel, args.DecodeMS, args.PrefillMS = 1, "constant", 5, 1
	}
	return mock.Config{
		Model: name, Args: args, EOS: model.EOS, ContextLength: 4096,
		Encode: func(dst []uint32, text string) []uint32 {
			ids, err := model.Encode(dst, text)
			if err != nil {
				t.Error(err)
			}
			return ids
		},
	}
}

// words is the demo model's vocabulary, for the server that streams text.
type words struct{ *tokenizer.Tokenizer }

func (w words) Spell(id uint32) []byte {
	if w.IsSpecial(id) {
		return nil
	}
	return w.Bytes(id)
}

func (w words) Encode(text string) []uint32 { return w.Append(nil, text) }

// host serves a handler until the test ends, and returns its address.
func host(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func newVLLM(t *testing.T, c vllm.Config) *vllm.Server {
	t.Helper()
	s, err := vllm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// said is the text of a streamed answer, and how it ended.
type said struct {
	text  string
	usage int
	whole bool
}

// chat opens a stream. Each piece of its text goes to hear, if that is not nil.
func (p *program) chat(model string, tokens int, hear func(piece string)) (int, said) {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,"temperature":0,"ignore_eos":true,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`, model, tokens)
	resp, err := http.DefaultClient.Do(p.request(context.Background(), "POST", p.url+"/v1/chat/completions", body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var s said
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			s.whole = true
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   struct {
				Completion int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil || event.Error != nil {
			p.t.Fatalf("%s: %v in %s", model, err, data)
		}
		s.usage = max(s.usage, event.Usage.Completion)
		for _, c := range event.Choices {
			if s.text += c.Delta.Content; hear != nil && c.Delta.Content != "" {
				hear(c.Delta.Content)
			}
		}
	}
	if err := lines.Err(); err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, s
}

// ready waits until a model is served.
func (p *program) ready(model string) {
	p.t.Helper()
	until(p.t, model+" is served", func() bool { return p.send("/v1/chat/completions", single(model)).status == 200 })
}

func single(model string) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"a"}]}`, model)
}

// One process serves the models of four servers of different kinds, which it was
// told of or found out, and all say what the mock engine behind them does.
func TestAttachEveryKind(t *testing.T) {
	t.Parallel()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	v := newVLLM(t, vllm.Config{Mock: mockOf(t, "of-vllm", false)})
	s, err := sglang.New(sglang.Config{Mock: mockOf(t, "of-sglang", false)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, err := mock.New(mockOf(t, "of-trtllm", false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r := trtllm.New(trtllm.Config{Model: "of-trtllm", Engine: m})
	t.Cleanup(r.Close)
	l, err := llama.New(llama.Config{Mock: mockOf(t, "of-llamacpp", false), Vocabulary: words{model.Tokenizer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	servers := map[string]http.Handler{"vllm": v, "sglang": s, "trtllm": r, "llamacpp": l}
	for _, auto := range []bool{false, true} {
		t.Run(fmt.Sprintf("auto=%t", auto), func(t *testing.T) {
			dir := demoFolder(t)
			var args []string
			for kind, server := range servers {
				extra := ",context_length=4096"
				shown := kind
				if auto {
					shown, extra = "auto", "" // what the server does not tell, the model's files do
				}
				args = append(args, "--engine", shown+"="+host(t, server).URL+",model_path="+dir+",load.interval=20ms"+extra)
			}
			p := serve(t, args...)
			var want said
			for kind := range servers {
				p.ready("of-" + kind)
				status, got := p.chat("of-"+kind, 40, nil)
				if status != 200 || !got.whole || got.usage != 40 || len(got.text) < 40 {
					t.Errorf("%s: %d %+v", kind, status, got)
				}
				if want.text == "" {
					want = got
				}
				if got.text != want.text {
					t.Errorf("%s said %q, another kind %q", kind, got.text, want.text)
				}
			}
			_, list := p.get(p.url + "/v1/models")
			for kind := range servers {
				if !strings.Contains(list, `"of-`+kind+`"`) {
					t.Errorf("of-%s is not in %s", kind, list)
				}
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A server that is not up when dynago starts is attached when it comes, whatever
// its kind turns out to be, and again after a restart.
func TestAttachLate(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := demoFolder(t)
	p := serve(t, "--engine", "http://"+address+",load.interval=20ms")
	if !strings.Contains(p.banner, "auto http://"+address) {
		t.Errorf("no worker in\n%s", p.banner)
	}
	until(t, "the log tells why nobody is served", func() bool {
		log := p.log.String()
		return strings.Contains(log, "not up yet") && strings.Contains(log, "connection refused")
	})
	if r := p.send("/v1/chat/completions", single(dir)); r.status != 404 {
		t.Errorf("of a model that nobody has told: %d %s", r.status, r.body)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	// vLLM names a model by its folder, unless it is told a name.
	v := newVLLM(t, vllm.Config{Mock: mockOf(t, dir, false)})
	s := httptest.NewUnstartedServer(v)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	p.ready(dir)
	v.Restart()
	s.CloseClientConnections()
	until(t, "it is attached again", func() bool { return strings.Contains(p.log.String(), "worker has restarted") })
	p.ready(dir)
	if n := strings.Count(p.log.String(), "worker has restarted"); n != 1 {
		t.Errorf("%d restarts in the log", n)
	}
}

// A stream whose server dies goes on on the other one, and the client gets the
// text of an undisturbed run.
func TestAttachFailover(t *testing.T) {
	t.Parallel()
	dir := demoFolder(t)
	servers := map[*vllm.Server]*httptest.Server{}
	args := []string{"--model-path", dir}
	for range 2 {
		v := newVLLM(t, vllm.Config{Mock: mockOf(t, "m", true)})
		servers[v] = host(t, v)
		args = append(args, "--engine", "vllm="+servers[v].URL+",load.interval=20ms")
	}
	p := serve(t, args...)
	p.ready("m")
	_, want := p.chat("m", 80, nil)
	before := map[*vllm.Server]int{}
	for v := range servers {
		before[v] = len(v.Bodies())
	}
	pieces, killed := 0, 0
	status, got := p.chat("m", 80, func(string) {
		if pieces++; pieces != 10 {
			return
		}
		var serving []*httptest.Server // found before any is killed, for the request moves at once
		for v, s := range servers {
			if len(v.Bodies()) > before[v] {
				serving = append(serving, s)
			}
		}
		killed = len(serving)
		for _, s := range serving {
			s.Listener.Close()
			s.CloseClientConnections()
		}
	})
	if killed != 1 {
		t.Fatalf("%d servers had the request", killed)
	}
	if status != 200 || got != want || !got.whole {
		t.Errorf("%d %+v, want %+v", status, got, want)
	}
	p.ready("m")
}

// What stands in the way of serving is told in words that name the flag.
func TestAttachWithoutFiles(t *testing.T) {
	t.Parallel()
	v := newVLLM(t, vllm.Config{Mock: mockOf(t, "nobody/none", false)})
	p := serve(t, "--engine", "vllm="+host(t, v).URL+",load.interval=20ms")
	const want = "the files of model nobody/none are not on this machine, or the server does not tell where: want --model-path PATH, or model_path=PATH in its --engine"
	until(t, "the log tells", func() bool { return strings.Contains(p.log.String(), want) })
	if r := p.send("/v1/chat/completions", single("nobody/none")); r.status != 503 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if status, page := p.get(p.url + "/health"); status != 200 || !strings.Contains(page, `"reason":"`+want) {
		t.Errorf("/health: %d %s", status, page)
	}
}

// A server of chat completions needs no files here: the conversation goes there as
// it is.
func TestAttachChat(t *testing.T) {
	t.Parallel()
	var asked atomic.Pointer[string]
	h := http.NewServeMux()
	h.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"small","object":"model","owned_by":"nvidia"}]}`)
	})
	h.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(new(r.Header.Get("Authorization") + " " + r.Header.Get("X-Team") + " " + string(body)))
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Only "}}]}`,
			`{"id":"1","choices":[{"index":0,"delta":{"content":"the Seine."}}]}`,
			`{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`{"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}`,
			"[DONE]",
		} {
			io.WriteString(w, "data: "+event+"\n\n")
		}
	})
	p := serve(t, "--engine", "auto="+host(t, h).URL+`,load.interval=20ms,context_length=4096,api_key=hush,headers.X-Team="a, b",extra_body={"keep_alive":60}`)
	p.ready("small")
	status, got := p.chat("small", 40, nil)
	if want := (said{"Only the Seine.", 5, true}); status != 200 || got != want {
		t.Errorf("%d %+v, want %+v", status, got, want)
	}
	for _, want := range []string{"Bearer hush a, b {", `"keep_alive":60`, "Which rivers cross Paris?"} {
		if !strings.Contains(*asked.Load(), want) {
			t.Errorf("no %s in %s", want, *asked.Load())
		}
	}
	if strings.Contains(p.log.String()+p.banner, "hush") {
		t.Error("the key is shown")
	}
}

// One path of model files does not do for two models.
func TestAttachTwoModelsOfOnePath(t *testing.T) {
	t.Parallel()
	args := []string{"--model-path", demoFolder(t)}
	for _, name := range []string{"one", "two"} {
		v := newVLLM(t, vllm.Config{Mock: mockOf(t, name, false)})
		args = append(args, "--engine", "vllm="+host(t, v).URL+",load.interval=20ms")
	}
	p := serve(t, args...)
	until(t, "the log tells", func() bool { return strings.Contains(p.log.String(), "want model_path=PATH in the --engine of each") })
	until(t, "one of them is served", func() bool {
		return p.send("/v1/chat/completions", single("one")).status == 200 || p.send("/v1/chat/completions", single("two")).status == 200
	})
}

// A stream that runs when the end is asked for is finished.
func TestAttachDrains(t *testing.T) {
	t.Parallel()
	v := newVLLM(t, vllm.Config{Mock: mockOf(t, "m", true)})
	p := serve(t, "--model-path", demoFolder(t), "--engine", "vllm="+host(t, v).URL+",load.interval=20ms")
	p.ready("m")
	once := sync.OnceFunc(func() { p.signal(syscall.SIGTERM) })
	status, got := p.chat("m", 80, func(string) { once() })
	if status != 200 || got.usage != 80 || !got.whole {
		t.Errorf("%d %+v", status, got)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The list in a file says the same as flags do.
func TestAttachFromFile(t *testing.T) {
	t.Parallel()
	dir := demoFolder(t)
	a, b := newVLLM(t, vllm.Config{Mock: mockOf(t, "a", false)}), newVLLM(t, vllm.Config{Mock: mockOf(t, "b", false)})
	config := filepath.Join(t.TempDir(), "dynago.yaml")
	text := fmt.Sprintf("engine:\n  - vllm=%s,model_path=%s\n  - kind: vllm\n    url: %s\n    model_path: %q\n    load: {interval: 20ms}\n    headers: {X-Team: \"a, b\"}\n", host(t, a).URL, dir, host(t, b).URL, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", config)
	p.ready("a")
	p.ready("b")
	if r := p.send("/v1/chat/completions", single("a")); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// An engine is added while the server runs, and taken away: what it answers is
// finished first, and nothing new goes there.
func TestAttachWhileServing(t *testing.T) {
	t.Parallel()
	dir := demoFolder(t)
	first, second := newVLLM(t, vllm.Config{Mock: mockOf(t, "first", false)}), newVLLM(t, vllm.Config{Mock: mockOf(t, "second", true)})
	p := serve(t, "--engine", "vllm="+host(t, first).URL+",load.interval=20ms,model_path="+dir)
	p.ready("first")
	address := host(t, second).URL
	text := "vllm=" + address + ",load.interval=20ms,model_path=" + dir
	added := p.send("/admin/workers", text)
	var worker struct {
		ID uint64 `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(added.body), &worker); err != nil || added.status != 201 || worker.ID != fleet.ID(address) {
		t.Fatalf("%d %s %v", added.status, added.body, err)
	}
	if again := p.send("/admin/workers", text); again.status != 400 || !strings.Contains(again.body, "is there already") {
		t.Errorf("twice: %d %s", again.status, again.body)
	}
	if wrong := p.send("/admin/workers", "vllm="+address+",blocks=1"); wrong.status != 400 || !strings.Contains(wrong.body, "blocks: there is no such key") {
		t.Errorf("a wrong key: %d %s", wrong.status, wrong.body)
	}
	if self := p.send("/admin/workers", "vllm="+p.url); self.status != 400 || !strings.Contains(self.body, "where this server is to listen itself") {
		t.Errorf("itself: %d %s", self.status, self.body)
	}
	p.ready("second")
	removed := sync.OnceFunc(func() {
		r := p.answered(p.request(t.Context(), "DELETE", fmt.Sprintf("%s/admin/workers/%d", p.url, worker.ID), ""))
		if r.status != 202 {
			t.Errorf("removing: %d %s", r.status, r.body)
		}
		if late := p.send("/v1/chat/completions", single("second")); late.status != 503 {
			t.Errorf("a late request: %d %s", late.status, late.body)
		}
	})
	status, got := p.chat("second", 80, func(string) { removed() })
	if status != 200 || got.usage != 80 || !got.whole {
		t.Errorf("%d %+v", status, got)
	}
	until(t, "the worker is gone", func() bool { _, list := p.get(p.url + "/admin/workers"); return !strings.Contains(list, address) })
	p.ready("first")
}

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/vllm"
)

func args() mock.Args {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.SpeedupRatio = 16, 4096, 0
	return a
}

// attached is an engine with the server that it is attached to.
type attached struct {
	*attach.Engine
	fake *vllm.Server
	http *httptest.Server
}

func (a *attached) Close() error {
	err := a.Engine.Close()
	a.http.CloseClientConnections()
	a.http.Close()
	return errors.Join(err, a.fake.Close())
}

// serve attaches a vLLM that has to be found out.
func serve(t *testing.T, model string, a mock.Args, extra string, c attach.Config) *attached {
	t.Helper()
	server, err := vllm.New(vllm.Config{
		PromptTokensDetails: true,
		Mock:                mock.Config{Model: model, Args: a, Source: mock.SourceRandom, EOS: []uint32{2}, ContextLength: 8192},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	s := &attached{open(t, h.URL+",load.interval=10ms"+extra, c), server, h}
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t *testing.T, text string, c attach.Config) *attach.Engine {
	t.Helper()
	spec, err := attach.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	e, err := attach.New(spec, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// await returns the first status that an engine tells in a state.
func await(t *testing.T, e engine.Engine, state engine.State) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if st.State == state {
			return st
		}
	}
	t.Fatalf("the engine was not %s within 10 s", state)
	return engine.Status{}
}

// An engine that was found out keeps the whole contract.
func TestConformance(t *testing.T) {
	slow := args()
	slow.SpeedupRatio, slow.MaxNumSeqs, slow.TimingModel, slow.DecodeMS, slow.PrefillMS = 1, 1, "constant", 2, 1
	fresh := func(a mock.Args) func(*testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine { return serve(t, "m", a, "", attach.Config{}) }
	}
	enginetest.Run(t, enginetest.Subject{
		New: fresh(args()), Slow: fresh(slow),
		Restart: func(e engine.Engine) { e.(*attached).fake.Restart() },
		Drain:   func(e engine.Engine) { e.(*attached).fake.Sleep() },
		// How much is cached is known once an answer has told it; and the server has
		// no KV events.
		Skips: []string{"11-cached-tokens", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart"},
	})
}

// pages is a server of fixed answers; a path that is not there is 404.
type pages map[string]string

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := p[r.URL.Path]
	if !ok {
		http.Error(w, `{"detail":"Not Found"}`, http.StatusNotFound)
		return
	}
	fmt.Fprint(w, text)
}

func TestDetect(t *testing.T) {
	owned := func(by string) string { return `{"data":[{"id":"m","owned_by":"` + by + `"}]}` }
	for _, tt := range []struct {
		name  string
		pages pages
		want  string
	}{
		{"vLLM by its owner", pages{"/v1/models": owned("vllm")}, attach.VLLM},
		{"SGLang by its owner", pages{"/v1/models": owned("sglang"), "/version": `{"version":"1"}`}, attach.SGLang},
		{"TensorRT-LLM has a version too", pages{"/v1/models": owned("tensorrt_llm"), "/version": `{"version":"1"}`}, attach.TRTLLM},
		{"llama.cpp by its owner", pages{"/v1/models": owned("llamacpp"), "/api/tags": `{}`}, attach.LlamaCPP},
		{"Ollama by its owner", pages{"/v1/models": owned("library")}, attach.Ollama},
		{"a wrapper", pages{"/v1/models": owned("nvidia"), "/version": `{"version":"1"}`}, attach.OpenAI},
		{"vLLM by its version", pages{"/v1/models": owned("us"), "/version": `{"version":"1"}`}, attach.VLLM},
		{"SGLang by a route", pages{"/server_info": `{}`}, attach.SGLang},
		{"llama.cpp by a route", pages{"/props": `{}`, "/version": `{}`}, attach.LlamaCPP},
		{"Ollama by a route", pages{"/api/tags": `{"models":[]}`}, attach.Ollama},
		{"any other", pages{"/v1/models": owned("us"), "/props": `<html>`}, attach.OpenAI},
		{"no model yet", pages{"/v1/models": `{"data":[]}`, "/server_info": `{}`}, attach.SGLang},
		{"none", pages{"/": "<html>"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := httptest.NewServer(tt.pages)
			defer h.Close()
			client, err := httpapi.New(httpapi.Config{URL: h.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			got, err := attach.Detect(t.Context(), client)
			if err == nil && got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%q %v, want %q", got, err, tt.want)
			}
		})
	}
}

// A server that has no time for questions yet is not taken for another kind.
func TestDetectLoading(t *testing.T) {
	var up atomic.Bool
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			http.Error(w, `{"error":{"message":"Loading model"}}`, http.StatusServiceUnavailable)
			return
		}
		pages{"/v1/models": `{"data":[{"id":"m","owned_by":"nvidia"}]}`}.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e := open(t, h.URL+",load.interval=10ms", attach.Config{})
	st := await(t, e, engine.Loading)
	if st.Card != nil || st.Epoch == 0 || !strings.Contains(st.Reason, "Loading model") || e.Unwrap() != nil {
		t.Errorf("%+v", st)
	}
	for _, err := range e.Generate(t.Context(), &engine.Request{}) {
		if engine.KindOf(err) != engine.Unavailable {
			t.Errorf("a request: %v", err)
		}
	}
	up.Store(true)
	if st := await(t, e, engine.Ready); st.Card.Model != "m" || !st.Card.Accept(engine.InputChat) {
		t.Errorf("%+v", st.Card)
	}
	if _, ok := engine.As[engine.ChatEngine](e); !ok {
		t.Error("the adapter's own interfaces are hidden")
	}
}

// Keys that the server turns out not to have stand in the way, and are told.
func TestFoundKindLacksAKey(t *testing.T) {
	s := serve(t, "m", args(), ",extra_body={}", attach.Config{})
	if st := await(t, s, engine.Failed); st.Reason != "extra_body: is no key of vllm, but of sglang, trtllm, llamacpp, ollama, openai" {
		t.Errorf("%+v", st)
	}
}

// A worker is not ready before its card was found good.
func TestCheck(t *testing.T) {
	bad := atomic.Bool{}
	bad.Store(true)
	s := serve(t, "m", args(), ",model_path=/models/m", attach.Config{ModelPath: "/models/other", Check: func(c *engine.Card) error {
		if len(c.Files) == 0 || c.Files[0].URI != "/models/m" {
			t.Errorf("files %+v", c.Files)
		}
		if bad.Load() {
			return errors.New("no such file")
		}
		return nil
	}})
	if st := await(t, s, engine.Failed); st.Reason != "no such file" || st.Card == nil {
		t.Errorf("%+v", st)
	}
	bad.Store(false)
	if st := await(t, s, engine.Ready); st.Reason != "" {
		t.Errorf("%+v", st)
	}
}

// Time may mend what is wrong with a card that stays as it is: whoever listens hears
// of it.
func TestFaultyCardIsJudgedAnew(t *testing.T) {
	for _, kind := range []string{"", "vllm="} {
		server := serve(t, "m", args(), "", attach.Config{}).http
		bad := atomic.Bool{}
		bad.Store(true)
		e := open(t, kind+server.URL+",load.interval=10ms", attach.Config{Check: func(*engine.Card) error {
			if bad.Load() {
				return errors.New("no such file")
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		last := engine.Status{}
		for last = range e.Card(ctx) {
			if last.State == engine.Failed {
				bad.Store(false)
			}
			if last.State == engine.Ready {
				break
			}
		}
		if last.State != engine.Ready || bad.Load() {
			t.Errorf("%s%s is %v: %s", kind, server.URL, last.State, last.Reason)
		}
	}
}

// Where the model's files are is taken from the server, if they are here.
func TestFiles(t *testing.T) {
	here := t.TempDir()
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	cached := filepath.Join(hub, "models--org--m")
	if err := os.Mkdir(cached, 0o700); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		here: here, "org/m": cached, "org/other": "", "m/known": "builtin:m", here + "/none": "", "m": "", "../m": "", "org/a/b": "",
	} {
		known := map[string]string{"m/known": "builtin:m", "org/m": "builtin:other"}
		card := await(t, serve(t, model, args(), "", attach.Config{Known: known}), engine.Ready).Card
		got := ""
		if len(card.Files) > 0 {
			got = card.Files[0].URI
		}
		if got != want {
			t.Errorf("%s: files at %q, want %q", model, got, want)
		}
	}
	card := await(t, serve(t, here, args(), "", attach.Config{ModelPath: "/elsewhere"}), engine.Ready).Card
	if card.Files[0].URI != "/elsewhere" {
		t.Errorf("files at %+v, but the operator has said where", card.Files)
	}
}

// SGLang tells the path under another name than the model's.
func TestFilesOfSGLang(t *testing.T) {
	server, err := sglang.New(sglang.Config{Mock: mock.Config{Model: "m", Args: args()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	here := t.TempDir()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/server_info" {
			w = &renamed{w, "/models/m", here}
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e := open(t, "sglang="+h.URL+",load.interval=10ms,context_length=4096", attach.Config{})
	if c := await(t, e, engine.Ready).Card; c.Model != "m" || len(c.Files) == 0 || c.Files[0].URI != here {
		t.Errorf("%+v, want files at %s", c, here)
	}
}

// renamed replaces a text in what is written.
type renamed struct {
	http.ResponseWriter
	old, new string
}

func (r *renamed) Write(p []byte) (int, error) {
	_, err := r.ResponseWriter.Write([]byte(strings.ReplaceAll(string(p), r.old, r.new)))
	return len(p), err
}

// An engine may be closed before its server was ever seen.
func TestCloseUnknown(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(h.Close)
	e := open(t, h.URL+",load.interval=10ms", attach.Config{})
	n := 0
	for st := range e.Card(t.Context()) {
		if n++; st.State != engine.Loading || !strings.Contains(st.Reason, "none of the routes of an engine") {
			t.Errorf("%+v", st)
		}
		if err := errors.Join(e.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d statuses", n)
	}
}

package ollama_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/ollama"
	fake "github.com/dynago/dynago/internal/fake/ollama"
)

func TestCard(t *testing.T) {
	got := ready(t, attach(t, serve(t, nil), func(c *ollama.Config) { c.Aliases, c.MaxSeqs = []string{"a"}, 3 }))
	want := &engine.Card{
		Model: "tiny", Aliases: []string{"a"}, Engine: "ollama " + fake.Version, Accepts: []engine.Input{engine.InputChat},
		ContextLength: 2048, DPSize: 1, MaxSeqs: 3,
		Features: engine.Features{
			engine.FeatureWantsChat, engine.FeatureSeed, engine.FeatureStopStrings, engine.FeatureGuidedJSON, engine.FeatureGuidedObject,
		},
		Controls: []string{engine.ControlSleep, engine.ControlWake}, ToolParser: "none", ReasoningParser: "none",
	}
	if !reflect.DeepEqual(got.Card, want) || got.Epoch == 0 || got.Revision != 1 {
		t.Errorf("%+v\nwant %+v", got.Card, want)
	}
}

// The context is what the operator says, else the model's own parameters, else
// what it is loaded with, else what it was made for, which is the most in any case.
func TestContexts(t *testing.T) {
	for _, c := range []struct {
		config uint32
		preset string
		loaded bool
		want   uint32
	}{
		{700, "num_ctx 600", true, 700},
		{0, "num_ctx                        600", true, 600},
		{0, "temperature 1", true, 256},
		{0, "", false, 2048},
		{9999, "", false, 2048},
		{0, "num_ctx 9999", false, 2048},
		{0, "num_ctx x", false, 2048},
	} {
		f := serve(t, func(f *fake.Config) { f.Parameters = c.preset })
		if c.loaded {
			s := httptest.NewServer(f)
			defer s.Close()
			resp, err := http.Post(s.URL+"/api/generate", "application/json", strings.NewReader(`{"model":"tiny","prompt":""}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		e := attach(t, f, func(o *ollama.Config) { o.ContextLength = c.config })
		if got := ready(t, e).Card.ContextLength; got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// One model of several is served, and which one is never guessed.
func TestModels(t *testing.T) {
	several := func(c *fake.Config) { c.Others = []string{"big:8b"} }
	for _, c := range []struct {
		model  string
		serve  func(*fake.Config)
		loaded bool
		want   string // the model, or what the reason has in it
		ready  bool
	}{
		{"", nil, false, "tiny", true},
		{"tiny", several, false, "tiny", true},
		{"tiny:latest", several, false, "tiny:latest", true},
		{"big:8b", several, false, "big:8b", true},
		{"big", several, false, "no model big, but tiny, big:8b", false},
		{"", several, false, "several models (tiny, big:8b): name one of them by the key model", false},
		{"", several, true, "tiny", true},
		{"", func(c *fake.Config) { c.Capabilities = []string{"embedding"} }, false, "makes no texts: it is for embedding", false},
	} {
		f := serve(t, c.serve)
		if c.loaded {
			s := httptest.NewServer(f)
			defer s.Close()
			resp, err := http.Post(s.URL+"/api/generate", "application/json", strings.NewReader(`{"model":"tiny"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		e := attach(t, f, func(o *ollama.Config) { o.Model = c.model })
		st := await(t, e, func(st engine.Status) bool { return st.State == engine.Ready || st.Reason != "" })
		if c.ready && (st.Card == nil || st.Card.Model != c.want) || !c.ready && !strings.Contains(st.Reason, c.want) {
			t.Errorf("%+v: %+v", c, st)
		}
	}
	empty := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"models":[]}`) })
	if st := await(t, attach(t, empty, nil), func(engine.Status) bool { return true }); !strings.Contains(st.Reason, "ollama pull") {
		t.Errorf("nothing installed: %+v", st)
	}
	mux := http.NewServeMux()
	mux.Handle("/", serve(t, nil))
	mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"model_info":{}}`) })
	if st := await(t, attach(t, mux, nil), func(engine.Status) bool { return true }); !strings.Contains(st.Reason, "by the key context_length") {
		t.Errorf("no context: %+v", st)
	}
}

// A life ends with the model's digest, with the server, and when the model leaves
// the memory; that it is loaded is the same life.
func TestLives(t *testing.T) {
	f := serve(t, nil)
	var down atomic.Bool
	e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		f.ServeHTTP(w, r)
	}), nil)
	first := ready(t, e)
	r := ask(hello("Hi"))
	r.Epoch = first.Epoch
	answer(t, e, r)
	if st := ready(t, e); st.Epoch != first.Epoch {
		t.Errorf("loading made another life")
	}
	another := func(what string, from uint64) uint64 {
		return await(t, e, func(st engine.Status) bool { return st.State == engine.Ready && st.Epoch != from }).Epoch
	}
	// It was seen in memory before it leaves.
	f.Unload()
	second := another("unloaded", first.Epoch)
	f.Pull("sha256:2")
	third := another("pulled", second)
	down.Store(true)
	if st := await(t, e, func(st engine.Status) bool { return st.State == engine.Dead }); st.Epoch != third || !strings.Contains(st.Reason, "does not answer") {
		t.Errorf("away: %+v", st)
	}
	down.Store(false)
	another("back", third)
}

// The model can be taken out of memory, and put back with the context that
// requests have.
func TestControls(t *testing.T) {
	f := serve(t, nil)
	e := attach(t, f, func(c *ollama.Config) { c.ContextLength, c.KeepAlive = 1000, new(time.Hour) })
	ready(t, e)
	for _, c := range []struct {
		name    string
		context int
	}{{engine.ControlWake, 1000}, {engine.ControlSleep, 0}, {engine.ControlSleep, 0}, {engine.ControlWake, 1000}} {
		if _, err := e.Control(t.Context(), c.name, nil); err != nil || f.Context() != c.context {
			t.Errorf("%s: %v, a context of %d", c.name, err, f.Context())
		}
	}
	if _, err := e.Control(t.Context(), "dance", nil); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("%v", err)
	}
}

// What is behind the first requests waits, where it is known how many run.
func TestLoad(t *testing.T) {
	gate := make(chan struct{})
	e := scripted(t, serve(t, nil), func(c *ollama.Config) { c.MaxSeqs = 2 }, func(w http.ResponseWriter, r *http.Request) {
		<-gate
		says(last)(w, r)
	})
	done := make(chan error, 3)
	for range 3 {
		go func() {
			for _, err := range e.Chat(t.Context(), ask(hello("Hi"))) {
				if err != nil {
					done <- err
				}
			}
			done <- nil
		}()
	}
	for l, err := range e.Load(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r := l.Ranks[0]; r.Running == 2 && r.Waiting == 1 {
			break
		}
	}
	close(gate)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func ExampleNew() {
	_, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: "http://localhost:11434"}, Model: "qwen3:8b", ContextLength: 32768})
	if err != nil {
		panic(err)
	}
}

package llamacpp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/llamacpp"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/llama"
)

const eos = 2

// attached is an adapter with the server behind it.
type attached struct {
	*llamacpp.Engine
	fake *llama.Server
	http *httptest.Server
}

func (a *attached) Close() error {
	err := errors.Join(a.Engine.Close(), a.fake.Close())
	a.http.Close()
	return err
}

// serve starts a server with slots, which does no work in no time.
func serve(t *testing.T, slots int, change func(*llama.Config)) *llama.Server {
	t.Helper()
	args := mock.DefaultArgs()
	args.MaxNumSeqs, args.SpeedupRatio, args.NumGPUBlocks = slots, 0, 64*slots
	cfg := llama.Config{Mock: mock.Config{Model: "tiny", Args: args, Seed: 1, EOS: []uint32{eos}}, ContextLength: 2048}
	if change != nil {
		change(&cfg)
	}
	s, err := llama.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// attach makes an adapter of a server that is looked at every few milliseconds.
func attach(t *testing.T, fake *llama.Server, change func(*llamacpp.Config)) *attached {
	t.Helper()
	s := httptest.NewServer(fake)
	cfg := llamacpp.Config{Config: httpapi.Config{URL: s.URL}, Interval: 2 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	e, err := llamacpp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &attached{e, fake, s}
	t.Cleanup(func() { a.Close() })
	return a
}

// scripted is an adapter of a server that answers every completion in one way.
func scripted(t *testing.T, fake *llama.Server, change func(*llamacpp.Config), completion http.HandlerFunc) *llamacpp.Engine {
	t.Helper()
	t.Cleanup(func() { fake.Close() })
	mux := http.NewServeMux()
	mux.Handle("/", fake)
	mux.HandleFunc("POST /completion", completion)
	return plain(t, mux, change)
}

// plain is an adapter of any server.
func plain(t *testing.T, h http.Handler, change func(*llamacpp.Config)) *llamacpp.Engine {
	t.Helper()
	s := httptest.NewServer(h)
	cfg := llamacpp.Config{Config: httpapi.Config{URL: s.URL}, Interval: 2 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	e, err := llamacpp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		s.Close()
	})
	return e
}

func ready(t *testing.T, e engine.Engine) engine.Status {
	t.Helper()
	return await(t, e, func(st engine.Status) bool { return st.State == engine.Ready })
}

// await returns the first status that is as wanted.
func await(t *testing.T, e engine.Engine, is func(engine.Status) bool) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var st engine.Status
	for s, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if st = s; is(st) {
			return st
		}
	}
	t.Fatalf("still %+v", st)
	return st
}

// run reads a stream to its end.
func run(t *testing.T, e engine.Engine, r *engine.Request) (ids []uint32, last engine.Delta, err error) {
	t.Helper()
	for d, e := range e.Generate(t.Context(), r) {
		ids, last, err = append(ids, d.TokenIDs...), d, e
	}
	if err == nil && last.Finish == engine.Running {
		t.Error("the stream ended without a terminal delta")
	}
	return ids, last, err
}

func ask(n int, prompt ...uint32) *engine.Request {
	return &engine.Request{ID: "r-1", TokenIDs: prompt, Stop: engine.Stop{MaxTokens: n}}
}

func TestContract(t *testing.T) {
	for name, change := range map[string]func(*llama.Config){
		"plain": nil,
		"pings": func(c *llama.Config) { c.Pings = true },
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, enginetest.Subject{
				New: func(t *testing.T) engine.Engine { return attach(t, serve(t, 64, change), nil) },
				Slow: func(t *testing.T) engine.Engine {
					return attach(t, serve(t, 1, func(c *llama.Config) {
						if change != nil {
							change(c)
						}
						a := &c.Mock.Args
						a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS = 1, "constant", 1, 5
					}), nil)
				},
				Restart: func(e engine.Engine) { e.(*attached).fake.Restart() },
				Skips: []string{
					"04-drain", "07-prompt-logprobs", "11-cached-tokens", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart",
				},
			})
		})
	}
}

// The ids of an unfinished character do not come over the wire, and are there
// all the same.
func TestUnfinishedCharacters(t *testing.T) {
	e := attach(t, serve(t, 2, func(c *llama.Config) { c.Mock.Source = mock.SourceEcho }), nil)
	ready(t, e)
	for _, text := range []string{"plain", "é", "naïve 😀 and 漢字", "😀😀", "end 😀"} {
		prompt := llama.Bytes{}.Encode(text)
		r := ask(100, prompt...)
		r.Stop.Hidden = []uint32{eos}
		k := 1
		r.Logprobs = &k
		ids, last, err := run(t, e, r)
		if err != nil || !slices.Equal(ids, prompt) || last.Finish != engine.FinishEOS || last.Usage.Output != len(prompt)+1 {
			t.Errorf("%q: %v, %s, %+v, %v; want %v", text, ids, last.Finish, last.Usage, err, prompt)
		}
	}
	// What is cut within a character never gets an end of it.
	prompt := llama.Bytes{}.Encode("ab😀")
	if ids, last, err := run(t, e, ask(4, prompt...)); err != nil || !slices.Equal(ids, prompt[:2]) || last.Finish != engine.FinishLength || last.Usage.Output != 4 {
		t.Errorf("cut: %v, %+v, %v", ids, last, err)
	}
}

// A slot remembers its prompt, and the server says how much of it was of use.
func TestCachedTokens(t *testing.T) {
	e := attach(t, serve(t, 1, func(c *llama.Config) { c.SlotActions = true }), nil)
	st := ready(t, e)
	r := ask(3, 100, 101, 102, 103)
	for i, want := range []int{0, 3} {
		_, last, err := run(t, e, r)
		if err != nil || last.Usage.Cached == nil || *last.Usage.Cached != want {
			t.Errorf("run %d: %+v, %v, want %d cached", i, last.Usage, err, want)
		}
	}
	// A stop id of ours ends the stream before the server tells of it again.
	ids, _, _ := run(t, e, r)
	r.Stop.IDs = ids[:1]
	if _, last, err := run(t, e, r); err != nil || last.Finish != engine.FinishStop || last.Usage.Cached == nil || *last.Usage.Cached != 3 {
		t.Errorf("stopped: %+v, %v", last, err)
	}
	if !slices.Equal(st.Card.Controls, []string{engine.ControlReset}) {
		t.Errorf("controls %v", st.Card.Controls)
	}
	if _, err := e.Control(t.Context(), engine.ControlReset, nil); err != nil {
		t.Fatal(err)
	}
	if _, last, err := run(t, e, r); err != nil || *last.Usage.Cached != 0 {
		t.Errorf("after the reset: %+v, %v", last.Usage, err)
	}
	if _, err := e.Control(t.Context(), engine.ControlSleep, nil); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("sleep: %v", err)
	}
}

func Example() {
	fake, err := llama.New(llama.Config{Mock: mock.Config{Model: "tiny", Source: mock.SourceEcho, EOS: []uint32{eos}}})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(fake)
	defer server.Close()
	e, err := llamacpp.New(llamacpp.Config{Config: httpapi.Config{URL: server.URL}})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	r := &engine.Request{TokenIDs: []uint32{300, 301, 302}, Stop: engine.Stop{MaxTokens: 8, Hidden: []uint32{eos}}}
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			panic(err)
		}
		if d.Finish != engine.Running {
			fmt.Println(d.Finish, d.Usage.Prompt, d.Usage.Output)
		} else {
			fmt.Println(d.TokenIDs)
		}
	}
	// Output:
	// [300]
	// [301]
	// [302]
	// eos 3 4
}

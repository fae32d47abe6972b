package ollama_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/fake/hostile"
	fake "github.com/dynago/dynago/internal/fake/ollama"
)

// says is a server that answers with lines.
func says(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, l := range lines {
			io.WriteString(w, l+"\n")
		}
	}
}

func said(message string) string { return `{"model":"m","message":` + message + `,"done":false}` }

const last = `{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":5}`

func TestStreams(t *testing.T) {
	use := func(id, args string) chat.Block {
		return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: "f", Kind: chat.ToolFunction, Args: args}}
	}
	counted := chat.Usage{Prompt: 9, Output: 5}
	stop := chat.Finish{Reason: chat.FinishStop}
	for name, c := range map[string]struct {
		lines  []string
		blocks []chat.Block
		finish chat.Finish
		usage  chat.Usage
		kind   engine.ErrorKind
	}{
		"text":            {lines: []string{said(`{"content":"Hel"}`), "", said(`{"content":"lo"}`), last}, blocks: []chat.Block{text("Hello")}, finish: stop, usage: counted},
		"a bare prompt":   {lines: []string{`{"response":"Hel"}`, `{"response":"lo","done":true,"done_reason":"length","prompt_eval_count":2,"eval_count":2}`}, blocks: []chat.Block{text("Hello")}, finish: chat.Finish{Reason: chat.FinishLength}, usage: chat.Usage{Prompt: 2, Output: 2}},
		"no counts":       {lines: []string{said(`{"content":"Hel"}`), said(`{"content":"lo"}`), `{"done":true}`}, blocks: []chat.Block{text("Hello")}, finish: stop, usage: chat.Usage{Output: 2}},
		"all was cached":  {lines: []string{said(`{"content":"A"}`), `{"done":true,"eval_count":3}`}, blocks: []chat.Block{text("A")}, finish: stop, usage: chat.Usage{Output: 3}},
		"an unknown word": {lines: []string{said(`{"content":"A"}`), `{"done":true,"done_reason":"tired","eval_count":3}`}, blocks: []chat.Block{text("A")}, finish: stop, usage: chat.Usage{Output: 3}},
		"thoughts":        {lines: []string{said(`{"content":"","thinking":"hm"}`), said(`{"thinking":"m","content":"A"}`), last}, blocks: []chat.Block{{Kind: chat.Thought, Text: "hmm"}, text("A")}, finish: stop, usage: counted},
		"calls": {
			lines:  []string{said(`{"content":"A","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"b":1,"a": 2}}}]}`), said(`{"tool_calls":[{"function":{"name":"f"}},{"function":{"name":"f","arguments":null}}]}`), last},
			blocks: []chat.Block{text("A"), use("c1", `{"b":1,"a": 2}`), use("call_r-1_1", "{}"), use("call_r-1_2", "{}")}, finish: chat.Finish{Reason: chat.FinishToolUse}, usage: counted,
		},
		"more behind the end":  {lines: []string{last, said(`{"content":"A"}`)}, finish: stop, usage: counted},
		"no end":               {lines: []string{said(`{"content":"A"}`)}, kind: engine.StreamIncomplete},
		"nothing":              {kind: engine.StreamIncomplete},
		"only loaded":          {lines: []string{`{"done":true,"done_reason":"load"}`}, kind: engine.StreamIncomplete},
		"only unloaded":        {lines: []string{`{"done":true,"done_reason":"unload"}`}, kind: engine.StreamIncomplete},
		"an error":             {lines: []string{said(`{"content":"A"}`), `{"error":"out of memory"}`}, kind: engine.Internal},
		"no JSON":              {lines: []string{`x`}, kind: engine.Internal},
		"half of it":           {lines: []string{said(`{"content":"A"}`), `{"message":{"con`}, kind: engine.Internal},
		"a list":               {lines: []string{`[1]`}, kind: engine.Internal},
		"a call without name":  {lines: []string{said(`{"tool_calls":[{"function":{"arguments":{}}}]}`)}, kind: engine.Internal},
		"another kind of call": {lines: []string{said(`{"tool_calls":"f"}`)}, kind: engine.Internal},
	} {
		answers, err := chat.Fold(scripted(t, serve(t, nil), nil, says(c.lines...)).Chat(t.Context(), ask(hello("Hi"))))
		if c.kind != "" {
			if err == nil || engine.KindOf(err) != c.kind {
				t.Errorf("%s: %v, want %s", name, err, c.kind)
			}
			continue
		}
		if err != nil || len(answers) != 1 {
			t.Errorf("%s: %v, %v", name, answers, err)
			continue
		}
		if a := answers[0]; !reflect.DeepEqual(a.Blocks, c.blocks) || !reflect.DeepEqual(a.Finish, c.finish) || !reflect.DeepEqual(a.Usage, c.usage) {
			t.Errorf("%s: %+v\nwant %+v, %+v, %+v", name, a, c.blocks, c.finish, c.usage)
		}
	}
}

// What the server says by a status.
func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status int
		text   string
		kind   engine.ErrorKind
		code   string
	}{
		{400, `"tiny" does not support thinking`, engine.InvalidArgument, ""},
		{400, "the input length exceeds the context length", engine.InvalidArgument, "context_length_exceeded"},
		{404, "model 'tiny' not found", engine.NotFound, ""},
		{500, "model requires more system memory", engine.Internal, ""},
		{503, "server busy, please try again.  maximum pending requests exceeded", engine.WorkerOverloaded, ""},
		{503, "going away", engine.Unavailable, ""},
	} {
		e := scripted(t, serve(t, nil), nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			fmt.Fprintf(w, `{"error":%q}`, c.text)
		})
		_, err := chat.Fold(e.Chat(t.Context(), ask(hello("Hi"))))
		told, ok := err.(*engine.Error)
		if !ok || told.Kind != c.kind || told.Code != c.code || told.Message != c.text {
			t.Errorf("%d %s: %+v", c.status, c.text, told)
		}
	}
}

// The queue of the server is bounded, and who is too much is told.
func TestFullQueue(t *testing.T) {
	f := serve(t, func(c *fake.Config) {
		a := &c.Mock.Args
		a.MaxNumSeqs, a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS = 1, 1, "constant", 1, 20
		c.Queue = 1
	})
	e := attach(t, f, nil)
	ready(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan struct{})
	ends := make(chan error, 8)
	go func() {
		once := false
		for ev, err := range e.Chat(ctx, ask(hello("first"))) {
			if !once && ev.Kind == chat.Start {
				once = true
				close(begun)
			}
			if err != nil {
				ends <- err
			}
		}
	}()
	<-begun
	for range 3 {
		go func() {
			_, err := chat.Fold(e.Chat(ctx, ask(hello("more"))))
			ends <- err
		}()
	}
	for range 2 { // one waits, the others are too many
		if err := <-ends; engine.KindOf(err) != engine.WorkerOverloaded {
			t.Errorf("%v", err)
		}
	}
	cancel()
	for range 2 {
		if err := <-ends; engine.KindOf(err) != engine.Cancelled {
			t.Errorf("%v", err)
		}
	}
}

func TestEnds(t *testing.T) {
	gone := make(chan struct{}, 2)
	e := scripted(t, serve(t, nil), nil, func(w http.ResponseWriter, r *http.Request) {
		says(said(`{"content":"A"}`))(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	running := func() int64 {
		for l := range e.Load(t.Context()) {
			return l.Ranks[0].Running
		}
		return engine.Unknown
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var end error
	seq := e.Chat(ctx, ask(hello("Hi")))
	for _, err := range seq {
		if err == nil && running() != 1 {
			t.Errorf("%d run", running())
		}
		cancel(engine.ErrInactive)
		end = err
	}
	<-gone
	if engine.KindOf(end) != engine.ResponseTimeout {
		t.Errorf("cancelled: %v", end)
	}
	for _, err := range seq {
		if engine.KindOf(err) != engine.Internal {
			t.Errorf("a second loop: %v", err)
		}
	}
	for range e.Chat(t.Context(), ask(hello("Hi"))) {
		break
	}
	<-gone
	if running() != 0 {
		t.Errorf("%d run", running())
	}
	e.Close()
	e.Close()
	if _, err := chat.Fold(e.Chat(t.Context(), ask(hello("Hi")))); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("closed: %v", err)
	}
	await(t, e, func(st engine.Status) bool { return st.State == engine.Failed })
	for _, err := range e.Generate(t.Context(), ask(hello("Hi"))) {
		if engine.KindOf(err) != engine.Unsupported {
			t.Errorf("ids: %v", err)
		}
	}
	for _, err := range e.Events(t.Context(), nil) {
		if engine.KindOf(err) != engine.Unsupported {
			t.Errorf("events: %v", err)
		}
	}
}

// However the lines are cut into packets, the answer is the same; wherever they
// end, none is made up.
func TestSpoiltStreams(t *testing.T) {
	f := serve(t, nil)
	r := ask(hello("Hi"))
	e := attach(t, f, nil)
	ready(t, e)
	want := answer(t, e, r)
	for name, spoil := range hostile.HarmlessLines() {
		e := attach(t, spoil.Handler(f), nil)
		ready(t, e)
		if got := answer(t, e, r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for cut := 1; ; cut += 97 {
		e := attach(t, hostile.Spoil{Cut: cut}.Handler(f), nil)
		ready(t, e)
		answers, err := chat.Fold(e.Chat(t.Context(), r))
		if err == nil {
			if cut < 400 || !reflect.DeepEqual(answers[0], want) {
				t.Errorf("cut after %d bytes: %+v", cut, answers)
			}
			break
		}
		if k := engine.KindOf(err); k != engine.Disconnected && k != engine.Internal {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
	}
	for _, spoil := range []hostile.Spoil{{Page: true}, {Type: "text/plain"}} {
		e := attach(t, spoil.Handler(f), nil)
		ready(t, e)
		if _, err := chat.Fold(e.Chat(t.Context(), r)); err == nil || !strings.Contains(err.Error(), "no stream") {
			t.Errorf("%+v: %v", spoil, err)
		}
	}
}

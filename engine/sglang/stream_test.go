package sglang_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

// streams answers /generate with these events.
func streams(t *testing.T, events ...string) *sglang.Engine {
	t.Helper()
	return scripted{"/generate": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}}.serve(t, sglang.Config{})
}

// chunk writes one event of ids, of which the server counts total.
func chunk(ids []uint32, total int, more string) string {
	text := strings.ReplaceAll(fmt.Sprint(append([]uint32{}, ids...)), " ", ",")
	return fmt.Sprintf(`{"text":"","output_ids":%s,"meta_info":{"id":"r","completion_tokens":%d,"prompt_tokens":3%s}}`, text, total, more)
}

const (
	length = `,"finish_reason":{"type":"length","length":3}`
	done   = "[DONE]"
)

func ask() *engine.Request {
	return &engine.Request{
		ID: "r-1", TokenIDs: []uint32{1, 2, 3},
		Stop: engine.Stop{MaxTokens: 9, IDs: []uint32{50}, Hidden: []uint32{2}},
	}
}

func TestStreams(t *testing.T) {
	type ids = []uint32
	stop := func(matched string) string { return `,"finish_reason":{"type":"stop","matched":` + matched + `}` }
	for name, tc := range map[string]struct {
		events  []string
		ids     ids
		finish  engine.Finish
		matched ids
		output  int
		err     engine.ErrorKind
	}{
		"cumulative":        {[]string{chunk(ids{7}, 1, ""), chunk(ids{7, 8}, 2, ""), chunk(ids{7, 8, 9}, 3, length), done}, ids{7, 8, 9}, engine.FinishLength, nil, 3, ""},
		"pieces":            {[]string{chunk(ids{7}, 1, ""), chunk(ids{8}, 2, ""), chunk(ids{9}, 3, length), done}, ids{7, 8, 9}, engine.FinishLength, nil, 3, ""},
		"pieces of equal":   {[]string{chunk(ids{7, 7}, 2, ""), chunk(ids{7, 7}, 4, length), done}, ids{7, 7, 7, 7}, engine.FinishLength, nil, 4, ""},
		"one chunk":         {[]string{chunk(ids{7, 8}, 2, length), done}, ids{7, 8}, engine.FinishLength, nil, 2, ""},
		"no done":           {[]string{chunk(ids{7}, 1, length)}, ids{7}, engine.FinishLength, nil, 1, ""},
		"taken back":        {[]string{chunk(ids{7, 8}, 2, ""), chunk(ids{7}, 1, ""), chunk(ids{7, 8, 9}, 3, length)}, ids{7, 8, 9}, engine.FinishLength, nil, 3, ""},
		"empty end":         {[]string{chunk(ids{7}, 1, ""), chunk(ids{8}, 2, ""), chunk(nil, 2, length)}, ids{7, 8}, engine.FinishLength, nil, 2, ""},
		"end of sequence":   {[]string{chunk(ids{7, 2}, 2, stop("2"))}, ids{7}, engine.FinishEOS, nil, 2, ""},
		"its own end":       {[]string{chunk(ids{7, 77}, 2, stop("77"))}, ids{7}, engine.FinishEOS, nil, 2, ""},
		"end, trimmed":      {[]string{chunk(ids{7}, 2, stop("2"))}, ids{7}, engine.FinishEOS, nil, 2, ""},
		"end, untold":       {[]string{chunk(ids{7, 2}, 2, stop("null"))}, ids{7}, engine.FinishEOS, nil, 2, ""},
		"listed":            {[]string{chunk(ids{7, 50}, 2, stop("50"))}, ids{7, 50}, engine.FinishStop, ids{50}, 2, ""},
		"listed, trimmed":   {[]string{chunk(ids{7}, 1, ""), chunk(ids{7}, 2, stop("50"))}, ids{7, 50}, engine.FinishStop, ids{50}, 2, ""},
		"listed, a list":    {[]string{chunk(ids{7, 50}, 2, stop("[50]"))}, ids{7, 50}, engine.FinishStop, ids{50}, 2, ""},
		"listed, gone past": {[]string{chunk(ids{7, 50, 8}, 3, "")}, ids{7, 50}, engine.FinishStop, ids{50}, 2, ""},
		"new reason":        {[]string{chunk(ids{7}, 1, `,"finish_reason":{"type":"bored"}`)}, ids{7}, engine.FinishStop, nil, 1, ""},
		"odd text":          {[]string{strings.Replace(chunk(ids{7}, 1, length), `"text":""`, `"text":"\ud83d","text":"x"`, 1)}, ids{7}, engine.FinishLength, nil, 1, ""},
		"no end":            {[]string{chunk(ids{7}, 1, ""), done}, ids{7}, "", nil, 0, engine.StreamIncomplete},
		"nothing":           {nil, nil, "", nil, 0, engine.StreamIncomplete},
		"aborted":           {[]string{chunk(ids{7}, 1, ""), chunk(ids{7}, 1, `,"finish_reason":{"type":"abort","message":"x"}`)}, ids{7}, "", nil, 0, engine.EngineShutdown},
		"aborted, invalid":  {[]string{chunk(nil, 0, `,"finish_reason":{"type":"abort","message":"x","status_code":400}`)}, nil, "", nil, 0, engine.InvalidArgument},
		"aborted, failed":   {[]string{chunk(nil, 0, `,"finish_reason":{"type":"abort","message":"x","status_code":500}`)}, nil, "", nil, 0, engine.Internal},
		"aborted, queue":    {[]string{chunk(nil, 0, `,"finish_reason":{"type":"abort","message":"The request queue is full.","status_code":503}`)}, nil, "", nil, 0, engine.WorkerOverloaded},
		"error":             {[]string{`{"error":{"message":"x","code":503}}`}, nil, "", nil, 0, engine.Unavailable},
		"refused":           {[]string{`{"error":{"message":"x"}}`, done}, nil, "", nil, 0, engine.InvalidArgument},
		"queue, no count":   {[]string{`{"meta_info":{"id":"r","finish_reason":{"type":"abort","message":"The request queue is full.","status_code":503}}}`, done}, nil, "", nil, 0, engine.WorkerOverloaded},
		"aborted, no count": {[]string{`{"text":"","meta_info":{"id":"r","finish_reason":{"type":"abort","message":"Abort before prefill"}}}`, done}, nil, "", nil, 0, engine.EngineShutdown},
		"too few":           {[]string{chunk(ids{7}, 1, ""), chunk(ids{8, 9}, 9, "")}, ids{7}, "", nil, 0, engine.StreamIncomplete},
		"changed its mind":  {[]string{chunk(ids{7}, 1, ""), chunk(ids{8}, 2, ""), chunk(ids{7, 8, 9}, 3, "")}, ids{7, 8}, "", nil, 0, engine.Internal},
		"no count":          {[]string{`{"output_ids":[7],"meta_info":{}}`}, nil, "", nil, 0, engine.Internal},
		"no JSON":           {[]string{`{"output_ids":oops}`}, nil, "", nil, 0, engine.Internal},
		"half of JSON":      {[]string{chunk(ids{7}, 1, ""), `{"output_ids":[7`}, ids{7}, "", nil, 0, engine.StreamIncomplete},
		"negative id":       {[]string{`{"output_ids":[-1],"meta_info":{"completion_tokens":1}}`}, nil, "", nil, 0, engine.Internal},
	} {
		got, last, err := collect(t.Context(), streams(t, tc.events...), ask())
		kind := engine.ErrorKind("")
		if err != nil {
			kind = engine.KindOf(err)
		}
		if !slices.Equal(got, tc.ids) || kind != tc.err {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, tc.ids, tc.err)
		}
		if tc.err == "" && (last.Finish != tc.finish || !slices.Equal(last.MatchedIDs, tc.matched) || last.Usage.Output != tc.output || last.Usage.Prompt != 3) {
			t.Errorf("%s: at last %+v %+v", name, last, last.Usage)
		}
	}
}

// A stream is read to its end, so that the next one can go over the same connection.
func TestConnectionIsKept(t *testing.T) {
	const requests = 5
	var from []string
	ended := make(chan struct{})
	e := scripted{"/generate": func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		from = append(from, r.RemoteAddr)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", chunk([]uint32{7}, 1, length))
		w.(http.Flusher).Flush()
		<-ended
		fmt.Fprintf(w, "data: %s\n\n", done)
	}}.serve(t, sglang.Config{})
	for range requests {
		for d, err := range e.Generate(t.Context(), ask()) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Finish != engine.Running {
				ended <- struct{}{}
			}
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(from)))); len(from) != requests || n == requests {
		t.Errorf("requests came from %q, want fewer addresses", from)
	}
}

// Before the least number of tokens a listed id is one like any other.
func TestListedTooEarly(t *testing.T) {
	r := ask()
	r.Stop.MinTokens = 1
	got, last, err := collect(t.Context(), streams(t, chunk([]uint32{50, 50, 7}, 3, "")), r)
	if err != nil || !slices.Equal(got, []uint32{50, 50}) || last.Usage.Output != 2 {
		t.Errorf("%v, %+v, %v", got, last, err)
	}
}

// However a server cuts an answer, and whichever form it sends, the ids are the
// same.
func TestQuirk16FormsOfStreams(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(rapid.Uint32Range(60, 63), 1, 20).Draw(rt, "ids")
		pieces := rapid.Bool().Draw(rt, "pieces")
		var events []string
		for from := 0; from < len(want); {
			to := rapid.IntRange(from+1, len(want)).Draw(rt, "to")
			ids, more := want[:to], ""
			if pieces {
				ids = want[from:to]
			}
			if to == len(want) {
				more = length
			}
			events = append(events, chunk(ids, to, more))
			from = to
		}
		got, _, err := collect(context.Background(), streams(t, events...), ask())
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%v, %v; want %v", got, err, want)
		}
	})
}

func TestUsageAndLogprobs(t *testing.T) {
	r := ask()
	r.Logprobs, r.PromptLogprobs = ptr(1), ptr(0)
	e := streams(
		t,
		chunk([]uint32{7}, 1, `,"cached_tokens":2,"input_token_logprobs":[[null,1,null],[-1.5,2,null],[-2,3,"x"]],"output_token_logprobs":[[-0.5,7,null]],"output_top_logprobs":[[[-0.7,8,null],[-0.5,7,null]]]`),
		// Log probabilities may be all so far where the ids are pieces.
		chunk([]uint32{8}, 2, `,"cached_tokens":9,"reasoning_tokens":1,"output_token_logprobs":[[-0.5,7,null],[null,8,null]],"output_top_logprobs":[null,null]`+length),
	)
	var got []engine.Delta
	for d, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	if len(got) != 2 {
		t.Fatalf("%d deltas", len(got))
	}
	if p := got[0].PromptLogprobs; len(p) != 3 || p[0].ID != 1 || p[0].Logprob == p[0].Logprob || p[1].Logprob != -1.5 || p[2].ID != 3 {
		t.Errorf("prompt: %+v", p)
	}
	want := []engine.Logprob{{ID: 7, Logprob: -0.5, Rank: 1, Top: []engine.Logprob{{ID: 7, Logprob: -0.5, Rank: 1}}}}
	if !reflect.DeepEqual(got[0].Logprobs, want) {
		t.Errorf("got %+v, want %+v", got[0].Logprobs, want)
	}
	if l := got[1].Logprobs; len(l) != 1 || l[0].ID != 8 || l[0].Logprob != -9999 {
		t.Errorf("got %+v, want id 8 with no chance", l)
	}
	u := got[1].Usage
	if *got[0].Usage.Cached != 2 || *u.Cached != 3 || *u.Reasoning != 1 || u.Output != 2 {
		t.Errorf("usage %+v", u)
	}
	_, last, err := collect(t.Context(), streams(t, chunk([]uint32{7}, 1, length)), ask())
	if err != nil || last.Usage.Cached != nil {
		t.Errorf("cached tokens that nobody told: %+v, %v", last.Usage, err)
	}
}

// A server that behaves badly is an error of the right kind, at once.
func TestHostile(t *testing.T) {
	serve := func(h func(w http.ResponseWriter, r *http.Request)) *sglang.Engine {
		return scripted{"/generate": h}.serve(t, sglang.Config{})
	}
	sse := func(text string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, text)
		}
	}
	for name, tc := range map[string]struct {
		h    func(w http.ResponseWriter, r *http.Request)
		want engine.ErrorKind
	}{
		"a page": {say("<html>ok</html>"), engine.Internal},
		"cut off": {func(w http.ResponseWriter, r *http.Request) {
			sse("data: "+chunk([]uint32{7}, 1, "")+"\n\n")(w, r)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, engine.Disconnected},
		"half a chunk": {sse("data: " + chunk([]uint32{7}, 1, "")[:30]), engine.StreamIncomplete},
		"validation": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"detail":[{"msg":"x"}]}`, http.StatusUnprocessableEntity)
		}, engine.InvalidArgument},
		"no adapter": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"no such adapter"}}`, 404)
		}, engine.NotFound},
		"not our key":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, engine.Denied},
		"busy":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, engine.WorkerOverloaded},
		"starting":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, engine.Unavailable},
		"carriage, ping": {sse(": ping\r\ndata:" + chunk([]uint32{7}, 1, length) + "\r\n\r\ndata: [DONE]\r\n\r\ndata: [DONE]\r\n\r\n"), ""},
	} {
		_, _, err := collect(t.Context(), serve(tc.h), ask())
		if kind := engine.KindOf(err); err != nil && kind != tc.want || err == nil && tc.want != "" {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// A limit of the server's own is never met: it would be 128 tokens.
func TestQuirk14LimitIsAlwaysSent(t *testing.T) {
	e := attach(t, fake.Config{})
	status(t, e, engine.Ready)
	r := &engine.Request{ID: "r-1", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 300}}
	if got, _, err := collect(t.Context(), e, r); len(got) != 300 || err != nil {
		t.Errorf("%d ids, %v", len(got), err)
	}
}

// Who leaves is forgotten by the server even if the connection does not tell it.
func TestAbort(t *testing.T) {
	told := make(chan string, 1)
	hold := make(chan struct{})
	defer close(hold)
	e := scripted{
		"/generate": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\n", chunk([]uint32{7}, 1, ""))
			http.NewResponseController(w).Flush()
			<-hold
		},
		"/abort_request": func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			told <- string(body)
		},
	}.serve(t, sglang.Config{})
	for range e.Generate(t.Context(), ask()) {
		break
	}
	select {
	case got := <-told:
		if got != `{"rid":"r-1"}` {
			t.Errorf("told %s", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("not told")
	}
}

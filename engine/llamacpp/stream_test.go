package llamacpp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
)

// told is what a stream of events gives.
type told struct {
	ids     []uint32
	finish  engine.Finish
	matched []uint32
	output  int
	cached  int // -1: unknown
	kind    engine.ErrorKind
	message string
}

func events(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

// token is the event of the nth token.
func token(n int, id uint32, content string) string {
	return `{"index":0,"content":` + strconv.Quote(content) + `,"tokens":[` + strconv.Itoa(int(id)) + `],"stop":false,"id_slot":0,"tokens_predicted":` + strconv.Itoa(n) + `,"tokens_evaluated":3}`
}

// A stream is read to its end, so that the next one can go over the same connection.
func TestConnectionIsKept(t *testing.T) {
	const requests = 5
	var from []string
	ended := make(chan struct{})
	e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		from = append(from, r.RemoteAddr)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, events(`{"content":" a","tokens":[300],"stop":true,"stop_type":"limit","tokens_predicted":1}`))
		w.(http.Flusher).Flush()
		<-ended
	})
	for range requests {
		for d, err := range e.Generate(t.Context(), ask(1, 1, 2, 3)) {
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

func TestStreams(t *testing.T) {
	one, two := token(1, 300, " a"), token(2, 301, " b")
	limit := `{"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":2,"truncated":false,"timings":{"cache_n":2,"prompt_n":1}}`
	eosLast := `{"content":"","tokens":[],"stop":true,"stop_type":"eos","tokens_predicted":3,"timings":{"cache_n":0}}`
	for name, c := range map[string]struct {
		status int
		body   string
		stop   []uint32
		hidden []uint32
		want   told
	}{
		"a whole one":            {body: events(one, two, limit), want: told{ids: []uint32{300, 301}, finish: engine.FinishLength, output: 2, cached: 2}},
		"with comments":          {body: ":\n\n" + events(one) + ": ping\r\n\r\n" + events(two, limit), want: told{ids: []uint32{300, 301}, finish: engine.FinishLength, output: 2, cached: 2}},
		"behind it more":         {body: events(one, two, limit, token(3, 9, "x"), "[DONE]"), want: told{ids: []uint32{300, 301}, finish: engine.FinishLength, output: 2, cached: 2}},
		"an end of sequence":     {body: events(one, two, token(3, eos, ""), eosLast), hidden: []uint32{eos}, want: told{ids: []uint32{300, 301}, finish: engine.FinishEOS, output: 3, cached: 0}},
		"and nothing behind it":  {body: events(one, token(2, eos, "")), hidden: []uint32{eos}, want: told{ids: []uint32{300}, finish: engine.FinishEOS, output: 2, cached: -1}},
		"and more behind it":     {body: events(one, token(2, eos, ""), token(3, 302, "c"), limit), hidden: []uint32{eos}, want: told{ids: []uint32{300}, finish: engine.FinishEOS, output: 2, cached: -1}},
		"another end than ours":  {body: events(one, two, token(3, 7, ""), eosLast), hidden: []uint32{eos}, want: told{ids: []uint32{300, 301, 7}, finish: engine.FinishEOS, output: 3, cached: 0}},
		"a stop id":              {body: events(one, two, limit), stop: []uint32{300}, want: told{ids: []uint32{300}, finish: engine.FinishStop, matched: []uint32{300}, output: 1, cached: -1}},
		"a stop id among many":   {body: events(`{"tokens":[300,301,302],"tokens_predicted":3}`, limit), stop: []uint32{301}, want: told{ids: []uint32{300, 301}, finish: engine.FinishStop, matched: []uint32{301}, output: 2, cached: -1}},
		"progress of the prompt": {body: events(`{"index":0,"content":"","tokens":[0],"stop":false,"id_slot":-1,"tokens_predicted":0,"tokens_evaluated":3,"prompt_progress":{"total":3,"cache":1,"processed":3,"time_ms":4}}`, one), stop: []uint32{300}, want: told{ids: []uint32{300}, finish: engine.FinishStop, matched: []uint32{300}, output: 1, cached: 1}},
		"drafts are counted early": {
			body: events(token(2, 300, " a"), two, limit),
			want: told{ids: []uint32{300, 301}, finish: engine.FinishLength, output: 2, cached: 2},
		},
		"no reason":          {body: events(one, `{"stop":true,"stop_type":"none"}`), want: told{ids: []uint32{300}, kind: engine.StreamIncomplete}},
		"no end":             {body: events(one, two), want: told{ids: []uint32{300, 301}, kind: engine.StreamIncomplete}},
		"done without end":   {body: events(one, "[DONE]"), want: told{ids: []uint32{300}, kind: engine.StreamIncomplete}},
		"nothing":            {want: told{kind: engine.StreamIncomplete}},
		"cut in an event":    {body: events(one) + `data: {"tokens":[3`, want: told{ids: []uint32{300}, kind: engine.Internal}},
		"an error in it":     {body: events(one, `{"error":{"code":500,"message":"no memory","type":"server_error"}}`), want: told{ids: []uint32{300}, kind: engine.Internal, message: "no memory"}},
		"a refusal in it":    {body: events(`{"error":{"code":400,"message":"bad grammar","type":"invalid_request_error"}}`), want: told{kind: engine.InvalidArgument, message: "bad grammar"}},
		"an error as a word": {body: events(`{"error":"dead"}`), want: told{kind: engine.Internal, message: "dead"}},
		"too long":           {status: 400, body: `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, want: told{kind: engine.InvalidArgument, message: "the request exceeds the available context size"}},
		"loading":            {status: 503, body: `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, want: told{kind: engine.Unavailable, message: "Loading model"}},
		"negative ids":       {body: events(`{"tokens":[-1],"tokens_predicted":1}`), want: told{kind: engine.Internal}},
	} {
		t.Run(name, func(t *testing.T) {
			e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				if c.status != 0 {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
				}
				io.WriteString(w, c.body)
			})
			r := ask(10, 1, 2, 3)
			r.Stop.IDs, r.Stop.Hidden = c.stop, c.hidden
			ids, last, err := run(t, e, r)
			got := told{ids: ids, finish: last.Finish, matched: last.MatchedIDs}
			if u := last.Usage; u != nil {
				got.output, got.cached = u.Output, -1
				if u.Cached != nil {
					got.cached = *u.Cached
				}
			}
			if err != nil {
				got.kind = engine.KindOf(err)
				if e, ok := errors.AsType[*engine.Error](err); ok && e.FromEngine {
					got.message = e.Message
				}
			}
			if !slices.Equal(got.ids, c.want.ids) || got.finish != c.want.finish || !slices.Equal(got.matched, c.want.matched) ||
				got.output != c.want.output || got.cached != c.want.cached || got.kind != c.want.kind || got.message != c.want.message {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
			if e, ok := errors.AsType[*engine.Error](err); name == "too long" && (!ok || e.Code != "context_length_exceeded") {
				t.Errorf("%+v has no code for the context", err)
			}
		})
	}
}

// A character that comes in parts is spelled again; how it is spelled is up to
// the vocabulary.
func TestRespelled(t *testing.T) {
	prefixed, other := []byte(`{"tokens":[29871,240,159,152,128]}`), []byte(`{"tokens":[31000]}`)
	for name, c := range map[string]struct {
		status int
		answer []byte
		want   []uint32
		kind   engine.ErrorKind
	}{
		"a blank before it":   {200, prefixed, []uint32{240, 159, 152, 128}, ""},
		"another spelling":    {200, []byte(`{"tokens":[31000,31001]}`), []uint32{31000, 31001}, ""},
		"nothing but one":     {200, other, []uint32{128}, ""},
		"the server is tired": {503, []byte(`{"error":{"message":"x"}}`), nil, engine.Unavailable},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			w.Write(c.answer)
		})
		mux.HandleFunc("POST /completion", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(token(4, 128, "😀"), `{"stop":true,"stop_type":"limit","tokens_predicted":4}`))
		})
		ids, last, err := run(t, plain(t, mux, nil), ask(10, 1))
		if !slices.Equal(ids, c.want) || c.kind == "" && (err != nil || last.Usage.Output != 4) || c.kind != "" && engine.KindOf(err) != c.kind {
			t.Errorf("%s: %v, %+v, %v; want %v", name, ids, last.Usage, err, c.want)
		}
	}
}

func TestLogprobs(t *testing.T) {
	probs := `{"tokens":[300],"tokens_predicted":1,"completion_probabilities":[{"id":300,"token":" a","logprob":-1.5,
		"top_logprobs":[{"id":299,"logprob":null},{"id":301,"logprob":-0.5},{"id":300,"logprob":-1.5}]}]}`
	for k, want := range map[int][]uint32{0: nil, 1: {301}, 2: {301, 300}, 5: {301, 300, 299}} {
		e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(strings.Join(strings.Fields(probs), ""), `{"stop":true,"stop_type":"limit","tokens_predicted":1}`))
		})
		r := ask(1, 1)
		r.Logprobs = &k
		for d, err := range e.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Finish != engine.Running {
				break
			}
			lp := d.Logprobs[0]
			var top []uint32
			for _, alt := range lp.Top {
				top = append(top, alt.ID)
				if math.IsInf(alt.Logprob, 0) || math.IsNaN(alt.Logprob) {
					t.Errorf("%+v is not for JSON", alt)
				}
			}
			if lp.ID != 300 || lp.Logprob != -1.5 || lp.Rank != 2 || !slices.Equal(top, want) {
				t.Errorf("k = %d: %+v, want %v", k, lp, want)
			}
		}
	}
}

// The cause of a context that ends is the error, wherever the stream is.
func TestCauses(t *testing.T) {
	for _, first := range []string{"", events(token(1, 300, "a"))} {
		gone := make(chan struct{})
		e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, first)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if first == "" {
			cancel(engine.ErrFirstItem)
			close(gone)
		}
		var end error
		for _, err := range e.Generate(ctx, ask(5, 1)) {
			cancel(engine.ErrInactive)
			end = err
		}
		<-gone
		if engine.KindOf(end) != engine.ResponseTimeout {
			t.Errorf("after %q: %v", first, end)
		}
	}
}

// A server that is at work on a long prompt sends comments to show that it lives.
// They are no events, wherever they stand.
func TestQuirk26CommentsAreNoEvents(t *testing.T) {
	first, end := token(1, 300, " a"), `{"stop":true,"stop_type":"limit","tokens_predicted":1}`
	for _, body := range []string{
		":\n\n" + events(first, end),
		": ping\n" + events(first) + ":\n\n:\n\n" + events(end) + ":\n\n",
		":\r\n\r\n" + strings.ReplaceAll(events(first, end), "\n", "\r\n"),
	} {
		e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, body)
		})
		if ids, last, err := run(t, e, ask(1, 1)); err != nil || !slices.Equal(ids, []uint32{300}) || last.Finish != engine.FinishLength {
			t.Errorf("%q: %v, %+v, %v", body, ids, last, err)
		}
	}
}

// What a prompt has found is told with its progress and at the end; a server that
// tells neither leaves it unknown, which is not none.
func TestQuirk07CachedTokensUnknown(t *testing.T) {
	progress := `{"tokens":[],"content":"","prompt_progress":{"total":3,"cache":2,"processed":3}}`
	first, end := token(1, 300, " a"), `{"stop":true,"stop_type":"limit","tokens_predicted":1}`
	for body, want := range map[string]*int{
		events(first, end):           nil,
		events(progress, first, end): p(2),
		events(first, `{"stop":true,"stop_type":"limit","tokens_predicted":1,"timings":{"cache_n":0,"prompt_n":3}}`):                    p(0),
		events(first, `{"stop":true,"stop_type":"limit","tokens_predicted":1,"timings":{"cache_n":99,"prompt_n":3},"tokens_cached":7}`): p(3),
		events(first, `{"stop":true,"stop_type":"limit","tokens_predicted":1,"timings":{},"tokens_cached":7}`):                          nil,
	} {
		e := scripted(t, serve(t, 1, nil), nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, body)
		})
		_, last, err := run(t, e, ask(1, 1, 2, 3))
		if err != nil || (last.Usage.Cached == nil) != (want == nil) || want != nil && *last.Usage.Cached != *want {
			t.Errorf("%q: %+v, %v", body, last.Usage, err)
		}
	}
}

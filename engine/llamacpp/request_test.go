package llamacpp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/llamacpp"
	"github.com/dynago/dynago/internal/fake/llama"
	"github.com/dynago/dynago/kv"
)

func p[T any](v T) *T { return &v }

// final is a last event.
const final = `data: {"stop":true,"stop_type":"limit","tokens_predicted":1,"tokens":[]}` + "\n\n"

// posted returns what an adapter posts for a request.
func posted(t *testing.T, change func(*llamacpp.Config), r *engine.Request) (body string, header http.Header, err error) {
	t.Helper()
	fake := serve(t, 4, func(c *llama.Config) { c.Adapters = []string{"loras/french.gguf", "loras/sql.gguf"} })
	e := scripted(t, fake, change, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, header = string(text), r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, final)
	})
	ready(t, e)
	_, _, err = run(t, e, r)
	return body, header, err
}

// Bodies are golden: testdata/bodies has one for each request here. With
// UPDATE_GOLDEN=1 the files are written anew.
func TestBodies(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)
	for name, c := range map[string]struct {
		change  func(*llamacpp.Config)
		request func(*engine.Request)
	}{
		"plain": {},
		"all": {request: func(r *engine.Request) {
			r.Sampling = engine.Sampling{
				Temperature: p(0.2), TopP: p(0.9), MinP: p(0.05), TopK: p(40), Seed: p(int64(7)),
				FrequencyPenalty: p(0.5), PresencePenalty: p(-0.5), RepetitionPenalty: p(1.1),
				LogitBias: map[uint32]float64{50: -100, 7: 1.5},
			}
			r.Stop.IDs, r.Stop.Hidden = []uint32{50}, []uint32{2}
			r.Logprobs = p(2)
			r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: schema}
			r.Priority = p(int32(3))
		}},
		"allowed": {request: func(r *engine.Request) {
			r.Sampling.AllowedIDs, r.Sampling.BadWords = []uint32{9, 5, 7}, [][]uint32{{5}, {3}}
			r.Sampling.LogitBias = map[uint32]float64{7: 2, 8: -1}
		}},
		"off":    {request: func(r *engine.Request) { r.Sampling.TopK, r.Sampling.Seed, r.Logprobs = p(-1), p(int64(-1)), p(0) }},
		"object": {request: func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject} }},
		"choice": {request: func(r *engine.Request) {
			r.Format = &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"yes", `n"o`}}
		}},
		"regex": {request: func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `[a-c]+\d{2}`} }},
		"grammar": {request: func(r *engine.Request) {
			r.Format = &chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: `root ::= "x"`}
		}},
		"lora": {request: func(r *engine.Request) { r.KV.Namespace.LoRA = "sql" }},
		"extra": {
			change:  func(c *llamacpp.Config) { c.ExtraBody = json.RawMessage(`{"cache_prompt":false,"dry_multiplier":0.8}`) },
			request: func(r *engine.Request) { r.Extra = json.RawMessage(`{"dry_multiplier":0.5,"top_k":3}`) },
		},
		"pinned": {
			change:  func(c *llamacpp.Config) { c.PinSessions = true },
			request: func(r *engine.Request) { r.KV.Session = kv.Session{ID: "s-1"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(64, 101, 2054, 2003)
			r.Stop.Hidden = []uint32{2}
			if c.request != nil {
				c.request(r)
			}
			got, _, err := posted(t, c.change, r)
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("no JSON: %s", got)
			}
			got = strings.ReplaceAll(got, `,"`, ",\n\"") + "\n"
			file := filepath.Join("testdata", "bodies", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestTrace(t *testing.T) {
	r := ask(1, 1)
	r.Trace = engine.Trace{Parent: "00-a-b-01", State: "x=1"}
	_, h, err := posted(t, nil, r)
	if err != nil || h.Get("traceparent") != "00-a-b-01" || h.Get("tracestate") != "x=1" {
		t.Errorf("%v, %v", h, err)
	}
}

// What the server would not do is refused before it is asked.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*engine.Request)
		kind   engine.ErrorKind
	}{
		"an adapter that is not there": {func(r *engine.Request) { r.KV.Namespace.LoRA = "x" }, engine.NotFound},
		"a structural tag":             {func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatStructuralTag} }, engine.Unsupported},
		"an expression that is none":   {func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "("} }, engine.InvalidArgument},
		"prompt log probabilities":     {func(r *engine.Request) { r.PromptLogprobs = p(1) }, engine.Unsupported},
		"too many alternatives":        {func(r *engine.Request) { r.Logprobs = p(21) }, engine.InvalidArgument},
		"a word of several tokens":     {func(r *engine.Request) { r.Sampling.BadWords = [][]uint32{{1}, {2, 3}} }, engine.Unsupported},
		"a word of none":               {func(r *engine.Request) { r.Sampling.BadWords = [][]uint32{{}} }, engine.Unsupported},
		"half of a request":            {func(r *engine.Request) { r.Disagg.Phase = engine.PhasePrefill }, engine.Unsupported},
		"another life":                 {func(r *engine.Request) { r.Epoch = 1 }, engine.Stale},
		"another prompt in the extras": {func(r *engine.Request) { r.Extra = json.RawMessage(`{"prompt":"x"}`) }, engine.InvalidArgument},
		"extras that are no object":    {func(r *engine.Request) { r.Extra = json.RawMessage(`[1]`) }, engine.InvalidArgument},
	} {
		r := ask(1, 1)
		c.change(r)
		if body, _, err := posted(t, nil, r); engine.KindOf(err) != c.kind || body != "" {
			t.Errorf("%s: %v, posted %q; want %s", name, err, body, c.kind)
		}
	}
}

func TestConfigurations(t *testing.T) {
	for _, extra := range []string{`{"stream":false}`, `[]`, `{`} {
		if _, err := llamacpp.New(llamacpp.Config{Config: httpapi.Config{URL: "http://h"}, ExtraBody: json.RawMessage(extra)}); err == nil {
			t.Errorf("extra_body %s is taken", extra)
		}
	}
}

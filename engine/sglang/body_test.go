package sglang_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/sglang"
	"github.com/dynago/dynago/kv"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ptr[T any](v T) *T { return &v }

// scripted is a server that answers each route with what a test says.
type scripted map[string]func(w http.ResponseWriter, r *http.Request)

func (s scripted) serve(t *testing.T, cfg sglang.Config) *sglang.Engine {
	t.Helper()
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := s[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"detail":"Not Found"}`)
	}))
	t.Cleanup(hs.Close)
	cfg.HTTP = httpapi.Config{URL: hs.URL}
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Millisecond
	}
	return open(t, cfg)
}

func say(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// described is a server that tells this of itself.
func described(info string) scripted {
	return scripted{
		"/health":      say(""),
		"/server_info": say(info),
		"/v1/models":   say(`{"data":[{"id":"m","owned_by":"sglang","max_model_len":4096},{"id":"ad","parent":"m"}]}`),
	}
}

// status returns the first status of a state.
func status(t *testing.T, e engine.Engine, state engine.State) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var last engine.Status
	for s, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if last = s; s.State == state {
			return s
		}
	}
	t.Fatalf("never %v, at last %+v", state, last)
	return last
}

// collect reads a whole answer.
func collect(ctx context.Context, e engine.Engine, r *engine.Request) (ids []uint32, last engine.Delta, err error) {
	for d, err := range e.Generate(ctx, r) {
		if err != nil {
			return ids, last, err
		}
		ids, last = append(ids, d.TokenIDs...), d
	}
	return ids, last, nil
}

// Every field of a request is where the server looks for it, in bytes that are
// kept in files.
func TestBodies(t *testing.T) {
	full := func() *engine.Request {
		return &engine.Request{
			ID: "r-7f-1", TokenIDs: []uint32{101, 2054, 2003},
			Sampling: engine.Sampling{Temperature: ptr(0.2), TopP: ptr(1.0), TopK: ptr(0), Seed: ptr(int64(7))},
			Stop:     engine.Stop{MaxTokens: 64, IDs: []uint32{50}, Hidden: []uint32{2}},
			Logprobs: ptr(2), Priority: ptr(int32(3)), DPRank: ptr(uint32(1)),
			Format: &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)},
			KV:     kv.Directives{Namespace: kv.Namespace{Salt: "t1"}},
		}
	}
	format := func(f chat.OutputFormat) func() *engine.Request {
		return func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1, Hidden: []uint32{2}}, Format: &f}
		}
	}
	const prio = `{"enable_priority_scheduling":true,"enable_deterministic_inference":true,"enable_lora":true`
	for _, tc := range []struct {
		name, info string
		request    func() *engine.Request
	}{
		{"spec", prio + `}`, full},
		{"low-first", prio + `,"schedule_low_priority_values_first":true}`, full},
		{"no-priority", `{"enable_deterministic_inference":true}`, full},
		{"plain", `{}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{4294967295}, Stop: engine.Stop{MaxTokens: 1}}
		}},
		{"sampling", `{}`, func() *engine.Request {
			return &engine.Request{
				ID: "r", TokenIDs: []uint32{1}, PromptLogprobs: ptr(0), Logprobs: ptr(1),
				Sampling: engine.Sampling{
					TopK: ptr(40), MinP: ptr(0.05), FrequencyPenalty: ptr(0.5), PresencePenalty: ptr(-0.5), RepetitionPenalty: ptr(1.1),
					Seed: ptr(int64(7)), LogitBias: map[uint32]float64{9: -100, 10: 1.5},
				},
				Stop: engine.Stop{MaxTokens: 5, MinTokens: 3, IDs: []uint32{2, 3}, Hidden: []uint32{2}},
			}
		}},
		{"no-tokenizer", `{"skip_tokenizer_init":true}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 5, MinTokens: 3, Hidden: []uint32{2}}}
		}},
		{"lora", prio + `}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1, Hidden: []uint32{2}}, KV: kv.Directives{Namespace: kv.Namespace{LoRA: "ad"}}}
		}},
		{"extra", `{}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1, Hidden: []uint32{2}}, Extra: json.RawMessage(`{"routing_key": "k", "n": 18446744073709551615}`)}
		}},
		{"experts", `{"enable_return_routed_experts":true}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1, Hidden: []uint32{2}}, RoutedExperts: true}
		}},
		{"no-experts", `{}`, func() *engine.Request {
			return &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1, Hidden: []uint32{2}}, RoutedExperts: true}
		}},
		{"object", `{}`, format(chat.OutputFormat{Kind: chat.FormatJSONObject})},
		{"regex", `{}`, format(chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `a|b`})},
		{"choice", `{}`, format(chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"a.b", "c|d"}})},
		{"grammar", `{}`, format(chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: `root ::= "a"`})},
		{"structural-tag", `{}`, format(chat.OutputFormat{Kind: chat.FormatStructuralTag, Schema: json.RawMessage(`{"type":"structural_tag"}`)})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := described(tc.info)
			var got []byte
			server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				w.WriteHeader(http.StatusBadRequest)
			}
			e := server.serve(t, sglang.Config{})
			status(t, e, engine.Ready)
			if _, _, err := collect(t.Context(), e, tc.request()); engine.KindOf(err) != engine.InvalidArgument {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", tc.name+".json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, bytes.TrimSpace(want)) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// What the server would do otherwise than asked, it is not asked.
func TestRefusals(t *testing.T) {
	server := described(`{}`)
	server["/generate"] = func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }
	e := server.serve(t, sglang.Config{MaxLogprobs: 5})
	status(t, e, engine.Ready)
	for name, tc := range map[string]struct {
		change func(*engine.Request)
		want   engine.ErrorKind
	}{
		"no ids":        {func(r *engine.Request) { r.TokenIDs = nil }, engine.Unsupported},
		"stop strings":  {func(r *engine.Request) { r.Stop.Strings = []string{"x"} }, engine.Unsupported},
		"allowed ids":   {func(r *engine.Request) { r.Sampling.AllowedIDs = []uint32{1} }, engine.Unsupported},
		"bad words":     {func(r *engine.Request) { r.Sampling.BadWords = [][]uint32{{1}} }, engine.Unsupported},
		"adapter":       {func(r *engine.Request) { r.KV.Namespace.LoRA = "x" }, engine.Unsupported},
		"format":        {func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: "x"} }, engine.Unsupported},
		"one leg":       {func(r *engine.Request) { r.Disagg.Phase = engine.PhasePrefill }, engine.Unsupported},
		"extra":         {func(r *engine.Request) { r.Extra = json.RawMessage(`[1]`) }, engine.InvalidArgument},
		"logprobs":      {func(r *engine.Request) { r.Logprobs = ptr(6) }, engine.InvalidArgument},
		"not a number":  {func(r *engine.Request) { r.Sampling.Temperature = ptr(nan()) }, engine.InvalidArgument},
		"earlier epoch": {func(r *engine.Request) { r.Epoch = 12345 }, engine.Stale},
	} {
		r := &engine.Request{ID: "r", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}}
		tc.change(r)
		if _, _, err := collect(t.Context(), e, r); engine.KindOf(err) != tc.want || strings.Contains(err.Error(), "<nil>") {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

func nan() float64 { var zero float64; return zero / zero }

// bodiesOf returns what the two legs of a request for a schema send.
func bodiesOf(t *testing.T, schema string) map[engine.Phase]string {
	t.Helper()
	bodies := map[engine.Phase]string{}
	for _, phase := range []engine.Phase{engine.PhasePrefill, engine.PhaseDecode} {
		server := described(`{"disaggregation_mode":"` + string(phase) + `"}`)
		server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			bodies[phase] = string(text)
			w.WriteHeader(http.StatusBadRequest)
		}
		e := server.serve(t, sglang.Config{})
		status(t, e, engine.Ready)
		r := ask()
		r.Disagg = engine.Disagg{Phase: phase, Handoff: json.RawMessage(`{"bootstrap_room":1}`)}
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(schema)}
		if _, _, err := collect(t.Context(), e, r); engine.KindOf(err) != engine.InvalidArgument {
			t.Fatal(err)
		}
	}
	return bodies
}

// textLog writes what an operator hears.
func textLog(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

package trtllm_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/kv"
)

var update = flag.Bool("update", false, "write the golden bodies anew")

func p[T any](v T) *T { return &v }

// Bodies are as the files say, for a server that takes all and for one that takes
// what the first versions do. Both are strict: one member too many is a 400.
func TestBodies(t *testing.T) {
	schema := json.RawMessage(`{"type":"object"}`)
	plain := func(f *chat.OutputFormat) *engine.Request {
		return &engine.Request{Model: "m", TokenIDs: []uint32{101, 2054, 2003}, Stop: engine.Stop{MaxTokens: 64, Hidden: []uint32{2}}, Format: f}
	}
	requests := map[string]*engine.Request{
		"spec": {
			Model: "m", TokenIDs: []uint32{101, 2054, 2003}, Logprobs: p(2), Priority: p(int32(3)),
			Sampling: engine.Sampling{Temperature: p(0.2), TopP: p(1.0), Seed: p(int64(7))},
			Stop:     engine.Stop{MaxTokens: 64, IDs: []uint32{50}, Hidden: []uint32{2}},
			Format:   &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: schema},
		},
		"sampling": {
			Model: "m", TokenIDs: []uint32{1<<32 - 1}, ThinkingBudget: p(100),
			Sampling: engine.Sampling{
				Temperature: p(0.0), TopP: p(0.9), TopK: p(-1), MinP: p(0.05), FrequencyPenalty: p(0.1), PresencePenalty: p(-0.1),
				RepetitionPenalty: p(1.1), Seed: p(int64(-1) << 62), LogitBias: map[uint32]float64{9: -100, 10: 1.5},
			},
			Stop: engine.Stop{MaxTokens: 5, MinTokens: 2},
		},
		"lora":    {Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, KV: kv.Directives{Namespace: kv.Namespace{LoRA: "sql"}}},
		"session": {Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, KV: kv.Directives{Session: kv.Session{ID: "s-1"}}},
		"object":  plain(&chat.OutputFormat{Kind: chat.FormatJSONObject}),
		"regex":   plain(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `\d+`}),
		"grammar": plain(&chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: `root ::= "a"`}),
		"choice":  plain(&chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"yes", "a|b", "(1.5)"}}),
		"tag":     plain(&chat.OutputFormat{Kind: chat.FormatStructuralTag, Schema: json.RawMessage(`{"type":"structural_tag","format":{"type":"any_text"}}`)}),
	}
	config := trtllm.Config{PriorityEnabled: true, Adapters: []trtllm.Adapter{{Name: "sql", ID: 1, Path: "/adapters/sql"}}}
	for profile, old := range map[string]bool{"1.3": false, "1.2": true} {
		a := attach(t, fake.Config{Old: old}, config)
		a.ready(t)
		for name, r := range requests {
			t.Run(profile+"/"+name, func(t *testing.T) {
				if _, _, err := collect(t.Context(), a, r); err != nil {
					t.Fatal(err)
				}
				var got bytes.Buffer
				if err := json.Indent(&got, a.server.Last(), "", "  "); err != nil {
					t.Fatal(err)
				}
				got.WriteByte('\n')
				file := filepath.Join("testdata", profile, name+".json")
				if *update {
					if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, got.Bytes(), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), want) {
					t.Errorf("got\n%swant\n%s", got.Bytes(), want)
				}
			})
		}
	}
}

func TestPriorities(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{PriorityEnabled: true})
	off := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	off.ready(t)
	for given, want := range map[int32]string{0: "0.5", 100: "1", -100: "0", 1 << 30: "1", -1 << 31: "0", 3: "0.515"} {
		r := &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, Priority: &given}
		for _, e := range []*attached{a, off} {
			if _, _, err := collect(t.Context(), e, r); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(asked(t, a)["priority"]); got != want {
			t.Errorf("%d became %s, want %s", given, got, want)
		}
		if got, sent := asked(t, off)["priority"]; sent {
			t.Errorf("%d became %s where priorities are not known to be followed", given, got)
		}
	}
}

// What an operator and a request add goes along where the server knows it and
// nothing here sets it, as it was written; the request comes first.
func TestExtra(t *testing.T) {
	config := trtllm.Config{ExtraBody: json.RawMessage(`{"length_penalty": 1.50, "user": "operator", "unheard_of": 1}`)}
	a := attach(t, fake.Config{}, config)
	a.ready(t)
	r := &engine.Request{Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, Extra: json.RawMessage(`{"user":"client","max_tokens":9,"x":2}`)}
	if _, _, err := collect(t.Context(), a, r); err != nil {
		t.Fatal(err)
	}
	m := asked(t, a)
	if string(m["length_penalty"]) != "1.50" || string(m["user"]) != `"client"` || string(m["max_tokens"]) != "1" || m["unheard_of"] != nil || m["x"] != nil {
		t.Errorf("asked %s", a.server.Last())
	}
	r.Extra = json.RawMessage(`[1]`)
	if _, _, err := collect(t.Context(), a, r); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{`[1]`, `{"prompt":[1]}`, `{"stream":false}`} {
		if _, err := trtllm.New(trtllm.Config{Config: a.config(), ExtraBody: json.RawMessage(bad)}); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

// A parameter that has no number is the client's fault.
func TestNotANumber(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	r := &engine.Request{Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, Sampling: engine.Sampling{Temperature: p(math.NaN())}}
	if _, _, err := collect(t.Context(), a, r); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("%v", err)
	}
}

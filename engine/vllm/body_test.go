package vllm

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
	"github.com/dynago/dynago/kv"
)

var update = flag.Bool("update", false, "write the golden bodies anew")

func ptr[T any](v T) *T { return &v }

// asks are requests that together have every member.
func asks() []struct {
	name string
	r    *engine.Request
} {
	type named = struct {
		name string
		r    *engine.Request
	}
	base := func(change func(r *engine.Request)) *engine.Request {
		r := &engine.Request{ID: "r-7f-1", TokenIDs: []uint32{101, 2054, 2003}, Stop: engine.Stop{MaxTokens: 64, Hidden: []uint32{2}}}
		change(r)
		return r
	}
	form := func(f chat.OutputFormat) *engine.Request {
		return base(func(r *engine.Request) { r.Format = &f })
	}
	return []named{
		{"least", base(func(*engine.Request) {})},
		{"usual", base(func(r *engine.Request) {
			r.Sampling = engine.Sampling{Temperature: ptr(0.2), TopP: ptr(1.0), TopK: ptr(0), Seed: ptr(int64(7))}
			r.Stop.IDs = []uint32{50}
			r.Logprobs, r.Priority, r.DPRank = ptr(2), ptr(int32(3)), ptr(uint32(1))
			r.KV.Namespace = kv.Namespace{Salt: "t1"}
			r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
		})},
		{"sampling", base(func(r *engine.Request) {
			r.Sampling = engine.Sampling{
				MinP: ptr(0.05), FrequencyPenalty: ptr(0.5), PresencePenalty: ptr(-0.5), RepetitionPenalty: ptr(1.1),
				LogitBias: map[uint32]float64{7: -100, 1000: 2.5}, AllowedIDs: []uint32{5, 6},
			}
			r.ThinkingBudget = ptr(1024)
		})},
		{"no hidden ids", base(func(r *engine.Request) { r.Stop = engine.Stop{MaxTokens: 9, MinTokens: 3} })},
		{"an adapter", base(func(r *engine.Request) { r.Model, r.KV.Namespace = "m", kv.Namespace{LoRA: "sql"} })},
		{"least urgent", base(func(r *engine.Request) { r.Priority = ptr(int32(math.MinInt32)) })},
		{"prompt log probabilities", base(func(r *engine.Request) { r.PromptLogprobs = ptr(0) })},
		{"members of its own", base(func(r *engine.Request) { r.Extra = json.RawMessage(` {"vllm_xargs": {"a": 1}} `) })},
		{"prefill leg", base(func(r *engine.Request) {
			r.Logprobs = ptr(2)
			r.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: json.RawMessage(computes)}
		})},
		{"decode leg", base(func(r *engine.Request) {
			r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: json.RawMessage(`{"remote_block_ids": [9007199254740993], "remote_port":5600}`)}
		})},
		{"a session", base(func(r *engine.Request) { r.KV.Session.ID = "s-1" })},
		{"json object", form(chat.OutputFormat{Kind: chat.FormatJSONObject})},
		{"regex", form(chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `\d+"`})},
		{"grammar", form(chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: "root ::= \"a\"\n"})},
		{"choice", form(chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"yes", "no"}})},
		{"structural tag", form(chat.OutputFormat{Kind: chat.FormatStructuralTag, Schema: json.RawMessage(`{"type":"structural_tag","format":{"type":"any_text"}}`)})},
	}
}

var able = &engine.Card{Model: "m", Features: engine.Features{engine.FeaturePriority, engine.FeatureDPRank, engine.FeatureThinkingBudget}}

// One file per profile: what each request looks like on the wire.
func TestBodies(t *testing.T) {
	for _, profile := range []struct {
		file string
		dialect
	}{
		{"generate", dialect{generate: true, tokenMode: true, structured: true, session: true}},
		{"completions", dialect{tokenMode: true, structured: true, session: true}},
		{"completions-0.10", dialect{tokenMode: true}},
	} {
		t.Run(profile.file, func(t *testing.T) {
			var got bytes.Buffer
			for _, a := range asks() {
				leg := legOf(a.r)
				body := profile.body(leg, able)
				if !json.Valid(body) {
					t.Errorf("%s: no JSON: %s", a.name, body)
				}
				got.WriteString("# " + a.name + "\n" + string(body) + "\n")
				for name, values := range profile.header(leg, able) {
					got.WriteString(name + ": " + values[0] + "\n")
				}
			}
			file := filepath.Join("testdata", profile.file+".txt")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("bodies differ from %s; they are\n%s", file, got.Bytes())
			}
		})
	}
}

// What the card does not say is not sent: zero is all that other servers take.
func TestNotSent(t *testing.T) {
	r := asks()[1].r
	r.ThinkingBudget = ptr(5)
	d := dialect{generate: true}
	body := d.body(r, &engine.Card{Model: "m"})
	for _, name := range []string{"priority", "thinking_token_budget"} {
		if bytes.Contains(body, []byte(name)) {
			t.Errorf("%s is sent to a server that would refuse it: %s", name, body)
		}
	}
	if h := d.header(r, &engine.Card{}); len(h) > 0 {
		t.Errorf("headers %v for a server of one rank", h)
	}
}

//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	tinymodel "github.com/dynago/dynago/internal/tiny"
)

// told asks the model of the name, and returns what it says and how much of the prompt
// was cached.
func (p *program) told(model, question string) (text string, cached int) {
	p.t.Helper()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	p.post("/v1/chat/completions", fmt.Sprintf(`{"model": %q, "max_tokens": 60, "messages": [{"role": "user", "content": %q}]}`, model, question), &answer)
	if len(answer.Choices) != 1 {
		p.t.Fatalf("%+v", answer)
	}
	return answer.Choices[0].Message.Content, answer.Usage.Details.Cached
}

// sum adds up the series of /metrics that begin so.
func (p *program) sum(series string) (sum float64) {
	p.t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(series)+`.* (\S+)$`).FindAllStringSubmatch(p.page("/metrics"), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			p.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// lamp is a question whose answer is in it.
const lamp = "The colour of the lamp is violet. What is the colour of the lamp?"

// Whatever is set, the model in the box says the same, and what engines tell is on the
// same pages as that of others.
func TestServeTiny(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		banks string // what the banner says of the workers
		ranks int
		pages []string
		moves string // what has counted blocks or tokens, by its beginning
	}{
		{"as it comes", nil, "2 tiny engines (5 layers of width 128, context 2048), 1024 KV blocks of 16 tokens", 2, nil, ""},
		{"one", []string{"--workers", "1", "--kv-cache-block-size", "32", "--num-gpu-blocks-override", "50", "--max-num-seqs", "2", "--max-num-batched-tokens", "24"}, "1 tiny engine (5 layers of width 128, context 2048), 50 KV blocks of 32 tokens", 1, nil, ""},
		{"ranks", []string{"--workers", "1", "--data-parallel-size", "2"}, "on each of 2 ranks", 2, nil, ""},
		{"a shorter context", []string{"--max-model-len", "640"}, "2 tiny engines", 2, []string{`"context_window":640`}, ""},
		{"tiers", []string{"--workers", "1", "--num-gpu-blocks-override", "24", "--max-model-len", "384", "--g2-blocks", "70", "--g3-blocks", "90"}, "70 on tier host_pinned, 90 on tier disk", 1, nil, `dynago_kv_hit_tokens_total{dp_rank="0",pool="disk"`},
		{"two legs", []string{"--num-prefill-workers", "1"}, "2 tiny engines", 3, nil, "dynago_kv_pulled_blocks_total{"},
		{"another name", []string{"--model-name", "mine"}, "2 tiny engines", 2, []string{`"mine"`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, append([]string{"--demo", "tiny", "--log-level", "warn"}, tt.args...)...)
			if !strings.Contains(p.banner, tt.banks) {
				t.Errorf("%q is not in %s", tt.banks, p.banner)
			}
			model := tinymodel.Name
			if tt.name == "another name" {
				model = "mine"
			}
			if text, _ := p.told(model, lamp); !strings.Contains(text, "violet") {
				t.Errorf("it says %q", text)
			}
			crowd := func() {
				if tt.name == "tiers" { // more comes between than device and host have room for
					for n := range 4 {
						p.told(model, fmt.Sprintf("%d is a number. ", n)+strings.Repeat("The moon is white. ", 30))
					}
				}
			}
			crowd()
			// The router hears of what is cached a moment after the answer; and what has gone
			// before it was written further down was computed anew.
			until(t, "the prompt is found in the cache", func() bool {
				text, cached := p.told(model, lamp)
				if !strings.Contains(text, "violet") {
					t.Errorf("it says %q", text)
				}
				found := cached > 0 && (tt.moves == "" || p.sum(tt.moves) > 0)
				if !found {
					crowd()
				}
				return found
			})
			page := p.page("/metrics")
			if n := strings.Count(page, "\ndynago_kv_blocks_total{") + strings.Count(page, "\ndynago_worker_active_requests{"); n == 0 {
				t.Errorf("no worker is on the page of metrics:\n%s", page)
			}
			if n := strings.Count(page, "\ndynamo_component_router_worker_registered{"); n != tt.ranks {
				t.Errorf("%d ranks, want %d", n, tt.ranks)
			}
			said := p.page("/v1/models") + p.page("/admin/workers")
			for _, want := range tt.pages {
				if !strings.Contains(said, want) {
					t.Errorf("%s is not in %s", want, said)
				}
			}
			if decisions := p.page("/admin/decisions?n=5"); !strings.Contains(decisions, `"worker_id"`) {
				t.Errorf("decisions: %s", decisions)
			}
		})
	}
}

// Each line of the page does what the page says.
func TestPageOfTiny(t *testing.T) {
	page, err := os.ReadFile("../../docs/tiny.md")
	if err != nil {
		t.Fatal(err)
	}
	list := examples(t, string(page))
	if len(list) < 4 {
		t.Fatalf("the page has %d lines to run", len(list))
	}
	serve(t, "--demo", "tiny", "--log-level", "warn").does(list, "")
}

// A model of somebody else's is computed from its folder, or from the one file that has
// all of it.
func TestServeModelOfFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "generation_config.json", tinymodel.Weights} {
		text, err := tinymodel.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{"folder": folder, "file": filepath.Join(folder, tinymodel.Weights)} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, "--demo", "tiny", "--model-path", path, "--model-name", "own", "--log-level", "warn")
			if text, _ := p.told("own", lamp); !strings.Contains(text, "violet") {
				t.Errorf("it says %q", text)
			}
		})
	}

	t.Run("tokenizer of another", func(t *testing.T) {
		text, err := demo.File("tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "tokenizer.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs syncBuffer
		code := run([]string{"serve", "--demo", "tiny", "--http-port", "0", "--model-path", folder}, outlet{&out, &errs})
		want := "the tokenizer has 8192 tokens, and model.embed_tokens.weight has rows for 2048"
		if code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, and it says %q; want %q", code, errs.String(), want)
		}
	})
}

// Who asks for an answer that no token can begin, or go on with, is told what asks for
// it, before any token: it is no fault of the server's.
func TestTinyIsAskedForNothing(t *testing.T) {
	p := serve(t, "--demo", "tiny", "--workers", "1", "--log-level", "warn")
	never := `{"type": "string", "pattern": "^(?!a)a$"}`
	for _, tt := range []struct{ path, body, param string }{
		{"/v1/chat/completions", `"messages": [{"role": "user", "content": "Hi"}], "guided_choice": ["blue"], "allowed_token_ids": [5]`, "allowed_token_ids"},
		{"/v1/chat/completions", `"stream": true, "messages": [{"role": "user", "content": "Hi"}], "guided_choice": ["blue"], "allowed_token_ids": [5]`, "allowed_token_ids"},
		{"/v1/completions", `"prompt": "Hi", "allowed_token_ids": [5], "guided_regex": "b"`, "allowed_token_ids"},
		{"/v1/chat/completions", `"messages": [{"role": "user", "content": "Hi"}], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": ` + never + `}}`, "response_format"},
		{"/v1/responses", `"input": "Hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": ` + never + `}}`, "text.format"},
	} {
		r := p.send(tt.path, `{"model": "dynago/tiny", `+tt.body+`}`)
		var told struct{ Error struct{ Param, Type string } }
		if err := json.Unmarshal([]byte(r.body), &told); err != nil || r.status != 400 || told.Error.Param != tt.param {
			t.Errorf("%s %s: %d %s, want 400 of %s", tt.path, tt.body, r.status, r.body, tt.param)
		}
	}
}

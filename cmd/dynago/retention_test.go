//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/fake/vllm"
)

// asked is one prompt on one API, and what its answer says was cached of it.
func (p *program) asked(api, text, more string) (prompt, cached int) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	body := map[string]string{
		"chat":        `{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":` + string(quoted) + `}]` + more + `}`,
		"completions": `{"model":"dynago/demo","max_tokens":4,"prompt":` + string(quoted) + more + `}`,
		"responses":   `{"model":"dynago/demo","max_output_tokens":4,"input":` + string(quoted) + more + `}`,
		"messages":    `{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":` + string(quoted) + `}]` + more + `}`,
	}[api]
	c := crossing{api: api, reply: p.send(paths[api], body)}
	if c.status != http.StatusOK {
		p.t.Fatalf("%s: status %d: %s", api, c.status, c.reply.body)
	}
	return c.usage(p.t)
}

// counter returns a figure of the metrics page.
func (p *program) counter(name string) float64 {
	p.t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(p.page("/metrics"))
	if m == nil {
		p.t.Fatalf("the metrics have no %s", name)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Under ten times as much as the cache holds a pinned prompt stays, on every API, and
// one that is not pinned goes; so does one whose pin was let go, or whose client has no
// say.
func TestPinsSurvivePressure(t *testing.T) {
	t.Parallel()
	const pin = `,"nvext":{"cache_control":{"ttl":"1h"}}`
	const unpin = `,"nvext":{"cache_control":{"ttl":0},"session_control":{"session_id":"one"}}`
	mark := func(text string) string {
		quoted, _ := json.Marshal(text)
		return `,"messages":[{"role":"user","content":[{"type":"text","text":` + string(quoted) + `,"cache_control":{"type":"ephemeral"}}]}]`
	}
	for _, tt := range []struct {
		name, more, then string
		marks            bool
		apis             []string
		flags            []string
		stays            bool
	}{
		{name: "pinned", more: pin, apis: carriers, stays: true},
		{name: "not pinned", apis: carriers},
		{name: "marked", marks: true, apis: []string{"messages"}, stays: true},
		{name: "retention", more: `,"prompt_cache_retention":"24h"`, apis: []string{"chat", "completions", "responses"}, stays: true},
		{name: "let go", more: `,"nvext":{"cache_control":{"ttl":"1h"},"session_control":{"session_id":"one"}}`, then: unpin, apis: []string{"chat"}},
		{name: "turned off", more: pin, apis: []string{"chat"}, flags: []string{"--no-enable-cache-control"}},
	} {
		for _, api := range tt.apis {
			t.Run(tt.name+" "+api, func(t *testing.T) {
				p := serve(t, append([]string{"--workers", "1", "--num-gpu-blocks-override", "128", "--extra-engine-args", `{"pin_budget_g1":0.5,"speedup_ratio":0}`}, tt.flags...)...)
				first := prose("one", 100)
				more := tt.more
				if tt.marks {
					more = mark(first)
				}
				prompt, _ := p.asked(api, first, more)
				if tt.then != "" {
					p.asked(api, first, tt.then)
				}
				for i, computed := 0, 0; computed < 10*128*16; i++ {
					n, _ := p.asked("chat", prose(fmt.Sprint("other", i), 100), "")
					computed += n
				}
				_, cached := p.asked(api, first, "")
				whole := (prompt - 1) / 16 * 16
				if tt.stays && cached < whole-16 || !tt.stays && cached > whole/2 {
					t.Errorf("%d of %d tokens cached, want them to stay: %v", cached, prompt, tt.stays)
				}
				if full := p.counter(`dynago_pins_total{outcome="full"}`); tt.stays && full != 1 {
					t.Errorf("%v pins in full, want 1", full)
				}
			})
		}
	}
}

// A stock engine has no pins. What a client has asked to stay is used again while the
// engine has nothing else to do, and is still there when others have computed more than
// the cache holds; within the budget, and only for who has asked.
func TestKeepWarm(t *testing.T) {
	t.Parallel()
	const blocks = 128
	const pin = `,"nvext":{"cache_control":{"ttl":"1h"}}`
	for _, tt := range []struct {
		name, more string
		api        string
		flags      []string
		stays      bool
	}{
		{"asked", pin, "chat", nil, true},
		{"asked on completions", pin, "completions", nil, true},
		{"not asked", "", "chat", nil, false},
		{"switched off", pin, "chat", []string{"--keep-warm", "off"}, false},
		{"beyond the budget", pin, "chat", []string{"--keep-warm-budget", "0.01"}, false},
		{"marked", `,"cache_control":{"type":"ephemeral"}`, "messages", nil, false},
		{"marked, for all", `,"cache_control":{"type":"ephemeral"}`, "messages", []string{"--keep-warm", "all"}, true},
		{"for a day in our stores", `,"prompt_cache_retention":"24h"`, "chat", []string{"--keep-warm", "all"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := mockOf(t, "dynago/demo", false)
			config.Args.NumGPUBlocks, config.ContextLength = blocks, blocks*16
			v := newVLLM(t, vllm.Config{Mock: config, PromptTokensDetails: true})
			flags := append([]string{"--keep-warm-budget", "0.5", "--model-path", demoFolder(t), "--engine", "vllm=" + host(t, v).URL + ",load.interval=20ms"}, tt.flags...)
			p := serve(t, flags...)
			first := prose("one", 100)
			prompt, _ := p.asked(tt.api, first, tt.more)
			leased := p.counter("dynago_keep_warm_leases")
			requests := 1.0
			for i := range 9 {
				for part := range 2 {
					p.asked("chat", prose(fmt.Sprintf("other%d-%d-", i, part), 100), "")
					requests++
				}
				if leased > 0 {
					before := float64(i)
					until(t, "the prefix was used again", func() bool { return p.counter("dynago_keep_warm_total") > before })
				}
			}
			_, cached := p.asked(tt.api, first, "")
			whole := (prompt - 1) / 16 * 16
			if tt.stays && cached < whole-16 || !tt.stays && cached > whole/2 {
				t.Errorf("%d of %d tokens cached, want them to stay: %v", cached, prompt, tt.stays)
			}
			if held := p.counter("dynago_keep_warm_leased_blocks"); held > blocks/2 {
				t.Errorf("%v of %d blocks leased", held, blocks)
			}
			// Nobody has asked for what was done in between.
			served := 0.0
			for _, m := range regexp.MustCompile(`(?m)^dynamo_frontend_requests_total\{.*\} (\d+)$`).FindAllStringSubmatch(p.page("/metrics"), -1) {
				n, _ := strconv.Atoi(m[1])
				served += float64(n)
			}
			if served != requests+1 {
				t.Errorf("the metrics tell of %v requests, want %v", served, requests+1)
			}
			if strings.Contains(p.log.String(), "panic") {
				t.Error("something panicked")
			}
		})
	}
}

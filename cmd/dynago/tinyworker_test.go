//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// talk is a conversation: what was said in each turn, and how likely each of its tokens
// was and those that could have been said instead.
type talk struct {
	turns  []string
	cached int // tokens that nobody had to compute
}

// converse has a conversation with the model of tiny engines.
func (p *program) converse(turns int) (t talk) {
	p.t.Helper()
	messages := []map[string]string{{"role": "system", "content": "You answer in short sentences, and remember what you are told."}}
	for i := range turns {
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("The colour of thing %d is blue. What is the colour of thing %d?", i, i/2)})
		body, err := json.Marshal(map[string]any{
			"model": "dynago/tiny", "messages": messages, "max_tokens": 40, "temperature": 0, "ignore_eos": true, "logprobs": true, "top_logprobs": 5,
		})
		if err != nil {
			p.t.Fatal(err)
		}
		var answer struct {
			Choices []struct {
				Message  struct{ Content string }
				Logprobs struct{ Content []json.RawMessage }
			}
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		p.post("/v1/chat/completions", string(body), &answer)
		if len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs.Content) != 40 {
			p.t.Fatalf("turn %d: %+v", i, answer)
		}
		c := answer.Choices[0]
		t.turns = append(t.turns, fmt.Sprintf("%s %s", c.Message.Content, c.Logprobs.Content))
		t.cached += answer.Usage.Details.Cached
		messages = append(messages, map[string]string{"role": "assistant", "content": c.Message.Content})
	}
	return t
}

// tinies starts workers with tiny engines, and a server before them.
func tinies(t *testing.T, mode string, workers ...[]string) (*program, []*program) {
	t.Helper()
	var all []*program
	flags := []string{"--log-level", "warn", "--router-mode", mode}
	for _, args := range workers {
		w, spec := attachable(t, append([]string{"worker", "--engine", "tiny", "--listen", "127.0.0.1:0", "--log-level", "warn"}, args...)...)
		all, flags = append(all, w), append(flags, "--engine", spec)
	}
	p := serve(t, flags...)
	p.ready("dynago/tiny")
	return p, all
}

// The text of a conversation, and every log-probability in it, are the same whether
// anything is cached, comes from other tiers, from a store that another worker has
// filled, or from the worker that computes prompts.
func TestTinyWorkersSayTheSame(t *testing.T) {
	const turns = 5
	cold, _ := tinies(t, "round-robin", []string{"--extra-engine-args", `{"enable_prefix_caching":false}`})
	want := cold.converse(turns)
	if want.cached > 0 {
		t.Errorf("%d cached tokens where nothing is", want.cached)
	}
	_, store := startStore(t)
	small := []string{"--num-gpu-blocks-override", "40", "--max-model-len", "640"}
	for name, workers := range map[string][][]string{
		"a cache":      {nil},
		"tiers":        {append(small, "--g2-blocks", "30", "--g3-blocks", "500"), append(small, "--g3-blocks", "500")},
		"a store":      {{"--kv-store", store}, {"--kv-store", "redis://" + store}},
		"prefill here": {{"--extra-engine-args", `{"worker_type":"prefill"}`}, {"--extra-engine-args", `{"worker_type":"decode"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := tinies(t, "round-robin", workers...)
			got := p.converse(turns)
			if !slices.Equal(got.turns, want.turns) {
				t.Errorf("%q, want %q", got.turns, want.turns)
			}
			if got.cached == 0 {
				t.Error("nothing was cached")
			}
			if name == "prefill here" {
				if n := p.handoffs("done"); n != turns {
					t.Errorf("%d hand-offs of %d", n, turns)
				}
			}
		})
	}
}

// A worker is killed under answers: they go on with another one, and say what they
// would have said.
func TestKilledTinyWorker(t *testing.T) {
	const streams, tokens = 4, 900
	p, _ := tinies(t, "round-robin", nil)
	want := make([]said, streams)
	for i := range want {
		s := stream{number: i, pieces: new(atomic.Int64)}
		s.run(p, "dynago/tiny", tokens)
		if s.err != nil || !s.whole || s.usage != tokens {
			t.Fatalf("undisturbed: %+v", s)
		}
		want[i] = s.said
	}
	p, workers := tinies(t, "round-robin", nil, nil)
	all := make([]*stream, streams)
	var running sync.WaitGroup
	for i := range all {
		all[i] = &stream{number: i, pieces: new(atomic.Int64)}
		running.Go(func() { all[i].run(p, "dynago/tiny", tokens) })
	}
	until(t, "all streams have begun", func() bool {
		return !slices.ContainsFunc(all, func(s *stream) bool { return s.pieces.Load() < 3 })
	})
	if err := workers[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	for i, s := range all {
		if s.err != nil || s.said != want[i] {
			t.Errorf("stream %d: %+v, %v; want %+v", i, s.said, s.err, want[i])
		}
	}
	if n := p.counter(`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="dynago/tiny"}`); n == 0 {
		t.Error("nothing has moved")
	}
}

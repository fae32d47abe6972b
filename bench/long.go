package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dynago/dynago/bench/loadgen"
	"github.com/dynago/dynago/internal/demo"
)

// Agents come back with all they have said and a little more. Here eight
// conversations have a past of 48k tokens; each request brings one of them back
// with a new message of 12k, and gets 500 tokens as a stream.
const (
	longShared, longNew, longTokens = 48_000, 12_000, 500

	// conversations take turns, one request of each under way at a time.
	conversations = 8

	// The demo model reads 3.4 bytes of the generator's text as one token.
	longSharedBytes, longNewBytes = 163_200, 40_800
)

// takeLong measures how many such requests one core serves in a second. The
// baseline reads the same bodies and writes the same events from a bare handler.
func takeLong(ctx context.Context, b *bench) ([]part, error) {
	model, err := b.longModel(1 << 17)
	if err != nil {
		return nil, err
	}
	var rate, bareRate []float64
	var seen loadgen.Result
	for range pick(b, 5, 1) {
		own, bare, r, err := b.longRun(ctx, model, pick(b, 1000, 100))
		if err != nil {
			return nil, err
		}
		rate, bareRate, seen = append(rate, own), append(bareRate, bare), r
	}
	p := median("requests per core-second, 60k-token prompts, 500 tokens streamed", "1/s", rate)
	return []part{
		p.against("bare net/http handler", median("", "", bareRate).Value).atLeast(60).aimAtLeast(150).
			noted("prompts of %s to %s tokens, of %s bytes; on average %s of them cached; first event p50 %s ms",
				number(seen.PromptTokens.Min), number(seen.PromptTokens.Max), number(longSharedBytes+longNewBytes),
				number(seen.CachedTokens.Mean), number(seen.FirstEvent.P50/1e3)),
	}, nil
}

// longRun takes one run on fresh processes: requests per second of processor
// time of dynago and of the bare handler.
func (b *bench) longRun(ctx context.Context, model string, requests int) (own, bare float64, seen loadgen.Result, err error) {
	// With room for a million tokens on each worker all conversations stay
	// cached, wherever the load sends them.
	s, err := b.serve(ctx, append([]string{"--model-path", model, "--num-gpu-blocks-override", "65536"}, instant...)...)
	if err != nil {
		return 0, 0, seen, err
	}
	defer s.kill()
	load := []string{
		"-mode", "stream", "-ignore-eos", "-max-tokens", fmt.Sprint(longTokens),
		"-history-bytes", fmt.Sprint(longSharedBytes), "-message-bytes", fmt.Sprint(longNewBytes),
		"-conversations", fmt.Sprint(conversations), "-concurrency", fmt.Sprint(conversations),
	}
	// Each conversation often enough to be cached wherever the load sends it.
	const first = 8 * conversations
	if _, err := b.cleanLoad(ctx, s.url, s.model, append(load, "-n", fmt.Sprint(first))...); err != nil {
		return 0, 0, seen, err
	}
	load = append(load, "-first", fmt.Sprint(first), "-n", fmt.Sprint(requests))
	seen, cpu, err := b.cost(ctx, s.process, s.url, s.model, load...)
	if err != nil {
		return 0, 0, seen, err
	}
	if err := checkLong(seen, requests); err != nil {
		return 0, 0, seen, err
	}
	answer, err := s.record(ctx, b.programs.dir, fmt.Sprintf(
		`{"model":%q,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":"What keeps a river on its way?"}]}`, s.model, longTokens))
	if err != nil {
		return 0, 0, seen, err
	}
	if err := s.stop(); err != nil {
		return 0, 0, seen, err
	}

	handler, url, err := b.baseline(answer, 0)
	if err != nil {
		return 0, 0, seen, err
	}
	defer handler.kill()
	same, bareCPU, err := b.cost(ctx, handler, url, s.model, load...)
	if err != nil {
		return 0, 0, seen, err
	}
	return float64(seen.Requests) / cpu.Seconds(), float64(same.Requests) / bareCPU.Seconds(), seen, nil
}

// checkLong makes sure that the work was what the figure says it is.
func checkLong(r loadgen.Result, requests int) error {
	const prompt, slack = longShared + longNew, 0.03 // of it; no two texts have the same number of tokens
	switch {
	case r.Requests != requests:
		return fmt.Errorf("%d requests were answered, %d were sent", r.Requests, requests)
	case r.Tokens != requests*longTokens:
		return fmt.Errorf("%d tokens came, %d were asked for", r.Tokens, requests*longTokens)
	case r.PromptTokens.Min < prompt*(1-slack) || r.PromptTokens.Max > prompt*(1+slack):
		return fmt.Errorf("prompts have %v to %v tokens, want %d within %v%%", r.PromptTokens.Min, r.PromptTokens.Max, prompt, 100*slack)
	case r.CachedTokens.Max > longShared*(1+slack):
		return fmt.Errorf("%v tokens of one prompt were cached, though only %d can have been sent before", r.CachedTokens.Max, longShared)
	case r.CachedTokens.Mean < 0.9*longShared:
		return fmt.Errorf("on average %v tokens of a prompt were cached, want most of the %d that were sent before", r.CachedTokens.Mean, longShared)
	}
	return nil
}

// longModel writes the demo model into the scratch folder, made for a context of so
// many tokens: its own ends at 32k.
func (b *bench) longModel(context int) (dir string, err error) {
	dir = filepath.Join(b.programs.dir, fmt.Sprintf("long-%d", context))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		text, err := demo.File(name)
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(name, "config.json") {
			text = []byte(strings.ReplaceAll(string(text), "32768", strconv.Itoa(context)))
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", fmt.Errorf("model for long prompts: %w", err)
		}
	}
	return dir, nil
}

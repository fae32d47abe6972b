package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/dynago/dynago/internal/demo"
)

// attached is dynago before an engine in a process of its own.
type attached struct {
	*server
	engine *process
}

func (a *attached) kill() {
	a.server.kill()
	a.engine.kill()
}

// attach starts an imitated vLLM, and dynago before it.
func (b *bench) attach(ctx context.Context, flags ...string) (*attached, error) {
	model, err := b.model()
	if err != nil {
		return nil, err
	}
	engine, url, err := b.imitate(append([]string{"--model-path", model}, flags...)...)
	if err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, "--engine", "vllm="+url, "--model-path", model)
	if err != nil {
		engine.kill()
		return nil, err
	}
	return &attached{s, engine}, nil
}

// model writes the demo model as one that lies on disk, and returns where.
func (b *bench) model() (dir string, err error) {
	dir = filepath.Join(b.programs.dir, "demo")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"} {
		text, err := demo.File(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

var imitated = regexp.MustCompile(`on (http://\S+)`)

// imitate starts a mock engine that speaks vLLM's own HTTP.
func (b *bench) imitate(flags ...string) (p *process, url string, err error) {
	return b.told(exec.Command(b.programs.dynago, append([]string{"mocker", "--api", "vllm", "--http-port", "0"}, flags...)...), imitated)
}

// proxy starts the standard library's reverse proxy before a server.
func (b *bench) proxy(target string) (p *process, url string, err error) {
	return b.told(exec.Command(b.programs.proxy, "-target", target), regexp.MustCompile(`(http://\S+)`))
}

// told starts a program that says where it listens, and returns that.
func (b *bench) told(command *exec.Cmd, address *regexp.Regexp) (p *process, url string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	command.Stdout = in
	p, err = start(command)
	in.Close()
	if err != nil {
		out.Close()
		return nil, "", err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if found := address.FindStringSubmatch(lines.Text()); found != nil {
			go func() { // what else it says must not block it
				defer out.Close()
				for lines.Scan() {
				}
			}()
			return p, found[1], nil
		}
	}
	out.Close()
	defer p.kill()
	return nil, "", fmt.Errorf("%s told no address: %s", p.name, p.lastWords(5))
}

// takeUnaryHTTP measures what one short chat costs where the engine is reached by
// HTTP, against a proxy that passes on the same answer.
func takeUnaryHTTP(ctx context.Context, b *bench) ([]part, error) {
	l := passing{
		request: fmt.Sprintf(`"max_tokens":%s`, shortTokens),
		flags: []string{
			"-mode", "unary", "-words", shortWords, "-max-tokens", shortTokens, "-seed", "43", "-concurrency", "16",
			"-duration", pick(b, 5*time.Second, time.Second).String(),
		},
		engine: instant,
		unit:   func(r units) int { return r.Requests },
	}
	p, err := b.passed(ctx, "CPU per short unary chat, engine by HTTP", l)
	if err != nil {
		return nil, err
	}
	return []part{p[0], p[1].atMost(2).aim(1.3)}, nil
}

// takeStreamsHTTP measures what one event costs that an engine streams by HTTP,
// against a proxy that passes on the same events.
func takeStreamsHTTP(ctx context.Context, b *bench) ([]part, error) {
	const streams = 200
	tokens := 50 * pick(b, 12, 3)
	pacing, err := b.paced()
	if err != nil {
		return nil, err
	}
	l := passing{
		request: fmt.Sprintf(`"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"max_tokens":%d`, tokens),
		flags: []string{
			"-mode", "stream", "-words", shortWords, "-ignore-eos",
			"-concurrency", fmt.Sprint(streams), "-n", fmt.Sprint(streams), "-max-tokens", fmt.Sprint(tokens),
		},
		engine:   pacing,
		interval: 20 * time.Millisecond,
		unit:     func(r units) int { return r.Events },
	}
	p, err := b.passed(ctx, "CPU per streamed event, 200 streams paced at 50/s, engine by HTTP", l)
	if err != nil {
		return nil, err
	}
	return []part{p[0], p[1].atMost(1.2).aim(0.7)}, nil
}

// units are what a load has brought.
type units struct{ Requests, Events int }

// passing is a load whose answers dynago takes from an engine by HTTP, and a proxy
// from a handler that repeats one of them.
type passing struct {
	request  string   // members of one like those of the load
	flags    []string // of the load
	engine   []string // flags
	interval time.Duration
	unit     func(units) int
}

// passed repeats a load, and returns dynago's cost and how often that is the
// proxy's.
func (b *bench) passed(ctx context.Context, what string, l passing) ([2]part, error) {
	var own, proxied, ratios []float64
	for range pick(b, 5, 1) {
		o, p, err := b.passedOnce(ctx, l)
		if err != nil {
			return [2]part{}, err
		}
		own, proxied, ratios = append(own, o), append(proxied, p), append(ratios, o/p)
	}
	return [2]part{
		median(what, "µs", own).against("httputil.ReverseProxy", median("", "", proxied).Value),
		median("against that of httputil.ReverseProxy", "×", ratios),
	}, nil
}

// passedOnce takes one run on fresh processes: cost in microseconds of dynago and
// of the proxy.
func (b *bench) passedOnce(ctx context.Context, l passing) (own, proxied float64, err error) {
	s, err := b.attach(ctx, l.engine...)
	if err != nil {
		return 0, 0, err
	}
	defer s.kill()
	if _, err := b.cleanLoad(ctx, s.url, s.model, "-mode", "unary", "-seed", "7", "-concurrency", "16", "-n", "200", "-max-tokens", "1"); err != nil {
		return 0, 0, err
	}
	if own, err = b.passCost(ctx, s.process, s.url, s.model, l); err != nil {
		return 0, 0, err
	}
	answer, err := s.record(ctx, b.programs.dir, fmt.Sprintf(
		`{"model":%q,%s,"messages":[{"role":"user","content":"What keeps a river on its way?"}]}`, s.model, l.request))
	if err != nil {
		return 0, 0, err
	}
	if err := s.stop(); err != nil {
		return 0, 0, err
	}
	handler, url, err := b.baseline(answer, l.interval)
	if err != nil {
		return 0, 0, err
	}
	defer handler.kill()
	proxy, url, err := b.proxy(url)
	if err != nil {
		return 0, 0, err
	}
	defer proxy.kill()
	proxied, err = b.passCost(ctx, proxy, url, s.model, l)
	return own, proxied, err
}

// passCost is what a process spends on a unit of the load.
func (b *bench) passCost(ctx context.Context, p *process, url, model string, l passing) (float64, error) {
	r, cpu, err := b.cost(ctx, p, url, model, l.flags...)
	if err != nil {
		return 0, err
	}
	return micros(cpu, l.unit(units{r.Requests, r.Events})), nil
}

//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// attachable starts a process that holds an engine, and returns it and what stands
// behind --engine for it.
func attachable(t *testing.T, args ...string) (*program, string) {
	t.Helper()
	p := start(t, "--engine", args...)
	m := regexp.MustCompile(`dynago serve --engine (\S+)`).FindStringSubmatch(p.banner)
	if m == nil {
		t.Fatalf("no line to serve it in\n%s", p.banner)
	}
	return p, m[1]
}

// paced are arguments of engines that take their time: enough for something to happen
// under a stream.
func paced(decodeMS int) string {
	return fmt.Sprintf(`{"timing_model":"constant","prefill_ms":1,"decode_ms":%d}`, decodeMS)
}

// stream is one of many that run at once.
type stream struct {
	number int
	pieces *atomic.Int64 // that came so far
	said
	err error
}

// prompt is another one for each stream, and begins as those of its kind.
func (s *stream) prompt() string {
	return fmt.Sprintf("Tell me of river %d of the %d that cross Paris, and of its bridges.", s.number, s.number%7)
}

// run reads the stream to its end.
func (s *stream) run(p *program, model string, tokens int) {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,"temperature":0,"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, model, tokens, s.prompt())
	resp, err := http.DefaultClient.Do(p.request(context.Background(), "POST", p.url+"/v1/chat/completions", body))
	if err != nil {
		s.err = err
		return
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case data == "[DONE]":
			s.whole = true
		case ok:
			s.hear(data)
		}
	}
	if s.err == nil {
		s.err = lines.Err()
	}
}

func (s *stream) hear(data string) {
	var event struct {
		Choices []struct {
			Delta struct {
				Content  string
				Thoughts string `json:"reasoning_content"`
			}
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
		Error json.RawMessage
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil || event.Error != nil {
		s.err = fmt.Errorf("%v in %s", err, data)
		return
	}
	s.usage = max(s.usage, event.Usage.Completion)
	for _, c := range event.Choices {
		if piece := c.Delta.Thoughts + c.Delta.Content; piece != "" {
			s.text += piece
			s.pieces.Add(1)
		}
	}
}

// Worker processes are killed under two hundred streams, one after another, until one
// is left: no stream is lost, and each says what it would have said.
func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	const streams, tokens = 200, 80
	files := demoFolder(t)
	quick := serve(t, "--workers", "1", "--speedup-ratio", "0", "--log-level", "warn")
	want := make([]said, streams)
	for i := range want {
		s := stream{number: i, pieces: new(atomic.Int64)}
		s.run(quick, "dynago/demo", tokens)
		if s.err != nil || !s.whole || s.usage != tokens {
			t.Fatalf("undisturbed: %+v", s)
		}
		want[i] = s.said
	}
	quick.signal(syscall.SIGTERM)
	for name, args := range map[string][]string{
		"vllm over HTTP":   {"mocker", "--api", "vllm", "--http-port", "0"},
		"workers over RPC": {"worker", "--engine", "mock", "--listen", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			var workers []*program
			flags := []string{"--router-mode", "round-robin", "--log-level", "warn", "--model-path", files}
			for range 3 {
				w, spec := attachable(t, append(args, "--extra-engine-args", paced(40))...)
				workers, flags = append(workers, w), append(flags, "--engine", spec)
			}
			p := serve(t, flags...)
			until(t, "all workers are ready", func() bool {
				_, page := p.get(p.url + "/metrics")
				return strings.Count(page, "dynamo_component_router_worker_registered{") == 3
			})
			all := make([]*stream, streams)
			var running sync.WaitGroup
			for i := range all {
				all[i] = &stream{number: i, pieces: new(atomic.Int64)}
				running.Go(func() { all[i].run(p, "dynago/demo", tokens) })
			}
			for i, at := range []int64{5, 25} {
				until(t, fmt.Sprintf("all streams have begun, %d pieces", at), func() bool {
					for _, s := range all {
						if s.pieces.Load() < at {
							return false
						}
					}
					return true
				})
				if err := workers[i].cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			running.Wait()
			for i, s := range all {
				if s.err != nil || s.said != want[i] {
					t.Errorf("stream %d: %+v, %v; want %+v", i, s.said, s.err, want[i])
				}
			}
			_, page := p.get(p.url + "/metrics")
			moved := regexp.MustCompile(`dynamo_frontend_model_migration_total\{migration_type="ongoing_request",model="dynago/demo"\} (\d+)`).FindStringSubmatch(page)
			if moved == nil || moved[1] == "0" {
				t.Errorf("nothing has moved: %v", moved)
			}
			if !regexp.MustCompile(`model_migration_duration_seconds_count\{migration_type="(new|ongoing)_request",model="dynago/demo",outcome="success"\} [1-9]`).MatchString(page) || strings.Contains(page, `outcome="failure"`) {
				t.Errorf("of moves the page tells\n%s", page)
			}
			if loads := regexp.MustCompile(`dynago_worker_active_requests\{.*\} 0\n`).FindAllString(page, -1); len(loads) == 0 || len(loads) != strings.Count(page, "dynago_worker_active_requests{") {
				t.Errorf("booked after the end: %q of\n%s", loads, page)
			}
		})
	}
}

// One of two prefill workers and one of two decode workers are killed under streams:
// no stream is lost, whatever leg it was in.
func TestKilledLegs(t *testing.T) {
	t.Parallel()
	const streams, tokens = 60, 60
	want := alone(t, streams, tokens)
	workers := map[string][]*program{}
	flags := []string{"--log-level", "warn", "--router-mode", "round-robin", "--model-path", demoFolder(t)}
	for _, role := range []string{"prefill", "decode"} {
		for range 2 {
			args := fmt.Sprintf(`{"worker_type":%q,"timing_model":"constant","prefill_ms":20,"decode_ms":30}`, role)
			w, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--extra-engine-args", args)
			workers[role], flags = append(workers[role], w), append(flags, "--engine", spec)
		}
	}
	p := serve(t, flags...)
	until(t, "all workers are ready", func() bool {
		_, page := p.get(p.url + "/metrics")
		return strings.Count(page, "dynamo_component_router_worker_registered{") == 4
	})
	p.ready("dynago/demo")
	all := make([]*stream, streams)
	var running sync.WaitGroup
	begin := func(from, to int) {
		for i := from; i < to; i++ {
			all[i] = &stream{number: i, pieces: new(atomic.Int64)}
			running.Go(func() { all[i].run(p, "dynago/demo", tokens) })
		}
	}
	begin(0, streams/2)
	until(t, "half of the streams have begun", func() bool {
		for _, s := range all[:streams/2] {
			if s.pieces.Load() < 3 {
				return false
			}
		}
		return true
	})
	begin(streams/2, streams) // their prompts are being computed
	for _, role := range []string{"prefill", "decode"} {
		if err := workers[role][0].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	running.Wait()
	for i, s := range all {
		if s.err != nil || s.said != want[i] {
			t.Errorf("stream %d: %+v, %v; want %+v", i, s.said, s.err, want[i])
		}
	}
	if n := p.handoffs("done"); n <= streams {
		t.Errorf("%d hand-offs for %d streams of which some have moved", n, streams)
	}
}

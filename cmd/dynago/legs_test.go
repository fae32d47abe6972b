//go:build unix

package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/trtllm"
)

// freePorts returns the first of n ports in a row that nobody has just now.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		first, free := l.Addr().(*net.TCPAddr).Port, true
		l.Close()
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
			if free = free && err == nil; err == nil {
				l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no ports in a row are free")
	return 0
}

// alone is what one worker says to the first of these streams.
func alone(t *testing.T, streams, tokens int) []said {
	t.Helper()
	p := serve(t, "--workers", "1", "--speedup-ratio", "0", "--log-level", "warn")
	list := make([]said, streams)
	for i := range list {
		s := stream{number: i, pieces: new(atomic.Int64)}
		s.run(p, "dynago/demo", tokens)
		if s.err != nil || !s.whole || s.usage != tokens {
			t.Fatalf("alone: %+v", s)
		}
		list[i] = s.said
	}
	return list
}

// handoffs returns how many hand-offs came to an end of this kind.
func (p *program) handoffs(outcome string) int {
	p.t.Helper()
	_, page := p.get(p.url + "/metrics")
	_, rest, _ := strings.Cut(page, `dynago_handoffs_total{outcome="`+outcome+`"} `)
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatalf("hand-offs that are %s: %v", outcome, err)
	}
	return n
}

// says runs streams at once, and compares them.
func (p *program) says(want []said, tokens int) {
	p.t.Helper()
	var running sync.WaitGroup
	for i := range want {
		running.Go(func() {
			s := stream{number: i, pieces: new(atomic.Int64)}
			s.run(p, "dynago/demo", tokens)
			if s.err != nil || s.said != want[i] {
				p.t.Errorf("stream %d: %+v, %v; want %+v", i, s.said, s.err, want[i])
			}
		})
	}
	running.Wait()
}

// Mock engines of both roles in one process say what one of them says alone, whether
// their legs run one after the other or at once.
func TestServePrefillWorkers(t *testing.T) {
	want := alone(t, 10, 30)
	for name, args := range map[string]string{
		"one after the other": `{"kv_bytes_per_token":1000,"kv_transfer_bandwidth":1}`,
		"at once":             fmt.Sprintf(`{"bootstrap_port":%d}`, freePorts(t, 2)),
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, "--workers", "2", "--num-prefill-workers", "2", "--log-level", "warn", "--speedup-ratio", "100", "--extra-engine-args", args)
			p.says(want, 30)
			if n := p.handoffs("done"); n != 10 {
				t.Errorf("%d hand-offs", n)
			}
		})
	}
}

// Servers of both roles in processes of their own. The hand-off of each kind of
// engine is another one, and the answer is the same.
func TestServePairs(t *testing.T) {
	t.Parallel()
	const streams, tokens = 20, 30
	want := alone(t, streams, tokens)
	files := demoFolder(t)
	for name, of := range map[string]func(t *testing.T) (specs []string){
		"mock workers over RPC": func(t *testing.T) (specs []string) {
			for _, role := range []string{"prefill", "decode"} {
				_, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--speedup-ratio", "0", "--extra-engine-args", fmt.Sprintf(`{"worker_type":%q}`, role))
				specs = append(specs, spec)
			}
			return specs
		},
		"vllm": func(t *testing.T) (specs []string) {
			for _, role := range []string{"prefill", "decode"} {
				_, spec := attachable(t, "mocker", "--api", "vllm", "--http-port", "0", "--speedup-ratio", "0",
					"--extra-engine-args", fmt.Sprintf(`{"worker_type":%q}`, role),
					"--mocker-config", `{"quirks":{"transfer":{"connector":"NixlConnector","role":"kv_both"}}}`)
				specs = append(specs, spec+",role="+role)
			}
			return specs
		},
		"sglang": func(t *testing.T) (specs []string) {
			meeting := &sglang.Bootstrap{}
			for _, mode := range []string{"prefill", "decode"} {
				s, err := sglang.New(sglang.Config{Mock: mockOf(t, "dynago/demo", false), Mode: mode, Bootstrap: meeting})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				specs = append(specs, "sglang="+host(t, s).URL)
			}
			return specs
		},
		"trtllm": func(t *testing.T) (specs []string) {
			between := &trtllm.Transceiver{}
			for _, role := range []string{"prefill", "decode"} {
				m, err := mock.New(mockOf(t, "dynago/demo", false))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				s := trtllm.New(trtllm.Config{Model: "dynago/demo", Engine: m, Transceiver: between})
				t.Cleanup(s.Close)
				specs = append(specs, "trtllm="+host(t, s).URL+",context_length=4096,role="+role)
			}
			return specs
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--log-level", "warn", "--model-path", files}
			for _, spec := range of(t) {
				args = append(args, "--engine", spec)
			}
			p := serve(t, args...)
			until(t, "both are ready", func() bool {
				_, page := p.get(p.url + "/metrics")
				return strings.Count(page, "dynamo_component_router_worker_registered{") == 2
			})
			p.ready("dynago/demo")
			before := p.handoffs("done")
			p.says(want, tokens)
			if n := p.handoffs("done") - before; n != streams {
				t.Errorf("%d hand-offs", n)
			}
		})
	}
}

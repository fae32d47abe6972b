//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// talk is a conversation: what was said in each turn, and how likely each of its tokens
// was and those that could have been said instead.
type talk struct {
	turns  []string
	cached []int // tokens of each prompt that nobody had to compute
}

// converse has a conversation of five turns with the model of tiny engines, as a tenant,
// and lets something happen after each of them.
func (p *program) converse(tenant string, between func()) (t talk) {
	p.t.Helper()
	messages := []map[string]string{{"role": "system", "content": "You answer in short sentences, and remember what you are told."}}
	for i := range 5 {
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("The colour of thing %d is blue. What is the colour of thing %d?", i, i/2)})
		body, err := json.Marshal(map[string]any{
			"model": "dynago/tiny", "messages": messages, "max_tokens": 40, "temperature": 0, "ignore_eos": true, "logprobs": true, "top_logprobs": 5,
			"cache_salt": tenant,
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
		t.cached = append(t.cached, answer.Usage.Details.Cached)
		messages = append(messages, map[string]string{"role": "assistant", "content": c.Message.Content})
		between()
	}
	return t
}

// tinies starts workers with tiny engines, and a server before them.
func tinies(t *testing.T, mode string, workers ...[]string) (*program, []*program) {
	t.Helper()
	var all []*program
	flags := []string{"--log-level", "warn", "--router-mode", mode}
	for _, args := range workers {
		w := start(t, "/metrics", append([]string{"worker", "--engine", "tiny", "--listen", "127.0.0.1:0", "--system-port", "0", "--log-level", "warn"}, args...)...)
		said := regexp.MustCompile(`--engine (\S+)\s+metrics +(\S+)/metrics`).FindStringSubmatch(w.banner)
		if said == nil {
			t.Fatalf("no line to serve it in, or no page\n%s", w.banner)
		}
		w.url = said[2]
		all, flags = append(all, w), append(flags, "--engine", said[1])
	}
	p := serve(t, flags...)
	p.ready("dynago/tiny")
	return p, all
}

// bucket returns a store in an object store: the one that S3_ENDPOINT names, as in
// make e2e-s3, or one of this test.
func bucket(t *testing.T) string {
	t.Helper()
	name, endpoint := os.Getenv("S3_BUCKET"), os.Getenv("S3_ENDPOINT")
	if endpoint == "" {
		name = "blocks"
		objects := s3mem.New()
		if err := objects.CreateBucket(name); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(gofakes3.New(objects).Server())
		t.Cleanup(server.Close)
		endpoint = server.URL
	}
	t.Setenv("DYN_KVBM_OBJECT_ENDPOINT", endpoint)
	t.Setenv("DYN_KVBM_OBJECT_ACCESS_KEY", os.Getenv("S3_ACCESS_KEY"))
	t.Setenv("DYN_KVBM_OBJECT_SECRET_KEY", os.Getenv("S3_SECRET_KEY"))
	return fmt.Sprintf("s3://%s/tiny%d", name, time.Now().UnixNano())
}

// The text of a conversation, and every log-probability in it, are the same whether
// anything is cached, comes from other tiers, from a store that another worker has
// filled, or from the worker that computes prompts; and the pages of the workers tell
// that it did come from there. One tenant finds nothing of another, and is told the same.
func TestTinyWorkersSayTheSame(t *testing.T) {
	cold, _ := tinies(t, "round-robin", []string{"--extra-engine-args", `{"enable_prefix_caching":false}`})
	want := cold.converse("", func() {})
	if slices.Max(want.cached) > 0 {
		t.Errorf("%d cached tokens where nothing is", want.cached)
	}
	small := func(more ...string) []string {
		return append([]string{"--num-gpu-blocks-override", "40", "--max-model-len", "640"}, more...)
	}
	two := func(flags ...string) [][]string { return [][]string{flags, flags} }
	const device, host, disk, external, pulled = `dynago_kv_hit_tokens_total{dp_rank="0",pool="device"`, `dynago_kv_hit_tokens_total{dp_rank="0",pool="host_pinned"`,
		`dynago_kv_hit_tokens_total{dp_rank="0",pool="disk"`, `dynago_kv_hit_tokens_total{dp_rank="0",pool="external"`, "dynago_kv_pulled_blocks_total{"
	for _, tt := range []struct {
		name    string
		workers func(t *testing.T) [][]string
		from    string // what counts what was not computed, on the pages of the workers
	}{
		{"a cache", func(*testing.T) [][]string { return [][]string{nil} }, device},
		{"host memory", func(*testing.T) [][]string { return [][]string{small("--g2-blocks", "500")} }, host},
		{"a disk", func(*testing.T) [][]string { return [][]string{small("--g3-blocks", "500")} }, disk},
		{"a disk below a small host", func(*testing.T) [][]string { return [][]string{small("--g2-blocks", "30", "--g3-blocks", "500")} }, disk},
		{"a store", func(t *testing.T) [][]string {
			_, store := startStore(t)
			return [][]string{{"--kv-store", store}, {"--kv-store", "redis://" + store}}
		}, external},
		{"a bucket", func(t *testing.T) [][]string { return two("--kv-store", bucket(t)) }, external},
		{"prefill here", func(*testing.T) [][]string {
			return [][]string{{"--extra-engine-args", `{"worker_type":"prefill"}`}, {"--extra-engine-args", `{"worker_type":"decode"}`}}
		}, pulled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, workers := tinies(t, "round-robin", tt.workers(t)...)
			found := func() (n float64) {
				for _, w := range workers {
					n += w.sum(tt.from)
				}
				return n
			}
			// What is below the device is written when there is time for it, and asked for
			// its blocks for a moment only: on a busy machine it may take another tenant.
			tenants := 0
			for tenants < 2 || found() == 0 {
				if tenants++; tenants > 40 || t.Failed() {
					t.Fatalf("after %d tenants no page has counted %s…", tenants-1, tt.from)
				}
				got := p.converse(fmt.Sprint("tenant ", tenants), func() {
					if tt.from == host || tt.from == disk { // more comes between than the device has room for
						p.told("dynago/tiny", fmt.Sprintf("%d is a number. ", tenants)+strings.Repeat("The moon is white. ", 50))
					}
				})
				if !slices.Equal(got.turns, want.turns) {
					t.Errorf("%q, want %q", got.turns, want.turns)
				}
				if got.cached[0] != 0 || slices.Max(got.cached) == 0 {
					t.Errorf("%d cached tokens, want none in the first turn alone", got.cached)
				}
			}
			if tt.from == pulled {
				if n := p.handoffs("done"); n != tenants*len(want.turns) {
					t.Errorf("%d hand-offs of %d", n, tenants*len(want.turns))
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

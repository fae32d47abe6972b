//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dynago/dynago/fleet"
)

// mocker starts "dynago mocker --api" on a free port, and returns it with what
// --engine says of it.
func mocker(t *testing.T, api string, args ...string) (p *program, engine string) {
	t.Helper()
	p = start(t, "  serve ", append([]string{"mocker", "--api", api, "--http-port", "0", "--model-name", "m", "--speedup-ratio", "0"}, args...)...)
	return p, regexp.MustCompile(`--engine (\S+)`).FindStringSubmatch(p.banner)[1]
}

// eventful makes a mocker publish KV events.
var eventful = []string{"--kv-events-config", `{"endpoint":"tcp://127.0.0.1:*","replay_endpoint":"tcp://127.0.0.1:*","topic":"kv"}`}

// attachment is a server before two mockers.
type attachment struct {
	*program
	mockers []*program
}

// attachTo starts a server before engines.
func attachTo(t *testing.T, mockers []*program, engines ...string) *attachment {
	t.Helper()
	args := []string{"--model-path", demoFolder(t)}
	for _, e := range engines {
		args = append(args, "--engine", e+",load.interval=20ms")
	}
	a := &attachment{serve(t, args...), mockers}
	a.ready("m")
	return a
}

// blocksOf returns what is cached of a mocker, sorted.
func (p *program) blocksOf() []uint64 {
	p.t.Helper()
	_, text := p.get(p.url + "/admin/cache")
	var ranks []struct {
		Blocks []uint64 `json:"tokens_hashes"`
	}
	if err := json.Unmarshal([]byte(text), &ranks); err != nil {
		p.t.Fatalf("%v in %s", err, text)
	}
	var all []uint64
	for _, r := range ranks {
		all = append(all, r.Blocks...)
	}
	slices.Sort(all)
	return all
}

// index returns what the server believes to be cached, by the ids of workers, sorted.
func (a *attachment) index() map[string][]uint64 {
	a.t.Helper()
	_, text := a.get(a.url + "/admin/router/select/dump")
	var dump map[string]struct {
		Events []struct {
			Worker json.Number `json:"worker_id"`
			Event  struct {
				Data struct {
					Stored struct {
						Blocks []struct {
							Hash uint64 `json:"tokens_hash"`
						} `json:"blocks"`
					} `json:"stored"`
				} `json:"data"`
			} `json:"event"`
		} `json:"events"`
	}
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		a.t.Fatalf("%v in %s", err, text)
	}
	index := map[string][]uint64{}
	for _, part := range dump {
		for _, e := range part.Events {
			id := e.Worker.String()
			for _, b := range e.Event.Data.Stored.Blocks {
				index[id] = append(index[id], b.Hash)
			}
		}
	}
	for _, blocks := range index {
		slices.Sort(blocks)
	}
	return index
}

// settle waits until the server knows exactly what its engines have cached.
func (a *attachment) settle() {
	a.t.Helper()
	differs := ""
	defer func() {
		if a.t.Failed() {
			a.t.Logf("last: %s", differs)
		}
	}()
	until(a.t, "what is known is what is cached", func() bool {
		index := a.index()
		for _, m := range a.mockers {
			known := index[strconv.FormatUint(fleet.ID(m.url), 10)]
			if there := m.blocksOf(); !slices.Equal(known, there) {
				differs = fmt.Sprintf("%s: %d blocks are known, %d are there", m.url, len(known), len(there))
				return false
			}
		}
		return true
	})
}

// turn asks with a prompt, and returns what was expected to be cached of it and
// what was; -1 if its engine is not known yet to tell. Of a prompt that is cached to
// its end the last block is computed again.
func (a *attachment) turn(content string, blockSize int) (predicted, cached int) {
	a.t.Helper()
	r := a.send("/v1/chat/completions", fmt.Sprintf(`{"model":"m","max_tokens":4,"temperature":0,"messages":[{"role":"user","content":%q}]}`, content))
	var got struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != 200 {
		a.t.Fatalf("%d %s, %v", r.status, r.body, err)
	}
	_, text := a.get(a.url + "/admin/decisions?n=1")
	var told struct {
		Decisions []struct {
			Predicted int `json:"predicted_cached_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil || len(told.Decisions) != 1 {
		a.t.Fatalf("%v in %s", err, text)
	}
	most := (got.Usage.Prompt - 1) / blockSize * blockSize
	if d := got.Usage.Details; d == nil || d.Cached == nil {
		return 0, -1
	}
	return min(told.Decisions[0].Predicted, most), *got.Usage.Details.Cached
}

// question is the i-th of a few that share their beginnings.
func question(i int) string {
	return strings.Repeat(fmt.Sprintf("The %d rivers of the valley. ", i%3), 6+i%5) + strings.Repeat(fmt.Sprintf("And of %d others. ", i), i%4)
}

// configure changes what happens to a mocker.
func (p *program) configure(document string) {
	p.t.Helper()
	if r := p.send("/admin/config", document); r.status != 200 {
		p.t.Fatalf("%d %s", r.status, r.body)
	}
}

// The whole way, through the built binary: engines publish over real sockets, and
// the server predicts what they find in their caches, whatever happens on the way.
func TestEventsEndToEnd(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"vllm", "sglang"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			small := append([]string{"--num-gpu-blocks-override", "60"}, eventful...)
			first, one := mocker(t, api, small...)
			second, two := mocker(t, api, small...)
			a := attachTo(t, []*program{first, second}, one, two)
			// Nothing goes wrong: each prediction is true.
			told, hits := 0, 0
			for i := range 30 {
				a.settle()
				predicted, cached := a.turn(question(i), 16)
				if cached < 0 {
					continue
				}
				if told++; predicted != cached {
					t.Errorf("turn %d: %d tokens were expected to be cached, %d were", i, predicted, cached)
				}
				hits += cached
			}
			if told < 10 || hits == 0 {
				t.Errorf("%d times it was told what was cached, %d tokens in all", told, hits)
			}

			// Events are lost on the way, told twice, and of blocks that are not there.
			first.configure(`{"events": {"lose": 2, "repeat": 3}}`)
			second.configure(`{"events": {"lose": 3}}`)
			for i := range 24 {
				a.turn(question(100+i), 16)
			}
			first.configure(`{"events": {"lose": 0, "repeat": 0}}`)
			second.configure(`{"events": {"lose": 0}}`)
			for i := 0; i < 8; i++ { // the next event shows that some are missing
				a.turn(fmt.Sprintf("%d: %s", i, question(i)), 16)
			}
			a.settle()

			// An engine is started anew where it was.
			if r := first.send("/admin/restart", ""); r.status != 200 {
				t.Fatalf("%d %s", r.status, r.body)
			}
			until(t, "the restart is noticed", func() bool { return strings.Contains(a.log.String(), "worker has restarted") })
			a.settle()
			for i := range 12 {
				predicted, cached := a.turn(question(i), 16)
				if cached >= 0 && predicted != cached {
					t.Errorf("after the restart, turn %d: %d tokens were expected to be cached, %d were", i, predicted, cached)
				}
				a.settle()
			}
		})
	}
}

// An engine that comes back with blocks of another size is another one: what was
// known of it is of no use, and is not believed.
func TestBlockSizeChanges(t *testing.T) {
	t.Parallel()
	p, engine := mocker(t, "vllm", eventful...)
	a := attachTo(t, []*program{p}, engine)
	for i := range 6 {
		a.turn(question(i), 16)
	}
	a.settle()
	u, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	ports := regexp.MustCompile(`events=(\S+),replay=(\S+)`).FindStringSubmatch(engine)
	p.signal(syscall.SIGKILL)
	p.wait()
	again := start(t, "  serve ", "mocker", "--api", "vllm", "--http-port", u.Port(), "--model-name", "m", "--speedup-ratio", "0", "--kv-cache-block-size", "32",
		"--kv-events-config", fmt.Sprintf(`{"endpoint":%q,"replay_endpoint":%q,"topic":"kv"}`, ports[1], ports[2]))
	a.mockers = []*program{again}
	a.ready("m")
	for i := range 12 {
		a.settle()
		predicted, cached := a.turn(question(i%6), 32)
		if cached >= 0 && (predicted != cached || cached%32 != 0) {
			t.Errorf("turn %d: %d tokens were expected to be cached, %d were", i, predicted, cached)
		}
	}
}

// Every engine that can be imitated can be attached as it says, found out, and
// misbehave as it is told to.
func TestMockers(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"vllm", "sglang", "trtllm", "llamacpp", "ollama", "openai"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			p, engine := mocker(t, api, "--num-gpu-blocks-override", "512")
			a := attachTo(t, nil, engine)
			p.configure(`{faults: {fail: [internal_error]}}`)
			if r := a.send("/v1/chat/completions", single("m")); r.status < 500 {
				t.Errorf("an engine that fails: %d %s", r.status, r.body)
			}
			p.configure(`{faults: {fail: []}}`)
			a.ready("m")
			if r := p.send("/admin/config", `{faults: {fails: []}}`); r.status != 400 || !strings.Contains(r.body, "faults.fails: there is no such key") {
				t.Errorf("an unknown key: %d %s", r.status, r.body)
			}
			if r := p.send("/admin/config", `{quirks: {none: 1}}`); r.status != 400 || !strings.Contains(r.body, "quirks: none: there is no such key; there are ") {
				t.Errorf("an unknown quirk: %d %s", r.status, r.body)
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// What is printed is enough: no flag says where the demo model's files are, how long
// its prompts may be or where events are told.
func TestMockersAsPrinted(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"vllm", "sglang", "trtllm", "llamacpp", "ollama", "openai"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			args := []string{"mocker", "--api", api, "--http-port", "0", "--speedup-ratio", "0"}
			if api == "vllm" || api == "sglang" {
				args = append(args, eventful...)
			}
			p := start(t, "  serve ", args...)
			_, printed, _ := strings.Cut(p.banner, "  serve    dynago serve ")
			a := serve(t, strings.Fields(printed)...)
			a.ready("dynago/demo")
			if r := a.send("/v1/chat/completions", single("dynago/demo")); r.status != 200 {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
}

// Quirks are those of another process: it begins a life with them, at the same
// address.
func TestMockerQuirks(t *testing.T) {
	t.Parallel()
	p, _ := mocker(t, "vllm", "--mocker-config", `{quirks: {version: "0.11.0", no_generate: true}}`)
	generate := func() int { return p.send("/inference/v1/generate", "{}").status }
	if status := generate(); status != 404 {
		t.Errorf("a build without the route: %d", status)
	}
	p.configure(`{quirks: {no_generate: false}}`)
	if status := generate(); status != 422 {
		t.Errorf("a build with the route: %d", status)
	}
	if _, text := p.get(p.url + "/version"); !strings.Contains(text, "0.11.0") {
		t.Errorf("the version was forgotten: %s", text)
	}
	if _, text := p.get(p.url + "/admin/config"); !strings.Contains(text, `"no_generate":false`) {
		t.Errorf("told %s", text)
	}
}

// Servers of one process can differ, and meet: one computes prompts for the other.
func TestMockerPair(t *testing.T) {
	t.Parallel()
	p, _ := mocker(t, "sglang", "--workers", "2", "--mocker-config", "{servers: [{quirks: {mode: prefill}}, {quirks: {mode: decode}}]}")
	specs := regexp.MustCompile(`--engine (\S+)`).FindAllStringSubmatch(p.banner, -1)
	if len(specs) != 2 {
		t.Fatalf("%d servers in %s", len(specs), p.banner)
	}
	a := attachTo(t, nil, specs[0][1], specs[1][1])
	before := a.handoffs("done")
	if r := a.send("/v1/chat/completions", single("m")); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if n := a.handoffs("done") - before; n != 1 {
		t.Errorf("%d hand-offs for one request", n)
	}
	if _, text := p.get(p.url + "/admin/config"); !strings.Contains(text, `"mode":"prefill"`) {
		t.Errorf("told %s", text)
	}
}

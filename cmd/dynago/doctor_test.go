//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/llama"
	"github.com/dynago/dynago/internal/fake/publish"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/internal/fake/vllm"
)

// diagnosis is what the doctor said.
type diagnosis struct {
	Verdict      string `json:"verdict"`
	Examinations []struct {
		Name     string    `json:"name"`
		Verdict  string    `json:"verdict"`
		Findings []finding `json:"findings"`
	} `json:"examinations"`
	code int
}

// doctor runs the command in this process.
func doctor(t *testing.T, args ...string) diagnosis {
	t.Helper()
	var out, errs bytes.Buffer
	d := diagnosis{code: run(append([]string{"doctor", "--json", "--http-port", "0"}, args...), outlet{&out, &errs})}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatalf("%v in %s\n%s", err, out.String(), errs.String())
	}
	return d
}

// lines are what was found, a sentence each.
func (d *diagnosis) lines() (list []string) {
	for _, x := range d.Examinations {
		for _, f := range x.Findings {
			list = append(list, strings.ReplaceAll(fmt.Sprintf("%s %s: %s %s", f.Level, f.Check, f.Text, f.Cure), "\n", " "))
		}
	}
	return list
}

// says checks that the exit code is right, and that each sentence was said.
func (d *diagnosis) says(t *testing.T, code int, want ...string) {
	t.Helper()
	lines := d.lines()
	if d.code != code || d.Verdict != level(code).String() {
		t.Errorf("exit code %d and verdict %s, want %d:\n%s", d.code, d.Verdict, code, strings.Join(lines, "\n"))
	}
	for _, sentence := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, sentence) }) {
			t.Errorf("it did not say %q:\n%s", sentence, strings.Join(lines, "\n"))
		}
	}
}

// healthy is a vLLM that has all that is wanted.
func healthy(t *testing.T) vllm.Config {
	return vllm.Config{
		Mock: mockOf(t, "m", false), PromptTokensDetails: true, Priority: true,
		Events: publish.Config{Endpoint: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*"},
	}
}

// hosted serves a vLLM, and returns how it is attached.
func hosted(t *testing.T, c vllm.Config) string {
	t.Helper()
	return attached(t, newVLLM(t, c), c.Priority)
}

// attached serves a server, and returns how it is attached.
func attached(t *testing.T, s *vllm.Server, priority bool) string {
	t.Helper()
	spec := "vllm=" + host(t, s).URL + ",load.interval=20ms,model_path=builtin:demo"
	if p := s.Events(); p != nil {
		spec += ",events.bind=no,events=" + p.Endpoint()
		if p.Replay() != "" {
			spec += ",replay=" + p.Replay()
		}
	}
	if priority {
		spec += ",priority_enabled=yes"
	}
	return spec
}

// busy keeps a vLLM busy with prompts of its own until the test ends.
func busy(t *testing.T, url string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for n := 1000; ctx.Err() == nil; n++ {
			prompt := strings.Repeat(fmt.Sprintf("%d,", n), 40)
			body := fmt.Sprintf(`{"model":"m","max_tokens":1,"prompt":[%s]}`, strings.TrimSuffix(prompt, ","))
			req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	}()
}

func TestDoctorFine(t *testing.T) {
	t.Parallel()
	d := doctor(t, hosted(t, healthy(t)))
	d.says(t, 0,
		"fine reach: It is vllm 0.31.0 and serves the model m.",
		"fine context: Prompt and answer may have 4096 tokens together.",
		"fine tokenizer: Tokenizer: builtin:demo, tokenizer.json, 8192 tokens.",
		"fine generate: It answers with token ids",
		"fine prefix caching: Prefix caching works: of a prompt that was sent twice 48 of 49 tokens were cached.",
		"fine events: KV events come: 3 blocks of 16 tokens were told for a prompt of 49, and they are the right ones.",
		"fine hashes: Blocks are named here by their tokens",
		"fine priority: It takes priorities.",
		"fine cancel: It stopped",
		"fine load: It tells its load: running 0",
	)
}

// Each flag that is missing has its sentence, and the flag in it.
func TestDoctorOfVLLM(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*vllm.Config)
		code   int
		want   string
	}{
		"cached tokens":         {func(c *vllm.Config) { c.PromptTokensDetails = false }, 1, "degraded cached tokens: It does not tell how many tokens of a prompt were cached. Start vLLM with --enable-prompt-tokens-details."},
		"priority":              {func(c *vllm.Config) { c.Priority = false }, 1, "degraded priority: It does not say that it heeds priorities, so none are sent. Start vLLM with --scheduling-policy priority"},
		"events":                {func(c *vllm.Config) { c.Events = publish.Config{} }, 1, `degraded events: It tells no KV events, so what was sent there counts as cached there until it is old. Start vLLM with --kv-events-config '{"enable_kv_cache_events":true`},
		"replay":                {func(c *vllm.Config) { c.Events.Replay = "" }, 1, `degraded replay: Events that are lost cannot be asked for again, so a lost one empties what is known of this engine's cache. Add "replay_endpoint"`},
		"caching":               {func(c *vllm.Config) { c.Mock.Args.EnablePrefixCaching = false }, 1, "degraded prefix caching: Nothing of a prompt that was sent twice was cached, so no prompt gets cheaper. Start vLLM with --enable-prefix-caching."},
		"no caching, no events": {func(c *vllm.Config) { c.Mock.Args.EnablePrefixCaching = false }, 1, "degraded events: No KV event came for an answer, although somebody listens at 127.0.0.1:"},
		"no ids":                {func(c *vllm.Config) { c.NoGenerate, c.NoTokenIDs, c.Version = true, true, "0.9.0" }, 2, "cannot serve reach: It is failed after"},
		"ranks":                 {func(c *vllm.Config) { c.Mock.Args.DPSize = 2 }, 0, "fine ranks: It has 2 data-parallel ranks, from 0 on."},
		"names":                 {func(c *vllm.Config) { c.LoRA, c.Adapters = true, []string{"sql"} }, 0, "adapters: sql."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := healthy(t)
			tt.change(&c)
			d := doctor(t, "--wait", "2s", hosted(t, c))
			d.says(t, tt.code, tt.want)
		})
	}
}

// What an operator says of a server can be wrong, too.
func TestDoctorOfSpecs(t *testing.T) {
	t.Parallel()
	// Nobody listens at port 9, and no other test is given it.
	for name, tt := range map[string]struct {
		spec func(t *testing.T) string
		code int
		want string
	}{
		"nobody there": {func(*testing.T) string { return "http://127.0.0.1:9" }, 2, "connection refused. Start the server, or give its real address."},
		"wants a key": {func(t *testing.T) string {
			locked := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
			})
			return "vllm=" + host(t, locked).URL
		}, 2, "denied: Unauthorized. Give its key: --engine with api_key=KEY"},
		"another model": {func(t *testing.T) string { return hosted(t, healthy(t)) + ",model=other" }, 2, `cannot serve model: It is loading after 1s: it does not serve "other". Give model=NAME in --engine as the server lists it, or start vLLM with --served-model-name NAME.`},
		"no files": {func(t *testing.T) string {
			return strings.Replace(hosted(t, healthy(t)), "model_path=builtin:demo", "model_path=hf://no/such", 1)
		}, 2, "cannot serve tokenizer: Tokenizer and chat template cannot be read: model m: hf://no/such: is not in the cache of Hugging Face"},
		"refuses priorities": {func(t *testing.T) string {
			c := healthy(t)
			c.Priority = false
			return hosted(t, c) + ",priority_enabled=yes"
		}, 1, "degraded priority: It was said to heed priorities and refuses them, so none are sent."},
		"silent events": {func(t *testing.T) string {
			c := healthy(t)
			c.Events = publish.Config{}
			return hosted(t, c) + ",events=tcp://*:9"
		}, 1, "degraded events: No KV event came for an answer: nobody listens at 127.0.0.1:"},
		"events of another size": {func(t *testing.T) string {
			s := newVLLM(t, healthy(t))
			s.Events().SetFaults(publish.Faults{BlockSize: 48})
			return attached(t, s, true)
		}, 1, "degraded block size: KV events come, but none for what was sent"},
		"events of another engine": {func(t *testing.T) string {
			a, b := healthy(t), newVLLM(t, healthy(t))
			a.Events = publish.Config{}
			busy(t, host(t, b).URL)
			return hosted(t, a) + ",events.bind=no,events=" + b.Events().Endpoint() + ",replay=" + b.Events().Replay()
		}, 1, "degraded block size: KV events come, but none for what was sent: they are another engine's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := doctor(t, "--wait", "1s", tt.spec(t))
			d.says(t, tt.code, tt.want)
		})
	}
}

// silent is a folder of the demo model whose files do not say how long a prompt may be.
func silent(t *testing.T) string {
	t.Helper()
	dir := demoFolder(t)
	for _, name := range []string{"config.json", "tokenizer_config.json"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"max_position_embeddings", "model_max_length"} {
			text = bytes.ReplaceAll(text, []byte(key), []byte("of_no_use"))
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDoctorOfOthers(t *testing.T) {
	t.Parallel()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	s, err := sglang.New(sglang.Config{Mock: mockOf(t, "m", false)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, err := mock.New(mockOf(t, "m", false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r := trtllm.New(trtllm.Config{Model: "m", Engine: m, NoPrometheus: true})
	t.Cleanup(r.Close)
	l, err := llama.New(llama.Config{Mock: mockOf(t, "m", false), NoMetrics: true, Vocabulary: words{model.Tokenizer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	common := ",load.interval=20ms,model_path=builtin:demo"
	for name, tt := range map[string]struct {
		spec string
		code int
		want []string
	}{
		"sglang": {"sglang=" + host(t, s).URL + common, 1, []string{
			"degraded events: It tells no KV events", "Start SGLang with --kv-events-config", "Start SGLang with --enable-priority-scheduling.",
		}},
		"trtllm": {"trtllm=" + host(t, r).URL + common + ",context_length=4096", 1, []string{
			"Set kv_cache_config.event_buffer_max_size: 32768", "give events=poll in --engine",
		}},
		"trtllm of a model that tells": {"trtllm=" + host(t, r).URL + common, 1, []string{
			fmt.Sprintf("fine context: Prompt and answer may have %d tokens together.", model.ContextLength),
		}},
		"trtllm of a model that does not": {"trtllm=" + host(t, r).URL + ",load.interval=20ms,model_path=" + silent(t), 2, []string{
			"cannot serve context: How many tokens a prompt may have is not known, so nothing is sent there. Give context_length=TOKENS in --engine: trtllm-serve does not tell its max_seq_len.",
		}},
		"llamacpp": {"llamacpp=" + host(t, l).URL + common, 1, []string{
			"This engine publishes none", "This engine has none: the router's own queue still goes by priority.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := doctor(t, "--wait", "2s", tt.spec)
			d.says(t, tt.code, tt.want...)
		})
	}
}

// A server of conversations is asked for one.
func TestDoctorOfConversations(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	h := http.NewServeMux()
	h.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"small","object":"model","owned_by":"nvidia"}]}`)
	})
	h.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, `{"error":{"message":"out of memory"}}`, 500)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`+"\n\ndata: [DONE]\n\n")
	})
	url := host(t, h).URL
	d := doctor(t, url)
	d.says(t, 1, "fine tokenizer: It takes conversations as they are", "fine generate: It answers after", "degraded events: It tells no KV events")
	broken.Store(true)
	d = doctor(t, url)
	d.says(t, 2, "cannot serve generate: It does not answer", "Look into the log of the engine.")
}

// The engines of a list and of settings are examined as those of flags.
func TestDoctorReadsLists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "workers.yaml")
	if err := os.WriteFile(path, []byte("- kind: openai\n  url: http://127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := doctor(t, "--wait", "100ms", "--workers-file", path, "--engine", "http://127.0.0.1:2", "vllm=http://127.0.0.1:3")
	if len(d.Examinations) != 3 || d.code != 2 {
		t.Errorf("%+v", d)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"doctor"}, outlet{&out, &errs}); code != 2 || !strings.Contains(errs.String(), "there is nobody to examine: want an address") {
		t.Errorf("%d %s", code, errs.String())
	}
	errs.Reset()
	if code := run([]string{"doctor", "http://h,blocksize=1"}, outlet{&out, &errs}); code != 2 || !strings.Contains(errs.String(), "did you mean block_size?") {
		t.Errorf("%d %s", code, errs.String())
	}
	out.Reset()
	if code := run([]string{"doctor", "vllm=http://127.0.0.1:8000"}, outlet{&out, &errs}); code != 2 ||
		!strings.Contains(out.String(), "FAIL  The engine and dynago want the same port") || !strings.Contains(out.String(), "\n        Give one of them another port") {
		t.Errorf("%d %s", code, out.String())
	}
}

// A running server is asked how it is.
func TestDoctorOfServer(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "2", "--speedup-ratio", "0")
	d := doctor(t, "--server", p.url)
	d.says(t, 0, "fine reach: The server is up.", "fine workers: 2 of 2 workers are ready.", "fine generate: Model dynago/demo answers: 4 tokens")
	added := p.send("/admin/workers", "vllm=http://127.0.0.1:1")
	if added.status != 201 {
		t.Fatalf("%d %s", added.status, added.body)
	}
	until(t, "it is not up", func() bool { _, list := p.get(p.url + "/admin/workers"); return strings.Contains(list, "refused") })
	d = doctor(t, "--server", p.url)
	d.says(t, 1, "Worker http://127.0.0.1:1 is", "Examine it with dynago doctor http://127.0.0.1:1.")
	d = doctor(t, "--server", "http://127.0.0.1:1")
	d.says(t, 2, "cannot serve reach: The server does not answer")

	path := filepath.Join(t.TempDir(), "workers.yaml")
	if err := os.WriteFile(path, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := serve(t, "--workers-file", path)
	if err := os.WriteFile(path, []byte("- vllm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the list is not followed", func() bool {
		_, list := empty.get(empty.url + "/admin/workers")
		return strings.Contains(list, "line 1")
	})
	d = doctor(t, "--server", empty.url)
	d.says(t, 2, "cannot serve models: No model can be asked for now.", "degraded sources: Its list of workers from file is not followed: ", "POST /admin/workers/reload")
}

//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/fake/vllm"
)

// replace writes a file as careful programs do: anew, and over the old one.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// staff is the workers of a server as operators see them.
type staff struct {
	Workers []colleague `json:"workers"`
	Sources []struct {
		Name  string `json:"source"`
		Fault string `json:"fault"`
	} `json:"sources"`
}

type colleague struct {
	ID      uint64 `json:"worker_id"`
	Name    string `json:"worker"`
	Model   string `json:"model"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Refused string `json:"refused_for"`
}

func (p *program) staff() (s staff) {
	p.t.Helper()
	_, text := p.get(p.url + "/admin/workers")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		p.t.Fatalf("%v in %s", err, text)
	}
	return s
}

// state returns that of a worker, "" if it is not there.
func (p *program) state(name string) string {
	for _, w := range p.staff().Workers {
		if w.Name == name {
			return w.State
		}
	}
	return ""
}

// A list of workers is followed: who is added, changed and taken away, and a list that
// makes no sense changes nothing.
func TestWorkersFile(t *testing.T) {
	t.Parallel()
	a, b := host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "a", false)})).URL, host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "b", false)})).URL
	path := filepath.Join(t.TempDir(), "workers.yaml")
	one := "- {kind: vllm, url: " + a + ", model_path: builtin:demo, load: {interval: 20ms}}\n"
	two := "- vllm=" + b + ",model_path=builtin:demo,load.interval=20ms\n"
	replace(t, path, one)
	p := serve(t, "--workers-file", path)
	if !strings.Contains(p.banner, "those of "+path) {
		t.Errorf("the list is not in\n%s", p.banner)
	}
	p.ready("a")

	replace(t, path, one+two)
	p.ready("b")
	if list := p.staff().Workers; !slices.ContainsFunc(list, func(w colleague) bool { return w.ID == fleet.ID(b) && w.Name == b }) {
		t.Errorf("no worker with the id of its address in %+v", list)
	}

	replace(t, path, one+"- vlm="+b+"\n")
	until(t, "the fault is told", func() bool {
		s := p.staff().Sources
		return len(s) == 1 && strings.Contains(s[0].Fault, path+` line 2: kind: "vlm": want one of vllm`)
	})
	p.ready("b")

	// A worker that is told otherwise leaves and joins again.
	replace(t, path, one+strings.TrimSuffix(two, "\n")+",aliases=other\n")
	p.ready("other")

	replace(t, path, one+"- {kind: vllm, url: "+b+", model_path: builtin:demo, load: {interval: 20ms}, aliases: [other], drain: true}\n")
	until(t, "b is drained", func() bool { return p.state(b) == "draining" })

	replace(t, path, one)
	until(t, "b is gone", func() bool { return p.state(b) == "" })
	if got := p.send("/v1/chat/completions", single("b")); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until(t, "the fault is told", func() bool { return strings.Contains(p.staff().Sources[0].Fault, "workers cannot be read") })
	p.ready("a")
	if !strings.Contains(p.log.String(), "workers stay as they were told last") {
		t.Error("the log does not say that the list is not followed")
	}
}

// The list is read at once when that is asked for, by a route or a signal.
func TestWorkersFileReload(t *testing.T) {
	t.Parallel()
	url := host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "a", false)})).URL
	line := "- vllm=" + url + ",model_path=builtin:demo,load.interval=20ms\n"
	path := filepath.Join(t.TempDir(), "workers.yaml")
	replace(t, path, "[]")
	p := serve(t, "--workers-file", path)
	replace(t, path, line)
	if got := p.send("/admin/workers/reload", ""); got.status != 200 || got.body != `{"added":["`+url+`"],"removed":[],"changed":[],"kept":0}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	p.ready("a")
	replace(t, path, "- what?\n")
	if got := p.send("/admin/workers/reload", ""); got.status != 400 || !strings.Contains(got.body, "line 1") {
		t.Errorf("%d %s", got.status, got.body)
	}
	replace(t, path, "[]")
	p.signal(syscall.SIGHUP)
	until(t, "a is gone", func() bool { return p.state(url) == "" })
	none := serve(t, "--workers", "1", "--speedup-ratio", "0")
	if got := none.send("/admin/workers/reload", ""); got.status != 400 || !strings.Contains(got.body, "want one that was started with --workers-file") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// A list that makes no sense at the start is told where it stands, and nothing is
// served.
func TestWorkersFileAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	for text, want := range map[string]string{
		"":                                    "want a list",
		"- {kind: vllm}":                      "line 1: url: want the server's address",
		"- http://h\n- {url: http://h}":       "line 2: url: http://h: stands in line 1 already",
		"- http://h\n- http://127.0.0.1:8000": "line 2: --engine: url: http://127.0.0.1:8000: is where this server is to listen itself",
		"- {url: http://h, aliases: [[a]]}":   "want a list of values",
	} {
		replace(t, path, text)
		var out, errs syncBuffer
		if code := run([]string{"serve", "--workers-file", path}, outlet{&out, &errs}); code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: exit code %d, %s, want %s", text, code, errs.String(), want)
		}
	}
	var out, errs syncBuffer
	if code := run([]string{"serve", "--workers-file", path + "-none"}, outlet{&out, &errs}); code != 1 || !strings.Contains(errs.String(), "no such file") {
		t.Errorf("%d %s", code, errs.String())
	}
}

// Servers can be added to one that has mock engines, and mock engines taken away.
func TestAttachBesideMocks(t *testing.T) {
	t.Parallel()
	url := host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "real", false)})).URL
	p := serve(t, "--workers", "1", "--speedup-ratio", "0")
	if got := p.send("/admin/workers", "vllm="+url+",model_path=builtin:demo,load.interval=20ms"); got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	p.ready("real")
	p.ready(demo.Name)
	if got := p.send("/admin/workers", `{"kind": "openai", "url": "http://127.0.0.1:9", "load": {"interval": "1m"}}`); got.status != 201 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.send("/admin/workers", `{"kind": "openai", "url": `); got.status != 400 {
		t.Errorf("half an object: %d %s", got.status, got.body)
	}
	if got := p.answered(p.request(t.Context(), "DELETE", fmt.Sprintf("%s/admin/workers/%d", p.url, fleet.ID("mock-0")), "")); got.status != 202 {
		t.Errorf("%d %s", got.status, got.body)
	}
	until(t, "the mock engine is gone", func() bool { return p.state("mock-0") == "" })
	p.ready("real")
}

// Of two servers with one model's name and different tokenizers, one serves; when it
// goes the other takes its place.
func TestTwoTokenizersOfOneModel(t *testing.T) {
	t.Parallel()
	first := newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)})
	a, b := host(t, first), host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)})).URL
	other := demoFolder(t)
	template := filepath.Join(other, "chat_template.jinja")
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(template, append([]byte("{# another #}"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--engine", "vllm="+a.URL+",load.interval=20ms,model_path=builtin:demo")
	p.ready("m")
	if got := p.send("/admin/workers", "vllm="+b+",load.interval=20ms,model_path="+other); got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until(t, "the second one is refused", func() bool { return p.state(b) == "refused" })
	for _, w := range p.staff().Workers {
		if w.Name == b && (w.Refused != "chat_template" || !strings.Contains(w.Reason, "it does not agree with "+a.URL+", which serves model m: chat_template is ")) {
			t.Errorf("%+v", w)
		}
	}
	if _, page := p.get(p.url + "/metrics"); !strings.Contains(page, `dynago_fleet_refused_workers{field="chat_template",model="m"} 1`) ||
		!strings.Contains(page, `dynago_fleet_workers{model="m",state="ready"} 1`) || !strings.Contains(page, `dynago_fleet_source_workers{source="flags"} 1`) {
		t.Errorf("metrics without the refused worker")
	}
	if !strings.Contains(p.log.String(), "worker is refused") {
		t.Error("the log does not tell")
	}
	p.ready("m")
	a.Close()
	until(t, "the second one serves", func() bool { return p.state(b) == "ready" })
	p.ready("m")
}

// Aliases and adapters are models of their own in the list, and an adapter is asked
// for by its name.
func TestAdaptersAndAliases(t *testing.T) {
	t.Parallel()
	v := newVLLM(t, vllm.Config{Mock: mockOf(t, "base", false), LoRA: true, Adapters: []string{"sql"}})
	p := serve(t, "--engine", "vllm="+host(t, v).URL+",load.interval=20ms,model_path=builtin:demo,aliases=fast,aliases=cheap")
	p.ready("base")
	_, list := p.get(p.url + "/v1/models")
	for _, want := range []string{`"base"`, `"fast"`, `"cheap"`, `"sql"`} {
		if !strings.Contains(list, `"id":`+want) {
			t.Errorf("no %s in %s", want, list)
		}
	}
	for _, name := range []string{"fast", "sql"} {
		before := len(v.Bodies())
		if got := p.send("/v1/chat/completions", single(name)); got.status != 200 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		bodies := v.Bodies()[before:]
		want := map[string]string{"fast": `"base"`, "sql": `"sql"`}[name]
		if len(bodies) != 1 || !strings.Contains(string(bodies[0]), `"model":`+want) {
			t.Errorf("%s: sent %s, want model %s", name, bodies, want)
		}
		if status, _ := p.get(p.url + "/v1/models/" + name); status != 200 {
			t.Errorf("/v1/models/%s: %d", name, status)
		}
	}
	if status, _ := p.get(p.url + "/v1/models/none"); status != 404 {
		t.Errorf("a model that is not there: %d", status)
	}
}

// A server that breaks requests is left alone for a while, and no client notices; when
// it is well again it serves again.
func TestBreakerRecovers(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	var hit atomic.Int64
	sick := newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)})
	a := host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() && r.Method == "POST" {
			hit.Add(1)
			panic(http.ErrAbortHandler)
		}
		sick.ServeHTTP(w, r)
	})).URL
	b := host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)})).URL
	p := serve(t, "--router-mode", "round-robin", "--runtime-inhibited-duration-secs", "1",
		"--engine", "vllm="+a+",load.interval=20ms,model_path=builtin:demo", "--engine", "vllm="+b+",load.interval=20ms,model_path=builtin:demo")
	p.ready("m")
	until(t, "both are there", func() bool { return p.state(a) == "ready" && p.state(b) == "ready" })
	broken.Store(true)
	begin := time.Now()
	for range 20 {
		if got := p.send("/v1/chat/completions", single("m")); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	// Once, and again each time that it was left alone for long enough.
	if n, most := hit.Load(), 4+4*int64(time.Since(begin)/time.Second); n == 0 || n > most {
		t.Errorf("the sick server was tried %d times for 20 requests, want at most %d", n, most)
	}
	broken.Store(false)
	before := len(sick.Bodies())
	until(t, "it serves again", func() bool {
		return p.send("/v1/chat/completions", single("m")).status == 200 && len(sick.Bodies()) > before
	})
}

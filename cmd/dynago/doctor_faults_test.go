//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/fake/vllm"
)

// spoiled is a vLLM behind something that fails requests and changes answers.
type spoiled struct {
	*vllm.Server
	fails    string // bodies with this in them get 500
	hides    string // a path that is not there
	old, new string // in answers
}

func (s *spoiled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case r.URL.Path == s.hides:
		http.NotFound(w, r)
		return
	case s.fails != "" && bytes.Contains(body, []byte(s.fails)):
		http.Error(w, `{"error":{"message":"out of memory"}}`, http.StatusInternalServerError)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.Server.ServeHTTP(&changed{w, s.old, s.new}, r)
}

// changed writes something else in place of a text.
type changed struct {
	http.ResponseWriter
	old, new string
}

func (c *changed) Write(p []byte) (int, error) {
	q := p
	if c.old != "" {
		q = bytes.ReplaceAll(p, []byte(c.old), []byte(c.new))
	}
	_, err := c.ResponseWriter.Write(q)
	return len(p), err
}

func (c *changed) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// What an engine does wrong has its sentence, whether it was built so or something
// stands in front of it.
func TestDoctorOfFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil spoiled
		code  int
		want  string
	}{
		"fails priorities": {
			spoiled{fails: `"priority"`},
			2,
			"cannot serve priority: It refuses a request with a priority: ",
		},
		"fails longer answers": {spoiled{fails: `"min_tokens"`}, 2, "cannot serve cancel: A longer answer failed: "},
		"goes on alone": {
			spoiled{old: `num_requests_running{engine="0",model_name="m"} 0`, new: `num_requests_running{engine="0",model_name="m"} 1`},
			1,
			"degraded cancel: It was still busy 3s after its client had left, unless others use it. A proxy between dynago and the engine",
		},
		"tells no load": {
			spoiled{hides: "/metrics"},
			1,
			"degraded load: It does not tell its load. vLLM shows /metrics unless it was built without: look whether a proxy hides it.",
		},
		"tells no load, and is left": {
			spoiled{hides: "/metrics"},
			1,
			"fine cancel: Leaving an answer works here; whether the engine stopped cannot be seen, as its load is not known.",
		},
		"counts what cannot be": {
			spoiled{old: `"cached_tokens":0`, new: `"cached_tokens":16`},
			1,
			"degraded prefix caching: It says that 16 tokens of a new prompt were cached, which cannot be.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := healthy(t)
			tt.spoil.Server = newVLLM(t, c)
			spec := attached(t, tt.spoil.Server, c.Priority)
			_, rest, _ := strings.Cut(spec, ",")
			d := doctor(t, "--wait", "2s", "vllm="+host(t, &tt.spoil).URL+","+rest)
			d.says(t, tt.code, tt.want)
		})
	}
}

// A model without a chat template completes texts.
func TestDoctorOfModelsWithoutTemplate(t *testing.T) {
	t.Parallel()
	dir := demoFolder(t)
	if err := os.Remove(filepath.Join(dir, "chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	spec := strings.Replace(hosted(t, healthy(t)), "builtin:demo", dir, 1)
	d := doctor(t, spec)
	d.says(t, 1, "degraded template: The model has no chat template, so it completes texts and does not chat. Conversations need a chat template: put chat_template.jinja beside the tokenizer")
}

// Who does not count its tokens is told of.
func TestDoctorOfUncountedAnswers(t *testing.T) {
	t.Parallel()
	h := http.NewServeMux()
	h.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"small","object":"model","owned_by":"nvidia"}]}`)
	})
	h.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}`+"\n\ndata: [DONE]\n\n")
	})
	d := doctor(t, host(t, h).URL)
	d.says(t, 1, "fine generate: It answers after", "degraded usage: It does not tell how many tokens it made.")
}

// Of the workers of a running server, the refused and the drained have sentences of
// their own.
func TestDoctorOfServersWorkers(t *testing.T) {
	t.Parallel()
	first, second := host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)})), host(t, newVLLM(t, vllm.Config{Mock: mockOf(t, "m", false)}))
	other := demoFolder(t)
	template := filepath.Join(other, "chat_template.jinja")
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(template, append([]byte("{# another #}"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--engine", "vllm="+first.URL+",load.interval=20ms,model_path=builtin:demo")
	p.ready("m")
	if got := p.send("/admin/workers", "vllm="+second.URL+",load.interval=20ms,model_path="+other); got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until(t, "the second one is refused", func() bool { return p.state(second.URL) == "refused" })
	d := doctor(t, "--server", p.url)
	d.says(t, 1, "degraded workers: Worker "+second.URL+" is refused: it does not agree with "+first.URL, "Serve the same model's files everywhere, or give one of them another name.", "fine workers: 1 of 2 workers are ready.")
	for _, w := range p.staff().Workers {
		if w.Name != first.URL {
			continue
		}
		if got := p.send(fmt.Sprintf("/admin/workers/%d/drain", w.ID), ""); got.status >= 300 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		until(t, "the first one is drained", func() bool { return p.state(first.URL) == "draining" })
		d = doctor(t, "--server", p.url)
		d.says(t, d.code, "degraded workers: Worker "+first.URL+" of model m is being drained. ", fmt.Sprintf("POST /admin/workers/%d/resume.", w.ID))
	}
}

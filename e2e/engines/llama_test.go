//go:build realengine

package engines_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const llamaSlots = 2

// llama is one llama-server.
type llama struct {
	*process
	t   testing.TB // that it ends with
	url string
}

func newLlama(t testing.TB) *llama { return &llama{t: t, url: local(freePorts(t, 1)[0])} }

func (l *llama) start() {
	t := l.t
	t.Helper()
	l.process = start(t, "llama-server at "+l.url, nil,
		setting(t, "E2E_LLAMA"), "-m", filepath.Join(setting(t, "E2E_TINY"), "tiny.gguf"), "--alias", "tiny", "--host", "127.0.0.1",
		"--port", l.url[strings.LastIndexByte(l.url, ':')+1:], "--ctx-size", "8192", "--parallel", "2", "--threads", "1", "--metrics", "--slots")
}

// busy returns how many slots compute, and how many requests wait for one.
func (l *llama) busy(t testing.TB) (slots, waiting float64) {
	return metric(t, l.url, "llamacpp:requests_processing"), metric(t, l.url, "llamacpp:requests_deferred")
}

func (l *llama) idle(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, l.url+" has nothing to do", func() bool {
		slots, waiting := l.busy(t)
		return slots+waiting == 0
	})
}

// TestLlama is one story of two servers.
func TestLlama(t *testing.T) {
	a, b := newLlama(t), newLlama(t)
	d := serve(t, "llamacpp="+a.url, "auto="+b.url)
	if !t.Run("joins when it is up", func(t *testing.T) {
		if status, _ := ask("GET", d.url+"/ready", ""); status != http.StatusServiceUnavailable {
			t.Errorf("ready before any engine: status %d", status)
		}
		a.start()
		b.start()
		d.awaits(t, a.url, "ready", time.Minute)
		d.awaits(t, b.url, "ready", time.Minute)
		if status, text := ask("GET", d.url+"/v1/models", ""); status != http.StatusOK || !strings.Contains(text, `"context_window":4096`) {
			t.Errorf("models: status %d %s", status, text)
		}
		_, props := ask("GET", a.url+"/props", "")
		_, build, _ := strings.Cut(props, `"build_info":`)
		t.Logf("llama.cpp %.40s", build)
	}) {
		t.FailNow()
	}
	t.Run("chat", func(t *testing.T) { llamaChat(t, d, a) })
	t.Run("streaming", func(t *testing.T) { sameStreamed(t, d) })
	t.Run("forms of answers", func(t *testing.T) { forms(t, d) })
	t.Run("refusals", func(t *testing.T) { refusals(t, d) })
	t.Run("cached tokens", func(t *testing.T) { llamaCached(t, d) })
	t.Run("slots", func(t *testing.T) { llamaSlotsFill(t, d, b) })
	t.Run("cancellation frees the slot", func(t *testing.T) { llamaCancel(t, d, b) })
	t.Run("kill -9 during a stream, and restart in place", func(t *testing.T) { llamaKill(t, d, a) })
}

// llamaChat holds dynago's template, tokens and text against the engine's own.
func llamaChat(t *testing.T, d *dynago, l *llama) {
	q := question{text: "hello world, what is it that you tell us?\nüñí 漢字 <b>&amp;</b>", header: d.at(t, l.url)}
	through := chat(t, d.url, q)
	// A server of chat completions puts its own defaults where a client is silent.
	direct := chat(t, l.url, question{text: q.text, more: map[string]any{"top_k": 0, "top_p": 1, "min_p": 0}})
	if through.Text == "" || through.Text != direct.Text {
		t.Errorf("through dynago %q, from the engine itself %q", through.Text, direct.Text)
	}
	if through.Usage.Prompt != direct.Usage.Prompt || through.Usage.Output != 16 || through.Finish != "length" {
		t.Errorf("through dynago %+v, from the engine itself %+v", through, direct)
	}
	body, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"role": "user", "content": q.text}}})
	if err != nil {
		t.Fatal(err)
	}
	_, text := ask("POST", l.url+"/apply-template", string(body))
	var rendered struct{ Prompt string }
	if err := json.Unmarshal([]byte(text), &rendered); err != nil {
		t.Fatal(err)
	}
	body, err = json.Marshal(map[string]any{"content": rendered.Prompt, "add_special": true, "parse_special": true})
	if err != nil {
		t.Fatal(err)
	}
	_, text = ask("POST", l.url+"/tokenize", string(body))
	var tokens struct{ Tokens []int }
	if err := json.Unmarshal([]byte(text), &tokens); err != nil || len(tokens.Tokens) != through.Usage.Prompt {
		t.Errorf("%d tokens in the prompt; the engine counts %d, %v", through.Usage.Prompt, len(tokens.Tokens), err)
	}
}

// llamaCached asks twice, without saying where: the second time it goes to the
// slot that has the prompt, which tells of all but the last token.
func llamaCached(t *testing.T, d *dynago) {
	for n := range 4 {
		first := chat(t, d.url, question{text: story(n, 600)})
		again := chat(t, d.url, question{text: story(n, 600)})
		longer := chat(t, d.url, question{text: story(n, 900)})
		if again.cached() != again.Usage.Prompt-1 || again.Text != first.Text {
			t.Errorf("story %d: %d of %d tokens are cached at the second time; %q, %q", n, again.cached(), again.Usage.Prompt, first.Text, again.Text)
		}
		if longer.cached() < first.Usage.Prompt/2 || longer.cached() >= longer.Usage.Prompt {
			t.Errorf("story %d, longer: %d of %d tokens are cached", n, longer.cached(), longer.Usage.Prompt)
		}
	}
}

// llamaSlotsFill lets requests run in all slots and one wait, which runs when one
// of them has ended.
func llamaSlotsFill(t *testing.T, d *dynago, l *llama) {
	l.idle(t)
	var fill []*stream
	for n := range llamaSlots {
		s := open(t, d.url, question{text: story(200+n, 60), tokens: 3500, header: d.at(t, l.url)})
		s.hears(t, 1)
		fill = append(fill, s)
	}
	late := open(t, d.url, question{text: story(210, 60), tokens: 20, header: d.at(t, l.url)})
	eventually(t, 10*time.Second, "one waits", func() bool {
		slots, waiting := l.busy(t)
		return slots == llamaSlots && waiting == 1
	})
	select {
	case <-late.first:
		t.Error("an answer without a slot")
	default:
	}
	fill[0].cancel()
	if a := late.end(t, time.Minute); a.Usage.Output != 20 {
		t.Errorf("%+v", a)
	}
	fill[1].cancel()
	l.idle(t)
}

// llamaCancel leaves a stream, and wants the slot free.
func llamaCancel(t *testing.T, d *dynago, l *llama) {
	l.idle(t)
	before := metric(t, l.url, "llamacpp:tokens_predicted_total")
	s := open(t, d.url, question{text: story(300, 100), tokens: 3800, header: d.at(t, l.url)})
	s.hears(t, 20)
	if slots, _ := l.busy(t); slots != 1 {
		t.Errorf("%.0f slots are busy, want 1", slots)
	}
	s.cancel()
	began := time.Now()
	l.idle(t)
	t.Logf("free after %v", time.Since(began).Round(time.Millisecond))
	if made := metric(t, l.url, "llamacpp:tokens_predicted_total") - before; made >= 3800 {
		t.Errorf("the engine has made all %.0f tokens", made)
	}
}

// llamaKill lets a server die with a stream, and come back.
func llamaKill(t *testing.T, d *dynago, l *llama) {
	old := question{text: story(600, 900), header: d.at(t, l.url)}
	chat(t, d.url, old)
	interrupted(t, d, l.url, story(601, 300), l.kill)

	eventually(t, time.Minute, "its death is seen", func() bool { return d.worker(t, l.url).State != "ready" })
	chat(t, d.url, question{text: "hello again"}) // the other one serves
	l.start()
	d.awaits(t, l.url, "ready", time.Minute)
	before := d.prediction(t)
	if a := chat(t, d.url, old); a.cached() != 0 {
		t.Errorf("%d tokens are cached in a new process", a.cached())
	}
	if got := d.prediction(t).since(before); got != (prediction{}) {
		t.Errorf("credit for a cache that is gone: %+v", got)
	}
	if a := chat(t, d.url, old); a.cached() != a.Usage.Prompt-1 {
		t.Errorf("%d of %d tokens are cached at the second time", a.cached(), a.Usage.Prompt)
	}
}

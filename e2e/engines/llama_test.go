//go:build realengine

package engines_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"
)

func newLlama(t testing.TB) *server {
	s := &server{t: t, kind: "llama-server", url: local(freePorts(t, 1)[0]), startUp: time.Minute, block: 1, seqs: 2}
	s.command = func(port string) (env, args []string) {
		return nil, []string{
			setting(t, "E2E_LLAMA"), "-m", filepath.Join(setting(t, "E2E_TINY"), "tiny.gguf"), "--alias", "tiny", "--host", "127.0.0.1",
			"--port", port, "--ctx-size", "8192", "--parallel", itoa(s.seqs), "--threads", "1", "--metrics", "--slots",
		}
	}
	s.running, s.waiting = s.gauge("llamacpp:requests_processing"), s.gauge("llamacpp:requests_deferred")
	return s
}

// TestLlama is one story of two servers.
func TestLlama(t *testing.T) {
	a, b := newLlama(t), newLlama(t)
	d := serve(t, "llamacpp="+a.url, "auto="+b.url)
	if !t.Run("attached before they are up", func(t *testing.T) {
		attached(t, d, a, b)
		_, props := ask("GET", a.url+"/props", "")
		var told struct {
			Build string `json:"build_info"`
		}
		if err := json.Unmarshal([]byte(props), &told); err != nil {
			t.Error(err)
		}
		t.Logf("llama.cpp %s", told.Build)
	}) {
		t.FailNow()
	}
	t.Run("chat", func(t *testing.T) { llamaChat(t, d, a) })
	t.Run("doctor", func(t *testing.T) { examined(t, "llamacpp="+b.url, 1) })
	t.Run("streaming", func(t *testing.T) { sameStreamed(t, d) })
	t.Run("forms of answers", func(t *testing.T) { forms(t, d, true) })
	t.Run("refusals", func(t *testing.T) { refusals(t, d) })
	t.Run("cached tokens", func(t *testing.T) { llamaCached(t, d) })
	t.Run("slots", func(t *testing.T) { slotsFill(t, d, b) })
	t.Run("cancellation frees the slot", func(t *testing.T) { cancelled(t, d, b) })
	t.Run("kill -9 during a stream, and restart in place", func(t *testing.T) { killed(t, d, a) })
}

// llamaChat holds dynago's template, tokens and text against the engine's own.
func llamaChat(t *testing.T, d *dynago, s *server) {
	q := question{text: "hello world, what is it that you tell us?\nüñí 漢字 <b>&amp;</b>", header: d.at(t, s.url)}
	// A server of chat completions puts its own defaults where a client is silent.
	through := sameAsItself(t, d, s, q, map[string]any{"top_k": 0, "top_p": 1, "min_p": 0})
	body, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"role": "user", "content": q.text}}})
	if err != nil {
		t.Fatal(err)
	}
	_, text := ask("POST", s.url+"/apply-template", string(body))
	var rendered struct{ Prompt string }
	if err := json.Unmarshal([]byte(text), &rendered); err != nil {
		t.Fatal(err)
	}
	body, err = json.Marshal(map[string]any{"content": rendered.Prompt, "add_special": true, "parse_special": true})
	if err != nil {
		t.Fatal(err)
	}
	_, text = ask("POST", s.url+"/tokenize", string(body))
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

// slotsFill lets requests run in all slots and one wait, which runs when one of
// them has ended.
func slotsFill(t *testing.T, d *dynago, s *server) {
	s.idle(t)
	var fill []*stream
	for n := range s.seqs {
		f := open(t, d.url, question{text: story(200+n, 60), tokens: 3500, header: d.at(t, s.url)})
		f.hears(t, 1)
		fill = append(fill, f)
	}
	late := open(t, d.url, question{text: story(210, 60), tokens: 20, header: d.at(t, s.url)})
	eventually(t, 10*time.Second, "one waits", func() bool { return s.running(t) == float64(s.seqs) && s.waiting(t) == 1 })
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
	s.idle(t)
}

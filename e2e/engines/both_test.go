//go:build realengine

package engines_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// sameAsItself wants what the engine says to the same question without dynago.
func sameAsItself(t *testing.T, d *dynago, s *server, q question, more map[string]any) *answer {
	t.Helper()
	through, direct := chat(t, d.url, q), chat(t, s.url, question{text: q.text, more: more})
	if through.Text == "" || through.Text != direct.Text {
		t.Errorf("through dynago %q, from the engine itself %q", through.Text, direct.Text)
	}
	if through.Usage.Prompt != direct.Usage.Prompt || through.Usage.Output != 16 || through.Finish != "length" {
		t.Errorf("through dynago %+v, from the engine itself %+v", through, direct)
	}
	return through
}

// sameStreamed wants of a stream what the whole answer says.
func sameStreamed(t *testing.T, d *dynago) {
	q := question{text: "what is the word for it?", tokens: 200}
	whole := chat(t, d.url, q)
	s := open(t, d.url, q)
	s.hears(t, 50)
	streamed := s.end(t, time.Minute)
	if streamed.Text != whole.Text || streamed.Finish != whole.Finish || streamed.Usage.Output != 200 || streamed.Usage.Prompt != whole.Usage.Prompt {
		t.Errorf("streamed %+v, whole %+v", streamed, whole)
	}
}

// examined lets dynago doctor look at an engine, and wants its exit code: 0 where
// nothing is missing, 1 where something is that the engine could do or cannot.
func examined(t *testing.T, engine string, code int) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, setting(t, "DYNAGO_BINARY"), "doctor", engine).CombinedOutput()
	exit := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		exit = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out)
	if exit != code {
		t.Errorf("exit code %d, want %d", exit, code)
	}
}

// forms asks for answers of given forms. Not every engine keeps to a seed without
// a flag.
func forms(t *testing.T, d *dynago, seeds bool) {
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"],"additionalProperties":false}`)
	q := question{text: "tell us a number", tokens: 64, more: map[string]any{
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "number", "schema": schema, "strict": true}},
	}}
	a := chat(t, d.url, q)
	var got struct{ N *int }
	if err := json.Unmarshal([]byte(a.Text), &got); err != nil || got.N == nil || a.Finish != "stop" {
		t.Errorf("by a schema: %+v, %v", a, err)
	}

	plain := chat(t, d.url, question{text: "tell us a word", tokens: 40})
	middle := plain.Text[10:13]
	a = chat(t, d.url, question{text: "tell us a word", tokens: 40, more: map[string]any{"stop": []string{middle}}})
	if want, _, _ := strings.Cut(plain.Text, middle); a.Text != want || a.Finish != "stop" {
		t.Errorf("with a stop text %q: %q (%s), want %q", middle, a.Text, a.Finish, want)
	}

	if a = chat(t, d.url, question{text: "tell us a word", tokens: 5, more: map[string]any{"logprobs": true, "top_logprobs": 2}}); a.logprobs != 5 {
		t.Errorf("%d log probabilities for 5 tokens", a.logprobs)
	}

	seeded := question{text: "tell us a word", tokens: 20, more: map[string]any{"temperature": 1.0, "seed": 7}}
	if one, two := chat(t, d.url, seeded), chat(t, d.url, seeded); seeds && one.Text != two.Text {
		t.Errorf("with one seed %q and %q", one.Text, two.Text)
	}
}

// refusals wants what an engine refuses to be the client's fault, and no worker's.
func refusals(t *testing.T, d *dynago) {
	for name, q := range map[string]question{
		"too long a prompt": {text: strings.Repeat("word ", 2000)},
		"no such model":     {text: "hello", more: map[string]any{"model": "nope"}},
		"a bad temperature": {text: "hello", more: map[string]any{"temperature": -1}},
	} {
		status, text := ask("POST", d.url+"/v1/chat/completions", q.body(false))
		if status != http.StatusBadRequest && status != http.StatusNotFound {
			t.Errorf("%s: status %d %s", name, status, text)
		}
	}
	chat(t, d.url, question{text: "hello"})
}

// interrupted streams from a server that holds the prompt, does something to it in
// the middle, and wants the text of an undisturbed run.
func interrupted(t *testing.T, d *dynago, url, text string, strike func()) {
	t.Helper()
	q := question{text: text, tokens: 1200, header: d.at(t, url)}
	want := chat(t, d.url, q)
	moved := metric(t, d.url, "dynamo_frontend_model_migration_total", `migration_type="ongoing_request"`)
	d.settled(t)
	q.header = nil // where its prompt is cached
	s := open(t, d.url, q)
	s.hears(t, 100)
	strike()
	select {
	case <-s.done:
		t.Fatalf("the stream was over before: %v", s.err)
	default:
	}
	got := s.end(t, 2*time.Minute)
	if got.Text != want.Text {
		t.Errorf("the stream differs from an undisturbed one from byte %d of %d on:\n%q\n%q", differ(got.Text, want.Text), len(want.Text), got.Text, want.Text)
	}
	if got.Finish != want.Finish || got.Usage.Output != want.Usage.Output || got.Usage.Prompt != want.Usage.Prompt {
		t.Errorf("interrupted %s %+v, undisturbed %s %+v", got.Finish, got.Usage, want.Finish, want.Usage)
	}
	eventually(t, 10*time.Second, "the move is counted", func() bool {
		return metric(t, d.url, "dynamo_frontend_model_migration_total", `migration_type="ongoing_request"`) == moved+1
	})
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

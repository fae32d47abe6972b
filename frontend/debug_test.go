package frontend_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/pipeline"
)

// Who asks is told what the prompt shares with the one before it, in a header
// that is ASCII; and every request that has one before it is measured.
func TestReuseIsTold(t *testing.T) {
	reuse := &pipeline.Reuse{Prompt: 80, Answer: 20, Common: 90, Difference: &pipeline.Difference{
		Part: "turns[1].blocks[0]", Cause: "turns[1]: the answer's text came back in another form", Before: "Grüße <b>\n", Now: "Gru\u0308ße 😀\x7f",
	}}
	backend := newFake()
	backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		if r := requests[0]; r.Identity.Key != "" {
			r.Notes.Reuse = reuse
			r.Notes.NotShown = map[string]int{"web_search": 2}
		}
		return hello(1)
	}
	s := start(t, backend)
	for _, body := range []string{ask, askStream} {
		a := s.do("POST", "/v1/chat/completions", body, "x-session-id", "s", "x-dynago-debug", "1")
		header := a.header.Get("x-dynago-debug")
		if strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.Contains(header, "<b>") {
			t.Errorf("the header is %q", header)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(header), &got); err != nil {
			t.Fatalf("%v: %s", err, header)
		}
		for name, want := range map[string]any{
			"session": "s", "prompt": 7.0, "prompt_before": 80.0, "answer_before": 20.0, "common": 90.0, "offset": 90.0,
			"ratio": 0.9, "prompt_ratio": 1.0, "answer_ratio": 0.5, "part": reuse.Difference.Part, "cause": reuse.Difference.Cause,
			"text_before": reuse.Difference.Before, "text_now": reuse.Difference.Now,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		a = s.do("POST", "/v1/chat/completions", body, "x-dynago-debug", "true")
		if h := a.header.Get("x-dynago-debug"); !strings.Contains(h, `"first":true`) || strings.Contains(h, "ratio") {
			t.Errorf("without a request before it: %s", h)
		}
		for _, off := range []string{"", "0", "false"} {
			a = s.do("POST", "/v1/chat/completions", body, "x-session-id", "s", "x-dynago-debug", off)
			if h := a.header.Get("x-dynago-debug"); h != "" {
				t.Errorf("asked %q: %s", off, h)
			}
		}
	}
	for i, r := range backend.requests() {
		if want := i%5 < 2; r.Debug != want {
			t.Errorf("request %d: debug %t", i, r.Debug)
		}
	}
	s.metric(`dynago_agent_unsupported_total{api="chat",kind="web_search"} 16`)
	s.metric(`dynago_agent_prefix_reuse_ratio_count{endpoint="chat_completions",model="acme/demo"} 8`)
	s.metric(`dynago_agent_prefix_reuse_ratio_bucket{endpoint="chat_completions",model="acme/demo",le="0.75"} 0`)
	s.metric(`dynago_agent_prefix_reuse_ratio_bucket{endpoint="chat_completions",model="acme/demo",le="0.9"} 8`)
}

package frontend_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/openai/responses/store"
	"github.com/dynago/dynago/pipeline"
)

type compaction struct {
	ID, Object string
	Output     []struct {
		ID, Type         string
		EncryptedContent string `json:"encrypted_content"`
	}
	Usage struct {
		InputTokens  int `json:"input_tokens"`
		OutputTokens int `json:"output_tokens"`
	}
}

func TestCompactedConversationGoesOn(t *testing.T) {
	f := newFake()
	s := start(t, f, storing(t, store.Options{}))
	first := s.create(`{"model":"demo","input":"one"}`)
	c := parse[compaction](t, s.do("POST", "/v1/responses/compact",
		`{"model":"demo","previous_response_id":"`+first.ID+`","input":"two","prompt_cache_key":"k","tools":[{"type":"function","name":"ls"}],"tool_choice":"required","text":{"format":{"type":"json_object"}}}`))
	if c.Object != "response.compaction" || !strings.HasPrefix(c.ID, "resp_") || len(c.Output) != 1 ||
		c.Output[0].Type != "compaction" || !strings.HasPrefix(c.Output[0].ID, "cmp_") || c.Usage.InputTokens != 7 || c.Usage.OutputTokens != 2 {
		t.Fatalf("compaction: %+v", c)
	}
	// The prompt is that of the conversation, and behind it what is to be done.
	asked := f.requests()[1].Chat
	if got := f.lastSaid(); !strings.HasPrefix(got, "user: one\nassistant: Hello world\nuser: two\nuser: Write a handover") {
		t.Fatalf("the model sees\n%s", got)
	}
	if asked.ToolChoice.Mode != chat.ToolNone || asked.Output.Kind != chat.FormatText || len(asked.Tools) != 1 || !asked.Truncate {
		t.Fatalf("request: %+v", asked)
	}
	if strings.Contains(c.Output[0].EncryptedContent, "Hello") {
		t.Fatalf("the summary is not in an envelope: %s", c.Output[0].EncryptedContent)
	}
	s.create(fmt.Sprintf(`{"model":"demo","input":[{"type":"compaction","id":%q,"encrypted_content":%q},{"role":"user","content":"three"}]}`,
		c.Output[0].ID, c.Output[0].EncryptedContent))
	got := f.lastSaid()
	if !strings.HasPrefix(got, "user: This conversation was shortened.") || !strings.HasSuffix(got, "\n\nHello world\nuser: three\n") || strings.Contains(got, "assistant:") {
		t.Fatalf("the model sees\n%s", got)
	}
}

func TestCompactRefuses(t *testing.T) {
	f := newFake()
	s := start(t, f)
	refused(t, s.do("POST", "/v1/responses/compact", `{"input":"one"}`), 400, "missing_required_parameter")
	refused(t, s.do("POST", "/v1/responses/compact", `{"model":"demo"}`), 400, "missing_required_parameter")
	refused(t, s.do("POST", "/v1/responses/compact", `{"model":"demo","previous_response_id":"resp_x"}`), 400, "previous_response_not_found")
	refused(t, s.do("POST", "/v1/responses/compact", `{"model":"other","input":"one"}`), 404, "model_not_found")
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			_ = yield(chat.Event{Kind: chat.Start}, nil) && yield(chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}}, nil)
		}
	}
	answer := s.do("POST", "/v1/responses/compact", `{"model":"demo","input":"one"}`)
	refused(t, answer, 500, "server_error")
	if !strings.Contains(answer.body, "no summary") {
		t.Errorf("%s does not say why", answer.body)
	}
}

// counting is a backend whose tokens are the characters of the turns.
type counting struct{ *fake }

func (counting) Tokenize(r *chat.Request, generationPrompt bool) ([]uint32, int, error) {
	if r.Model != "demo" || !generationPrompt {
		return nil, 0, &engine.Error{Kind: engine.NotFound, Param: "model", Message: "no such model"}
	}
	return make([]uint32, len(said(r.Turns))), 4096, nil
}

func TestInputTokens(t *testing.T) {
	s := start(t, counting{newFake()}, storing(t, store.Options{}), withKeys(t, "ka a\nkb b\n"))
	a := []string{"Authorization", "Bearer ka"}
	count := func(body string, tokens int) {
		t.Helper()
		want := fmt.Sprintf(`{"object":"response.input_tokens","input_tokens":%d}`, tokens)
		if got := s.do("POST", "/v1/responses/input_tokens", body, a...); got.body != want {
			t.Fatalf("%d %s, want %s", got.status, got.body, want)
		}
	}
	count(`{"model":"demo","input":"one"}`, len("user: one\n"))
	first := s.create(`{"model":"demo","input":"one"}`, a...)
	count(`{"model":"demo","previous_response_id":"`+first.ID+`"}`, len("user: one\nassistant: Hello world\n"))
	refused(t, s.do("POST", "/v1/responses/input_tokens", `{"model":"other","input":"one"}`, a...), 404, "model_not_found")
	refused(t, s.do("POST", "/v1/responses/input_tokens", `{"model":"demo","previous_response_id":"resp_x"}`, a...), 400, "previous_response_not_found")
}

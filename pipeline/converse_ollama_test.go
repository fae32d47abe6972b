package pipeline_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/ollama"
	double "github.com/dynago/dynago/internal/fake/ollama"
	"github.com/dynago/dynago/pipeline"
)

// The whole way to Ollama and back: what it can do is done, and what it cannot is
// the client's to mend, in a sentence.
func TestOllama(t *testing.T) {
	script, err := mock.LoadScript(strings.NewReader(`
rules:
  - when: {tool: patch}
    emit: "<think>Done?</think>Done."
  - when: {user: Patch, offers: patch}
    emit: "<think>Hm.</think><tool_call>{\"name\":\"patch\",\"arguments\":{\"input\":\"a\\nb\"}}</tool_call>"
  - when: {user: Once}
    emit: " upon a time"
`))
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	f, err := double.New(double.Config{Mock: mock.Config{Model: "tiny", Args: args, Script: script}, Made: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(f)
	e, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: s.URL}, Model: "tiny", Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		s.Close()
		f.Close()
	})
	h := newRoom(t, pipeline.Config{MigrationLimit: 3}, e)
	ask := func(text string, change func(*chat.Request)) (chat.Answer, error) {
		t.Helper()
		r := request(text)
		r.Chat.Model, r.Chat.Sampling.MaxTokens = "tiny", new(200)
		if change != nil {
			change(r.Chat)
		}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		h.released(t)
		if err != nil {
			return chat.Answer{}, err
		}
		return answers[0], nil
	}
	patch := []chat.Tool{{Kind: chat.ToolCustom, Name: "patch"}}
	a, err := ask("Patch it", func(q *chat.Request) { q.Tools = patch })
	if err != nil || len(a.Blocks) != 2 || a.Blocks[0].Text != "Hm." || a.Finish.Reason != chat.FinishToolUse || a.Usage.Prompt == 0 || a.Usage.Output == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	use := a.Blocks[1].Use
	if use.Kind != chat.ToolCustom || use.Name != "patch" || use.Args != `{"input":"a\nb"}` {
		t.Errorf("call %+v", use)
	}
	a, err = ask("Patch it", func(q *chat.Request) {
		q.Tools = patch
		q.Turns = append(q.Turns,
			chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: use.ID, Name: "patch", Kind: chat.ToolCustom, Args: "a\nb"}}}},
			chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: use.ID, Blocks: []chat.Block{{Kind: chat.Text, Text: "ok"}}}}}})
	})
	if err != nil || len(a.Blocks) != 2 || a.Blocks[1].Text != "Done." {
		t.Errorf("with the result: %+v, %v", a, err)
	}
	a, err = ask("", func(q *chat.Request) { q.API, q.Turns, q.Prompt = chat.APICompletions, nil, &chat.Prompt{Text: "Once"} })
	if err != nil || len(a.Blocks) != 1 || a.Blocks[0].Text != " upon a time" || a.Usage.Prompt != 4 {
		t.Errorf("a bare prompt: %+v, %v", a, err)
	}
	image := chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "base64", MediaType: "image/png", Data: "AA", Path: "messages[0].content[0]"}}
	for name, c := range map[string]struct {
		change func(*chat.Request)
		says   string
	}{
		"a forced call":  {func(q *chat.Request) { q.Tools, q.ToolChoice.Mode = patch, chat.ToolRequired }, "calls that the model has to make"},
		"a long prompt":  {func(q *chat.Request) { q.Turns[0].Blocks[0].Text = strings.Repeat("x", 2000) }, "context length"},
		"an image":       {func(q *chat.Request) { q.Turns[0].Blocks = append(q.Turns[0].Blocks, image) }, "sees no images"},
		"a regex":        {func(q *chat.Request) { q.Output = chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "a+"} }, "guided_regex"},
		"logprobs":       {func(q *chat.Request) { q.Sampling.Logprobs = new(1) }, "logprobs"},
		"a biased token": {func(q *chat.Request) { q.Sampling.LogitBias = map[uint32]float64{1: 1} }, "logit_bias"},
	} {
		if _, err := ask("Hi", c.change); engine.KindOf(err) != engine.InvalidArgument || !contains(err, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask("Look at this.", func(q *chat.Request) {
		q.Turns[0].Blocks = append(q.Turns[0].Blocks, image)
		q.Turns = append(q.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Text, Text: "What?"}}}, request("Never mind.").Chat.Turns[0])
	}); err != nil {
		t.Errorf("a session does not survive an image: %v", err)
	}
}

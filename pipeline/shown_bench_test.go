package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/pipeline"
)

// What comes before and after the prompt of a long session: the conversation in
// the model's words, and what of the last prompt is used again. All of it is to be
// little beside the prompt itself.
func BenchmarkLongSession(b *testing.B) {
	r := request("Question").Chat
	r.API = chat.APIMessages
	for i := range 24 {
		tool := function("group", fmt.Sprintf("tool_%d", i))
		tool.Description, tool.Schema = strings.Repeat("Does something. ", 20), []byte(`{"type":"object","properties":{"path":{"type":"string"}}}`)
		r.Tools = append(r.Tools, tool)
	}
	for i := range 100 {
		id := fmt.Sprintf("call_%d", i)
		r.Turns = append(r.Turns,
			turnOf(chat.RoleAssistant, say("I look."), chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Namespace: "group", Name: "tool_3", Args: `{"path":"a"}`}}),
			turnOf(chat.RoleUser, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{say(strings.Repeat("A line of a file.\n", 40))}}}))
	}
	model := short(b, 0)
	shown := pipeline.Shown(r, model)
	ids, err := model.Tokens(shown, true)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("words", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pipeline.Shown(r, model)
		}
	})
	b.Run("reuse", func(b *testing.B) {
		b.ReportAllocs()
		p := pipeline.New(pipeline.Config{})
		for b.Loop() {
			request := &pipeline.Request{Chat: shown, Notes: &pipeline.Notes{}}
			request.Identity.Key = "s"
			p.Told(request, model, ids)
		}
	})
	b.Run("prompt", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(float64(len(ids)), "tokens")
		for b.Loop() {
			if _, err := model.Tokens(shown, true); err != nil {
				b.Fatal(err)
			}
		}
	})
}

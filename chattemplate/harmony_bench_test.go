package chattemplate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/harmony"
)

// A coding agent's session in its hundredth step: thirty tools, and files that it
// has read.
func BenchmarkHarmony(b *testing.B) {
	r := &chat.Request{API: chat.APIMessages, System: []chat.Block{text(strings.Repeat("Be a good agent. ", 500))}}
	for i := range 30 {
		r.Tools = append(r.Tools, chat.Tool{
			Kind: chat.ToolFunction, Name: fmt.Sprint("tool_", i), Description: strings.Repeat("It does a thing, and does it well.\n", 20),
			Schema: []byte(`{"type":"object","properties":{"path":{"type":"string","description":"The file to work on"},"edits":{"type":"array","items":{"type":"object","properties":{"old":{"type":"string"},"new":{"type":"string"}},"required":["old","new"]}},"mode":{"type":"string","enum":["a","b"],"default":"a"}},"required":["path"]}`),
		})
	}
	r.Turns = append(r.Turns, user("Mend it."))
	file := strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"read: %w\", err)\n\t}\n", 50)
	for i := range 100 {
		id := fmt.Sprint("call_", i)
		r.Turns = append(r.Turns,
			turn(chat.RoleAssistant, thought("Look at the next file."), use(id, "tool_1", `{"path":"main.go"}`)),
			turn(chat.RoleTool, answer(id, text(file))))
	}
	tmpl, controls := harmonyAt(), chattemplate.NewControls(harmony.Tokens())
	o := chattemplate.Options{AddGenerationPrompt: true}
	out, err := tmpl.RenderInert(r, o, controls)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(out.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.RenderInert(r, o, controls); err != nil {
			b.Fatal(err)
		}
	}
}

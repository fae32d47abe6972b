package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
)

// BenchmarkAppendDelta is the cost of one token of a stream.
func BenchmarkAppendDelta(b *testing.B) {
	for name, e := range map[string]chat.Event{
		"word":      {Kind: chat.TextDelta, Text: " rivers"},
		"escapes":   {Kind: chat.TextDelta, Text: "\"a\",\n\t\"b\""},
		"wide":      {Kind: chat.TextDelta, Text: "日本語テキスト"},
		"thought":   {Kind: chat.ThinkingDelta, Text: " rivers"},
		"arguments": {Kind: chat.ArgsDelta, Text: `{"path":"/etc/hosts"}`},
	} {
		b.Run(name, func(b *testing.B) {
			enc := (&generation{}).encoder(b)
			kind := map[chat.EventKind]chat.Kind{chat.TextDelta: chat.Text, chat.ThinkingDelta: chat.Thought, chat.ArgsDelta: chat.ToolCall}[e.Kind]
			enc.AppendEvent(nil, chat.Event{Kind: chat.BlockStart, BlockKind: kind, Tool: &chat.ToolUse{ID: "call_1", Name: "f"}})
			e.IDs = []uint32{7}
			buf := enc.AppendEvent(nil, e)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = enc.AppendEvent(buf[:0], e)
			}
		})
	}
}

// BenchmarkDecode decodes a body as an agent sends it late in its session: 2 MB
// in 500 turns, with tools, thoughts, calls and their results.
func BenchmarkDecode(b *testing.B) {
	body := session(500, 2<<20)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		c, err := anthropic.Decode(body, anthropic.Dialect{}, anthropic.Options{})
		if err != nil || len(c.Request.Turns) != 500 {
			b.Fatal(err)
		}
	}
}

// session builds the body of a long agent session of about size bytes.
func session(turns, size int) []byte {
	var s strings.Builder
	s.WriteString(`{"model":"acme/chat-8b","stream":true,"max_tokens":32000,"system":[{"type":"text","text":"Be an agent.","cache_control":{"type":"ephemeral"}}],"messages":[`)
	line := `\tif err := store.Put(ctx, key, \"größe\"); err != nil {\n\t\treturn fmt.Errorf(\"put %q: %w\", key, err) // naïve 日本\n\t}\n`
	each := strings.Repeat(line, max(1, size/turns/len(line)))
	for i := range turns {
		switch {
		case i == 0:
			fmt.Fprintf(&s, `{"role":"user","content":[{"type":"text","text":"%s"}]}`, each)
		case i%2 == 1:
			fmt.Fprintf(&s, `,{"role":"assistant","content":[{"type":"thinking","thinking":"I look.","signature":"%s"},{"type":"text","text":"Let me write."},{"type":"tool_use","id":"toolu_%024d","name":"write","input":{"text":"%s"}}]}`, "r1.eyJoIjoiMDEyMzQ1Njc4OWFiY2RlZiIsImkiOjB9", i, each)
		default:
			fmt.Fprintf(&s, `,{"role":"user","content":[{"tool_use_id":"toolu_%024d","type":"tool_result","content":[{"type":"text","text":"%s"}]}]}`, i-1, each)
		}
	}
	s.WriteString(`],"tools":[`)
	for i := range 30 {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"name":"tool_%d","description":"does things","input_schema":{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}}}}`, i)
	}
	s.WriteString(`]}`)
	return []byte(s.String())
}

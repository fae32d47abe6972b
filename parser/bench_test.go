package parser_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// BenchmarkPlainText is figure B18: text without markup, in pieces the size of
// a token and of a merged delta.
func BenchmarkPlainText(b *testing.B) {
	prose := strings.Repeat("The quick brown fox jumps over the lazy dog, if a < b.\nAnd then it sleeps. ", 50)
	for _, size := range []struct {
		name  string
		bytes int
	}{{"token", 5}, {"delta64", 64}, {"whole", len(prose)}} {
		var pieces []chat.Piece
		for i := 0; i < len(prose); i += size.bytes {
			pieces = append(pieces, chat.Piece{Text: prose[i:min(len(prose), i+size.bytes)], IDs: []uint32{uint32(i)}})
		}
		for _, start := range []struct {
			name  string
			start parser.Start
		}{{"text", parser.StartNone}, {"thinking", parser.StartReasoning}} {
			b.Run(size.name+"/"+start.name, func(b *testing.B) {
				p := parser.New(hermes, parser.Options{Start: start.start, ToolsOn: true, ThinkOn: true})
				buf := p.Push(nil, chat.Piece{Text: "x"})
				b.SetBytes(int64(len(prose)))
				b.ReportAllocs()
				for b.Loop() {
					for _, piece := range pieces {
						buf = p.Push(buf[:0], piece)
					}
				}
				b.ReportMetric(float64(len(pieces)), "deltas/op")
			})
		}
	}
}

func BenchmarkCall(b *testing.B) {
	args := `{"path": "main.go", "text": "` + strings.Repeat(`fmt.Println(\"hello\")\n`, 100) + `"}`
	text := "<think>\nLet me write.\n</think>\n\n<tool_call>\n{\"name\": \"write\", \"arguments\": " + args + "}\n</tool_call>"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p := parser.New(hermes, parser.Options{ToolsOn: true, ThinkOn: true})
		var buf []chat.Event
		for i := 0; i < len(text); i += 5 {
			buf = p.Push(buf[:0], chat.Piece{Text: text[i:min(len(text), i+5)]})
		}
		_, _ = p.Finish(buf[:0], chat.FinishStop)
	}
}

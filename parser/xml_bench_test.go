package parser_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// BenchmarkTaggedCall writes a file of 2.3 KB in pieces the size of a token.
func BenchmarkTaggedCall(b *testing.B) {
	content := strings.Repeat("if a < b {\n\tfmt.Println(\"hello\")\n}\n", 64)
	for _, f := range taggedFamilies {
		b.Run(f.name, func(b *testing.B) {
			family := familyOf(b, f.name)
			opts := parser.Options{ToolsOn: true, ThinkOn: true, Tools: []chat.Tool{{
				Name: "write", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},"mode":{"type":"integer"}}}`),
			}}}
			text := "Let me write.\n\n" + f.write([]givenCall{{name: "write", keys: []string{"path", "mode", "content"}, values: []any{"main.go", json.RawMessage("420"), content}}})
			var pieces []chat.Piece
			for i := 0; i < len(text); i += 5 {
				pieces = append(pieces, chat.Piece{Text: text[i:min(len(text), i+5)], IDs: []uint32{1}})
			}
			var buf []chat.Event
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				p := parser.New(family, opts)
				for _, piece := range pieces {
					buf = p.Push(buf[:0], piece)
				}
				buf, _ = p.Finish(buf[:0], chat.FinishStop)
			}
			b.ReportMetric(float64(len(pieces)), "deltas/op")
		})
	}
}

// BenchmarkTaggedString is a part of a string that needs no escapes.
func BenchmarkTaggedString(b *testing.B) {
	f := taggedFamilies[0]
	p := parser.New(familyOf(b, f.name), parser.Options{ToolsOn: true})
	buf := p.Push(nil, chat.Piece{Text: f.open + f.call("f") + f.param("k", "") + "x"})
	piece := chat.Piece{Text: strings.Repeat("words, words ", 5)[:64], IDs: []uint32{1}}
	b.SetBytes(int64(len(piece.Text)))
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Push(buf[:0], piece)
	}
}

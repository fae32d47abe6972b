package parser_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// prose is text without markup, but with bytes in it that markers begin with.
var prose = strings.Repeat("The quick brown fox jumps over the lazy dog, if a < b.\nAnd then it [1] sleeps. ", 50)

// BenchmarkPlainText is a part of figure B18: text and thinking without markup, in
// pieces of the size of a token and of a merged delta.
func BenchmarkPlainText(b *testing.B) {
	for _, name := range []string{"hermes+qwen3", "qwen3_coder+qwen3", "glm47+glm45", "kimi_k2+kimi_k25", "deepseek_v4+deepseek_v4", "minimax_m2+minimax_m2", "mistral+mistral", "gemma4+gemma4", "pythonic", "harmony+gpt_oss"} {
		f := familyOf(b, name)
		for _, size := range []struct {
			name  string
			bytes int
		}{{"token", 5}, {"delta64", 64}} {
			var pieces []chat.Piece
			for i := 0; i < len(prose); i += size.bytes {
				pieces = append(pieces, chat.Piece{Text: prose[i:min(len(prose), i+size.bytes)], IDs: []uint32{uint32(i)}})
			}
			for _, state := range []struct {
				name  string
				start parser.Start
			}{{"text", parser.StartResponse}, {"thinking", parser.StartReasoning}} {
				b.Run(name+"/"+size.name+"/"+state.name, func(b *testing.B) {
					p := parser.New(f, parser.Options{Start: state.start, ToolsOn: true, ThinkOn: true})
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
}

// BenchmarkCall is an answer that thinks and calls a tool once, with the text of a
// file for an argument, from its first token to its end.
func BenchmarkCall(b *testing.B) {
	file := strings.Repeat("fmt.Println(x)\n", 200)
	escaped := strings.ReplaceAll(file, "\n", `\n`)
	for name, call := range map[string]string{
		"hermes+qwen3":            "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"main.go\", \"text\": \"" + escaped + "\"}}\n</tool_call>",
		"qwen3_coder+qwen3":       "<tool_call>\n<function=write>\n<parameter=path>\nmain.go\n</parameter>\n<parameter=text>\n" + file + "\n</parameter>\n</function>\n</tool_call>",
		"deepseek_v4+deepseek_v4": "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"text\" string=\"true\">" + file + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
		"kimi_k2+kimi_k25":        "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{\"text\": \"" + escaped + "\"}<|tool_call_end|><|tool_calls_section_end|>",
	} {
		b.Run(name, func(b *testing.B) {
			f := familyOf(b, name)
			text := "Let me write.\n</think>\n\n" + call
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				p := parser.New(f, parser.Options{Start: parser.StartReasoning, ToolsOn: true, ThinkOn: true})
				var buf []chat.Event
				for i := 0; i < len(text); i += 5 {
					buf = p.Push(buf[:0], chat.Piece{Text: text[i:min(len(text), i+5)]})
				}
				if _, reason := p.Finish(buf[:0], chat.FinishStop); reason != chat.FinishToolUse {
					b.Fatal(reason)
				}
			}
			b.ReportMetric(float64((len(text)+4)/5), "deltas/op")
		})
	}
}

// BenchmarkNew is what every answer pays once.
func BenchmarkNew(b *testing.B) {
	for _, name := range []string{"hermes+qwen3", "deepseek_v4+deepseek_v4", "harmony+gpt_oss"} {
		f := familyOf(b, name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parser.New(f, parser.Options{ToolsOn: true, ThinkOn: true})
			}
		})
	}
}

package tokenizer_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/tokenizer"
)

// document returns 64 KiB of text of a kind, one passage over and over.
func document(kind string) string {
	unit := map[string]string{
		"english": "The router knows where the blocks of each prompt already lie, so it can send a request to the worker that has least left to do. " +
			"Nobody had expected the harbor to freeze; children walked out with lanterns. In 2024 it cost €12.50, didn't it?\n\n",
		"code":    "func (s *Server) handleRequest(ctx context.Context, id int) (*Response, error) {\n\tif err := s.validate(ctx, id); err != nil {\n\t\treturn nil, fmt.Errorf(\"request %d: %w\", id, err)\n\t}\n\treturn &Response{Items: s.cache[id].items}, nil\n}\n\n",
		"chinese": "请用中文写一个简短的总结，并列出最重要的几点。系统的速度取决于同时处理的请求数量，缓存可以减少重复的计算。首先把洋葱切成小块，然后用小火煮二十分钟。\n",
	}[kind]
	return strings.Repeat(unit, 64<<10/len(unit))
}

// BenchmarkKnownWords reads the same words again and again, as they come back in a
// conversation: the cache has those that are no tokens. What new text costs,
// BenchmarkNewWords tells of words and B11 of documents.
func BenchmarkKnownWords(b *testing.B) {
	tok := demoTokenizer(b)
	for _, kind := range []string{"english", "code", "chinese"} {
		text := document(kind)
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var ids []uint32
			for b.Loop() {
				ids = tok.Append(ids[:0], text)
			}
		})
	}
}

// BenchmarkDecoder counts one token per operation.
func BenchmarkDecoder(b *testing.B) {
	tok := demoTokenizer(b)
	for _, kind := range []string{"english", "chinese"} {
		ids := tok.Append(nil, document(kind))
		b.Run(kind, func(b *testing.B) {
			dec := tok.NewDecoder(true)
			var text []byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				text = dec.Append(text[:0], ids[i%len(ids)])
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	file, err := demo.File("tokenizer.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := tokenizer.Load(file); err != nil {
			b.Fatal(err)
		}
	}
}

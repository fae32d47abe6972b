package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
)

// BenchmarkAppendTextDelta is the cost of one token of a chat stream.
func BenchmarkAppendTextDelta(b *testing.B) {
	for name, delta := range map[string]string{
		"word":      " rivers",
		"escapes":   "\"a\",\n\t\"b\"",
		"wide":      "日本語テキスト",
		"sentence":  "The Elbe, the Oder and the Rhine are three rivers of Germany, said she.",
		"arguments": `{"path":"/etc/hosts"}`,
	} {
		b.Run(name, func(b *testing.B) {
			enc := newStream(b, `"stream_options":{"include_usage":true}`)
			e := chat.Event{Kind: chat.TextDelta, Text: delta, IDs: []uint32{7}}
			var buf []byte
			buf = enc.AppendEvent(buf, e)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = enc.AppendEvent(buf[:0], e)
			}
		})
	}
}

// BenchmarkDecodeChat decodes a body as an agent sends it late in its session:
// 2 MB in 500 turns, with tools, calls and their results.
func BenchmarkDecodeChat(b *testing.B) {
	for name, body := range map[string][]byte{
		"strings": session(500, 2<<20, false),
		"parts":   session(500, 2<<20, true),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				c, err := openai.DecodeChat(body, openai.Options{})
				if err != nil || len(c.Requests[0].Turns) != 500 {
					b.Fatal(err)
				}
			}
		})
	}
}

// session builds the body of a long agent session of about size bytes.
func session(turns, size int, parts bool) []byte {
	var s strings.Builder
	s.WriteString(`{"model":"acme/chat-8b","stream":true,"max_tokens":4096,"temperature":0.7,"messages":[`)
	line := `\tif err := store.Put(ctx, key, \"größe\"); err != nil {\n\t\treturn fmt.Errorf(\"put %q: %w\", key, err) // naïve 日本\n\t}\n`
	each := strings.Repeat(line, max(1, size/turns/len(line)))
	content := func() string {
		if parts {
			return `[{"type":"text","text":"` + each + `"}]`
		}
		return `"` + each + `"`
	}
	for i := range turns {
		if i > 0 {
			s.WriteByte(',')
		}
		switch {
		case i == 0:
			fmt.Fprintf(&s, `{"role":"system","content":%s}`, content())
		case i%3 == 1:
			fmt.Fprintf(&s, `{"role":"user","content":%s}`, content())
		case i%3 == 2:
			fmt.Fprintf(&s, `{"role":"assistant","reasoning_content":"I look.","content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"write","arguments":"{\"text\":\"%s\"}"}}]}`, i, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(each))
		default:
			fmt.Fprintf(&s, `{"role":"tool","tool_call_id":"call_%d","content":%s}`, i-1, content())
		}
	}
	s.WriteString(`],"tools":[`)
	for i := range 30 {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"type":"function","function":{"name":"tool_%d","description":"does things","parameters":{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}}}}}`, i)
	}
	s.WriteString(`]}`)
	return []byte(s.String())
}

func newStream(tb testing.TB, members string) openai.Encoder {
	tb.Helper()
	if members != "" {
		members = "," + members
	}
	c, err := openai.DecodeChat([]byte(`{"model":"acme/chat-8b","stream":true,"messages":[{"role":"user","content":"Hi"}]`+members+`}`), openai.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c.Encoder(openai.Header{ID: "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", Model: "acme/chat-8b", Created: 1790000001})
}

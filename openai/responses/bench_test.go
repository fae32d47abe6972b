package responses_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

// BenchmarkAppendDelta is the cost of one token of a stream.
func BenchmarkAppendDelta(b *testing.B) {
	for _, bm := range []struct {
		name    string
		members string
		block   block
	}{
		{"word", "", words(" rivers")},
		{"escapes", "", words("\"a\",\n\t\"b\"")},
		{"wide", "", words("日本語テキスト")},
		{"sentence", "", words("The Elbe, the Oder and the Rhine are three rivers of Germany, said she.")},
		{"summary", `"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"]`, thought(" rivers")},
		{"arguments", "", calls("call_a", "read", `{"path":"/etc/hosts"}`)},
		{"custom", `"tools":[` + patch + `]`, calls("call_a", "apply_patch", `{"input":"`, `+\treturn \"a\"\n`)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			// One long answer is many short ones: no stream has a million tokens, and
			// what a stream keeps of its text shall not be measured as growth for ever.
			const tokens = 4096
			call := decode(b, bm.members, responses.Options{})
			events := said(bm.block)
			open, delta := events[:len(events)-2], events[len(events)-2]
			var buf []byte
			var enc *responses.Encoder
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%tokens == 0 {
					b.StopTimer()
					enc = call.Encoder(header)
					for _, e := range open {
						buf = enc.AppendEvent(buf[:0], e)
					}
					for range tokens { // the buffers have grown
						buf = enc.AppendEvent(buf[:0], delta)
					}
					b.StartTimer()
				}
				buf = enc.AppendEvent(buf[:0], delta)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

// BenchmarkStream is the cost of a whole answer, buffers and all, per token.
func BenchmarkStream(b *testing.B) {
	call := decode(b, "", responses.Options{})
	events := answer(chat.FinishStop, words(strings.Split(strings.Repeat(" rivers|", 2000), "|")...))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		enc := call.Encoder(header)
		for _, e := range events {
			buf = enc.AppendEvent(buf[:0], e)
		}
		buf = enc.AppendEnd(buf[:0], ended)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// BenchmarkDecode decodes a body as an agent sends it late in its session: 2 MB
// in 500 turns, with tools, calls and their results.
func BenchmarkDecode(b *testing.B) {
	body := session(500, 2<<20)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		c, err := responses.Decode(body, responses.Options{})
		if err == nil {
			err = c.Resolve(nil)
		}
		if err != nil || len(c.Request.Turns) != 500 {
			b.Fatal(err, len(c.Request.Turns))
		}
	}
}

// session builds the body of a long agent session of about size bytes. Of four
// turns one is the user's, one a call, one its result and one an answer.
func session(turns, size int) []byte {
	var s strings.Builder
	s.WriteString(`{"model":"acme/chat-8b","stream":true,"reasoning":{"summary":"auto"},"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","tools":[`)
	for i := range 20 {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"type":"function","name":"tool_%d","description":"Does one of many things","strict":false,"parameters":{"type":"object","properties":{"path":{"type":"string","description":"Where"},"limit":{"type":"integer"}},"required":["path"]}}`, i)
	}
	s.WriteString(`],"input":[`)
	line := `\tif err := store.Put(ctx, key, \"größe\"); err != nil {\n\t\treturn fmt.Errorf(\"put %q: %w\", key, err) // naïve 日本\n\t}\n`
	each := strings.Repeat(line, max(1, size/turns/len(line)))
	for i := range turns {
		if i > 0 {
			s.WriteByte(',')
		}
		switch i % 4 {
		case 0:
			fmt.Fprintf(&s, `{"type":"message","role":"user","content":[{"type":"input_text","text":"%s"}]}`, each)
		case 1:
			fmt.Fprintf(&s, `{"type":"reasoning","summary":[{"type":"summary_text","text":"Look."}],"encrypted_content":"gAAAAAB"},{"type":"function_call","call_id":"call_%d","name":"tool_1","arguments":"{\"path\":\"%s\"}"}`, i, each)
		case 2:
			fmt.Fprintf(&s, `{"type":"function_call_output","call_id":"call_%d","output":"%s"}`, i-1, each)
		case 3:
			fmt.Fprintf(&s, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"%s"}]}`, each)
		}
	}
	s.WriteString(`]}`)
	return []byte(s.String())
}

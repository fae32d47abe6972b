package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// transcript is so many bytes of an agent's work: code that was read, and words
// about it.
func transcript(b *strings.Builder, bytes, seed int) {
	for end := b.Len() + bytes; b.Len() < end; seed++ {
		fmt.Fprintf(b, "<|im_start|>user\n<tool_response>\nfile_%d.go, lines %d to %d\n", seed, seed*3, seed*7)
		for i := range 15 {
			fmt.Fprintf(b, "\tif err := store.read(ctx, key%d, &value); err != nil {\n\t\treturn fmt.Errorf(\"read %d of %%s: %%w\", name, err)\n\t}\n", seed%100+i, i)
		}
		fmt.Fprintf(b, "</tool_response><|im_end|>\n<|im_start|>assistant\nStep %d: the error of the reader is not handled where the value is missing; I change the caller.<|im_end|>\n", seed)
	}
}

// A prompt of 240 KB, of which 95 % stood in the turn before. The rate is that
// of the whole prompt.
func BenchmarkNextTurn(b *testing.B) {
	for name, cache := range map[string]*prompt.Cache{"cached": prompt.NewCache(prompt.DefaultCacheBytes), "uncached": nil} {
		b.Run(name, func(b *testing.B) {
			m := demoModel(b)
			m.Cache = cache
			var before strings.Builder
			transcript(&before, 228_000, 0)
			r := &chat.Request{Prompt: &chat.Prompt{Text: before.String(), NoSpecialTokens: true}}
			tokens := func() {
				if _, err := m.Tokens(r, true); err != nil {
					b.Fatal(err)
				}
			}
			tokens()
			for i := 1; b.Loop(); i++ {
				b.StopTimer()
				var text strings.Builder
				text.WriteString(before.String())
				transcript(&text, 12_000, 1000*i)
				r.Prompt.Text = text.String()
				b.SetBytes(int64(text.Len()))
				b.StartTimer()
				tokens()
			}
		})
	}
}

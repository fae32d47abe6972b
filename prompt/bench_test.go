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

// The same prompt as a conversation with answers that the turn cache knows, and
// four places of it, as a harness marks them: of the last one alone, or of all, where
// they were found before, or, as with each next turn, but for the newest, or never.
func BenchmarkConversation(b *testing.B) {
	for _, bench := range []struct {
		name       string
		places     int
		all        bool
		next, anew bool
	}{
		{name: "no places"},
		{name: "the last of four places", places: 4},
		{name: "four places", places: 4, all: true},
		{name: "four places, next turn", places: 4, all: true, next: true},
		{name: "four places, anew", places: 4, all: true, anew: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			shared := demoModel(b)
			m := shared.WithOwnPlaces()
			m.ContextLength = 0
			r := &chat.Request{Turns: []chat.Turn{said(chat.RoleSystem, strings.Repeat("Mind the gap. ", 200))}}
			size := 0
			plain := strings.NewReplacer("<|im_start|>", "", "<|im_end|>", "", "<tool_response>", "", "</tool_response>", "")
			for i := 0; size < 240_000; i++ {
				var result strings.Builder
				transcript(&result, 1800, i)
				text := plain.Replace(result.String())
				answer := fmt.Sprintf("Step %d: the error of the reader is not handled where the value is missing.", i)
				r.Turns = append(r.Turns, said(chat.RoleUser, text))
				p, err := m.Build(r, nil)
				if err != nil {
					b.Fatal(err)
				}
				m.Remember(p, m.Tokenizer.Append(nil, answer), nil)
				r.Turns = append(r.Turns, said(chat.RoleAssistant, answer))
				size += len(text) + len(answer)
			}
			r.Turns = append(r.Turns, said(chat.RoleUser, "And now?"))
			var places []chat.Breakpoint
			for i := range bench.places {
				r.Cache = append(r.Cache, chat.Breakpoint{Turn: len(r.Turns) - 1 - i})
			}
			if bench.all {
				places = r.Cache
			}
			if bench.anew {
				m = m.WithoutPlaces()
			}
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				if bench.next {
					r.Turns[len(r.Turns)-1] = said(chat.RoleUser, fmt.Sprintf("And now? %d", i))
				}
				if _, err := m.Build(r, nil, places...); err != nil {
					b.Fatal(err)
				}
			}
			if s := m.Turns.Stats(); s.Misses > 0 || s.Hits == 0 {
				b.Fatalf("answers were not found: %+v", s)
			}
		})
	}
}

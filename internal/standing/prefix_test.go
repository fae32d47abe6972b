package standing_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

// generation is what an engine was given, and what it made of it.
type generation struct{ prompt, ids []uint32 }

// journal notes the generations of the engines that it is put around.
type journal struct {
	mu   sync.Mutex
	list []*generation
}

// around notes what e does. Only what every engine can do is left of it.
func (j *journal) around(e engine.Engine) engine.Engine { return &noted{e, j} }

type noted struct {
	engine.Engine
	journal *journal
}

func (n *noted) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		g := &generation{prompt: slices.Clone(r.TokenIDs)}
		n.journal.mu.Lock()
		n.journal.list = append(n.journal.list, g)
		n.journal.mu.Unlock()
		for d, err := range n.Engine.Generate(ctx, r) {
			n.journal.mu.Lock()
			g.ids = append(g.ids, d.TokenIDs...)
			n.journal.mu.Unlock()
			if !yield(d, err) {
				return
			}
		}
	}
}

// take returns what was noted since the last call.
func (j *journal) take() []*generation {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := j.list
	j.list = nil
	return list
}

// choppy makes tokens as no tokenizer would: of a few characters at a time. Tags
// stay whole, since models write them so.
func choppy(model *prompt.Model, seed uint64) func([]uint32, string) []uint32 {
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	return func(dst []uint32, text string) []uint32 {
		mu.Lock()
		defer mu.Unlock()
		for len(text) > 0 {
			n := 0
			if end := strings.IndexByte(text, '>'); text[0] == '<' && end > 0 {
				n = end + 1
			} else {
				for range 1 + random.IntN(4) {
					if _, size := utf8.DecodeRuneInString(text[n:]); n == 0 || n < len(text) && text[n] != '<' {
						n += size
					}
				}
			}
			dst = model.Tokenizer.Append(dst, text[:n])
			text = text[n:]
		}
		return dst
	}
}

const session = `
rules:
  - when: {result: "rains"}
    emit: "The weather is <b>fine</b>, see for yourself."
  - when: {user: "plain"}
    emit: "Nothing to do here, 東京 👍🏽 said so."
  - when: {user: "think"}
    emit: "<think>\nIs it so?  Let me see.\n</think>\n\nIt is, indeed; quite unmistakably."
  - when: {user: "call"}
    emit: "<think>\nI must look.\n</think>\n\nOne moment, please.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":  \"München\", \"n\": 1.50}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call>"
`

// 7. A prompt begins with the one before it and its answer, token for token, if
// the client changed nothing.
func TestThePrefixSurvives(t *testing.T) {
	model, err := prompt.Load(demo.File, prompt.Parsers{})
	check(t, err)
	forgetful := func(template string) string {
		const shows = "message.reasoning_content is string"
		if !strings.Contains(template, shows) {
			t.Fatal("the template shows no thoughts")
		}
		return strings.Replace(template, shows, shows+" and false", 1)
	}
	for name, tc := range map[string]struct {
		plan   plan
		more   object
		stream bool
		choice int // that the client goes on with
	}{
		"unary":   {},
		"stream":  {stream: true},
		"choices": {more: object{"n": 3}, choice: 2},
		"short":   {more: object{"max_tokens": 6}},
		"replay":  {plan: plan{replay: true, template: forgetful}},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			tc.plan.script, tc.plan.encode, tc.plan.wrap = session, choppy(model, 7), j.around
			h := build(t, tc.plan)
			var messages []any
			var before []*generation // one for each choice
			for i, text := range []string{"plain", "call", "", "think", "call", "", "plain", "think"} {
				if text != "" {
					messages = append(messages, object{"role": "user", "content": text})
				}
				body := object{"model": demo.Name, "messages": messages, "tools": weather, "seed": 5 + i}
				maps.Copy(body, tc.more)
				var answer object
				if tc.stream {
					answer = h.stream(t, chatRoute, body).folded(t)
				} else {
					answer = h.unary(t, chatRoute, body)
				}
				made := j.take()
				now := made[0].prompt
				extends := func(g *generation) bool {
					want := slices.Concat(g.prompt, g.ids)
					return len(now) >= len(want) && slices.Equal(now[:len(want)], want)
				}
				if before != nil && !slices.ContainsFunc(before, extends) {
					t.Fatalf("prompt %d\n%q\n%v\ndoes not begin with\n%q\n%v\nand\n%v", i, model.Tokenizer.Decode(now, false), now,
						model.Tokenizer.Decode(slices.Concat(before[0].prompt, before[0].ids), false), before[0].prompt, before[0].ids)
				}
				before = made
				message := answer["choices"].([]any)[tc.choice].(object)["message"].(object)
				message["role"] = "assistant"
				messages = append(messages, message)
				for _, call := range asList(message["tool_calls"]) {
					messages = append(messages, object{"role": "tool", "tool_call_id": call.(object)["id"], "content": fmt.Sprint("It rains <tool_call> in ", i)})
				}
			}
			h.idle(t)
		})
	}
}

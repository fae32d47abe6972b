package pipeline_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/pipeline"
)

// writeAnew reads the arguments of calls and writes them again, as most clients do.
func writeAnew(t *testing.T, blocks []chat.Block) {
	for i := range blocks {
		if blocks[i].Use == nil {
			continue
		}
		var args map[string]any
		if err := json.Unmarshal([]byte(blocks[i].Use.Args), &args); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		use := *blocks[i].Use
		use.Args = string(text)
		blocks[i].Use = &use
	}
}

// Whatever an agent and its model say to each other, by whichever API, each prompt
// begins with the one before it and its answer, token for token: with the lines
// that name the agent's program, with reminders in between, with groups of tools
// and with all that a client does to what it was told.
func TestSessionsKeepTheirPrefix(t *testing.T) {
	const sessions, turns = 30, 6
	parts := []string{"Look", " at", " it", "\n", "é", " 東京", " <b>", "\"", "\\", "👍", "1234", "{x}", " <|im_end|>", "\n\n"}
	c := newConversation(t, pipeline.Config{})
	for seed := range uint64(sessions) {
		random := rand.New(rand.NewPCG(seed, 1))
		words := func() string {
			s := "w"
			for range random.IntN(7) {
				s += parts[random.IntN(len(parts))]
			}
			return s + "."
		}
		// What a model generates is its own: no control token is in it.
		generated := func() string { return strings.ReplaceAll(words(), "<|im_end|>", "<b>") }
		api := []chat.API{chat.APIChat, chat.APIMessages, chat.APIResponses}[seed%3]
		c.next = chat.Request{API: api, Model: "test/model", Thinking: chat.Thinking{Keep: new(chat.KeepAll)}}
		c.next.Tools = []chat.Tool{function("a", "run"), function("b", "run")}
		c.say(words())
		for turn := range turns {
			c.next.System = []chat.Block{say(fmt.Sprintf("x-anthropic-billing-header: cch=%d;", random.Int())), say("Be brief.")}
			raw := ""
			if random.IntN(2) == 0 {
				raw = "<think>\n" + generated() + "\n</think>\n\n"
			}
			calls := random.IntN(3)
			if calls == 0 || random.IntN(2) == 0 {
				raw += generated()
			}
			for range calls {
				if !strings.HasSuffix(raw, "\n\n") && raw != "" {
					raw += "\n"
				}
				raw += fmt.Sprintf("<tool_call>\n{\"name\": \"%s__run\", \"arguments\": {\"x\": %s,  \"n\": 1.50}}\n</tool_call>", []string{"a", "b"}[random.IntN(2)], quoted(generated()))
			}
			n := c.ask(raw, fmt.Sprint("session ", seed))
			if turn > 0 && (n.Reuse == nil || n.Reuse.Ratio() != 1) {
				t.Fatalf("seed %d, turn %d: %+v, %+v", seed, turn, n.Reuse, n.Reuse.Difference)
			}
			answer := &c.next.Turns[len(c.next.Turns)-1]
			if api == chat.APIChat {
				answer.Blocks = asOneMessage(answer.Blocks)
			}
			if random.IntN(2) == 0 {
				writeAnew(t, answer.Blocks)
			}
			c.next.Turns = append(c.next.Turns, results(api, answer.Blocks)...)
			if calls == 0 {
				c.say(words())
			}
			if random.IntN(4) == 0 {
				c.next.Turns = append(c.next.Turns, turnOf(chat.RoleSystem, say(words())))
			}
		}
	}
}

package pipeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// seer is an agent whose turns ask for foresight.
type seer struct {
	*conversation
	session string
}

func newSeer(t *testing.T, api chat.API, session string) *seer {
	s := &seer{newConversation(t, pipeline.Config{}), session}
	s.next.API = api
	return s
}

func hinted() *nvext.Ext { return &nvext.Ext{AgentHints: &nvext.Hints{SpeculativePrefill: new(true)}} }

// turn sends the conversation, has it answered with raw, and returns the request with
// the answer, and what the engine was sent for both of them once that has ended.
func (s *seer) turn(raw string) (answer []chat.Block, sent []*engine.Request) {
	s.t.Helper()
	s.f.generate = s.h.say(raw+"<|im_end|>", 3, engine.FinishEOS)
	c := clone(s.next)
	r := &pipeline.Request{ID: "00000000-0000-4000-8000-000000000000", Chat: &c, Ext: hinted()}
	r.Identity.Key = s.session
	before := len(s.f.sent())
	answers, err := chat.Fold(s.h.Run(s.t.Context(), r))
	if err != nil {
		s.t.Fatal(err)
	}
	s.h.Settle()
	return answers[0].Blocks, s.f.sent()[before:]
}

// prompt returns the tokens of a conversation's prompt.
func (s *seer) prompt(c *chat.Request) []uint32 {
	s.t.Helper()
	ids, _, err := s.h.Tokenize(c, true)
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// commonTokens returns with how many tokens both begin.
func commonTokens(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// What is computed ahead is what the next prompt begins with, down to the last whole
// block before it says something new: on every API, with thoughts and calls, for
// clients that write arguments anew, and for those that keep thoughts to themselves.
func TestForesight(t *testing.T) {
	const (
		thought = "<think>\nA long thought about what it may be, and what it may not be after all.\n</think>\n\n"
		text    = "It is what it is, and that is all that there is to be said about it, I am afraid."
		call    = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1.50,   \"b\": \"\\u0041\"}}\n</tool_call>"
	)
	for _, api := range []chat.API{chat.APIChat, chat.APIResponses, chat.APIMessages} {
		for name, tc := range map[string]struct {
			raw    string
			anew   bool // arguments come back in another spelling
			silent bool // thoughts do not come back
		}{
			"text":                 {raw: text},
			"a thought":            {raw: thought + text},
			"a call":               {raw: call, anew: true},
			"a thought and a call": {raw: thought + call, anew: true},
			"two calls":            {raw: call + "\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>"},
			"a silent client":      {raw: thought + call, silent: true},
		} {
			if tc.silent && api != chat.APIChat {
				continue
			}
			t.Run(fmt.Sprint(api, " ", name), func(t *testing.T) {
				s := newSeer(t, api, "s")
				s.next.TemplateArgs = []byte(`{"enable_thinking":true}`)
				for turn := range 3 {
					answer, sent := s.turn(tc.raw)
					if len(sent) != 2 {
						t.Fatalf("turn %d: the engine was asked %d times", turn, len(sent))
					}
					ahead := sent[1]
					if ahead.Stop.MaxTokens != 1 || len(ahead.TokenIDs) == 0 || len(ahead.TokenIDs)%16 != 0 {
						t.Fatalf("turn %d: %d tokens for %d of the answer", turn, len(ahead.TokenIDs), ahead.Stop.MaxTokens)
					}
					if api == chat.APIChat {
						answer = asOneMessage(answer)
					}
					if tc.silent {
						answer = slices.DeleteFunc(answer, func(b chat.Block) bool { return b.Kind == chat.Thought })
					}
					if tc.anew {
						writeAnew(t, answer)
					}
					s.next.Turns = append(s.next.Turns, turnOf(chat.RoleAssistant, answer...))
					follow := func(text string) []uint32 {
						c := clone(s.next)
						if c.Turns = append(c.Turns, results(api, answer)...); len(c.Turns) == len(s.next.Turns) {
							c.Turns = append(c.Turns, turnOf(chat.RoleUser, say(text)))
						} else {
							c.Turns[len(s.next.Turns)].Blocks[0].Result.Blocks[0] = say(text)
						}
						return s.prompt(&c)
					}
					one, other := follow("Then tell me more."), follow("Why is that?")
					most := commonTokens(one, other)
					// A client that returns its first thoughts comes as a surprise.
					surprise := turn == 0 && api == chat.APIChat && strings.HasPrefix(tc.raw, "<think>") && !tc.silent
					if n := commonTokens(ahead.TokenIDs, one); n != len(ahead.TokenIDs) != surprise {
						t.Errorf("turn %d: the next prompt begins with %d of the %d tokens that were foreseen", turn, n, len(ahead.TokenIDs))
					}
					// The last token before what is new may depend on it.
					if least := (most - 1) / 16 * 16; len(ahead.TokenIDs) < least && !surprise {
						t.Errorf("turn %d: %d tokens were foreseen, and %d could have been", turn, len(ahead.TokenIDs), least)
					}
					s.next.Turns = append(s.next.Turns, results(api, answer)...)
					if s.next.Turns[len(s.next.Turns)-1].Role == chat.RoleAssistant {
						s.say("Then tell me more.")
					}
				}
				s.h.released(t)
				if c := s.h.Foresights(); c.Ends[pipeline.ForesightDone] != 3 || c.Running != 0 || c.Used == 0 {
					t.Errorf("counted %+v", c)
				}
			})
		}
	}
}

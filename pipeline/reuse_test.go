package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"pgregory.net/rapid"
)

// conversation leads a session against one fake engine, as a client does.
type conversation struct {
	t    *testing.T
	h    *house
	f    *fake
	next chat.Request
}

func newConversation(t *testing.T, c pipeline.Config) *conversation {
	f := &fake{}
	h := newHouse(t, c, f)
	r := request("First question").Chat
	r.System = []chat.Block{say("Be brief."), say("Be kind.")}
	r.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "f", Wire: []byte(`{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}`)}}
	return &conversation{t, h, f, *r}
}

// ask sends the conversation, has it answered with raw, and takes the answer in.
func (c *conversation) ask(raw, session string) *pipeline.Notes {
	c.t.Helper()
	c.f.generate = c.h.say(raw+"<|im_end|>", 3, engine.FinishEOS)
	sent := clone(c.next)
	r := &pipeline.Request{ID: "00000000-0000-4000-8000-000000000000", Chat: &sent, Debug: true}
	r.Identity.Key = session
	answers, err := chat.Fold(c.h.Run(c.t.Context(), r))
	if err != nil {
		c.t.Fatal(err)
	}
	c.next.Turns = append(c.next.Turns, turnOf(chat.RoleAssistant, answers[0].Blocks...))
	return r.Notes
}

func (c *conversation) say(text string) {
	c.next.Turns = append(c.next.Turns, turnOf(chat.RoleUser, say(text)))
}

const calling = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

func TestReuse(t *testing.T) {
	for name, tc := range map[string]struct {
		change      func(r *chat.Request)
		part, cause string
		answer      bool // the difference lies in the answer
	}{
		"nothing changed": {},
		"system": {
			change: func(r *chat.Request) { r.System[1] = say("Be rude.") },
			part:   "system[1]", cause: "system[1]",
		},
		"tools": {
			change: func(r *chat.Request) {
				r.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "g", Wire: []byte(`{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}`)}}
			},
			part: "tools", cause: "tools[0]",
		},
		"more tools": {
			change: func(r *chat.Request) {
				r.Tools = append(slices.Clone(r.Tools), chat.Tool{Kind: chat.ToolFunction, Name: "g", Wire: []byte(`{"type":"function","function":{"name":"g"}}`)})
			},
			part: "tools", cause: "tools: 2, had 1",
		},
		"a turn": {
			change: func(r *chat.Request) { r.Turns[0].Blocks = []chat.Block{say("First thing")} },
			part:   "turns[0].blocks[0]", cause: "turns[0].blocks[0]",
		},
		"text of the answer": {
			change: func(r *chat.Request) { r.Turns[1].Blocks[0] = say("Let us see.\n") },
			part:   "turns[1].blocks[0]", cause: "turns[1]: the answer's text came back in another form", answer: true,
		},
		"arguments of a call": {
			change: func(r *chat.Request) {
				use := *r.Turns[1].Blocks[1].Use
				use.Args = `{"a": 2}`
				r.Turns[1].Blocks[1].Use = &use
			},
			part: "turns[1].blocks[1]", cause: "turns[1]: the answer's calls came back in another form", answer: true,
		},
		"no calls": {
			change: func(r *chat.Request) { r.Turns[1].Blocks = r.Turns[1].Blocks[:1] },
			part:   "turns[1].blocks[0]", cause: "turns[1]: the answer's calls did not come back", answer: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConversation(t, pipeline.Config{})
			if n := c.ask(calling, "s"); n.Reuse != nil {
				t.Fatalf("the first request uses %+v again", n.Reuse)
			}
			c.next.Turns = append(c.next.Turns, turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: c.next.Turns[1].Blocks[1].Use.ID, Blocks: []chat.Block{say("done")}}}))
			if tc.change != nil {
				tc.change(&c.next)
			}
			u := c.ask("Done.", "s").Reuse
			if u == nil || u.Prompt != len(c.f.sent()[0].TokenIDs) || u.Answer != len(c.h.ids(calling)) {
				t.Fatalf("got %+v", u)
			}
			if tc.change == nil {
				if u.Common != u.Prompt+u.Answer || u.Ratio() != 1 || u.Difference != nil {
					t.Errorf("got %+v, %+v", u, u.Difference)
				}
				return
			}
			d := u.Difference
			if d == nil || tc.part != "" && d.Part != tc.part || d.Cause != tc.cause || d.Before == d.Now {
				t.Errorf("got %+v", d)
			}
			if (u.AnswerRatio() > 0) != tc.answer || (u.PromptRatio() == 1) != tc.answer || u.Ratio() >= 1 {
				t.Errorf("got %+v: ratios %v of prompt, %v of answer", u, u.PromptRatio(), u.AnswerRatio())
			}
		})
	}
}

// Only what a request goes on from counts, and only within its session.
func TestReuseOfWhat(t *testing.T) {
	c := newConversation(t, pipeline.Config{})
	c.ask("Yes.", "s")
	main := c.next

	// A title for the same session, with as many turns as the first request.
	c.next = *request("Find a title").Chat
	if u := c.ask("Title", "s").Reuse; u != nil {
		t.Errorf("a side call counts: %+v", u)
	}
	c.next = main
	c.say("Second question")
	if u := c.ask("No.", "other").Reuse; u != nil {
		t.Errorf("another session counts: %+v", u)
	}
	c.next = main
	c.say("Second question")
	if u := c.ask("No.", "s").Reuse; u == nil || u.Ratio() != 1 {
		t.Errorf("got %+v", u)
	}
	c.say("Third question")
	if u := c.ask("No.", "s").Reuse; u == nil || u.Ratio() != 1 {
		t.Errorf("got %+v", u)
	}
	// Nothing is kept where nothing may be.
	c = newConversation(t, pipeline.Config{HistoryTokens: -1})
	c.ask("Yes.", "s")
	c.say("Second question")
	if u := c.ask("No.", "s").Reuse; u != nil {
		t.Errorf("got %+v", u)
	}
}

// Tenants share no session of one name, and neither do conversations and what is
// none.
func TestReuseOfWhom(t *testing.T) {
	for name, change := range map[string]func(r *pipeline.Request){
		"the same":       func(*pipeline.Request) {},
		"another key":    func(r *pipeline.Request) { r.Tenant = "t" },
		"another tenant": func(r *pipeline.Request) { r.KV.Namespace.Salt = "t" },
		"no session":     func(r *pipeline.Request) { r.Identity.Key = "" },
		"background":     func(r *pipeline.Request) { r.Background = true },
		"no conversation": func(r *pipeline.Request) {
			r.Chat.API, r.Chat.Prompt = chat.APICompletions, &chat.Prompt{Text: "Once"}
		},
	} {
		f := &fake{features: engine.Features{engine.FeatureCacheSalt}}
		h := newHouse(t, pipeline.Config{}, f)
		ask := func(turns int, change func(r *pipeline.Request)) *pipeline.Reuse {
			f.generate = h.say("Yes", 1, engine.FinishEOS)
			r := request("Question")
			for range turns {
				r.Chat.Turns = append(r.Chat.Turns, turnOf(chat.RoleAssistant, say("Yes")), turnOf(chat.RoleUser, say("Question")))
			}
			r.Identity.Key = "s"
			change(r)
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r.Notes.Reuse
		}
		ask(0, func(*pipeline.Request) {})
		if u := ask(1, change); (u != nil) != (name == "the same") {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

// The last request of a session leaves nothing behind.
func TestReuseEnds(t *testing.T) {
	c := newConversation(t, pipeline.Config{})
	c.ask("Yes.", "s")
	c.say("Second question")
	sent := clone(c.next)
	r := &pipeline.Request{ID: "00000000-0000-4000-8000-000000000000", Chat: &sent}
	c.f.generate = c.h.say("No.", 3, engine.FinishEOS)
	r.Identity.Key, r.Identity.Final = "s", true
	if _, err := chat.Fold(c.h.Run(t.Context(), r)); err != nil || r.Notes.Reuse == nil {
		t.Fatalf("%+v, %v", r.Notes.Reuse, err)
	}
	c.say("Third question")
	if u := c.ask("No.", "s").Reuse; u != nil {
		t.Errorf("got %+v", u)
	}
}

// The session that was told of least lately makes room, and no request holds the
// ones before it.
func TestHistoriesForget(t *testing.T) {
	h := pipeline.NewHistories(1200)
	for _, name := range []string{"a", "b", "a", "c"} {
		after := -1
		if name == "a" && h.Known("a") > 0 {
			after = 0
		}
		h.Add(name, 100, after)
	}
	// Each takes 356: of a and b, the latter was told of before.
	h.Add("d", 100, -1)
	if h.Known("a") != 1 || h.Known("b") != 0 || h.Known("c") != 1 || h.Known("d") != 1 {
		t.Errorf("known of a %d, b %d, c %d, d %d", h.Known("a"), h.Known("b"), h.Known("c"), h.Known("d"))
	}
	if h.Chained("a") {
		t.Error("a request holds the one before it")
	}
}

// Whatever is added, the bound holds, and what was added last is there.
func TestHistoriesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(260, 3000).Draw(t, "limit")
		h := pipeline.NewHistories(limit)
		for range rapid.IntRange(0, 60).Draw(t, "requests") {
			name := strings.Repeat("x", rapid.IntRange(0, 6).Draw(t, "session"))
			n := rapid.IntRange(0, 400).Draw(t, "tokens")
			known := h.Known(name)
			after := -1
			if known > 0 && rapid.Bool().Draw(t, "goes on") {
				after = rapid.IntRange(0, known-1).Draw(t, "from")
			}
			h.Add(name, n, after)
			total, held := h.Tokens()
			if total > limit || held != total {
				t.Fatalf("holds %d tokens, counts %d, may %d", held, total, limit)
			}
			most := min(known+1, 4)
			if after >= 0 {
				most = known
			}
			got := h.Known(name)
			if fits := n+256 <= limit; got > most || (got > 0) != fits || fits && h.Last(name) != n {
				t.Fatalf("knows %d requests of the session, want 1 to %d, and the last one", got, most)
			}
		}
	})
}

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
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
	"pgregory.net/rapid"
)

// short is the built-in model with a short context.
func short(t testing.TB, context int) *prompt.Model {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	limited := *model
	limited.ContextLength = context
	return &limited
}

// What is too long loses its oldest exchanges, in steps: the prompts of several
// turns in a row begin alike. Without leave it is refused.
func TestTruncate(t *testing.T) {
	f := &fake{}
	h := newHouseWith(t, short(t, 400), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
	r := request("Question number 0 of the session")
	r.Chat.Turns = slices.Insert(r.Chat.Turns, 0, turnOf(chat.RoleSystem, say("Be brief.")))
	r.Chat.Truncate, r.Chat.Sampling.MaxTokens = true, new(40)
	kept, breaks, before := 0, 0, []uint32(nil)
	for i := 1; i < 60; i++ {
		asked := len(r.Chat.Turns)
		r.Chat.Turns = append(r.Chat.Turns, turnOf(chat.RoleAssistant, say(sentence)), turnOf(chat.RoleUser, say(fmt.Sprintf("Question number %d of the session", i))))
		r.Chat.Cache = []chat.Breakpoint{{Turn: -1, Block: prompt.WholeTurn}, {Turn: 1}, {Turn: asked + 1}}
		sent := len(f.sent())
		f.generate = h.say(sentence, 100, engine.FinishEOS)
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		ids := f.sent()[sent].TokenIDs
		text, _ := h.model.Text(ids)
		if len(ids) > 400-40 || !strings.Contains(text, "Be brief.") || !strings.Contains(text, fmt.Sprintf("number %d of", i)) {
			t.Fatalf("turn %d: %d tokens:\n%s", i, len(ids), text)
		}
		if before != nil && slices.Equal(ids[:min(len(ids), len(before))], before) {
			kept++
		} else {
			breaks++
		}
		before = ids
	}
	whole, _, err := h.Tokenize(r.Chat, true)
	if err != nil {
		t.Fatal(err)
	}
	if most := len(whole)/100 + 1; breaks > most {
		t.Errorf("%d prompts begin as the one before, %d do not; want %d at most for %d tokens", kept, breaks, most, len(whole))
	}
	r.Chat.Truncate = false
	if _, err := chat.Fold(h.Run(t.Context(), r)); err == nil || !contains(err, "maximum context length") {
		t.Errorf("without leave: %v", err)
	}
	r = request(strings.Repeat("so long ", 400))
	r.Chat.Truncate = true
	if _, err := chat.Fold(h.Run(t.Context(), r)); err == nil || !contains(err, "maximum context length") {
		t.Errorf("one question that is too long: %v", err)
	}
}

// One question with many calls loses the oldest of them, and keeps the question.
func TestTruncateCalls(t *testing.T) {
	f := &fake{}
	h := newHouseWith(t, short(t, 400), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
	f.generate = h.say(sentence, 100, engine.FinishEOS)
	r := request("The only question")
	r.Chat.Truncate, r.Chat.Tools = true, []chat.Tool{function("", "f")}
	for i := range 40 {
		id := fmt.Sprintf("call_%d", i)
		r.Chat.Turns = append(r.Chat.Turns,
			turnOf(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: "f", Args: fmt.Sprintf(`{"call": %d}`, i)}}),
			turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{say(fmt.Sprintf("result %d.", i))}}}))
	}
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	text, _ := h.model.Text(f.sent()[0].TokenIDs)
	if !strings.Contains(text, "The only question") || !strings.Contains(text, "result 39.") || strings.Contains(text, "result 0.") {
		t.Errorf("the prompt is\n%s", text)
	}
	if calls, results := strings.Count(text, `{"call": `), strings.Count(text, "result "); calls != results || calls == 0 {
		t.Errorf("%d calls, %d results", calls, results)
	}
}

// Whatever is left out, each cut takes all of the one before and more, the system
// text and the last question stay, and no result loses its call.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var turns []chat.Turn
		var open []string
		for i := range rapid.IntRange(0, 14).Draw(t, "turns") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				turns = append(turns, turnOf(chat.RoleSystem, say("s")))
			case 1:
				turns = append(turns, turnOf(chat.RoleUser, say("q")))
			case 2, 3:
				turn := turnOf(chat.RoleAssistant, say("a"))
				for k := range rapid.IntRange(0, 2).Draw(t, "calls") {
					id := fmt.Sprintf("%d.%d", i, k)
					open = append(open, id)
					turn.Blocks = append(turn.Blocks, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id}})
				}
				turns = append(turns, turn)
			case 4:
				if len(open) == 0 {
					continue
				}
				n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				role := rapid.SampledFrom([]chat.Role{chat.RoleTool, chat.RoleUser}).Draw(t, "role")
				turns = append(turns, turnOf(role, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: open[n]}}))
				open = slices.Delete(open, n, n+1)
			}
		}
		r := &chat.Request{Turns: turns, Cache: []chat.Breakpoint{{Turn: -1}}}
		for i := range turns {
			r.Cache = append(r.Cache, chat.Breakpoint{Turn: i})
		}
		last := -1
		for i := range turns {
			if turns[i].Role == chat.RoleUser && turns[i].Blocks[0].Result == nil {
				last = i
			}
		}
		left := map[int]bool{}
		for n, c := range pipeline.Cuts(r) {
			if len(c.Left) <= len(left) {
				t.Fatalf("cut %d leaves out %v, the one before %v", n, c.Left, left)
			}
			now := map[int]bool{}
			for _, i := range c.Left {
				now[i] = true
			}
			for i := range left {
				if !now[i] {
					t.Fatalf("cut %d brings turn %d back", n, i)
				}
			}
			left = now
			if left[last] {
				t.Fatalf("cut %d leaves out the last question", n)
			}
			for i := 0; i < len(turns) && turns[i].Role == chat.RoleSystem; i++ {
				if left[i] {
					t.Fatalf("cut %d leaves out system turn %d", n, i)
				}
			}
			calls := map[string]bool{}
			for _, turn := range c.Request.Turns {
				for _, b := range turn.Blocks {
					if b.Use != nil {
						calls[b.Use.ID] = true
					}
					if b.Result != nil && !calls[b.Result.ID] {
						t.Fatalf("cut %d: result %s has no call", n, b.Result.ID)
					}
				}
			}
			if len(c.Request.Turns)+len(left) != len(turns) || len(c.Request.Cache) != 1+len(c.Request.Turns) {
				t.Fatalf("cut %d: %d turns, %d marks, %d of %d left out", n, len(c.Request.Turns), len(c.Request.Cache), len(left), len(turns))
			}
			for i, at := range c.Request.Cache[1:] {
				if at.Turn != i {
					t.Fatalf("cut %d: mark %d is at turn %d", n, i, at.Turn)
				}
			}
		}
	})
}

// Ranges up to messages end where these do in what is left of the conversation. Of
// those that are left out nothing is kept, and the next range begins behind what is.
func TestTruncatedRetention(t *testing.T) {
	const exchanges = 30
	f := &fake{}
	h := newHouseWith(t, short(t, 400), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
	f.generate = h.say(sentence, 100, engine.FinishEOS)
	r := request("Question number 0 of the session")
	r.Chat.System = []chat.Block{{Kind: chat.Text, Text: "x-anthropic-billing-header: cc_version=1;\nBe brief."}}
	r.Chat.Turns = slices.Insert(r.Chat.Turns, 0, turnOf(chat.RoleSystem, say("x-anthropic-billing-header: cc_version=2;")))
	for i := 1; i < exchanges; i++ {
		r.Chat.Turns = append(r.Chat.Turns, turnOf(chat.RoleAssistant, say(sentence)), turnOf(chat.RoleUser, say(fmt.Sprintf("Question number %d of the session", i))))
	}
	r.Chat.Truncate, r.Chat.Sampling.MaxTokens = true, new(40)
	last := len(r.Chat.Turns) - 1
	until := func(message int, priority uint8) nvext.RetentionRange {
		return nvext.RetentionRange{Message: new(uint32(message)), Priority: &priority}
	}
	r.Ext = &nvext.Ext{Retention: &nvext.Retention{Ranges: []nvext.RetentionRange{until(1, 90), until(3, 80), until(last-2, 70), until(last, 60)}}}
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	sent := f.sent()[0]
	ranges := sent.KV.Ranges
	if len(ranges) != 3 || h.Pins().RangesLeft != 1 {
		t.Fatalf("ranges %+v, of which %d were left, want three and one", ranges, h.Pins().RangesLeft)
	}
	ends := []string{"Be brief", fmt.Sprintf("Question number %d of the session", exchanges-2), fmt.Sprintf("Question number %d of the session", exchanges-1)}
	from := uint32(0)
	for i, r := range ranges {
		text, err := h.model.Text(sent.TokenIDs[from:*r.End])
		if err != nil {
			t.Fatal(err)
		}
		if want := []uint8{90, 70, 60}[i]; r.Start != from || r.Priority != want || !strings.Contains(text, ends[i]) {
			t.Errorf("range %d: %+v of %q, want one from %d of priority %d with %q", i, r, text, from, want, ends[i])
		}
		if i < 2 && strings.Contains(text, ends[i+1]) {
			t.Errorf("range %d goes on to %q: %q", i, ends[i+1], text)
		}
		from = *r.End
	}
}

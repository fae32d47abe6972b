package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// plain is a template that opens no thought.
const plain = `{%- for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {{ opener }}{% endif %}`

// answer runs a request against a model that says raw, and returns the blocks.
func answer(t *testing.T, p prompt.Parsers, raw string, n int, change func(*pipeline.Request)) (*house, []string) {
	t.Helper()
	f := &fake{}
	h := newHouseWith(t, templated(t, plain, p), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
	f.generate = h.say(raw, n, engine.FinishEOS)
	r := request("Hi")
	if change != nil {
		change(r)
	}
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range answers[0].Blocks {
		s := string(b.Kind) + ":" + b.Text
		if b.Use != nil {
			s += b.Use.Name + b.Use.Args
		}
		blocks = append(blocks, s)
	}
	return h, blocks
}

// A parser that was named is switched by what the request says of thinking, but
// not against the prompt.
func TestThinkingSwitches(t *testing.T) {
	const raw = "plan</think>done"
	for name, tc := range map[string]struct {
		parser, args string
		thinking     chat.Thinking
		want         []string
	}{
		"on by default":          {parser: "deepseek_r1", want: []string{"thinking:plan", "text:done"}},
		"off":                    {parser: "deepseek_r1", thinking: chat.Thinking{Enabled: new(false)}, want: []string{"text:plandone"}},
		"off by its mode":        {parser: "deepseek_r1", args: `{"thinking_mode":"chat"}`, want: []string{"text:plandone"}},
		"off by default":         {parser: "deepseek_v3_1", want: []string{"text:plandone"}},
		"on":                     {parser: "deepseek_v3_1", thinking: chat.Thinking{Enabled: new(true)}, want: []string{"thinking:plan", "text:done"}},
		"on by its mode":         {parser: "deepseek_v3_1", args: `{"thinking_mode":"thinking"}`, want: []string{"thinking:plan", "text:done"}},
		"off, the prompt has it": {parser: "deepseek_v3_1", args: `{"opener":"<think>"}`, want: []string{"thinking:plan", "text:done"}},
		"on, the prompt ends it": {parser: "deepseek_r1", args: `{"opener":"<think></think>"}`, want: []string{"text:plandone"}},
	} {
		_, got := answer(t, prompt.Parsers{Tool: "none", Reasoning: tc.parser}, raw, 2, func(r *pipeline.Request) {
			r.Chat.Thinking = tc.thinking
			r.Chat.TemplateArgs = []byte(tc.args)
		})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A client that cannot do without content gets the thoughts, if there is nothing
// else; and only if it asked.
func TestNonEmptyContent(t *testing.T) {
	const args = `{"force_nonempty_content":true}`
	for name, tc := range map[string]struct {
		api       chat.API
		raw, args string
		want      []string
	}{
		"nothing but thought": {chat.APIChat, "plan", args, []string{"text:plan"}},
		"an answer as well":   {chat.APIChat, "plan</think>done", args, []string{"thinking:plan", "text:done"}},
		"a call as well":      {chat.APIChat, "plan</think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", args, []string{"thinking:plan", "tool_use:f{}"}},
		"two thoughts":        {chat.APIChat, "plan</think><think>more</think>", args, []string{"text:plan", "text:more"}},
		"no thought":          {chat.APIChat, "</think>done", args, []string{"text:done"}},
		"not asked":           {chat.APIChat, "plan", "", []string{"thinking:plan"}},
		"asked not to":        {chat.APIChat, "plan", `{"force_nonempty_content":false}`, []string{"thinking:plan"}},
		"by another API":      {chat.APIMessages, "plan", args, []string{"thinking:plan"}},
	} {
		for _, n := range []int{1, 100} {
			_, got := answer(t, prompt.Parsers{Tool: "hermes", Reasoning: "step3"}, tc.raw, n, func(r *pipeline.Request) {
				r.Chat.API, r.Chat.TemplateArgs = tc.api, []byte(tc.args)
				r.Chat.Tools = []chat.Tool{function("", "f")}
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s, deltas of %d (-want +got):\n%s", name, n, diff)
			}
		}
	}
}

// A client that leaves while thoughts are withheld stops all below.
func TestNonEmptyContentLeft(t *testing.T) {
	f := &fake{}
	h := newHouseWith(t, templated(t, plain, prompt.Parsers{Reasoning: "step3"}), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
	f.generate = h.say("plan</think>done", 1, engine.FinishEOS)
	r := request("Hi")
	r.Chat.TemplateArgs = []byte(`{"force_nonempty_content":true}`)
	for e := range h.Run(t.Context(), r) {
		if e.Kind == chat.ThinkingDelta {
			break
		}
	}
	if f.active() != 0 {
		t.Error("the engine goes on")
	}
	h.released(t)
}

// What is dropped is counted by family and reason.
func TestDropped(t *testing.T) {
	h, blocks := answer(t, prompt.Parsers{Tool: "hermes"}, "<tool_call>oops</tool_call><tool_call>{\"name\":\"f\",\"arg", 3, func(r *pipeline.Request) {
		r.Chat.Tools = []chat.Tool{function("", "f")}
	})
	want := []pipeline.DropCount{
		{Drop: pipeline.Drop{Family: "hermes", Reason: "malformed"}, Count: 1},
		{Drop: pipeline.Drop{Family: "hermes", Reason: "truncated"}, Count: 1},
	}
	if diff := cmp.Diff(want, h.Dropped()); diff != "" || len(blocks) != 0 {
		t.Errorf("blocks %s (-want +got):\n%s", strings.Join(blocks, " "), diff)
	}
}

// A stream that just ends is an answer if a call is complete and nothing is open,
// and else a fault.
func TestStreamsThatJustEnd(t *testing.T) {
	const call = `<tool_call>{"name":"f","arguments":{}}</tool_call>`
	for raw, want := range map[string]chat.FinishReason{
		call:                      chat.FinishToolUse,
		call + "<think>hm":        "",
		"<think>hm" + call:        "",
		"Let me see.":             "",
		call[:len(call)/2]:        "",
		call + call[:len(call)/2]: "",
	} {
		f := &fake{}
		h := newHouseWith(t, templated(t, plain, prompt.Parsers{Tool: "hermes", Reasoning: "qwen3"}), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
		f.generate = h.say(raw, 3, "")
		r := request("Hi")
		r.Chat.Tools = []chat.Tool{function("", "f")}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		switch {
		case want == "" && engine.KindOf(err) != engine.StreamIncomplete:
			t.Errorf("%s: %v, want a fault", raw, err)
		case want != "" && (err != nil || answers[0].Finish.Reason != want):
			t.Errorf("%s: %v %v, want %s", raw, answers, err, want)
		}
	}
}

// Of a choice only its last delta is marked as such, and only if it came with the end:
// nothing is held back to find out.
func TestLastDelta(t *testing.T) {
	for name, tc := range map[string]struct {
		n      int  // tokens of a delta
		apart  bool // the end comes alone
		marked int
	}{
		"one token each": {1, false, 1}, "a few": {3, false, 1}, "all at once": {1000, false, 1}, "the end alone": {1, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			h := newHouse(t, pipeline.Config{}, f)
			f.generate = h.say(sentence, tc.n, engine.FinishEOS)
			if tc.apart {
				f.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
					ids := h.ids(sentence)
					if yield(engine.Delta{TokenIDs: ids}, nil) {
						yield(engine.Delta{Finish: engine.FinishEOS, Usage: &engine.Usage{Output: len(ids)}}, nil)
					}
				}
			}
			r := request("Hello")
			r.Chat.Sampling.N = 2
			last := map[int]int{}
			for e, err := range h.Run(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if last[e.Choice] > 0 && e.Kind != chat.BlockStop && e.Kind != chat.Finished {
					t.Errorf("%+v comes behind the last delta", e)
				}
				if e.Last {
					last[e.Choice]++
				}
			}
			if last[0] != tc.marked || last[1] != tc.marked {
				t.Errorf("%v deltas are marked, want %d of each choice", last, tc.marked)
			}
		})
	}
}

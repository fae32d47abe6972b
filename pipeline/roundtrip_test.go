package pipeline_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/harmony"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"pgregory.net/rapid"
)

// A template shows how its model writes: what it makes of an answer is what the
// model was trained to generate. So a round trip needs no model: the template
// writes an answer, the parser reads it, a client sends back what it was told, and
// the next prompt has to begin with the one before it and the answer; or, where a
// template changes what it has shown, with as much of them as if nothing had gone
// to a client and back.
type roundTrip struct {
	model   *prompt.Model
	request chat.Request
	end     string // what the template puts behind an answer
	callEnd string // and behind one that ends with a call
	// prompts are those that were compared, and kept those of them that begin with
	// all of the one before and the answer.
	prompts, kept int
	// refused are the conversations that the template does not take, or shows in
	// another way as soon as they go on.
	refused int
	why     error
}

// errUnlike is what is the template's own doing: it shows a history in another way
// than the prompt and the answer that it was made of.
var errUnlike = errors.New("the template shows the answer in another way in later prompts")

func (rt *roundTrip) render(turns []chat.Turn, opens bool) (string, error) {
	r := rt.request
	r.Turns = turns
	return rt.model.Template.Render(pipeline.Shown(&r, rt.model), chattemplate.Options{AddGenerationPrompt: opens})
}

// generation returns what a model writes to say these blocks.
func (rt *roundTrip) generation(history []chat.Turn, blocks []chat.Block) (before, raw string, err error) {
	if before, err = rt.render(history, true); err != nil {
		return "", "", err
	}
	// As long as nothing comes behind the answer, its thoughts are shown.
	whole, err := rt.render(append(history[:len(history):len(history)], turnOf(chat.RoleAssistant, blocks...)), false)
	if err != nil {
		return "", "", err
	}
	raw, ok := strings.CutPrefix(whole, before)
	if !ok {
		return "", "", errUnlike
	}
	end := rt.end
	if blocks[len(blocks)-1].Use != nil {
		end = rt.callEnd
	}
	if raw, ok = strings.CutSuffix(raw, end); !ok {
		return "", "", fmt.Errorf("the answer does not end with %q: %q", end, raw)
	}
	return before, raw, nil
}

// told is what a client is told of an answer, and sends back, by its API.
func (rt *roundTrip) told(t rapid.TB, history []chat.Turn, before, raw string) []chat.Block {
	p := parser.New(rt.model.Family, parser.Options{
		Start: rt.model.Family.StartOf(before), Tools: rt.request.Tools, ToolsOn: true, ThinkOn: true,
		History: pipeline.Calls(&chat.Request{Turns: history}),
	})
	events := []chat.Event{{Kind: chat.Start}}
	events = p.Push(events, chat.Piece{Text: raw})
	events, _ = p.Finish(events, chat.FinishStop)
	events = append(events, chat.Event{Kind: chat.Finished})
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if e.Kind != chat.Dropped && !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if rt.request.API != chat.APIChat {
		return answers[0].Blocks
	}
	return asOneMessage(answers[0].Blocks)
}

// asOneMessage is an answer as chat completions tells it: one thought, one text,
// and then the calls.
func asOneMessage(answer []chat.Block) (blocks []chat.Block) {
	var thoughts, texts string
	var calls []chat.Block
	for _, b := range answer {
		switch b.Kind {
		case chat.Thought:
			thoughts += b.Text
		case chat.Text:
			if texts != "" {
				texts += "\n"
			}
			texts += b.Text
		case chat.ToolCall:
			calls = append(calls, b)
		}
	}
	if thoughts != "" {
		blocks = append(blocks, chat.Block{Kind: chat.Thought, Text: thoughts})
	}
	if texts != "" {
		blocks = append(blocks, say(texts))
	}
	return append(blocks, calls...)
}

// results answers the calls of a turn.
func results(api chat.API, blocks []chat.Block) (turns []chat.Turn) {
	var all []chat.Block
	for i, b := range blocks {
		if b.Use != nil {
			all = append(all, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: b.Use.ID, Blocks: []chat.Block{say(fmt.Sprintf("result %d", i))}}})
		}
	}
	if api == chat.APIMessages && all != nil {
		return []chat.Turn{turnOf(chat.RoleUser, all...)}
	}
	for _, b := range all {
		turns = append(turns, turnOf(chat.RoleTool, b))
	}
	return turns
}

// newRoundTrip makes ready, or says why a template has no round trip.
func newRoundTrip(tmpl *chattemplate.Template, family parser.Family, api chat.API) (*roundTrip, error) {
	rt := &roundTrip{model: &prompt.Model{Template: tmpl, Family: family}}
	rt.request = chat.Request{API: api, Thinking: chat.Thinking{Keep: new(chat.KeepAll)}, Tools: []chat.Tool{{
		Kind: chat.ToolFunction, Name: "read_file", Description: "Read a file.",
		Schema: []byte(`{"type":"object","properties":{"path":{"type":"string"},"lines":{"type":"integer"},"deep":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}}},"required":["path"]}`),
	}}}
	const last = "zqLastWord"
	whole, err := rt.render([]chat.Turn{turnOf(chat.RoleUser, say("q")), turnOf(chat.RoleAssistant, say(last))}, false)
	_, rt.end, _ = strings.Cut(whole, last)
	rt.callEnd = rt.end
	called, failure := rt.render([]chat.Turn{turnOf(chat.RoleUser, say("q")), turnOf(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_1", Name: "read_file", Args: "{}"}})}, false)
	if failure != nil || strings.HasSuffix(called, rt.end) {
		return rt, err
	}
	// The last token ends both; what is before it the model has written. Some end
	// calls in a way of their own.
	if i := strings.LastIndexByte(rt.end, '<'); i >= 0 && strings.HasSuffix(called, rt.end[i:]) {
		rt.end = rt.end[i:]
		rt.callEnd = rt.end
		return rt, err
	}
	rt.callEnd = ""
	return rt, err
}

// String tells how it went.
func (rt *roundTrip) String() string {
	s := fmt.Sprintf("of %d prompts %d begin with the one before and its answer", rt.prompts, rt.kept)
	if rt.refused > 0 {
		s += fmt.Sprintf("; %d conversations end early: %v", rt.refused, rt.why)
	}
	return s
}

// check leads a random conversation.
func (rt *roundTrip) check(t *rapid.T) {
	if err := rt.lead(t); err != nil {
		rt.refused++
		rt.why = err
	}
}

func (rt *roundTrip) lead(t *rapid.T) error {
	words := func(label string) string {
		return "w" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"Look", " at", " it", "\n", "é", " 東京", " <b>", "\"", "\\", "👍", "1234", "{x}", "\t"}), 0, 6).Draw(t, label), "") + "."
	}
	traits := rt.model.Template.Traits(true)
	turns := []chat.Turn{turnOf(chat.RoleUser, say(words("question")))}
	for range rapid.IntRange(1, 4).Draw(t, "rounds") {
		var blocks []chat.Block
		if rt.thinks(turns, rapid.Bool().Draw(t, "thinks")) {
			blocks = append(blocks, chat.Block{Kind: chat.Thought, Text: words("thought")})
		}
		calls := 0
		if rt.model.Family.Calls() && traits.Calls {
			most := 1
			if traits.ParallelCalls {
				most = 2
			}
			calls = rapid.IntRange(0, most).Draw(t, "calls")
		}
		if calls == 0 || rapid.Bool().Draw(t, "speaks") {
			blocks = append(blocks, say(words("text")))
		}
		known := len(pipeline.Calls(&chat.Request{Turns: turns}))
		for i := range calls {
			id := fmt.Sprintf("call_%024d", known+i)
			args := fmt.Sprintf(`{"path": %s, "lines": %d, "deep": true, "tags": ["a", "b c"]}`, quoted(words("path")), rapid.IntRange(-5, 1000).Draw(t, "lines"))
			blocks = append(blocks, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: "read_file", Kind: chat.ToolFunction, Args: args}})
		}
		before, raw, err := rt.generation(turns, blocks)
		if err != nil {
			return err
		}
		question := words("question")
		next := func(blocks []chat.Block) ([]chat.Turn, string, error) {
			next := append(turns[:len(turns):len(turns)], turnOf(chat.RoleAssistant, blocks...))
			next = append(next, results(rt.request.API, blocks)...)
			if calls == 0 {
				next = append(next, turnOf(chat.RoleUser, say(question)))
			}
			text, err := rt.render(next, true)
			return next, text, err
		}
		told := rt.told(t, turns, before, raw)
		_, untold, err := next(blocks)
		if err != nil {
			return err
		}
		var after string
		if turns, after, err = next(told); err != nil {
			return err
		}
		want := before + raw
		n, most := common(want, after), common(want, untold)
		if n < most {
			t.Fatalf("%s: the next prompt parts from the one before and its answer behind %q: had %q, has %q (told %s)", rt.model.Family, want[max(0, n-40):n], want[n:min(len(want), n+60)], after[n:min(len(after), n+60)], describe(told))
		}
		rt.prompts++
		if n == len(want) {
			rt.kept++
		}
	}
	return nil
}

// thinks tells whether an answer begins with a thought: where the prompt has opened
// one it does, and else where the template shows it and one is wanted.
func (rt *roundTrip) thinks(turns []chat.Turn, wanted bool) bool {
	before, err := rt.render(turns, true)
	if err == nil && rt.model.Family.Thinks() && rt.model.Family.StartOf(before) == parser.StartReasoning {
		return true
	}
	traits := rt.model.Template.Traits(true)
	return wanted && traits.ShowsThinking && traits.ReasoningField != "" && rt.model.Family.Thinks()
}

// common returns with how many bytes of a text another begins.
func common(want, text string) int {
	n := 0
	for n < len(want) && n < len(text) && want[n] == text[n] {
		n++
	}
	return n
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

func describe(blocks []chat.Block) string {
	var b strings.Builder
	for i := range blocks {
		fmt.Fprintf(&b, "[%s %q", blocks[i].Kind, blocks[i].Text)
		if use := blocks[i].Use; use != nil {
			fmt.Fprintf(&b, " %s %s %s", use.ID, use.Name, use.Args)
		}
		b.WriteString("]")
	}
	return b.String()
}

// The templates that imitate those of the families, and Harmony, are left and come
// back without loss. Those that are named begin with all of what was before.
func TestRoundTrips(t *testing.T) {
	keep := []string{"elements", "headers", "media", "sorted", "turns", "demo", "harmony"}
	files, err := filepath.Glob("../chattemplate/testdata/corpus/templates/*.jinja")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	now := func() time.Time { return time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC) }
	config := chattemplate.Config{BOS: "<s>", EOS: "</s>", Now: now}
	check := func(name string, tmpl *chattemplate.Template, family parser.Family) {
		for _, api := range []chat.API{chat.APIChat, chat.APIMessages} {
			t.Run(name+" "+string(api), func(t *testing.T) {
				rt, err := newRoundTrip(tmpl, family, api)
				if err != nil {
					t.Fatal(err)
				}
				rapid.Check(t, rt.check)
				if slices.Contains(keep, name) && (rt.kept < rt.prompts || rt.refused > 0) {
					t.Errorf("%s: %s", family, rt)
				}
			})
		}
	}
	for _, file := range append(files, "../chattemplate/testdata/hermes.jinja", "demo.jinja") {
		source, err := os.ReadFile(file)
		if file == "demo.jinja" {
			source, err = demo.File("chat_template.jinja")
		}
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := chattemplate.Compile(string(source), config)
		if err != nil {
			t.Fatal(err)
		}
		check(strings.TrimSuffix(filepath.Base(file), ".jinja"), tmpl, parser.Detect(string(source), nil))
	}
	check("harmony", chattemplate.Harmony(config), parser.Detect(strings.Join(harmony.Tokens(), ""), nil))
}

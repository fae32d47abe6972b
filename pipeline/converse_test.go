package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
)

// talker is a server of conversations. A test that lets it be asked for tokens fails
// for want of a function.
type talker struct {
	fake
	chat func(ctx context.Context, r *engine.Request, yield func(chat.Event, error) bool)
}

func newTalker(features ...engine.Feature) *talker {
	t := &talker{}
	t.change = func(c *engine.Card) {
		c.Accepts, c.ContextLength, c.BlockSize, c.HashScheme = []engine.Input{engine.InputChat}, 0, 0, ""
		c.Features = append(engine.Features{engine.FeatureWantsChat, engine.FeatureStopStrings}, features...)
	}
	return t
}

func (f *talker) Chat(ctx context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		f.mu.Lock()
		f.requests = append(f.requests, r)
		f.running++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.running--
			f.mu.Unlock()
		}()
		f.chat(ctx, r, yield)
	}
}

// tells yields events, and then an error if there is one.
func tells(failure error, events ...chat.Event) func(context.Context, *engine.Request, func(chat.Event, error) bool) {
	return func(_ context.Context, _ *engine.Request, yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if failure != nil {
			yield(chat.Event{}, failure)
		}
	}
}

// spoken are the events of a text in two pieces.
func spoken(a, b string, u chat.Usage) []chat.Event {
	return []chat.Event{
		{Kind: chat.Start},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: a},
		{Kind: chat.TextDelta, Text: b},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: u},
	}
}

// newRoom is a house in which nobody has the files of a model.
func newRoom(t *testing.T, c pipeline.Config, engines ...engine.Engine) *house {
	t.Helper()
	h := newHouse(t, c, engines...)
	c.Fleet, c.Router = h.fleet, h.router
	c.Load = func(*engine.Card) (*prompt.Model, error) { return nil, errors.New("no files") }
	h.Pipeline = pipeline.New(c)
	return h
}

// A request goes out as the conversation that it is, and the answer comes back as the
// server gives it.
func TestConversation(t *testing.T) {
	f := newTalker(engine.FeatureSeed)
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil, spoken("Hello, ", "world.", chat.Usage{Prompt: 11, Cached: new(3), Output: 7})...)
	r := request("Hi")
	r.Chat.System = []chat.Block{{Kind: chat.Text, Text: "Be brief."}}
	r.Chat.Sampling.MaxTokens, r.Chat.Sampling.N, r.Chat.Sampling.Seed = new(9), 2, new(int64(5))
	r.Chat.Sampling.Stop = []string{"END"}
	r.Chat.Thinking.Budget = new(100)
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Hello, world.", "Hello, world."}, texts(answers)); diff != "" {
		t.Error(diff)
	}
	// The first choice alone counts the prompt.
	want := []chat.Usage{{Prompt: 11, Cached: new(3), Output: 7}, {Output: 7}}
	if diff := cmp.Diff(want, []chat.Usage{answers[0].Usage, answers[1].Usage}); diff != "" {
		t.Error(diff)
	}
	seeds := map[string]int64{}
	for _, s := range f.sent() {
		seeds[s.ID] = *s.Sampling.Seed
		if len(s.TokenIDs) != 0 || s.Chat == nil || len(s.Chat.Turns) != 1 || len(s.Chat.System) != 1 || s.Epoch != 1 || s.Model != "test/model" {
			t.Errorf("sent %+v", s)
		}
		if diff := cmp.Diff(engine.Stop{MaxTokens: 9, Strings: []string{"END"}}, s.Stop); diff != "" {
			t.Error(diff)
		}
		if s.ThinkingBudget != nil {
			t.Errorf("a budget was sent to a server that knows none")
		}
	}
	if diff := cmp.Diff(map[string]int64{r.ID + "-1": 5, r.ID + ".1-1": 6}, seeds); diff != "" {
		t.Error(diff)
	}
	if n := r.Notes; n.Model != "test/model" || n.PromptTokens == 0 || n.BudgetBy != pipeline.ByNobody || n.FormBy != "" || n.Target.Worker != 1 {
		t.Errorf("notes %+v", n)
	}
	h.released(t)
}

// What a server does not count is counted here: four bytes of the prompt for a token,
// and each piece of the answer.
func TestConversationCounted(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil, spoken("a", "b", chat.Usage{})...)
	r := request(strings.Repeat("x", 400))
	var start chat.Usage
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for e, err := range h.Run(t.Context(), r) {
			if e.Kind == chat.Start {
				start = e.Usage
			}
			if !yield(e, err) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	u := answers[0].Usage
	if u.Prompt < 100 || u.Prompt > 105 || u.Output != 2 || start.Prompt != u.Prompt || u.Cached != nil || r.Notes.PromptTokens != u.Prompt {
		t.Errorf("usage %+v at the end, %+v at the start", u, start)
	}
	if f.sent()[0].Stop.MaxTokens != 0 {
		t.Error("the client has set no limit, and one was sent")
	}
}

// A prompt without turns is a turn of a user that is the whole prompt.
func TestConversationOfPrompt(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil, spoken("x", "y", chat.Usage{})...)
	r := request("")
	r.Chat.API, r.Chat.Turns, r.Chat.Prompt = chat.APICompletions, nil, &chat.Prompt{Text: "Once"}
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	got := f.sent()[0].Chat
	want := []chat.Turn{{Role: chat.RoleUser, Raw: true, Blocks: []chat.Block{{Kind: chat.Text, Text: "Once"}}}}
	if diff := cmp.Diff(want, got.Turns); diff != "" || got.Prompt != nil {
		t.Errorf("prompt %v, turns %s", got.Prompt, diff)
	}
	if r.Chat.Prompt == nil || r.Chat.Turns != nil {
		t.Error("the client's request was changed")
	}
}

// Tools go by names of their own, deferred ones too where nothing finds them, and calls
// come back in the client's words.
func TestConversationCalls(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	call := func(i int, id string) []chat.Event {
		return []chat.Event{
			{Kind: chat.BlockStart, Index: i, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: id, Name: "a__read", Kind: chat.ToolFunction}},
			{Kind: chat.ArgsDelta, Index: i, Text: `{"x":1}`},
			{Kind: chat.BlockStop, Index: i},
		}
	}
	events := append([]chat.Event{{Kind: chat.Start}}, call(0, "c1")...)
	events = append(events, call(1, "c2")...)
	f.chat = tells(nil, append(events, chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}})...)
	for _, parallel := range []*bool{nil, new(true), new(false)} {
		r := request("Read it")
		r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "read", Namespace: "a"}, {Kind: chat.ToolFunction, Name: "read", Namespace: "b", Deferred: true}}
		r.Chat.ToolChoice.Parallel = parallel
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		if parallel != nil && !*parallel {
			want = 1 // although the server makes another one
		}
		a := answers[0]
		if len(a.Blocks) != want || a.Finish.Reason != chat.FinishToolUse || a.Usage.Output != want {
			t.Fatalf("%d blocks, finish %+v, usage %+v; want %d calls", len(a.Blocks), a.Finish, a.Usage, want)
		}
		if use := a.Blocks[0].Use; use.Name != "read" || use.Namespace != "a" || use.ID != "c1" || use.Args != `{"x":1}` {
			t.Errorf("call %+v", use)
		}
		sent := f.sent()
		for i, name := range []string{"a__read", "b__read"} {
			if tool := sent[len(sent)-1].Chat.Tools[i]; tool.Name != name || tool.Namespace != "" || tool.Deferred {
				t.Errorf("tool %+v, want %s", tool, name)
			}
		}
		h.released(t)
	}
}

// A tool that takes free text goes as a function that takes it as its input, also in
// what was called before, and its call comes back as the client's.
func TestConversationFreeText(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil,
		chat.Event{Kind: chat.Start},
		chat.Event{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "c2", Name: "patch", Kind: chat.ToolFunction}},
		chat.Event{Kind: chat.ArgsDelta, Text: `{"input":"b"}`},
		chat.Event{Kind: chat.BlockStop},
		chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}},
	)
	for _, schema := range []string{"", `{"type":"object"}`} {
		r := request("Patch it")
		r.Chat.Tools = []chat.Tool{{Kind: chat.ToolCustom, Name: "patch", Schema: []byte(schema)}, {Kind: chat.ToolFunction, Name: "read"}}
		if schema == "" {
			r.Chat.Tools[0].Schema = nil
		}
		history := []chat.Block{
			{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c0", Name: "patch", Kind: chat.ToolCustom, Args: "a \"b\"\n\xff"}},
			{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c1", Name: "read", Kind: chat.ToolFunction, Args: `{"x":1}`}},
		}
		r.Chat.Turns = append(r.Chat.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: history})
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if use := answers[0].Blocks[0].Use; use.Kind != chat.ToolCustom || use.Args != `{"input":"b"}` {
			t.Errorf("the call is %+v", use)
		}
		sent := f.sent()
		got := sent[len(sent)-1].Chat
		tool, want := got.Tools[0], `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`
		if schema != "" {
			want = schema
		}
		if tool.Kind != chat.ToolFunction || string(tool.Schema) != want {
			t.Errorf("the tool went as %+v, %s", tool, tool.Schema)
		}
		said := got.Turns[len(got.Turns)-1].Blocks
		if use := said[0].Use; use.Kind != chat.ToolFunction || use.Args != `{"input":"a \"b\"\n`+"\uFFFD"+`"}` {
			t.Errorf("what was called went as %+v", use)
		}
		if said[1].Use.Args != `{"x":1}` || history[0].Use.Kind != chat.ToolCustom || r.Chat.Tools[0].Kind != chat.ToolCustom {
			t.Errorf("more was changed: %+v, %+v", said[1].Use, history[0].Use)
		}
	}
	h.released(t)
}

// A form is the server's where its card says so, else the answer is looked at.
func TestConversationForm(t *testing.T) {
	schema := func(strict *bool) chat.OutputFormat {
		return chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "a", Schema: []byte(`{"type":"object"}`), Strict: strict}
	}
	for name, c := range map[string]struct {
		features []engine.Feature
		strict   *bool
		by       string
		kind     engine.ErrorKind
	}{
		"kept":        {[]engine.Feature{engine.FeatureGuidedJSON}, new(true), pipeline.ByEngine, ""},
		"looked at":   {nil, nil, pipeline.ByUs, ""},
		"insisted on": {nil, new(true), "", engine.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTalker(c.features...)
			h := newRoom(t, pipeline.Config{}, f)
			f.chat = tells(nil, spoken("no ", "JSON", chat.Usage{})...)
			r := request("Hi")
			r.Chat.Output = schema(c.strict)
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if c.kind != "" {
				if engine.KindOf(err) != c.kind || len(f.sent()) != 0 {
					t.Errorf("error %v, want kind %s", err, c.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sent := f.sent()[0].Format != nil
			mismatch := answers[0].Mismatch != ""
			if r.Notes.FormBy != c.by || sent != (c.by == pipeline.ByEngine) || mismatch != (c.by == pipeline.ByUs) {
				t.Errorf("by %q, sent %v, mismatch %v", r.Notes.FormBy, sent, mismatch)
			}
		})
	}
}

// What no conversation can say is refused by the name of its field, and nobody is
// asked.
func TestConversationRefusals(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{MigrationLimit: 3}, f)
	for param, change := range map[string]func(*pipeline.Request){
		"prompt":               func(r *pipeline.Request) { r.Chat.Prompt = &chat.Prompt{IDs: []uint32{1}} },
		"echo":                 func(r *pipeline.Request) { r.Chat.Prompt = &chat.Prompt{Text: "x", Echo: true} },
		"nvext.token_data":     func(r *pipeline.Request) { r.Ext = &nvext.Ext{TokenData: []uint32{1}} },
		"nvext.use_raw_prompt": func(r *pipeline.Request) { r.Ext = &nvext.Ext{UseRawPrompt: new(true)} },
		"logprobs":             func(r *pipeline.Request) { r.Chat.Sampling.Logprobs = new(1) },
		"prompt_logprobs":      func(r *pipeline.Request) { r.Chat.Sampling.PromptLogprobs = new(1) },
		"stop_token_ids":       func(r *pipeline.Request) { r.Chat.Sampling.StopIDs = []uint32{1} },
		"allowed_token_ids":    func(r *pipeline.Request) { r.Chat.Sampling.AllowedIDs = []uint32{1} },
		"bad_words":            func(r *pipeline.Request) { r.Chat.Sampling.BadWords = [][]uint32{{1}} },
		"logit_bias":           func(r *pipeline.Request) { r.Chat.Sampling.LogitBias = map[uint32]float64{1: 1} },
	} {
		r := request("Hi")
		change(r)
		_, err := chat.Fold(h.Run(t.Context(), r))
		e, ok := errors.AsType[*engine.Error](err)
		if !ok || e.Kind != engine.InvalidArgument || e.Param != param || e.Code != "unsupported_parameter" {
			t.Errorf("%s: error %+v", param, err)
		}
	}
	r := request("Hi")
	r.Chat.Prompt = &chat.Prompt{}
	if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("an empty prompt: %v", err)
	}
	if len(f.sent()) != 0 {
		t.Errorf("the server got %d requests", len(f.sent()))
	}
	h.released(t)
}

// The model is listed, and that nobody here has its tokens is said.
func TestConversationModel(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	if list := h.Models(); len(list) != 1 || list[0].ID != "test/model" || !list[0].Ready || list[0].ContextLength != 0 {
		t.Errorf("models %+v", list)
	}
	if err := h.Preload(); err != nil {
		t.Errorf("preload: %v", err)
	}
	_, _, err := h.Tokenize(request("Hi").Chat, true)
	_, err2 := h.Detokenize("test/model", []uint32{1})
	for _, err := range []error{err, err2} {
		if engine.KindOf(err) != engine.Unsupported || !contains(err, "tokenizer is not here") {
			t.Errorf("error %v", err)
		}
	}
	liar := newTalker()
	h = newRoom(t, pipeline.Config{}, struct{ engine.Engine }{liar})
	if _, err := chat.Fold(h.Run(t.Context(), request("Hi"))); engine.KindOf(err) != engine.Unsupported || !contains(err, "takes conversations") {
		t.Errorf("a card that says too much: %v", err)
	}
}

// Marks of the cache stay here, and nothing is said to have been written to it.
func TestConversationMarks(t *testing.T) {
	f := newTalker(engine.FeatureThinkingBudget)
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil, spoken("a", "b", chat.Usage{Prompt: 9, Cached: new(0), Output: 2})...)
	r := request("Hi")
	r.Chat.Cache = []chat.Breakpoint{{Turn: 0, Block: 0, TTL: time.Minute}}
	r.Chat.Thinking.Budget = new(7)
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || answers[0].Usage.Written != nil {
		t.Errorf("%+v, error %v", answers, err)
	}
	if sent := f.sent()[0]; sent.Chat.Cache != nil || sent.ThinkingBudget == nil || r.Notes.BudgetBy != pipeline.ByEngine {
		t.Errorf("sent %+v, budget by %q", sent, r.Notes.BudgetBy)
	}
}

// A client that wants a text gets the thoughts for one.
func TestConversationNonEmpty(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil,
		chat.Event{Kind: chat.Start},
		chat.Event{Kind: chat.BlockStart, BlockKind: chat.Thought},
		chat.Event{Kind: chat.ThinkingDelta, Text: "Hm."},
		chat.Event{Kind: chat.BlockStop},
		chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}},
	)
	r := request("Hi")
	r.Chat.TemplateArgs = []byte(`{"force_nonempty_content":true}`)
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || answers[0].Blocks[0].Kind != chat.Text || answers[0].Blocks[0].Text != "Hm." {
		t.Errorf("%+v, error %v", answers, err)
	}
}

// All of a conversation counts for its length: what was said, called and found, and
// the tools. A call goes back as the model spelled it.
func TestConversationHistory(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	const spelled = `{"a": 1}`
	f.chat = tells(nil,
		chat.Event{Kind: chat.Start},
		chat.Event{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "call_1", Name: "read"}},
		chat.Event{Kind: chat.ArgsDelta, Text: spelled},
		chat.Event{Kind: chat.BlockStop},
		chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}},
	)
	length := func(change func(*chat.Request)) int {
		r := request("Hi")
		r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "read"}}
		change(r.Chat)
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		return r.Notes.PromptTokens
	}
	short := length(func(*chat.Request) {})
	turn := func(role chat.Role, b chat.Block) func(*chat.Request) {
		return func(r *chat.Request) { r.Turns = append(r.Turns, chat.Turn{Role: role, Blocks: []chat.Block{b}}) }
	}
	long := strings.Repeat("long", 100)
	text := chat.Block{Kind: chat.Text, Text: long}
	for name, change := range map[string]func(*chat.Request){
		"system": func(r *chat.Request) { r.System = []chat.Block{text} },
		"text":   turn(chat.RoleUser, text),
		"call":   turn(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "x", Name: "read", Args: long}}),
		"result": turn(chat.RoleUser, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: "x", Blocks: []chat.Block{text}}}),
		"tool":   func(r *chat.Request) { r.Tools[0].Description = long },
		"schema": func(r *chat.Request) { r.Tools[0].Schema = []byte(`{"title":"` + long + `"}`) },
	} {
		if n := length(change) - short; n < 100 || n > 110 {
			t.Errorf("%s: 400 bytes more count for %d tokens", name, n)
		}
	}
	length(turn(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_1", Name: "read", Args: `{"a":1}`}}))
	sent := f.sent()
	turns := sent[len(sent)-1].Chat.Turns
	if got := turns[len(turns)-1].Blocks[0].Use.Args; got != spelled {
		t.Errorf("the call went back as %s, want %s", got, spelled)
	}
}

package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
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

// Tools go by names of their own, and calls come back in the client's words.
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
		r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "read", Namespace: "a"}, {Kind: chat.ToolFunction, Name: "read", Namespace: "b"}}
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
			if tool := sent[len(sent)-1].Chat.Tools[i]; tool.Name != name || tool.Namespace != "" {
				t.Errorf("tool %+v, want %s", tool, name)
			}
		}
		h.released(t)
	}
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
			mismatch := answers[0].Finish.Mismatch != ""
			if r.Notes.FormBy != c.by || sent != (c.by == pipeline.ByEngine) || mismatch != (c.by == pipeline.ByUs) {
				t.Errorf("by %q, sent %v, mismatch %v", r.Notes.FormBy, sent, mismatch)
			}
		})
	}
}

// An answer that has not begun goes on elsewhere; one that has, ends.
func TestConversationMoves(t *testing.T) {
	gone := engine.Errorf(engine.Disconnected, "gone")
	begun := []chat.Event{{Kind: chat.Start}}
	refused := engine.Errorf(engine.Unsupported, "no images here")
	for name, c := range map[string]struct {
		events  []chat.Event
		failure error
		second  bool // there is another worker
		moves   int64
		kind    engine.ErrorKind
	}{
		"before the first event":       {nil, gone, true, 1, ""},
		"a clean end of nothing":       {nil, nil, true, 1, ""},
		"behind the first event":       {begun, gone, true, 0, engine.Disconnected},
		"a clean end behind the start": {begun, nil, true, 0, engine.StreamIncomplete},
		"refused, and another can":     {nil, refused, true, 1, ""},
		"refused by all":               {nil, refused, false, 1, engine.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newTalker(), newTalker()
			engines := []engine.Engine{bad}
			if c.second {
				engines = append(engines, good)
			}
			h := newRoom(t, pipeline.Config{MigrationLimit: 3}, engines...)
			bad.chat = tells(c.failure, c.events...)
			good.chat = tells(nil, spoken("a", "b", chat.Usage{Output: 1})...)
			r := request("Hi")
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if c.kind == "" {
				if err != nil || texts(answers)[0] != "ab" || r.Notes.Attempts != 2 || r.Notes.Target.Worker != 2 {
					t.Errorf("%+v, error %v, notes %+v", answers, err, r.Notes)
				}
			} else if err == nil || engine.KindOf(err) != c.kind {
				t.Errorf("error %v, want kind %s", err, c.kind)
			}
			if n := h.Counters().MigratedNew; n != c.moves {
				t.Errorf("%d moves, want %d", n, c.moves)
			}
			if len(good.sent()) > 0 != (c.kind == "") {
				t.Errorf("the other worker got %d requests", len(good.sent()))
			}
			h.released(t)
		})
	}
}

// Silence, a worker that leaves and a client that does so end a conversation as they
// end anything else.
func TestConversationEnds(t *testing.T) {
	silent := func(events ...chat.Event) func(context.Context, *engine.Request, func(chat.Event, error) bool) {
		return func(ctx context.Context, _ *engine.Request, yield func(chat.Event, error) bool) {
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
		}
	}
	begun := spoken("a", "b", chat.Usage{})[:3]
	for name, c := range map[string]struct {
		events []chat.Event
		act    func(h *house, cancel context.CancelCauseFunc) // 1 s after the start
		want   error
		kind   engine.ErrorKind
		after  time.Duration
	}{
		"nothing comes":   {nil, nil, engine.ErrFirstItem, engine.ResponseTimeout, firstItem},
		"silence":         {begun, nil, engine.ErrInactive, engine.ResponseTimeout, inactivity},
		"the client goes": {begun, func(_ *house, cancel context.CancelCauseFunc) { cancel(engine.ErrClientGone) }, engine.ErrClientGone, engine.Cancelled, time.Second},
		"the worker goes": {begun, func(h *house, _ context.CancelCauseFunc) { h.fleet.Remove(1) }, nil, engine.Disconnected, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTalker()
				f.chat = silent(c.events...)
				h := newRoom(t, pipeline.Config{Limits: pipeline.Limits{FirstItem: firstItem, Inactivity: inactivity}}, f)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.act != nil {
					time.AfterFunc(time.Second, func() { c.act(h, cancel) })
				}
				start := time.Now()
				_, err := chat.Fold(h.Run(ctx, request("Hi")))
				if c.want != nil && !errors.Is(err, c.want) || engine.KindOf(err) != c.kind || time.Since(start) != c.after {
					t.Errorf("error %v after %v, want %v (%s) after %v", err, time.Since(start), c.want, c.kind, c.after)
				}
				if f.active() != 0 {
					t.Error("the server still works on it")
				}
				h.released(t)
			})
		})
	}
}

// A client that leaves the loop ends the work below.
func TestConversationLeft(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil, spoken("a", "b", chat.Usage{})...)
	for e, err := range h.Run(t.Context(), request("Hi")) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == chat.TextDelta {
			break
		}
	}
	if f.active() != 0 {
		t.Error("the server still works on it")
	}
	h.released(t)
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
		"tools":                func(r *pipeline.Request) { r.Chat.Tools = []chat.Tool{{Kind: chat.ToolCustom, Name: "x"}} },
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

// Tokens are preferred, and a request stays with the workers that take it as it is.
func TestDoors(t *testing.T) {
	for _, order := range []string{"chat first", "tokens first"} {
		text := newTalker()
		tokens := &fake{}
		engines := []engine.Engine{text, tokens}
		if order == "tokens first" {
			engines = []engine.Engine{tokens, text}
		}
		h := newHouse(t, pipeline.Config{MigrationLimit: 3}, engines...)
		tokens.generate = h.say("Yes.", 1, engine.FinishEOS)
		for range 3 {
			answers, err := chat.Fold(h.Run(t.Context(), request("Hi")))
			if err != nil || texts(answers)[0] != "Yes." {
				t.Fatalf("%s: %+v, %v", order, answers, err)
			}
		}
		tokens.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
		}
		if _, err := chat.Fold(h.Run(t.Context(), request("Hi"))); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%s: %v, want nobody to be left", order, err)
		}
		if len(text.sent()) != 0 {
			t.Errorf("%s: a request changed its form on its way", order)
		}
		h.released(t)
	}
}

// A worker of texts gets the prompt as text, and cannot be followed once it has begun.
func TestTextDoor(t *testing.T) {
	writer := func() *fake {
		return &fake{change: func(c *engine.Card) { c.Accepts = []engine.Input{engine.InputText} }}
	}
	first, second := writer(), writer()
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, first, second)
	first.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		if want, _ := h.model.Text(r.TokenIDs); r.Prompt == "" || r.Prompt != want || len(r.Stop.Strings) != 1 {
			t.Errorf("prompt %q, want %q; stop %+v", r.Prompt, want, r.Stop)
		}
		_ = yield(engine.Delta{Text: "Half "}, nil) && yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
	}
	r := request("Hi")
	r.Chat.Sampling.Stop = []string{"END"}
	if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Disconnected || len(second.sent()) != 0 {
		t.Errorf("error %v, %d requests at the other worker", err, len(second.sent()))
	}
	h.released(t)
}

// Conversations that begin alike go where that was sent before.
func TestConversationAffinity(t *testing.T) {
	a, b := newTalker(), newTalker()
	for _, f := range []*talker{a, b} {
		f.chat = tells(nil, spoken("a", "b", chat.Usage{})...)
	}
	tuning := router.DefaultTuning()
	h := newHouseOf(t, pipeline.Config{}, router.Config{Mode: router.KV, Tuning: &tuning}, a, b)
	text := map[int]string{0: strings.Repeat("one thing and ", 200), 1: strings.Repeat("other ", 400)}
	where := map[int]uint64{}
	for round := range 4 {
		for i := range text {
			text[i] += " and then"
			r := request(text[i])
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			if got := r.Notes.Target.Worker; round > 0 && (got != where[i] || r.Notes.Overlap == 0) {
				t.Errorf("round %d: conversation %d at worker %d with %d blocks, was at %d", round, i, got, r.Notes.Overlap, where[i])
			}
			where[i] = r.Notes.Target.Worker
		}
	}
}

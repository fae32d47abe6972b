package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// An answer that has not begun goes on elsewhere; one that has, ends.
func TestConversationMoves(t *testing.T) {
	gone := engine.Errorf(engine.Disconnected, "gone")
	begun := []chat.Event{{Kind: chat.Start}}
	refused := engine.Errorf(engine.Unsupported, "no images here")
	lacking := &engine.Error{Kind: engine.Unsupported, FromEngine: true, Message: "no such route"}
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
		"refused by all":               {nil, refused, false, 1, engine.InvalidArgument},
		"lacking, and another has it":  {nil, lacking, true, 1, ""},
		"lacking everywhere":           {nil, lacking, false, 1, engine.Unsupported},
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

// What a conversation comes to is booked as that of any other request is.
func TestConversationOutcome(t *testing.T) {
	l := &learner{}
	f := newTalker()
	h := newHouseOf(t, pipeline.Config{}, router.Config{Policy: l}, f)
	f.chat = tells(nil, spoken("a", "b", chat.Usage{Prompt: 9, Output: 2})...)
	r := request("Hello")
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	if len(l.told) != 1 {
		t.Fatalf("heard %+v", l.told)
	}
	if o := l.told[0]; o.End != router.Completed || o.OutputTokens != 2 || o.First <= 0 || o.PromptTokens != r.Notes.PromptTokens {
		t.Errorf("heard %+v", o)
	}
}

// How long it took is seen, a piece for a token.
func TestConversationPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTalker()
		h := newRoom(t, pipeline.Config{}, f)
		f.chat = func(_ context.Context, _ *engine.Request, yield func(chat.Event, error) bool) {
			for _, e := range spoken("a", "b", chat.Usage{}) {
				switch e.Kind {
				case chat.Start:
					<-time.After(2 * time.Second)
				case chat.TextDelta:
					<-time.After(time.Second)
				}
				if !yield(e, nil) {
					return
				}
			}
		}
		r := request("Hello")
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		if got := h.Workers()[0].Ranks[0]; got.LastTTFT != 2 || got.LastITL != 1 || got.LastInputTokens != r.Notes.PromptTokens {
			t.Errorf("seen %+v", got)
		}
	})
}

// An answer that fills the context ended there, if it is known how long the prompt is.
func TestConversationFillsContext(t *testing.T) {
	for usage, want := range map[chat.Usage]chat.FinishReason{
		{Prompt: 30, Output: 2}: chat.FinishContext,
		{Prompt: 20, Output: 2}: chat.FinishLength,
		{Output: 2}:             chat.FinishLength,
	} {
		f := newTalker()
		change := f.change
		f.change = func(c *engine.Card) {
			change(c)
			c.ContextLength = 32
		}
		h := newRoom(t, pipeline.Config{}, f)
		events := spoken("a", "b", usage)
		events[len(events)-1].Finish.Reason = chat.FinishLength
		f.chat = tells(nil, events...)
		answers, err := chat.Fold(h.Run(t.Context(), request("Hi")))
		if err != nil || answers[0].Finish.Reason != want {
			t.Errorf("%+v: %+v, error %v, want %s", usage, answers, err, want)
		}
	}
}

// One call that the limit has cut is no answer with one call.
func TestConversationCutCall(t *testing.T) {
	f := newTalker()
	h := newRoom(t, pipeline.Config{}, f)
	f.chat = tells(nil,
		chat.Event{Kind: chat.Start},
		chat.Event{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "c", Name: "read"}},
		chat.Event{Kind: chat.ArgsDelta, Text: "{"},
		chat.Event{Kind: chat.BlockStop, Truncated: true},
		chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishLength}},
	)
	r := request("Hi")
	r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "read"}}
	r.Chat.ToolChoice.Parallel = new(false)
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || answers[0].Finish.Reason != chat.FinishLength {
		t.Errorf("%+v, error %v", answers, err)
	}
}

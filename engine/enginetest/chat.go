package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// chatTests are the cases of the contract as far as they hold for engines that take
// conversations, under their numbers there.
var chatTests = []test{
	{name: "01-construction", run: construction},
	{name: "02-ready-has-a-card", run: chatCard},
	{name: "03-restart-is-another-epoch", hook: "restart", run: chatRestart},
	{name: "05-one-end", run: chatOneEnd},
	{name: "06-same-every-time", needs: engine.Features{engine.FeatureSeed}, run: chatSame},
	{name: "08-limits", run: chatLimits},
	{name: "12-streams-do-not-mix", run: chatDoNotMix},
	{name: "13-one-loop", run: chatOneLoop},
	{name: "14-refusals", run: chatRefusals},
	{name: "15-leaving", hook: "slow", run: chatLeaving},
	{name: "16-cancelled", hook: "slow", run: chatCancelled},
	{name: "17-deadline", hook: "slow", run: chatDeadline},
	{name: "19-killed", hook: "slow restart", run: chatKilled},
	{name: "21-slow-consumer", run: chatSlowConsumer},
	{name: "22-nothing-left", run: chatNothingLeft},
}

// RunChat runs the contract of an engine that takes conversations. The engines of the
// subject answer a prompt of any text with as many tokens as they are asked for.
func RunChat(t *testing.T, s Subject) {
	s.run(t, chatTests, engine.InputChat)
}

// say asks for n tokens of an answer to a text.
func say(text string, n int) *engine.Request {
	return &engine.Request{
		ID:       "test-" + text + "-0",
		Chat:     &chat.Request{Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}}}},
		Sampling: engine.Sampling{Seed: new(int64(1)), Temperature: new(0.0)},
		Stop:     engine.Stop{MaxTokens: n},
	}
}

// told is a whole answer, which has kept the rules of answers.
type told struct {
	text   string
	finish chat.Finish
	usage  chat.Usage
	err    error
}

func speaker(t *testing.T, e engine.Engine) engine.ChatEngine {
	t.Helper()
	c, ok := engine.As[engine.ChatEngine](e)
	if !ok {
		t.Fatal("the engine takes no conversations")
	}
	return c
}

// hear reads an answer to its end, and fails the test where a rule is broken that
// holds for all of them.
func hear(ctx context.Context, t *testing.T, e engine.Engine, r *engine.Request) (a told) {
	t.Helper()
	var begun, ended, open bool
	blocks := 0
	for ev, err := range speaker(t, e).Chat(ctx, r) {
		if ended {
			t.Errorf("%+v, %v after the end", ev, err)
		}
		if err != nil {
			if !reflect.ValueOf(ev).IsZero() {
				t.Errorf("an error with an event: %+v", ev)
			}
			a.err, ended = err, true
			continue
		}
		if begun != (ev.Kind != chat.Start) {
			t.Errorf("an event of kind %d, and the answer has begun: %v", ev.Kind, begun)
		}
		begun = true
		switch ev.Kind {
		case chat.BlockStart:
			if open || ev.Index != blocks {
				t.Errorf("block %d begins behind %d, with one open: %v", ev.Index, blocks, open)
			}
			open, blocks = true, blocks+1
		case chat.TextDelta, chat.ThinkingDelta, chat.ArgsDelta, chat.RefusalDelta:
			if !open || ev.Index != blocks-1 {
				t.Errorf("a piece of block %d, of %d, open: %v", ev.Index, blocks, open)
			}
			a.text += ev.Text
		case chat.BlockStop:
			if !open || ev.Index != blocks-1 {
				t.Errorf("block %d ends, of %d, open: %v", ev.Index, blocks, open)
			}
			open = false
		case chat.Finished:
			if open || ev.Finish.Reason == "" {
				t.Errorf("it ends with %+v, a block is open: %v", ev.Finish, open)
			}
			a.finish, a.usage, ended = ev.Finish, ev.Usage, true
		}
	}
	if !ended {
		t.Error("the answer ended without its last event or an error")
	}
	return a
}

// heard is hear for requests that must succeed.
func heard(t *testing.T, e engine.Engine, r *engine.Request) told {
	t.Helper()
	a := hear(context.Background(), t, e, r)
	if a.err != nil {
		t.Fatalf("chat: %v", a.err)
	}
	return a
}

func chatCard(t *testing.T, s *Subject) {
	st := ready(t, s.New(t))
	c := st.Card
	if c == nil || c.Model == "" || st.Epoch == 0 || !c.Accept(engine.InputChat) || c.Accept(engine.InputTokens) ||
		!c.Features.Has(engine.FeatureWantsChat) || c.Features.Has(engine.FeatureEvents) || c.ToolParser != "none" || c.ReasoningParser != "none" {
		t.Errorf("%+v of %+v", c, st)
	}
}

func chatRestart(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	heard(t, e, say("hello", 5))
	s.epochs(t, e)
}

func chatOneEnd(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	for _, n := range []int{1, 2, 40} {
		if a := heard(t, e, say("hello", n)); a.text == "" || a.usage.Prompt == 0 || a.usage.Output == 0 {
			t.Errorf("%d tokens: %+v", n, a)
		}
	}
}

func chatSame(t *testing.T, s *Subject) {
	a, b := s.New(t), s.New(t)
	ready(t, a)
	ready(t, b)
	want := heard(t, a, say("hello", 30)).text
	for _, e := range []engine.Engine{a, b} {
		if got := heard(t, e, say("hello", 30)).text; got != want {
			t.Errorf("%q, and %q again", want, got)
		}
	}
}

func chatLimits(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	long := heard(t, e, say("hello", 30))
	for _, n := range []int{1, 7} {
		a := heard(t, e, say("hello", n))
		if a.finish.Reason != chat.FinishLength || a.usage.Output != n || !strings.HasPrefix(long.text, a.text) {
			t.Errorf("%d tokens: %+v, of %q", n, a, long.text)
		}
	}
}

func chatDoNotMix(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	const streams = 12
	want := make([]string, streams)
	for i := range want {
		want[i] = heard(t, e, say(fmt.Sprint("stream ", i), 30)).text
	}
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			if a := hear(context.Background(), t, e, say(fmt.Sprint("stream ", i), 30)); a.err != nil || a.text != want[i] {
				t.Errorf("stream %d: %q, %v; alone %q", i, a.text, a.err, want[i])
			}
		})
	}
	wg.Wait()
}

func chatOneLoop(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	seq := speaker(t, e).Chat(context.Background(), say("hello", 5))
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range seq {
		if n++; engine.KindOf(err) != engine.Internal || err == nil {
			t.Errorf("a second loop: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("a second loop has %d items", n)
	}
}

func chatRefusals(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	r := say("hello", 5)
	r.Chat = nil
	if a := hear(context.Background(), t, e, r); a.err == nil {
		t.Error("it answers nothing at all")
	}
	r = say("hello", 5)
	r.KV.Namespace.Salt = "a"
	if a := hear(context.Background(), t, e, r); engine.KindOf(a.err) != engine.Unsupported {
		t.Errorf("a salt: %v", a.err)
	}
	if a := collect(context.Background(), t, e, s.request(1, 10, 5)); engine.KindOf(a.err) != engine.Unsupported {
		t.Errorf("token ids: %v", a.err)
	}
}

// running waits until so many requests run, as the engine tells.
func running(t *testing.T, e engine.Engine, n int64) {
	t.Helper()
	awaitLoad(t, e, time.Second, fmt.Sprint(n, " requests run"), func(running, _ int64) bool { return running == n })
}

func chatLeaving(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	var left time.Time
	for _, err := range speaker(t, e).Chat(context.Background(), say("hello", 400)) {
		if err != nil {
			t.Fatal(err)
		}
		left = time.Now()
		break
	}
	s.soon(t, "leaving the loop", left)
	running(t, e, 0)
	// The server works on nothing either, or this one would have to wait.
	begun := time.Now()
	heard(t, e, say("again", 1))
	if d := time.Since(begun); d > time.Second {
		t.Errorf("the next request took %v", d)
	}
}

func chatCancelled(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	for _, before := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(context.Background())
		var at time.Time
		leave := func() { at = time.Now(); cancel(engine.ErrClientGone) }
		if before {
			leave()
		}
		var end error
		for ev, err := range speaker(t, e).Chat(ctx, say("hello", 400)) {
			if end = err; ev.Kind == chat.TextDelta && ctx.Err() == nil {
				leave()
			}
		}
		cancel(nil)
		s.soon(t, "the end", at)
		if engine.KindOf(end) != engine.Cancelled || !errors.Is(end, engine.ErrClientGone) {
			t.Errorf("cancelled before it began %v: %v, want the context's kind and cause", before, end)
		}
	}
	running(t, e, 0)
}

func chatDeadline(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, engine.ErrDeadline)
	defer cancel()
	if a := hear(ctx, t, e, say("hello", 400)); engine.KindOf(a.err) != engine.DeadlineExceeded {
		t.Errorf("%+v, want the deadline", a)
	}
}

func chatKilled(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	var end error
	killed := false
	for ev, err := range speaker(t, e).Chat(context.Background(), say("hello", 400)) {
		if end = err; ev.Kind == chat.TextDelta && !killed {
			killed = true
			s.Restart(e)
		}
	}
	if end == nil || engine.KindOf(end).Retry() != engine.RetryMigrate {
		t.Errorf("killed: %v, want a kind that says so", end)
	}
	ready(t, e)
	heard(t, e, say("hello", 3))
}

func chatSlowConsumer(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	want := heard(t, e, say("hello", 200)).text
	got := ""
	for ev, err := range speaker(t, e).Chat(context.Background(), say("hello", 200)) {
		if err != nil {
			t.Fatal(err)
		}
		if got == "" && ev.Text != "" {
			if a := heard(t, e, say("other", 200)); a.text == "" {
				t.Error("another stream is held up")
			}
			<-time.After(100 * time.Millisecond)
		}
		got += ev.Text
	}
	if got != want {
		t.Errorf("a consumer that paused heard %q, want %q", got, want)
	}
}

func chatNothingLeft(t *testing.T, s *Subject) {
	before := runtime.NumGoroutine()
	for _, use := range []bool{false, true} {
		e := s.New(t)
		if use {
			ready(t, e)
			heard(t, e, say("hello", 30))
			for range speaker(t, e).Chat(context.Background(), say("hello", 400)) {
				break
			}
		}
		c, ok := e.(io.Closer)
		if !ok {
			return
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if a := hear(context.Background(), t, e, say("hello", 5)); a.err == nil {
			t.Error("a closed engine answers")
		}
	}
	leftOver(t, before)
}

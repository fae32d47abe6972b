package pipeline_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// regular is an agent whose tools take their time, in front of an engine that can be
// told when its next turn comes.
type regular struct {
	*conversation
	engine  *bearer
	session string
	change  func(*pipeline.Request)
}

func newRegular(t *testing.T, learn pipeline.Learn) *regular {
	e := newBearer()
	h := newHouse(t, pipeline.Config{Learn: learn}, e)
	l := &regular{engine: e, session: "s", change: func(*pipeline.Request) {}}
	l.conversation = newConversation(t, pipeline.Config{})
	l.h, l.f = h, e.fake
	return l
}

// turn has the conversation answered with raw and takes the answer in, with the results
// of its tools after they have taken their time. It returns how many tokens the engine
// was told to expect, and how many there were.
func (l *regular) turn(raw string, tools time.Duration) (told uint32, tokens int) {
	l.t.Helper()
	l.f.generate = l.h.say(raw+"<|im_end|>", 3, engine.FinishEOS)
	c := clone(l.next)
	r := &pipeline.Request{ID: "00000000-0000-4000-8000-000000000000", Chat: &c}
	r.Identity.Key = l.session
	l.change(r)
	answers, err := chat.Fold(l.h.Run(l.t.Context(), r))
	if err != nil {
		l.t.Fatal(err)
	}
	l.h.Settle()
	sent := l.f.sent()
	blocks := answers[0].Blocks
	l.next.Turns = append(append(l.next.Turns, turnOf(chat.RoleAssistant, blocks...)), results(chat.APIChat, blocks)...)
	time.Sleep(tools)
	return sent[len(sent)-1].Expected, answers[0].Usage.Output
}

// What is expected of an answer behind eight of them is what those had; what the client
// expects itself holds, and more than it may have is not expected.
func TestExpectedTokens(t *testing.T) {
	l := newRegular(t, pipeline.Learn{OutputTokens: true})
	var tokens int
	for i := range 8 {
		told, n := l.turn(calling, 0)
		if told != 0 {
			t.Fatalf("turn %d: it is told to expect %d tokens", i, told)
		}
		tokens = n
	}
	for name, tc := range map[string]struct {
		change func(*pipeline.Request)
		want   uint32
	}{
		"what there were": {func(*pipeline.Request) {}, uint32(tokens)},
		"by its client":   {func(r *pipeline.Request) { r.Ext = &nvext.Ext{AgentHints: &nvext.Hints{OSL: new(uint32(7))}} }, 7},
		"by its limit":    {func(r *pipeline.Request) { r.Chat.Sampling.MaxTokens = new(tokens - 2) }, uint32(tokens - 2)},
		"none by itself":  {func(r *pipeline.Request) { r.Ext = &nvext.Ext{AgentHints: &nvext.Hints{OSL: new(uint32(0))}} }, 0},
	} {
		l.change = tc.change
		if told, _ := l.turn(calling, 0); told != tc.want {
			t.Errorf("%s: the engine is told to expect %d tokens of some %d, want %d", name, told, tokens, tc.want)
		}
	}
	got := l.h.OutputOutlook()
	if got.Count < 3 || got.Offered != 2 || got.Keys == 0 || got.Off > 0.5*got.Came {
		t.Errorf("it is told %+v of it", got)
	}
	if got := l.h.ToolOutlook(); got != (pipeline.Outlook{}) {
		t.Errorf("of tools, of which nothing is learned, it is told %+v", got)
	}
}

// Nothing is expected where nothing is to be learned.
func TestNothingLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRegular(t, pipeline.Learn{})
		for range 12 {
			if told, _ := l.turn(calling, time.Second); told != 0 {
				t.Fatalf("the engine is told to expect %d tokens", told)
			}
		}
		if len(l.engine.asked) != 0 || l.h.OutputOutlook() != (pipeline.Outlook{}) || l.h.ToolOutlook() != (pipeline.Outlook{}) {
			t.Errorf("%d prefetches, and there is an outlook", len(l.engine.asked))
		}
	})
}

// Behind eight calls of a tool the worker is told to have prompt and answer at hand for
// when it has returned before. Side calls of the session do not count as its return, and
// what a client says itself of its next request holds.
func TestExpectedReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRegular(t, pipeline.Learn{ToolTime: true})
		side := request("A title, please").Chat
		for i := range 8 {
			if told, _ := l.turn(calling, 2*time.Second); told != 0 || len(l.engine.asked) != 0 {
				t.Fatalf("turn %d: it expects %d tokens, and %d prefetches", i, told, len(l.engine.asked))
			}
			l.f.generate = l.h.say("A title<|im_end|>", 3, engine.FinishEOS)
			r := &pipeline.Request{ID: "10000000-0000-4000-8000-000000000000", Chat: side}
			r.Identity.Key = l.session
			run(t, l.h, r)
			time.Sleep(time.Second)
		}
		l.turn(calling, 4*time.Second)
		if len(l.engine.asked) != 1 {
			t.Fatalf("behind eight calls there are %d prefetches, want 1", len(l.engine.asked))
		}
		sent := l.f.sent()
		q, last := l.engine.asked[0], sent[len(sent)-1]
		if q.In != 3*time.Second || q.Rank != nil || len(q.TokenIDs) <= len(last.TokenIDs) || !slices.Equal(q.TokenIDs[:len(last.TokenIDs)], last.TokenIDs) {
			t.Errorf("the prefetch is of %d tokens in %v, want the %d of the prompt and the answer in 3s", len(q.TokenIDs), q.In, len(last.TokenIDs))
		}
		l.change = func(r *pipeline.Request) { r.KV.NextIn = time.Minute }
		l.turn(calling, 0)
		l.change = func(*pipeline.Request) {}
		l.turn("That is all.", 0)
		if len(l.engine.asked) != 1 {
			t.Errorf("whoever says when the next turn comes, or calls no tool, has %d prefetches", len(l.engine.asked)-1)
		}
		if got := l.h.ToolOutlook(); got.Count != 2 || got.Offered != 1 || got.Came != 4000 || got.Told != 6000 {
			t.Errorf("it is told %+v of it, want two expected at 3 s each, that took 4 s and none", got)
		}
		if l.h.released(t); l.h.OutputOutlook() != (pipeline.Outlook{}) {
			t.Error("of lengths, of which nothing is learned, something is told")
		}
	})
}

// However many sessions wait for their tools, those that have begun last are learned
// from, and no more are kept than that.
func TestManyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRegular(t, pipeline.Learn{ToolTime: true})
		first := clone(l.next)
		for i := range pipeline.MostPauses + 10 {
			l.session, l.next = fmt.Sprint(i), clone(first)
			l.turn(calling, 0)
		}
		if n := l.h.Pauses(); n != pipeline.MostPauses {
			t.Errorf("%d pauses are known, want %d", n, pipeline.MostPauses)
		}
		before := l.h.ToolOutlook().Keys
		l.turn("Done.", 0) // of the last session
		if after := l.h.ToolOutlook().Keys; before != 0 || after == 0 {
			t.Errorf("keys before and after a tool has returned: %d and %d", before, after)
		}
	})
}

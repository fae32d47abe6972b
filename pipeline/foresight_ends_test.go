package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// patient is an engine that answers turns at once, and holds what is computed ahead
// until it is let go, or aborted.
type patient struct {
	*fake
	begun, ended chan error
	release      chan struct{}
}

func newPatient(t *testing.T, features ...engine.Feature) (*house, *patient) {
	p := &patient{fake: &fake{features: features, change: func(c *engine.Card) { c.MaxBatchedTokens = 4096 }}, begun: make(chan error, 100), ended: make(chan error, 100), release: make(chan struct{})}
	h := newHouse(t, pipeline.Config{}, p)
	say := h.say("So it is, and nothing else can be said about it.<|im_end|>", 3, engine.FinishEOS)
	p.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		if r.Stop.MaxTokens != 1 {
			say(ctx, r, yield)
			return
		}
		p.begun <- nil
		select {
		case <-ctx.Done():
			p.ended <- context.Cause(ctx)
			yield(engine.Delta{}, context.Cause(ctx))
		case <-p.release:
			yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishLength}, nil)
		}
	}
	return h, p
}

// turn runs a turn of a session.
func (p *patient) turn(t *testing.T, h *house, session string, turns ...string) {
	t.Helper()
	r := request(turns[0])
	r.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(p.sent()))
	for i, text := range turns[1:] {
		r.Chat.Turns = append(r.Chat.Turns, turnOf([]chat.Role{chat.RoleAssistant, chat.RoleUser}[i%2], say(text)))
	}
	r.Ext, r.Identity.Key = hinted(), session
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
}

const seaside = "Tell me about the weather in a town by the sea where nobody has ever been before"

// The next turn of a session ends what is computed ahead of it, and that of no other
// session does; a conversation without a name is known by what it begins with. The
// end of the pipeline ends all of it.
func TestForesightIsSuperseded(t *testing.T) {
	for _, session := range []string{"s", ""} {
		h, p := newPatient(t)
		p.turn(t, h, session, seaside)
		<-p.begun
		p.turn(t, h, "another", "Something else that has nothing to do with it whatever it may be in the end, I think")
		<-p.begun
		select {
		case err := <-p.ended:
			t.Fatalf("session %q: another session ended it: %v", session, err)
		default:
		}
		p.turn(t, h, session, seaside, "So it is, and nothing else can be said about it.", "Is that all?")
		if err := <-p.ended; !errors.Is(err, engine.ErrSuperseded) {
			t.Errorf("session %q: it ended by %v", session, err)
		}
		<-p.begun
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h.released(t)
		c := h.Foresights()
		if c.Running != 0 || c.Ends[pipeline.ForesightCancelled] != 3 || c.Tokens != 0 {
			t.Errorf("session %q: %+v", session, c)
		}
	}
}

// There are only so many at a time.
func TestForesightHasALimit(t *testing.T) {
	h, p := newPatient(t)
	const most, more = 16, 3
	for i := range most + more {
		p.turn(t, h, fmt.Sprint("session ", i), seaside)
	}
	for range most {
		<-p.begun
	}
	if c := h.Foresights(); c.Running != most || c.Ends[pipeline.ForesightFull] != more {
		t.Errorf("%+v", c)
	}
	close(p.release)
	h.Settle()
	if c := h.Foresights(); c.Running != 0 || c.Ends[pipeline.ForesightDone] != most || c.Tokens == 0 {
		t.Errorf("%+v", c)
	}
	if n := len(p.sent()); n != 2*most+more {
		t.Errorf("the engine was asked %d times", n)
	}
	h.released(t)
}

// Clients that stop reading at the end of an answer hold no place that others need, and
// when they go on, or leave, nothing is computed for those that have lost theirs.
func TestForesightGivesWay(t *testing.T) {
	h, p := newPatient(t)
	const most, others = 16, 3
	var stalled []func()
	for i := range most {
		r := request(seaside)
		r.Ext, r.Identity.Key = hinted(), fmt.Sprint("stalled ", i)
		next, stop := iter.Pull2(h.Run(t.Context(), r))
		for {
			e, err, ok := next()
			if err != nil || !ok {
				t.Fatal(err, ok)
			}
			if e.Kind == chat.Finished {
				break
			}
		}
		stalled = append(stalled, func() {
			if _, _, ok := next(); ok {
				t.Error("something comes behind the end")
			}
			stop()
		})
	}
	for i := range others {
		p.turn(t, h, fmt.Sprint("session ", i), seaside)
		<-p.begun
	}
	if c := h.Foresights(); c.Running != most || c.Ends[pipeline.ForesightFull] != others {
		t.Errorf("%+v", c)
	}
	for _, goOn := range stalled {
		goOn()
	}
	close(p.release)
	h.Settle()
	if c := h.Foresights(); c.Running != 0 || c.Ends[pipeline.ForesightDone] != most || c.Ends[pipeline.ForesightFull] != others || len(c.Ends) != 2 {
		t.Errorf("%+v", c)
	}
	h.released(t)
}

// queued is an engine that says how many requests wait there.
type queued struct {
	*fake
	waiting int64
}

func (q *queued) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		l := engine.UnknownLoad(0)
		l.Waiting = q.waiting
		if yield(engine.Load{Ranks: []engine.RankLoad{l}}, nil) {
			<-ctx.Done()
		}
	}
}

// A worker that has enough to do is not asked.
func TestForesightIsDroppedWhenBusy(t *testing.T) {
	for waiting, end := range map[int64]pipeline.Foresight{0: pipeline.ForesightDone, 1: pipeline.ForesightBusy} {
		q := &queued{&fake{}, waiting}
		h := newHouse(t, pipeline.Config{}, q)
		q.generate = h.say("So it is.<|im_end|>", 3, engine.FinishEOS)
		for {
			if l, _ := h.fleet.Snapshot()[0].Load(); len(l.Ranks) > 0 && l.Ranks[0].Waiting == waiting {
				break
			}
		}
		r := request(seaside)
		r.Ext = hinted()
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		h.Settle()
		if c := h.Foresights(); c.Ends[end] != 1 || len(q.sent()) != 1+int(1-waiting) {
			t.Errorf("%d wait: %+v, and the engine was asked %d times", waiting, c, len(q.sent()))
		}
	}
}

// What is computed ahead has the turn's namespace, session and worth, runs behind
// everything, and is nobody's request; and it is not asked for where it is of no use.
func TestForesightCarries(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pipeline.Request)
		finish engine.Finish
		leaves bool // the client, behind the first event
		none   bool
	}{
		"a turn":        {},
		"one cut short": {finish: engine.FinishLength},
		"no hint":       {change: func(r *pipeline.Request) { r.Ext.AgentHints.SpeculativePrefill = nil }, none: true},
		"hint off":      {change: func(r *pipeline.Request) { r.Ext.AgentHints.SpeculativePrefill = new(false) }, none: true},
		"two answers":   {change: func(r *pipeline.Request) { r.Chat.Sampling.N = 2 }, none: true},
		"the last one":  {change: func(r *pipeline.Request) { r.Identity.Final = true }, none: true},
		"one that closes": {change: func(r *pipeline.Request) {
			r.Ext.SessionControl = &nvext.SessionControl{SessionID: "s", Action: "close"}
		}, none: true},
		"tokens":            {change: func(r *pipeline.Request) { r.Ext.TokenData = []uint32{1, 2, 3} }, none: true},
		"a raw prompt":      {change: func(r *pipeline.Request) { r.Ext.UseRawPrompt = new(true) }, none: true},
		"background work":   {change: func(r *pipeline.Request) { r.Background = true }, none: true},
		"filtered":          {finish: engine.FinishContentFilter, none: true},
		"a client who left": {leaves: true, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{features: engine.Features{engine.FeatureLoRA, engine.FeatureCacheSalt, engine.FeaturePriority}, change: func(c *engine.Card) { c.Adapters = []string{"tuned"} }}
			h := newHouse(t, pipeline.Config{}, f, f)
			text := "So it is, and nothing else can be said about it."
			if tc.finish == "" {
				text, tc.finish = text+"<|im_end|>", engine.FinishEOS
			}
			f.generate = h.say(text, 3, tc.finish)
			r := request(seaside)
			r.Chat.Model = "tuned"
			r.Ext, r.Identity.Key, r.Tenant = hinted(), "s", "blue"
			r.Ext.AgentHints.Priority = new(int32(7))
			r.KV = kv.Directives{Namespace: kv.Namespace{Salt: "salt"}, Session: kv.Session{ID: "s", Parent: "p"}, Priority: new(int32(7)), NextIn: 1}
			r.Trace.Parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			if tc.change != nil {
				tc.change(r)
			}
			for _, err := range h.Run(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if tc.leaves {
					break
				}
			}
			h.Settle()
			sent := f.sent()
			i := slices.IndexFunc(sent, func(r *engine.Request) bool { return r.Stop.MaxTokens == 1 })
			if tc.none {
				if i >= 0 {
					t.Errorf("it was asked for: %+v", sent[i])
				}
				return
			}
			if i < 0 {
				t.Fatal("nobody was asked")
			}
			got := sent[i]
			want := kv.Directives{Namespace: kv.Namespace{LoRA: "tuned", Salt: "salt"}, Session: kv.Session{ID: "s", Parent: "p"}}
			if got.KV.Namespace != want.Namespace || got.KV.Session != want.Session || got.KV.Priority == nil || *got.KV.Priority != 7 || got.KV.NextIn != 0 || len(got.KV.Pins) != 0 {
				t.Errorf("directives %+v", got.KV)
			}
			if got.Priority == nil || *got.Priority != nvext.PriorityBackground || got.Trace != (engine.Trace{}) || got.ID[:36] == r.ID {
				t.Errorf("priority %v, trace %v, id %s", got.Priority, got.Trace, got.ID)
			}
			if c := h.Foresights(); c.Tokens != int64(len(got.TokenIDs)) || c.Ends[pipeline.ForesightDone] != 1 {
				t.Errorf("counted %+v", c)
			}
		})
	}
}

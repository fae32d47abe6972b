package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// everything is all that clients can ask for.
var everything = []string{"worker_id", "timing", "routed_experts", "engine_data", "stop_reason", "completion_token_ids", "prompt_logprobs"}

// curious returns a request whose client wants to know these.
func curious(text string, fields ...string) *pipeline.Request {
	r := request(text)
	r.Ext = &nvext.Ext{ExtraFields: fields}
	return r
}

// bare returns a request with a prompt instead of turns.
func bare(p chat.Prompt) *pipeline.Request {
	r := request("")
	r.Chat.API, r.Chat.Turns, r.Chat.Prompt = chat.APICompletions, nil, &p
	return r
}

func name(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// probabilities are those of a prompt whose tokens were all second to what cannot be.
func probabilities(r *engine.Request) []engine.Logprob {
	all := make([]engine.Logprob, len(r.TokenIDs))
	for i, id := range r.TokenIDs {
		all[i] = engine.Logprob{ID: id, Logprob: -0.5, Rank: 2, Top: []engine.Logprob{{ID: 5, Logprob: math.Inf(-1), Rank: 1}}}
	}
	all[0].Logprob = math.NaN()
	return all
}

// gather runs a request and returns its events.
func gather(t testing.TB, events iter.Seq2[chat.Event, error]) (all []chat.Event) {
	t.Helper()
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// told returns what was told under a name, in order.
func told(events []chat.Event, name string) (values []string) {
	for _, e := range events {
		if e.Kind == chat.Aside && e.Reason == name {
			values = append(values, e.Text)
		}
	}
	return values
}

// timingOf returns the times that were told, once.
func timingOf(t testing.TB, events []chat.Event) (at nvext.Timing) {
	t.Helper()
	values := told(events, "timing")
	if len(values) != 1 {
		t.Fatalf("times %q", values)
	}
	if err := json.Unmarshal([]byte(values[0]), &at); err != nil {
		t.Fatal(err)
	}
	return at
}

func placedOf(t testing.TB, text string) (w nvext.Placed) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// What an engine tells comes ahead of what its item brings, as the engine has said it.
func TestAsidesOfTheEngine(t *testing.T) {
	f := &fake{features: engine.Features{engine.FeaturePromptLogprobs}}
	h := newHouse(t, pipeline.Config{}, f)
	ids := h.ids("one two")
	f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		_ = yield(engine.Delta{TokenIDs: ids[:1], EngineData: json.RawMessage(`{"n": 12345678901234567890}`), PromptLogprobs: probabilities(r)}, nil) &&
			yield(engine.Delta{TokenIDs: ids[1:2]}, nil) &&
			yield(engine.Delta{TokenIDs: ids[2:], Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: len(ids)}, EngineData: json.RawMessage(`{"routed_experts":"AAE=","x":[1]}`)}, nil)
	}
	r := curious("Hello", everything...)
	r.Chat.Sampling.PromptLogprobs = new(1)
	events := gather(t, h.Run(t.Context(), r))
	if events[0].Kind != chat.Start || events[len(events)-1].Kind != chat.Finished {
		t.Fatalf("the answer begins with %d and ends with %d", events[0].Kind, events[len(events)-1].Kind)
	}
	if d := cmp.Diff([]string{`{"n": 12345678901234567890}`, `{"routed_experts":"AAE=","x":[1]}`}, told(events, "engine_data")); d != "" {
		t.Errorf("engine_data -want +got\n%s", d)
	}
	if got := told(events, "routed_experts"); !slices.Equal(got, []string{`"AAE="`}) {
		t.Errorf("routed_experts %q", got)
	}
	first := slices.IndexFunc(events, func(e chat.Event) bool { return e.Reason == "engine_data" })
	if text := slices.IndexFunc(events, func(e chat.Event) bool { return e.Kind == chat.TextDelta }); first > text {
		t.Errorf("the first data are event %d, behind the first text, event %d", first, text)
	}
	var likely []map[string]struct {
		Logprob float64
		Rank    int
		Token   string `json:"decoded_token"`
	}
	if err := json.Unmarshal([]byte(told(events, "prompt_logprobs")[0]), &likely); err != nil {
		t.Fatal(err)
	}
	prompt := f.sent()[0].TokenIDs
	if len(likely) != len(prompt) || likely[0] != nil || len(likely[1]) != 2 {
		t.Fatalf("%d positions of %d tokens, the first %v, the second %v", len(likely), len(prompt), likely[0], likely[1])
	}
	text, err := h.model.Text(prompt[1:2])
	if err != nil {
		t.Fatal(err)
	}
	if l := likely[1][name(prompt[1])]; l.Logprob != -0.5 || l.Rank != 2 || l.Token != text {
		t.Errorf("the second token is %+v, want %q", l, text)
	}
	if l := likely[1]["5"]; l.Logprob != -9999 || l.Rank != 1 {
		t.Errorf("what cannot be is %+v", l)
	}
}

// Nobody is told what nobody has asked for, and events are what they were.
func TestNobodyAsks(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	ids := h.ids(sentence)
	f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{TokenIDs: ids, Finish: engine.FinishEOS, EngineData: json.RawMessage(`{"a":1}`), Usage: &engine.Usage{}}, nil)
	}
	for _, fields := range [][]string{nil, {"mood", "tool_call_dispatch", "stop_reason"}} {
		for _, e := range gather(t, h.Run(t.Context(), curious("Hello", fields...))) {
			if e.Kind == chat.Aside {
				t.Errorf("asked for %q and told %s: %s", fields, e.Reason, e.Text)
			}
		}
	}
}

// Each chunk names the worker that has made it, also behind a move.
func TestAsidesOfAMove(t *testing.T) {
	a, b := &fake{}, &fake{}
	h := newHouse(t, pipeline.Config{MigrationLimit: 1}, a, b)
	whole := h.say(sentence, 4, engine.FinishEOS)
	breaks := func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		n := 0
		whole(ctx, r, func(d engine.Delta, err error) bool {
			if n++; n == 3 {
				yield(engine.Delta{}, engine.Errorf(engine.EngineShutdown, "gone"))
				return false
			}
			return yield(d, err)
		})
	}
	once := make(chan struct{}, 1)
	once <- struct{}{}
	either := func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		select {
		case <-once:
			breaks(ctx, r, yield)
		default:
			whole(ctx, r, yield)
		}
	}
	a.generate, b.generate = either, either
	events := gather(t, h.Run(t.Context(), curious("Hello", "worker_id", "completion_token_ids")))
	workers := told(events, "worker_id")
	if len(workers) != 2 || workers[0] == workers[1] {
		t.Fatalf("workers %q", workers)
	}
	for _, w := range workers {
		if p := placedOf(t, w); p.DecodeWorkerID == nil || *p.DecodeWorkerID != *p.PrefillWorkerID || *p.DecodeDPRank != 0 || *p.PrefillDPRank != 0 {
			t.Errorf("%s: one worker does it all", w)
		}
	}
	var ids []uint32
	for _, e := range events {
		ids = append(ids, e.IDs...)
	}
	if d := cmp.Diff(h.ids(sentence), ids); d != "" {
		t.Errorf("tokens -want +got\n%s", d)
	}
}

// The times are those of the request's own clock.
func TestTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		ids := h.ids(sentence)[:5]
		f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			time.Sleep(300 * time.Millisecond)
			if !yield(engine.Delta{TokenIDs: ids[:1]}, nil) {
				return
			}
			time.Sleep(400 * time.Millisecond)
			yield(engine.Delta{TokenIDs: ids[1:], Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: 5}}, nil)
		}
		synctest.Wait()
		r := curious("Hello", "timing")
		r.Arrived = time.Now()
		time.Sleep(50 * time.Millisecond)
		at := timingOf(t, gather(t, h.Run(t.Context(), r)))
		zero, received := 0.0, r.Arrived.UnixMilli()
		want := nvext.Timing{
			RequestReceived: &received, PrefillWait: new(50.0), Prefill: new(300.0), TTFT: new(350.0), ITL: new(100.0), AverageITL: new(100.0),
			Total: new(750.0), Queue: &zero, Routing: &zero, KVHitRate: &zero, RouterQueueDepth: new(0), QueueDepth: new(0),
		}
		if d := cmp.Diff(want, at); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	})
}

// In two legs both workers are told, and how long the blocks took at most.
func TestAsidesOfLegs(t *testing.T) {
	for name, meets := range map[string]bool{"one after the other": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pipeline.Config{}, 1, 1, meets)
			r := long(100)
			r.Ext = &nvext.Ext{ExtraFields: everything}
			r.Arrived = time.Now()
			events := gather(t, p.Run(t.Context(), r))
			workers := told(events, "worker_id")
			if len(workers) != 1 {
				t.Fatalf("workers %q", workers)
			}
			w := placedOf(t, workers[0])
			if *w.PrefillWorkerID != r.Notes.Prefill.Worker || *w.DecodeWorkerID != r.Notes.Target.Worker || *w.PrefillWorkerID == *w.DecodeWorkerID {
				t.Errorf("%s, want %v and %v", workers[0], r.Notes.Prefill, r.Notes.Target)
			}
			at := timingOf(t, events)
			if at.TTFT == nil || at.Prefill == nil || !meets && at.KVTransfer == nil {
				t.Errorf("times %+v", at)
			}
			if at.KVTransfer != nil && (*at.KVTransfer < 0 || *at.KVTransfer > *at.TTFT) {
				t.Errorf("the blocks took %v ms of %v", *at.KVTransfer, *at.TTFT)
			}
		})
	}
}

// The tokens of what nobody is shown go with what is shown next.
func TestTokensOfDroppedText(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	broken := "Well. <tool_call>\nnonsense\n</tool_call>"
	f.generate = h.say(broken, 3, engine.FinishEOS)
	r := curious("Hello", "completion_token_ids")
	r.Chat.Tools = []chat.Tool{function("", "f")}
	events := gather(t, h.Run(t.Context(), r))
	var ids []uint32
	for _, e := range events {
		ids = append(ids, e.IDs...)
	}
	if d := cmp.Diff(h.ids(broken), ids); d != "" {
		t.Errorf("tokens -want +got\n%s", d)
	}
	if len(h.Dropped()) == 0 {
		t.Error("nothing was dropped")
	}
}

// What streams begin with is noted for those who ask, in the API that has a place for
// it, unless they know it.
func TestAnnotations(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	both := []string{nvext.AnnotatePrompt, nvext.AnnotateTokenIDs}
	for name, tc := range map[string]struct {
		request   func() *pipeline.Request
		text, ids bool
	}{
		"chat":        {func() *pipeline.Request { return request("Hello") }, true, true},
		"completions": {func() *pipeline.Request { return bare(chat.Prompt{Text: "Hello"}) }, false, true},
		"tokens":      {func() *pipeline.Request { return bare(chat.Prompt{IDs: []uint32{300, 301}}) }, false, false},
		"token_data": {func() *pipeline.Request {
			r := request("Hello")
			r.Ext = &nvext.Ext{TokenData: []uint32{300}}
			return r
		}, true, false},
		"another protocol": {func() *pipeline.Request { r := request("Hello"); r.Chat.API = chat.APIMessages; return r }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asked := range []bool{true, false} {
				r := tc.request()
				if r.Ext == nil {
					r.Ext = new(nvext.Ext)
				}
				if asked {
					r.Ext.Annotations = both
				}
				r.Notes = new(pipeline.Notes)
				f.generate = h.say(sentence, 100, engine.FinishEOS)
				gather(t, h.Run(t.Context(), r))
				n := r.Notes
				if text := strings.Contains(n.Formatted, "Hello") && strings.Contains(n.Formatted, "assistant"); text != (tc.text && asked) {
					t.Errorf("asked %t: the text is %q", asked, n.Formatted)
				}
				if got := n.TokenIDs != nil; got != (tc.ids && asked) {
					t.Errorf("asked %t: the tokens are %v", asked, n.TokenIDs)
				}
			}
		})
	}
}

// Who only asks gets a place and leaves nothing behind.
func TestAdvice(t *testing.T) {
	a, b := &fake{}, &fake{}
	h := newHouse(t, pipeline.Config{}, a, b)
	ask := func(api chat.API) []chat.Event {
		r := request("Hello")
		r.Chat.API, r.Ext = api, &nvext.Ext{Annotations: []string{"query_instance_id:"}, ExtraFields: everything}
		return gather(t, h.Run(t.Context(), r))
	}
	var first string
	for range 3 {
		events := ask(chat.APIChat)
		if len(events) != 4 || events[3].Finish.Reason != chat.FinishPlaced || events[3].Usage != (chat.Usage{}) {
			t.Fatalf("events %+v", events)
		}
		w := placedOf(t, events[1].Text)
		if w.PrefillWorkerID != nil || w.DecodeWorkerID == nil || *w.DecodeDPRank != 0 {
			t.Errorf("placed %s", events[1].Text)
		}
		var ids []uint32
		if err := json.Unmarshal([]byte(events[2].Text), &ids); err != nil || len(ids) == 0 {
			t.Errorf("tokens %s: %v", events[2].Text, err)
		}
		if first == "" {
			first = events[1].Text
		}
		if events[1].Text != first {
			t.Errorf("asked again, round robin says %s and not %s", events[1].Text, first)
		}
	}
	if n := len(a.sent()) + len(b.sent()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("booked: %+v", l)
		}
	}
	if n := h.router.Counters().Decisions; n != 0 {
		t.Errorf("%d decisions", n)
	}
	for _, r := range []*pipeline.Request{
		func() *pipeline.Request {
			r := request("Hello")
			r.Ext = &nvext.Ext{Annotations: []string{"query_instance_id"}}
			return r
		}(),
		func() *pipeline.Request {
			r := request("Hello")
			r.Chat.API, r.Ext = chat.APIMessages, &nvext.Ext{Annotations: []string{"query_instance_id:x"}}
			return r
		}(),
	} {
		a.generate = h.say(sentence, 100, engine.FinishEOS)
		b.generate = a.generate
		if answers, err := chat.Fold(h.Run(t.Context(), r)); err != nil || texts(answers)[0] != sentence {
			t.Errorf("%v: %v, %v", r.Ext.Annotations, answers, err)
		}
	}
}

// Both legs are told, and the second request goes where the first one was told.
func TestAdviceOfLegs(t *testing.T) {
	p := newPair(t, pipeline.Config{}, 2, 2, false)
	r := long(100)
	r.Ext = &nvext.Ext{Annotations: []string{"query_instance_id:"}}
	events := gather(t, p.Run(t.Context(), r))
	w := placedOf(t, told(events, "worker_id")[0])
	if w.PrefillWorkerID == nil || w.DecodeWorkerID == nil || *w.PrefillWorkerID == *w.DecodeWorkerID {
		t.Fatalf("placed %s", told(events, "worker_id")[0])
	}
	for _, l := range p.router.Loads() {
		if l.Requests != 0 {
			t.Errorf("booked: %+v", l)
		}
	}
	var ids []uint32
	if err := json.Unmarshal([]byte(told(events, "token_ids")[0]), &ids); err != nil {
		t.Fatal(err)
	}
	pin := func(id *uint64) *nvext.WorkerID { return new(nvext.WorkerID(*id)) }
	r = long(100)
	r.Ext = &nvext.Ext{TokenData: ids, ExtraFields: []string{"worker_id"}, Placement: nvext.Placement{
		PrefillWorkerID: pin(w.PrefillWorkerID), DecodeWorkerID: pin(w.DecodeWorkerID), DPRank: w.DecodeDPRank, PrefillDPRank: w.PrefillDPRank,
	}}
	events = gather(t, p.Run(t.Context(), r))
	if d := cmp.Diff(w, placedOf(t, told(events, "worker_id")[0])); d != "" {
		t.Errorf("-asked +ran\n%s", d)
	}
	p.settled(t)
}

// Errors are those of a request that is to be served.
func TestAdviceFails(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	two := func() []*pipeline.Request {
		var list []*pipeline.Request
		for range 2 {
			r := bare(chat.Prompt{Text: "Hello"})
			r.Ext = &nvext.Ext{Annotations: []string{"query_instance_id:"}}
			list = append(list, r)
		}
		return list
	}
	_, err := chat.Fold(h.Run(t.Context(), two()...))
	if engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("two prompts: %v", err)
	}
	r := request("Hello")
	r.Ext = &nvext.Ext{Annotations: []string{"query_instance_id:"}, Placement: nvext.Placement{BackendInstanceID: new(nvext.WorkerID(5))}}
	if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a worker that is not there: %v", err)
	}
}

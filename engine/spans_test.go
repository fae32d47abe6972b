package engine_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/span"
)

// sayer is an engine that says what it is told to.
type sayer struct {
	engine.Engine
	deltas []engine.Delta
	err    error
	events []chat.Event
	got    *engine.Request
	within *span.Within
}

func (s *sayer) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	s.got, s.within = r, span.From(ctx)
	return func(yield func(engine.Delta, error) bool) {
		for _, d := range s.deltas {
			if !yield(d, nil) {
				return
			}
		}
		if s.err != nil {
			yield(engine.Delta{}, s.err)
		}
	}
}

func (s *sayer) Chat(_ context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	s.got = r
	return func(yield func(chat.Event, error) bool) {
		for _, e := range s.events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// far is one whose process tells of its own spans.
type far struct{ *sayer }

func (far) TellsSpans() bool { return true }

// told collects spans by their names.
func told() (*engine.Spans, map[string]*span.Span) {
	spans := map[string]*span.Span{}
	return &engine.Spans{InstanceID: "w-1", Tracer: &span.Tracer{Tell: func(s *span.Span) { spans[s.Name] = s }}}, spans
}

const (
	sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	chosen  = "aaf067aa0ba902b7"
	earlier = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

func attrs(s *span.Span) map[string]any {
	m := map[string]any{}
	for _, a := range s.Attrs {
		m[a.Key] = a.Value
	}
	return m
}

func request() *engine.Request {
	return &engine.Request{ID: "r-1", Model: "m", TokenIDs: []uint32{1, 2, 3}, Trace: engine.Trace{Parent: sampled, State: "a=b", Span: chosen, From: earlier}}
}

func TestSpansOfAGeneration(t *testing.T) {
	spans, made := told()
	e := &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2, 3}}, {TokenIDs: []uint32{4}, Finish: engine.FinishLength}}}
	r := request()
	n := 0
	for _, err := range spans.Generate(t.Context(), e, r) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	inner, outer := made["engine.generate"], made["handle_payload"]
	if inner.SpanID() != chosen || e.got.Trace.Span != "" {
		t.Errorf("the generation has the id %s, and the engine is told one: %+v", inner.SpanID(), e.got.Trace)
	}
	if n != 3 || inner == nil || outer == nil {
		t.Fatalf("%d items, %v", n, made)
	}
	if e.got.Trace.Parent != inner.Context.Parent() || e.got.Trace.State != "a=b" || e.within == nil || e.within.Context != inner.Context || r.Trace.Parent != sampled {
		t.Errorf("the engine got %+v within %+v, of %+v", e.got.Trace, e.within, r.Trace)
	}
	if inner.Parent != outer.Context || outer.Parent.Parent() != sampled || inner.TraceID() != sampled[3:35] {
		t.Errorf("%+v in %+v", inner, outer)
	}
	got := attrs(inner)
	for key, want := range map[string]any{
		"model": "m", "input_tokens": int64(3), "output_tokens": int64(4), "finish_reason": "length", "cancelled": false,
		"disagg_role": "aggregated", "migration_span_id": earlier[36:52], "migration_trace_id": earlier[3:35],
	} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	for _, key := range []string{"ttft_ms", "avg_itl_ms", "itl_p50_ms", "itl_p99_ms", "itl_max_ms"} {
		if got[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	if len(inner.Links) != 1 || inner.Links[0].Parent() != earlier || inner.Error != "" {
		t.Errorf("%+v", inner)
	}
	if in := attrs(outer); in["instance_id"] != "w-1" || in["parent_id"] != sampled[36:52] || in["tracestate"] != "a=b" {
		t.Errorf("%v", in)
	}
}

func TestSpansOfAGenerationThatFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine *sayer
		leave  bool // in the middle
		cancel bool
		want   string
		gone   bool
	}{
		{"error", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}}, err: engine.Errorf(engine.Disconnected, "gone")}, false, false, "disconnected", false},
		{"cancelled", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2}}}}, true, true, "stream dropped before terminal", true},
		{"left by another process", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2}}}}, true, true, "", true},
		{"left by another process, which the engine says", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}}, err: context.Canceled}, false, true, "", true},
		{"error while another process listens", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}}, err: engine.Errorf(engine.Disconnected, "gone")}, false, false, "disconnected", false},
		{"enough", &sayer{deltas: []engine.Delta{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2}}}}, true, false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			spans, made := told()
			spans.Served = strings.Contains(c.name, "another process")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range spans.Generate(ctx, c.engine, request()) {
				if c.cancel {
					cancel()
				}
				if c.leave {
					break
				}
			}
			for _, s := range made {
				if s.Error != c.want {
					t.Errorf("%s: %q, want %q", s.Name, s.Error, c.want)
				}
			}
			if s := made["engine.generate"]; s == nil || attrs(s)["cancelled"] != c.gone {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestSpansOfAConversation(t *testing.T) {
	spans, made := told()
	e := &sayer{events: []chat.Event{
		{Kind: chat.Start},
		{Kind: chat.TextDelta, Text: "a"},
		{Kind: chat.TextDelta, Text: "b"},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Prompt: 9, Output: 7}},
	}}
	r := request()
	r.TokenIDs = nil
	for range spans.Chat(t.Context(), e, r) {
	}
	if got := attrs(made["engine.generate"]); got["output_tokens"] != int64(7) || got["input_tokens"] != int64(9) || got["finish_reason"] != "stop" {
		t.Errorf("%v", got)
	}
}

func TestSpansThatNobodyWants(t *testing.T) {
	spans, made := told()
	for name, r := range map[string]*engine.Request{
		"no trace":    {ID: "r"},
		"not sampled": {ID: "r", Trace: engine.Trace{Parent: sampled[:53] + "00"}},
	} {
		e := &sayer{deltas: []engine.Delta{{Finish: engine.FinishStop}}}
		for range spans.Generate(t.Context(), e, r) {
		}
		if len(made) != 0 || e.got != r {
			t.Errorf("%s: %v", name, made)
		}
	}
	elsewhere := far{&sayer{deltas: []engine.Delta{{Finish: engine.FinishStop}}}}
	r := request()
	for range spans.Generate(t.Context(), elsewhere, r) {
	}
	if len(made) != 0 || elsewhere.got != r {
		t.Errorf("an engine that tells of itself: %v", made)
	}
	var off *engine.Spans
	e, r := &sayer{}, request()
	plain := testing.AllocsPerRun(100, func() { e.Generate(t.Context(), r) })
	if n := testing.AllocsPerRun(100, func() { off.Generate(t.Context(), e, r) }); n != plain {
		t.Errorf("%v allocations instead of %v", n, plain)
	}
}

// However long an answer is, what is kept of its gaps is bounded, and its percentiles
// are those of the whole.
func TestManyGaps(t *testing.T) {
	for _, n := range []int{1, 2, 99, 2048, 2049, 100000} {
		gaps := engine.NewGaps()
		var naive []float64
		for i := range n {
			gap := float64(i * 7919 % n)
			gaps.Add(gap)
			naive = append(naive, gap)
		}
		slices.Sort(naive)
		kept, p50, p99, most := gaps.Told()
		if kept > 2048 {
			t.Errorf("of %d gaps %d are kept", n, kept)
		}
		near := func(got float64, percent int) bool {
			want := naive[(n*percent+99)/100-1]
			return got >= want-float64(n)/50-1 && got <= want+float64(n)/50+1 && (n > 2048 || got == want)
		}
		if !near(p50, 50) || !near(p99, 99) || most != naive[n-1] {
			t.Errorf("of %d: %v, %v, %v", n, p50, p99, most)
		}
	}
}

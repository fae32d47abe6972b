package perfetto

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// put adds what is there.
func put[T any](a args, name string, value *T) {
	if value != nil {
		a[name] = *value
	}
}

func putText(a args, name, value string) {
	if value != "" {
		a[name] = value
	}
}

func slice(name, category string, tid int, ts, dur int64, a args) event {
	return event{Name: name, Category: category, Phase: "X", PID: 1, TID: tid, TS: &ts, Dur: &dur, Args: a}
}

func instant(name, category string, tid int, ts int64, a args) event {
	return event{Name: name, Category: category, Phase: "i", Scope: "t", PID: 1, TID: tid, TS: &ts, Args: a}
}

// requestEvents adds a request, what it spent its time on, and its first token.
func requestEvents(events []event, it *item, tid int, o Options) []event {
	r := it.turn.Request
	events = append(events, slice("LLM request: "+cmp.Or(r.Model, "unknown-model"), "dynamo.llm", tid, it.ts, it.dur, requestArgs(it.turn)))
	ttft := micros(r.TTFT)
	if o.Markers && ttft != nil {
		events = append(events, instant("first token", "dynamo.llm.marker", tid, it.ts+*ttft, args{"ttft_ms": *r.TTFT}))
	}
	if o.NoStages {
		return events
	}
	first := it.dur
	if ttft != nil {
		first = min(*ttft, it.dur)
	}
	stage := func(name string, from, dur int64) args {
		a := args{"request_id": r.RequestID}
		putText(a, "x_request_id", r.XRequestID)
		putText(a, "model", r.Model)
		events = append(events, slice(name, "dynamo.llm.stage", tid, it.ts+from, dur, a))
		return a
	}
	at := int64(0)
	for _, s := range []struct {
		name, field string
		ms          *float64
	}{{"prefill wait", "prefill_wait_time_ms", r.PrefillWaitTime}, {"prefill", "prefill_time_ms", r.PrefillTime}} {
		if took := micros(s.ms); took != nil && *took > 0 && at < first {
			dur := min(*took, first-at)
			stage(s.name, at, dur)[s.field] = *s.ms
			at += dur
		}
	}
	if ttft != nil && first < it.dur {
		a := stage("decode", first, it.dur-first)
		put(a, "output_tokens", r.OutputTokens)
		put(a, "avg_itl_ms", r.AvgITL)
	}
	return events
}

// micros returns a time that is one, in microseconds.
func micros(ms *float64) *int64 {
	if ms == nil || !(*ms >= 0) {
		return nil
	}
	us := time.Duration(min(*ms, 1e12) * 1e6).Round(time.Microsecond).Microseconds()
	return &us
}

func requestArgs(t *tree.Turn) args {
	r := t.Request
	a := chainArgs(t.Chain)
	a["event_time_unix_ms"] = t.Ended.UnixMilli()
	a["request_id"] = r.RequestID
	putText(a, "x_request_id", r.XRequestID)
	putText(a, "model", r.Model)
	for name, n := range map[string]*uint64{
		"input_tokens": r.InputTokens, "output_tokens": r.OutputTokens, "cached_tokens": r.CachedTokens,
		"request_received_ms": r.Received, "queue_depth": r.QueueDepth,
	} {
		put(a, name, n)
	}
	for name, n := range map[string]*float64{
		"prefill_wait_time_ms": r.PrefillWaitTime, "prefill_time_ms": r.PrefillTime, "ttft_ms": r.TTFT,
		"total_time_ms": r.TotalTime, "avg_itl_ms": r.AvgITL, "queue_time_ms": r.QueueTime, "routing_time_ms": r.RoutingTime,
		"kv_hit_rate": r.KVHitRate, "kv_transfer_estimated_latency_ms": r.TransferLatency,
	} {
		put(a, name, n)
	}
	if w := r.Worker; w != nil {
		put(a, "worker.prefill_worker_id", w.PrefillWorkerID)
		put(a, "worker.prefill_dp_rank", w.PrefillRank)
		put(a, "worker.decode_worker_id", w.DecodeWorkerID)
		put(a, "worker.decode_dp_rank", w.DecodeRank)
	}
	if r.Finish != nil {
		finishArgs(a, r.Finish)
	}
	return a
}

func chainArgs(c *tree.Chain) args {
	a := args{}
	putText(a, "session_id", c.ID)
	putText(a, "parent_session_id", c.ParentID)
	return a
}

func finishArgs(a args, f *trace.Finish) {
	a["finish_reason_metadata"] = f
	putText(a, "finish.finish_reason", f.Reason)
	putText(a, "finish.backend_finish_reason", f.BackendReason)
	if len(f.StopReason) > 0 {
		a["finish.stop_reason"] = f.StopReason
	}
	if len(f.ToolCalls) > 0 {
		a["finish.tool_call_count"] = len(f.ToolCalls)
		var names []string
		for _, call := range f.ToolCalls {
			if call.Name != "" {
				names = append(names, call.Name)
			}
		}
		putText(a, "finish.tool_call_names", strings.Join(names, ", "))
	}
	if len(f.Choices) > 0 {
		a["finish.choice_count"] = len(f.Choices)
		var reasons []string
		for _, c := range f.Choices {
			if c.Reason != "" {
				reasons = append(reasons, fmt.Sprintf("%d:%s", c.Index, c.Reason))
			}
		}
		putText(a, "finish.choice_finish_reasons", strings.Join(reasons, ", "))
	}
}

// toolEvent is the entry of a use of a tool.
func toolEvent(it *item, tid int) event {
	u := it.tool
	a := chainArgs(u.Chain)
	unknown := u.Duration == 0 && it.kind != instantItem
	if unknown {
		a["synthetic_duration"], a["visual_duration_ms"] = true, synthetic/1000.0
	}
	if u.Inferred() {
		inferredArgs(a, u)
		return slice("Tool: "+cmp.Or(u.Class, "unknown-tool"), "dynamo.agent.tool", tid, it.ts, it.dur, a)
	}
	toolArgs(a, u.Record)
	class := cmp.Or(u.Class, "unknown-tool")
	switch u.Record.EventType {
	case trace.ToolStart:
		return instant("Tool start: "+class, "dynamo.agent.tool.marker", tid, it.ts, a)
	case trace.ToolError:
		return slice("Tool error: "+class, "dynamo.agent.tool", tid, it.ts, it.dur, a)
	}
	return slice("Tool: "+class, "dynamo.agent.tool", tid, it.ts, it.dur, a)
}

func toolArgs(a args, r *trace.Record) {
	a["event_type"], a["event_time_unix_ms"] = r.EventType, r.EventTime
	putText(a, "event_source", r.Source)
	putText(a, "tool_call_id", r.Tool.ID)
	putText(a, "tool_class", r.Tool.Class)
	putText(a, "status", r.Tool.Status)
	putText(a, "tool_name_hash", r.Tool.NameHash)
	putText(a, "error_type", r.Tool.ErrorType)
	put(a, "started_at_unix_ms", r.Tool.Started)
	put(a, "ended_at_unix_ms", r.Tool.Ended)
	put(a, "duration_ms", r.Tool.Duration)
	put(a, "output_tokens", r.Tool.OutputTokens)
	put(a, "output_bytes", r.Tool.OutputBytes)
}

// inferredArgs say what a slice stands for that no harness has told of.
func inferredArgs(a args, u *tree.Tool) {
	a["event_type"], a["event_source"] = "inferred_tool_call", trace.SourceDynamo
	a["source"], a["inferred"], a["host_execution"] = "request.finish_reason_metadata.tool_calls", true, false
	a["source_request_id"] = u.Turn.Request.RequestID
	putText(a, "tool_call_id", u.ID)
	a["tool_call_index"], a["choice_index"] = u.Call.Index, u.Call.Choice
	a["tool_class"] = cmp.Or(u.Class, "unknown-tool")
	a["started_at_unix_ms"] = inMS(u.Start)
	next := cmp.Or(u.Answered, u.Turn.Next)
	if u.Duration == 0 {
		a["duration_unknown"] = true
		if next != nil {
			a["overlapping_request_id"] = next.Request.RequestID
		}
		return
	}
	a["next_request_id"] = next.Request.RequestID
	a["ended_at_unix_ms"] = inMS(u.Start.Add(u.Duration))
	a["duration_ms"] = float64(u.Duration) / float64(time.Millisecond)
}

func inMS(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

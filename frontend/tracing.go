package frontend

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

// Tracing says which records of requests are made, and takes them.
type Tracing struct {
	// Publish takes a record, and must not wait.
	Publish func(*trace.Record)
	// RequestEnds are records of what became of requests, Payloads of what was said.
	RequestEnds, Payloads bool
	// Headers are those that records of what was said have, in lower case.
	Headers []string
	// Tools takes what harnesses tell of tools over HTTP; nil: that is not recorded.
	Tools *toolevents.Intake
}

// traced gathers what a trace tells of one call. It belongs to the goroutine of its
// record.
type traced struct {
	agent *trace.AgentContext // nil: nobody has said which
	asked *nvext.Ext          // what changes where the call runs, or what stays cached
	of    []pipeline.Traced
	// results are the ids of calls of tools whose results the agent brings.
	results []string
	each    int // choices of one request

	calls   []trace.ToolCall
	choices []trace.Choice // that have ended
	cached  *int           // of the first prompt, as told before its end

	// room is for what most calls have, one of each.
	room struct {
		of     [1]pipeline.Traced
		course [1]pipeline.Course
		choice [1]trace.Choice
	}
}

// traced begins what a trace tells of a job, where there is one.
func (j *job) traced(sources nvext.Sources) *traced {
	if j.Tracing == nil || !j.Tracing.RequestEnds {
		return nil
	}
	t := &traced{asked: steering(j.call.ext)}
	if j.beside.identity.Chain != "" {
		t.agent = agentContext(&j.beside.identity, sources)
		if len(j.call.requests) > 0 {
			t.agent.InputTrigger, t.results = trigger(j.call.requests[0]), results(j.call.requests[0])
		}
	}
	return t
}

// agentContext tells which agent a request comes from, in the words by which its
// client has.
func agentContext(id *nvext.Identity, sources nvext.Sources) *trace.AgentContext {
	a := &trace.AgentContext{}
	if sources.InBody() {
		c := sources.Ext.AgentContext
		a.SessionTypeID, a.SessionID = c.SessionTypeID, c.SessionID
		a.TrajectoryID, a.ParentTrajectoryID, a.TrajectoryFinal = id.Chain, id.Parent, c.TrajectoryFinal
	} else {
		a.SessionID, a.ParentSessionID = id.Chain, id.Parent
	}
	if a.SessionFinal = sources.Final(); id.Final {
		a.KVHints = &trace.KVHints{EvictSession: true}
		if a.TrajectoryFinal == nil {
			a.SessionFinal = new(true)
		}
	}
	if c := sources.Compaction(); c != nil {
		a.Compaction = (*trace.Compaction)(c)
	}
	return a
}

// trigger names what the newest turn of a conversation brings.
func trigger(r *chat.Request) string {
	switch pipeline.InputOf(r) {
	case router.UserInput:
		return "user_message"
	case router.ToolInput:
		return "tool_result"
	}
	return "other"
}

// mostResults is how many results a row names, and longestResult how long an id of one
// may be: no agent has more calls at once, and rows shall not be as long as bodies.
const (
	mostResults   = 1000
	longestResult = 256
)

// results returns the ids of calls whose results stand behind the last turn of the
// assistant, as the client knows them.
func results(r *chat.Request) (ids []string) {
	begin := len(r.Turns)
	for begin > 0 && r.Turns[begin-1].Role != chat.RoleAssistant {
		begin--
	}
	for _, turn := range r.Turns[begin:] {
		for i := range turn.Blocks {
			if result := turn.Blocks[i].Result; result != nil && result.ID != "" && len(result.ID) <= longestResult && len(ids) < mostResults {
				ids = append(ids, result.ID)
			}
		}
	}
	return ids
}

// steering returns what of an extension a replay has to say as well; nil: nothing.
func steering(ext *nvext.Ext) *nvext.Ext {
	if ext == nil || ext.CacheSalt == "" && ext.AgentHints == nil && ext.CacheControl == nil && ext.SessionControl == nil && ext.Retention == nil {
		return nil
	}
	return &nvext.Ext{
		CacheSalt: ext.CacheSalt, AgentHints: ext.AgentHints, CacheControl: ext.CacheControl,
		SessionControl: ext.SessionControl, Retention: ext.Retention,
	}
}

// begin makes room for what the requests of a call are to tell.
func (t *traced) begin(requests []*pipeline.Request) {
	if t == nil {
		return
	}
	t.choices, t.each = t.room.choice[:0], 1
	if t.of = t.room.of[:]; len(requests) != 1 {
		t.of = make([]pipeline.Traced, len(requests))
	}
	t.room.of[0].Courses = t.room.course[:0]
	for i, r := range requests {
		r.Traced = &t.of[i]
		t.each = r.Chat.Sampling.Choices()
	}
}

// event takes note of an event as it passes.
func (t *traced) event(e *chat.Event) {
	switch e.Kind {
	case chat.Start, chat.UsageUpdate:
		if e.Choice == 0 && e.Usage.Cached != nil {
			t.cached = e.Usage.Cached
		}
	case chat.BlockStart:
		if e.Tool == nil {
			return
		}
		call := trace.ToolCall{Choice: uint32(e.Choice), ID: e.Tool.ID, Name: e.Tool.Name}
		for i := range t.calls {
			if t.calls[i].Choice == call.Choice {
				call.Index++
			}
		}
		t.calls = append(t.calls, call)
	case chat.Finished:
		t.choices = append(t.choices, trace.Choice{
			Index: uint32(e.Choice), Reason: finishReasons[e.Finish.Reason], BackendReason: string(e.Finish.Reason), StopReason: stopReason(&e.Finish),
		})
	}
}

// finishReasons are the names by which traces know the ends of answers.
var finishReasons = map[chat.FinishReason]string{
	chat.FinishStop: "stop", chat.FinishStopSequence: "stop", chat.FinishLength: "length", chat.FinishContext: "length",
	chat.FinishToolUse: "tool_calls", chat.FinishContentFilter: "content_filter",
}

// stopReason returns what of the client's stop list has ended an answer.
func stopReason(f *chat.Finish) jsontext.Value {
	var v any
	switch {
	case f.StopText != "":
		v = f.StopText
	case f.StopID != nil:
		v = *f.StopID
	default:
		return nil
	}
	text, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil
	}
	return text
}

// course returns that of a choice of the whole call, or nil.
func (t *traced) course(choice int) *pipeline.Course {
	k, i := choice/t.each, choice%t.each
	if k >= len(t.of) || i >= len(t.of[k].Courses) {
		return nil
	}
	return &t.of[k].Courses[i]
}

// row tells what became of a call, at its end. It is nil if no worker was asked: then
// nothing has become of it.
func (t *traced) row(r *record, now time.Time) *trace.Record {
	if t == nil || len(t.of) == 0 {
		return nil
	}
	first := t.course(0)
	if first == nil || first.Sent.IsZero() {
		return nil
	}
	if first.Last.IsZero() {
		first.Last = now
	}
	n := &r.notes[0]
	room := rowRooms.Get().(*rowRoom)
	room.input, room.output, room.received = t.input(r), t.output(r), uint64(r.x.arrived.UnixMilli())
	record, row := &room.record, &room.request
	record.OwnedBy(room)
	*row = trace.Request{
		RequestID: r.x.id, Model: r.model, InputTokens: &room.input, OutputTokens: &room.output, Received: &room.received,
		Worker: room.servedBy(first, n), Replay: t.replay(room), Finish: t.finish(r, room), Dynago: &room.dynago,
	}
	r.placed(room)
	room.dynago.ToolResults = t.results
	if r.x.correlation != r.x.id {
		row.XRequestID = r.x.correlation
	}
	cached := t.cached
	if r.cachedKnown {
		cached = r.usage.Cached
	}
	if cached != nil {
		room.cached = min(uint64(max(0, *cached)), room.input)
		row.CachedTokens = &room.cached
	}
	room.timing(first.Timing(r.x.arrived, int(room.output), n, &room.numbers))
	if t.asked != nil {
		row.NVExt, _ = json.Marshal(t.asked, jsontext.AllowInvalidUTF8(true), json.Deterministic(true)) // a trace does without
	}
	record.Schema, record.EventType, record.Source = trace.Schema, trace.RequestEnd, trace.SourceDynamo
	record.EventTime, record.Agent, record.Request = room.received, t.agent, row
	if total := row.TotalTime; total != nil {
		record.EventTime += uint64(math.Round(*total))
	}
	if journal := r.server.Journal; journal != nil {
		if e, ok := journal.Find(r.x.id, r.x.arrived); ok {
			room.dynago.Decision = appendDecision(make(jsontext.Value, 0, 384), &e)
		}
	}
	return record
}

// rowRooms are the rooms of rows that sinks have done with: without them a row would be a
// thirtieth of what a short request allocates.
var rowRooms = sync.Pool{New: func() any { return new(rowRoom) }}

// mostHashes is for how many hashes a room keeps space. Those of longer prompts are
// rare, and their space shall not stay.
const mostHashes = 4096

// Free implements [trace.Freer].
func (room *rowRoom) Free() {
	hashes := room.replay.Hashes
	if cap(hashes) > mostHashes {
		hashes = nil
	}
	*room = rowRoom{replay: trace.Replay{Hashes: hashes[:0]}}
	rowRooms.Put(room)
}

// rowRoom is what nearly all rows have, in one piece of memory.
type rowRoom struct {
	record  trace.Record
	request trace.Request
	worker  trace.Worker
	replay  trace.Replay
	finish  trace.Finish
	choice  [1]trace.Choice
	dynago  trace.Dynago

	numbers         pipeline.Numbers
	prefill, decode kv.Target

	input, output, cached, received, depth, overlap, blocks uint64
}

// timing copies what a client would be told of its timing.
func (room *rowRoom) timing(t nvext.Timing) {
	row := &room.request
	row.PrefillWaitTime, row.PrefillTime, row.TTFT, row.TotalTime = t.PrefillWait, t.Prefill, t.TTFT, t.Total
	row.AvgITL, row.QueueTime, row.RoutingTime = t.AverageITL, t.Queue, t.Routing
	row.KVHitRate, row.TransferLatency = t.KVHitRate, t.KVTransfer
	if t.QueueDepth != nil {
		room.depth = uint64(*t.QueueDepth)
		row.QueueDepth = &room.depth
	}
}

// input returns how many tokens the prompts had.
func (t *traced) input(r *record) (tokens uint64) {
	if r.usage.Prompt > 0 {
		return uint64(r.usage.Prompt)
	}
	for i := range r.notes {
		tokens += uint64(r.notes[i].PromptTokens)
	}
	return tokens
}

// output returns how many tokens were generated, also of an answer that nobody has
// heard to its end.
func (t *traced) output(r *record) uint64 {
	came := r.tokens
	if len(t.choices) < t.each*len(t.of) {
		came = 0
		for i := range t.of {
			for k := range t.of[i].Courses {
				came += t.of[i].Courses[k].Tokens
			}
		}
	}
	return uint64(max(came, r.usage.Output))
}

// servedBy names who has served.
func (room *rowRoom) servedBy(c *pipeline.Course, n *pipeline.Notes) *trace.Worker {
	room.prefill, room.decode = c.Prefill, c.Decode
	if !c.Placed {
		if n.Attempts == 0 && n.Target == (kv.Target{}) {
			return nil
		}
		room.prefill, room.decode = n.Target, n.Target
		if n.Prefill != nil {
			room.prefill = *n.Prefill
		}
	}
	room.worker = trace.Worker{
		PrefillWorkerID: &room.prefill.Worker, PrefillRank: &room.prefill.Rank,
		DecodeWorkerID: &room.decode.Worker, DecodeRank: &room.decode.Rank,
	}
	return &room.worker
}

// replay returns the prompt as hashes, where there is one prompt with one answer, in
// tokens that are known.
func (t *traced) replay(room *rowRoom) *trace.Replay {
	if len(t.of) != 1 || t.each != 1 || t.of[0].BlockSize <= 0 {
		return nil
	}
	p := &t.of[0]
	room.replay.Fill(p.Prompt, p.BlockSize, p.Blocks...)
	return &room.replay
}

// finish tells how the answers have ended.
func (t *traced) finish(r *record, room *rowRoom) *trace.Finish {
	f := &room.finish
	if f.ToolCalls = t.calls; len(t.choices) > 0 {
		f.Choices = append(room.choice[:0], t.choices...)
	}
	for i := range f.Choices {
		c := &f.Choices[i]
		c.BackendReason = backendReason(chat.FinishReason(c.BackendReason), t.course(int(c.Index)))
		f.Reason, f.BackendReason, f.StopReason = c.Reason, c.BackendReason, c.StopReason
	}
	switch {
	case r.fault == nil:
	case typeOf(r.fault, r.server.OverloadStatus) == errorCancelled:
		f.BackendReason = "cancelled"
	case r.fault.Status >= 500:
		f.BackendReason = "error: " + opening(r.cause.Error())
	default:
		f.BackendReason = "error: " + explanations[typeOf(r.fault, r.server.OverloadStatus)]
	}
	if f.Reason == "" && f.BackendReason == "" && len(f.ToolCalls) == 0 {
		return nil
	}
	return f
}

// longestError is how much of an error's text a row tells. What an engine says may go
// on with the prompt that it could not read, and rows are without content.
const longestError = 160

// opening returns the first line of a text, or what of it a row may tell.
func opening(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > longestError {
		line = strings.ToValidUTF8(line[:longestError], "") + "…"
	}
	return line
}

// backendReason returns what an engine has called the end of an answer; where we have
// ended it ourselves, what it would have.
func backendReason(reason chat.FinishReason, c *pipeline.Course) string {
	if c != nil && c.Finish != engine.Running {
		return string(c.Finish)
	}
	switch reason {
	case chat.FinishLength, chat.FinishContext:
		return string(engine.FinishLength)
	case chat.FinishContentFilter:
		return string(engine.FinishContentFilter)
	}
	return string(engine.FinishStop)
}

// placed tells why a call ran where it did.
func (r *record) placed(room *rowRoom) {
	d, n := &room.dynago, &r.notes[0]
	d.Endpoint, d.Stream, d.Session = r.endpoint, r.stream, n.Session.String()
	if n.Attempts > 1 {
		d.Attempts = n.Attempts
	}
	if n.Blocks > 0 {
		room.overlap, room.blocks = uint64(max(0, n.Overlap)), uint64(n.Blocks)
		d.OverlapBlocks, d.InputBlocks = &room.overlap, &room.blocks
	}
	if kind := typeOf(r.fault, r.server.OverloadStatus); kind != noError {
		d.Error = kind.String()
	}
	if u := n.Reuse; u != nil {
		d.ReusedTokens, d.LastTokens = new(uint64(max(0, u.Common))), new(uint64(max(0, u.Prompt+u.Answer)))
	}
}

package trace

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schema names the form of the records, and LegacySchema an older name that readers
// take for it.
const (
	Schema       = "dynamo.request.trace.v1"
	LegacySchema = "dynamo.agent.trace.v1"
)

// Kinds of records, which are the values of [Record.EventType].
const (
	RequestEnd     = "request_end"
	RequestPayload = "request_payload"
	ToolStart      = "tool_start"
	ToolEnd        = "tool_end"
	ToolError      = "tool_error"
)

// Who has told what a record says.
const (
	SourceDynamo  = "dynamo"
	SourceHarness = "harness"
)

// Record is one line of a trace: what became of a request, what went over the wire,
// or what a tool did. What is absent is left out of the JSON form and is never null.
// A record that was published must not be changed, nor, if somebody owns it, be read by
// who has published it: sinks share it.
type Record struct {
	Schema    string `json:"schema"`
	EventType string `json:"event_type"`
	EventTime uint64 `json:"event_time_unix_ms"`
	Source    string `json:"event_source,omitzero"`

	Agent   *AgentContext `json:"agent_context,omitzero"`
	Request *Request      `json:"request,omitzero"`
	Tool    *Tool         `json:"tool,omitzero"`
	Payload *Payload      `json:"payload,omitzero"`

	later *later

	free    Freer // or nil
	pending int32 // sinks that have not done with it; atomic
}

// Freer is told when nobody needs a record any more.
type Freer interface{ Free() }

// OwnedBy lets the memory of a record be used again once all sinks have done with it, which
// f is told. It is told of no record that was never published, or was published too late.
func (r *Record) OwnedBy(f Freer) { r.free = f }

// done notes that a sink has written the record, or will not.
func (r *Record) done() {
	if r.free != nil && atomic.AddInt32(&r.pending, -1) == 0 {
		r.free.Free()
	}
}

// later is what completes a record behind the request that it is of.
type later struct {
	once     sync.Once
	complete func(*Record)
	bytes    int
}

// Later lets a record be completed when a sink comes to it, and not before: what takes
// time is not done at a request's cost, and not done at all for a record that no sink
// gets. Meanwhile it holds so many bytes. Complete is called once, from any goroutine.
func (r *Record) Later(bytes int, complete func(*Record)) {
	r.later = &later{complete: complete, bytes: bytes}
}

// whole completes the record.
func (r *Record) whole() {
	if l := r.later; l != nil {
		l.once.Do(func() {
			l.complete(r)
			l.complete = nil // and what it holds
		})
	}
}

// bytes is about how much memory the record takes beyond what all take: what clients and
// models can make as long as they like.
func (r *Record) bytes() (n int) {
	if r.later != nil {
		n = r.later.bytes
	}
	if p := r.Payload; p != nil && r.later == nil {
		n += len(p.Request) + len(p.Response)
	}
	if t := r.Tool; t != nil {
		n += len(t.ID) + len(t.Class) + len(t.NameHash) + len(t.ErrorType) + len(t.Claude)
	}
	if r.Request != nil {
		n += r.Request.bytes()
	}
	return n
}

func (r *Request) bytes() int {
	n := len(r.NVExt)
	if r.Replay != nil {
		n += 8 * len(r.Replay.Hashes)
	}
	if f := r.Finish; f != nil {
		n += len(f.BackendReason) + len(f.StopReason)
		for i := range f.ToolCalls {
			n += len(f.ToolCalls[i].ID) + len(f.ToolCalls[i].Name)
		}
		for i := range f.Choices {
			n += len(f.Choices[i].StopReason)
		}
	}
	if d := r.Dynago; d != nil {
		for _, id := range d.ToolResults {
			n += len(id)
		}
	}
	return n
}

// AgentContext says which agent a record is of. A client that names itself in the
// body of a request does so by the names of trajectories, where SessionID is the
// whole run; one that does so by headers calls its chain a session. Rows keep the
// names that the client used: read them by [AgentContext.Chain] and
// [AgentContext.ParentChain].
type AgentContext struct {
	SessionTypeID      string `json:"session_type_id,omitzero"`
	SessionID          string `json:"session_id"`
	ParentSessionID    string `json:"parent_session_id,omitzero"`
	SessionFinal       *bool  `json:"session_final,omitzero"`
	TrajectoryID       string `json:"trajectory_id,omitzero"`
	ParentTrajectoryID string `json:"parent_trajectory_id,omitzero"`
	TrajectoryFinal    *bool  `json:"trajectory_final,omitzero"`

	Compaction   *Compaction `json:"compaction,omitzero"`
	KVHints      *KVHints    `json:"kv_hints,omitzero"`
	InputTrigger string      `json:"input_trigger,omitzero"`
}

// Chain returns the chain of turns that the record belongs to.
func (a *AgentContext) Chain() string {
	if a.TrajectoryID != "" {
		return a.TrajectoryID
	}
	return a.SessionID
}

// ParentChain returns the chain that has started this one, or "".
func (a *AgentContext) ParentChain() string {
	if a.TrajectoryID != "" {
		return a.ParentTrajectoryID
	}
	return a.ParentSessionID
}

// Run returns the run of the agent that all its chains are part of, or "" where only
// the chain is known.
func (a *AgentContext) Run() string {
	if a.TrajectoryID != "" {
		return a.SessionID
	}
	return ""
}

// Compaction tells of a request that sums up its chain, in the words of the harness.
type Compaction struct {
	Trigger        string `json:"trigger,omitzero"`
	Reason         string `json:"reason,omitzero"`
	Implementation string `json:"implementation,omitzero"`
	Phase          string `json:"phase,omitzero"`
	Strategy       string `json:"strategy,omitzero"`
}

// KVHints says what may be done with the cached blocks of the chain.
type KVHints struct {
	EvictSession bool `json:"evict_session"`
}

// Request tells how a request was served. Times are in milliseconds of one clock,
// which starts when the request's handler does.
type Request struct {
	RequestID  string `json:"request_id"`
	XRequestID string `json:"x_request_id,omitzero"`
	Model      string `json:"model,omitzero"`

	InputTokens  *uint64 `json:"input_tokens,omitzero"`
	OutputTokens *uint64 `json:"output_tokens,omitzero"`
	// CachedTokens is what the engine has told, never what the router expected.
	CachedTokens *uint64 `json:"cached_tokens,omitzero"`

	Received        *uint64  `json:"request_received_ms,omitzero"` // unix
	PrefillWaitTime *float64 `json:"prefill_wait_time_ms,omitzero"`
	PrefillTime     *float64 `json:"prefill_time_ms,omitzero"`
	TTFT            *float64 `json:"ttft_ms,omitzero"`
	TotalTime       *float64 `json:"total_time_ms,omitzero"`
	AvgITL          *float64 `json:"avg_itl_ms,omitzero"`
	QueueTime       *float64 `json:"queue_time_ms,omitzero"`   // parked by the router
	RoutingTime     *float64 `json:"routing_time_ms,omitzero"` // choosing the worker

	// KVHitRate is the share of the prompt's blocks, 0 to 1, that the router expected
	// to be cached.
	KVHitRate       *float64 `json:"kv_hit_rate,omitzero"`
	TransferLatency *float64 `json:"kv_transfer_estimated_latency_ms,omitzero"`
	QueueDepth      *uint64  `json:"queue_depth,omitzero"` // requests parked when it was placed

	Worker *Worker `json:"worker,omitzero"`
	Replay *Replay `json:"replay,omitzero"`
	Finish *Finish `json:"finish_reason_metadata,omitzero"`
	// NVExt is what the client has asked of those hints that change where a request
	// runs, or what stays cached after it.
	NVExt jsontext.Value `json:"nvext,omitzero"`
	// Dynago is what the reference's schema has no place for.
	Dynago *Dynago `json:"dynago,omitzero"`
}

// Worker names who has served a request. One that did both parts stands in both.
type Worker struct {
	PrefillWorkerID *uint64 `json:"prefill_worker_id,omitzero"`
	PrefillRank     *uint32 `json:"prefill_dp_rank,omitzero"`
	DecodeWorkerID  *uint64 `json:"decode_worker_id,omitzero"`
	DecodeRank      *uint32 `json:"decode_dp_rank,omitzero"`
}

// Replay is a prompt without its content: equal hashes stand for equal beginnings.
type Replay struct {
	BlockSize   int      `json:"trace_block_size"` // tokens
	InputLength int      `json:"input_length"`     // tokens
	Hashes      []uint64 `json:"input_sequence_hashes"`
}

// Finish tells how a request ended, by choice and as the latest of them.
type Finish struct {
	Reason        string         `json:"finish_reason,omitzero"`
	BackendReason string         `json:"backend_finish_reason,omitzero"`
	StopReason    jsontext.Value `json:"stop_reason,omitzero"` // string, or token id
	ToolCalls     []ToolCall     `json:"tool_calls,omitempty"`
	Choices       []Choice       `json:"choices,omitempty"`
}

// ToolCall is a call that the answer asks for, without its arguments.
type ToolCall struct {
	Choice uint32 `json:"choice_index"`
	Index  uint32 `json:"tool_call_index"`
	ID     string `json:"id,omitzero"`
	Name   string `json:"name,omitzero"`
}

// Choice tells how one of several answers ended.
type Choice struct {
	Index         uint32         `json:"choice_index"`
	Reason        string         `json:"finish_reason,omitzero"`
	BackendReason string         `json:"backend_finish_reason,omitzero"`
	StopReason    jsontext.Value `json:"stop_reason,omitzero"`
}

// Dynago tells why a request ran where it did. Readers of the reference's schema pass
// it over.
type Dynago struct {
	Endpoint string `json:"endpoint,omitzero"`
	Stream   bool   `json:"stream,omitzero"`
	// Error is the kind of error that the client was told, as metrics name it.
	Error string `json:"error,omitzero"`
	// OverlapBlocks of InputBlocks were expected to be cached where the prompt is
	// computed.
	OverlapBlocks *uint64 `json:"overlap_blocks,omitzero"`
	InputBlocks   *uint64 `json:"input_blocks,omitzero"`
	Attempts      int     `json:"attempts,omitzero"`
	// Session says what a binding had to do with the choice of the worker, as the
	// journal of decisions names it.
	Session string `json:"session,omitzero"`
	// ReusedTokens of the chain's last prompt and answer, which were LastTokens, are
	// what this prompt begins with.
	ReusedTokens *uint64 `json:"reused_tokens,omitzero"`
	LastTokens   *uint64 `json:"last_tokens,omitzero"`
	// ToolResults are the ids of the calls whose results are new in this prompt: those
	// behind the last turn of the assistant.
	ToolResults []string `json:"tool_results,omitempty"`
	// Decision is the entry of the journal of routing decisions, where one is kept.
	Decision jsontext.Value `json:"decision,omitzero"`
}

// Tool tells of one use of a tool, by the harness that has run it.
type Tool struct {
	ID           string         `json:"tool_call_id"`
	Class        string         `json:"tool_class"`
	Started      *uint64        `json:"started_at_unix_ms,omitzero"`
	Ended        *uint64        `json:"ended_at_unix_ms,omitzero"`
	Status       string         `json:"status,omitzero"`
	Duration     *float64       `json:"duration_ms,omitzero"`
	OutputTokens *uint64        `json:"output_tokens,omitzero"`
	OutputBytes  *uint64        `json:"output_bytes,omitzero"`
	NameHash     string         `json:"tool_name_hash,omitzero"`
	ErrorType    string         `json:"error_type,omitzero"`
	Claude       jsontext.Value `json:"claude,omitzero"` // of exporters of transcripts
}

// Payload is what a client has sent and was answered.
type Payload struct {
	RequestID string            `json:"request_id"`
	Endpoint  string            `json:"endpoint"`
	Model     string            `json:"model"`
	Request   jsontext.Value    `json:"request,omitzero"`
	Response  jsontext.Value    `json:"response,omitzero"`
	Headers   map[string]string `json:"http_request_headers,omitzero"`
	// Complete is false where a sink had to leave something out; DropReason says why.
	Complete   bool   `json:"payload_complete"`
	DropReason string `json:"payload_drop_reason,omitzero"`
}

// RequestID returns the id of the request that the record is of, or "".
func (r *Record) RequestID() string {
	switch {
	case r.Request != nil:
		return r.Request.RequestID
	case r.Payload != nil:
		return r.Payload.RequestID
	}
	return ""
}

// Model returns the model of the request that the record is of, or "".
func (r *Record) Model() string {
	switch {
	case r.Request != nil:
		return r.Request.Model
	case r.Payload != nil:
		return r.Payload.Model
	}
	return ""
}

// IsTool reports whether the record tells of the use of a tool.
func (r *Record) IsTool() bool {
	return r.EventType == ToolStart || r.EventType == ToolEnd || r.EventType == ToolError
}

// wrapped is a record as files have it.
type wrapped struct {
	Event jsontext.Value `json:"event"`
}

// Decode reads one line of a trace, which is a record or an object that has one as
// its member event. ok is false for a line that is no record: blank, no object, or of
// another schema. Members that are not known are passed over.
func Decode(line []byte) (r *Record, ok bool, err error) {
	value := jsontext.Value(line)
	if value.Kind() != '{' {
		return nil, false, nil
	}
	var w wrapped
	if err := json.Unmarshal(value, &w, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, false, fmt.Errorf("read trace record: %w", err)
	}
	if w.Event.Kind() == '{' {
		value = w.Event
	}
	r = new(Record)
	if err := json.Unmarshal(value, r, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, false, fmt.Errorf("read trace record: %w", err)
	}
	switch r.Schema {
	case LegacySchema:
		r.Schema = Schema
	case Schema:
	default:
		return nil, false, nil
	}
	return r, true, nil
}

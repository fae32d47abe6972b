package nvext

import (
	"slices"
	"strings"
)

// Members of the extension object of an answer. Clients ask for most of them by
// these names in extra_fields; token_ids comes with a query, and cache_control with
// a pin.
const (
	MemberWorkerID           = "worker_id"
	MemberTiming             = "timing"
	MemberRoutedExperts      = "routed_experts"
	MemberEngineData         = "engine_data"
	MemberStopReason         = "stop_reason"
	MemberStopReasons        = "stop_reasons" // of several choices, in place of the one above
	MemberCompletionTokenIDs = "completion_token_ids"
	MemberPromptLogprobs     = "prompt_logprobs"
	MemberTokenIDs           = "token_ids"
	MemberCacheControl       = "cache_control"
)

// Fields is a set of what an answer is to carry.
type Fields uint16

// What clients ask for, and what comes with a query.
const (
	WantWorkerID Fields = 1 << iota
	WantTiming
	WantRoutedExperts
	WantEngineData
	WantStopReason
	WantCompletionTokenIDs
	WantPromptLogprobs
)

var fieldsByName = map[string]Fields{
	MemberWorkerID: WantWorkerID, MemberTiming: WantTiming, MemberRoutedExperts: WantRoutedExperts,
	MemberEngineData: WantEngineData, MemberStopReason: WantStopReason,
	MemberCompletionTokenIDs: WantCompletionTokenIDs, MemberPromptLogprobs: WantPromptLogprobs,
}

// Fields returns what the answer is to carry. Names that mean nothing count for
// nothing. e may be nil.
func (e *Ext) Fields() (all Fields) {
	if e == nil {
		return 0
	}
	for _, name := range e.ExtraFields {
		all |= fieldsByName[name]
	}
	return all
}

// Has says whether any of these is wanted.
func (f Fields) Has(any Fields) bool { return f&any != 0 }

// Annotations that streams of chat completions and completions begin with.
const (
	AnnotateRequestID = "request_id"
	AnnotatePrompt    = "formatted_prompt"
	AnnotateTokenIDs  = "token_ids"

	queryAnnotation = "query_instance_id:"
)

// Annotated says whether an annotation is asked for. e may be nil.
func (e *Ext) Annotated(name string) bool { return e != nil && slices.Contains(e.Annotations, name) }

// Queries says whether a request only asks where it would run. e may be nil.
func (e *Ext) Queries() bool {
	return e != nil && slices.ContainsFunc(e.Annotations, func(a string) bool { return strings.HasPrefix(a, queryAnnotation) })
}

// Placed tells where an answer comes from. What is nil is not known. Where one
// worker did it all, it stands in both places.
type Placed struct {
	PrefillWorkerID *uint64 `json:"prefill_worker_id,omitzero"`
	PrefillDPRank   *uint32 `json:"prefill_dp_rank,omitzero"`
	DecodeWorkerID  *uint64 `json:"decode_worker_id,omitzero"`
	DecodeDPRank    *uint32 `json:"decode_dp_rank,omitzero"`
}

// Timing tells how long the parts of an answer took, in milliseconds. What is nil
// lacks one of its ends. The clock starts when the request arrives.
type Timing struct {
	RequestReceived *int64   `json:"request_received_ms,omitzero"` // Unix time
	PrefillWait     *float64 `json:"prefill_wait_time_ms,omitzero"`
	Prefill         *float64 `json:"prefill_time_ms,omitzero"`
	TTFT            *float64 `json:"ttft_ms,omitzero"`
	// ITL is the mean gap between tokens, under both of its names.
	ITL        *float64 `json:"itl_ms,omitzero"`
	AverageITL *float64 `json:"avg_itl_ms,omitzero"`
	Total      *float64 `json:"total_time_ms,omitzero"`
	Queue      *float64 `json:"queue_time_ms,omitzero"`   // parked by the router
	Routing    *float64 `json:"routing_time_ms,omitzero"` // choosing the worker
	KVHitRate  *float64 `json:"kv_hit_rate,omitzero"`     // predicted, 0 to 1
	// QueueDepth is how many were parked when this request was placed, under both of
	// its names.
	RouterQueueDepth *int     `json:"router_queue_depth,omitzero"`
	QueueDepth       *int     `json:"queue_depth,omitzero"`
	KVTransfer       *float64 `json:"kv_transfer_estimated_latency_ms,omitzero"` // two legs only, an upper bound
}

// Granted tells what became of a pin that was asked for.
type Granted struct {
	TTL    int64  `json:"granted_ttl_s"`
	Blocks uint64 `json:"pinned_blocks"`
}

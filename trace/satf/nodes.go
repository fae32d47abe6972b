package satf

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// The parts of a document. Times are in microseconds.
type (
	producer struct {
		Name    string `json:"name"`
		Version string `json:"version,omitzero"`
	}
	session struct {
		ID         string      `json:"session_id"`
		Nodes      []node      `json:"nodes"`
		Edges      []edge      `json:"edges"`
		Extensions *extensions `json:"extensions,omitzero"`
	}
	node struct {
		Kind       string      `json:"kind"`
		ID         string      `json:"id"`
		Duration   *int64      `json:"duration_us,omitzero"`
		MinStart   *int64      `json:"min_start_delay_us,omitzero"`
		Metrics    *metrics    `json:"performance_metrics,omitzero"`
		Payload    any         `json:"payload"`
		Extensions *extensions `json:"extensions,omitzero"`
	}
	edge struct {
		From  string `json:"from"`
		To    string `json:"to"`
		Delay int64  `json:"delay_after_predecessor_us,omitzero"`
	}
	metrics struct {
		Source          string   `json:"source"`
		TTFT            *float64 `json:"time_to_first_token_us,omitzero"`
		ITL             *float64 `json:"inter_token_latency_us,omitzero"`
		Queue           *float64 `json:"queue_delay_us,omitzero"`
		HitRate         *float64 `json:"kv_cache_hit_rate,omitzero"`
		TransferLatency *float64 `json:"kv_transfer_latency_us,omitzero"`
	}
	inference struct {
		Input      int         `json:"input_tokens_total"`
		Output     uint64      `json:"output_tokens"`
		Blocks     []uint64    `json:"kv_block_ids"`
		Parameters *parameters `json:"request_parameters,omitzero"`
	}
	parameters struct {
		Model string `json:"model"`
	}
	toolCall struct {
		Name string `json:"tool_name"`
		ID   string `json:"tool_call_id"`
	}
	toolResult struct {
		ID     string `json:"tool_call_id"`
		Failed bool   `json:"is_error"`
	}
	extensions struct {
		Dynamo any  `json:"nvidia.dynamo"`
		Dynago *kin `json:"dynago,omitzero"`
	}
	// kin names nodes of the session's parent.
	kin struct {
		Spawned string `json:"spawned_by,omitzero"`
		Joined  string `json:"joined_by,omitzero"`
	}
	moreOfRequest struct {
		ID           string        `json:"request_id"`
		XRequestID   string        `json:"x_request_id,omitzero"`
		InputTokens  *uint64       `json:"input_tokens,omitzero"`
		CachedTokens *uint64       `json:"cached_tokens,omitzero"`
		PrefillTime  *float64      `json:"prefill_time_ms,omitzero"`
		QueueDepth   *uint64       `json:"queue_depth,omitzero"`
		Worker       *trace.Worker `json:"worker,omitzero"`
		Finish       *trace.Finish `json:"finish_reason_metadata,omitzero"`
	}
	moreOfTool struct {
		Status       string  `json:"status"`
		Class        string  `json:"tool_class"`
		OutputBytes  *uint64 `json:"output_bytes,omitzero"`
		OutputTokens *uint64 `json:"output_tokens,omitzero"`
		Error        string  `json:"error_type,omitzero"`
	}
)

func nodeID(t *tree.Turn) string { return "llm:" + t.Request.RequestID }

// request returns the node of a request.
func (d *document) request(t *tree.Turn) node {
	r := t.Request
	p := inference{Input: r.Replay.InputLength, Output: *r.OutputTokens, Blocks: make([]uint64, len(r.Replay.Hashes))}
	for i, hash := range r.Replay.Hashes {
		p.Blocks[i] = d.blocks[hash]
	}
	if r.Model != "" {
		p.Parameters = &parameters{r.Model}
	}
	m := &metrics{
		Source: trace.SourceDynamo,
		TTFT:   times(r.TTFT, 1000), ITL: times(r.AvgITL, 1000), Queue: times(r.PrefillWaitTime, 1000),
		HitRate: times(r.KVHitRate, 1), TransferLatency: times(r.TransferLatency, 1000),
	}
	if *m == (metrics{Source: m.Source}) {
		m = nil
	}
	return node{
		Kind: "llm_infer", ID: nodeID(t), Duration: new(micros(t.Start, t.End)), Metrics: m, Payload: &p,
		Extensions: &extensions{Dynamo: &moreOfRequest{
			r.RequestID, r.XRequestID, r.InputTokens, r.CachedTokens, times(r.PrefillTime, 1), r.QueueDepth, r.Worker, r.Finish,
		}},
	}
}

// times returns a number that is one, and not negative, so many times.
func times(x *float64, n float64) *float64 {
	if x == nil || !(*x >= 0) || math.IsInf(*x*n, 1) {
		return nil
	}
	return new(*x * n)
}

// nodes returns those of the i-th tool of a session.
func (u *use) nodes(i int) (call, result node) {
	r := u.Record.Tool
	name := u.Class
	if u.Call != nil {
		name = cmp.Or(u.Call.Name, name)
	}
	status := r.Status
	if status == "" {
		status = "succeeded"
		if u.Failed() {
			status = "error"
		}
	}
	failed := u.Failed() || r.ErrorType != "" || status == "cancelled"
	call = node{Kind: "tool_call", ID: fmt.Sprint("tool_call:", i), Payload: &toolCall{name, u.ID}}
	result = node{
		Kind: "tool_result", ID: fmt.Sprint("tool_result:", i), Duration: new(u.Duration.Microseconds()), Payload: &toolResult{u.ID, failed},
		Extensions: &extensions{Dynamo: &moreOfTool{status, u.Class, r.OutputBytes, r.OutputTokens, r.ErrorType}},
	}
	return call, result
}

// edge lets one node wait for another that had ended when it began.
func (s *session) edge(from, to string, ended, began time.Time) {
	s.Edges = append(s.Edges, edge{from, to, micros(ended, began)})
}

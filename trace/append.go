package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Rows are written by hand: they are the larger part of what a trace costs, and a
// quarter as dear this way as by reflection over the tags of the same structs. A test
// holds the two against each other.

// Append appends the JSON form of the record, on one line and without a line break.
// Numbers for which JSON has no form are left out, and bytes that are no UTF-8 are
// replaced: ids come from clients. An error says which member holds JSON of others
// that is none.
func (r *Record) Append(to []byte) ([]byte, error) {
	o := object{b: to}
	o.open()
	o.text(`,"schema":`, r.Schema)
	o.text(`,"event_type":`, r.EventType)
	o.uint(`,"event_time_unix_ms":`, r.EventTime)
	o.word(`,"event_source":`, r.Source)
	if r.Agent != nil {
		o.name(`,"agent_context":`)
		r.Agent.append(&o)
	}
	if r.Request != nil {
		o.name(`,"request":`)
		r.Request.append(&o)
	}
	if r.Tool != nil {
		o.name(`,"tool":`)
		r.Tool.append(&o)
	}
	if r.Payload != nil {
		o.name(`,"payload":`)
		r.Payload.append(&o)
	}
	o.close()
	if o.err != nil {
		return to, fmt.Errorf("write trace record %s: %w", r.EventType, o.err)
	}
	return o.b, nil
}

func (a *AgentContext) append(o *object) {
	o.open()
	o.word(`,"session_type_id":`, a.SessionTypeID)
	o.text(`,"session_id":`, a.SessionID)
	o.word(`,"parent_session_id":`, a.ParentSessionID)
	o.truth(`,"session_final":`, a.SessionFinal)
	o.word(`,"trajectory_id":`, a.TrajectoryID)
	o.word(`,"parent_trajectory_id":`, a.ParentTrajectoryID)
	o.truth(`,"trajectory_final":`, a.TrajectoryFinal)
	if c := a.Compaction; c != nil {
		o.name(`,"compaction":`)
		o.open()
		o.word(`,"trigger":`, c.Trigger)
		o.word(`,"reason":`, c.Reason)
		o.word(`,"implementation":`, c.Implementation)
		o.word(`,"phase":`, c.Phase)
		o.word(`,"strategy":`, c.Strategy)
		o.close()
	}
	if h := a.KVHints; h != nil {
		o.name(`,"kv_hints":`)
		o.open()
		o.truth(`,"evict_session":`, &h.EvictSession)
		o.close()
	}
	o.word(`,"input_trigger":`, a.InputTrigger)
	o.close()
}

func (r *Request) append(o *object) {
	o.open()
	o.text(`,"request_id":`, r.RequestID)
	o.word(`,"x_request_id":`, r.XRequestID)
	o.word(`,"model":`, r.Model)
	o.count(`,"input_tokens":`, r.InputTokens)
	o.count(`,"output_tokens":`, r.OutputTokens)
	o.count(`,"cached_tokens":`, r.CachedTokens)
	o.count(`,"request_received_ms":`, r.Received)
	o.number(`,"prefill_wait_time_ms":`, r.PrefillWaitTime)
	o.number(`,"prefill_time_ms":`, r.PrefillTime)
	o.number(`,"ttft_ms":`, r.TTFT)
	o.number(`,"total_time_ms":`, r.TotalTime)
	o.number(`,"avg_itl_ms":`, r.AvgITL)
	o.number(`,"queue_time_ms":`, r.QueueTime)
	o.number(`,"routing_time_ms":`, r.RoutingTime)
	o.number(`,"kv_hit_rate":`, r.KVHitRate)
	o.number(`,"kv_transfer_estimated_latency_ms":`, r.TransferLatency)
	o.count(`,"queue_depth":`, r.QueueDepth)
	if w := r.Worker; w != nil {
		o.name(`,"worker":`)
		o.open()
		o.count(`,"prefill_worker_id":`, w.PrefillWorkerID)
		o.rank(`,"prefill_dp_rank":`, w.PrefillRank)
		o.count(`,"decode_worker_id":`, w.DecodeWorkerID)
		o.rank(`,"decode_dp_rank":`, w.DecodeRank)
		o.close()
	}
	if p := r.Replay; p != nil {
		o.name(`,"replay":`)
		p.append(o)
	}
	if f := r.Finish; f != nil {
		o.name(`,"finish_reason_metadata":`)
		f.append(o)
	}
	o.raw(`,"nvext":`, r.NVExt)
	if d := r.Dynago; d != nil {
		o.name(`,"dynago":`)
		d.append(o)
	}
	o.close()
}

func (p *Replay) append(o *object) {
	o.open()
	o.int(`,"trace_block_size":`, p.BlockSize)
	o.int(`,"input_length":`, p.InputLength)
	o.name(`,"input_sequence_hashes":`)
	b := append(o.b, '[')
	for i, h := range p.Hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(b, h)
	}
	o.b = append(b, ']')
	o.close()
}

func (f *Finish) append(o *object) {
	o.open()
	o.word(`,"finish_reason":`, f.Reason)
	o.word(`,"backend_finish_reason":`, f.BackendReason)
	o.raw(`,"stop_reason":`, f.StopReason)
	list(o, `,"tool_calls":`, f.ToolCalls, func(c *ToolCall) {
		o.uint(`,"choice_index":`, uint64(c.Choice))
		o.uint(`,"tool_call_index":`, uint64(c.Index))
		o.word(`,"id":`, c.ID)
		o.word(`,"name":`, c.Name)
	})
	list(o, `,"choices":`, f.Choices, func(c *Choice) {
		o.uint(`,"choice_index":`, uint64(c.Index))
		o.word(`,"finish_reason":`, c.Reason)
		o.word(`,"backend_finish_reason":`, c.BackendReason)
		o.raw(`,"stop_reason":`, c.StopReason)
	})
	o.close()
}

func (d *Dynago) append(o *object) {
	o.open()
	o.word(`,"endpoint":`, d.Endpoint)
	if d.Stream {
		o.truth(`,"stream":`, &d.Stream)
	}
	o.word(`,"error":`, d.Error)
	o.count(`,"overlap_blocks":`, d.OverlapBlocks)
	o.count(`,"input_blocks":`, d.InputBlocks)
	if d.Attempts != 0 {
		o.int(`,"attempts":`, d.Attempts)
	}
	o.word(`,"session":`, d.Session)
	o.count(`,"reused_tokens":`, d.ReusedTokens)
	o.count(`,"last_tokens":`, d.LastTokens)
	o.words(`,"tool_results":`, d.ToolResults)
	o.raw(`,"decision":`, d.Decision)
	o.close()
}

func (t *Tool) append(o *object) {
	o.open()
	o.text(`,"tool_call_id":`, t.ID)
	o.text(`,"tool_class":`, t.Class)
	o.count(`,"started_at_unix_ms":`, t.Started)
	o.count(`,"ended_at_unix_ms":`, t.Ended)
	o.word(`,"status":`, t.Status)
	o.number(`,"duration_ms":`, t.Duration)
	o.count(`,"output_tokens":`, t.OutputTokens)
	o.count(`,"output_bytes":`, t.OutputBytes)
	o.word(`,"tool_name_hash":`, t.NameHash)
	o.word(`,"error_type":`, t.ErrorType)
	o.raw(`,"claude":`, t.Claude)
	o.close()
}

func (p *Payload) append(o *object) {
	o.open()
	o.text(`,"request_id":`, p.RequestID)
	o.text(`,"endpoint":`, p.Endpoint)
	o.text(`,"model":`, p.Model)
	o.raw(`,"request":`, p.Request)
	o.raw(`,"response":`, p.Response)
	if p.Headers != nil {
		names := make([]string, 0, len(p.Headers))
		for name := range p.Headers {
			names = append(names, name)
		}
		slices.Sort(names)
		o.name(`,"http_request_headers":`)
		o.open()
		for i, name := range names {
			if i > 0 {
				o.b = append(o.b, ',')
			}
			o.b = append(quote(o.b, name), ':')
			o.b = quote(o.b, p.Headers[name])
		}
		o.close()
	}
	o.truth(`,"payload_complete":`, &p.Complete)
	o.word(`,"payload_drop_reason":`, p.DropReason)
	o.close()
}

// list appends a member whose value is a list of objects, unless it is empty.
func list[T any](o *object, name string, items []T, members func(*T)) {
	if len(items) == 0 {
		return
	}
	o.name(name)
	o.b = append(o.b, '[')
	for i := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.open()
		members(&items[i])
		o.close()
	}
	o.b = append(o.b, ']')
}

// object is JSON while it is written.
type object struct {
	b   []byte
	err error // the first
}

func (o *object) open()  { o.b = append(o.b, '{') }
func (o *object) close() { o.b = append(o.b, '}') }

// name begins a member. All names come with the comma that ends the member before, their
// quotes and colon.
func (o *object) name(name string) {
	if o.b[len(o.b)-1] == '{' {
		name = name[1:]
	}
	o.b = append(o.b, name...)
}

func (o *object) text(name, value string) {
	o.name(name)
	o.b = quote(o.b, value)
}

// word is text for a value that may be left out.
func (o *object) word(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// words is a list of texts; an empty one is left out.
func (o *object) words(name string, values []string) {
	if len(values) == 0 {
		return
	}
	o.name(name)
	o.b = append(o.b, '[')
	for i, value := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = quote(o.b, value)
	}
	o.b = append(o.b, ']')
}

func (o *object) uint(name string, n uint64) {
	o.name(name)
	o.b = appendUint(o.b, n)
}

func (o *object) int(name string, n int) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, int64(n), 10)
}

func (o *object) count(name string, n *uint64) {
	if n != nil {
		o.uint(name, *n)
	}
}

func (o *object) rank(name string, n *uint32) {
	if n != nil {
		o.uint(name, uint64(*n))
	}
}

func (o *object) truth(name string, t *bool) {
	if t != nil {
		o.name(name)
		o.b = strconv.AppendBool(o.b, *t)
	}
}

func (o *object) number(name string, x *float64) {
	if x == nil || math.IsNaN(*x) || math.IsInf(*x, 0) {
		return
	}
	o.name(name)
	// Times are whole microseconds, which need no search for the shortest decimal.
	if µs := math.Round(*x * 1000); µs >= 0 && µs < 1e15 && µs/1000 == *x {
		o.b = appendThousandths(o.b, uint64(µs))
		return
	}
	form := byte('f')
	if abs := math.Abs(*x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		form = 'e'
	}
	o.b = strconv.AppendFloat(o.b, *x, form, -1, 64)
}

// appendThousandths appends n/1000.
func appendThousandths(b []byte, n uint64) []byte {
	b = strconv.AppendUint(b, n/1000, 10)
	rest := n % 1000
	if rest == 0 {
		return b
	}
	b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	return bytes.TrimRight(b, "0")
}

// raw appends a member whose value is JSON already. It goes on one line, whatever it
// was on.
func (o *object) raw(name string, value jsontext.Value) {
	if len(value) == 0 {
		return
	}
	if bytes.IndexByte(value, '\n') >= 0 {
		value = slices.Clone(value)
		if err := value.Compact(loose, jsontext.AllowDuplicateNames(true)); err != nil {
			o.err = cmp.Or(o.err, fmt.Errorf("member %s %w", name[1:], err))
			return
		}
	}
	o.name(name)
	o.b = append(o.b, value...)
}

// quote appends a JSON string.
func quote(to []byte, s string) []byte {
	if isPlain(s) {
		to = append(to, '"')
		to = append(to, s...)
		return append(to, '"')
	}
	to, _ = jsontext.AppendQuote(to, s) // complains of what it has replaced
	return to
}

// isPlain says whether all bytes of s are ASCII that stands for itself in JSON, eight of
// them at a time. It may say no where they are.
func isPlain(s string) bool {
	for ; len(s) >= 8; s = s[8:] {
		if marked(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56) {
			return false
		}
	}
	rest := uint64(each * ' ') // shifted out, or plain
	for i := range len(s) {
		rest = rest<<8 | uint64(s[i])
	}
	return !marked(rest)
}

// each has a one in each of eight bytes.
const each = 0x0101010101010101

// marked says whether one of eight bytes is a control character, a quote, a backslash,
// or no ASCII.
func marked(word uint64) bool {
	quotes, slashes := word^each*'"', word^each*'\\'
	return (word|(word-each*' ')|(quotes-each)|(slashes-each))&(each*0x80) != 0
}

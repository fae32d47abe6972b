package sim

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MarshalJSONTo writes the report as one flat object, with the names that tools
// for replays read, and objects for what is ours.
func (r *Report) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("num_requests", r.Requests)
	o.add("completed_requests", r.Completed)
	o.add("total_input_tokens", r.InputTokens)
	o.add("total_output_tokens", r.OutputTokens)
	o.add("duration_ms", milliseconds(r.Duration))
	o.add("wall_time_ms", milliseconds(r.WallTime))
	o.add("request_throughput_rps", r.perSecond(r.Completed))
	o.add("input_throughput_tok_s", r.perSecond(r.InputTokens))
	o.add("output_throughput_tok_s", r.perSecond(r.OutputTokens))
	o.add("total_throughput_tok_s", r.perSecond(r.InputTokens+r.OutputTokens))
	o.add("prefix_cache_reused_ratio", r.Reused)
	o.add("first_admission_prefix_cache_reused_ratio", r.FirstReused)
	for _, d := range []struct {
		name string
		d    *Distribution
	}{
		{"ttft_ms", &r.TTFT},
		{"ttst_ms", &r.TTST},
		{"tpot_ms", &r.TPOT},
		{"itl_ms", &r.ITL},
		{"e2e_latency_ms", &r.E2E},
		{"output_token_throughput_per_user", &r.PerUser},
	} {
		for _, stat := range d.d.stats() {
			o.add(stat.name+"_"+d.name, stat.value)
		}
	}
	if r.Goodput.any() {
		o.add("goodput_completed_requests", r.Good)
		o.add("goodput_output_throughput_tok_s", r.perSecond(r.GoodOutput))
	}
	o.add("prefill_worker_seconds", r.PrefillSeconds)
	o.add("decode_worker_seconds", r.DecodeSeconds)
	o.add("prefill_gpus_per_worker", r.PrefillGPUs)
	o.add("decode_gpus_per_worker", r.DecodeGPUs)
	o.add("gpu_hours", r.GPUHours())
	o.add("failed_requests", r.Failed)
	o.add("prediction", map[string]float64{
		"predicted_cached_tokens": float64(r.Predicted), "cached_tokens": float64(r.Cached), "error_ratio": r.PredictionError,
	})
	o.add("imbalance", r.Imbalance)
	if r.DecodeImbalance != (Imbalance{}) {
		o.add("decode_imbalance", r.DecodeImbalance)
	}
	o.add("targets", r.Targets)
	o.add("classes", r.Classes)
	o.add("caches", &r.Caches)
	o.add("router", map[string]float64{
		"decisions": float64(r.Router.Decisions), "refused": float64(r.Router.Refused),
		"non_max_overlap": float64(r.Router.NonMaxOverlap), "overlap_blocks_lost": r.Router.OverlapBlocksLost,
	})
	return o.end()
}

// MarshalJSONTo writes the target with its times in milliseconds.
func (t TargetReport) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("worker", t.Worker)
	o.add("dp_rank", t.Rank)
	o.add("role", cmp.Or(string(t.Role), "aggregated"))
	o.add("requests", t.Requests)
	o.add("uncached_tokens", t.Uncached)
	o.add("preemptions", t.Preemptions)
	o.add("busy_ms", milliseconds(t.Busy))
	return o.end()
}

// MarshalJSONTo writes the class with a member for each statistic.
func (c ClassReport) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("policy_class", c.Class)
	o.add("requests", c.Requests)
	o.add("parked_requests", c.Parked)
	for _, stat := range c.Wait.stats() {
		o.add(stat.name+"_queue_wait_ms", stat.value)
	}
	for _, stat := range c.TTFT.stats() {
		o.add(stat.name+"_ttft_ms", stat.value)
	}
	return o.end()
}

// stat is one figure of a distribution.
type stat struct {
	name  string
	value float64
}

func (d *Distribution) stats() []stat {
	return []stat{
		{"mean", d.Mean},
		{"min", d.Min},
		{"max", d.Max},
		{"median", d.Median},
		{"p75", d.P75},
		{"p90", d.P90},
		{"p95", d.P95},
		{"p99", d.P99},
		{"std", d.Std},
	}
}

// object writes the members of a JSON object in order, until the first error.
type object struct {
	to  *jsontext.Encoder
	err error
}

func (o *object) begin() { o.err = o.to.WriteToken(jsontext.BeginObject) }

func (o *object) add(name string, value any) {
	if o.err == nil {
		o.err = o.to.WriteToken(jsontext.String(name))
	}
	if o.err == nil {
		o.err = json.MarshalEncode(o.to, value, json.Deterministic(true))
	}
}

func (o *object) end() error {
	if o.err == nil {
		o.err = o.to.WriteToken(jsontext.EndObject)
	}
	return o.err
}

// JSON returns the report as text, indented.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.Marshal(r, jsontext.WithIndent("  "))
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(string(text), "\n") + "\n"), nil
}

package sim

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/kv"
)

// Record is what came of one request. Times count from the start of the
// simulation.
type Record struct {
	ID, Session   string
	Class         string // policy class: that the router put it into, or else that it asked for
	Input, Output int    // tokens; of the output those that came
	// Predicted tokens of the prompt were expected by the router to be cached,
	// Cached were when it was admitted first, and Reused at best.
	Predicted, Cached, Reused int
	// From says on which tiers Cached lay.
	From [tiers]int
	// Pinned tokens of the prompt were when it was answered, from the first one on.
	Pinned int

	Arrived  time.Duration
	Parked   time.Duration // by the router; 0: it was placed at once
	Placed   time.Duration // on a worker
	Admitted time.Duration // to a batch there
	First    time.Duration // token; 0: none came
	Second   time.Duration
	Last     time.Duration
	Ended    time.Duration

	Worker     string // that admitted it first; "": none did
	Rank       uint32
	Decoder    string // worker of the decode leg; "": there was none
	Migrations int
	Err        error
}

func recordOf(j *job) *Record {
	r := &Record{
		ID: j.ID, Session: j.Session, Class: cmp.Or(j.class, j.Class),
		Input: j.Prompt.Len(), Output: j.given,
		Predicted: j.predicted, Cached: j.cached, Reused: j.reused, From: j.from, Pinned: j.pinned,
		Arrived: j.arrived, Parked: j.parked, Placed: j.placed, Admitted: j.admitted,
		First: j.first, Second: j.second, Last: j.last, Ended: j.ended,
		Migrations: len(j.lost), Err: j.err,
	}
	if j.where != nil {
		r.Worker, r.Rank = j.where.worker.name, j.where.number
	}
	if j.decoder != nil {
		r.Decoder = j.decoder.worker.name
	}
	return r
}

// MarshalJSONTo writes the record with times in milliseconds. What never
// happened is left out.
func (r *Record) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("request_id", r.ID)
	if r.Session != "" {
		o.add("session_id", r.Session)
	}
	if r.Class != "" {
		o.add("policy_class", r.Class)
	}
	o.add("arrival_time_ms", milliseconds(r.Arrived))
	o.add("input_length", r.Input)
	o.add("output_length", r.Output)
	if r.Worker != "" {
		o.add("logical_worker_id", r.Worker)
		o.add("dp_rank", r.Rank)
		o.add("first_admit_ms", milliseconds(r.Admitted))
		o.add("predicted_cached_tokens", r.Predicted)
		o.add("cached_tokens", r.Cached)
		if from := below(r.From); len(from) > 0 {
			o.add("loaded_tokens", from)
		}
		o.add("reused_input_tokens", r.Reused)
	}
	if r.Pinned > 0 {
		o.add("pinned_tokens", r.Pinned)
	}
	if r.Decoder != "" {
		o.add("decode_worker_id", r.Decoder)
	}
	if r.Output > 0 {
		o.add("first_token_ms", milliseconds(r.First))
		o.add("last_token_ms", milliseconds(r.Last))
		o.add("ttft_ms", milliseconds(r.First-r.Arrived))
		o.add("e2e_latency_ms", milliseconds(r.Last-r.Arrived))
	}
	if r.Output > 1 {
		o.add("ttst_ms", milliseconds(r.Second-r.First))
		o.add("tpot_ms", milliseconds((r.Last-r.First)/time.Duration(r.Output-1)))
	}
	switch {
	case r.Parked > 0:
		o.add("outcome", "queued")
		o.add("queue_entered_at_ms", milliseconds(r.Arrived))
		o.add("released_at_ms", milliseconds(r.Arrived+r.Parked))
		o.add("queue_wait_ms", milliseconds(r.Parked))
	case r.Worker != "":
		o.add("outcome", "immediate")
	}
	if r.Migrations > 0 {
		o.add("migrations", r.Migrations)
	}
	if r.Err != nil {
		o.add("error", r.Err.Error())
	}
	return o.end()
}

// below returns what of the cached tokens lay below the device, by the names of the
// tiers.
func below(from [tiers]int) map[string]int {
	byTier := map[string]int{}
	for i, n := range from {
		if kv.Tier(i) > kv.TierDevice && n > 0 {
			byTier[kv.Tier(i).String()] = n
		}
	}
	return byTier
}

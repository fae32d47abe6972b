package router

import (
	"strconv"
	"time"

	"github.com/dynago/dynago/span"
)

// DecisionSpans is a decision that is told of as spans.
type DecisionSpans struct {
	Request  string // id
	Decision Decision
	End      time.Time
	// Advice says that nothing was booked, and so nobody had to be let in.
	Advice bool
}

// Tell tells of a selection by kv_router.select_worker, and of what it consisted of by
// spans in it. They are those of a router that looks at caches.
func (s *DecisionSpans) Tell(t *span.Tracer, within span.Context) {
	d := &s.Decision
	start := s.End.Add(-d.Routing - d.Queue)
	all := &span.Span{Name: "kv_router.select_worker", Target: "router", Context: t.Begin(within), Parent: within, Start: start, End: s.End}
	all.Add("request_id", s.Request)
	all.Add("worker_id", strconv.FormatUint(d.Target.Worker, 10))
	all.Add("dp_rank", int64(d.Target.Rank))
	all.Add("overlap_blocks", d.Overlap)
	all.Add("blocks", d.Blocks)
	// What came before the request was parked is told as if it had come just before it
	// was sent on: the parts are those of the decision that holds.
	at := start
	part := func(name string, took time.Duration) {
		t.End(&span.Span{Name: name, Target: "router", Context: t.Begin(all.Context), Parent: all.Context, Start: at, End: at.Add(took)})
	}
	// Both kinds of hashes are made in one go.
	part("kv_router.compute_block_hashes", d.Took.Hashing)
	part("kv_router.compute_seq_hashes", d.Took.Hashing)
	at = at.Add(d.Took.Hashing)
	part("kv_router.find_matches", d.Took.Matching)
	at = at.Add(d.Took.Matching)
	if d.Took.SharedAsked {
		part("kv_router.shared_cache_check", d.Took.Shared)
	}
	at = at.Add(d.Took.Shared)
	rest := "kv_router.schedule"
	if s.Advice {
		rest = "kv_router.select_without_admission"
	}
	part(rest, s.End.Sub(at))
	t.End(all)
}

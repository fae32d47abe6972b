package selection

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kvevent"
)

// lifecycle says what becomes of requests for a worker.
type lifecycle string

const (
	incomplete    lifecycle = "incomplete"    // something is not known that routing needs
	schedulable   lifecycle = "schedulable"   // it is given requests
	draining      lifecycle = "draining"      // it is given no new ones
	unschedulable lifecycle = "unschedulable" // it is gone, or has failed
)

// worker is a worker as it is registered. What is nil was not told.
type worker struct {
	ID    workerID `json:"worker_id"`
	Model string   `json:"model_name"`
	Group string   `json:"routing_group"`
	details
}

// details are what a later request may change.
type details struct {
	// Endpoint is where the dispatcher sends requests. It is told back, and never
	// connected to.
	Endpoint *string `json:"endpoint"`
	// EventsEndpoint is where a worker of one rank publishes its KV events, and
	// EventsEndpoints where each rank does. Where several replay them, the port
	// of ReplayEndpoint is that of the first, and each rank has the next.
	EventsEndpoint  *string           `json:"kv_events_endpoint"`
	EventsEndpoints map[uint32]string `json:"kv_events_endpoints,omitempty"`
	ReplayEndpoint  *string           `json:"replay_endpoint"`

	BlockSize        *uint32 `json:"block_size"`
	DPStart          *uint32 `json:"data_parallel_start_rank"`
	DPSize           *uint32 `json:"data_parallel_size"`
	MaxBatchedTokens *uint64 `json:"max_num_batched_tokens"`
	TotalBlocks      *uint64 `json:"total_kv_blocks"`
	// ContextLength bounds the prompts that may go here; none is known otherwise.
	ContextLength *uint32 `json:"context_length,omitzero"`

	StableID *string           `json:"stable_routing_id"`
	Eagle    *bool             `json:"is_eagle"`
	Taints   []string          `json:"taints"`
	Topology map[string]string `json:"topology_domains"`

	TransferDomain      *string  `json:"kv_transfer_domain"`
	TransferEnforcement *string  `json:"kv_transfer_enforcement"`
	TransferWeight      *float64 `json:"kv_transfer_preferred_weight"`
}

// record is what is told of a worker.
type record struct {
	worker
	Lifecycle lifecycle `json:"lifecycle"`
	Reasons   []string  `json:"not_schedulable_reasons,omitempty"`
	Streams   []stream  `json:"kv_event_streams,omitempty"`
}

// stream is how the events of one rank are heard.
type stream struct {
	Rank      uint32 `json:"dp_rank"`
	Connected bool   `json:"connected"`
	Messages  uint64 `json:"messages"`
	Gaps      uint64 `json:"gaps"`     // messages before which others were missing
	Restarts  uint64 `json:"restarts"` // of the engine, as far as its messages show
	// Partial says that the worker may have cached more than it has told.
	Partial bool `json:"partial"`
}

func (w *worker) partition() partition { return partition{w.Model, w.Group} }

// patch sets what p tells.
func (d *details) patch(p *details) {
	set(&d.Endpoint, p.Endpoint)
	set(&d.EventsEndpoint, p.EventsEndpoint)
	if p.EventsEndpoints != nil {
		d.EventsEndpoints = p.EventsEndpoints
	}
	set(&d.ReplayEndpoint, p.ReplayEndpoint)
	set(&d.BlockSize, p.BlockSize)
	set(&d.DPStart, p.DPStart)
	set(&d.DPSize, p.DPSize)
	set(&d.MaxBatchedTokens, p.MaxBatchedTokens)
	set(&d.TotalBlocks, p.TotalBlocks)
	set(&d.ContextLength, p.ContextLength)
	set(&d.StableID, p.StableID)
	set(&d.Eagle, p.Eagle)
	if p.Taints != nil {
		d.Taints = p.Taints
	}
	if p.Topology != nil {
		d.Topology = p.Topology
	}
	set(&d.TransferDomain, p.TransferDomain)
	set(&d.TransferEnforcement, p.TransferEnforcement)
	set(&d.TransferWeight, p.TransferWeight)
}

func set[T any](field **T, with *T) {
	if with != nil {
		*field = with
	}
}

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Bounds of a registration, besides that of its body. Each rank has a connection
// of its own and is a row of every decision.
const (
	mostRanks     = 1024
	mostBlockSize = 1 << 16
	mostTaints    = 256
	mostDomains   = 64
)

// check says what cannot be right, as opposed to what is not known yet.
func (w *worker) check() error {
	switch {
	case w.Model == "":
		return bad("model_name: want the name of a model; without the member it is %q", defaultModel)
	case w.Group == "":
		return bad("routing_group: want a name; without the member it is %q", defaultGroup)
	case value(w.BlockSize, 0) > mostBlockSize:
		return bad("block_size: got %d tokens, want at most %d", *w.BlockSize, mostBlockSize)
	case value(w.DPSize, 1) > mostRanks:
		return bad("data_parallel_size: got %d, want at most %d", *w.DPSize, mostRanks)
	case value(w.DPStart, 0) > math.MaxUint32-mostRanks:
		return bad("data_parallel_start_rank: got %d, want at most %d", *w.DPStart, uint32(math.MaxUint32-mostRanks))
	case len(w.Taints) > mostTaints:
		return bad("taints: got %d, want at most %d", len(w.Taints), mostTaints)
	case len(w.Topology) > mostDomains:
		return bad("topology_domains: got %d, want at most %d", len(w.Topology), mostDomains)
	case value(w.TransferEnforcement, "required") != "required" && *w.TransferEnforcement != "preferred":
		return bad("kv_transfer_enforcement: got %s, want required or preferred", clip(*w.TransferEnforcement))
	case value(w.TransferWeight, 0) < 0:
		return bad("kv_transfer_preferred_weight: got %v, want 0 or more", *w.TransferWeight)
	}
	for rank, at := range w.EventsEndpoints {
		if rank-value(w.DPStart, 0) >= value(w.DPSize, 1) {
			return bad("kv_events_endpoints: the worker has no rank %d", rank)
		}
		if _, err := dialled(at, 0); at != "" && err != nil {
			return bad("kv_events_endpoints: rank %d: %v", rank, err)
		}
	}
	if at := value(w.EventsEndpoint, ""); at != "" {
		if _, err := dialled(at, 0); err != nil {
			return bad("kv_events_endpoint: %v", err)
		}
	}
	if at := value(w.ReplayEndpoint, ""); at != "" {
		if _, err := dialled(at, max(1, value(w.DPSize, 1))-1); err != nil {
			return bad("replay_endpoint: %v", err)
		}
	}
	return nil
}

// missing tells what must be known before requests may go to the worker.
func (w *worker) missing(events, queueing bool) []string {
	var reasons []string
	need := func(ok bool, reason string) {
		if !ok {
			reasons = append(reasons, reason)
		}
	}
	need(value(w.Endpoint, "") != "", "endpoint is required")
	need(value(w.BlockSize, 0) > 0, "block_size must be greater than 0")
	need(value(w.DPSize, 1) > 0, "data_parallel_size must be greater than 0")
	need(!queueing || w.MaxBatchedTokens != nil, "max_num_batched_tokens is required while queueing is enabled")
	if !events {
		return reasons
	}
	const named = 4 // of a thousand ranks
	silent := 0
	for rank := range w.ranks() {
		if w.publishes(rank) != "" {
			continue
		}
		if silent++; silent <= named {
			reasons = append(reasons, fmt.Sprintf("kv_events endpoint is required for dp_rank %d", rank))
		}
	}
	if silent > named {
		reasons = append(reasons, fmt.Sprintf("and for %d ranks more", silent-named))
	}
	return reasons
}

// ranks yields the worker's ranks.
func (w *worker) ranks() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		first := value(w.DPStart, 0)
		for i := range value(w.DPSize, 1) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// publishes returns where a rank publishes its events, or "".
func (w *worker) publishes(rank uint32) string {
	if len(w.EventsEndpoints) > 0 {
		return w.EventsEndpoints[rank]
	}
	if value(w.DPSize, 1) == 1 {
		return value(w.EventsEndpoint, "")
	}
	return ""
}

// listening says how to hear the worker's events, or returns false if it
// publishes none. The worker must be complete and checked.
func (w *worker) listening() (kvevent.SourceConfig, bool) {
	c := kvevent.SourceConfig{Decoder: kvevent.Config{BlockSize: int(*w.BlockSize), Eagle: value(w.Eagle, false)}}
	for rank := range w.ranks() {
		at := w.publishes(rank)
		if at == "" {
			return c, false
		}
		e := kvevent.Endpoint{Rank: rank, Events: at}
		if replay := value(w.ReplayEndpoint, ""); replay != "" {
			e.Replay, _ = dialled(replay, rank-value(w.DPStart, 0)) // checked
		}
		c.Endpoints = append(c.Endpoints, e)
	}
	return c, true
}

// sameSource says whether two ways to hear events are one.
func sameSource(a, b kvevent.SourceConfig) bool {
	return a.Decoder.BlockSize == b.Decoder.BlockSize && a.Decoder.Eagle == b.Decoder.Eagle && slices.Equal(a.Endpoints, b.Endpoints)
}

// card is what the fleet knows of the worker, which must be complete.
func (w *worker) card(events bool) *engine.Card {
	c := &engine.Card{
		Model: w.partition().name(), Engine: "external", Accepts: []engine.Input{engine.InputTokens},
		// Who dispatches knows how long a context may be, and need not say so.
		ContextLength: value(w.ContextLength, math.MaxUint32),
		BlockSize:     *w.BlockSize, HashScheme: engine.SchemeXXH3,
		DPStart: value(w.DPStart, 0), DPSize: value(w.DPSize, 1),
		TotalBlocks: value(w.TotalBlocks, 0), MaxBatchedTokens: value(w.MaxBatchedTokens, 0),
		Taints: slices.Clone(w.Taints), Topology: maps.Clone(w.Topology),
	}
	if value(w.Eagle, false) {
		c.HashScheme = engine.SchemeXXH3Eagle
	}
	if events {
		c.Features = engine.Features{engine.FeatureEvents}
	}
	return c
}

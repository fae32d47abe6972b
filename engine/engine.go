// Package engine says what a worker is: a token machine that takes token ids
// and gives token ids, and tells on the side what it caches, how loaded it is
// and what it is able to do. Adapters in its sub-packages implement it for each
// engine; router and pipeline know this package alone.
//
// Every answer is an iter.Seq2 that ends in exactly one terminal item or exactly
// one error. Leaving the loop, or cancelling the context, ends the work below
// it. An absent ability is said in the [Card], never discovered by a failure in
// the middle of a request.
package engine

import (
	"context"
	"iter"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/kv"
)

// Engine is one worker. Every method may be called at any time, from any
// goroutine.
//
// A sequence is for one loop: the request is submitted when the loop begins,
// and a second loop yields one error of kind internal. Once the context is done
// a source yields its one error within 20 ms, wherever it waits; and when the
// consumer leaves the loop, the range statement returns as quickly.
type Engine interface {
	// Card yields what is known now, then every change, until ctx ends.
	Card(ctx context.Context) iter.Seq2[Status, error]
	// Generate runs one request and yields token deltas: one terminal Delta
	// last, or one error last.
	Generate(ctx context.Context, r *Request) iter.Seq2[Delta, error]
	// Events yields KV changes in order, per rank, from the given cursors on
	// (none: from the beginning). Only called for a card with FeatureEvents.
	Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error]
	// Load yields readings of the engine's own load.
	Load(ctx context.Context) iter.Seq2[Load, error]
}

// ChatEngine is a text engine: it takes Request.Chat and yields the events of
// an answer, one Finished last.
type ChatEngine interface {
	Chat(ctx context.Context, r *Request) iter.Seq2[chat.Event, error]
}

// As finds an optional interface of e, through wrappers that have a method
// Unwrap() Engine. The caller checks the feature in the card besides: a remote
// client has every method.
func As[T any](e Engine) (T, bool) {
	for e != nil {
		if t, ok := e.(T); ok {
			return t, true
		}
		w, ok := e.(interface{ Unwrap() Engine })
		if !ok {
			break
		}
		e = w.Unwrap()
	}
	var zero T
	return zero, false
}

// State says whether a worker takes requests.
type State uint8

// States of a worker.
const (
	Loading State = iota
	Ready
	Draining
	Failed
	// Suspect has fallen silent: nothing new goes there, and what runs goes on.
	Suspect
	// Dead cannot be reached: what ran there is lost. What it caches may still be
	// there when it comes back in the same life.
	Dead
)

// String returns the state's lower-case name.
func (s State) String() string {
	return [...]string{"loading", "ready", "draining", "failed", "suspect", "dead"}[min(s, Dead)]
}

// Status is what a worker tells about itself.
type Status struct {
	Worker   uint64 // 0: the fleet mints an id from the address
	Epoch    uint64 // one life of cache and identity; never 0; compared for equality only
	Revision uint64 // rises with every change of Card
	State    State
	Reason   string // one sentence for people
	Card     *Card  // nil until known; replaced, never changed in place
}

// Role says which part of a request a worker does.
type Role string

// Roles; the empty role does whole requests.
const (
	Aggregated Role = ""
	Prefill    Role = "prefill"
	Decode     Role = "decode"
	Encode     Role = "encode"
)

// Input names a form of request that a worker accepts.
type Input string

// Forms of input, in the pipeline's order of preference.
const (
	InputTokens Input = "tokens"
	InputChat   Input = "chat"
	InputText   Input = "text"
	InputTensor Input = "tensor"
)

// Hash schemes of a card.
const (
	SchemeXXH3      = "xxh3"       // kv.AppendLocalHashes
	SchemeXXH3Eagle = "xxh3-eagle" // windows of block size + 1 tokens
)

// DeviceCPU is the device of a worker without an accelerator.
const DeviceCPU = "cpu"

// Card says what a worker is and can do.
type Card struct {
	Model   string
	Aliases []string
	Engine  string // for people: "vllm 0.31.0"
	Role    Role
	Needs   []Role // ready only while each needed role is live
	Accepts []Input

	ContextLength, BlockSize uint32 // 0: unknown
	HashScheme               string // "": unknown
	DPStart, DPSize          uint32 // ranks [DPStart, DPStart+DPSize); size at least 1
	TotalBlocks              uint64 // per rank; 0: unknown
	MaxSeqs                  uint32
	MaxBatchedTokens         uint64

	Features    Features
	MaxLogprobs uint32
	Controls    []string
	Files       []File
	EOS         []uint32
	// ToolParser and ReasoningParser name a family, "none", or are empty for
	// automatic choice.
	ToolParser, ReasoningParser string
	Disagg                      Transfer
	Taints                      []string
	// Adapters are the LoRA adapters that the worker serves; nil: it does not tell.
	Adapters []string
	// Device is [DeviceCPU] for a worker that runs on processors alone; "": on
	// accelerators.
	Device   string
	Topology map[string]string // domain → value: "rack" → "r12"
	Tensor   *TensorConfig     // of a worker that takes tensors
	Hint     *HintSource       // of one that takes hints of who holds a prompt; or nil
}

// Accept says whether the worker takes this form of input.
func (c *Card) Accept(in Input) bool { return slices.Contains(c.Accepts, in) }

// Ranks returns how many data-parallel ranks the worker has, at least 1.
func (c *Card) Ranks() uint32 { return max(1, c.DPSize) }

// File is one file that a model needs besides its weights.
type File struct {
	Kind   string // tokenizer, tokenizer_config, chat_template, config, generation_config
	URI    string // builtin:demo, a path, or file://
	SHA256 string
	Size   int64
}

// Feature is the name of something that a worker can do beyond plain
// generation.
type Feature string

// Features. Unknown names are ignored; an absent one means "cannot".
const (
	FeatureSeed           Feature = "seed"
	FeatureLogitBias      Feature = "logit_bias"
	FeatureMinTokens      Feature = "min_tokens"
	FeatureStopIDs        Feature = "stop_ids"
	FeatureStopStrings    Feature = "stop_strings"
	FeatureLogprobs       Feature = "logprobs"
	FeaturePromptLogprobs Feature = "prompt_logprobs"
	FeatureThinkingBudget Feature = "thinking_budget"
	FeatureGuidedJSON     Feature = "guided:json"
	FeatureGuidedObject   Feature = "guided:json_object"
	FeatureGuidedRegex    Feature = "guided:regex"
	FeatureGuidedChoice   Feature = "guided:choice"
	FeatureGuidedGrammar  Feature = "guided:grammar"
	FeatureStructuralTag  Feature = "guided:structural_tag"
	FeaturePriority       Feature = "priority"
	FeatureDPRank         Feature = "dp_rank"
	FeatureLoRA           Feature = "lora"
	FeatureCacheSalt      Feature = "cache_salt"
	FeatureCachedTokens   Feature = "cached_tokens"
	FeatureEvents         Feature = "events"
	FeatureRetention      Feature = "retention"
	FeaturePins           Feature = "pins"
	FeaturePrefetch       Feature = "prefetch"
	FeatureSessions       Feature = "sessions"
	FeatureWantsChat      Feature = "wants_chat" // Request.Chat is filled beside the ids
	FeatureHandoff        Feature = "handoff"
	FeatureContinues      Feature = "continues" // Request.Answered is heeded: an answer goes on as it began, its form too
)

// Features is a set of names.
type Features []Feature

// Has says whether f is in the set.
func (s Features) Has(f Feature) bool { return slices.Contains(s, f) }

// Unknown marks a reading that could not be taken. It is never 0.
const Unknown int64 = -1

// Load is one reading of an engine's load, by rank.
type Load struct{ Ranks []RankLoad }

// RankLoad is the load of one rank; what was not read is [Unknown].
type RankLoad struct {
	Rank                                   uint32
	Running, Waiting, WaitingTokens        int64
	UsedBlocks, TotalBlocks                int64
	PrefixHits, PrefixQueries, Preemptions int64 // since start, in tokens, tokens, requests
}

// UnknownLoad is the load of a rank of which nothing was read yet.
func UnknownLoad(rank uint32) RankLoad {
	return RankLoad{
		Rank: rank, Running: Unknown, Waiting: Unknown, WaitingTokens: Unknown, UsedBlocks: Unknown, TotalBlocks: Unknown,
		PrefixHits: Unknown, PrefixQueries: Unknown, Preemptions: Unknown,
	}
}

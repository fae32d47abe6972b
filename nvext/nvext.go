// Package nvext holds the extension object that agent clients put into their
// requests, the identity headers beside it, and what we put into answers for
// it. The names are those of the public nvext interface; they are facts of that
// interface and imply no affiliation.
//
// The types here carry what a client said, as it was said. What each field does
// is decided where it is used: placement and priority in the router, retention
// in the block manager, annotations at the edge.
package nvext

// PriorityBackground is the priority of work that no client waits for:
// speculative prefill, keep-warm, canaries. It is last in every queue and never
// becomes a retention priority.
const PriorityBackground int32 = -100

// Ext is the member "nvext" of a request. Pointers are nil for what the client
// left out.
type Ext struct {
	GreedSampling      *bool    `json:"greed_sampling,omitzero"`
	UseRawPrompt       *bool    `json:"use_raw_prompt,omitzero"`
	Annotations        []string `json:"annotations,omitzero"`
	TokenData          []uint32 `json:"token_data,omitzero"`
	MaxThinkingTokens  *uint32  `json:"max_thinking_tokens,omitzero"`
	ExtraFields        []string `json:"extra_fields,omitzero"`
	CacheSalt          string   `json:"cache_salt,omitzero"`
	RequestTimestampMS *float64 `json:"request_timestamp_ms,omitzero"`

	Placement

	AgentHints         *Hints          `json:"agent_hints,omitzero"`
	AgentContext       *AgentContext   `json:"agent_context,omitzero"`
	SessionControl     *SessionControl `json:"session_control,omitzero"`
	CacheControl       *CacheControl   `json:"cache_control,omitzero"`
	Retention          *Retention      `json:"retention,omitzero"`
	MetadataUpload     *MetadataUpload `json:"metadata_upload,omitzero"`
	RoutingConstraints *Constraints    `json:"routing_constraints,omitzero"`
	Router             *Targets        `json:"router,omitzero"`
}

// Placement pins phases of a request to workers. Ids are below 2^53 and are
// accepted as numbers or as decimal strings.
type Placement struct {
	BackendInstanceID *WorkerID `json:"backend_instance_id,omitzero"`
	PrefillWorkerID   *WorkerID `json:"prefill_worker_id,omitzero"`
	DecodeWorkerID    *WorkerID `json:"decode_worker_id,omitzero"`
	DPRank            *uint32   `json:"dp_rank,omitzero"`
	PrefillDPRank     *uint32   `json:"prefill_dp_rank,omitzero"`
}

// UnsetRank is what clients write for a rank that cannot leave it out.
const UnsetRank uint32 = 1<<32 - 1

// Ranks returns the ranks that a client has fixed, nil for those that it has not:
// that of the worker that answers, and that of the one that computes the prompt.
func (p *Placement) Ranks() (answers, prefill *uint32) {
	known := func(rank *uint32) *uint32 {
		if rank == nil || *rank == UnsetRank {
			return nil
		}
		return rank
	}
	return known(p.DPRank), known(p.PrefillDPRank)
}

// Hints tell what the agent knows about its own request.
type Hints struct {
	Priority           *int32   `json:"priority,omitzero"`        // higher is more important
	StrictPriority     *uint32  `json:"strict_priority,omitzero"` // a higher tier always goes first
	OSL                *uint32  `json:"osl,omitzero"`             // expected output tokens, never a limit
	SpeculativePrefill *bool    `json:"speculative_prefill,omitzero"`
	NextRequestIn      string   `json:"next_request_in,omitzero"` // a duration such as "8s"
	LatencySensitivity *float64 `json:"latency_sensitivity,omitzero"`
}

// AgentContext names the run and the trajectory a request belongs to.
type AgentContext struct {
	SessionTypeID      string `json:"session_type_id,omitzero"`
	SessionID          string `json:"session_id,omitzero"`
	TrajectoryID       string `json:"trajectory_id,omitzero"`
	ParentTrajectoryID string `json:"parent_trajectory_id,omitzero"`
	TrajectoryFinal    *bool  `json:"trajectory_final,omitzero"`
}

// SessionControl binds a request to a session of the router, or of the engine.
type SessionControl struct {
	SessionID string  `json:"session_id,omitzero"`
	Action    string  `json:"action,omitzero"`  // open, bind or close
	Timeout   *uint32 `json:"timeout,omitzero"` // seconds
	Ephemeral *bool   `json:"ephemeral,omitzero"`
}

// What [SessionControl.Action] may say; empty goes on in a session.
const (
	SessionOpen  = "open"
	SessionBind  = "bind"
	SessionClose = "close"
)

// Ends says whether the session ends behind the request.
func (c *SessionControl) Ends() bool { return c != nil && c.Action == SessionClose }

// CacheControl asks that the prompt's blocks stay cached. Hard asks that nothing
// takes their place meanwhile, where operators allow that; else they are the last to
// go.
type CacheControl struct {
	Type string `json:"type,omitzero"`
	TTL  any    `json:"ttl,omitzero"` // "5m", "1h", or a number of seconds
	Hard *bool  `json:"hard,omitzero"`
}

// Retention gives token ranges of the prompt their own eviction priority.
type Retention struct {
	Ranges []RetentionRange `json:"ranges,omitzero"`
	Decode *RetentionRange  `json:"decode,omitzero"`
}

// RetentionRange is one range of a [Retention]: the tokens [Start, End) of the
// prompt, or those from the end of the range before it up to the end of a message.
type RetentionRange struct {
	Start    uint32  `json:"start,omitzero"`
	End      *uint32 `json:"end,omitzero"`
	Message  *uint32 `json:"message,omitzero"`
	Priority *uint8  `json:"priority,omitzero"` // required
	// TTL and DurationMS are two ways to say for how long; neither is for ever.
	TTL        any     `json:"ttl,omitzero"`
	DurationMS *uint64 `json:"duration_ms,omitzero"`
}

// MetadataUpload tells a worker where to put captured metadata.
type MetadataUpload struct {
	URL string `json:"url"`
}

// Constraints restrict or prefer workers by their taints.
type Constraints struct {
	RequiredTaints  []string           `json:"required_taints,omitzero"`
	PreferredTaints map[string]float64 `json:"preferred_taints,omitzero"`
}

// Targets are the latencies a client hopes for, in milliseconds.
type Targets struct {
	TTFT *float64 `json:"ttft_target,omitzero"`
	ITL  *float64 `json:"itl_target,omitzero"`
}

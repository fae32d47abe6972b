package selection

import (
	"math"
	"net/http"

	"github.com/dynago/dynago/router"
)

// target is one rank of one worker.
type target struct {
	Worker workerID `json:"worker_id"`
	Rank   *uint32  `json:"dp_rank"`
}

// selectRequest asks where a prompt should go.
type selectRequest struct {
	modelOf
	ID string `json:"selection_id"`
	prompt
	Overrides *overrides `json:"router_config_override"`
	// Expected is the forecast of the answer's length in tokens.
	Expected       uint32          `json:"expected_output_tokens"`
	PriorityJump   float64         `json:"priority_jump"`
	StrictPriority uint32          `json:"strict_priority"`
	SessionID      string          `json:"session_id"`
	Session        *sessionContext `json:"session_context"` // wins over SessionID
	Pinned         *target         `json:"pinned_worker"`
	Allowed        *[]workerID     `json:"allowed_worker_ids"`
	Constraints    constraints     `json:"routing_constraints"`
}

// modelOf names a partition.
type modelOf struct {
	Model string `json:"model_name"`
	Group string `json:"routing_group"`
}

func (m *modelOf) partition() partition {
	p := partition{m.Model, m.Group}
	orElse(&p.model, defaultModel)
	orElse(&p.group, defaultGroup)
	return p
}

type sessionContext struct {
	ID     string `json:"session_id"`
	Parent string `json:"parent_session_id"`
	Final  bool   `json:"session_final"`
	Input  string `json:"input_trigger"`
}

type constraints struct {
	Required  []string           `json:"required_taints"`
	Preferred map[string]float64 `json:"preferred_taints"`
}

// overrides are what a request may change of the router's configuration.
type overrides struct {
	Credit      *float64 `json:"overlap_score_credit"`
	Scale       *float64 `json:"prefill_load_scale"`
	Weight      *float64 `json:"overlap_score_weight"`
	Temperature *float64 `json:"router_temperature"`
	Shared      *float64 `json:"shared_cache_multiplier"`
	Reuse       *bool    `json:"assume_kv_reuse"`
	Track       *bool    `json:"track_prefill_tokens"`
}

func (o *overrides) router() *router.Overrides {
	if o == nil {
		return nil
	}
	return &router.Overrides{
		OverlapScoreCredit: o.Credit, PrefillLoadScale: o.Scale, OverlapScoreWeight: o.Weight, Temperature: o.Temperature,
		SharedCacheMultiplier: o.Shared, AssumeKVReuse: o.Reuse, TrackPrefillTokens: o.Track,
	}
}

// longestID bounds ids that dispatchers give, in bytes; they are kept.
const longestID = 256

func checkID(name, id string) error {
	if len(id) > longestID {
		return bad("%s: got %d bytes, want at most %d", name, len(id), longestID)
	}
	return nil
}

// query makes of a request what the router is asked.
func (s *Service) query(r *selectRequest, class string) (*router.Query, error) {
	p := r.partition()
	q := &router.Query{
		ID: r.ID, Model: p.name(), Choices: 1, Expected: r.Expected,
		Priority: r.PriorityJump, StrictPriority: r.StrictPriority, Class: class,
		Session: router.Session{ID: r.SessionID},
		Require: r.Constraints.Required, Prefer: r.Constraints.Preferred,
		Overrides: r.Overrides.router(),
	}
	if err := checkID("selection_id", r.ID); err != nil {
		return nil, err
	}
	if math.IsNaN(q.Priority) || math.IsInf(q.Priority, 0) {
		return nil, bad("priority_jump: want a finite number of seconds")
	}
	if c := r.Session; c != nil {
		q.Session = router.Session{ID: c.ID, Parent: c.Parent, Final: c.Final}
		switch c.Input {
		case "", "other":
		case "user_message":
			q.Session.Input = router.UserInput
		case "tool_result":
			q.Session.Input = router.ToolInput
		default:
			return nil, bad("session_context.input_trigger: got %s, want user_message, tool_result or other", clip(c.Input))
		}
	}
	for name, id := range map[string]string{"session_id": q.Session.ID, "session_context.parent_session_id": q.Session.Parent} {
		if err := checkID(name, id); err != nil {
			return nil, err
		}
	}
	if t := r.Pinned; t != nil {
		q.PinWorker, q.PinRank = t.Worker.inner(), t.Rank
	}
	if r.Allowed != nil {
		q.Allow = make([]uint64, 0, len(*r.Allowed))
		for _, id := range *r.Allowed {
			q.Allow = append(q.Allow, id.inner())
		}
	}
	return q, r.prompt.fill(q, s.catalog.pools(p))
}

// classHeader names the policy class of a request.
const classHeader = "X-Dynamo-Meta-Policy-Class"

// class returns the policy class that a request asks for, or "".
func class(r *http.Request) string { return r.Header.Get(classHeader) }

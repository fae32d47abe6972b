package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Conditional says when a decode worker computes a prompt itself, though there are
// prefill workers: that saves the way between them.
type Conditional struct {
	Policy ConditionalPolicy `json:"policy"`
	// By what is not cached where the request would be decoded: fewer tokens than
	// ISL, and less than ISLRatio of the prompt.
	ISL      int     `json:"eff_isl_threshold"`
	ISLRatio float64 `json:"eff_isl_ratio_threshold"`
	// PrefillBusy is how much a prefill worker may have outstanding, in multiples
	// of what it computes in one pass, before it counts as busy; nil is the
	// threshold of the queue.
	PrefillBusy *float64 `json:"prefill_busy_threshold"`
	// DecodeBusy is which part of its blocks a decode worker may have in use, with
	// the request, and still take it whole; nil is any.
	DecodeBusy *float64 `json:"decode_busy_threshold"`
}

// ConditionalPolicy says what a [Conditional] goes by.
type ConditionalPolicy string

// The policies of a [Conditional].
const (
	ByISL       ConditionalPolicy = "isl_bounding" // little is left to compute
	ByLoad      ConditionalPolicy = "prefill_load" // the prefill worker is busy
	ByISLOrLoad ConditionalPolicy = "isl_or_load"
)

var conditionalPolicies = []ConditionalPolicy{ByISL, ByLoad, ByISLOrLoad}

// DefaultConditional returns what holds where nothing else is said.
func DefaultConditional() Conditional {
	return Conditional{Policy: ByISL, ISL: 2048, ISLRatio: 0.7}
}

// Merge reads a JSON object over c. Members that are left out stay as they are, and
// unknown ones are an error, as is a whole that is not valid.
func (c *Conditional) Merge(text []byte) error {
	if err := json.Unmarshal(text, c, json.RejectUnknownMembers(true)); err != nil {
		return explainJSON(err)
	}
	return c.Validate()
}

// explainJSON says in one line which member is wrong.
func explainJSON(err error) error {
	e, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return fmt.Errorf("want a JSON object: %w", err)
	case errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("unknown member %q: want policy, eff_isl_threshold, eff_isl_ratio_threshold, prefill_busy_threshold or decode_busy_threshold", e.JSONPointer.LastToken())
	case e.JSONPointer == "":
		return fmt.Errorf("want a JSON object, got %s", strings.TrimSpace(string(e.JSONKind)))
	}
	return fmt.Errorf("%s: want another type of value: %w", e.JSONPointer.LastToken(), e.Err)
}

// Validate returns an error that names the member at fault. Nil is valid.
func (c *Conditional) Validate() error {
	switch {
	case c == nil:
		return nil
	case !slices.Contains(conditionalPolicies, c.Policy):
		return fmt.Errorf("policy: got %q, want isl_bounding, prefill_load or isl_or_load", c.Policy)
	case c.ISL < 0:
		return fmt.Errorf("eff_isl_threshold: got %d, want 0 or more", c.ISL)
	case !(c.ISLRatio >= 0 && c.ISLRatio <= 1):
		return fmt.Errorf("eff_isl_ratio_threshold: got %v, want a number from 0 to 1", c.ISLRatio)
	}
	for _, p := range []struct {
		name  string
		value *float64
	}{{"prefill_busy_threshold", c.PrefillBusy}, {"decode_busy_threshold", c.DecodeBusy}} {
		if p.value != nil && !(*p.value >= 0 && *p.value <= math.MaxFloat64) {
			return fmt.Errorf("%s: got %v, want a finite number, 0 or more", p.name, *p.value)
		}
	}
	return nil
}

// with returns c with the threshold that it takes over from the queue if it has
// none of its own. Nil stays nil.
func (c *Conditional) with(queueThreshold *float64) (*Conditional, error) {
	if c == nil {
		return nil, nil
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	whole := *c
	if whole.PrefillBusy == nil {
		whole.PrefillBusy = queueThreshold
	}
	if whole.loads() && whole.PrefillBusy == nil {
		return nil, fmt.Errorf("policy %s goes by how busy prefill workers are: want prefill_busy_threshold, or --router-queue-threshold", c.Policy)
	}
	return &whole, nil
}

// loads says whether the load of prefill workers counts.
func (c *Conditional) loads() bool { return c.Policy == ByLoad || c.Policy == ByISLOrLoad }

// prospect is what the two ways of serving a request would find. Capacities are 0
// if they are unknown.
type prospect struct {
	tokens, cached int    // of the prompt, where the request would be decoded
	decodeBlocks   int    // in use there, with the request
	totalBlocks    int    // there
	prefillTokens  int    // outstanding where the prompt would be computed
	perPass        uint64 // tokens that worker computes in one pass
}

// whole says whether one worker had better do it all.
func (c *Conditional) whole(p prospect) bool {
	fresh := p.tokens - min(p.cached, p.tokens)
	short := fresh < c.ISL && float64(fresh) < c.ISLRatio*float64(p.tokens)
	busy := c.PrefillBusy != nil && p.perPass > 0 && float64(p.prefillTokens) > *c.PrefillBusy*float64(p.perPass)
	switch c.Policy {
	case ByISL:
		busy = false
	case ByLoad:
		short = false
	}
	if !short && !busy {
		return false
	}
	return c.DecodeBusy == nil || p.totalBlocks > 0 && float64(p.decodeBlocks) <= *c.DecodeBusy*float64(p.totalBlocks)
}

// unnamed returns a query that nobody will book by the same id.
func unnamed(q *Query) *Query {
	u := *q
	u.ID = ""
	return &u
}

// cheaper says whether a request had better be done by its decode worker alone. It
// books nothing, and if somebody does not know, the answer is no.
func (r *Router) cheaper(ctx context.Context, decode, prefill *Query) bool {
	p := prospect{tokens: decode.Length()}
	err := r.suppose(ctx, unnamed(decode), func(s *scratch, choice int) {
		c := &s.rows[choice]
		p.cached, p.decodeBlocks, p.totalBlocks = s.tuning.cachedTokens(c), c.DecodeBlocks, c.TotalBlocks
	})
	if err != nil {
		return false
	}
	if r.conditional.loads() {
		r.suppose(ctx, unnamed(prefill), func(s *scratch, choice int) { //nolint:errcheck // nobody there is nobody busy
			p.prefillTokens, p.perPass = s.rows[choice].PrefillTokens, s.sides[choice].card.MaxBatchedTokens
		})
	}
	return r.conditional.whole(p)
}

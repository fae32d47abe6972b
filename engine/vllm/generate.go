package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// Generate runs one request. The request is posted when the loop begins; leaving
// the loop closes the connection, which ends the work.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	var ranged atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if ranged.Swap(true) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "vLLM: the sequence of request %s was ranged over twice", r.ID))
			return
		}
		if ctx.Err() != nil {
			yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		now := e.now.Load()
		if err := e.check(r, now); err != nil {
			yield(engine.Delta{}, err)
			return
		}
		answer := e.run(ctx, r, now)
		if fetches(r) {
			answer = engine.Outlive(ctx, e.onceFetched(), func(ctx context.Context) iter.Seq2[engine.Delta, error] { return e.run(ctx, r, now) })
		}
		for d, err := range answer {
			if !yield(d, err) {
				return
			}
		}
	}
}

// onceFetched is how long a request goes on that nobody wants, and whose blocks come
// from another server. One that is told so while they are on their way loses those
// of both sides, and builds have died of it.
func (e *Engine) onceFetched() engine.Outliving[engine.Delta] {
	return engine.Outliving[engine.Delta]{
		Life: e.closed, Group: &e.background, Most: 30 * time.Second,
		Enough: func(engine.Delta) bool { return true }, // they have come
	}
}

// run is Generate for a request that has been checked.
func (e *Engine) run(ctx context.Context, r *engine.Request, now *life) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(e.closed, func() { cancel(context.Cause(e.closed)) })()
		a := asking{r: legOf(r), now: now, yield: yield, stop: func() { cancel(nil) }}
		if err := e.generate(ctx, &a); err != nil {
			yield(engine.Delta{}, ofLeg(r, err))
		}
	}
}

// closedError is that of a request to an engine that was closed.
func closedError() error {
	return engine.Errorf(engine.EngineShutdown, "vLLM: this connection was closed")
}

// check refuses what the server would refuse, keep waiting or overlook.
func (e *Engine) check(r *engine.Request, now *life) error {
	st := now.status
	switch {
	case e.closed.Err() != nil:
		return engine.Errorf(engine.Unavailable, "vLLM: this connection was closed")
	case r.Epoch != 0 && r.Epoch != st.Epoch:
		return engine.Errorf(engine.Stale, "vLLM: the request was made for an earlier life of the engine")
	case st.State != engine.Ready:
		return engine.Errorf(engine.Unavailable, "vLLM is %s: %s", st.State, st.Reason)
	case r.DPRank != nil && (*r.DPRank < st.Card.DPStart || *r.DPRank-st.Card.DPStart >= st.Card.Ranks()):
		return engine.Errorf(engine.InvalidArgument, "vLLM: data-parallel rank %d, want %d to %d", *r.DPRank, st.Card.DPStart, st.Card.DPStart+st.Card.Ranks()-1)
	case len(r.Stop.Strings) > 0:
		return engine.Errorf(engine.Unsupported, "vLLM: stop strings are for engines that are given texts")
	case len(r.Sampling.BadWords) > 0:
		return engine.Errorf(engine.Unsupported, "vLLM takes no sequences of ids that must not come")
	}
	for _, asked := range []struct {
		feature engine.Feature
		wanted  bool
	}{
		{engine.FeatureLoRA, r.KV.Namespace.LoRA != ""},
		{engine.FeatureCacheSalt, r.KV.Namespace.Salt != ""},
		{formFeature(r.Format), formFeature(r.Format) != ""},
	} {
		if asked.wanted && !st.Card.Features.Has(asked.feature) {
			return engine.Errorf(engine.Unsupported, "vLLM: %s is not available on this server", asked.feature)
		}
	}
	return checkLeg(r, st.Card)
}

var forms = map[chat.FormatKind]engine.Feature{
	chat.FormatJSONObject:    engine.FeatureGuidedObject,
	chat.FormatJSONSchema:    engine.FeatureGuidedJSON,
	chat.FormatRegex:         engine.FeatureGuidedRegex,
	chat.FormatGrammar:       engine.FeatureGuidedGrammar,
	chat.FormatChoice:        engine.FeatureGuidedChoice,
	chat.FormatStructuralTag: engine.FeatureStructuralTag,
}

// formFeature returns what a form asks of an engine; a form that is not known
// here asks for something that no engine has.
func formFeature(f *chat.OutputFormat) engine.Feature {
	if f == nil || f.Kind == chat.FormatText {
		return ""
	}
	if feature, ok := forms[f.Kind]; ok {
		return feature
	}
	return engine.Feature("guided:" + string(f.Kind))
}

// asking is a request that is being served.
type asking struct {
	r     *engine.Request
	now   *life
	yield func(engine.Delta, error) bool
	begun bool   // something was yielded
	stop  func() // ends what is left of it
}

// generate posts the request and yields the answer. It returns the error that
// ends it, or nil if it has ended or the consumer has left.
func (e *Engine) generate(ctx context.Context, q *asking) error {
	r, now := q.r, q.now
	d, card := now.dialect, now.status.Card
	err := e.attempt(ctx, q, card, &d)
	if err == nil || q.begun || ctx.Err() != nil {
		return err
	}
	// Nothing has run yet: what was refused can be said otherwise.
	switch f := refused(r, card, err); {
	case d.generate && d.tokenMode && isMissing(err):
		d.generate = false // the build has lost the route, or never had it
	case f == engine.FeaturePriority:
		e.unlearn(now, f, err)
		card = without(card, f)
	case f == engine.FeatureThinkingBudget:
		// Elsewhere, or here the next time, the limit is kept without the engine.
		e.unlearn(now, f, err)
		return engine.Errorf(engine.Unsupported, "vLLM: thinking budgets are not available on this server")
	default:
		return err
	}
	return e.attempt(ctx, q, card, &d)
}

// refused returns what a request was refused for although the card has it, or "".
func refused(r *engine.Request, c *engine.Card, err error) engine.Feature {
	e, ok := errors.AsType[*engine.Error](err)
	if !ok || e.Kind != engine.InvalidArgument {
		return ""
	}
	said := strings.ToLower(e.Message)
	switch {
	case r.ThinkingBudget != nil && c.Features.Has(engine.FeatureThinkingBudget) && strings.Contains(said, "thinking_token_budget"):
		return engine.FeatureThinkingBudget
	case r.Priority != nil && c.Features.Has(engine.FeaturePriority) && strings.Contains(said, "priority"):
		return engine.FeaturePriority
	}
	return ""
}

// unlearn takes a feature from the card of a life.
func (e *Engine) unlearn(now *life, f engine.Feature, err error) {
	if _, known := now.build.refused.LoadOrStore(f, true); !known {
		e.config.Log.Warn("vLLM refuses what it was said to do", "url", e.client.URL(), "feature", f, "error", err)
	}
}

// without returns a card that lacks a feature.
func without(c *engine.Card, f engine.Feature) *engine.Card {
	less := *c
	less.Features = slices.DeleteFunc(slices.Clone(c.Features), func(have engine.Feature) bool { return have == f })
	return &less
}

// isMissing says whether a route is not there, or is forbidden to everybody, as that
// for tokens is unless a server was started with --enable-scale-out.
func isMissing(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return engine.KindOf(err) == engine.Unsupported
	case http.StatusForbidden:
		return true
	}
	return false
}

func (e *Engine) attempt(ctx context.Context, q *asking, card *engine.Card, d *dialect) error {
	r := q.r
	a := answer{r: r, tellsCached: card.Features.Has(engine.FeatureCachedTokens)}
	var err error
	var tail *time.Timer // runs once the answer has finished
	for bunch, failed := range e.answers(ctx, r, card, d) {
		if err = failed; err != nil {
			break
		}
		delta, failed := a.take(bunch.Events)
		if len(delta.TokenIDs) > 0 || delta.PromptLogprobs != nil || delta.EngineData != nil {
			q.begun = true
			if !q.yield(delta, nil) {
				e.abort(r.ID, d, &a)
				return nil
			}
		}
		if failed != nil {
			return failed
		}
		if a.finished() && !bunch.Last && tail == nil {
			tail = time.AfterFunc(httpapi.LastWords, q.stop)
			defer tail.Stop()
		}
	}
	switch {
	case a.finished(): // whatever became of the connection, or of us, afterwards
	case ctx.Err() != nil:
		e.abort(r.ID, d, &a)
		return engine.CauseOf(ctx, ctx.Err())
	case err != nil:
		return err
	default:
		return engine.Errorf(engine.StreamIncomplete, "vLLM: the answer ended without a finish reason after %d tokens", a.received)
	}
	delta, err := a.terminal()
	if err != nil {
		return err
	}
	if r.Disagg.Phase == engine.PhasePrefill && delta.Finish == engine.FinishLength {
		delta.Handoff = json.RawMessage(e.handedOver(card, r, a.transfer))
		e.meets(delta.Handoff)
	}
	if a.cachedSeen() {
		e.cached.Store(true)
	}
	q.yield(delta, nil)
	return nil
}

// answers yields the pieces of an answer, those together that have come together;
// one that is given whole is one piece.
func (e *Engine) answers(ctx context.Context, r *engine.Request, c *engine.Card, d *dialect) iter.Seq2[httpapi.Bunch, error] {
	if streams(r) {
		return e.client.Bunches(ctx, d.path(), d.header(r, c), d.body(r, c))
	}
	return func(yield func(httpapi.Bunch, error) bool) {
		whole, err := e.client.Post(ctx, d.path(), d.header(r, c), d.body(r, c))
		yield(httpapi.Bunch{Events: [][]byte{whole}, Last: true}, err)
	}
}

// abortTimeout is how long a server may take to hear that a request is not wanted.
const abortTimeout = 2 * time.Second

// abort tells a server that knows how, besides the connection that is closed, to
// give up a request that nobody wants any more. Nobody waits for it.
func (e *Engine) abort(id string, d *dialect, a *answer) {
	if d.abort == "" || a.finished() {
		return
	}
	path := d.abort
	e.later(func() {
		ctx, cancel := context.WithTimeout(e.closed, abortTimeout)
		defer cancel()
		var o object
		// Builds know requests by this id, or by a name that their route makes of it. The
		// list is never empty: to some that means every request. The closed connection
		// says the same, so that nothing is lost with this.
		o.value("request_ids", []string{id, "generate-tokens-" + id, "cmpl-" + id, "cmpl-" + id + "-0"})
		_, _ = e.client.Post(ctx, path, nil, o.end())
	})
}

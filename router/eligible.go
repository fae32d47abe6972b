package router

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Codes of errors for requests that nobody may serve. That there is no worker of
// the model at all is the code model_not_found, of kind not_found.
const (
	CodeAllOverloaded    = "all_workers_overloaded"    // kind resource_exhausted
	CodeAllFiltered      = "all_workers_filtered"      // kind unavailable: not ready, not allowed, without a taint …
	CodePinnedOverloaded = "pinned_worker_overloaded"  // kind worker_overloaded
	CodePinnedFiltered   = "pinned_worker_filtered"    // kind unavailable
	CodePinnedNotAllowed = "pinned_worker_not_allowed" // kind unavailable: not among Query.Allow
)

// bar is what keeps a worker from serving a request.
type bar uint8

const (
	unbarred bar = iota
	unpinned
	closed
	foreign
	forbidden
	tried
	inhibited
	untainted
	unadapted
	rankless
	short
	full
	bars
)

// String returns half a sentence.
func (b bar) String() string {
	return [...]string{
		"may serve it", "the request is pinned to another", "is not ready", "takes blocks in another way", "is not among those allowed",
		"has failed the request before", "has failed a request just now", "lacks a required taint",
		"does not serve the adapter", "does not have the rank asked for", "has too short a context", "is overloaded",
	}[b]
}

func (b bar) code() string {
	return [...]string{
		"", "not_pinned", "not_ready", "other_transfer", "not_allowed", "tried", "failed_lately", "taints", "adapter", "rank",
		"context_length", "overloaded",
	}[b]
}

// check holds a request against one worker after another, in the order of their
// ids.
type check struct {
	q       *Query
	tokens  int
	allow   []uint64 // in order, those of smaller ids taken off
	adapted bool     // somebody tells which adapters he serves
	workers []*fleet.Worker
	busy    map[uint64]bool // workers beyond the thresholds of their model
}

// check is [newCheck] with those workers that are beyond their thresholds.
func (r *Router) check(q *Query, workers []*fleet.Worker) check {
	c := newCheck(q, workers)
	if r.watchful.Load() {
		r.mu.Lock()
		c.busy = r.busy(workers)
		r.mu.Unlock()
	}
	return c
}

func newCheck(q *Query, workers []*fleet.Worker) check {
	c := check{q: q, tokens: q.Length(), allow: q.Allow, workers: workers}
	if !slices.IsSorted(c.allow) {
		c.allow = slices.Sorted(slices.Values(c.allow))
	}
	if q.Namespace.LoRA != "" {
		c.adapted = slices.ContainsFunc(workers, func(w *fleet.Worker) bool {
			card := w.Card()
			return serves(card, q) && card.Adapters != nil
		})
	}
	return c
}

// serves says whether a card is that of a worker of the model and role that are
// asked for.
func serves(card *engine.Card, q *Query) bool {
	return card != nil && plays(card, q.Role) && named(card, q.Model)
}

// bar returns the first reason for which a worker may not serve the request.
func (c *check) bar(w *fleet.Worker, card *engine.Card, life context.Context) bar {
	q := c.q
	switch {
	case q.pinned() && w.ID() != q.PinWorker:
		return unpinned
	case !w.Admitted(), life.Err() != nil, !c.needed(card):
		return closed
	case q.style != "" && card.Disagg.Style != "" && card.Disagg.Style != q.style:
		return foreign
	case q.Allow != nil && !c.allowed(w.ID()):
		return forbidden
	case slices.Contains(q.Exclude, w.ID()):
		return tried
	case (!q.pinned() || q.follows) && !w.Ready():
		return inhibited
	case slices.ContainsFunc(q.Require, func(taint string) bool { return !card.HasTaint(taint) }):
		return untainted
	case c.adapted && !slices.Contains(card.Adapters, q.Namespace.LoRA):
		return unadapted
	case !q.pinned() && q.PinRank != nil && (*q.PinRank < card.DPStart || *q.PinRank-card.DPStart >= card.Ranks()):
		return rankless
	case card.ContextLength > 0 && c.tokens >= int(card.ContextLength):
		return short
	case w.Overloaded(), c.busy[w.ID()]:
		return full
	}
	return unbarred
}

// needed says whether somebody plays each role that a worker needs beside itself.
// Whoever needs prefill workers does nothing without one, however many there are.
func (c *check) needed(card *engine.Card) bool {
	if c.q.Role == engine.Aggregated && slices.Contains(card.Needs, engine.Prefill) {
		return false
	}
	for _, role := range card.Needs {
		if !live(c.workers, card.Model, role) {
			return false
		}
	}
	return true
}

func (c *check) allowed(id uint64) bool {
	for len(c.allow) > 0 && c.allow[0] < id {
		c.allow = c.allow[1:]
	}
	return len(c.allow) > 0 && c.allow[0] == id
}

// preference returns by how much the cost of a worker is multiplied: between 1/e
// and e, below 1 if its taints are preferred.
func (q *Query) preference(card *engine.Card) float64 {
	if len(q.Prefer) == 0 || q.pinned() {
		return 1
	}
	taints := slices.Clone(card.Taints) // a request may prefer any number
	for domain, value := range card.Topology {
		taints = append(taints, engine.TopologyTaint(domain, value))
	}
	slices.Sort(taints) // the order of a sum shows in its last bit
	sum := 0.0
	for _, taint := range slices.Compact(taints) {
		sum += q.Prefer[taint]
	}
	if math.IsNaN(sum) { // weights that are no numbers, or endless ones for and against
		return 1
	}
	return math.Exp(-math.Tanh(sum))
}

// eligible appends a row for each rank that may serve q, or says why there is
// none.
func (r *Router) eligible(q *Query, s *scratch) error {
	if r.muster(q, s) {
		return nil
	}
	s.reset()
	workers := r.fleet.Snapshot()
	if w := r.fleet.Worker(q.PinWorker); w != nil && r.begun.Load() {
		c, card, life := r.check(q, workers), w.Card(), w.Lost()
		if serves(card, q) && c.bar(w, card, life) == unbarred {
			return s.add(q, w, card, life, r.pool(card)) // no need to look at the others
		}
	}
	c := r.check(q, workers)
	var out refusals
	for _, w := range workers {
		card := w.Card()
		if !serves(card, q) {
			continue
		}
		out.known++
		life := w.Lost()
		bar := c.bar(w, card, life)
		if bar != unbarred {
			out.by[bar]++
			switch bar {
			case short:
				out.longest = max(out.longest, int(card.ContextLength))
			case untainted:
				out.lacks(q, card)
			}
			continue
		}
		if err := s.add(q, w, card, life, r.pool(card)); err != nil {
			return err
		}
	}
	if out.known > 0 && !r.begun.Load() {
		if ready := out.known - out.by[closed] - out.by[inhibited]; ready < r.minimum {
			return notReady(q.Model)
		}
		r.begun.Store(true)
	}
	if len(s.rows) == 0 {
		return out.reason(q)
	}
	return nil
}

// add appends the ranks of a worker, of a pinned one only that which is meant.
func (s *scratch) add(q *Query, w *fleet.Worker, card *engine.Card, life context.Context, of pool) error {
	first, last, err := q.ranks(w, card)
	if err != nil {
		return err
	}
	row := Candidate{
		Worker: w, BlockSize: blockSize(card), TotalBlocks: int(min(card.TotalBlocks, 1<<40)),
		OnCPU: card.Device == engine.DeviceCPU, Preference: q.preference(card),
	}
	at := slices.Index(s.pools, of)
	if at < 0 {
		at = len(s.pools)
		s.pools = append(s.pools, of)
	}
	for rank := first; ; rank++ {
		row.Target = kv.Target{Worker: w.ID(), Rank: rank}
		s.rows = append(s.rows, row)
		s.sides = append(s.sides, side{card: card, life: life, prompt: at})
		if rank == last {
			return nil
		}
	}
}

// rankParam is the member by which a client says which rank it means.
func (q *Query) rankParam() string {
	if q.Role == engine.Prefill {
		return "nvext.prefill_dp_rank"
	}
	return "nvext.dp_rank"
}

// ranks returns the first and the last rank of a worker that will do.
func (q *Query) ranks(w *fleet.Worker, card *engine.Card) (first, last uint32, err error) {
	first, last = card.DPStart, card.DPStart+card.Ranks()-1
	switch {
	case q.pinned() && q.PinRank == nil && first != last:
		return 0, 0, &engine.Error{
			Kind: engine.InvalidArgument, Worker: w.ID(), Param: q.rankParam(),
			Message: fmt.Sprintf("the worker has ranks %d to %d, and the request must say which", first, last),
		}
	case q.PinRank != nil && (*q.PinRank < first || *q.PinRank > last):
		return 0, 0, &engine.Error{
			Kind: engine.InvalidArgument, Worker: w.ID(), Param: q.rankParam(),
			Message: fmt.Sprintf("the worker has ranks %d to %d, not %d", first, last, *q.PinRank),
		}
	case q.PinRank != nil:
		return *q.PinRank, *q.PinRank, nil
	}
	return first, last, nil
}

// refusals counts the workers of a model that may not serve a request, by the
// first reason.
type refusals struct {
	known   int
	by      [bars]int
	longest int      // context, of the short ones
	missing []string // taints that all of the untainted ones lack
}

// lacks counts what an untainted worker does not have.
func (n *refusals) lacks(q *Query, card *engine.Card) {
	if n.by[untainted] == 1 {
		n.missing = slices.Clone(q.Require)
	}
	n.missing = slices.DeleteFunc(n.missing, card.HasTaint)
}

// MissingTaints is why nobody may serve a request that requires taints. It names none
// but those that the request does, so that its JSON is what clients may be told.
type MissingTaints struct {
	Missing []string `json:"missing_taints"`
	apart   bool     // each of them is there, and no worker has all
	pinned  bool
}

// Error returns one line.
func (m *MissingTaints) Error() string {
	switch {
	case m.pinned:
		return fmt.Sprintf("the request is pinned to a worker that lacks the required taints %q", m.Missing)
	case m.apart:
		return fmt.Sprintf("no worker that is ready has all of the required taints %q", m.Missing)
	}
	return fmt.Sprintf("no worker that is ready has the required taints %q", m.Missing)
}

// ClientDetails marks an error whose text is meant for clients, and returns its JSON.
func (m *MissingTaints) ClientDetails() any { return m }

// untainted completes the error for a request whose taints nobody has. Of what is
// required for reasons of ours only the log tells.
func (n *refusals) untainted(q *Query, e *engine.Error) {
	asked := slices.DeleteFunc(slices.Clone(n.missing), func(taint string) bool { return taint == q.near })
	switch {
	case len(asked) > 0:
		e.Err = &MissingTaints{Missing: asked, pinned: q.pinned()}
	case q.near != "":
		e.Message = fmt.Sprintf("no worker that is ready has all of the required taints %q", q.Require)
	default:
		e.Err = &MissingTaints{Missing: slices.Clone(q.Require), apart: true}
	}
}

// reason makes the error for a request that nobody may serve. What the client
// can do something about comes last, since it holds only for workers that would
// serve otherwise.
func (n *refusals) reason(q *Query) error {
	e := &engine.Error{Kind: engine.Unavailable, Code: CodeAllFiltered}
	switch {
	case n.known == 0:
		return &engine.Error{
			Kind: engine.NotFound, Param: "model", Code: "model_not_found",
			Message: fmt.Sprintf("The model `%s` does not exist", q.Model),
		}
	case q.pinned():
		return n.pinReason(q)
	case n.by[full] > 0:
		e.Kind, e.Code, e.Message = engine.ResourceExhausted, CodeAllOverloaded, "all eligible workers are overloaded"
	case n.by[short] > 0:
		return &engine.Error{
			Kind: engine.InvalidArgument, Param: "messages", Code: "context_length_exceeded",
			Message: fmt.Sprintf("the prompt has %d tokens, and the longest context of a worker that is ready is %d", q.Length(), n.longest),
		}
	case n.by[rankless] > 0:
		e.Message = fmt.Sprintf("no worker that is ready has the rank %d", *q.PinRank)
	case n.by[unadapted] > 0:
		e.Message = fmt.Sprintf("no worker that is ready serves the adapter %q", q.Namespace.LoRA)
	case n.by[untainted] > 0:
		n.untainted(q, e)
	case n.by[tried] > 0:
		e.Message = "no untried eligible worker remains after migration"
	case n.by[inhibited] > 0:
		e.Message = fmt.Sprintf("all workers of model `%s` have failed just now. Please retry shortly.", q.Model)
	case n.by[foreign] > 0:
		e.Message = "no worker that is ready takes blocks in the way of the prefill worker"
	case n.by[forbidden] > 0:
		e.Message = "none of the workers that the request allows is ready"
	default:
		return notReady(q.Model)
	}
	return e
}

func (n *refusals) pinReason(q *Query) error {
	e := &engine.Error{Kind: engine.Unavailable, Code: CodePinnedFiltered, Worker: q.PinWorker}
	switch {
	case n.by[unpinned] == n.known:
		e.Message = fmt.Sprintf("the request is pinned to this worker, and it is not among those of model `%s`", q.Model)
	case n.by[full] > 0:
		e.Kind, e.Code, e.Message = engine.WorkerOverloaded, CodePinnedOverloaded, "the request is pinned to this worker, and it is overloaded"
	case n.by[short] > 0:
		e.Kind, e.Code, e.Param = engine.InvalidArgument, "context_length_exceeded", "messages"
		e.Message = fmt.Sprintf("the prompt has %d tokens, and the worker that the request is pinned to has a context of %d", q.Length(), n.longest)
	case n.by[unadapted] > 0:
		e.Message = fmt.Sprintf("the request is pinned to this worker, and it does not serve the adapter %q", q.Namespace.LoRA)
	case n.by[untainted] > 0:
		n.untainted(q, e)
	case n.by[tried] > 0:
		e.Message = "no untried eligible worker remains after migration"
	case n.by[forbidden] > 0:
		e.Code, e.Message = CodePinnedNotAllowed, "the request is pinned to this worker, and it is not among those that the request allows"
	default:
		e.Message = "the request is pinned to this worker, and it is not ready"
	}
	return e
}

func notReady(model string) error {
	return &engine.Error{
		Kind: engine.Unavailable, Code: CodeAllFiltered, Param: "model",
		Message: fmt.Sprintf("Model `%s` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly.", model),
	}
}

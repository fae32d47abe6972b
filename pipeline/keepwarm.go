package pipeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Most engines have no pins. What a client wants to stay cached there is kept warm: a
// prefix is leased to its worker, and while the lease lasts it is asked for again, for
// one token that nobody sees, when the worker has nothing else to do and the prefix has
// grown old, or is gone. Real work ends that at once.
//
// An engine evicts what was used least lately, so a prefix grows old by what others
// have computed since: an idle worker is left alone.

// KeepWarm says for whom prefixes are kept warm.
type KeepWarm uint8

// Who has prefixes kept warm: those who say so in their extension object, everybody who
// asks for a pin, or nobody. Harnesses mark every request, and that is not saying so.
const (
	KeepWarmOff KeepWarm = iota
	KeepWarmAsked
	KeepWarmAll
)

const (
	longestLease  = time.Hour
	keepWarmEvery = 250 * time.Millisecond
	// warmTime is how long one prefix may take.
	warmTime = 30 * time.Second
	// oldAge is which part of a worker's blocks others have computed since a prefix was
	// used when it is time to use it again.
	oldAge = 0.5
)

// keepWarm leases the prefix that a request wants to stay cached, where it was computed:
// on the prefill worker, if there is one. Not so where both legs run at once: the one token
// for which a prefix is asked for again would take a decode worker's time as well.
func (c *carry) keepWarm() {
	p, r, at := c.p, c.request, c.here
	first := c.booking.plan.Prefill
	if first != nil {
		at = first
	}
	worker, target := at.Worker(), at.Decision().Target
	card := worker.Card()
	switch p.Retention.KeepWarm {
	case KeepWarmOff:
		return
	case KeepWarmAsked:
		if c.pinnedBy != byExtension {
			return
		}
	default:
		if c.pinnedBy == byRetention {
			return // what stays for a day does so in stores of ours
		}
	}
	if r.Background || card == nil || card.Features.Has(engine.FeaturePins) || card.BlockSize == 0 || card.TotalBlocks == 0 || c.door != engine.InputTokens || c.beside != nil {
		return
	}
	size := int(card.BlockSize)
	budget := int(p.Retention.KeepWarmBudget * float64(card.TotalBlocks) * float64(card.Ranks()))
	l := lease{
		worker: worker, life: worker.Lost(), priority: r.KV.Priority, target: target, prefill: first != nil,
		model: r.Notes.Model, namespace: r.KV.Namespace, tenant: cmp.Or(r.Tenant, r.KV.Namespace.Salt), turned: p.warm.turned(target), size: size,
	}
	if card.Ranks() > 1 {
		l.rank = &l.target.Rank
	}
	for _, pin := range askedFor(c.pins) {
		n := min(int(pin.UpTo), len(c.prompt.IDs)) / size
		if pin.TTL == 0 {
			p.warm.drop(l.target, l.namespace, c.prompt.IDs[:n*size])
			continue
		}
		if n = min(n, budget); n > len(l.tokens)/size {
			l.tokens = slices.Clone(c.prompt.IDs[:n*size])
		}
		l.ttl = max(l.ttl, min(pin.TTL, longestLease))
	}
	c.list(card, budget, longestLease)
	if len(l.tokens) == 0 {
		return
	}
	l.until = time.Now().Add(l.ttl)
	if p.warm.add(&l, budget) {
		p.behind.run(p.keepThemWarm)
	}
	r.Notes.Granted.Blocks = uint64(l.blocks())
}

// lease is one prefix that is kept warm on a worker. Its worker, life, place and tokens
// never change, the rest is guarded by the lock of all.
type lease struct {
	worker    *fleet.Worker
	life      context.Context
	target    kv.Target
	rank      *uint32 // nil: there is one
	prefill   bool    // the worker computes prompts for others
	model     string
	namespace kv.Namespace
	tenant    string   // who wants it
	tokens    []uint32 // whole blocks
	size      int      // of a block
	ttl       time.Duration
	// priority is that of the request that wants it, for engines where it protects
	// what is cached.
	priority *int32

	until  time.Time
	turned uint64 // blocks that the worker had computed when the prefix was last used
}

func (l *lease) blocks() int { return len(l.tokens) / l.size }

// within says whether other tokens in its namespace begin with those of a lease.
func (l *lease) within(t kv.Target, ns kv.Namespace, tokens []uint32) bool {
	return l.target == t && l.namespace == ns && len(tokens) >= len(l.tokens) && slices.Equal(l.tokens, tokens[:len(l.tokens)])
}

// warmth is what is kept warm. It is safe for concurrent use.
type warmth struct {
	mu       sync.Mutex
	running  bool // somebody looks after the leases
	leases   []*lease
	computed map[kv.Target]uint64 // blocks
	// stop ends the warming that is going on, which is at one worker at a time.
	stop context.CancelCauseFunc
	at   uint64

	warmed, blocks, cancelled, failed atomic.Int64
}

// add adds a lease in the place of those of which it is the longer form, as long as the
// budget has room for beside what other tenants have a right to. If there is no room for
// all, see [warmth.fitLocked]. It says whether somebody has to begin to look after leases.
func (w *warmth) add(l *lease, budget int) (begin bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases = slices.DeleteFunc(w.leases, func(other *lease) bool {
		if !other.within(l.target, l.namespace, l.tokens) {
			return false
		}
		if len(other.tokens) == len(l.tokens) && other.until.After(l.until) {
			l.until = other.until
		}
		return true
	})
	if !w.fitLocked(l, budget) {
		return false
	}
	w.leases = append(w.leases, l)
	begin, w.running = !w.running, true
	return begin
}

// drop ends the leases of a prefix.
func (w *warmth) drop(t kv.Target, ns kv.Namespace, tokens []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases = slices.DeleteFunc(w.leases, func(l *lease) bool { return l.within(t, ns, tokens) })
}

// turned returns how many blocks a worker has computed.
func (w *warmth) turned(t kv.Target) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.computed[t]
}

var errRealWork = errors.New("the worker has got something else to do")

// work tells that a worker has got a prompt of a client, with so many blocks to compute:
// what is being warmed there stops, and what the prompt begins with was used.
func (w *warmth) work(t kv.Target, ns kv.Namespace, ids []uint32, blocks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil && w.at == t.Worker {
		w.stop(errRealWork)
	}
	w.computeLocked(t, blocks)
	for _, l := range w.leases {
		if l.within(t, ns, ids) {
			l.turned = w.computed[t]
			l.until = time.Now().Add(l.ttl)
		}
	}
}

// generated tells that a worker has computed blocks of an answer.
func (w *warmth) generated(t kv.Target, blocks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.computeLocked(t, blocks)
}

// computeLocked counts blocks, while somebody measures against it. The lock must be held.
func (w *warmth) computeLocked(t kv.Target, blocks int) {
	if len(w.leases) == 0 {
		clear(w.computed)
		return
	}
	if w.computed == nil {
		w.computed = map[kv.Target]uint64{}
	}
	w.computed[t] += uint64(max(0, blocks))
}

// keepThemWarm looks after the leases until there are none.
func (p *Pipeline) keepThemWarm(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(p.Retention.KeepWarmEvery, keepWarmEvery))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			leases := p.warm.lasting(now)
			if leases == nil {
				return
			}
			for _, l := range leases {
				if p.old(ctx, l) {
					p.rewarm(ctx, l)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// lasting returns the leases that last. If there is none, nobody looks after them any
// more.
func (w *warmth) lasting(now time.Time) []*lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases = slices.DeleteFunc(w.leases, func(l *lease) bool { return !l.until.After(now) || l.life.Err() != nil })
	if len(w.leases) == 0 {
		w.running = false
		return nil
	}
	return slices.Clone(w.leases)
}

// old says whether it is time to use a prefix again, and its worker has nothing else to
// do.
func (p *Pipeline) old(ctx context.Context, l *lease) bool {
	if !l.worker.Ready() || !p.idle(l) {
		return false
	}
	card := l.worker.Card()
	if card == nil {
		return false
	}
	p.warm.mu.Lock()
	since := p.warm.computed[l.target] - l.turned
	p.warm.mu.Unlock()
	if since == 0 {
		return false // nobody can have taken its place
	}
	if float64(since) >= oldAge*float64(card.TotalBlocks) {
		return true
	}
	if !card.Features.Has(engine.FeatureEvents) {
		return false
	}
	there, err := p.Router.Advise(ctx, l.query())
	return err == nil && there.Overlap < l.blocks()
}

// idle says whether a worker has nothing to do, as far as is known.
func (p *Pipeline) idle(l *lease) bool {
	for _, load := range p.Router.Loads() {
		if load.Target == l.target && load.Requests > 0 {
			return false
		}
	}
	load, _ := l.worker.Load()
	for _, rank := range load.Ranks {
		if rank.Rank == l.target.Rank && (rank.Running > 0 || rank.Waiting > 0) {
			return false
		}
	}
	return true
}

// query asks where the prefix is.
func (l *lease) query() *router.Query {
	q := &router.Query{Model: l.model, Tokens: l.tokens, Namespace: l.namespace, Background: true, Settled: true, PinWorker: l.target.Worker, PinRank: l.rank}
	if l.prefill {
		q.Role = engine.Prefill
	}
	return q
}

// rewarm lets a worker use a prefix again, unless it gets real work.
func (p *Pipeline) rewarm(ctx context.Context, l *lease) {
	defer func() { // a fault of ours ends this request, and not the process
		if v := recover(); v != nil {
			p.warm.failed.Add(1)
			p.Logger.Error("keeping a prefix warm panicked", "worker", l.worker.Name(), "panic", v, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &p.warm
	w.begin(l.target.Worker, stop)
	defer w.begin(0, nil)
	before := w.turned(l.target)
	for _, err := range p.Run(ctx, l.request()) {
		switch {
		case err == nil:
			continue
		case context.Cause(ctx) == errRealWork:
			w.cancelled.Add(1)
		default:
			w.failed.Add(1)
		}
		p.Logger.Debug("a prefix was not kept warm", "worker", l.worker.Name(), "blocks", l.blocks(), "error", err)
		return
	}
	w.mu.Lock()
	l.turned = max(l.turned, before)
	w.mu.Unlock()
	w.warmed.Add(1)
	w.blocks.Add(int64(l.blocks()))
	p.Logger.Debug("a prefix is kept warm", "worker", l.worker.Name(), "blocks", l.blocks())
}

// begin notes at which worker something is being warmed, and how that is stopped.
func (w *warmth) begin(at uint64, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.stop = at, stop
}

// request returns the prefix as a prompt of which one token is wanted.
func (l *lease) request() *Request {
	worker := nvext.WorkerID(l.target.Worker)
	ext := &nvext.Ext{Placement: nvext.Placement{BackendInstanceID: &worker, DPRank: l.rank}, AgentHints: &nvext.Hints{Priority: new(nvext.PriorityBackground)}}
	if l.prefill {
		ext.Placement = nvext.Placement{PrefillWorkerID: &worker, PrefillDPRank: l.rank}
	}
	return &Request{
		ID: "warm-" + rand.Text(), Background: true, Arrived: time.Now(), Ext: ext,
		KV: kv.Directives{Namespace: l.namespace, Priority: l.priority},
		Chat: &chat.Request{
			API: chat.APICompletions, Model: l.model, Prompt: &chat.Prompt{IDs: l.tokens, NoSpecialTokens: true},
			Sampling: chat.Sampling{MaxTokens: new(1)},
		},
	}
}

// WarmCounts are what was done to keep prefixes warm.
type WarmCounts struct {
	Leases, LeasedBlocks int   // now
	Warmed, Blocks       int64 // prefixes, each time one was used again, and their blocks
	Cancelled, Failed    int64 // by real work, and for another reason
}

// Warm tells what was done to keep prefixes warm.
func (p *Pipeline) Warm() WarmCounts {
	w := &p.warm
	c := WarmCounts{Warmed: w.warmed.Load(), Blocks: w.blocks.Load(), Cancelled: w.cancelled.Load(), Failed: w.failed.Load()}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Leases = len(w.leases)
	for _, l := range w.leases {
		c.LeasedBlocks += l.blocks()
	}
	return c
}

package pipeline

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Pins go to workers with requests. A worker that heeds them says at the end what has
// become of them; one that only has a call for it is told then.

// pinTime is how long an engine may take to pin.
const pinTime = 10 * time.Second

// pinsFor returns the pins of a request for a worker, within what its tenant may hold
// there.
func (j *job) pinsFor(w *fleet.Worker, card *engine.Card, now time.Time) []kv.Pin {
	r := j.request
	if j.index > 0 {
		return nil // the choices have one prompt
	}
	if r.Caps == nil || r.Caps.PinShare == nil || card.TotalBlocks == 0 || card.BlockSize == 0 || j.prompt == nil {
		return r.KV.Pins
	}
	owner := pinOwner{r.Tenant, w.ID()}
	if len(r.KV.Pins) == 0 && !j.p.shares.holds(owner) {
		return nil
	}
	scheme := kv.PublicScheme(int(card.BlockSize), r.KV.Namespace)
	blocks := scheme.AppendSeq(nil, scheme.AppendLocal(nil, j.prompt.IDs))
	most := int(*r.Caps.PinShare * float64(card.TotalBlocks) * float64(card.Ranks()))
	pins, beyond := j.p.shares.within(owner, r.KV.Session.ID, r.KV.Pins, blocks, card.BlockSize, most, now)
	if beyond {
		r.Notes.cap(nvext.CapPinShare)
	}
	return pins
}

// pinOwner is whose pins on which worker have one bound.
type pinOwner struct {
	tenant string
	worker uint64
}

// pinShares are the blocks that tenants hold of workers, as far as they were let:
// workers know no tenants. Blocks count once, whatever prompts begin with them; the
// name of a conversation says nothing of what it holds, for its client makes it up. It
// is safe for concurrent use.
type pinShares struct {
	mu   sync.Mutex
	held map[pinOwner]map[kv.SeqHash]pinHold
}

// pinHold is a block that is held. Who is let go of it is known by its conversation,
// unless several hold it.
type pinHold struct {
	conversation string
	several      bool
	ttl          time.Duration
	until        time.Time
}

// holds says whether somebody may hold something.
func (s *pinShares) holds(owner pinOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held[owner]) > 0
}

// within returns the pins of a prompt of these blocks no longer than there is room for
// beside what else their owner holds, which is that much more from now on. beyond says
// that one was too long. What is held and used again is held anew, as workers do it.
func (s *pinShares) within(owner pinOwner, conversation string, pins []kv.Pin, blocks []kv.SeqHash, size uint32, most int, now time.Time) (out []kv.Pin, beyond bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[owner]
	if held == nil {
		for other := range s.held { // maybe of workers that have left
			s.expireLocked(other, now)
		}
		held = map[kv.SeqHash]pinHold{}
	}
	for _, b := range blocks {
		h, ok := held[b]
		if !ok {
			break
		}
		if h.until.After(now) {
			h.until = now.Add(h.ttl)
			held[b] = h
		}
	}
	for _, pin := range pins {
		reach := blocks[:min(int(pin.UpTo/size), len(blocks))]
		if pin.TTL == 0 {
			for _, b := range reach {
				if h, ok := held[b]; ok && !h.several && h.conversation == conversation {
					delete(held, b)
				}
			}
			out = append(out, pin)
			continue
		}
		for n, b := range reach {
			h, ok := held[b]
			if !ok && len(held) >= most {
				if s.expireLocked(owner, now); len(held) >= most {
					pin.UpTo, beyond = uint32(n)*size, true
					break
				}
			}
			h.several = ok && (h.several || h.conversation != conversation)
			h.conversation = conversation
			if until := now.Add(pin.TTL); until.After(h.until) {
				h.until, h.ttl = until, pin.TTL
			}
			held[b] = h
		}
		if pin.UpTo > 0 {
			out = append(out, pin)
		}
	}
	if s.held == nil {
		s.held = map[pinOwner]map[kv.SeqHash]pinHold{}
	}
	if s.held[owner] = held; len(held) == 0 {
		delete(s.held, owner)
	}
	return out, beyond
}

// expireLocked takes out the blocks that an owner holds no more. The lock must be held.
func (s *pinShares) expireLocked(owner pinOwner, now time.Time) {
	held := s.held[owner]
	for b, h := range held {
		if !h.until.After(now) {
			delete(held, b)
		}
	}
	if len(held) == 0 {
		delete(s.held, owner)
	}
}

// answered sees to the request's pins when a worker has given the whole answer: what
// it says of them is noted, else it is told of them, or their prefix is kept warm.
func (c *carry) answered(d *engine.Delta) {
	worker := c.here.Worker()
	card := worker.Card()
	if card != nil && card.BlockSize > 0 && d.Usage != nil && !c.request.Background {
		c.p.warm.generated(c.here.Decision().Target, d.Usage.Output/int(card.BlockSize))
	}
	if c.request.KV.EvictSession && c.index == 0 {
		c.p.listed.end(c.request)
	}
	if card != nil && (d.Pinned != nil || card.Features.Has(engine.FeaturePins)) {
		c.list(card, math.MaxInt, math.MaxInt64)
	}
	if len(c.pins) == 0 || c.request.Notes.Granted == nil { // its client asks for none
		return
	}
	switch {
	case d.Pinned != nil:
		c.request.Notes.Granted.Blocks = uint64(d.Pinned.Pinned)
		c.p.pinned.outcome(*d.Pinned)
	case card == nil:
	case card.Features.Has(engine.FeaturePins):
		c.tell(worker, card)
	default:
		c.keepWarm()
	}
}

// outcome counts what became of the pins of a request.
func (c *pinning) outcome(r engine.PinResult) {
	if r.Requested == 0 {
		return
	}
	switch r.Outcome() {
	case "full":
		c.full.Add(1)
	case "partial":
		c.partial.Add(1)
	default:
		c.denied.Add(1)
	}
}

// tell pins on an engine that has a call for it, and does not wait.
func (c *carry) tell(worker *fleet.Worker, card *engine.Card) {
	pinner, ok := engine.As[engine.Pinner](worker.Engine())
	if !ok {
		return
	}
	r, p := c.request, c.p
	q := engine.PinRequest{Namespace: r.KV.Namespace}
	if r.KV.Session.ID != "" {
		q.Session = kv.SessionKey{Model: r.Notes.Model, Salt: r.KV.Namespace.Salt, ID: r.KV.Session.ID}
	}
	if card.Ranks() > 1 {
		q.Rank = new(c.here.Decision().Target.Rank)
	}
	pins, ids, id := askedFor(c.pins), c.prompt.IDs, r.ID
	p.behind.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pinTime)
		defer cancel()
		var all engine.PinResult
		for _, pin := range pins {
			q.TokenIDs, q.TTL, q.Hard = ids[:min(int(pin.UpTo), len(ids))], pin.TTL, pin.Hard
			got, err := pinner.Pin(ctx, q)
			if err != nil {
				p.pinned.failed.Add(1)
				p.Logger.Warn("a prefix was not pinned", "request", id, "worker", worker.Name(), "error", err)
				return
			}
			if pin.TTL > 0 {
				all.Requested, all.Pinned = max(all.Requested, got.Requested), max(all.Pinned, got.Pinned)
			}
		}
		p.pinned.outcome(all)
		p.Logger.Debug("a prefix was pinned", "request", id, "worker", worker.Name(), "requested", all.Requested, "pinned", all.Pinned)
	})
}

// PinCounts are what became of wishes to pin since the start.
type PinCounts struct {
	// Requests that asked: by the extension, by marks at blocks, and by
	// prompt_cache_retention.
	ByExtension, ByBlocks, ByRetention int64
	// What workers said of the pins of a request: all blocks are pinned, some of them,
	// or none; or that they failed.
	Full, Partial, Denied, Failed int64
	// RangesLeft are ranges of retention that were about nothing that a model has been
	// shown, such as messages that a prompt had no room for.
	RangesLeft int64
}

// Pins returns what became of wishes to pin so far.
func (p *Pipeline) Pins() PinCounts {
	c := &p.pinned
	return PinCounts{
		ByExtension: c.nvext.Load(), ByBlocks: c.blocks.Load(), ByRetention: c.retention.Load(),
		Full: c.full.Load(), Partial: c.partial.Load(), Denied: c.denied.Load(), Failed: c.failed.Load(),
		RangesLeft: c.left.Load(),
	}
}

// works tells what is kept warm that a worker has got something to do.
func (j *job) works(b *router.Booking) {
	if j.request.Background || j.door == engine.InputChat {
		return
	}
	d := b.Decision()
	j.p.warm.work(d.Target, j.request.KV.Namespace, j.prompt.IDs, d.Blocks-d.Overlap)
}

// granted returns what is told of the pins that a client has asked for in its
// extension, ahead of the end of the answer.
func (j *job) granted(e *chat.Event) (chat.Event, bool) {
	g := j.request.Notes.Granted
	if e.Kind != chat.Finished || j.index > 0 || j.pinnedBy != byExtension || g == nil {
		return chat.Event{}, false
	}
	text := fmt.Sprintf(`{"granted_ttl_s":%d,"pinned_blocks":%d}`, g.TTL, g.Blocks)
	return chat.Event{Kind: chat.Aside, Choice: e.Choice, Reason: nvext.MemberCacheControl, Text: text}, true
}

package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// mostPinned is how many pins operators can see, of some 300 bytes each.
const mostPinned = 8192

// PinInfo is a prefix that a request has had pinned, or that is kept warm, as far as
// this server knows: an engine may have let go of it since.
type PinInfo struct {
	Model, Tenant, Session string
	Target                 kv.Target
	Hash                   kv.SeqHash // of its last block, as prefixes are named here
	Blocks                 int
	Until                  time.Time
	By                     string // nvext, blocks, prompt_cache_retention or hold
	Warm                   bool   // it is kept warm, since the engine has no pins
}

// pinKey is by what a pin is known.
type pinKey struct {
	target kv.Target
	tenant string
	hash   kv.SeqHash
}

// pinList are the pins that operators can see. It is safe for concurrent use.
type pinList struct {
	mu    sync.Mutex
	known map[pinKey]PinInfo
	of    map[string]int // by tenant
}

// add enters a pin, and lets go of that which ends first, of the tenant that has most,
// if there are too many.
func (l *pinList) add(p PinInfo) {
	key := pinKey{p.Target, p.Tenant, p.Hash}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known, l.of = map[pinKey]PinInfo{}, map[string]int{}
	}
	if was, ok := l.known[key]; ok {
		if was.Until.After(p.Until) {
			p.Until = was.Until
		}
	} else {
		l.of[p.Tenant]++
	}
	l.known[key] = p
	if len(l.known) > mostPinned {
		l.thinLocked(time.Now())
	}
}

// thinLocked takes out what has ended, and if that is nothing a sixteenth of the list,
// of the tenant that has most: to look for one at a time would take as long. The lock
// must be held.
func (l *pinList) thinLocked(now time.Time) {
	var most string
	for tenant, n := range l.of {
		if n > l.of[most] {
			most = tenant
		}
	}
	var own []pinKey
	for key, p := range l.known {
		switch {
		case !p.Until.After(now):
			l.dropLocked(key)
		case p.Tenant == most:
			own = append(own, key)
		}
	}
	if len(l.known) <= mostPinned {
		return
	}
	slices.SortFunc(own, func(a, b pinKey) int { return l.known[a].Until.Compare(l.known[b].Until) })
	for _, key := range own[:min(len(own), mostPinned/16)] {
		l.dropLocked(key)
	}
}

func (l *pinList) dropLocked(key pinKey) {
	tenant := l.known[key].Tenant
	delete(l.known, key)
	if l.of[tenant]--; l.of[tenant] == 0 {
		delete(l.of, tenant)
	}
}

// unpin lets go of what a session has pinned of a prompt of these blocks.
func (l *pinList) unpin(target kv.Target, tenant, session string, blocks []kv.SeqHash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range blocks {
		key := pinKey{target, tenant, h}
		if p, ok := l.known[key]; ok && p.Session == session {
			l.dropLocked(key)
		}
	}
}

// end lets go of what the session of a request has pinned, which ends with it.
func (l *pinList) end(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tenant := tenantOf(r)
	if r.KV.Session.ID == "" || l.of[tenant] == 0 {
		return
	}
	for key, p := range l.known {
		if p.Session == r.KV.Session.ID && p.Tenant == tenant && p.Model == r.Notes.Model {
			l.dropLocked(key)
		}
	}
}

// list returns those that have not ended, by model, tenant, session and target.
func (l *pinList) list(model string, now time.Time) []PinInfo {
	l.mu.Lock()
	list := []PinInfo{}
	for _, p := range l.known {
		if p.Until.After(now) && (model == "" || p.Model == model) {
			list = append(list, p)
		}
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b PinInfo) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Session, b.Session), a.Target.Compare(b.Target), cmp.Compare(a.Blocks, b.Blocks), cmp.Compare(a.Hash, b.Hash))
	})
	return list
}

// PinList returns the prefixes of a model, or of all models if it is "", that are
// pinned or kept warm as far as this server knows.
func (p *Pipeline) PinList(model string) []PinInfo { return p.listed.list(model, time.Now()) }

// SessionList returns the sessions of a model, or of all models if it is "", that are
// bound to workers.
func (p *Pipeline) SessionList(model string) []router.SessionInfo { return p.Router.SessionList(model) }

// Holders returns who has told that it holds a block.
func (p *Pipeline) Holders(block kv.EngineHash) []router.Holding { return p.Router.Holders(block) }

// list notes, for operators, the pins that a request has for a worker, no longer than
// so many blocks and so much time.
func (c *carry) list(card *engine.Card, most int, longest time.Duration) {
	if card.BlockSize == 0 || len(c.pins) == 0 {
		return
	}
	r, now, target, owner := c.request, time.Now(), c.here.Decision().Target, tenantOf(c.request)
	scheme := kv.PublicScheme(int(card.BlockSize), r.KV.Namespace)
	blocks := scheme.AppendSeq(nil, scheme.AppendLocal(nil, c.prompt.IDs))
	for _, pin := range c.pins {
		n := min(int(pin.UpTo/card.BlockSize), len(blocks), most)
		if n == 0 {
			continue
		}
		if pin.TTL == 0 {
			c.p.listed.unpin(target, owner, r.KV.Session.ID, blocks[:n])
			continue
		}
		by := c.pinnedBy
		if isHold(pin) {
			by = byHold
		}
		c.p.listed.add(PinInfo{
			Model: r.Notes.Model, Tenant: owner, Session: r.KV.Session.ID, Target: target,
			Hash: blocks[n-1], Blocks: n, Until: now.Add(min(pin.TTL, longest)), By: by,
			Warm: !card.Features.Has(engine.FeaturePins),
		})
	}
}

// tenantOf returns whose a request is: of who owns its key, or else of its salt.
func tenantOf(r *Request) string { return cmp.Or(r.Tenant, r.KV.Namespace.Salt) }

// byHold says that operators hold the sessions that clients have open.
const byHold = "hold"

package kvcache_test

import (
	"maps"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// manager is the model of a registry: a plant, whose pools have models of their own
// in TestAnyHistory, and beside it what is to be written where, in lists that are
// searched from end to end. It says before each step what the registry will do,
// and why it will leave the rest.
type manager struct {
	*plant
	cfg      kvcache.Config
	ways     []kvcache.Edge // downwards, in order
	queues   map[kvcache.Edge][]waiting
	skipped  map[kvcache.Edge]*[kvcache.Skips]int64
	closing  map[kvcache.Edge]*closing // ways down
	fetching [4]*closing               // ways up, by where they come from
	seen     map[kv.SeqHash]int        // by the filter of the disk
	decay    time.Duration
	wishes   map[kv.SeqHash]map[kvcache.SessionID]time.Duration // until when
	promoted []kvcache.Ref
	lifted   map[kv.SeqHash]bool  // is to go by way of the host
	direct   map[kv.SeqHash]bool  // is not to
	wanted   map[kv.SeqHash]uint8 // is to have this priority when it is loaded
	turns    []turn
	ahead    []kvcache.PrefetchID

	generation [4]uint64 // when the tiers were last looked at
	held       [4]map[kv.SeqHash]bool
}

// waiting is a block in a queue.
type waiting struct {
	h        kv.SeqHash
	priority uint8
}

// closing is what a way does after errors.
type closing struct{ until, pause time.Duration }

func (c *closing) judge(now time.Duration, faults []kvcache.Fault) {
	if slices.Contains(faults, kvcache.Unreachable) {
		c.pause = min(30*time.Second, max(100*time.Millisecond, 2*c.pause))
		c.until = now + c.pause
	} else if !slices.Contains(faults, kvcache.Lost) {
		c.pause = 0
	}
}

func newManager(p *plant, cfg kvcache.Config) *manager {
	m := &manager{
		plant: p, cfg: cfg,
		queues: map[kvcache.Edge][]waiting{}, skipped: map[kvcache.Edge]*[kvcache.Skips]int64{}, closing: map[kvcache.Edge]*closing{},
		seen: map[kv.SeqHash]int{}, decay: 600 * time.Second, wishes: map[kv.SeqHash]map[kvcache.SessionID]time.Duration{},
		lifted: map[kv.SeqHash]bool{}, direct: map[kv.SeqHash]bool{}, wanted: map[kv.SeqHash]uint8{},
	}
	for k := range m.fetching {
		m.fetching[k] = &closing{}
	}
	for _, w := range p.r.Ways() {
		if e := w.Edge; e.From < e.To {
			m.ways = append(m.ways, e)
			m.skipped[e], m.closing[e] = &[kvcache.Skips]int64{}, &closing{}
		}
	}
	return m
}

// worth is what a record and a class say of a block.
type worth struct {
	kvcache.Record
	class    kvcache.Class
	priority uint8 // of its place in a queue
	known    uint8 // that was asked for
	pinned   bool
}

func (m *manager) worth(k kv.Tier, h kv.SeqHash) worth {
	pool := m.tiers[k].Pool()
	ref, ok := pool.Find(h)
	if !ok {
		m.fatalf("the %s tier has lost block %d", k, h)
	}
	w := worth{Record: pool.Record(ref, m.cfg.Zero), class: pool.Class(ref)}
	w.priority = w.Priority
	if w.Priority != kvcache.Neutral {
		w.known = w.Priority
	}
	if w.HardPin || w.SoftPin {
		w.pinned, w.priority, w.known = true, kvcache.MaxPriority, kvcache.MaxPriority
	}
	return w
}

// there says whether a tier has a block in any slot, or will.
func (m *manager) there(k kv.Tier, h kv.SeqHash) bool {
	_, ok := m.tiers[k].Pool().Find(h)
	return ok || m.r.Moving(k, h)
}

// offer queues a block on the ways down from a tier, or counts why it does not.
func (m *manager) offer(from kv.Tier, h kv.SeqHash, w worth, stopped bool) {
	for _, e := range m.ways {
		if e.From != from {
			continue
		}
		queued := slices.ContainsFunc(m.queues[e], func(q waiting) bool { return q.h == h })
		var skip *int64
		switch {
		case w.Ephemeral:
			skip = &m.skipped[e][kvcache.SkipEphemeral]
		case queued || m.there(e.To, h):
			skip = &m.skipped[e][kvcache.SkipPresent]
		case w.SkipWrite:
			skip = &m.skipped[e][kvcache.SkipForbidden]
		case m.down[e.To]:
			skip = &m.skipped[e][kvcache.SkipDown]
		case stopped:
			skip = &m.skipped[e][kvcache.SkipPriority]
		case !w.pinned && e.To == kv.TierDisk && m.cfg.DiskFilter != nil && !m.pass(h):
			skip = &m.skipped[e][kvcache.SkipFrequency]
		case len(m.queues[e]) >= m.cfg.Ways[e].Queue:
			skip = &m.skipped[e][kvcache.SkipOverflow]
		default:
			m.queues[e] = append(m.queues[e], waiting{h, w.priority})
			continue
		}
		*skip++
	}
}

func (m *manager) pass(h kv.SeqHash) bool {
	for ; m.now >= m.decay; m.decay += 600 * time.Second {
		for h := range m.seen {
			if m.seen[h]--; m.seen[h] == 0 {
				delete(m.seen, h)
			}
		}
	}
	m.seen[h] = max(1, 2*m.seen[h])
	return m.seen[h] > 1
}

// writeThrough offers what one request has computed.
func (m *manager) writeThrough(seq []kv.SeqHash) {
	stopped := false
	for _, h := range seq {
		w := m.worth(kv.TierDevice, h)
		stopped = stopped || w.known < m.cfg.MinPriority
		m.offer(kv.TierDevice, h, w, stopped && !w.pinned)
	}
}

// watch notes which blocks of a sequence somebody else turns out to want.
func (m *manager) watch(seq []kv.SeqHash, during func()) {
	pool, unwritten := m.device().Pool(), map[kvcache.Ref]kv.SeqHash{}
	for _, h := range seq {
		if ref, ok := pool.Find(h); ok && pool.SkipWrite(ref) {
			unwritten[ref] = h
		}
	}
	during()
	for _, h := range seq {
		ref, ok := pool.Find(h)
		if ok && unwritten[ref] == h && !pool.SkipWrite(ref) && len(m.promoted) < pool.Stats().Total {
			m.promoted = append(m.promoted, ref)
		}
	}
}

// begin runs a request of a session, or of none, that computes what the device has
// not, with a wish for each block.
func (m *manager) begin(id kvcache.SessionID, o kvcache.SessionOptions, seq []kv.SeqHash, wishes []int) {
	pool := m.device().Pool()
	if id > 0 {
		pool.BeginTurn(id, o, seq)
	}
	var refs []kvcache.Ref
	m.watch(seq, func() { refs = m.device().Match(id, nil, seq) })
	found := len(refs)
	refs, ok := m.device().Allocate(refs, len(seq)-found)
	if !ok {
		m.device().Release(refs)
		if id > 0 {
			pool.EndTurn(id, nil)
		}
		return
	}
	m.watch(seq[found:], func() {
		for i := found; i < len(seq); i++ {
			parent := kvcache.Root
			if i > 0 {
				parent = refs[i-1]
			}
			m.bytes[0][refs[i]] = seq[i]
			m.device().Register(refs[i], numbered(seq[i]), parent)
			switch w := wishes[i%len(wishes)]; w {
			case kvcache.Neutral:
			case secret:
				pool.SetSkipWrite(refs[i])
			default:
				pool.Retain(refs[i], kvcache.Retention{Priority: uint8(w)})
			}
			delete(m.wanted, seq[i])
		}
		if id > 0 {
			pool.Tag(id, refs[found:])
		}
	})
	m.writeThrough(seq[found:])
	m.r.WriteThrough(m.now, refs[found:])
	m.turns = append(m.turns, turn{id, refs})
}

// secret is a wish not to be written anywhere; others are priorities.
const secret = -1

func (m *manager) end(k int) {
	x := m.turns[k]
	m.turns = slices.Delete(m.turns, k, k+1)
	var seq []kv.SeqHash
	for _, ref := range x.refs {
		seq = append(seq, m.device().Pool().Hash(ref))
	}
	if x.id > 0 {
		m.watch(seq, func() { m.device().Pool().EndTurn(x.id, x.refs) })
	}
	m.device().Release(x.refs)
}

// room returns the class of what the next block on a tier would push out, if it may.
func (m *manager) room(k kv.Tier) (least kvcache.Class, ok bool) {
	pool := m.tiers[k].Pool()
	s := pool.Stats()
	if s.Free > 0 {
		return kvcache.Ephemeral, true
	}
	parents := map[kvcache.Ref]bool{}
	for run := range pool.Chains() {
		for _, ref := range run {
			parents[pool.Parent(ref)] = true
		}
	}
	for ref := range kvcache.Ref(s.Total) {
		if pool.State(ref) != kvcache.Inactive || parents[ref] {
			continue
		}
		if c := pool.Class(ref); c < kvcache.SoftPinned && (!ok || c < least) {
			least, ok = c, true
		}
	}
	return least, ok
}

// classes says what lies in the slots of the tiers, and what it is worth.
func (m *manager) classes() (out [4]map[kv.SeqHash]kvcache.Class) {
	for k, t := range m.tiers {
		out[k] = map[kv.SeqHash]kvcache.Class{}
		if t == nil {
			continue
		}
		for run := range t.Pool().Chains() {
			for _, ref := range run {
				out[k][t.Pool().Hash(ref)] = t.Pool().Class(ref)
			}
		}
	}
	return out
}

// kept fails if a tier has lost a block of more than a class.
func (m *manager) kept(doing string, k kv.Tier, before map[kv.SeqHash]kvcache.Class, most kvcache.Class) {
	for h, c := range before {
		if _, there := m.tiers[k].Pool().Find(h); !there && (c > most || c >= kvcache.SoftPinned) {
			m.fatalf("%s: the %s tier has lost block %d, which is %s, for one that is %s", doing, k, h, c, most)
		}
	}
}

// start foretells which writes begin.
func (m *manager) start() {
	for _, ref := range m.promoted {
		if b := m.device().Block(ref); b.Hash != 0 {
			m.writeThrough([]kv.SeqHash{b.Hash})
		}
	}
	m.promoted = nil
	before, busy, there := m.classes(), map[kvcache.Edge]int{}, map[kvcache.Edge]map[kv.SeqHash]bool{}
	var room [4]kvcache.Class
	var hasRoom [4]bool
	for _, x := range m.under {
		busy[x.Edge]++
	}
	for _, e := range m.ways {
		there[e] = map[kv.SeqHash]bool{}
		for _, q := range m.queues[e] {
			there[e][q.h] = m.there(e.To, q.h)
		}
		room[e.To], hasRoom[e.To] = m.room(e.To)
	}
	old := len(m.under)
	m.plant.start()
	begun := map[kvcache.Edge][]kv.SeqHash{}
	for _, x := range m.under[old:] {
		for _, c := range x.Copies {
			begun[x.Edge] = append(begun[x.Edge], c.Block.Hash)
		}
		if x.Edge.From > x.Edge.To {
			m.up(x, busy[x.Edge])
		}
	}
	for _, e := range m.ways {
		var want []kv.SeqHash
		most := kvcache.Ephemeral
		for busy[e] == 0 && m.closing[e].until <= m.now && len(m.queues[e]) > 0 && len(want) == 0 {
			q := slices.MaxFunc(m.queues[e], func(a, b waiting) int { return int(a.priority) - int(b.priority) })
			m.queues[e] = slices.DeleteFunc(m.queues[e], func(r waiting) bool { return r == q })
			var skip *int64
			switch {
			case there[e][q.h]:
				skip = &m.skipped[e][kvcache.SkipPresent]
			case m.down[e.To]:
				skip = &m.skipped[e][kvcache.SkipDown]
			case !m.tiers[e.From].Has(q.h):
				skip = &m.skipped[e][kvcache.SkipGone]
			default:
				w := m.worth(e.From, q.h)
				if m.wished(q.h) {
					w.class, w.Ephemeral = kvcache.SoftPinned, false
				}
				most = w.class
				switch {
				case w.Ephemeral:
					skip = &m.skipped[e][kvcache.SkipEphemeral]
				case !hasRoom[e.To] || room[e.To] > w.class:
					skip = &m.skipped[e][kvcache.SkipSpace]
				default:
					want = []kv.SeqHash{q.h}
					continue
				}
			}
			*skip++
		}
		if !slices.Equal(begun[e], want) {
			m.fatalf("%s begins to write %v, want %v", e, begun[e], want)
		}
		if len(want) > 0 {
			m.kept("writing", e.To, before[e.To], most)
		}
	}
	m.counted()
}

// finish foretells what follows from the end of a transfer.
func (m *manager) finish(x *kvcache.Transfer, faults []kvcache.Fault) {
	down := x.Edge.From < x.Edge.To
	gate := m.fetching[x.Edge.From]
	if down {
		gate = m.closing[x.Edge]
	}
	gate.judge(m.now, faults)
	target := m.tiers[x.Edge.To].Pool()
	var worths []worth
	for _, c := range x.Copies {
		worths = append(worths, m.worth(x.Edge.From, c.Block.Hash))
	}
	m.watch(everything, func() { m.plant.finish(x, faults) })
	for i, c := range x.Copies {
		if faults != nil && faults[i] != kvcache.Arrived {
			if faults[i] == kvcache.Lost && m.tiers[x.Edge.From].Has(c.Block.Hash) {
				m.fatalf("the %s tier still has block %d, which is lost", x.Edge.From, c.Block.Hash)
			}
			m.forgetPlans()
			continue
		}
		if x.Edge.To == kv.TierDevice {
			continue
		}
		ref, ok := target.Find(c.Block.Hash)
		if !ok {
			m.fatalf("block %d has not arrived on the %s tier", c.Block.Hash, x.Edge.To)
		}
		if got, want := target.Record(ref, m.cfg.Zero), worths[i].Record; got.Priority != want.Priority || got.SkipWrite != want.SkipWrite && !got.Ephemeral {
			m.fatalf("block %d comes to the %s tier as %+v, it was %+v", c.Block.Hash, x.Edge.To, got, want)
		}
		if want := m.wished(c.Block.Hash) && m.mayPin(x.Edge.To, c.Block); down && want && target.Class(ref) < kvcache.SoftPinned {
			m.fatalf("block %d was to be pinned on the %s tier and is %s", c.Block.Hash, x.Edge.To, target.Class(ref))
		}
		if down {
			m.offer(x.Edge.To, c.Block.Hash, worths[i], false)
		}
	}
	m.counted()
}

// wished says whether anybody wants a block pinned.
func (m *manager) wished(h kv.SeqHash) bool {
	for _, until := range m.wishes[h] {
		if until > m.now {
			return true
		}
	}
	return false
}

// mayPin says whether a tier certainly has room for one more pin, and the parent is
// pinned.
func (m *manager) mayPin(k kv.Tier, b kvcache.Block) bool {
	pool := m.tiers[k].Pool()
	used, budget := pool.PinBudget()
	if used >= budget || pool.Stats().Free == 0 {
		return false
	}
	up, ok := pool.Find(b.Parent)
	return b.Parent == 0 || ok && pool.Class(up) >= kvcache.SoftPinned
}

// counted compares what was left and why.
func (m *manager) counted() {
	for _, w := range m.r.Ways() {
		if w.Edge.From > w.Edge.To {
			continue
		}
		if got, want := w.Skipped, *m.skipped[w.Edge]; got != want || w.Waiting != len(m.queues[w.Edge]) {
			m.fatalf("%s has left %v, and %d wait; want %v and %v", w.Edge, got, w.Waiting, want, m.queues[w.Edge])
		}
	}
}

func (m *manager) wait(until time.Duration) {
	m.now = max(m.now, until)
	m.watch(everything, func() {
		m.r.Advance(m.now)
		m.settled()
	})
}

// changed fails if a tier holds other blocks than before and is none the older.
func (m *manager) changed() {
	for k, t := range m.tiers {
		if t == nil {
			continue
		}
		held := map[kv.SeqHash]bool{}
		for _, h := range everything {
			if t.Has(h) {
				held[h] = true
			}
		}
		if t.Generation() == m.generation[k] && !maps.Equal(held, m.held[k]) {
			m.fatalf("the %s tier has %v in place of %v, and the same generation", kv.Tier(k), held, m.held[k])
		}
		m.held[k] = held
	}
}

package kvcache_test

import (
	"maps"
	"slices"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// forgetPlans takes back what was foretold of loads: after an error they look anew.
func (m *manager) forgetPlans() {
	clear(m.lifted)
	clear(m.direct)
	clear(m.wanted)
}

// up checks a transfer that brings blocks up.
func (m *manager) up(x *kvcache.Transfer, busy int) {
	if busy > 0 || m.fetching[x.Edge.From].until > m.now {
		m.fatalf("%s begins beside %d others, while it is closed until %v", x.Edge, busy, m.fetching[x.Edge.From].until)
	}
	for _, c := range x.Copies {
		h := c.Block.Hash
		if x.Edge.To == kv.TierHost && m.cfg.NoReadThrough && len(m.ahead) == 0 {
			m.fatalf("block %d is loaded by way of the host", h)
		}
		if x.Edge.To == kv.TierDevice && x.Edge.From > kv.TierHost && m.lifted[h] {
			m.fatalf("block %d does not come by way of the host, which has room", h)
		}
		if x.Edge.To == kv.TierHost && m.direct[h] {
			m.fatalf("block %d comes by way of the host, and is ephemeral", h)
		}
		delete(m.lifted, h)
		delete(m.direct, h)
	}
}

// fetch is a request that loads, and foretells what comes by way of the host.
func (m *manager) fetch(seq []kv.SeqHash) {
	present, _ := m.device().Pool().Prefix(seq)
	rest := seq[present:]
	reach := m.foretell(rest)
	if got := m.r.Reach(m.now, rest); got != reach {
		m.fatalf("in reach of %v: %+v, want %+v", rest, got, reach)
	}
	below := reach.From[kv.TierDisk] + reach.From[kv.TierShared]
	through := m.tiers[kv.TierHost] != nil && !m.cfg.NoReadThrough && !m.down[kv.TierHost] && m.fetching[kv.TierHost].until <= m.now &&
		m.tiers[kv.TierHost].Pool().Stats().Free >= below
	lifted, wanted := map[kv.SeqHash]bool{}, map[kv.SeqHash]uint8{}
	for _, h := range rest[:reach.Blocks] {
		k := m.source(h, kv.TierDevice)
		w := m.worth(k, h)
		lifted[h] = through && k > kv.TierHost && !w.Ephemeral && !m.r.Moving(kv.TierDevice, h)
		if k > kv.TierDevice && !m.r.Moving(kv.TierDevice, h) && !m.r.Moving(kv.TierHost, h) {
			wanted[h] = w.Priority
			m.direct[h] = w.Ephemeral
		}
	}
	promised := rest[:m.load(seq)]
	if len(m.loads) > 0 {
		maps.Copy(m.lifted, lifted)
		maps.Copy(m.wanted, wanted)
	}
	for _, x := range m.under {
		h := x.Copies[0].Block.Hash
		waited := x.Edge.To == kv.TierDevice || !m.r.Moving(kv.TierDevice, h)
		if x.Background && waited && slices.Contains(promised, h) {
			m.fatalf("block %d, which someone waits for, is in the background", h)
		}
	}
}

// load is plant's, and looks at what it wakes.
func (m *manager) load(seq []kv.SeqHash) (blocks int) {
	m.watch(seq, func() { _, blocks = m.plant.load(seq) })
	return blocks
}

// source is the fastest tier that can give a block.
func (m *manager) source(h kv.SeqHash, least kv.Tier) kv.Tier {
	for k := least; k <= kv.TierShared; k++ {
		if m.tiers[k] != nil && m.tiers[k].Has(h) && !m.down[k] && (k == kv.TierDevice || m.fetching[k].until <= m.now) {
			return k
		}
	}
	return kv.TierShared + 1
}

// foretell says what is in reach.
func (m *manager) foretell(seq []kv.SeqHash) (want kvcache.Reach) {
	least := kv.TierDevice
	for _, h := range seq {
		k := m.source(h, least)
		if k > kv.TierShared {
			break
		}
		want.Blocks++
		want.From[k]++
		if m.cfg.Contiguous {
			least = k
		}
	}
	return want
}

// loaded looks at the priorities of what is on the device now.
func (m *manager) loaded() {
	pool := m.device().Pool()
	for h, want := range m.wanted {
		ref, ok := pool.Find(h)
		if !ok || m.r.Moving(kv.TierDevice, h) {
			continue
		}
		if got := pool.Record(ref, m.cfg.Zero).Priority; got != want {
			m.fatalf("block %d is loaded with priority %d, it had %d", h, got, want)
		}
		delete(m.wanted, h)
	}
}

// prefetch begins one, which pushes nothing out that anybody asked to keep.
func (m *manager) prefetch(req kvcache.PrefetchRequest) {
	before := m.classes()
	budget := int(m.cfg.PrefetchShare * float64(m.device().Pool().Stats().Total))
	s := m.r.PrefetchStats()
	m.ahead = append(m.ahead, m.r.Prefetch(m.now, req).ID)
	m.settled()
	m.kept("prefetching", kv.TierDevice, before[0], kvcache.Plain)
	if got := m.r.PrefetchStats(); got.Unread+got.Reserved > max(budget, s.Unread+s.Reserved) {
		m.fatalf("prefetches hold %+v of %d blocks", got, budget)
	}
}

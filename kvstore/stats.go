package kvstore

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// Stats is what a server holds at one moment, and what it has done in its life.
type Stats struct {
	Uptime               time.Duration
	Clients, MaxClients  int
	Accepted, Refused    int64 // connections
	Receiving            int64 // bytes of values that are on their way
	BytesIn, BytesOut    int64 // bytes of values that came and went
	Commands             []CommandStats
	Hits, Misses         int64
	Stored, Replaced     int64        // values written, and those of them that were there
	EvictedAs            []ClassCount // by why they were the next to go
	Evicted, Expired     int64        // values; a pair is one
	Corrupt              int64
	Full, Denied         int64 // values refused: no room, no quota
	Orphans              int64 // metadata that came after its bytes had gone
	Busy                 int64 // values that were there, but no memory to send them
	Looked, Found        int64 // keys that EXISTS asked for, and those that were there
	PrefixAsked          int64 // hashes that KV.PREFIX asked for
	PrefixFound          int64 // and those that began a prompt
	PinsFull, PinsDenied int64
	// Values of prefetches that were in memory, that were nowhere, and that left it
	// before anybody asked for them.
	PrefetchAlready, PrefetchMissing, PrefetchWasted int64
	Namespaces                                       []NamespaceStats
	Tiers                                            []TierStats // the fastest first
}

// CommandStats counts the calls of one command, and those of them that were
// answered with an error.
type CommandStats struct {
	Name          string
	Calls, Failed int64
}

// ClassCount counts values of one class of eviction.
type ClassCount struct {
	Class  kvcache.Class
	Values int64
}

// NamespaceStats is what one namespace holds.
type NamespaceStats struct {
	Name         string
	Keys, Values int // a pair is two keys and one value
	Expiring     int // values that have a time to live
	Sessions     int
	// SessionValues are those tagged with sessions, by their state; one of several
	// sessions counts with each.
	SessionValues [kvcache.SessionClosing + 1]int
	// RetentionExpired is how often priorities and pins came to their end.
	RetentionExpired int64
	Leased           int // values that were read so recently that they are kept
	Used, Capacity   int64
	Quota            int64 // 0 = none
	Deny             bool
	Pinned           int64 // bytes
	PinBudget        int64
}

// Stats returns what is known of all namespaces.
func (s *Server) Stats() Stats {
	st := s.cache.stats()
	s.mu.Lock()
	st.Uptime = s.opts.Now().Sub(s.began)
	st.Clients, st.MaxClients = len(s.conns), s.opts.MaxConns
	st.Accepted, st.Refused, st.Receiving = s.accepted, s.refused, s.pending
	s.mu.Unlock()
	s.traffic.fill(&st)
	return st
}

func (c *cache) stats() Stats {
	c.begin()
	defer c.mu.Unlock()
	n := c.counts
	st := Stats{
		Hits: n.hits, Misses: n.misses, Stored: n.stored, Replaced: n.replaced, Evicted: n.evicted, Expired: n.expired,
		Corrupt: n.corrupt, Full: n.full, Denied: n.denied, Orphans: n.orphans, Busy: n.busy,
		PrefetchAlready: n.aheadAlready, PrefetchMissing: n.aheadMissing, PrefetchWasted: n.wasted,
	}
	for class, values := range n.evictedAs {
		st.EvictedAs = append(st.EvictedAs, ClassCount{kvcache.Class(class), values})
	}
	for i, t := range c.tiers {
		ts := t.stats()
		for _, sp := range c.spaces {
			soft, hard := sp.shelves[i].order.PinnedBlocks()
			ts.SoftPins += soft
			ts.HardPins += hard
		}
		st.Tiers = append(st.Tiers, ts)
	}
	for _, sp := range c.spaces {
		st.Namespaces = append(st.Namespaces, sp.stats())
	}
	return st
}

func (sp *space) stats() NamespaceStats {
	st := NamespaceStats{
		Name: sp.Name, Keys: sp.keys, Values: len(sp.names), Expiring: len(sp.dues), Sessions: sp.order.Sessions(),
		Leased: sp.leases.count, Used: sp.used, Capacity: sp.may, Quota: sp.Quota, Deny: sp.Deny,
	}
	st.Pinned, st.PinBudget = sp.order.PinBudget()
	st.RetentionExpired = sp.order.Expired()
	sp.order.EachSession(func(_ kvcache.SessionID, state kvcache.SessionState, values int) { st.SessionValues[state] += values })
	return st
}

// held calls take with all that lies in the tiers, in the form of changes, while
// nothing comes or goes.
func (s *Server) held(take func(all []Change)) {
	c := s.cache
	c.begin()
	defer c.mu.Unlock()
	var all []Change
	for _, sp := range c.spaces {
		for _, u := range sp.names {
			for p, at := range u.at {
				for ; at != 0; at = at.minus(at.first()) {
					all = append(all, Change{sp.Name, u.clientKey(part(p)), c.tiers[at.first()].Name, true, u.size[p]})
				}
			}
		}
	}
	take(all)
}

// traffic counts what clients ask for, without a lock.
type traffic struct {
	commands              map[string]*calls // complete from the beginning
	in, out               atomic.Int64
	looked, found         atomic.Int64
	asked, led            atomic.Int64 // of KV.PREFIX
	pinsFull, pinsRefused atomic.Int64
}

type calls struct{ all, failed atomic.Int64 }

// unknownCommand is under which name those are counted that are none.
const unknownCommand = "unknown"

func newTraffic() *traffic {
	t := &traffic{commands: map[string]*calls{unknownCommand: {}}}
	for name := range commands {
		t.commands[name] = &calls{}
	}
	return t
}

// of returns the counters of a command.
func (t *traffic) of(name string) *calls {
	if c := t.commands[name]; c != nil {
		return c
	}
	return t.commands[unknownCommand]
}

func (t *traffic) fill(st *Stats) {
	st.BytesIn, st.BytesOut = t.in.Load(), t.out.Load()
	st.Looked, st.Found = t.looked.Load(), t.found.Load()
	st.PrefixAsked, st.PrefixFound = t.asked.Load(), t.led.Load()
	st.PinsFull, st.PinsDenied = t.pinsFull.Load(), t.pinsRefused.Load()
	for name, c := range t.commands {
		if n := c.all.Load(); n > 0 {
			st.Commands = append(st.Commands, CommandStats{name, n, c.failed.Load()})
		}
	}
	slices.SortFunc(st.Commands, func(a, b CommandStats) int { return cmp.Compare(a.Name, b.Name) })
}

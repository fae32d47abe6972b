package kvcache_test

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// keeper is the model of a pool to which everything may happen: no structure,
// all answers by looking at every slot.
type keeper struct {
	kind     kvcache.Eviction
	slots    []kept
	clock    int64
	now      time.Duration
	budget   int64
	hard     bool
	sessions map[kvcache.SessionID]*known
	removed  []kv.SeqHash
	promoted []kvcache.Ref
}

type kept struct {
	state kvcache.State
	hash  kv.SeqHash
	up    int
	refs  int   // of callers alone
	key   int64 // its place among its likes; of a free slot since when it is free
	born  int64 // when it was published
	epoch uint32

	priority   uint8
	ttl, until time.Duration
	turn       int64
	pins       []pinned
	tags       []kvcache.SessionID

	foreign, shared, ephemeral, skip, once, foremost bool
}

type pinned struct {
	owner      kvcache.SessionID
	tenant     kvcache.TenantID
	until, ttl time.Duration
	hard       bool
}

func newKeeper(kind kvcache.Eviction, n int, budget int64, hard bool) *keeper {
	m := &keeper{kind: kind, slots: make([]kept, n), budget: budget, hard: hard, sessions: map[kvcache.SessionID]*known{}}
	for i := range m.slots {
		m.free(i)
	}
	return m
}

func (m *keeper) byClass() bool { return m.kind == kvcache.EvictRetention }

func (m *keeper) byPriority() bool { return m.byClass() || m.kind == kvcache.EvictPriorities }

func (m *keeper) tick() int64 { m.clock++; return m.clock }

func (m *keeper) free(i int) {
	m.slots[i] = kept{up: -1, priority: kvcache.Neutral, key: m.tick()}
}

func (s *kept) published() bool { return s.state == kvcache.Primary || s.state == kvcache.Inactive }

func (s *kept) idle() bool { return s.state == kvcache.Inactive }

func (s *kept) pin() (until time.Duration, hard bool) {
	for _, p := range s.pins {
		until, hard = max(until, p.until), hard || p.hard
	}
	return until, hard
}

func (s *kept) class() kvcache.Class {
	until, hard := s.pin()
	switch {
	case hard:
		return kvcache.HardPinned
	case until > 0:
		return kvcache.SoftPinned
	case s.ephemeral || s.once:
		return kvcache.Ephemeral
	case s.priority < kvcache.Neutral:
		return kvcache.Low
	case s.priority == kvcache.Neutral:
		return kvcache.Plain
	}
	return kvcache.High
}

func (m *keeper) find(h kv.SeqHash) int {
	return slices.IndexFunc(m.slots, func(s kept) bool { return s.hash == h && s.published() })
}

func (m *keeper) children(i int, is func(*kept) bool) bool {
	return slices.ContainsFunc(m.slots, func(s kept) bool { return s.up == i && s.published() && is(&s) })
}

func (m *keeper) held(i int) bool {
	return m.slots[i].refs > 0 || slices.ContainsFunc(m.slots, func(s kept) bool {
		return s.up == i && (s.state == kvcache.Duplicate || s.state == kvcache.Primary)
	})
}

// settle gives every published slot the state that its holders call for, the
// deeper ones first.
func (m *keeper) settle() {
	for changed := true; changed; {
		changed = false
		for i := range m.slots {
			s := &m.slots[i]
			switch {
			case s.idle() && m.held(i):
				s.state, s.until, changed = kvcache.Primary, 0, true
			case s.state == kvcache.Primary && !m.held(i):
				changed = true
				if s.once && len(s.pins) == 0 && !m.children(i, (*kept).idle) {
					m.removed = append(m.removed, s.hash)
					m.free(i)
					continue
				}
				s.state = kvcache.Inactive
				m.start(s)
				s.key = m.tick()
				if s.foremost && len(s.pins) == 0 && m.byClass() {
					s.key = -s.key
				}
				s.foremost = false
			}
		}
	}
}

func (m *keeper) start(s *kept) {
	s.until = 0
	if s.ttl > 0 && s.priority != kvcache.Neutral {
		s.turn, s.until = m.tick(), m.now+s.ttl
	}
}

// below reports whether a block or one below it is pinned.
func (m *keeper) below(i int, hard bool) bool {
	until, isHard := m.slots[i].pin()
	if isHard || until > 0 && !hard {
		return true
	}
	for j, s := range m.slots {
		if s.up == i && s.published() && m.below(j, hard) {
			return true
		}
	}
	return false
}

func (m *keeper) available(spare bool) (n int) {
	for i := range m.slots {
		if s := &m.slots[i]; s.state == kvcache.Reset || s.idle() && !m.below(i, !spare) {
			n++
		}
	}
	return n
}

func (m *keeper) victim() int {
	best := -1
	rank := func(i int) []int64 {
		s := &m.slots[i]
		until, _ := s.pin()
		switch {
		case until > 0:
			return []int64{1000, int64(until), s.key}
		case m.kind == kvcache.EvictLRU:
			return []int64{0, s.key}
		case m.kind == kvcache.EvictFIFO:
			return []int64{0, s.born}
		case m.byClass() && (s.ephemeral || s.once):
			return []int64{-1, s.key}
		}
		return []int64{int64(s.priority), s.key}
	}
	for i := range m.slots {
		s := &m.slots[i]
		if _, hard := s.pin(); !s.idle() || hard || m.children(i, func(*kept) bool { return true }) {
			continue
		}
		if best < 0 || slices.Compare(rank(i), rank(best)) < 0 {
			best = i
		}
	}
	return best
}

func (m *keeper) oldestFree() int {
	best := -1
	for i, s := range m.slots {
		if s.state == kvcache.Reset && (best < 0 || s.key < m.slots[best].key) {
			best = i
		}
	}
	return best
}

func (m *keeper) allocate(n int, spare bool) (slots []int, evicted []kv.SeqHash, ok bool) {
	if n > m.available(spare) {
		return nil, nil, false
	}
	for range n {
		i := m.oldestFree()
		if i < 0 {
			i = m.victim()
			evicted = append(evicted, m.slots[i].hash)
		}
		m.slots[i] = kept{state: kvcache.Mutable, up: -1, refs: 1, priority: kvcache.Neutral}
		slots = append(slots, i)
	}
	return slots, evicted, true
}

// advance lets what is due happen at the moment at which it is, pins and
// priorities before sessions.
func (m *keeper) advance(now time.Duration) {
	for {
		next := []int64{int64(now), 2, 0}
		happen := func() {}
		due := func(at time.Duration, kind, turn int64, then func()) {
			if x := []int64{int64(at), kind, turn}; slices.Compare(x, next) < 0 {
				next, happen = x, then
			}
		}
		for i := range m.slots {
			s := &m.slots[i]
			then := func() {
				m.unpin(s, func(p pinned) bool { return p.until <= m.now }, s.until > 0 && s.until <= m.now)
			}
			for _, p := range s.pins {
				due(p.until, 0, s.turn, then)
			}
			if s.until > 0 {
				due(s.until, 0, s.turn, then)
			}
		}
		for id, s := range m.sessions {
			if s.running > 0 {
				continue
			}
			due(s.next(), 1, s.turn, func() {
				switch until := m.pinnedUntil(id); {
				case s.deadline > m.now:
					m.think(id, s)
				case until > m.now:
					s.deadline = until
				default:
					m.end(id)
				}
			})
		}
		m.now = time.Duration(next[0])
		if next[1] == 2 {
			return
		}
		happen()
	}
}

// unpin ends pins, and the priority if it fades, and moves the block if that
// changes where it belongs.
func (m *keeper) unpin(s *kept, ends func(pinned) bool, fades bool) {
	before, wasHard := s.pin()
	s.pins = slices.DeleteFunc(s.pins, ends)
	after, isHard := s.pin()
	if fades {
		s.priority, s.ttl, s.until = kvcache.Neutral, 0, 0
	}
	if s.idle() && (before != after || wasHard != isHard || fades && after == 0 && m.byPriority()) {
		s.key = m.tick()
	}
}

func (m *keeper) retain(i int, r kvcache.Retention) {
	s := &m.slots[i]
	if r.Floor && r.Priority <= s.priority || r.Priority == kvcache.Neutral && s.priority == kvcache.Neutral {
		return
	}
	s.priority, s.ttl = r.Priority, r.TTL
	if s.idle() {
		m.start(s)
		if m.byPriority() {
			s.key = m.tick()
		}
	}
}

// timeTo is how long it is to a deadline of a record, whose time is the model's.
func (m *keeper) timeTo(deadline int64) time.Duration {
	return time.Duration(deadline)*time.Millisecond - m.now
}

func (m *keeper) inherit(i int, r kvcache.Record) {
	s := &m.slots[i]
	if r.Epoch < s.epoch {
		return
	}
	s.epoch = r.Epoch
	if r.PriorityDeadline == 0 || m.timeTo(r.PriorityDeadline) > 0 {
		ttl := time.Duration(0)
		if r.PriorityDeadline > 0 {
			ttl = m.timeTo(r.PriorityDeadline)
		}
		m.retain(i, kvcache.Retention{Priority: r.Priority, TTL: ttl})
	}
	if r.Ephemeral && m.only(i, r.Session) {
		m.lower(i, false)
	} else if r.SkipWrite {
		s.skip = true
	}
	if ttl := m.timeTo(r.PinDeadline); r.PinDeadline > 0 && ttl > 0 {
		m.pinPath([]int{i}, kvcache.Pin{Owner: r.Session, TTL: ttl, Hard: r.HardPin})
	}
	if m.sessions[r.Session] != nil {
		m.tag(i, r.Session)
	}
}

func (m *keeper) update(i int, r kvcache.Record) bool {
	s := &m.slots[i]
	if r.Epoch <= s.epoch {
		return false
	}
	if !r.Ephemeral && !r.SkipWrite {
		m.raise(i)
	}
	if m.timeTo(r.PinDeadline) <= 0 {
		m.unpin(s, func(p pinned) bool { return p.owner == r.Session }, false)
	}
	if r.PriorityDeadline > 0 && m.timeTo(r.PriorityDeadline) <= 0 {
		m.retain(i, kvcache.Retention{Priority: kvcache.Neutral})
	}
	m.inherit(i, r)
	return true
}

// record is what is to travel with a block.
func (m *keeper) record(i int) kvcache.Record {
	s := &m.slots[i]
	r := kvcache.Record{Priority: s.priority, Ephemeral: s.ephemeral, SkipWrite: s.skip, Epoch: s.epoch}
	if len(s.tags) > 0 {
		r.Session = s.tags[0]
	}
	switch {
	case s.until > 0:
		r.PriorityDeadline = s.until.Milliseconds()
	case s.ttl > 0 && s.priority != kvcache.Neutral:
		r.PriorityDeadline = (m.now + s.ttl).Milliseconds()
	}
	if until, hard := s.pin(); until > 0 {
		r.HardPin, r.SoftPin, r.PinDeadline = hard, !hard, until.Milliseconds()
	}
	return r
}

func (m *keeper) pinned() (n int64) {
	for i := range m.slots {
		if len(m.slots[i].pins) > 0 {
			n++
		}
	}
	return n
}

func (m *keeper) pin(hashes []kv.SeqHash, pin kvcache.Pin) int {
	var path []int
	for _, h := range hashes {
		i := m.find(h)
		if i < 0 {
			break
		}
		path = append(path, i)
	}
	return m.pinPath(path, pin)
}

func (s *kept) pinnedFor(t kvcache.TenantID) bool {
	return slices.ContainsFunc(s.pins, func(p pinned) bool { return p.tenant == t })
}

func (m *keeper) pinnedFor(t kvcache.TenantID) (n int64) {
	for i := range m.slots {
		if m.slots[i].pinnedFor(t) {
			n++
		}
	}
	return n
}

func (m *keeper) pinPath(path []int, pin kvcache.Pin) int {
	room := m.available(true) > 0
	used, theirs := m.pinned(), m.pinnedFor(pin.Tenant)
	for n, i := range path {
		if len(m.slots[i].pins) == 0 {
			used++
		}
		if pin.Tenant != 0 && !m.slots[i].pinnedFor(pin.Tenant) {
			theirs++
		}
		if len(m.slots[i].pins) == 0 && (!room || used > m.budget) ||
			pin.Tenant != 0 && !m.slots[i].pinnedFor(pin.Tenant) && theirs > int64(pin.Share*float64(m.budget)) {
			path = path[:n]
			break
		}
	}
	for _, i := range slices.Backward(path) {
		s := &m.slots[i]
		k := slices.IndexFunc(s.pins, func(p pinned) bool { return p.owner == pin.Owner && p.tenant == pin.Tenant })
		if k < 0 {
			k = len(s.pins)
			s.pins = append(s.pins, pinned{owner: pin.Owner, tenant: pin.Tenant})
		}
		p := &s.pins[k]
		if m.now+pin.TTL >= p.until {
			p.until, p.ttl = m.now+pin.TTL, pin.TTL
		}
		p.hard = p.hard || pin.Hard && m.hard
		s.turn = m.tick()
		if s.idle() {
			s.key = m.tick()
		}
	}
	if s := m.sessions[pin.Owner]; s != nil {
		for _, i := range path { // where it has pinned last counts
			s.pins = append(slices.DeleteFunc(s.pins, func(j int) bool { return i == j }), i)
		}
	}
	return len(path)
}

func (m *keeper) stats() kvcache.Stats {
	n := map[kvcache.State]int{}
	for _, s := range m.slots {
		n[s.state]++
	}
	return kvcache.Stats{
		Total: len(m.slots), Free: n[kvcache.Reset], Mutable: n[kvcache.Mutable],
		Primary: n[kvcache.Primary], Duplicate: n[kvcache.Duplicate], Inactive: n[kvcache.Inactive],
	}
}

func (m *keeper) primary(r kvcache.Ref) int {
	if s := &m.slots[r]; s.state == kvcache.Duplicate {
		return s.up
	}
	return int(r)
}

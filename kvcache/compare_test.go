package kvcache_test

import (
	"maps"
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

type known struct {
	o        kvcache.SessionOptions
	running  int
	closing  bool
	reopened *kvcache.SessionOptions
	deadline time.Duration
	turn     int64
	blocks   []int // by when each was tagged last
	pins     []int // likewise

	sequence, thinking, superseded []where
	prompt, thinkingAt, fork       int
	thinkingDue                    time.Duration
	mark                           kv.SeqHash
	compacted                      bool
}

type where struct {
	slot int
	hash kv.SeqHash
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
				if s.deadline <= m.now {
					m.end(id)
				} else {
					m.think(id, s)
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

func (s *known) next() time.Duration {
	if len(s.thinking) > 0 {
		return min(s.deadline, s.thinkingDue)
	}
	return s.deadline
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

func (m *keeper) open(id kvcache.SessionID, o kvcache.SessionOptions) *known {
	s := m.sessions[id]
	switch {
	case s == nil:
		s = &known{o: o}
		m.sessions[id] = s
	case s.closing:
		s.reopened = &o
		return s
	default:
		s.o.Timeout = o.Timeout
		s.o.Hold = s.o.Hold || o.Hold
	}
	m.rest(s)
	return s
}

func (m *keeper) rest(s *known) {
	if s.running == 0 {
		s.deadline, s.turn = m.now+s.o.Timeout, m.tick()
	}
}

func (m *keeper) lower(i int, first bool) {
	s := &m.slots[i]
	s.ephemeral, s.skip = true, true
	if !s.idle() {
		s.foremost = s.foremost || first
		return
	}
	if !m.byClass() {
		return
	}
	if s.key = m.tick(); first && len(s.pins) == 0 {
		s.key = -s.key
	}
}

func (m *keeper) raise(i int) {
	s := &m.slots[i]
	if s.skip && len(m.promoted) < len(m.slots) {
		m.promoted = append(m.promoted, kvcache.Ref(i))
	}
	if (s.skip || s.ephemeral) && s.idle() && m.byClass() {
		s.key = m.tick()
	}
	s.skip, s.ephemeral, s.foremost = false, false, false
}

func (s *kept) tagOf(id kvcache.SessionID) int { return slices.Index(s.tags, id) }

func (m *keeper) tag(i int, id kvcache.SessionID) {
	s := &m.slots[i]
	k := s.tagOf(id)
	switch {
	case s.shared:
	case k >= 0:
	case len(s.tags) == 8:
		s.tags, s.shared = nil, true
		m.raise(i)
	default:
		s.tags = append(s.tags, id)
		b := &m.sessions[id].blocks
		*b = append(slices.DeleteFunc(*b, func(j int) bool { return i == j }), i)
	}
}

// untag takes a tag away and reports whether nobody is left.
func (m *keeper) untag(i int, id kvcache.SessionID) bool {
	s := &m.slots[i]
	k := s.tagOf(id)
	if k < 0 {
		return false
	}
	s.tags = slices.Delete(s.tags, k, k+1)
	return len(s.tags) == 0 && !s.foreign && !s.shared
}

func (m *keeper) hit(i int, id kvcache.SessionID) {
	s := &m.slots[i]
	for k := range s.pins {
		if p := &s.pins[k]; !p.hard && p.until > m.now {
			p.until = max(p.until, m.now+p.ttl)
		}
	}
	session := m.sessions[id]
	if session == nil {
		m.usedByOthers(i)
		return
	}
	s.foreign = s.foreign || len(s.tags) == 0
	m.tag(i, id)
	if s.foreign || !session.o.Ephemeral && (s.ephemeral || !m.only(i, id)) {
		m.raise(i)
	}
}

func (m *keeper) usedByOthers(i int) {
	if s := &m.slots[i]; len(s.tags) > 0 || s.ephemeral || s.skip {
		s.foreign = true
		m.raise(i)
	}
}

// stored is what Tag does.
func (m *keeper) stored(id kvcache.SessionID, refs []kvcache.Ref) {
	session := m.sessions[id]
	if session == nil {
		return
	}
	for _, r := range refs {
		i := m.primary(r)
		s := &m.slots[i]
		if int(r) != i {
			m.slots[r].foreign = false
		}
		if !s.published() {
			continue
		}
		alone := len(s.tags) == 0 && !s.foreign && !s.shared
		m.tag(i, id)
		if session.o.Ephemeral && alone {
			m.lower(i, false)
		} else if !session.o.Ephemeral && s.ephemeral && !m.only(i, id) {
			m.raise(i)
		}
	}
}

// only reports whether a session, or nobody, is alone with a block.
func (m *keeper) only(i int, id kvcache.SessionID) bool {
	s := &m.slots[i]
	if s.foreign || s.shared {
		return false
	}
	for _, t := range s.tags {
		if t != id {
			return false
		}
	}
	return true
}

func (m *keeper) primary(r kvcache.Ref) int {
	if s := &m.slots[r]; s.state == kvcache.Duplicate {
		return s.up
	}
	return int(r)
}

func (m *keeper) begin(id kvcache.SessionID, o kvcache.SessionOptions, prompt []kv.SeqHash) {
	s := m.sessions[id]
	if s == nil {
		s = m.open(id, o)
	}
	s.running++
	is := func(i int, h kv.SeqHash) bool { return i < len(prompt) && prompt[i] == h }
	if len(s.thinking) > 0 && !is(s.thinkingAt, s.thinking[0].hash) {
		m.think(id, s)
	}
	if len(s.superseded) > 0 {
		if is(s.fork, s.superseded[0].hash) {
			s.superseded = nil
		} else if is(s.fork, s.mark) || s.mark == 0 && len(prompt) <= s.fork {
			m.supersede(id, s)
		}
	}
	common := 0
	for common < len(s.sequence) && is(common, s.sequence[common].hash) {
		common++
	}
	small := 2*common < s.prompt && 10*len(prompt) < 6*s.prompt
	if (small || s.compacted) && common < len(s.sequence) {
		s.superseded, s.fork, s.mark = slices.Clone(s.sequence[common:]), common, 0
		if common < len(prompt) {
			s.mark = prompt[common]
		}
		if s.compacted {
			m.supersede(id, s)
		}
		s.compacted = false
	}
	s.prompt = len(prompt)
}

func (m *keeper) supersede(id kvcache.SessionID, s *known) {
	for _, w := range s.superseded {
		if m.find(w.hash) == w.slot && m.untag(w.slot, id) {
			m.lower(w.slot, false)
		}
	}
	s.superseded = nil
}

func (m *keeper) think(id kvcache.SessionID, s *known) {
	for _, w := range s.thinking {
		if m.find(w.hash) == w.slot && m.only(w.slot, id) {
			m.lower(w.slot, false)
		}
	}
	s.thinking = nil
}

func (m *keeper) thought(id kvcache.SessionID, refs []kvcache.Ref, from int, deferred bool) {
	s := m.sessions[id]
	if s != nil && deferred {
		m.later(id, s, refs, from)
		return
	}
	for _, r := range refs[from:] {
		if i := m.primary(r); m.slots[i].published() && m.only(i, id) {
			m.lower(i, false)
		}
	}
}

// later marks what is to go once the thinking, of which it may be more, is over.
func (m *keeper) later(id kvcache.SessionID, s *known, refs []kvcache.Ref, from int) {
	if m.thinks(s, refs) {
		from = min(from, s.thinkingAt)
	} else if from < len(refs) {
		m.think(id, s)
	}
	var marks []where
	for at := from; at < len(refs); at++ {
		i := m.primary(refs[at])
		if !m.slots[i].published() || !m.only(i, id) {
			continue
		}
		if marks == nil {
			s.thinkingAt = at
		}
		m.slots[i].skip = true
		marks = append(marks, where{i, m.slots[i].hash})
	}
	if marks != nil {
		s.thinking, s.thinkingDue = marks, m.now+time.Minute
	}
}

func (m *keeper) thinks(s *known, refs []kvcache.Ref) bool {
	return len(s.thinking) > 0 && s.thinkingAt < len(refs) &&
		m.primary(refs[s.thinkingAt]) == m.find(s.thinking[0].hash)
}

func (m *keeper) endTurn(id kvcache.SessionID, refs []kvcache.Ref) {
	s := m.sessions[id]
	if s == nil || s.running == 0 {
		return
	}
	m.stored(id, refs)
	s.sequence = nil
	for _, r := range refs {
		i := m.primary(r)
		if !m.slots[i].published() {
			break
		}
		s.sequence = append(s.sequence, where{i, m.slots[i].hash})
	}
	s.prompt = min(s.prompt, len(s.sequence))
	if len(s.thinking) > 0 {
		s.thinkingDue = m.now + time.Minute
	}
	if m.thinks(s, refs) {
		m.later(id, s, refs, len(refs))
	}
	if s.o.Hold && !s.closing {
		var path []int
		for _, w := range s.sequence {
			path = append(path, w.slot)
		}
		m.pinPath(path, kvcache.Pin{Owner: id, TTL: s.o.Timeout})
	}
	if s.running--; s.running == 0 && s.closing {
		m.end(id)
		return
	}
	m.rest(s)
}

func (m *keeper) close(id kvcache.SessionID) kvcache.SessionState {
	switch s := m.sessions[id]; {
	case s == nil:
		return kvcache.SessionUnknown
	case s.closing:
		s.reopened = nil
		return kvcache.SessionClosing
	case s.running > 0:
		s.closing = true
		return kvcache.SessionActive
	}
	m.end(id)
	return kvcache.SessionIdle
}

func (m *keeper) end(id kvcache.SessionID) {
	s := m.sessions[id]
	m.think(id, s)
	for _, i := range s.pins {
		m.unpin(&m.slots[i], func(p pinned) bool { return p.owner == id }, false)
	}
	for _, i := range s.blocks {
		if m.untag(i, id) && s.o.Ephemeral {
			m.lower(i, true)
		}
	}
	delete(m.sessions, id)
	if s.reopened != nil {
		m.open(id, *s.reopened)
	}
}

func (m *keeper) live(id kvcache.SessionID) (n int) {
	for i := range m.slots {
		if m.slots[i].tagOf(id) >= 0 {
			n++
		}
	}
	return n
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

// ids returns the sessions that are known, sorted.
func (m *keeper) ids() []kvcache.SessionID { return slices.Sorted(maps.Keys(m.sessions)) }

package kvcache_test

import (
	"maps"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// The model of sessions: who has used which slot.

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
	prompt, thinkingAt, fork, same int
	thinkingDue                    time.Duration
	mark                           kv.SeqHash
	compacted                      bool
}

type where struct {
	slot int
	hash kv.SeqHash
}

func (s *known) next() time.Duration {
	if len(s.thinking) > 0 {
		return min(s.deadline, s.thinkingDue)
	}
	return s.deadline
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
	}
	m.rest(s)
	return s
}

func (m *keeper) rest(s *known) {
	if s.running == 0 {
		s.deadline, s.turn = m.now+s.o.Timeout, m.tick()
	}
}

// pinnedUntil returns when the last pin of a session ends. What was pinned in its name
// before it began is not its own: it neither holds the session nor ends with it.
func (m *keeper) pinnedUntil(id kvcache.SessionID) (until time.Duration) {
	for _, i := range m.sessions[id].pins {
		for _, p := range m.slots[i].pins {
			if p.owner == id {
				until = max(until, p.until)
			}
		}
	}
	return until
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
	s.prompt, s.same = len(prompt), common
}

func (m *keeper) compact(id kvcache.SessionID) {
	s := m.sessions[id]
	if s == nil {
		return
	}
	if len(s.superseded) == 0 && s.running > 0 {
		s.superseded = slices.Clone(s.sequence[s.same:])
	}
	if len(s.superseded) == 0 {
		s.compacted = true
		return
	}
	m.supersede(id, s)
}

func (m *keeper) supersede(id kvcache.SessionID, s *known) {
	for _, w := range s.superseded {
		if m.find(w.hash) != w.slot {
			continue
		}
		m.unpin(&m.slots[w.slot], func(p pinned) bool { return p.owner == id }, false)
		if m.untag(w.slot, id) {
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

// thinks says whether a sequence is one with the thinking that is marked: a block that
// was stored anew, in another place, is not.
func (m *keeper) thinks(s *known, refs []kvcache.Ref) bool {
	return len(s.thinking) > 0 && s.thinkingAt < len(refs) &&
		m.find(s.thinking[0].hash) == s.thinking[0].slot && m.primary(refs[s.thinkingAt]) == s.thinking[0].slot
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
	s.prompt, s.same = min(s.prompt, len(s.sequence)), len(s.sequence)
	if len(s.thinking) > 0 {
		s.thinkingDue = m.now + time.Minute
	}
	if m.thinks(s, refs) {
		m.later(id, s, refs, len(refs))
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

// ids returns the sessions that are known, sorted.
func (m *keeper) ids() []kvcache.SessionID { return slices.Sorted(maps.Keys(m.sessions)) }

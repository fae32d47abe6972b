package kvcache

import (
	linked "container/list"
	"encoding/binary"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/zeebo/xxh3"
)

// DefaultSessionTimeout is after how much idle time a session ends that names
// no time of its own.
const DefaultSessionTimeout = 5 * time.Minute

// mostSessions is how many sessions are known at a time: their ids are the clients',
// who may make them up and never close one.
const mostSessions = 1 << 16

// SessionID names a session: a hash of its key. 0 is no session.
type SessionID uint64

// SessionOf returns the ID of a session key, or 0 if the key's own id is empty:
// XXH3-64 with seed 1337 over model, salt and id, each preceded by its length as
// 32 bits, least significant first.
func SessionOf(key kv.SessionKey) SessionID {
	if key.ID == "" {
		return 0
	}
	b := make([]byte, 0, 12+len(key.Model)+len(key.Salt)+len(key.ID))
	for _, s := range [...]string{key.Model, key.Salt, key.ID} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return SessionID(max(xxh3.HashSeed(b, kv.HashSeed), 1))
}

// SessionOptions say how a session's blocks are to be kept.
type SessionOptions struct {
	// Timeout is the idle time after which it ends, but not before its last pin; 0 =
	// the pool's default.
	Timeout time.Duration
	// Ephemeral sessions leave nothing behind: blocks that only they use go
	// before all others and are not written to lower tiers.
	Ephemeral bool
}

// SessionState is where a session is in its life.
type SessionState uint8

// States of a session. One that has expired or was closed is unknown.
const (
	SessionUnknown SessionState = iota
	SessionActive               // requests are running
	SessionIdle                 // none is, and the timeout runs
	SessionClosing              // closed while requests run: ends with the last one
)

// String returns the state's lower-case name.
func (s SessionState) String() string {
	return [...]string{"unknown", "active", "idle", "closing"}[min(s, SessionClosing)]
}

// session is what the keeper knows of one. It owns references on blocks, not the
// blocks: they are tagged with it.
type session struct {
	id       SessionID
	options  SessionOptions
	running  int
	closing  bool
	reopened *SessionOptions // meanwhile, to hold from its end on
	deadline time.Duration   // while idle
	turn     int64           // of the deadline, for equal ones
	at       int32           // in timeouts
	rest     *linked.Element // in resting; nil while it has requests
	live     int             // blocks tagged with it
	ended    bool            // and only here until they are not
	blocks   []int32         // of an ephemeral session, every such block, and some that no longer are
	pins     []int32         // where it has pinned, likewise
	manyPins int             // length of pins at which to look through it
	history
}

func (k *keeper) session(id SessionID) *session {
	if n, ok := k.byID[id]; ok && id != 0 {
		return k.sessions[n]
	}
	return nil
}

// number returns the number of a session that is known.
func (k *keeper) number(id SessionID) (n uint32, known bool) {
	if id == 0 {
		return 0, false
	}
	n, known = k.byID[id]
	return n, known
}

// OpenSession begins a session, in the place of the one that has been idle longest if
// there are too many, or changes the options of one: the newest timeout counts. A
// session that has been ephemeral stays so, and one that has not does not become so.
// One that is closing is not known any more: it ends with its last request, and a new one begins.
func (k *keeper) OpenSession(id SessionID, o SessionOptions) (known bool) {
	if id == 0 {
		return false
	}
	if o.Timeout <= 0 {
		o.Timeout = k.timeout
	}
	switch s := k.session(id); {
	case s == nil:
	case s.closing:
		s.reopened = &o
		return false
	default:
		s.options.Timeout = o.Timeout
		k.idleSince(s)
		return true
	}
	if len(k.byID) >= mostSessions {
		k.endOne()
	}
	s := &session{id: id, options: o, at: none}
	n := uint32(len(k.sessions))
	if v := len(k.vacant); v > 0 {
		n, k.vacant = k.vacant[v-1], k.vacant[:v-1]
		k.sessions[n] = s
	} else {
		k.sessions = append(k.sessions, s)
	}
	if k.byID == nil {
		k.byID = make(map[SessionID]uint32)
	}
	k.byID[id] = n
	k.idleSince(s)
	return false
}

// endOne ends the session that has been idle longest. Those that have pinned
// something are passed over: there are no more of them than there is room for pins.
func (k *keeper) endOne() {
	const most = 64 // that are looked at
	for range min(most, k.resting.Len()) {
		e := k.resting.Front()
		s := e.Value.(*session)
		if k.pinnedUntil(s) <= k.now {
			k.end(s)
			return
		}
		k.resting.MoveToBack(e)
	}
}

// idleSince lets the timeout of a session without requests begin now.
func (k *keeper) idleSince(s *session) {
	if s.running > 0 {
		return
	}
	if k.turn++; s.rest == nil {
		s.rest = k.resting.PushBack(s)
	} else {
		k.resting.MoveToBack(s.rest)
	}
	s.deadline, s.turn = k.after(s.options.Timeout), k.turn
	k.watch(s)
}

// watch lets an idle session come up when something about it is due.
func (k *keeper) watch(s *session) {
	k.timeouts.schedule(item{int64(s.next(s.deadline)), s.turn, int32(k.byID[s.id])}, s.at)
}

// BeginTurn tells that a request of a session has started, whose prompt has
// these blocks; EndTurn tells that it has ended. A session that is not known is
// opened with options.
//
// The prompt shows what became of the previous one: see [Pool.MarkThinking] and
// [Pool.Compact].
func (k *keeper) BeginTurn(id SessionID, o SessionOptions, prompt []kv.SeqHash) {
	if id == 0 {
		return
	}
	s := k.session(id)
	if s == nil {
		k.OpenSession(id, o)
		s = k.session(id)
	}
	s.running++
	k.rouse(s)
	k.compare(s, prompt)
}

// rouse takes a session from those without requests.
func (k *keeper) rouse(s *session) {
	if s.rest != nil {
		k.resting.Remove(s.rest)
		s.rest = nil
	}
}

// EndTurn tells that a request of a session has ended, and which published
// blocks its sequence had, from the root on. It is called before they are
// released. They are tagged with the session; if nobody else has used a block
// and the session is ephemeral, so is the block.
func (k *keeper) EndTurn(id SessionID, refs []Ref) {
	s := k.session(id)
	if s == nil || s.running == 0 {
		return
	}
	k.Tag(id, refs)
	k.remember(s, refs)
	if s.running--; s.running > 0 {
		return
	}
	if s.closing {
		k.end(s)
		return
	}
	k.idleSince(s)
}

// CloseSession ends a session, at once or, if a request of it is running, with
// the last one, as those do that begin in between. It reports what the session was;
// closing twice is no error.
//
// Blocks that nobody else has used go first if the session was ephemeral; else
// they stay where they are. Pins of the session end.
func (k *keeper) CloseSession(id SessionID) SessionState {
	was := k.SessionState(id)
	switch was {
	case SessionActive:
		k.session(id).closing = true
	case SessionClosing:
		k.session(id).reopened = nil
	case SessionIdle:
		k.end(k.session(id))
	}
	return was
}

// SessionState returns what a session is now.
func (k *keeper) SessionState(id SessionID) SessionState {
	s := k.session(id)
	switch {
	case s == nil:
		return SessionUnknown
	case s.closing:
		return SessionClosing
	case s.running > 0:
		return SessionActive
	}
	return SessionIdle
}

// Held returns how many blocks are tagged with a session.
func (k *keeper) Held(id SessionID) int {
	if s := k.session(id); s != nil {
		return s.live
	}
	return 0
}

// Sessions returns how many sessions are known.
func (k *keeper) Sessions() int { return len(k.byID) }

// end closes a session, whose thinking is then over. Its blocks come in the order
// in which it got them, parents first, so that each one is put before its parent.
func (k *keeper) end(s *session) {
	n := k.byID[s.id]
	k.settleThinking(s)
	for _, i := range k.prune(s.pins, func(i int32) bool { return k.hasPin(i, s.owns) }) {
		k.unpinOwner(i, s.id)
	}
	for _, i := range k.prune(s.blocks, func(i int32) bool { return k.isOf(i, n) }) {
		if k.untag(i, n) {
			k.lower(i, true)
		}
	}
	if s.at != none {
		k.timeouts.remove(s.at)
	}
	k.rouse(s)
	delete(k.byID, s.id)
	k.sessions[n] = &session{id: s.id, live: s.live, ended: true, at: none}
	if s.live == 0 {
		k.vacate(n)
	}
	if s.reopened != nil {
		k.OpenSession(s.id, *s.reopened)
	}
}

func (k *keeper) vacate(n uint32) {
	k.sessions[n] = nil
	k.vacant = append(k.vacant, n)
}

// timeOut looks at the session that comes up first. If nothing was due so early,
// it is looked at again when it is.
func (k *keeper) timeOut() {
	x := k.timeouts.remove(0)
	s := k.sessions[x.id]
	if s.running > 0 {
		return
	}
	if next := s.next(s.deadline); int64(next) > x.key {
		k.watch(s)
		return
	}
	if s.deadline <= k.now {
		if s.deadline = k.pinnedUntil(s); s.deadline > k.now {
			k.watch(s)
			return
		}
		k.end(s)
		return
	}
	k.settleThinking(s)
	k.watch(s)
}

// lower makes a published block ephemeral, unless it is so. It goes before all
// others, as soon as it is idle, if first is true, else behind its likes.
func (k *keeper) lower(i int32, first bool) {
	k.wish()
	b := &k.blocks[i]
	b.flags |= ephemeral | skipWrite
	switch {
	case b.state != Inactive && first:
		b.flags |= foremost
	case b.state != Inactive || !k.kind.byClass():
	case first:
		k.unfile(i)
		k.fileFirst(i)
	default:
		k.refile(i)
	}
}

// raise takes the class from a block that has turned out to be wanted.
func (k *keeper) raise(i int32) {
	b := &k.blocks[i]
	if b.flags&(ephemeral|skipWrite) == 0 {
		return
	}
	if b.flags&skipWrite != 0 && len(k.promoted) < len(k.blocks) {
		k.promoted = append(k.promoted, Ref(i))
	}
	b.flags &^= ephemeral | skipWrite | foremost
	if b.state == Inactive && k.kind.byClass() {
		k.refile(i)
	}
}

// TakePromoted appends the blocks that were not to be written to lower tiers
// until, since the last call, somebody else used them. A block may have gone, or
// be ephemeral again, by then. Of those that nobody takes, as many are kept as
// there are slots.
func (k *keeper) TakePromoted(dst []Ref) []Ref {
	dst = append(dst, k.promoted...)
	k.promoted = k.promoted[:0]
	return dst
}

// hit tells that a request has found a block, of session n if known is true.
func (k *keeper) hit(i int32, n uint32, known bool) {
	b := &k.blocks[i]
	if k.frequency != nil {
		k.frequency.add(b.hash)
	}
	if b.flags&noted != 0 {
		k.refresh(i)
	}
	if !known {
		k.usedByOthers(i)
		return
	}
	if len(k.owners(i)) == 0 {
		b.flags |= foreign // whose it was is not known
	}
	k.tag(i, n)
	switch s := k.sessions[n]; {
	case b.flags&foreign != 0:
		k.raise(i)
	case s.options.Ephemeral:
	case b.flags&ephemeral == 0 && k.ownedBy(i, s.id): // it waits to be, and nobody else has come
	default:
		k.raise(i)
	}
}

// usedByOthers tells that somebody who leaves no tag has used a block.
func (k *keeper) usedByOthers(i int32) {
	if b := &k.blocks[i]; len(k.owners(i)) > 0 || b.flags&(ephemeral|skipWrite) != 0 {
		b.flags |= foreign
		k.raise(i)
	}
}

// Tag ties published blocks that a session has stored to it. It is best called as
// soon as they are: what two have stored at a time, neither of whom has said so yet,
// is taken for somebody else's.
func (k *keeper) Tag(id SessionID, refs []Ref) {
	n, ok := k.byID[id]
	if !ok || id == 0 {
		return
	}
	s := k.sessions[n]
	k.makeTags()
	for _, r := range refs {
		i := k.original(r)
		if int32(r) != i {
			k.blocks[r].flags = 0
		}
		b := &k.blocks[i]
		switch f := b.flags &^ noted; {
		case !b.published():
			continue
		case f == tagged && k.tags[i] == tag(n+1):
			continue
		case f == 0 && !s.options.Ephemeral: // the most frequent case
			k.tags[i], b.flags = tag(n+1), b.flags|tagged
			s.live++
			continue
		}
		alone := b.flags&(foreign|shared) == 0 && len(k.owners(i)) == 0
		k.tag(i, n)
		switch {
		case s.options.Ephemeral && alone:
			k.lower(i, false)
		case !s.options.Ephemeral && b.flags&ephemeral != 0:
			if !k.ownedBy(i, id) {
				k.raise(i)
			}
		}
	}
}

// prune leaves each block of a list once, where it was entered last, if it is
// still to be there.
func (k *keeper) prune(blocks []int32, keep func(int32) bool) []int32 {
	if n := (len(k.blocks) + 63) / 64; len(k.seen) < n {
		k.seen = make([]uint64, n)
	}
	kept := len(blocks)
	for _, i := range slices.Backward(blocks) {
		if bit := uint64(1) << (i & 63); k.seen[i>>6]&bit == 0 && keep(i) {
			k.seen[i>>6] |= bit
			kept--
			blocks[kept] = i
		}
	}
	for _, i := range blocks[kept:] {
		k.seen[i>>6] = 0
	}
	return slices.Delete(blocks, 0, kept)
}

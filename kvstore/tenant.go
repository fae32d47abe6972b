package kvstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Tenant is one namespace, for those who may use it. Its methods may be called
// from any goroutine.
type Tenant struct {
	s  *Server
	sp *space
}

// Tenant returns the namespace that a token opens, by the rules of AUTH; "" is no
// token. It is nil if the token opens none.
func (s *Server) Tenant(name, token string) *Tenant {
	sp := s.admit(name, token)
	if token == "" {
		sp = s.open()
	}
	if sp == nil || name != "" && name != "default" && name != sp.Name {
		return nil
	}
	return &Tenant{s, sp}
}

// Name returns the namespace's.
func (t *Tenant) Name() string { return t.sp.Name }

// Stats returns what it holds.
func (t *Tenant) Stats() NamespaceStats {
	c := t.s.cache
	c.begin()
	defer c.mu.Unlock()
	return t.sp.stats()
}

// Entry is a value as it is kept.
type Entry struct {
	Key     string
	Tiers   []string // where its bytes lie, the fastest first
	Size    int64    // bytes of all its parts
	Pair    bool     // of bytes and metadata
	Leased  bool
	Class   kvcache.Class
	Expires time.Time // zero: never
	// Retention is what was asked for it.
	Retention kvcache.Record
}

// Look returns the value that a key is a part of, and false if the key is not
// there. To look is no use of it.
func (t *Tenant) Look(key string) (e Entry, ok bool) {
	c := t.s.cache
	c.begin()
	defer c.mu.Unlock()
	u, _ := t.sp.have(key)
	if u == nil {
		return e, false
	}
	return c.entry(u), true
}

func (c *cache) entry(u *unit) Entry {
	e := Entry{
		Key: u.name, Size: u.size[whole] + u.size[metadata], Pair: u.paired, Leased: u.leased,
		Class: u.sp.order.Class(u.ref), Retention: u.sp.order.Record(u.ref, c.zero),
	}
	e.Retention.Epoch = u.epoch
	for i, t := range c.tiers {
		if u.at[whole].has(i) {
			e.Tiers = append(e.Tiers, t.Name)
		}
	}
	for _, at := range u.expires {
		if when := c.zero.Add(at); at > 0 && (e.Expires.IsZero() || when.Before(e.Expires)) {
			e.Expires = when
		}
	}
	return e
}

// Pins returns pinned values, from a place on that is 0 at first, and the place
// where to go on; 0 is the end. It returns at most so many.
func (t *Tenant) Pins(from uint64, most int) (pinned []Entry, next uint64) {
	c := t.s.cache
	for {
		c.begin()
		end := min(from+scanMost, uint64(len(t.sp.units)))
		for ; from < end && len(pinned) < most; from++ {
			if u := t.sp.units[from]; u != nil && t.sp.order.Class(u.ref) >= kvcache.SoftPinned {
				pinned = append(pinned, c.entry(u))
			}
		}
		all := uint64(len(t.sp.units))
		c.mu.Unlock()
		switch {
		case from >= all:
			return pinned, 0
		case len(pinned) >= most:
			return pinned, from
		}
	}
}

// Wish is how long a value is worth keeping. What is not set stays as it is.
type Wish struct {
	Priority *uint8 // 0 to 100; 35 is that of values for which nothing was asked
	// TTL is for how long the priority holds once the value is not in use; 0 = for
	// ever.
	TTL time.Duration
	// Pin keeps the value until nothing else is left to go, for so long; 0 takes
	// away the pin of the session, or of nobody.
	Pin     *time.Duration
	Session string
	// Ephemeral lets it go before all that are not.
	Ephemeral bool
	// Epoch, if set, orders the wishes of many: one that is older than what the
	// value has already is overtaken, and nothing is done. Nil is newer than all.
	Epoch *uint32
}

const (
	maxTTL     = 365 * 24 * time.Hour
	maxSession = 256
)

// check says what is wrong with a wish.
func (w *Wish) check() error {
	switch {
	case w.Priority != nil && *w.Priority > kvcache.MaxPriority:
		return fmt.Errorf("a priority of %d: want 0 to %d", *w.Priority, kvcache.MaxPriority)
	case w.TTL < 0 || w.TTL > maxTTL:
		return fmt.Errorf("a duration of %v: want 0 to a year", w.TTL)
	case w.Pin != nil && (*w.Pin < 0 || *w.Pin > maxTTL):
		return fmt.Errorf("a pin of %v: want 0 to a year", *w.Pin)
	case len(w.Session) > maxSession:
		return fmt.Errorf("the id of a session of %d bytes: want at most %d", len(w.Session), maxSession)
	case w.TTL > 0 && w.Priority == nil:
		return errors.New("a duration without a priority that it is the duration of")
	}
	return nil
}

// Outcome is what became of a [Wish].
type Outcome uint8

// The outcomes.
const (
	Absent  Outcome = iota // there is no such value
	Granted                // all was done, or something newer has been
	NoRoom                 // all but the pin, for which the budget has no room
)

// String returns the outcome in lower case.
func (o Outcome) String() string { return [...]string{"absent", "granted", "denied"}[min(o, NoRoom)] }

// Retain does what is wished for the value that key is a part of. The error says
// what is wrong with the wish.
func (t *Tenant) Retain(key string, w Wish) (Outcome, error) {
	if err := w.check(); err != nil {
		return Absent, err
	}
	c := t.s.cache
	now := c.begin()
	defer c.mu.Unlock()
	if t.sp.crowded(w.Session) {
		return Absent, fmt.Errorf("%d sessions are open, and that is the most: close some, or wait until they end", maxSessions)
	}
	o := c.retain(t.sp, key, w, now)
	switch {
	case w.Pin == nil || *w.Pin == 0:
	case o == Granted:
		t.s.traffic.pinsFull.Add(1)
	case o == NoRoom:
		t.s.traffic.pinsRefused.Add(1)
	}
	return o, nil
}

func (c *cache) retain(sp *space, key string, w Wish, now time.Duration) Outcome {
	name, p, _ := splitKey(key)
	u := c.find(sp, name)
	if u == nil || !u.has[p] {
		return Absent
	}
	if w.Epoch != nil && *w.Epoch < u.epoch {
		return Granted
	}
	if u.epoch++; w.Epoch != nil {
		u.epoch = *w.Epoch
	}
	var owner kvcache.SessionID
	if w.Session != "" {
		owner = sp.session(w.Session)
		sp.eachOrder(func(o *kvcache.Order) { o.OpenSession(owner, kvcache.SessionOptions{}) })
	}
	granted := Granted
	u.eachOrder(func(tier int, o *kvcache.Order) {
		o.Tag(owner, []kvcache.Ref{u.ref})
		if w.Priority != nil {
			o.Retain(u.ref, kvcache.Retention{Priority: *w.Priority, TTL: w.TTL})
		}
		if w.Ephemeral {
			o.SetEphemeral(u.ref)
		}
		if w.Pin == nil {
			return
		}
		r := o.Pin([]kvcache.Ref{u.ref}, kvcache.Pin{Owner: owner, TTL: *w.Pin})
		if tier == all && *w.Pin > 0 && r.Pinned < r.Requested {
			granted = NoRoom
		}
	})
	if memory := only(0); w.Ephemeral && c.ephemeral(u) && u.at[whole].has(0) {
		c.withdraw(u, ^memory, metadata, whole) // it is not worth more
		return granted
	}
	c.remember(u, now)
	return granted
}

// maxSessions bounds the sessions of a namespace that are open.
const maxSessions = 1 << 14

// crowded says whether a session would be one too many.
func (sp *space) crowded(id string) bool {
	return id != "" && sp.order.Sessions() >= maxSessions && sp.order.SessionState(sp.session(id)) == kvcache.SessionUnknown
}

// session is the name of a session of a namespace.
func (sp *space) session(id string) kvcache.SessionID {
	return kvcache.SessionOf(kv.SessionKey{Salt: sp.Name, ID: id})
}

// Session returns what a session is, and how many values are tagged with it.
func (t *Tenant) Session(id string) (state kvcache.SessionState, values int) {
	c := t.s.cache
	c.begin()
	defer c.mu.Unlock()
	return t.sp.order.SessionState(t.sp.session(id)), t.sp.order.Held(t.sp.session(id))
}

// CloseSession ends a session, and returns what it was.
func (t *Tenant) CloseSession(id string) (state kvcache.SessionState) {
	c := t.s.cache
	c.begin()
	defer c.mu.Unlock()
	t.sp.eachOrder(func(o *kvcache.Order) {
		if was := o.CloseSession(t.sp.session(id)); o == t.sp.order {
			state = was
		}
	})
	return state
}

// Prefix returns how many of the leading hashes of a model's chunks are there.
func (t *Tenant) Prefix(model string, hashes []string) int {
	c := t.s.cache
	c.begin()
	n := t.sp.prefix(model, hashes)
	c.mu.Unlock()
	t.s.traffic.asked.Add(int64(len(hashes)))
	t.s.traffic.led.Add(int64(n))
	return n
}

// Flush removes all values that are there when it begins, pinned ones as well, and
// those that an earlier life has left and that are not found yet. It returns how many
// keys it has removed.
func (t *Tenant) Flush() (keys int) {
	c := t.s.cache
	c.begin()
	t.sp.flushed = c.nextVersion()
	c.mu.Unlock()
	for from := uint64(0); ; {
		some, next := c.scan(t.sp, from, scanMost)
		keys += c.del(t.sp, some)
		if from = next; next == 0 {
			return keys
		}
	}
}

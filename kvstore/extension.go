package kvstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// wish is what KV.RETAIN asks for a value.
type wish struct {
	priority  *uint8
	ttl       time.Duration
	pin       *time.Duration
	session   string
	ephemeral bool
}

// kvRetain says how long a value is worth keeping:
//
//	KV.RETAIN key PRIO n [DURATION ms] [PIN ms] [SESSION id] [CLASS eph|norm]
//
// with at least one of them. It answers 1, or 0 if there is no such value. A PIN
// for which the budget has no room is an error, after the rest was done.
func kvRetain(c *conn, _ context.Context, args [][]byte) {
	w, err := readWish(texts(args[1:]))
	if err != nil {
		c.out.fail("ERR KV.RETAIN: " + err.Error())
		return
	}
	switch found, pinned := c.s.cache.retain(c.sp, string(args[0]), w); {
	case !found:
		c.out.integer(0)
	case !pinned:
		c.out.fail("DENIED no room in the pin budget")
	default:
		c.out.integer(1)
	}
}

func readWish(args []string) (w wish, err error) {
	for ; len(args) > 0; args = args[2:] {
		name := strings.ToUpper(args[0])
		if len(args) == 1 {
			return w, errors.New(printable(name) + " without a value")
		}
		value := args[1]
		switch name {
		case "PRIO":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil || n > 100 {
				return w, errors.New("PRIO " + printable(value) + ": want 0 to 100")
			}
			p := uint8(n)
			w.priority = &p
		case "DURATION", "PIN":
			ms, err := strconv.ParseInt(value, 10, 64)
			if err != nil || ms < 0 || ms > int64(maxTTL/time.Millisecond) {
				return w, errors.New(name + " " + printable(value) + ": want milliseconds, 0 to those of a year")
			}
			d := time.Duration(ms) * time.Millisecond
			if name == "PIN" {
				w.pin = &d
			} else {
				w.ttl = d
			}
		case "SESSION":
			if value == "" || len(value) > maxSession {
				return w, errors.New("SESSION: want an id of 1 to 256 bytes")
			}
			w.session = value
		case "CLASS":
			switch strings.ToLower(value) {
			case "eph":
				w.ephemeral = true
			case "norm":
			default:
				return w, errors.New("CLASS " + printable(value) + ": want eph or norm")
			}
		default:
			return w, errors.New(printable(name) + ": want PRIO, DURATION, PIN, SESSION or CLASS")
		}
	}
	if w.ttl > 0 && w.priority == nil {
		return w, errors.New("DURATION without PRIO")
	}
	return w, nil
}

const (
	maxTTL     = 365 * 24 * time.Hour
	maxSession = 256
)

// kvSession ends a session: KV.SESSION CLOSE id. It answers what the session was.
func kvSession(c *conn, _ context.Context, args [][]byte) {
	if !strings.EqualFold(string(args[0]), "CLOSE") {
		c.out.fail("ERR KV.SESSION knows CLOSE only")
		return
	}
	c.out.bulk(c.s.cache.closeSession(c.sp, string(args[1])).String())
}

// kvPrefix answers how many of the leading chunks are there:
// KV.PREFIX model hash [hash ...]
func kvPrefix(c *conn, _ context.Context, args [][]byte) {
	c.s.cache.begin()
	n := c.sp.prefix(string(args[0]), texts(args[1:]))
	c.s.cache.mu.Unlock()
	c.out.integer(int64(n))
}

// kvStats answers names and numbers, in turn.
func kvStats(c *conn, _ context.Context, _ [][]byte) {
	st := c.s.cache.stats(c.sp)
	table := []struct {
		name string
		n    int64
	}{
		{"keys", int64(st.keys)},
		{"values", int64(st.units)},
		{"bytes", st.used},
		{"capacity", st.may},
		{"pinned_bytes", st.pinned},
		{"pin_budget", st.pinBudget},
		{"sessions", int64(st.sessions)},
		{"hits", st.hits},
		{"misses", st.misses},
		{"stored", st.stored},
		{"evicted", st.evicted},
		{"expired", st.expired},
		{"corrupt", st.corrupt},
		{"full", st.full},
		{"quota_denied", st.denied},
		{"orphans", st.orphans},
	}
	c.out.dictionary(len(table))
	for _, row := range table {
		c.out.bulk(row.name)
		c.out.integer(row.n)
	}
}

// session is the name of a session of a namespace.
func (sp *space) session(id string) kvcache.SessionID {
	return kvcache.SessionOf(kv.SessionKey{Salt: sp.Name, ID: id})
}

// retain does what is wished for the value that key is a part of.
func (c *cache) retain(sp *space, key string, w wish) (found, pinned bool) {
	c.begin()
	defer c.mu.Unlock()
	name, p, _ := splitKey(key)
	u := c.find(sp, name)
	if u == nil || !u.has[p] {
		return false, false
	}
	var owner kvcache.SessionID
	if w.session != "" {
		owner = sp.session(w.session)
		sp.order.OpenSession(owner, kvcache.SessionOptions{})
		sp.order.Tag(owner, []kvcache.Ref{u.ref})
	}
	if w.priority != nil {
		sp.order.Retain(u.ref, kvcache.Retention{Priority: *w.priority, TTL: w.ttl})
	}
	if w.ephemeral {
		sp.order.SetEphemeral(u.ref)
	}
	if w.pin == nil {
		return true, true
	}
	r := sp.order.Pin([]kvcache.Ref{u.ref}, kvcache.Pin{Owner: owner, TTL: *w.pin})
	return true, *w.pin == 0 || r.Pinned == r.Requested
}

func (c *cache) closeSession(sp *space, id string) kvcache.SessionState {
	c.begin()
	defer c.mu.Unlock()
	return sp.order.CloseSession(sp.session(id))
}

// stats is what is known of one namespace; the counts are of all.
type stats struct {
	counts
	keys, units, expiring, sessions int
	used, may, pinned, pinBudget    int64
}

func (c *cache) stats(sp *space) stats {
	c.begin()
	defer c.mu.Unlock()
	st := stats{
		counts: c.counts, keys: sp.keys, units: len(sp.names), expiring: len(sp.dues),
		sessions: sp.order.Sessions(), used: sp.used, may: sp.may,
	}
	st.pinned, st.pinBudget = sp.order.PinBudget()
	return st
}

// scan returns the keys of so many units from a number on, and where to go on; 0
// is the end.
func (c *cache) scan(sp *space, at uint64, count int) (keys []string, next uint64) {
	c.begin()
	defer c.mu.Unlock()
	end := min(at+uint64(count), uint64(len(sp.units)))
	for ; at < end; at++ {
		for p, u := whole, sp.units[at]; u != nil && p <= metadata; p++ {
			if u.has[p] {
				keys = append(keys, u.clientKey(p))
			}
		}
	}
	if end >= uint64(len(sp.units)) {
		return keys, 0
	}
	return keys, end
}

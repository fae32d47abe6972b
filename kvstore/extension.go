package kvstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// kvRetain says how long a value is worth keeping:
//
//	KV.RETAIN key PRIO n [DURATION ms] [PIN ms] [SESSION id] [CLASS eph|norm] [EPOCH n]
//
// with at least one of them. It answers 1, or 0 if there is no such value. A PIN
// for which the budget has no room is an error, after the rest was done.
func kvRetain(c *conn, _ context.Context, args [][]byte) {
	w, err := readWish(texts(args[1:]))
	if err != nil {
		c.out.fail("ERR KV.RETAIN: " + err.Error())
		return
	}
	switch outcome, err := c.tenant().Retain(string(args[0]), w); {
	case err != nil:
		c.out.fail("ERR KV.RETAIN: " + err.Error())
	case outcome == NoRoom:
		c.out.fail("DENIED no room in the pin budget")
	default:
		c.out.integer(int64(outcome))
	}
}

// tenant is the namespace of a client, which has one.
func (c *conn) tenant() *Tenant { return &Tenant{c.s, c.sp} }

func readWish(args []string) (w Wish, err error) {
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
			w.Priority = &p
		case "DURATION", "PIN":
			ms, err := strconv.ParseInt(value, 10, 64)
			if err != nil || ms < 0 || ms > int64(maxTTL/time.Millisecond) {
				return w, errors.New(name + " " + printable(value) + ": want milliseconds, 0 to those of a year")
			}
			d := time.Duration(ms) * time.Millisecond
			if name == "PIN" {
				w.Pin = &d
			} else {
				w.TTL = d
			}
		case "SESSION":
			if value == "" || len(value) > maxSession {
				return w, errors.New("SESSION: want an id of 1 to 256 bytes")
			}
			w.Session = value
		case "CLASS":
			switch strings.ToLower(value) {
			case "eph":
				w.Ephemeral = true
			case "norm":
			default:
				return w, errors.New("CLASS " + printable(value) + ": want eph or norm")
			}
		case "EPOCH":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return w, errors.New("EPOCH " + printable(value) + ": want 0 to 4294967295")
			}
			e := uint32(n)
			w.Epoch = &e
		default:
			return w, errors.New(printable(name) + ": want PRIO, DURATION, PIN, SESSION, CLASS or EPOCH")
		}
	}
	if w.TTL > 0 && w.Priority == nil {
		return w, errors.New("DURATION without PRIO")
	}
	return w, nil
}

// kvSession ends a session: KV.SESSION CLOSE id. It answers what the session was.
func kvSession(c *conn, _ context.Context, args [][]byte) {
	if !strings.EqualFold(string(args[0]), "CLOSE") {
		c.out.fail("ERR KV.SESSION knows CLOSE only")
		return
	}
	c.out.bulk(c.tenant().CloseSession(string(args[1])).String())
}

// kvPrefix answers how many of the leading chunks are there:
// KV.PREFIX model hash [hash ...]
func kvPrefix(c *conn, _ context.Context, args [][]byte) {
	c.out.integer(int64(c.tenant().Prefix(string(args[0]), texts(args[1:]))))
}

// kvStats answers names and numbers, in turn: what the namespace holds, then what
// was counted over all of them.
func kvStats(c *conn, _ context.Context, _ [][]byte) {
	all, own := c.s.Stats(), c.tenant().Stats()
	type row struct {
		name string
		n    int64
	}
	table := []row{
		{"keys", int64(own.Keys)},
		{"values", int64(own.Values)},
		{"bytes", own.Used},
		{"capacity", own.Capacity},
		{"pinned_bytes", own.Pinned},
		{"pin_budget", own.PinBudget},
		{"sessions", int64(own.Sessions)},
		{"hits", all.Hits},
		{"misses", all.Misses},
		{"stored", all.Stored},
		{"evicted", all.Evicted},
		{"expired", all.Expired},
		{"corrupt", all.Corrupt},
		{"full", all.Full},
		{"quota_denied", all.Denied},
		{"orphans", all.Orphans},
	}
	for _, t := range all.Tiers {
		table = append(table, row{t.Name + "_bytes", t.Used}, row{t.Name + "_hits", t.Hits}, row{t.Name + "_lost", t.Lost}, row{t.Name + "_waiting", int64(t.Waiting)})
	}
	c.out.dictionary(len(table))
	for _, row := range table {
		c.out.bulk(row.name)
		c.out.integer(row.n)
	}
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

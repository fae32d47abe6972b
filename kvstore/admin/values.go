package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvstore"
)

// namespace is one as it is shown.
type namespace struct {
	Name      string `json:"name"`
	Keys      int    `json:"keys"`
	Values    int    `json:"values"`
	Expiring  int    `json:"expiring"`
	Leased    int    `json:"leased"`
	Sessions  int    `json:"sessions"`
	Bytes     int64  `json:"bytes"`
	Capacity  int64  `json:"capacity_bytes"`
	Quota     int64  `json:"quota_bytes,omitzero"`
	Full      string `json:"full"`
	Pinned    int64  `json:"pinned_bytes"`
	PinBudget int64  `json:"pin_budget_bytes"`
}

func show(n kvstore.NamespaceStats) namespace {
	full := "evict"
	if n.Deny {
		full = "deny"
	}
	return namespace{n.Name, n.Keys, n.Values, n.Expiring, n.Leased, n.Sessions, n.Used, n.Capacity, n.Quota, full, n.Pinned, n.PinBudget}
}

// stats shows the namespace, and what the server has counted over all of them.
func (s *Server) stats(_ *http.Request, t *kvstore.Tenant) (any, error) {
	all := s.opts.Store.Stats()
	type counters struct {
		Hits     int64 `json:"hits"`
		Misses   int64 `json:"misses"`
		Stored   int64 `json:"stored"`
		Replaced int64 `json:"replaced"`
		Evicted  int64 `json:"evicted"`
		Expired  int64 `json:"expired"`
		Corrupt  int64 `json:"corrupt"`
		Full     int64 `json:"full"`
		Denied   int64 `json:"quota_denied"`
		Orphans  int64 `json:"orphans"`
	}
	type tier struct {
		Name     string `json:"name"`
		Bytes    int64  `json:"bytes"`
		Capacity int64  `json:"capacity_bytes,omitzero"`
		Hits     int64  `json:"hits"`
		Stored   int64  `json:"stored"`
		Evicted  int64  `json:"evicted"`
		Failed   int64  `json:"failed"`
		Lost     int64  `json:"lost"`
		Waiting  int    `json:"waiting"`
	}
	var tiers []tier
	for _, t := range all.Tiers {
		tiers = append(tiers, tier{t.Name, t.Used, t.Capacity, t.Hits, t.Stored, t.Evicted, t.Failed, t.Lost, t.Waiting})
	}
	return struct {
		Uptime    float64   `json:"uptime_seconds"`
		Clients   int       `json:"clients"`
		Receiving int64     `json:"receiving_bytes"`
		Namespace namespace `json:"namespace"`
		Tiers     []tier    `json:"tiers"`
		Counters  counters  `json:"counters"`
	}{
		all.Uptime.Seconds(), all.Clients, all.Receiving, show(t.Stats()), tiers,
		counters{all.Hits, all.Misses, all.Stored, all.Replaced, all.Evicted, all.Expired, all.Corrupt, all.Full, all.Denied, all.Orphans},
	}, nil
}

// namespaces lists what the token opens.
func (s *Server) namespaces(_ *http.Request, t *kvstore.Tenant) (any, error) {
	return struct {
		Namespaces []namespace `json:"namespaces"`
	}{[]namespace{show(t.Stats())}}, nil
}

// entry is a value as it is shown, without its bytes.
type entry struct {
	Key           string    `json:"key"`
	Bytes         int64     `json:"bytes"`
	Tiers         []string  `json:"tiers"`
	Pair          bool      `json:"pair"`
	Leased        bool      `json:"leased"`
	Class         string    `json:"class"`
	Priority      uint8     `json:"priority"`
	PriorityUntil time.Time `json:"priority_until,omitzero"`
	PinnedUntil   time.Time `json:"pinned_until,omitzero"`
	HardPin       bool      `json:"hard_pin,omitzero"`
	Ephemeral     bool      `json:"ephemeral,omitzero"`
	Expires       time.Time `json:"expires,omitzero"`
}

func showEntry(e kvstore.Entry) entry {
	r := e.Retention
	return entry{
		Key: e.Key, Bytes: e.Size, Tiers: e.Tiers, Pair: e.Pair, Leased: e.Leased, Class: e.Class.String(),
		Priority: r.Priority, PriorityUntil: moment(r.PriorityDeadline),
		PinnedUntil: moment(r.PinDeadline), HardPin: r.HardPin, Ephemeral: r.Ephemeral, Expires: e.Expires.UTC(),
	}
}

// moment is a deadline in milliseconds since 1970; 0 is none.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func absent(key string) error {
	return &fault{http.StatusNotFound, "there is no " + printable(key)}
}

func (s *Server) look(r *http.Request, t *kvstore.Tenant) (any, error) {
	key := r.PathValue("key")
	e, ok := t.Look(key)
	if !ok {
		return nil, absent(key)
	}
	return showEntry(e), nil
}

// leading is how many of the hashes of a prompt are there, from the first one on.
type leading struct {
	Asked   int `json:"asked"`
	Present int `json:"present"`
}

func (s *Server) prefix(r *http.Request, t *kvstore.Tenant) (any, error) {
	q := r.URL.Query()
	return prefix(t, q.Get("model"), q["hash"])
}

func (s *Server) prefixOf(r *http.Request, t *kvstore.Tenant) (any, error) {
	var q struct {
		Model  string   `json:"model"`
		Hashes []string `json:"hashes"`
	}
	if err := read(r, &q); err != nil {
		return nil, err
	}
	return prefix(t, q.Model, q.Hashes)
}

func prefix(t *kvstore.Tenant, model string, hashes []string) (any, error) {
	if model == "" || len(hashes) == 0 {
		return nil, bad("want a model and the hashes of its chunks, in their order")
	}
	return leading{len(hashes), t.Prefix(model, hashes)}, nil
}

// Pages of a list.
const (
	usualPage = 100
	mostPage  = 1000
)

func (s *Server) pins(r *http.Request, t *kvstore.Tenant) (any, error) {
	q := r.URL.Query()
	from, limit := uint64(0), uint64(usualPage)
	for name, to := range map[string]*uint64{"from": &from, "limit": &limit} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return nil, bad("%s=%s: want a number", name, printable(text))
			}
			*to = n
		}
	}
	if limit < 1 || limit > mostPage {
		return nil, bad("limit=%d: want 1 to %d", limit, mostPage)
	}
	pinned, next := t.Pins(from, int(limit))
	st := t.Stats()
	list := make([]entry, len(pinned))
	for i, e := range pinned {
		list[i] = showEntry(e)
	}
	return struct {
		Bytes  int64   `json:"pinned_bytes"`
		Budget int64   `json:"pin_budget_bytes"`
		Pins   []entry `json:"pins"`
		Next   uint64  `json:"next,omitzero"`
	}{st.Pinned, st.PinBudget, list, next}, nil
}

// sessions tells how many there are; their ids are not kept.
func (s *Server) sessions(_ *http.Request, t *kvstore.Tenant) (any, error) {
	return struct {
		Sessions int `json:"sessions"`
	}{t.Stats().Sessions}, nil
}

type session struct {
	Session string `json:"session"`
	State   string `json:"state"`
	Values  int    `json:"values"`
}

func (s *Server) session(r *http.Request, t *kvstore.Tenant) (any, error) {
	id := r.PathValue("id")
	state, values := t.Session(id)
	if state == kvcache.SessionUnknown {
		return nil, &fault{http.StatusNotFound, "there is no session " + printable(id)}
	}
	return session{id, state.String(), values}, nil
}

// closeSession ends a session. One that has ended already is no error.
func (s *Server) closeSession(r *http.Request, t *kvstore.Tenant) (any, error) {
	id := r.PathValue("id")
	return struct {
		Session string `json:"session"`
		Was     string `json:"was"`
	}{id, t.CloseSession(id).String()}, nil
}

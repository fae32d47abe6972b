package frontend

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// Inventory tells what of caches is bound and pinned, and who holds a block. The model
// "" is all of them.
type Inventory interface {
	SessionList(model string) []router.SessionInfo
	PinList(model string) []pipeline.PinInfo
	Holders(block kv.EngineHash) []router.Holding
}

const (
	kvSessionsPath = "/v1/kv/sessions"
	kvPinsPath     = "/v1/kv/pins"
	kvKeysPath     = "/v1/kv/keys/{hash}"
)

// How many entries of a list are told at once.
const (
	usualPage = 100
	mostPage  = 1000
)

func (s *Server) kvListRoutes() []route {
	if s.Inventory == nil {
		return nil
	}
	return []route{
		{"GET", "", kvSessionsPath, s.kvSessions},
		{"GET", "", kvPinsPath, s.kvPins},
		{"GET", "", kvKeysPath, s.kvKey},
	}
}

// kvSession is a session that is bound to a worker, on the wire.
type kvSession struct {
	Session   string  `json:"session_id"`
	Model     string  `json:"model"`
	Tenant    string  `json:"tenant,omitzero"`
	Role      string  `json:"role,omitzero"`
	From      string  `json:"from,omitzero"` // the router of another frontend that has bound it
	State     string  `json:"state"`
	WorkerID  uint64  `json:"worker_id,omitzero"` // absent while it is chosen
	Rank      uint32  `json:"dp_rank"`
	Running   int     `json:"running"`
	Kept      bool    `json:"kept_by_engine"`
	Ephemeral bool    `json:"ephemeral"`
	Timeout   float64 `json:"timeout_s"`
	ExpiresIn float64 `json:"expires_in_s,omitzero"`
}

// kvSessions answers GET /v1/kv/sessions?model=NAME&tenant=NAME&from=N&limit=N.
func (s *Server) kvSessions(w http.ResponseWriter, r *http.Request) {
	p, ok := partFor(s, w, r, s.Inventory.SessionList(s.ofModel(r)),
		func(i *router.SessionInfo) string { return i.Tenant },
		func(i *router.SessionInfo) kvSession {
			return kvSession{
				Session: i.ID, Model: i.Model, Tenant: i.Tenant, Role: string(i.Role), From: i.From, State: string(i.State),
				WorkerID: i.Target.Worker, Rank: i.Target.Rank, Running: i.Running, Kept: i.Kept, Ephemeral: i.Ephemeral,
				Timeout: i.Timeout.Seconds(), ExpiresIn: i.ExpiresIn.Seconds(),
			}
		})
	if !ok {
		return
	}
	s.object(w, http.StatusOK, struct {
		Total    int         `json:"total"`
		Next     int         `json:"next,omitzero"`
		Sessions []kvSession `json:"sessions"`
	}{p.total, p.next, p.list})
}

// kvPin is a pinned prefix on the wire.
type kvPin struct {
	Hash     string  `json:"block_hash"` // of the last block
	Blocks   int     `json:"blocks"`
	Model    string  `json:"model"`
	Tenant   string  `json:"tenant,omitzero"`
	Session  string  `json:"session_id,omitzero"`
	WorkerID uint64  `json:"worker_id"`
	Rank     uint32  `json:"dp_rank"`
	By       string  `json:"by"`
	Warm     bool    `json:"kept_warm"`
	EndsIn   float64 `json:"ends_in_s"`
}

// kvPins answers GET /v1/kv/pins?model=NAME&tenant=NAME&from=N&limit=N.
func (s *Server) kvPins(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	p, ok := partFor(s, w, r, s.Inventory.PinList(s.ofModel(r)),
		func(p *pipeline.PinInfo) string { return p.Tenant },
		func(p *pipeline.PinInfo) kvPin {
			return kvPin{
				Hash: strconv.FormatUint(uint64(p.Hash), 10), Blocks: p.Blocks, Model: p.Model, Tenant: p.Tenant, Session: p.Session,
				WorkerID: p.Target.Worker, Rank: p.Target.Rank, By: p.By, Warm: p.Warm, EndsIn: p.Until.Sub(now).Seconds(),
			}
		})
	if !ok {
		return
	}
	s.object(w, http.StatusOK, struct {
		Total int     `json:"total"`
		Next  int     `json:"next,omitzero"`
		Pins  []kvPin `json:"pins"`
	}{p.total, p.next, p.list})
}

// kvHolding is a rank that holds a block, on the wire.
type kvHolding struct {
	WorkerID uint64   `json:"worker_id"`
	Rank     uint32   `json:"dp_rank"`
	Tiers    []string `json:"tiers"`
}

// kvKey answers GET /v1/kv/keys/HASH.
func (s *Server) kvKey(w http.ResponseWriter, r *http.Request) {
	x, text := exchangeOf(r), r.PathValue("hash")
	hash, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.refuseTo(w, x, wire.Invalid("hash", "%s: want the name that an engine has for a block, a number of 64 bits", wire.Clip(text)))
		return
	}
	out := struct {
		Hash    string      `json:"block_hash"`
		Holders []kvHolding `json:"holders"`
	}{strconv.FormatUint(hash, 10), []kvHolding{}}
	for _, h := range s.Inventory.Holders(kv.EngineHash(hash)) {
		tiers := make([]string, len(h.Tiers))
		for i, t := range h.Tiers {
			tiers[i] = t.String()
		}
		out.Holders = append(out.Holders, kvHolding{h.Target.Worker, h.Target.Rank, tiers})
	}
	if len(out.Holders) == 0 {
		s.refuseTo(w, x, refusal(http.StatusNotFound, "Nobody has told that it holds block %d", hash))
		return
	}
	s.object(w, http.StatusOK, out)
}

// ofModel returns the primary name of the model that a query asks about, "" for all.
func (s *Server) ofModel(r *http.Request) string {
	if name := r.URL.Query().Get("model"); name != "" {
		return s.resolve(name)
	}
	return ""
}

// part is a part of a list.
type part[U any] struct {
	total, next int
	list        []U
}

// partFor returns the part of a list that a request asks for, or refuses it. Who comes
// with a tenant's key sees what is that tenant's.
func partFor[T, U any](s *Server, w http.ResponseWriter, r *http.Request, list []T, tenant func(*T) string, show func(*T) U) (p part[U], ok bool) {
	x, q := exchangeOf(r), r.URL.Query()
	from, limit, err := partOf(q.Get("from"), q.Get("limit"))
	if err != nil {
		s.refuseTo(w, x, err)
		return p, false
	}
	p.list = []U{}
	for i := range list {
		of := tenant(&list[i])
		if x.tenant != "" && of != x.tenant || q.Has("tenant") && of != q.Get("tenant") {
			continue
		}
		if p.total >= from && len(p.list) < limit {
			p.list = append(p.list, show(&list[i]))
		}
		p.total++
	}
	if next := from + len(p.list); next < p.total && len(p.list) > 0 {
		p.next = next
	}
	return p, true
}

// partOf reads which part of a list is asked for.
func partOf(from, limit string) (first, most int, err error) {
	most = usualPage
	if from != "" {
		if first, err = strconv.Atoi(from); err != nil || first < 0 {
			return 0, 0, wire.Invalid("from", "from: want a number from 0 on, got %q", wire.Clip(from))
		}
	}
	if limit != "" {
		if most, err = strconv.Atoi(limit); err != nil || most < 1 || most > mostPage {
			return 0, 0, wire.Invalid("limit", "limit: want 1 to %d, got %q", mostPage, wire.Clip(limit))
		}
	}
	return first, most, nil
}

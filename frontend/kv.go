package frontend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/pipeline"
)

// prefetchPath is where agents say which prompt comes next, so that what is cached of
// it in lower tiers is brought up meanwhile.
const prefetchPath = "/v1/kv/prefetch"

// Prefetcher brings blocks up before a request needs them; [pipeline.Pipeline] is one.
type Prefetcher interface {
	Prefetch(ctx context.Context, q *pipeline.PrefetchRequest) (pipeline.Prefetch, error)
	// PrefetchState and CancelPrefetch are about a prefetch that the tenant has begun.
	PrefetchState(ctx context.Context, tenant, id string) (pipeline.Prefetch, error)
	CancelPrefetch(ctx context.Context, tenant, id string) (pipeline.Prefetch, error)
}

func (s *Server) kvRoutes() []route {
	if s.Prefetcher == nil {
		return nil
	}
	return []route{
		{"POST", "", prefetchPath, s.prefetch},
		{"GET", "", prefetchPath + "/{id}", s.aboutPrefetch(s.Prefetcher.PrefetchState)},
		{"DELETE", "", prefetchPath + "/{id}", s.aboutPrefetch(s.Prefetcher.CancelPrefetch)},
	}
}

// prefetch answers POST /v1/kv/prefetch.
func (s *Server) prefetch(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if !s.stage.enter() {
		s.refuseTo(w, x, s.notReady())
		return
	}
	defer s.stage.leave()
	body, err := s.body(w, r)
	if err != nil {
		s.refuseTo(w, x, err)
		return
	}
	q, ext, err := s.decodePrefetch(body, x.arrived)
	if err != nil {
		s.refuseTo(w, x, err)
		return
	}
	q.Tenant, q.Chat = x.tenant, s.resolved(q.Chat)
	if !s.OpenAI.DisableNVExt {
		ext, _ = ext.WithHeaders(r.Header.Values)
	}
	if ext != nil {
		q.Namespace.Salt = ext.CacheSalt
	}
	q.Session = cmp.Or(q.Session, nvext.Sources{Header: r.Header.Get, Ext: ext}.Identity().Key)
	p, err := s.Prefetcher.Prefetch(r.Context(), q)
	if err != nil {
		s.refuseTo(w, x, err)
		return
	}
	s.object(w, http.StatusAccepted, begun{
		ID: p.ID, WorkerID: p.Worker, State: p.State,
		Blocks: begunBlocks{p.Requested, p.Already, p.Scheduled, p.Missing},
	})
}

// begun is a prefetch on the wire.
type begun struct {
	ID       string      `json:"prefetch_id"`
	WorkerID uint64      `json:"worker_id"`
	State    string      `json:"state"`
	Blocks   begunBlocks `json:"blocks"`
}

type begunBlocks struct {
	Requested int `json:"requested"`
	Already   int `json:"already"`
	Scheduled int `json:"scheduled"`
	Missing   int `json:"missing"`
}

// aboutPrefetch answers a request about one prefetch.
func (s *Server) aboutPrefetch(ask func(ctx context.Context, tenant, id string) (pipeline.Prefetch, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		p, err := ask(r.Context(), x.tenant, clip(r.PathValue("id")))
		if err != nil {
			s.refuseTo(w, x, err)
			return
		}
		s.object(w, http.StatusOK, struct {
			State  string `json:"state"`
			Loaded int    `json:"loaded"`
			Failed int    `json:"failed"`
		}{p.State, p.Loaded, p.Failed})
	}
}

// prefetchFields are the members that are no part of a prompt.
type prefetchFields struct {
	Model     string          `json:"model"`
	SessionID string          `json:"session_id"`
	CacheSalt string          `json:"cache_salt"`
	Ext       json.RawMessage `json:"nvext"`
	TokenIDs  []uint32        `json:"token_ids"`
	Hashes    prefixes        `json:"block_hashes"`
	Target    string          `json:"target_tier"`
	Deadline  string          `json:"deadline"`
	Worker    json.RawMessage `json:"worker"`
}

// ownFields are their names, the model's not among them.
var ownFields = []string{"session_id", "cache_salt", "nvext", "token_ids", "block_hashes", "target_tier", "deadline", "worker"}

// longestSession is that of session ids everywhere, in bytes.
const longestSession = 256

// decodePrefetch reads a body, and what its extension says of whose blocks are meant. A
// conversation, or a text, is read as for tokenize.
func (s *Server) decodePrefetch(body []byte, now time.Time) (*pipeline.PrefetchRequest, *nvext.Ext, error) {
	var (
		members map[string]json.RawMessage
		f       prefetchFields
	)
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, nil, wire.Invalid("", "Invalid JSON: %v", err)
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, nil, mistyped(err)
	}
	q, err := s.prefetchOf(members, &f, now)
	if err != nil {
		return nil, nil, err
	}
	var ext *nvext.Ext
	if f.Ext != nil && !s.OpenAI.DisableNVExt {
		if ext, _, err = nvext.Decode(f.Ext, s.OpenAI.StrictNVExt); err != nil {
			return nil, nil, strange(err)
		}
	}
	if ext, err = ext.WithSalt(f.CacheSalt); err != nil {
		return nil, nil, wire.Invalid("cache_salt", "%s", err)
	}
	return q, ext, nil
}

// strange is the error of an extension that cannot be read.
func strange(err error) error {
	if e, ok := errors.AsType[*nvext.Error](err); ok {
		return wire.Invalid(e.Path, "%s", e)
	}
	return wire.Invalid("nvext", "%s", err)
}

// prefetchOf reads what is wanted where, and when.
func (s *Server) prefetchOf(members map[string]json.RawMessage, f *prefetchFields, now time.Time) (*pipeline.PrefetchRequest, error) {
	q := &pipeline.PrefetchRequest{Session: strings.TrimSpace(f.SessionID)}
	if len(q.Session) > longestSession {
		return nil, wire.Invalid("session_id", "session_id must have at most %d bytes, got %d", longestSession, len(q.Session))
	}
	var err error
	if q.Target, err = targetTier(f.Target); err != nil {
		return nil, err
	}
	if q.Worker, err = workerID(f.Worker); err != nil {
		return nil, err
	}
	if q.In, err = until(f.Deadline, now); err != nil {
		return nil, err
	}
	given := 0
	for _, name := range []string{"messages", "prompt", "token_ids", "block_hashes"} {
		if v := members[name]; v != nil && string(v) != "null" {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, wire.Missing("messages", "Exactly one of 'messages', 'prompt', 'token_ids' and 'block_hashes' must be given, got %d", given)
	case f.TokenIDs == nil && f.Hashes == nil:
		if q.Chat, err = s.promptOf(members); err != nil {
			return nil, err
		}
		return q, nil
	case strings.TrimSpace(f.Model) == "":
		return nil, wire.Missing("model", "Model cannot be empty")
	case len(f.TokenIDs)+len(f.Hashes) == 0:
		return nil, wire.Invalid("token_ids", "token_ids and block_hashes must not be empty")
	}
	q.Chat = &chat.Request{API: chat.APICompletions, Model: f.Model}
	if f.TokenIDs != nil {
		q.Chat.Prompt = &chat.Prompt{IDs: f.TokenIDs}
		return q, nil
	}
	q.Hashes = f.Hashes
	return q, nil
}

// promptOf reads the members of a body that make a prompt.
func (s *Server) promptOf(members map[string]json.RawMessage) (*chat.Request, error) {
	for _, name := range ownFields {
		delete(members, name)
	}
	rest, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	c, err := openai.DecodeTokenize(rest, s.OpenAI)
	if err != nil {
		return nil, err
	}
	return c.Request, nil
}

// mistyped names the member that is of another type than it should be.
func mistyped(err error) error {
	if own, ok := errors.AsType[*wire.Error](err); ok {
		return own
	}
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		return wire.Invalid(e.Field, "%s: expected %s, got a JSON %s", e.Field, e.Type, e.Value)
	}
	return wire.Invalid("", "Invalid request: %v", err)
}

// until reads a moment, and returns how far away it is; 0 if there is none.
func until(deadline string, now time.Time) (time.Duration, error) {
	if deadline == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339, deadline)
	switch {
	case err != nil:
		return 0, wire.Invalid("deadline", "deadline must be a moment such as 2026-11-30T10:00:03Z, got %q", wire.Clip(deadline))
	case !at.After(now):
		return 0, wire.Invalid("deadline", "deadline has passed: %s, and it is %s", deadline, now.UTC().Format(time.RFC3339))
	}
	return at.Sub(now), nil
}

// targetTier reads the name of a tier that blocks can be brought to.
func targetTier(name string) (kv.Tier, error) {
	tiers := []string{"g1", "device", "g2", "host_pinned"}
	i := slices.Index(tiers, strings.ToLower(name))
	switch {
	case name == "":
		return kv.TierDevice, nil
	case i < 0:
		return 0, wire.Invalid("target_tier", "target_tier must be g1 or g2, got %q", wire.Clip(name))
	}
	return []kv.Tier{kv.TierDevice, kv.TierHost}[i/2], nil
}

// workerID reads the id of a worker, 0 for any.
func workerID(raw json.RawMessage) (uint64, error) {
	text := strings.Trim(string(raw), `"`)
	if text == "" || text == "auto" || text == "null" {
		return 0, nil
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, wire.Invalid("worker", "worker must be \"auto\" or the id of a worker, got %s", wire.Clip(string(raw)))
	}
	return id, nil
}

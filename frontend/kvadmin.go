package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// Caretaker does what operators want of the caches of workers; [pipeline.Pipeline] is
// one. The model "" is all of them.
type Caretaker interface {
	Flush(ctx context.Context, model string) []pipeline.Upkeep
	Retain(ctx context.Context, model string, r engine.RetentionUpdate) []pipeline.Upkeep
}

// kvAdminRoutes are the routes by which operators look after caches.
func (s *Server) kvAdminRoutes() []route {
	stats := route{"GET", "", kvStatsPath, s.kvStats}
	if s.Caretaker == nil {
		return []route{stats}
	}
	return []route{
		stats,
		{"POST", "", "/v1/kv/flush", s.changing(s.flush)},
		{"POST", "", "/v1/kv/retain", s.changing(s.retain)},
		{"POST", "", "/clear_kv_blocks", s.changing(s.clearBlocks)},
	}
}

// cared is what became of something at one worker, on the wire.
type cared struct {
	WorkerID uint64 `json:"worker_id"`
	Worker   string `json:"worker"`
	Model    string `json:"model"`
	Updated  int    `json:"updated,omitzero"`
	Error    string `json:"error,omitzero"`
}

// divided tells of those at which it was done, and of the others.
func divided(all []pipeline.Upkeep) (done, failed []cared) {
	done, failed = []cared{}, []cared{}
	for _, u := range all {
		c := cared{u.Worker, u.Name, u.Model, u.Updated, ""}
		if u.Err == nil {
			done = append(done, c)
			continue
		}
		c.Error = u.Err.Error()
		failed = append(failed, c)
	}
	return done, failed
}

// flush answers POST /v1/kv/flush?model=NAME.
func (s *Server) flush(w http.ResponseWriter, r *http.Request) {
	all := s.Caretaker.Flush(r.Context(), r.URL.Query().Get("model"))
	done, failed := divided(all)
	s.object(w, http.StatusOK, map[string][]cared{"flushed": done, "failed": failed})
}

// clearBlocks answers POST /clear_kv_blocks, which is flush in the words of others.
func (s *Server) clearBlocks(w http.ResponseWriter, r *http.Request) {
	type cleared struct {
		Name     string `json:"name"`
		Endpoint string `json:"endpoint"`
		Status   string `json:"status"`
		Response string `json:"response,omitzero"`
		Error    string `json:"error,omitzero"`
	}
	all := s.Caretaker.Flush(r.Context(), r.URL.Query().Get("model"))
	if len(all) == 0 {
		s.object(w, http.StatusOK, map[string]string{"message": "No active worker groups found"})
		return
	}
	done, failed := []cleared{}, []cleared{}
	for _, u := range all {
		c := cleared{Name: fmt.Sprintf("%s-instance-%d", u.Model, u.Worker), Endpoint: "dynamo/backend/clear_kv_blocks"}
		switch {
		case u.Err == nil:
			c.Status, c.Response = "Successfully cleared kv blocks for instance", string(u.Answer)
			done = append(done, c)
			continue
		case engine.KindOf(u.Err) == engine.Unsupported:
			c.Status = "No instances found for clear_kv_blocks endpoint"
		default:
			c.Status = "Failed to send request for instance"
		}
		c.Error = u.Err.Error()
		failed = append(failed, c)
	}
	s.object(w, http.StatusOK, map[string][]cleared{"cleared_workers": done, "failed_workers": failed})
}

// retain answers POST /v1/kv/retain.
func (s *Server) retain(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	body, err := s.body(w, r)
	if err != nil {
		s.refuseTo(w, x, err)
		return
	}
	model, u, err := decodeRetention(body)
	if err != nil {
		s.refuseTo(w, x, err)
		return
	}
	done, failed := divided(s.Caretaker.Retain(r.Context(), model, u))
	s.object(w, http.StatusOK, map[string][]cared{"retained": done, "failed": failed})
}

// decodeRetention reads what blocks are to be worth.
func decodeRetention(body []byte) (model string, u engine.RetentionUpdate, err error) {
	const most = 100
	var f struct {
		Model    string   `json:"model"`
		Hashes   prefixes `json:"block_hashes"`
		Priority *uint8   `json:"priority"`
		TTL      any      `json:"ttl"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return "", u, mistyped(err)
	}
	switch {
	case len(f.Hashes) == 0:
		return "", u, wire.Missing("block_hashes", "block_hashes must have at least one hash of a prefix")
	case f.Priority == nil:
		return "", u, wire.Missing("priority", "priority must be given, from 0 to %d", most)
	case *f.Priority > most:
		return "", u, wire.Invalid("priority", "priority must be from 0 to %d, got %d", most, *f.Priority)
	}
	u.Priority, u.Hashes = *f.Priority, f.Hashes
	if u.TTL, err = lifetime(f.TTL); err != nil {
		return "", u, err
	}
	return strings.TrimSpace(f.Model), u, nil
}

// lifetime reads for how long that holds, 0 for ever.
func lifetime(ttl any) (time.Duration, error) {
	if ttl == nil {
		return 0, nil
	}
	d, ok := (&nvext.CacheControl{TTL: ttl}).Lifetime()
	if !ok || d == 0 {
		return 0, wire.Invalid("ttl", "ttl must be a time such as \"5m\", or a number of seconds above 0")
	}
	return d, nil
}

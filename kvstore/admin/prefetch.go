package admin

import (
	"context"
	"net/http"

	"github.com/dynago/dynago/kvstore"
)

// prefetchTime bounds a prefetch: its answer must have gone before the connection's
// time is over.
const prefetchTime = bodyTime * 3 / 4

// prefetched is what became of values that were to be in memory.
type prefetched struct {
	Requested int   `json:"requested"`
	Already   int   `json:"already"`
	Loaded    int   `json:"loaded"`
	Failed    int   `json:"failed"`
	Missing   int   `json:"missing"`
	Bytes     int64 `json:"loaded_bytes"`
}

// prefetch reads values into memory before anybody asks for them. It answers when
// they are there; a client that goes ends it.
func (s *Server) prefetch(r *http.Request, t *kvstore.Tenant) (any, error) {
	var body struct {
		Keys    []string `json:"keys"`
		Key     string   `json:"key"`
		Timeout *int64   `json:"timeout_ms"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	keys, err := (&wishes{Keys: body.Keys, Key: body.Key}).keys()
	if err != nil {
		return nil, err
	}
	limit := prefetchTime
	if body.Timeout != nil {
		asked, err := milliseconds("timeout_ms", *body.Timeout)
		if err != nil {
			return nil, err
		}
		limit = min(limit, asked)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	return prefetched(t.Prefetch(ctx, keys)), nil
}

package frontend

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
	"github.com/dynago/dynago/openai/responses/store"
)

// page says which items of a list a client wants.
type page struct {
	limit         int
	ascending     bool
	after, before string
}

const (
	defaultItems = 20
	maxItems     = 100
)

// pageOf reads the query of a list.
func pageOf(query url.Values) (page, error) {
	p := page{limit: defaultItems, after: query.Get("after"), before: query.Get("before")}
	if limit := query.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > maxItems {
			return p, wire.Invalid("limit", "limit must be a number from 1 to %d, got %q", maxItems, wire.Clip(limit))
		}
		p.limit = n
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		p.ascending = true
	default:
		return p, wire.Invalid("order", "order must be asc or desc, got %q", wire.Clip(order))
	}
	return p, nil
}

// of returns the items of the page, and whether more follow.
func (p page) of(items []store.Item) (here []store.Item, more bool, err error) {
	if !p.ascending {
		items = slices.Clone(items)
		slices.Reverse(items)
	}
	at := func(id string) int {
		return slices.IndexFunc(items, func(item store.Item) bool { return item.ID == id })
	}
	if p.before != "" {
		i := at(p.before)
		if i < 0 {
			return nil, false, wire.Invalid("before", "There is no item with id '%s' in this response", wire.Clip(p.before))
		}
		items = items[:i]
	}
	if p.after != "" {
		i := at(p.after)
		if i < 0 {
			return nil, false, wire.Invalid("after", "There is no item with id '%s' in this response", wire.Clip(p.after))
		}
		items = items[i+1:]
	}
	if len(items) > p.limit {
		return items[:p.limit], true, nil
	}
	return items, false, nil
}

// listInputItems answers GET /v1/responses/{id}/input_items: what the response
// was made from, the conversation that it continues included.
func (s *Server) listInputItems(w http.ResponseWriter, r *http.Request) {
	p, err := pageOf(r.URL.Query())
	if err != nil {
		s.refuse(w, err)
		return
	}
	key := keyOf(r)
	items, ok := s.inputOf(key)
	items = distinct(items)
	if !ok {
		s.refuse(w, responseNotFound(key.id))
		return
	}
	here, more, err := p.of(items)
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.respond(w, http.StatusOK, appendItems(nil, here, more)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// distinct leaves out items whose id has come before: a client pages by ids.
func distinct(items []store.Item) []store.Item {
	seen := make(map[string]bool, len(items))
	return slices.DeleteFunc(slices.Clone(items), func(item store.Item) bool {
		again := seen[item.ID]
		seen[item.ID] = true
		return again
	})
}

// inputOf returns what went into a response.
func (s *Server) inputOf(key owned) ([]store.Item, bool) {
	if k := s.keeper.find(key); k != nil {
		if items, ok := k.given(); ok {
			return items, true
		}
	}
	if s.ResponsesStore == nil {
		return nil, false
	}
	_, items, ok := s.ResponsesStore.Conversation(key.tenant, key.id)
	return items, ok
}

// given returns what goes into the response, unless it has ended or nothing is to
// be stored.
func (k *kept) given() ([]store.Item, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Concat(k.before, k.input), k.stored && !k.ended
}

// appendItems appends a list of items.
func appendItems(dst []byte, items []store.Item, more bool) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = responses.AppendListed(dst, item.JSON, item.ID)
	}
	first, last := []byte("null"), []byte("null")
	if len(items) > 0 {
		first, last = wire.AppendString(nil, items[0].ID), wire.AppendString(nil, items[len(items)-1].ID)
	}
	dst = append(append(dst, `],"first_id":`...), first...)
	dst = append(append(dst, `,"last_id":`...), last...)
	dst = append(dst, `,"has_more":`...)
	return append(strconv.AppendBool(dst, more), '}')
}

package admin

import (
	"net/http"
	"time"

	"github.com/dynago/dynago/kvstore"
)

// wishes is the body of a request for the retention of values.
type wishes struct {
	Keys []string `json:"keys"`
	Key  string   `json:"key"`

	Priority *uint8 `json:"priority"`
	Duration *int64 `json:"duration_ms"`
	Pin      *int64 `json:"pin_ms"`
	Session  string `json:"session"`
	Class    string `json:"class"`
}

// mostKeys bounds the keys of one request.
const mostKeys = 10_000

func (w *wishes) keys() ([]string, error) {
	keys := w.Keys
	if w.Key != "" {
		keys = append(keys, w.Key)
	}
	if len(keys) == 0 || len(keys) > mostKeys {
		return nil, bad("%d keys: want 1 to %d, as \"keys\" or \"key\"", len(keys), mostKeys)
	}
	return keys, nil
}

func (w *wishes) wish() (out kvstore.Wish, err error) {
	out = kvstore.Wish{Priority: w.Priority, Session: w.Session}
	if w.Duration != nil {
		if out.TTL, err = milliseconds("duration_ms", *w.Duration); err != nil {
			return out, err
		}
	}
	if w.Pin != nil {
		pin, err := milliseconds("pin_ms", *w.Pin)
		if err != nil {
			return out, err
		}
		out.Pin = &pin
	}
	switch w.Class {
	case "ephemeral":
		out.Ephemeral = true
	case "", "normal":
	default:
		return out, bad("class %q: want ephemeral or normal", w.Class)
	}
	return out, nil
}

// milliseconds is n of them, which are fewer than would overflow.
func milliseconds(name string, n int64) (time.Duration, error) {
	if most := int64(366 * 24 * time.Hour / time.Millisecond); n < 0 || n > most {
		return 0, bad("%s: %d: want milliseconds, 0 to those of a year", name, n)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// done is what became of wishes.
type done struct {
	Requested int      `json:"requested"`
	Granted   int      `json:"granted"`
	Absent    []string `json:"absent,omitempty"`
	// Denied are those for whose pins the budget has no room. All else of their
	// wishes is done.
	Denied []string `json:"denied,omitempty"`
}

func apply(t *kvstore.Tenant, keys []string, w kvstore.Wish) (done, error) {
	d := done{Requested: len(keys)}
	for _, key := range keys {
		outcome, err := t.Retain(key, w)
		if err != nil {
			return d, bad("%v", err)
		}
		switch outcome {
		case kvstore.Granted:
			d.Granted++
		case kvstore.Absent:
			d.Absent = append(d.Absent, key)
		case kvstore.NoRoom:
			d.Denied = append(d.Denied, key)
		}
	}
	return d, nil
}

func (s *Server) retain(r *http.Request, t *kvstore.Tenant) (any, error) {
	var body wishes
	if err := read(r, &body); err != nil {
		return nil, err
	}
	w, err := body.wish()
	if err != nil {
		return nil, err
	}
	keys, err := body.keys()
	if err != nil {
		return nil, err
	}
	return apply(t, keys, w)
}

// pin pins values: those of the body, for so many milliseconds.
func (s *Server) pin(r *http.Request, t *kvstore.Tenant) (any, error) {
	var body struct {
		Keys    []string `json:"keys"`
		Key     string   `json:"key"`
		TTL     int64    `json:"ttl_ms"`
		Session string   `json:"session"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	if body.TTL == 0 {
		return nil, bad("ttl_ms: want how long the pins are to hold; DELETE takes them away")
	}
	ttl, err := milliseconds("ttl_ms", body.TTL)
	if err != nil {
		return nil, err
	}
	keys, err := (&wishes{Keys: body.Keys, Key: body.Key}).keys()
	if err != nil {
		return nil, err
	}
	return apply(t, keys, kvstore.Wish{Pin: &ttl, Session: body.Session})
}

// unpin takes away the pin of a session, or that of nobody.
func (s *Server) unpin(r *http.Request, t *kvstore.Tenant) (any, error) {
	key, none := r.PathValue("key"), time.Duration(0)
	d, err := apply(t, []string{key}, kvstore.Wish{Pin: &none, Session: r.URL.Query().Get("session")})
	if err != nil {
		return nil, err
	}
	if len(d.Absent) > 0 {
		return nil, absent(key)
	}
	return d, nil
}

// flush empties the namespace. It must be named, so that it is the one that is
// meant.
func (s *Server) flush(r *http.Request, t *kvstore.Tenant) (any, error) {
	if name := r.URL.Query().Get("namespace"); name != t.Name() {
		return nil, bad("namespace=%s: want the one to be emptied, %s", printable(name), t.Name())
	}
	return struct {
		Namespace string `json:"namespace"`
		Removed   int    `json:"removed_keys"`
	}{t.Name(), t.Flush()}, nil
}

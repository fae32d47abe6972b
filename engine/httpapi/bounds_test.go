package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
)

// Nothing that a server sends without end is read without end.
func TestBounds(t *testing.T) {
	gone := make(chan struct{}, 1)
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		switch kind := strings.TrimPrefix(r.URL.Path, "/base/"); kind {
		case "error":
			w.WriteHeader(http.StatusInternalServerError)
		case "page":
		default:
			w.Header().Set("Content-Type", kind)
		}
		piece := []byte("data: " + strings.Repeat("x", 1<<20))
		for {
			if _, err := w.Write(piece); err != nil {
				gone <- struct{}{}
				return
			}
			piece = piece[:0]
			piece = append(piece, strings.Repeat("x", 1<<20)...)
		}
	})
	for path, get := range map[string]func(path string) error{
		"/page":  func(path string) error { _, err := c.Get(t.Context(), path); return err },
		"/error": func(path string) error { _, err := c.Get(t.Context(), path); return err },
		"/text/event-stream": func(path string) error {
			var last error
			for _, err := range c.Stream(t.Context(), path, nil, []byte(`{}`)) {
				last = err
			}
			return last
		},
		"/text/html": func(path string) error {
			var last error
			for _, err := range c.Stream(t.Context(), path, nil, []byte(`{}`)) {
				last = err
			}
			return last
		},
	} {
		if err := get(path); engine.KindOf(err) != engine.Internal {
			t.Errorf("%s: %v, want internal", path, err)
		}
		<-gone
	}
}

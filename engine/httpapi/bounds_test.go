package httpapi_test

import (
	"bytes"
	"net/http"
	"runtime"
	"strconv"
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

// An answer is read whole whatever its length, and room is made for what arrives, not
// for what is announced.
func TestAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		announced, sent int
		kind            engine.ErrorKind // "": read
	}{
		"nothing":           {0, 0, ""},
		"little":            {1 << 10, 1 << 10, ""},
		"much":              {3 << 20, 3 << 20, ""},
		"little, half sent": {1 << 10, 1 << 9, engine.Disconnected},
		"much, little sent": {64 << 20, 1 << 10, engine.Disconnected},
		"much, and silence": {64 << 20, 0, engine.Disconnected},
	} {
		t.Run(name, func(t *testing.T) {
			sent := bytes.Repeat([]byte("answer. "), tc.sent/8)
			c := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(tc.announced))
				w.Write(sent)
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.Get(t.Context(), "/")
			runtime.ReadMemStats(&after)
			switch {
			case tc.kind == "" && (err != nil || !bytes.Equal(got, sent)):
				t.Errorf("got %d bytes, %v; want the %d sent", len(got), err, len(sent))
			case tc.kind != "" && engine.KindOf(err) != tc.kind:
				t.Errorf("got %d bytes, %v; want %s", len(got), err, tc.kind)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20+uint64(8*tc.sent) {
				t.Errorf("%d bytes were allocated for %d that arrived of %d", took, tc.sent, tc.announced)
			}
		})
	}
}

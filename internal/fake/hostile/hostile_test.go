package hostile_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dynago/dynago/internal/fake/hostile"
)

func stream(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: 1\n\nda")
	io.WriteString(w, "ta: 2\n\n")
}

// get returns what a client reads, and whether it was all.
func get(t *testing.T, h http.Handler) (kind, body string, whole bool) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.Header.Get("Content-Type"), string(text), err == nil
}

func TestSpoils(t *testing.T) {
	const sse = "text/event-stream"
	for name, c := range map[string]struct {
		spoil      hostile.Spoil
		kind, body string
		whole      bool
	}{
		"none":     {hostile.Spoil{}, sse, "data: 1\n\ndata: 2\n\n", true},
		"crlf":     {hostile.Spoil{CRLF: true, Piece: 1}, sse, "data: 1\r\n\r\ndata: 2\r\n\r\n", true},
		"comments": {hostile.Spoil{Comments: true, NoBlank: true}, sse, ": still here\n\ndata:1\n\n: still here\n\ndata:2\n\n", true},
		"fields":   {hostile.Spoil{Fields: true, Done: 1}, sse, "event: message\nid: 7\ndata: 1\n\nevent: message\nid: 7\ndata: 2\n\ndata: [DONE]\n\n", true},
		"padding":  {hostile.Spoil{Padding: 3}, sse, ":xxx\n\ndata: 1\n\ndata: 2\n\n", true},
		"cut":      {hostile.Spoil{Cut: 12}, sse, "data: 1\n\ndat", false},
		"short":    {hostile.Spoil{Short: 12}, sse, "data: 1\n\ndat", true},
		"broken":   {hostile.Spoil{Broken: true, Short: 31}, sse, "data: {\"choices\":[{]\n\ndata: 1\n\n", true},
		"a status": {hostile.Spoil{Status: 500}, "application/json", `{"error":{"message":"something is wrong","type":"server_error"}}`, true},
		"a page":   {hostile.Spoil{Page: true}, "text/html", "<html><body>It works!</body></html>", true},
		"a type":   {hostile.Spoil{Type: "text/plain"}, "text/plain", "data: 1\n\ndata: 2\n\n", true},
	} {
		kind, body, whole := get(t, c.spoil.Handler(http.HandlerFunc(stream)))
		if kind != c.kind || body != c.body || whole != c.whole {
			t.Errorf("%s: %q, %q, whole %v; want %q, %q, %v", name, kind, body, whole, c.kind, c.body, c.whole)
		}
	}
	// What is no stream passes.
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	if _, body, whole := get(t, hostile.Spoil{Page: true, Cut: 1}.Handler(h)); body != "no\n" || !whole {
		t.Errorf("an error became %q", body)
	}
}

// Streams of lines are spoilt, too, as far as they can be.
func TestLines(t *testing.T) {
	lines := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, "1\n2")
		io.WriteString(w, "2\n")
	})
	for body, spoil := range map[string]hostile.Spoil{
		"1\n22\n":                               {Piece: 1},
		"\r\n1\r\n\r\n22\r\n":                   {CRLF: true, Comments: true},
		"1\n2":                                  {Short: 3},
		"{\"done\":fal\n1\n{\"done\":fal\n22\n": {Broken: true},
	} {
		if _, got, whole := get(t, spoil.Handler(lines)); got != body || !whole {
			t.Errorf("%+v: %q, want %q", spoil, got, body)
		}
	}
}

// What hangs does so until its client has gone, and what it has sent is there.
func TestHangs(t *testing.T) {
	for name, spoil := range hostile.Harmful() {
		if !spoil.Hangs() {
			continue
		}
		done := make(chan struct{})
		h := spoil.Handler(http.HandlerFunc(stream))
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			h.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if spoil.Drip {
			buf := make([]byte, 15)
			if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "data: 1\n\n:\n\n:\n\n" {
				t.Errorf("%s: %q, %v", name, buf, err)
			}
		}
		select {
		case <-done:
			if spoil.Stall != 150 { // this stream is shorter
				t.Errorf("%s: it ended by itself", name)
			}
		default:
		}
		cancel()
		<-done
		resp.Body.Close()
		s.Close()
	}
}

func Example() {
	s := httptest.NewServer(hostile.Spoil{NoBlank: true, Done: 1}.Handler(http.HandlerFunc(stream)))
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Printf("%q\n", text)
	// Output: "data:1\n\ndata:2\n\ndata: [DONE]\n\n"
}

//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// recorder stands between a harness and the server, passes everything on, and
// keeps it.
type recorder struct {
	url string

	mu    sync.Mutex
	trips []*trip
}

// trip is one request and its answer.
type trip struct {
	path    string
	header  http.Header
	request []byte
	status  int
	answer  http.Header

	mu   sync.Mutex
	body bytes.Buffer // as much of the answer as has come
}

// text returns what has come of the answer.
func (p *trip) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.body.String()
}

// record starts a recorder in front of a server.
func record(t testing.TB, target string) *recorder {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(u)
			p.Out.Header.Del("Accept-Encoding")
			p.Out.Header.Set("X-Dynago-Debug", "1")
		},
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if p, ok := resp.Request.Context().Value(tripKey{}).(*trip); ok {
				p.mu.Lock()
				p.status, p.answer = resp.StatusCode, resp.Header.Clone()
				p.mu.Unlock()
				if resp.StatusCode != http.StatusSwitchingProtocols {
					resp.Body = &tee{resp.Body, p}
				}
			}
			return nil
		},
		// A client that goes away is what some tests are about.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		p := &trip{path: req.URL.Path, header: req.Header.Clone(), request: body}
		r.mu.Lock()
		r.trips = append(r.trips, p)
		r.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, req.WithContext(withTrip(req.Context(), p)))
	}))
	t.Cleanup(front.Close)
	r.url = front.URL
	return r
}

// all returns the trips so far.
func (r *recorder) all() []*trip {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*trip(nil), r.trips...)
}

// keep writes what went over the wire below the folder that E2E_TRIPS names, for
// people to look at.
func (r *recorder) keep(t testing.TB) {
	root := os.Getenv("E2E_TRIPS")
	if root == "" {
		return
	}
	dir := filepath.Join(root, filepath.FromSlash(t.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, p := range r.all() {
		name := filepath.Join(dir, fmt.Sprintf("%02d", i))
		var head strings.Builder
		fmt.Fprintln(&head, p.path)
		_ = p.header.Write(&head)
		fmt.Fprintln(&head, p.status)
		_ = p.answer.Write(&head)
		for suffix, text := range map[string]string{".head": head.String(), ".request": string(p.request), ".answer": p.text()} {
			if err := os.WriteFile(name+suffix, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tee keeps what is read of an answer.
type tee struct {
	io.ReadCloser
	p *trip
}

func (t *tee) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	t.p.mu.Lock()
	t.p.body.Write(b[:n])
	t.p.mu.Unlock()
	return n, err
}

type tripKey struct{}

func withTrip(ctx context.Context, p *trip) context.Context {
	return context.WithValue(ctx, tripKey{}, p)
}

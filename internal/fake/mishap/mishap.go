// Package mishap lets requests to an HTTP server go wrong in the ways in which
// those to engines do: refused, late, never answered, broken off, slow, or
// answered by somebody else.
//
// The one idea: the server behind knows nothing of it. A [Door] stands before it
// and counts the requests that are no probes; [Faults] say which of them what
// happens to, and may be others at any time.
package mishap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Faults say what goes wrong. The zero value is nothing.
type Faults struct {
	// Every says to which request it happens: every n-th; 0: to each.
	Every int `json:"every"`
	// Paths are the beginnings of those to which it happens; none: all that POST.
	Paths []string `json:"paths"`
	// Fail refuses requests: a name of [Failures]. Of several, each in turn.
	Fail []string `json:"fail"`
	// DelayMS is how long a request waits before it is looked at.
	DelayMS int `json:"delay_ms"`
	// Hang answers nothing, until the client has gone.
	Hang bool `json:"hang"`
	// StallAfter is after how many pieces of an answer nothing more comes, DropAfter
	// after how many the connection is cut. 0 is never.
	StallAfter int `json:"stall_after"`
	DropAfter  int `json:"drop_after"`
	// DripMS is the time between two bytes of an answer.
	DripMS int `json:"drip_ms"`
	// ContentType is that of answers, whatever they are.
	ContentType string `json:"content_type"`
	// HTML answers with a page, as a gateway that has lost its server does.
	HTML bool `json:"html"`
}

// failure is how a request is refused.
type failure struct {
	status        int
	kind, message string
}

// failures by their names.
var failures = map[string]failure{
	"rate_limit":      {429, "rate_limit_error", "Rate limit reached. Please try again later."},
	"invalid_api_key": {401, "authentication_error", "Incorrect API key provided."},
	"context_length":  {400, "invalid_request_error", "This model's maximum context length is 1 token. However, you requested more."},
	"server_error":    {503, "server_error", "The server is overloaded or not ready yet."},
	"internal_error":  {500, "internal_server_error", "EngineCore encountered an issue."},
	"invalid_request": {400, "invalid_request_error", "Invalid request."},
	"model_not_found": {404, "not_found_error", "The model does not exist."},
}

// Failures returns the names of refusals, sorted.
func Failures() []string {
	var names []string
	for name := range failures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Check returns an error that names what cannot be.
func (f *Faults) Check() error {
	for name, n := range map[string]int{
		"every": f.Every, "delay_ms": f.DelayMS, "stall_after": f.StallAfter, "drop_after": f.DropAfter, "drip_ms": f.DripMS,
	} {
		if n < 0 {
			return fmt.Errorf("%s: %d: want 0 or more", name, n)
		}
	}
	for _, name := range f.Fail {
		if _, ok := failures[name]; !ok {
			return fmt.Errorf("fail: %q: want any of %s", name, strings.Join(Failures(), ", "))
		}
	}
	return nil
}

// Door stands before a server. Its methods may be called from any goroutine.
type Door struct {
	behind http.Handler

	mu     sync.Mutex
	faults Faults
	asked  int // of those that faults may happen to
	failed int
}

// NewDoor returns a door at which nothing goes wrong.
func NewDoor(behind http.Handler) *Door { return &Door{behind: behind} }

// Set makes other things go wrong from the next request on, which are checked.
func (d *Door) Set(f Faults) error {
	if err := f.Check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults, d.asked, d.failed = f, 0, 0
	return nil
}

// Faults returns what was set last.
func (d *Door) Faults() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

// ReturnError is the header by which a client asks for an answer of a status that
// is an error.
const ReturnError = "X-Return-Error"

// ServeHTTP lets a request through, or something happen to it.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, err := strconv.Atoi(r.Header.Get(ReturnError)); err == nil && status >= 400 && status <= 599 {
		refuse(w, failure{status, "injected_error", "The error was asked for."})
		return
	}
	f, failed, hit := d.next(r)
	if !hit {
		d.behind.ServeHTTP(w, r)
		return
	}
	// Only once the whole request was read does a server notice that the client goes.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if f.DelayMS > 0 && !wait(r.Context(), f.DelayMS) {
		return
	}
	switch {
	case failed != nil:
		refuse(w, *failed)
	case f.Hang:
		<-r.Context().Done()
	case f.HTML:
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html><body><h1>502 Bad Gateway</h1></body></html>") //nolint:errcheck // the client has gone
	default:
		d.behind.ServeHTTP(&broken{ResponseWriter: w, r: r, f: &f}, r)
	}
}

// next says what happens to a request, if something does.
func (d *Door) next(r *http.Request) (f Faults, failed *failure, hit bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f = d.faults
	if len(f.Paths) == 0 && r.Method != http.MethodPost {
		return f, nil, false
	}
	if len(f.Paths) > 0 && !slices.ContainsFunc(f.Paths, func(p string) bool { return strings.HasPrefix(r.URL.Path, p) }) {
		return f, nil, false
	}
	d.asked++
	if f.Every > 0 && d.asked%f.Every != 0 {
		return f, nil, false
	}
	if len(f.Fail) > 0 {
		how := failures[f.Fail[d.failed%len(f.Fail)]]
		d.failed++
		failed = &how
	}
	return f, failed, true
}

func wait(ctx context.Context, ms int) bool {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

func refuse(w http.ResponseWriter, f failure) {
	w.Header().Set("Content-Type", "application/json")
	if f.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(f.status)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":%q,"param":null,"code":%d}}`, f.message, f.kind, f.status)
}

// broken is an answer to which something happens.
type broken struct {
	http.ResponseWriter
	r      *http.Request
	f      *Faults
	pieces int
}

// WriteHeader begins an answer.
func (b *broken) WriteHeader(status int) {
	if b.f.ContentType != "" {
		b.Header().Set("Content-Type", b.f.ContentType)
	}
	b.ResponseWriter.WriteHeader(status)
}

// Write passes a piece on, unless it is not to come, or comes slowly.
func (b *broken) Write(p []byte) (int, error) {
	if b.pieces == 0 && b.f.ContentType != "" {
		b.Header().Set("Content-Type", b.f.ContentType)
	}
	switch b.pieces++; {
	case b.f.DropAfter > 0 && b.pieces > b.f.DropAfter:
		panic(http.ErrAbortHandler)
	case b.f.StallAfter > 0 && b.pieces > b.f.StallAfter:
		b.Flush()
		<-b.r.Context().Done()
		return 0, b.r.Context().Err()
	case b.f.DripMS == 0:
		return b.ResponseWriter.Write(p)
	}
	for i := range p {
		if !wait(b.r.Context(), b.f.DripMS) {
			return i, b.r.Context().Err()
		}
		if _, err := b.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		b.Flush()
	}
	return len(p), nil
}

// Flush sends what was written.
func (b *broken) Flush() { http.NewResponseController(b.ResponseWriter).Flush() } //nolint:errcheck // the client has gone

// Unwrap is for [http.ResponseController].
func (b *broken) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Package remote is a routing policy that asks a server over HTTP, so that
// whoever knows best where a request belongs can say so in any language.
//
// The one idea: the server may only help. It has a few milliseconds; if it is
// late, wrong or gone, a built-in policy decides, and a server that keeps failing
// is left alone for a while, so that it costs nothing either.
//
// For each request the server is sent a POST with an object in JSON: what is
// known of the request, and the candidates in the order of their workers, with
// everything that the router itself decides by.
//
//	{"request": {"id": "r-1", "model": "m", "role": "aggregated", "prompt_tokens": 2048,
//	             "expected_output_tokens": 300, "choices": 1, "priority": 5, "strict_priority": 1,
//	             "background": false, "class": "chat", "temperature": 0.2,
//	             "session": {"id": "s-1", "parent": "s-0", "final": false, "input": "tool"}},
//	 "candidates": [{"worker_id": 7, "worker": "gpu-7", "dp_rank": 0, "block_size": 16,
//	                 "cached_blocks": {"device": 90, "host": 12, "disk": 0, "shared": 0},
//	                 "prefill_tokens": 512, "active_blocks": 310, "total_blocks": 8192, "active_requests": 3,
//	                 "decode_blocks": 350, "preference": 1, "cost": 43.5}]}
//
// Members that say nothing are left out: a forecast, priorities, a class, a
// temperature, a session that the request does not have, and that a choice is
// advisory, so that nothing is booked for it now. A role is aggregated,
// prefill, decode or encode; an input user, tool or other. Costs are in blocks of
// the candidate's own size; what they are made of is in the documentation of
// [router.Candidate].
//
// The server answers with status 200 and the index of a candidate, or with a
// worker and, if it has several, its rank:
//
//	{"choice": 0}
//	{"worker_id": 7, "dp_rank": 0}
//
// An object with neither leaves the choice to the built-in policy. Members that
// are not known here are ignored. With "outcomes": true in its newest answer, the
// server is also told how requests have ended: some at a time, in a POST to the
// path outcome below its address, to which only the status of the answer matters.
//
//	{"outcomes": [{"id": "r-1", "worker_id": 7, "dp_rank": 0, "prompt_tokens": 2048, "cached_tokens": 1440,
//	               "output_tokens": 212, "first_token_ms": 81.5, "total_ms": 3010.2, "end": "completed"}]}
//
// An end is completed, failed or abandoned. Cached tokens and the time of the
// first token are left out if they are not known. Outcomes get lost rather than
// wait.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/span"
)

// DefaultTimeout is how long a server may take if nothing else is said.
const DefaultTimeout = 5 * time.Millisecond

// mostTimeout is how long it may take at all.
const mostTimeout = 10 * time.Second

// Config says which server is asked, and what happens if it does not answer.
type Config struct {
	URL     string        // http or https
	Timeout time.Duration // for each request; 0: DefaultTimeout
	// Fallback decides where the server does not; nil: the least cost. It must be
	// safe for concurrent use.
	Fallback router.Policy
	Logger   *slog.Logger     // nil discards
	Now      func() time.Time // nil: time.Now
}

// Policy asks a server. Its methods may be called from any goroutine.
type Policy struct {
	config  Config
	pick    string // where to ask
	outcome string // where to tell
	shown   string // the same without a password
	client  *http.Client
	learner router.Learner // the fallback, if it learns

	mu      sync.Mutex
	breaker breaker
	counted Stats
	complaint
	outcomes outcomes
	closing  context.Context
	stop     context.CancelFunc
}

var _ router.Learner = (*Policy)(nil)

// New returns a policy that has not asked anybody yet.
func New(c Config) (*Policy, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("remote policy: url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("remote policy: url: got %q, want http://HOST:PORT/PATH", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("remote policy: url: got %q, want no query and no fragment", u.Redacted())
	case c.Timeout < 0 || c.Timeout > mostTimeout:
		return nil, fmt.Errorf("remote policy: timeout: got %v, want more than 0, and up to %v", c.Timeout, mostTimeout)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Fallback == nil {
		c.Fallback = router.ModePolicy(router.KV, 0, 0)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Policy{config: c, pick: u.String(), outcome: u.JoinPath("outcome").String(), shown: u.Redacted(), client: newClient()}
	p.learner, _ = c.Fallback.(router.Learner)
	p.closing, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Bounds of what is held for a server and read from it.
const (
	mostConnections = 256
	mostIdle        = 32
	mostAnswer      = 64 << 10 // bytes
	mostHeader      = 16 << 10
	dialTimeout     = time.Second // in the background, whoever has asked is long gone
	idleTimeout     = 90 * time.Second
)

func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			MaxConnsPerHost:     mostConnections, MaxIdleConnsPerHost: mostIdle, MaxIdleConns: mostIdle,
			IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: mostHeader,
			DisableCompression: true, // a small answer may not become a large one
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server sends us elsewhere, which is not followed")
		},
	}
}

// Pick asks the server, and, if it does not answer, the fallback.
func (p *Policy) Pick(ctx context.Context, q *router.Query, c []router.Candidate) (int, error) {
	ticket, ok := p.enter()
	if !ok {
		return p.config.Fallback.Pick(ctx, q, c)
	}
	choice, err := p.ask(ctx, q, c)
	if err != nil && ctx.Err() != nil {
		// Whoever wanted to know is gone, which is not the server's fault.
		p.leave(ticket)
		return 0, context.Cause(ctx)
	}
	p.judge(ticket, err)
	if err != nil {
		return p.config.Fallback.Pick(ctx, q, c)
	}
	return choice, nil
}

// Fallback returns the policy that decides where the server does not.
func (p *Policy) Fallback() router.Policy { return p.config.Fallback }

// errDeclined says that the server leaves the choice to the fallback.
var errDeclined = errors.New("the server leaves the choice to us")

// ask returns the row that the server picks.
func (p *Policy) ask(ctx context.Context, q *router.Query, c []router.Candidate) (int, error) {
	question, err := appendQuestion(nil, q, c)
	if err != nil {
		return 0, &refusal{malformed, err}
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	text, err := p.post(ctx, p.pick, question, mayRepeat)
	if err != nil {
		return 0, err
	}
	a, err := parseAnswer(text)
	if err != nil {
		return 0, &refusal{malformed, err}
	}
	p.want(a.Outcomes)
	return a.row(c)
}

// Whether the server may get an object twice, if it closes a connection that it
// seems to have read it from: a question, but no outcome.
const (
	mayRepeat = true
	onlyOnce  = false
)

// post sends an object and returns what comes back.
func (p *Policy) post(ctx context.Context, to string, body []byte, repeat bool) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, &refusal{unreachable, err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if w := span.From(ctx); w != nil {
		req.Header.Set("Traceparent", w.Context.Parent())
		if w.State != "" {
			req.Header.Set("Tracestate", w.State)
		}
	}
	if repeat {
		req.Header["Idempotency-Key"] = nil // tells the transport, and is not sent
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, &refusal{late(ctx, unreachable), err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	switch {
	case err != nil:
		return nil, &refusal{late(ctx, unreachable), err}
	case len(text) > mostAnswer:
		return nil, &refusal{malformed, fmt.Errorf("an answer of more than %d bytes", mostAnswer)}
	case resp.StatusCode != http.StatusOK:
		return nil, &refusal{status, fmt.Errorf("status %d, want 200", resp.StatusCode)}
	}
	return text, nil
}

// late returns the reason of a failure, which is that time is up if it is.
func late(ctx context.Context, otherwise reason) reason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timeout
	}
	return otherwise
}

// Close ends what is going on with the server, and waits for it. The policy must
// not be asked any more.
func (p *Policy) Close() error {
	p.mu.Lock()
	p.stop() // nobody begins to send after this
	p.mu.Unlock()
	p.outcomes.sending.Wait()
	p.client.CloseIdleConnections()
	return nil
}

// Construct makes a policy for a [router.Registry], of the parameters url,
// timeout_ms and fallback, which is the name of another policy.
func Construct(timeout time.Duration) router.Constructor {
	return func(r *router.Recipe) (router.Policy, error) {
		parameters := struct {
			URL      string  `json:"url"`
			Timeout  float64 `json:"timeout_ms"`
			Fallback string  `json:"fallback"`
		}{Timeout: float64(timeout) / float64(time.Millisecond), Fallback: string(router.KV)}
		if err := r.Read(&parameters); err != nil {
			return nil, err
		}
		if !(parameters.Timeout > 0) || parameters.Timeout > float64(mostTimeout/time.Millisecond) {
			return nil, fmt.Errorf("timeout_ms: got %v, want more than 0, and up to %d", parameters.Timeout, mostTimeout/time.Millisecond)
		}
		fallback, err := r.Other(parameters.Fallback)
		if err != nil {
			return nil, fmt.Errorf("fallback: %w", err)
		}
		p, err := New(Config{
			URL: parameters.URL, Timeout: time.Duration(parameters.Timeout * float64(time.Millisecond)),
			Fallback: fallback, Logger: r.Logger, Now: r.Now,
		})
		if err != nil { // not a nil *Policy within an interface
			return nil, err
		}
		return p, nil
	}
}

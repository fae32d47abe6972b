// Package httpapi is what adapters of engines that speak HTTP have in common:
// one way to post, one reader of server-sent events, one table from an engine's
// statuses to our errors, and the decoder of the five shapes in which engines
// tell them.
//
// The one idea: an adapter translates and nothing else. It owns no timer; when
// its context ends, the connection is closed, which is how all these engines are
// told to stop, and the loop over it ends with the cause of the context.
package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
)

// Config says how an engine is reached. The zero value of all but URL will do.
type Config struct {
	// URL is the engine's address, such as http://gpu7:8000. A path in it stands
	// before all paths.
	URL string
	// Key is sent as bearer token.
	Key string
	// Header is sent with every request.
	Header http.Header
	// TLS is for https addresses; nil uses the roots of the system.
	TLS *tls.Config
}

// Limits of a connection. Engines close idle ones after five seconds, and a
// request on one that is being closed is lost.
const (
	connectTimeout = 5 * time.Second
	idleTimeout    = 3 * time.Second
	mostIdle       = 1024
)

// Client talks to one engine. It is safe for concurrent use.
type Client struct {
	base   string
	header http.Header
	http   *http.Transport
	direct *direct // nil: all requests go by http
}

// New makes a client. It dials nothing; only a URL that is none is an error.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("engine address: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("engine address %q: want http://HOST:PORT or https://HOST:PORT", c.URL)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("engine address %q: want no query and no fragment", c.URL)
	}
	header := c.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if c.Key != "" {
		header.Set("Authorization", "Bearer "+c.Key)
	}
	if password, _ := u.User.Password(); u.User != nil && header.Get("Authorization") == "" {
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "dynago")
	}
	dialer := &net.Dialer{Timeout: connectTimeout}
	client := &Client{
		base:   strings.TrimSuffix(u.String(), "/"),
		header: header,
		http: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			TLSClientConfig:     c.TLS,
			TLSHandshakeTimeout: connectTimeout,
			// The servers in question speak HTTP/1.1.
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
			DisableCompression:  true,
			IdleConnTimeout:     idleTimeout,
			MaxIdleConns:        mostIdle,
			MaxIdleConnsPerHost: mostIdle,
		},
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); peeks && u.Scheme == "http" && proxy == nil && err == nil && plain("/"+u.Host) {
		address := u.Host
		if u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
		client.direct = &direct{
			host: u.Host,
			base: strings.TrimSuffix(u.EscapedPath(), "/"),
			dial: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) },
		}
	}
	return client, nil
}

// URL returns the engine's address.
func (c *Client) URL() string { return c.base }

// Close closes idle connections. Streams that run are not affected.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	if c.direct != nil {
		c.direct.close()
	}
}

// ask sends a request and returns an answer of a 2xx status, whose body the caller
// closes. Anything else is an *engine.Error. header may be nil; body may be nil for
// none. A request that met a kept connection just as the engine closed it is sent once
// more: nobody has read it. One that may have been read never is.
func (c *Client) ask(ctx context.Context, method, path string, header http.Header, body []byte) (*reply, error) {
	r, err := c.send(ctx, method, path, header, body)
	if err != nil {
		if ctx.Err() != nil {
			return nil, engine.CauseOf(ctx, err)
		}
		return nil, unreachable(err)
	}
	if r.status/100 == 2 {
		return r, nil
	}
	defer r.body.Close()
	text, err := io.ReadAll(io.LimitReader(r.body, mostErrorText))
	if err != nil && ctx.Err() != nil {
		return nil, engine.CauseOf(ctx, err)
	}
	e := ErrorOf(r.status, r.header, text)
	if e.Message == "" { // as of a gateway: no word would say what went wrong
		e.Op = fmt.Sprintf("%s %s: status %d", method, path, e.Status)
	}
	return nil, e
}

// mostErrorText is how much of an error's body is read.
const mostErrorText = 64 << 10

func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*reply, error) {
	r := request{method: method, path: path, header: []http.Header{c.header, header}, body: body}
	if body != nil {
		r.header = append(r.header, ofJSON)
	}
	for again := false; ; again = true {
		over := connection{again: method == http.MethodGet}
		var answer *reply
		var err error
		if c.direct != nil && c.direct.takes(r) {
			answer, err = c.direct.send(ctx, &over, again, r)
		} else {
			answer, err = c.round(ctx, &over, r)
		}
		if err == nil || again || ctx.Err() != nil || !over.missed(err) {
			return answer, err
		}
	}
}

var ofJSON = http.Header{"Content-Type": {"application/json"}}

// round sends a request by the transport of net/http.
func (c *Client) round(ctx context.Context, over *connection, r request) (*reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(over.trace(ctx), r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		cancel()
		return nil, err
	}
	for _, h := range r.header {
		maps.Copy(req.Header, h)
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	return replyOf(resp, cancelling{resp.Body, cancel}, cancel), nil
}

// unreachable classifies a request that brought no answer.
func unreachable(err error) error {
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	kind := engine.Disconnected
	switch dialled := errors.As(err, &op) && op.Op == "dial"; {
	case dialled && errors.As(err, &timeout) && timeout.Timeout():
		kind = engine.ConnectionTimeout
	case dialled, isTLS(err):
		kind = engine.CannotConnect
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which is told elsewhere
	}
	return &engine.Error{Kind: kind, Err: err}
}

// Get reads a small answer whole.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.Call(ctx, http.MethodGet, path, nil, nil)
}

// Post sends a JSON body and reads the answer whole.
func (c *Client) Post(ctx context.Context, path string, header http.Header, body []byte) ([]byte, error) {
	return c.Call(ctx, http.MethodPost, path, header, body)
}

// mostAnswer bounds an answer that is read whole: metrics, models, a document.
const mostAnswer = 64 << 20

// Call sends a request by any method and reads the answer whole. header and body may
// be nil for none. An answer that is no success is an *[engine.Error].
func (c *Client) Call(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	r, err := c.ask(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	defer r.body.Close()
	answer, err := r.whole()
	switch {
	case err != nil:
		return nil, lost(ctx, path, err)
	case len(answer) > mostAnswer:
		return nil, engine.Errorf(engine.Internal, "%s answers with more than %d bytes", path, mostAnswer)
	}
	return answer, nil
}

// lost is the error of an answer that was not read to its end.
func lost(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return engine.CauseOf(ctx, err)
	case errors.Is(err, bufio.ErrTooLong):
		return engine.Errorf(engine.Internal, "%s answers with a line of more than %d bytes", path, longestLine)
	}
	return &engine.Error{Kind: engine.Disconnected, Op: "read " + path, Err: err}
}

// Package admin is a kvstore as operators see it, over HTTP: whether it is well,
// its figures for Prometheus, and what clients of Redis do with the commands KV.*.
//
// The one idea: the same token opens the same namespace on either port, and
// nothing else of the store can be seen or changed by it. Whoever has none sees
// the namespace of everybody, if there is one, and changes it only from the
// machine itself. Health and figures are for everyone who reaches the port.
package admin

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/kvstore"
)

// Options says what is to be shown. Only Store must be given.
type Options struct {
	Store *kvstore.Server
	// Collectors are further figures for the page of metrics.
	Collectors []prometheus.Collector
	// Log tells of answers that fail here; nil means nobody.
	Log *slog.Logger
}

// Server answers over HTTP.
type Server struct {
	opts    Options
	metrics *metrics
	handler http.Handler
}

// New returns a server. It does not listen.
func New(o Options) (*Server, error) {
	if o.Store == nil {
		return nil, errors.New("kvstore/admin: no store")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o}
	var err error
	if s.metrics, err = newMetrics(o); err != nil {
		return nil, err
	}
	s.handler = s.routes()
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Bounds of connections.
const (
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	idleTime   = 2 * time.Minute
)

// HTTP returns a server that is ready to listen.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: bodyTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 256 << 10, // a key in a path has at most 64 KiB, escaped three times as many
		ErrorLog:       slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
}

// operation is one route for those who may use a namespace.
type operation struct {
	method, path string
	changes      bool
	serve        func(r *http.Request, t *kvstore.Tenant) (any, error)
}

func (s *Server) operations() []operation {
	return []operation{
		{"GET", "/v1/kv/stats", false, s.stats},
		{"GET", "/v1/kv/namespaces", false, s.namespaces},
		{"GET", "/v1/kv/keys/{key...}", false, s.look},
		{"GET", "/v1/kv/prefixes", false, s.prefix},
		{"POST", "/v1/kv/prefixes", false, s.prefixOf},
		{"GET", "/v1/kv/pins", false, s.pins},
		{"POST", "/v1/kv/pins", true, s.pin},
		{"DELETE", "/v1/kv/pins/{key...}", true, s.unpin},
		{"GET", "/v1/kv/sessions", false, s.sessions},
		{"GET", "/v1/kv/sessions/{id}", false, s.session},
		{"DELETE", "/v1/kv/sessions/{id}", true, s.closeSession},
		{"POST", "/v1/kv/retain", true, s.retain},
		{"POST", "/v1/kv/prefetch", true, s.prefetch},
		{"POST", "/v1/kv/flush", true, s.flush},
	}
}

func (s *Server) routes() http.Handler {
	mux, paths := http.NewServeMux(), http.NewServeMux()
	known := map[string]bool{}
	route := func(method, path string, h http.HandlerFunc) {
		mux.HandleFunc(method+" "+path, h)
		if !known[path] {
			known[path] = true
			paths.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				s.refuse(w, r, &fault{http.StatusMethodNotAllowed, r.Method + " is not for this path"})
			})
		}
	}
	route("GET", "/healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, state{"ok"}) })
	route("GET", "/readyz", s.ready)
	route("GET", "/metrics", s.metrics.page().ServeHTTP)
	for _, o := range s.operations() {
		route(o.method, o.path, s.guarded(o))
	}
	paths.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, &fault{http.StatusNotFound, "there is no " + printable(r.URL.Path)})
	})
	mux.Handle("/", paths)
	// A page that a browser shows must not change the store of the machine that it
	// runs on.
	browsers := http.NewCrossOriginProtection()
	return browsers.Handler(mux)
}

type state struct {
	Status string `json:"status"`
}

// ready says whether clients are served. After a stop has begun they are not.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if !s.opts.Store.Serving() {
		write(w, http.StatusServiceUnavailable, state{"not serving"})
		return
	}
	write(w, http.StatusOK, state{"ready"})
}

// guarded lets those in who may use a namespace.
func (s *Server) guarded(o operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, shown := tokenOf(r)
		t := s.opts.Store.Tenant("", token)
		switch {
		case shown && (t == nil || token == ""):
			s.refuse(w, r, &fault{http.StatusUnauthorized, "the token opens no namespace"})
			return
		case t == nil:
			s.refuse(w, r, &fault{http.StatusUnauthorized, "want the token of a namespace, as Authorization: Bearer TOKEN"})
			return
		case o.changes && !shown && !atLoopback(r):
			s.refuse(w, r, &fault{http.StatusForbidden, "without a token the store is changed from its own machine only, by its address or as localhost: give the namespace a token to use it from elsewhere"})
			return
		}
		answer, err := o.serve(r, t)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		write(w, http.StatusOK, answer)
	}
}

// tokenOf returns the token that a request shows: that of a bearer, or the
// password of basic authorization, as clients send it that have it in their URL.
func tokenOf(r *http.Request) (token string, shown bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, password != ""
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", r.Header.Get("Authorization") != ""
	}
	return token, true
}

// atLoopback says whether a request came to an address that only this machine
// reaches, and was not passed on from elsewhere. A name of the machine that is not
// its own is one that a page in a browser has made up.
func atLoopback(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback() && isLocal(r.Host) && cmp.Or(r.Header.Get("Forwarded"), r.Header.Get("X-Forwarded-For")) == ""
}

// isLocal says whether the host of a request, with or without a port, is localhost
// or an address of this machine only.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

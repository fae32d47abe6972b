package frontend

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/internal/wire"

	"github.com/google/uuid"

	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/span"
)

// route is one method and path, and who serves it.
type route struct {
	method string
	// name is what the path can be replaced by: DYN_HTTP_SVC_<name>_PATH. Empty
	// means that it stays.
	name, path string
	serve      http.HandlerFunc
}

// Names of the routes whose paths can be replaced.
const (
	PathMetrics     = "METRICS"
	PathModels      = "MODELS"
	PathHealth      = "HEALTH"
	PathLive        = "LIVE"
	PathChat        = "CHAT"
	PathCompletions = "CMP"
)

// PathNames lists the names of routes whose paths can be replaced.
func PathNames() []string {
	return []string{PathMetrics, PathModels, PathHealth, PathLive, PathChat, PathCompletions}
}

// routes builds the public, the admin and the side handler.
func (s *Server) routes() (public, admin, side http.Handler, err error) {
	told := []route{
		{"GET", PathModels, "/v1/models", s.listModels},
		{"GET", PathModels, "/v1/models/{id...}", s.showModel},
		{"GET", PathHealth, "/health", s.health},
		{"GET", PathLive, "/live", s.live},
	}
	table := []route{
		{"POST", PathChat, "/v1/chat/completions", s.answer(chatAPI{s})},
		{"POST", PathCompletions, "/v1/completions", s.answer(completionsAPI{s})},
		{"POST", "", responsesPath, s.answer(responsesAPI{s})},
		{"POST", "", "/tokenize", s.tokenize},
		{"POST", "", "/v1/tokenize", s.tokenize},
		{"POST", "", "/detokenize", s.detokenize},
		{"POST", "", "/v1/detokenize", s.detokenize},
		{"GET", "", "/ready", s.ready},
		{"GET", "", "/{$}", s.root},
		{"GET", "", "/openapi.json", s.openAPI},
		{"GET", "", "/docs", s.docs},
	}
	table = append(table, told...)
	table = append(table, s.responsesRoutes()...)
	table = append(table, s.kvRoutes()...)
	table = append(table, s.toolRoutes()...)
	table = append(table, s.v2Routes()...)
	if !s.NoMessages {
		table = append(table,
			route{"POST", "", messagesPath, s.answer(messagesAPI{s})},
			route{"POST", "", messagesPath + "/count_tokens", s.countTokens},
		)
	}
	metrics := route{"GET", PathMetrics, "/metrics", s.metrics.page().ServeHTTP}
	private := []route{metrics}
	if !s.SeparateAdmin {
		table = append(table, metrics)
	}
	if !s.NoAdmin {
		private = append(private,
			route{"GET", "", "/debug/pprof/", pprof.Index},
			route{"GET", "", "/debug/pprof/cmdline", pprof.Cmdline},
			route{"GET", "", "/debug/pprof/profile", unhurried(pprof.Profile)},
			route{"GET", "", "/debug/pprof/symbol", pprof.Symbol},
			route{"GET", "", "/debug/pprof/trace", unhurried(pprof.Trace)},
		)
		admin := s.adminRoutes()
		private = append(private, admin...)
		if !s.SeparateAdmin {
			table = append(table, admin...)
		}
	}
	private = append(private, route{"GET", "", "/{$}", s.root})
	if public, err = s.mux(table); err != nil {
		return nil, nil, nil, err
	}
	if side, err = s.mux(append(told, metrics)); err != nil {
		return nil, nil, nil, err
	}
	admin, err = s.mux(private)
	return s.handOver(public), admin, side, err
}

// unhurried lifts the write deadline for answers that take as long as the
// operator has asked for.
func unhurried(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetWriteDeadline(time.Time{}) //nolint:errcheck // not every connection has deadlines
		h(w, r)
	}
}

// CheckPath says what is wrong with a path in [Config.Paths].
func CheckPath(override string) error {
	clean := strings.TrimSuffix(override, "/")
	strange := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("{}?#%", r) }
	if len(clean) < 2 || clean[0] != '/' || path.Clean(clean) != clean || strings.ContainsFunc(clean, strange) {
		return fmt.Errorf("%q: want a path such as /v1/chat, with no dots between slashes and none of blanks, braces, ?, # and %%", override)
	}
	return nil
}

// mux serves a table of routes, and answers what is not in it.
func (s *Server) mux(table []route) (http.Handler, error) {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range table {
		path := r.path
		if override := s.Paths[r.name]; r.name != "" && override != "" {
			if err := CheckPath(override); err != nil {
				return nil, fmt.Errorf("path %s: %w", r.name, err)
			}
			override = strings.TrimSuffix(override, "/")
			if _, rest, ok := strings.Cut(path, "/{"); ok {
				override += "/{" + rest
			}
			path = override
		}
		if slices.Contains(methods[path], r.method) {
			return nil, fmt.Errorf("two routes for %s %s", r.method, path)
		}
		methods[path] = append(methods[path], r.method)
		mux.HandleFunc(r.method+" "+path, r.serve)
	}
	// A path that exists under another method is told apart by a second table,
	// of paths alone.
	wrongMethod := http.NewServeMux()
	for path, allowed := range methods {
		allow := strings.Join(allowed, ", ")
		wrongMethod.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			if x := exchangeOf(r); x.messages || x.kserve {
				s.refuseTo(w, x, refusal(http.StatusMethodNotAllowed, "Method not allowed: %s %s takes %s", clip(r.Method), clip(r.URL.Path), allow))
				return
			}
			w.WriteHeader(http.StatusMethodNotAllowed)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := wrongMethod.Handler(r); pattern != "" {
			h.ServeHTTP(w, r)
			return
		}
		s.refuseTo(w, exchangeOf(r), refusal(http.StatusNotFound, "Route not found: %s %s", clip(r.Method), clip(r.URL.Path)))
	})
	return s.around(mux), nil
}

// clip keeps what a client invented from filling an answer.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// exchange is what every route knows about the request it serves.
type exchange struct {
	id          string // UUID
	correlation string // x-request-id, the client's or the UUID
	tenant      string // who owns the key, if keys are wanted
	route       string // method and path, cut short
	arrived     time.Time
	answered    bool // an answer has begun, so a panic has no status left
	messages    bool // the client speaks Messages, and reads errors of that shape
	kserve      bool // the same of KServe
	version     string
	rpc         string       // full name of the procedure, over gRPC
	span        span.Context // of the whole call, where spans are made
	within      span.Context // that the client has named
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

// Tenant returns the tenant whose key a request came with, or "".
func Tenant(ctx context.Context) string {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.tenant
	}
	return ""
}

// around is what happens around every route: ids, keys, the deadline of the
// body, and the last resort for panics.
func (s *Server) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{id: requestID(r.Header), route: r.Method + " " + clip(r.URL.Path), version: r.Proto, arrived: time.Now()}
		x.correlation = printable(r.Header.Get("X-Request-Id"))
		if x.correlation == "" {
			x.correlation = x.id
		}
		x.messages, x.kserve = s.speaksMessages(r), s.speaksKServe(r)
		h := w.Header()
		h["Request-Id"] = []string{x.id}
		h["X-Request-Id"] = []string{x.correlation}
		defer s.recover(w, x)

		var err error
		if x.tenant, err = s.Authorize(r.Header); err != nil {
			h.Set("WWW-Authenticate", "Bearer")
			s.refuseTo(w, x, err)
			return
		}
		if r.Body != http.NoBody {
			http.NewResponseController(w).SetReadDeadline(x.arrived.Add(s.ReadTimeout)) //nolint:errcheck // not every connection has deadlines
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
		s.probed(x, r.Header)
	})
}

// Authorize returns the tenant whose key came with a request, "" where nobody needs
// one. The error is one of status 401.
func (s *Server) Authorize(h http.Header) (tenant string, err error) {
	if s.Keys == nil {
		return "", nil
	}
	tenant, ok := s.Keys.tenant(h)
	if !ok {
		return "", refusal(http.StatusUnauthorized, "Incorrect or missing API key: send a key of this server as Authorization: Bearer KEY or x-api-key: KEY")
	}
	return tenant, nil
}

// recover turns a panic into an answer without detail and a log line with all.
func (s *Server) recover(w http.ResponseWriter, x *exchange) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.Logger.Error("panic", "request_id", x.id, "route", x.route, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !x.answered {
		s.refuseTo(w, x, &wire.Error{Status: http.StatusInternalServerError, Message: "Internal server error"})
	}
}

// requestID returns the id that a client gives its request, or a new one.
func requestID(h http.Header) string {
	for _, name := range [...]string{"Request-Id", "X-Dynamo-Request-Id"} {
		if v := h.Get(name); v != "" && len(v) <= 64 {
			if id, err := uuid.Parse(v); err == nil {
				return id.String()
			}
		}
	}
	return uuid.NewString()
}

// printable returns an id that a client made up, unless it is too long or holds
// what does not belong into a log.
func printable(id string) string {
	if len(id) > 256 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return id
}

// refuseTo answers with an error in the shape that the client reads.
func (s *Server) refuseTo(w http.ResponseWriter, x *exchange, err error) {
	switch {
	case x.messages:
		s.refuseMessages(w, err, "")
	case x.kserve:
		s.v2Refuse(w, err)
	default:
		s.refuse(w, err)
	}
}

// refuse answers with an error in the shape of OpenAI's routes.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	e := wire.ErrorOf(err, s.OverloadStatus)
	setBackoff(w.Header(), e)
	s.respond(w, e.Status, openai.AppendError(nil, e)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// setBackoff tells clients when to come back, or not to.
func setBackoff(h http.Header, e *wire.Error) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(int64((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if e.Status == http.StatusNotImplemented {
		h.Set("X-Should-Retry", "false")
	}
}

// respond writes a JSON answer.
func (s *Server) respond(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if s.Timing.Write > 0 {
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Timing.Write)) //nolint:errcheck // not every connection has deadlines
	}
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return err
	}
	// The client need not wait until the request is counted and logged.
	return http.NewResponseController(w).Flush()
}

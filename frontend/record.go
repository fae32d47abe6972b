package frontend

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/dynago/dynago/internal/wire"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/pipeline"
)

// record is what is measured about one request, and logged at its end. It
// belongs to the request's goroutine.
type record struct {
	server   *Server
	x        *exchange
	endpoint string
	model    string // primary name, or unknownModel
	stream   bool
	kserve   bool

	series *series // of an accepted request
	notes  []pipeline.Notes
	fault  *wire.Error // what the client was told
	cause  error       // what has led to it
	itl    batch

	first, last time.Time // of tokens
	begun       int       // attempts until the first event
	tokens      int       // counted as they arrived
	counted     int       // of these, already in the counter
	usage       chat.Usage
	cachedKnown bool
	images      int      // that the request has
	session     string   // that its span names
	mismatches  int      // answers that break their form
	traced      *traced  // nil: nobody is told
	payload     *payload // nil: nobody is told
}

// begin starts the record of a request whose model is not known yet.
func (m *metrics) begin(s *Server, x *exchange, endpoint string) *record {
	// Whoever does not say how it ended has panicked.
	fault := &wire.Error{Status: http.StatusInternalServerError}
	return &record{server: s, x: x, endpoint: endpoint, model: unknownModel, fault: fault, cause: errPanicked}
}

// finish notes how a request ended.
func (r *record) finish(err error) {
	r.fault, r.cause = nil, err
	if err != nil {
		r.fault = wire.ErrorOf(err, r.server.OverloadStatus)
	}
}

// accept notes that a request was understood. model is empty if there is no
// such model.
func (r *record) accept(model string, stream bool) {
	if model != "" {
		r.model = model
	}
	r.stream = stream
	r.series = r.server.metrics.of(seriesKey{r.model, r.endpoint, stream, r.kserve})
	r.itl.series = r.series.itl
	r.series.started.Inc()
	r.series.active.Inc()
	r.series.inflight.Inc()
	r.series.queued.Inc()
	r.received()
}

// watch measures events as they pass.
func (r *record) watch(events iter.Seq2[chat.Event, error], notes []pipeline.Notes) iter.Seq2[chat.Event, error] {
	r.notes = notes
	return func(yield func(chat.Event, error) bool) {
		for e, err := range events {
			if err == nil {
				r.event(&e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (r *record) event(e *chat.Event) {
	if r.traced != nil {
		r.traced.event(e)
	}
	r.payload.event(e)
	if r.begun == 0 {
		r.begun = max(1, r.notes[0].Attempts)
	}
	if e.Kind == chat.Finished {
		if e.Reason != "" {
			r.mismatches++
			r.server.Logger.Warn("an answer breaks its form", "request_id", r.x.id, "model", r.model, "fault", e.Reason)
		}
		r.usage.Prompt += e.Usage.Prompt
		r.usage.Output += e.Usage.Output
		if e.Usage.Cached != nil {
			r.cachedKnown = true
			cached := *e.Usage.Cached
			if r.usage.Cached != nil {
				cached += *r.usage.Cached
			}
			r.usage.Cached = &cached
		}
	}
	n := len(e.IDs)
	if n == 0 {
		return
	}
	now := time.Now()
	r.tokens += n
	if r.first.IsZero() {
		r.first = now
		r.series.queued.Dec()
		r.series.ttft.Observe(now.Sub(r.x.arrived).Seconds())
	} else {
		r.itl.observe(now.Sub(r.last).Seconds()/float64(n), n)
	}
	r.last = now
	if r.tokens-r.counted >= batchSize {
		r.count(r.tokens)
	}
}

// count brings the counter of output tokens up to n of this request.
func (r *record) count(n int) {
	if n > r.counted {
		r.series.outputTokens.Add(float64(n - r.counted))
		r.counted = n
	}
}

// end adds the request to the metrics and to the log.
func (r *record) end() {
	elapsed := time.Since(r.x.arrived)
	kind := typeOf(r.fault, r.server.OverloadStatus)
	m := r.server.metrics
	if r.series == nil {
		s := m.of(seriesKey{r.model, r.endpoint, r.stream, r.kserve})
		s.ended[kind].Inc()
		s.statistics.refuse(elapsed)
		r.log(elapsed, kind)
		r.span(elapsed, kind)
		return
	}
	s := r.series
	s.active.Dec()
	s.inflight.Dec()
	if r.first.IsZero() {
		s.queued.Dec()
	}
	s.ended[kind].Inc()
	s.duration.Observe(elapsed.Seconds())
	r.itl.flush()
	r.count(max(r.tokens, r.usage.Output))
	switch kind {
	case errorCancelled:
		s.cancelled.Inc()
		m.disconnected.Inc()
	case errorOverload:
		s.rejected.Inc()
	case noError:
		s.statistics.succeed(elapsed, r.notes)
		if r.endpoint == tensorEndpoint {
			break // it has no tokens
		}
		s.output.Observe(float64(max(r.tokens, r.usage.Output)))
		if r.cachedKnown {
			s.cached.Observe(float64(*r.usage.Cached))
		}
	}
	if kind != noError {
		s.statistics.refuse(elapsed)
	}
	r.stages()
	r.log(elapsed, kind)
	r.span(elapsed, kind)
	r.trace(elapsed)
}

// trace tells what became of the request.
func (r *record) trace(elapsed time.Duration) {
	if row := r.traced.row(r, r.x.arrived.Add(elapsed)); row != nil {
		r.server.Tracing.Publish(row)
	}
	if row := r.payload.row(r); row != nil {
		r.server.Tracing.Publish(row)
	}
}

// stages observes what the pipeline has noted.
func (r *record) stages() {
	m := r.server.metrics
	prompt := 0
	for i := range r.notes {
		n := &r.notes[i]
		if n.PromptTokens == 0 {
			continue
		}
		prompt += n.PromptTokens
		m.template.Observe(n.Template.Seconds())
		m.tokenize.Observe(n.Tokenize.Seconds())
		m.tokenizer.WithLabelValues("tokenize").Observe(float64(n.Tokenize) / float64(time.Millisecond))
		m.stages.WithLabelValues("preprocess").Observe((n.Template + n.Tokenize).Seconds())
		for kind, count := range n.NotShown {
			api := strings.TrimPrefix(strings.TrimSuffix(r.endpoint, "_completions"), "anthropic_")
			m.notShown.WithLabelValues(api, kind).Add(float64(count))
		}
		if n.Reuse != nil {
			m.reuse.WithLabelValues(r.model, r.endpoint).Observe(n.Reuse.Ratio())
		}
		if n.Attempts > 0 {
			m.stages.WithLabelValues("route").Observe((n.Routing + n.Queue).Seconds())
		}
	}
	if len(r.notes) > 0 {
		n := &r.notes[0]
		if n.FormBy != "" && r.fault == nil {
			result := "kept"
			if r.mismatches > 0 {
				result = "broken"
			}
			m.forms.WithLabelValues(r.model, n.FormBy, result).Inc()
		}
		if n.BudgetBy != "" {
			m.budgets.WithLabelValues(r.model, n.BudgetBy).Inc()
		}
		for _, name := range n.Capped {
			m.capped.WithLabelValues(r.x.tenant, name).Inc()
		}
	}
	if prompt > 0 {
		r.series.input.Observe(float64(prompt))
	}
	if len(r.notes) > 0 {
		// Attempts before the first event were moves of a new request.
		attempts := max(1, r.notes[0].Attempts)
		begun := r.begun
		if begun == 0 {
			begun = attempts
		}
		if begun > 1 {
			r.series.migratedNew.Add(float64(begun - 1))
		}
		if attempts > begun {
			r.series.migratedOngoing.Add(float64(attempts - begun))
		}
	}
}

// log writes the one line about a request. It never holds text of a prompt or
// of an answer.
func (r *record) log(elapsed time.Duration, kind errorType) {
	logger := r.server.Logger
	if !logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("request_id", r.x.id),
		slog.String("model", r.model),
		slog.String("endpoint", r.endpoint),
		slog.String("request_type", r.kind()),
	)
	if r.x.correlation != r.x.id {
		attrs = append(attrs, slog.String("x_request_id", r.x.correlation))
	}
	if r.x.tenant != "" {
		attrs = append(attrs, slog.String("tenant", r.x.tenant))
	}
	level := slog.LevelInfo
	if kind == noError {
		attrs = append(attrs, slog.String("status", "success"))
	} else {
		attrs = append(attrs,
			slog.String("status", "error"),
			slog.Int("http_status", r.fault.Status),
			slog.String("error_type", kind.String()),
			slog.String("error_detail", explanations[kind]),
		)
		if field := topField(r.fault.Param); field != "" {
			attrs = append(attrs, slog.String("param", field))
		}
		if r.fault.Status >= 500 {
			attrs = append(attrs, slog.String("cause", r.cause.Error()))
		}
		if kind == errorInternal {
			level = slog.LevelError
		}
	}
	attrs = append(attrs, slog.Float64("elapsed_ms", float64(elapsed.Microseconds())/1000))
	if len(r.notes) > 0 && r.notes[0].Attempts > 0 {
		attrs = append(attrs, slog.Uint64("worker", r.notes[0].Target.Worker))
	}
	ctx := r.x.spanned(context.Background())
	logger.LogAttrs(ctx, level, "request completed", attrs...)
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	status := http.StatusOK
	if r.fault != nil {
		status = r.fault.Status
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "http response sent",
		slog.String("request_id", r.x.id), slog.Int("status", status), slog.Float64("latency_ms", float64(elapsed.Microseconds())/1000))
}

// received writes that a request was understood, before a worker is sought. Like the
// line on the response it is for who looks closely: one line per request is enough for
// everybody else, and each costs some microseconds.
func (r *record) received() {
	logger := r.server.Logger
	if !logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	logger.LogAttrs(r.x.spanned(context.Background()), slog.LevelDebug, "request received",
		slog.String("request_id", r.x.id), slog.String("model", r.model), slog.String("endpoint", r.endpoint), slog.String("request_type", r.kind()))
}

// kind says whether the answer comes in pieces.
func (r *record) kind() string {
	if r.stream {
		return "stream"
	}
	return "unary"
}

// topField returns the member of the body that a path begins with. What stands
// further down may be of the client's own making, as the keys of logit_bias are.
func topField(path string) string {
	end := strings.IndexFunc(path, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
	if end >= 0 {
		path = path[:end]
	}
	return clip(path)
}

// explanations are fixed texts: a message may quote what a client has sent.
var explanations = [errorTypes]string{
	errorValidation:     "the request is not valid",
	errorNotFound:       "there is no such model",
	errorOverload:       "all workers are busy",
	errorUnavailable:    "no worker is ready",
	errorCancelled:      "the client has gone",
	errorTimeout:        "no answer in time",
	errorInternal:       "internal error",
	errorNotImplemented: "the request asks for something that is not served",
}

// typeOf classifies what a client was told.
func typeOf(e *wire.Error, overload int) errorType {
	switch {
	case e == nil:
		return noError
	case e.Status == overload || e.Status == http.StatusTooManyRequests:
		return errorOverload
	case e.Status == http.StatusNotFound:
		return errorNotFound
	case e.Status == wire.StatusClientClosedRequest:
		return errorCancelled
	case e.Status == http.StatusNotImplemented:
		return errorNotImplemented
	case e.Status == http.StatusServiceUnavailable:
		return errorUnavailable
	case e.Status == http.StatusGatewayTimeout:
		return errorTimeout
	case e.Status >= 500:
		return errorInternal
	}
	return errorValidation
}

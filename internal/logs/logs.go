// Package logs writes the log of the program: lines for people, or JSON objects, one a
// line, with the keys that collectors of the reference's logs know. It also writes spans
// that have ended, where operators want them in the log.
//
// The one idea: a line knows the span in which it was written by the context alone. So
// whoever logs says nothing of ids, and lines of one request are found by its trace.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/span"
)

// Config says how lines look. The zero value writes for people, in UTC.
type Config struct {
	JSONL     bool
	LocalTime bool
	Colour    bool // of levels, in lines for people
}

// NewHandler returns a handler of one part of the program. Handlers of one writer must
// share mu.
func (c Config) NewHandler(out io.Writer, mu *sync.Mutex, target string, level slog.Level) slog.Handler {
	if c.JSONL {
		return &lines{config: c, out: out, mu: mu, target: target, level: level}
	}
	if c.Colour {
		out = painter{out}
	}
	h := slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.TimeKey:
			a.Value = slog.StringValue(c.time(a.Value.Time()))
		case a.Key == slog.LevelKey:
			if at, ok := a.Value.Any().(slog.Level); ok {
				a.Value = slog.StringValue(name(at))
			}
		}
		return a
	}})
	return h.WithAttrs([]slog.Attr{slog.String("target", target)})
}

func (c Config) time(t time.Time) string {
	if !c.LocalTime {
		t = t.UTC()
	}
	return t.Format("2006-01-02T15:04:05.000000Z07:00")
}

// name returns a level in upper case.
func name(level slog.Level) string {
	if level <= Trace {
		return "TRACE"
	}
	return level.String()
}

// Keys of the ids of a span, which no line outside of one has.
var reserved = []string{"span_name", "span_id", "trace_id", "parent_id", "tracestate", "x_request_id", "request_id"}

// lines writes JSON objects.
type lines struct {
	config Config
	out    io.Writer
	mu     *sync.Mutex
	target string
	level  slog.Level
	prefix string
	attrs  []slog.Attr // with their prefix
}

// Enabled implements slog.Handler.
func (h *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs implements slog.Handler.
func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *lines) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix += name + "."
	return &c
}

var buffers = sync.Pool{New: func() any { return new(line) }}

// Handle implements slog.Handler.
func (h *lines) Handle(ctx context.Context, r slog.Record) error {
	l := buffers.Get().(*line)
	defer buffers.Put(l)
	l.begin(h.config, r.Time, r.Level)
	l.source(r.PC)
	l.text("target", h.target)
	l.text("message", r.Message)
	within := span.From(ctx)
	for _, a := range h.attrs {
		l.attr("", a, within != nil)
	}
	r.Attrs(func(a slog.Attr) bool {
		l.attr(h.prefix, a, within != nil)
		return true
	})
	if within != nil {
		l.span(within.Name, within.Context, within.Parent, within.Attrs)
	}
	return l.write(h.out, h.mu)
}

// line is one object that is being written.
type line struct {
	buf  []byte
	keys []string // that are there already
}

func (l *line) begin(c Config, t time.Time, level slog.Level) {
	l.buf, l.keys = append(l.buf[:0], '{'), l.keys[:0]
	l.text("time", c.time(t))
	l.text("level", name(level))
}

// key writes a key, unless it is there already: the first one counts.
func (l *line) key(key string) bool {
	if slices.Contains(l.keys, key) {
		return false
	}
	l.keys = append(l.keys, key)
	if len(l.buf) > 1 {
		l.buf = append(l.buf, ',')
	}
	l.quote(key)
	l.buf = append(l.buf, ':')
	return true
}

func (l *line) quote(s string) {
	quoted, err := jsontext.AppendQuote(l.buf, s)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(l.buf, strings.ToValidUTF8(s, "\uFFFD")) // valid texts can be quoted
	}
	l.buf = quoted
}

func (l *line) text(key, value string) {
	if l.key(key) {
		l.quote(value)
	}
}

func (l *line) number(key string, value int64) {
	if l.key(key) {
		l.buf = fmt.Appendf(l.buf, "%d", value)
	}
}

// source tells where in the program the line comes from.
func (l *line) source(pc uintptr) {
	if pc == 0 {
		return
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if frame.File == "" {
		return
	}
	l.text("file", packageOf(frame.Function)+path.Base(frame.File))
	l.number("line", int64(frame.Line))
}

// packageOf returns the folder of a function, from the root of the module, as the source
// of a file would have it wherever it was built.
func packageOf(function string) string {
	at := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[at:], ".")
	if function = function[:at] + name; function == "main" {
		return "cmd/dynago/"
	}
	return strings.TrimPrefix(function, "github.com/dynago/dynago/") + "/"
}

// attr writes an attribute; those of groups have keys with dots.
func (l *line) attr(prefix string, a slog.Attr, inSpan bool) {
	v, key := a.Value.Resolve(), prefix+a.Key
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			key += "."
		}
		for _, a := range v.Group() {
			l.attr(key, a, inSpan)
		}
		return
	}
	if a.Key == "" || !inSpan && slices.Contains(reserved, key) || !l.key(key) {
		return
	}
	switch v.Kind() {
	case slog.KindInt64, slog.KindUint64, slog.KindBool:
		l.buf = append(l.buf, v.String()...)
	case slog.KindFloat64:
		if text := v.String(); jsontext.Value(text).IsValid() {
			l.buf = append(l.buf, text...)
			return
		}
		l.quote(v.String())
	case slog.KindString:
		l.embed(v.String())
	default:
		l.embed(v.String())
	}
}

// embed writes a text, or the JSON that it is.
func (l *line) embed(s string) {
	if s != "" && strings.IndexByte(`{["-0123456789tfn`, s[0]) >= 0 {
		if v := jsontext.Value(s); v.IsValid() {
			v = slices.Clone(v)
			if v.Compact() == nil { // a line has no breaks in it
				l.buf = append(l.buf, v...)
				return
			}
		}
	}
	l.quote(s)
}

// span writes the ids of a span, and its own fields as texts.
func (l *line) span(name string, c, parent span.Context, attrs []span.Attr) {
	l.text("span_name", name)
	l.text("span_id", c.SpanID())
	l.text("trace_id", c.TraceID())
	if parent.Valid() {
		l.text("parent_id", parent.SpanID())
	}
	if c.State != "" {
		l.text("tracestate", c.State)
	}
	for _, a := range attrs {
		l.text(a.Key, fmt.Sprint(a.Value))
	}
}

func (l *line) write(out io.Writer, mu *sync.Mutex) error {
	l.buf = append(l.buf, '}', '\n')
	mu.Lock()
	defer mu.Unlock()
	_, err := out.Write(l.buf)
	return err
}

// Messages of spans in the log.
const (
	spanEntered = "SPAN_FIRST_ENTRY"
	spanClosed  = "SPAN_CLOSED"
)

// Span writes a span that has ended: two lines, with the times of its beginning and of
// its end. All of its time counts as busy: who waits for others is not told apart.
func (c Config) Span(out io.Writer, mu *sync.Mutex, s *span.Span) {
	level := slog.LevelInfo
	if s.Debug {
		level = slog.LevelDebug
	}
	took := s.End.Sub(s.Start).Microseconds()
	if !c.JSONL {
		h := c.NewHandler(out, mu, s.Target, Trace)
		for _, at := range []struct {
			time    time.Time
			message string
		}{{s.Start, spanEntered}, {s.End, spanClosed}} {
			r := slog.NewRecord(at.time, level, at.message, 0)
			r.AddAttrs(slog.String("span_name", s.Name), slog.String("trace_id", s.TraceID()), slog.String("span_id", s.SpanID()))
			if at.message == spanClosed {
				r.AddAttrs(slog.Int64("time.duration_us", took))
			}
			h.Handle(context.Background(), r) //nolint:errcheck // as with any line
		}
		return
	}
	l := buffers.Get().(*line)
	defer buffers.Put(l)
	l.begin(c, s.Start, level)
	l.text("target", s.Target)
	l.text("message", spanEntered)
	l.span(s.Name, s.Context, s.Parent, nil)
	l.write(out, mu) //nolint:errcheck // as with any line
	l.begin(c, s.End, level)
	l.text("target", s.Target)
	l.text("message", spanClosed)
	l.number("time.busy_us", took)
	l.number("time.idle_us", 0)
	l.number("time.duration_us", took)
	l.span(s.Name, s.Context, s.Parent, s.Attrs)
	if s.Error != "" {
		l.text("error", s.Error)
	}
	l.write(out, mu) //nolint:errcheck // as with any line
}

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/dynago/dynago/internal/logs"
	"github.com/dynago/dynago/span"
)

// loggingSettings say what is logged, and how lines look.
type loggingSettings struct {
	LogLevel   string `name:"log-level" env:"DYN_LOG" placeholder:"LEVEL" help:"trace, debug, info, warn, error or off, and after commas target=level for frontend, pipeline, router, fleet; otherwise info. Targets alone silence all others."`
	LogFormat  string `name:"logging-console-format" env:"DYN_LOGGING_CONSOLE_FORMAT" placeholder:"FORMAT" help:"How log lines look: readable or jsonl; otherwise readable."`
	JSONL      bool   `name:"logging-jsonl" env:"DYN_LOGGING_JSONL" negatable:"" help:"Older name of jsonl, where no format is given; traces have ids then, whatever the format."`
	SpanEvents bool   `name:"logging-span-events" env:"DYN_LOGGING_SPAN_EVENTS" negatable:"" help:"Log spans when they have ended: SPAN_FIRST_ENTRY and SPAN_CLOSED."`
	LogConfig  string `name:"logging-config-path" env:"DYN_LOGGING_CONFIG_PATH" placeholder:"FILE" help:"TOML with log_level, and target = level in log_filters; read after /opt/dynamo/etc/logging.toml, and before --log-level."`
	LocalTime  bool   `name:"log-use-local-tz" env:"DYN_LOG_USE_LOCAL_TZ" negatable:"" help:"Times of log lines are local, with their offset, instead of UTC."`
	NoANSI     bool   `name:"disable-ansi-logging" env:"DYN_SDK_DISABLE_ANSI_LOGGING" negatable:"" help:"Write log lines without colours, which they have on a terminal."`
}

// logConfig is read by all programs of a machine.
const logConfig = "/opt/dynamo/etc/logging.toml"

// filter reads what the files and the setting say.
func (s *loggingSettings) filter() (f logs.Filter, err error) {
	for _, file := range []string{logConfig, s.LogConfig} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if file == logConfig && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.AddFile(string(text))
		}
		if err != nil {
			return f, fmt.Errorf("--logging-config-path: %s: %w", file, err)
		}
	}
	if err := f.Add(s.LogLevel); err != nil {
		return f, fmt.Errorf("--log-level: %w", err)
	}
	return f, nil
}

// logSet makes loggers for the parts of the program.
type logSet struct {
	config logs.Config
	filter logs.Filter
	out    io.Writer
	mu     sync.Mutex
	// ids says that requests have ids of traces, spans that spans are logged.
	ids, spans bool
	telemetry  telemetry
}

// newLogs reads the settings. A format that nobody knows stops no program: it writes
// for people, and says so.
func newLogs(s observabilitySettings, out io.Writer) (*logSet, error) {
	l := &logSet{out: out, spans: s.SpanEvents, ids: s.JSONL}
	var err error
	if l.filter, err = s.filter(); err != nil {
		return nil, err
	}
	l.config.LocalTime, l.config.Colour = s.LocalTime, !s.NoANSI && logs.Terminal(out)
	switch format := strings.ToLower(strings.TrimSpace(s.LogFormat)); format {
	case "":
		l.config.JSONL = s.JSONL
	case "jsonl":
		l.config.JSONL = true
	case "readable":
	default:
		fmt.Fprintf(out, "--logging-console-format: %q: want readable or jsonl; lines are readable\n", s.LogFormat)
	}
	l.ids = l.ids || l.config.JSONL
	return l, nil
}

// target returns the logger of one part.
func (l *logSet) target(name string) *slog.Logger {
	level := l.filter.Level(name)
	h := l.config.NewHandler(l.out, &l.mu, name, level)
	if e := l.telemetry.exporter; e != nil {
		return slog.New(slog.NewMultiHandler(h, e.Handler(name, level)))
	}
	return slog.New(h)
}

// tracer returns what makes ids of spans, or nil if nobody wants any.
func (l *logSet) tracer() *span.Tracer {
	t := &span.Tracer{}
	e := l.telemetry.exporter
	if e != nil {
		t.Sample, t.Tell = e.Sample, e.Tell
	}
	if l.spans {
		t.Every = func(s *span.Span) { l.config.Span(l.out, &l.mu, s) }
	}
	if e == nil && !l.spans && !l.ids {
		return nil
	}
	return t
}

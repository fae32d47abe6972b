package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// levelTrace is below debug; levelOff is above everything.
const (
	levelTrace = slog.LevelDebug - 4
	levelOff   = slog.LevelError + 100
)

// logs makes loggers for the parts of the program.
type logs struct {
	out    io.Writer
	json   bool
	level  slog.Level
	levels map[string]slog.Level // by target
}

// newLogs reads a setting of the form level,target=level,… .
func newLogs(s observabilitySettings, out io.Writer) (*logs, error) {
	l := &logs{out: out, json: s.LogFormat == "jsonl", level: slog.LevelInfo, levels: map[string]slog.Level{}}
	for part := range strings.SplitSeq(s.LogLevel, ",") {
		target, name, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			target, name = "", target
		}
		level, known := map[string]slog.Level{
			"trace": levelTrace, "debug": slog.LevelDebug, "info": slog.LevelInfo,
			"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "off": levelOff,
		}[strings.ToLower(name)]
		if !known {
			return nil, fmt.Errorf("--log-level: %q: want trace, debug, info, warn, error or off, or target=level", part)
		}
		if target == "" {
			l.level = level
		} else {
			l.levels[target] = level
		}
	}
	return l, nil
}

// target returns the logger of one part.
func (l *logs) target(name string) *slog.Logger {
	level, ok := l.levels[name]
	if !ok {
		level = l.level
	}
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(l.out, options)
	if l.json {
		h = slog.NewJSONHandler(l.out, options)
	}
	return slog.New(h).With("target", name)
}

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dynago/dynago/openai/responses/store"
)

// responsesSettings say what is kept of responses.
type responsesSettings struct {
	Store      string        `name:"responses-store" env:"DYN_RESPONSES_STORE" default:"memory" placeholder:"memory|off|DIR" help:"Where responses are kept for previous_response_id, item_reference and background: in memory, nowhere, or in a directory, which survives a restart and may be shared."`
	Bytes      int64         `name:"responses-store-bytes" env:"DYN_RESPONSES_STORE_BYTES" default:"1073741824" range:"1.." placeholder:"BYTES" help:"Keep so much at most; what was not used for longest goes first."`
	TTL        time.Duration `name:"responses-store-ttl" env:"DYN_RESPONSES_STORE_TTL" default:"1h" unit:"s" placeholder:"TIME" help:"Keep a response for so long."`
	SocketIdle time.Duration `name:"responses-socket-idle-timeout" env:"DYN_RESPONSES_SOCKET_IDLE_TIMEOUT" default:"30m" unit:"s" placeholder:"TIME" help:"Close a WebSocket that has not asked for anything for so long."`
	Background int           `name:"responses-background-limit" env:"DYN_RESPONSES_BACKGROUND_LIMIT" default:"256" range:"1.." placeholder:"N" help:"Make so many responses at a time for which no client waits; more are refused."`
}

// open makes the store, or none.
func (s *responsesSettings) open(log *slog.Logger) (*store.Store, error) {
	o := store.Options{Bytes: s.Bytes, TTL: s.TTL, Logger: log}
	switch {
	case s.TTL <= 0:
		return nil, fmt.Errorf("--responses-store-ttl: %v: want a time above 0", s.TTL)
	case s.SocketIdle <= 0:
		return nil, fmt.Errorf("--responses-socket-idle-timeout: %v: want a time above 0", s.SocketIdle)
	}
	switch s.Store {
	case "off":
		return nil, nil
	case "":
		return nil, errors.New("--responses-store: \"\": want memory, off or the name of a directory")
	case "memory":
	default:
		o.Dir = s.Store
	}
	kept, err := store.New(o)
	if err != nil {
		return nil, fmt.Errorf("--responses-store: %w", err)
	}
	return kept, nil
}

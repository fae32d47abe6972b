package sglang

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/publish"
)

// publish opens the sockets that --kv-events-config asks for, if it does. A page is
// that of the events.
func (s *Server) publish() error {
	if s.cfg.Events.Endpoint == "" {
		return nil
	}
	args := s.cfg.Mock.Args
	if args == (mock.Args{}) {
		args = mock.DefaultArgs()
	}
	s.cfg.Events.Dialect, s.cfg.Events.ShortReplay = publish.SGLang, true
	p, err := publish.New(s.cfg.Events, args.DPSize, args.BlockSize)
	if err != nil {
		return fmt.Errorf("fake SGLang: %w", err)
	}
	s.events = p
	s.engine.Hear(p.Hear)
	return nil
}

// Events returns what tells of the caches; nil: nothing does.
func (s *Server) Events() *publish.Publisher { return s.events }

// Engine returns the engine that computes.
func (s *Server) Engine() *mock.Engine { return s.engine }

// page returns how many tokens a page has, in an engine with blocks of some size.
func (s *Server) page(blockSize uint32) uint32 {
	if n := s.cfg.Events.Page; n > 0 {
		return uint32(n)
	}
	return blockSize
}

// eventsConfig is what the server tells of its events: the flag as it was given,
// and in newer builds its parts, which leave out where it replays.
func (s *Server) eventsConfig(blockSize, ranks uint32) (flag *string, parts any) {
	p := s.events
	if p == nil {
		return nil, nil
	}
	config := map[string]any{"publisher": "zmq", "endpoint": p.Endpoint(), "topic": p.Topic(), "buffer_steps": p.Window()}
	if p.Replay() != "" {
		config["replay_endpoint"] = p.Replay()
	}
	text, err := json.Marshal(config, json.Deterministic(true))
	if err != nil {
		panic(err) // texts and numbers
	}
	flag = new(string(text))
	at, err := url.Parse(p.Endpoint())
	if err != nil || s.cfg.OldNames {
		return flag, nil
	}
	port, _ := strconv.Atoi(at.Port())
	return flag, map[string]any{
		"publisher": "zmq", "endpoint_host": at.Hostname(), "endpoint_port_base": port, "topic": p.Topic(),
		"block_size": s.page(blockSize), "dp_size": ranks,
	}
}

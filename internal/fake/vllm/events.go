package vllm

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/publish"
)

// publish opens the sockets that --kv-events-config asks for, if it does.
func (s *Server) publish() error {
	if s.config.Events.Endpoint == "" {
		return nil
	}
	args := s.config.Mock.Args
	if args == (mock.Args{}) {
		args = mock.DefaultArgs()
	}
	s.config.Events.Dialect = publish.VLLM
	p, err := publish.New(s.config.Events, args.DPSize, args.BlockSize)
	if err != nil {
		return fmt.Errorf("fake vLLM: %w", err)
	}
	s.events = p
	s.mock.Hear(p.Hear)
	return nil
}

// Events returns what tells of the caches; nil: nothing does.
func (s *Server) Events() *publish.Publisher { return s.events }

// Engine returns the engine that computes.
func (s *Server) Engine() *mock.Engine { return s.mock }

// eventsConfig is --kv-events-config as a server in development mode tells it.
func (s *Server) eventsConfig() map[string]any {
	p := s.events
	if p == nil {
		return map[string]any{"enable_kv_cache_events": false, "publisher": "null", "endpoint": "tcp://*:5557", "replay_endpoint": nil, "topic": ""}
	}
	var replay any
	if p.Replay() != "" {
		replay = p.Replay()
	}
	return map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": p.Topic(), "buffer_steps": p.Window(), "hwm": 100000, "max_queue_size": 100000,
		"endpoint": p.Endpoint(), "replay_endpoint": replay,
	}
}

// sources tells what each rank was told of where to publish, by its own port.
func (s *Server) sources(w http.ResponseWriter, _ *http.Request) {
	ranks := map[string]any{}
	for rank := range max(s.config.Mock.Args.DPSize, 1) {
		if s.events == nil {
			break
		}
		config := s.eventsConfig()
		for _, key := range []string{"endpoint", "replay_endpoint"} {
			if at, ok := config[key].(string); ok {
				i := strings.LastIndexByte(at, ':') + 1
				port, _ := strconv.Atoi(at[i:])
				config[key] = at[:i] + strconv.Itoa(port+rank)
			}
		}
		ranks[strconv.Itoa(rank)] = config
	}
	write(w, http.StatusOK, ranks)
}

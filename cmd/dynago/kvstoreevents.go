package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/kvstore"
)

// kvstoreEventSettings say where a kvstore tells of its values.
type kvstoreEventSettings struct {
	Events  *string `name:"events-listen" env:"DYN_KVSTORE_EVENTS_LISTEN" placeholder:"HOST:PORT|off" help:"Publish here what comes to the store and leaves it; otherwise on 127.0.0.1:5558 if it is free."`
	Replay  *string `name:"events-replay-listen" env:"DYN_KVSTORE_EVENTS_REPLAY_LISTEN" placeholder:"HOST:PORT|off" help:"Tell again here what a listener has missed, or all that is there; otherwise on 127.0.0.1:5658 if it is free."`
	Backend string  `name:"events-backend-id" env:"DYN_KVSTORE_EVENTS_BACKEND_ID" placeholder:"NAME" help:"The store's name in events; otherwise that of the machine."`
}

// Where events are told unless something else is said, and only if nobody else
// listens there.
const (
	usualEvents = "127.0.0.1:5558"
	usualReplay = "127.0.0.1:5658"
)

// kvstoreEvents is the telling of one store's values.
type kvstoreEvents struct {
	*kvstore.Events
	end  context.CancelFunc
	done sync.WaitGroup
}

// open listens; nil is for nobody.
func (s *kvstoreEventSettings) open(ctx context.Context, log *slog.Logger) (*kvstoreEvents, error) {
	o := kvstore.EventsOptions{Backend: s.Backend, Log: log}
	if o.Backend == "" {
		o.Backend, _ = os.Hostname() // without one it has no name
	}
	asked := s.Events != nil
	var err error
	if o.Publish, err = endpoint("--events-listen", s.Events, usualEvents); err != nil || o.Publish == "" {
		return nil, err
	}
	if o.Replay, err = endpoint("--events-replay-listen", s.Replay, usualReplay); err != nil {
		return nil, err
	}
	if asked && s.Replay == nil {
		o.Replay = "" // a port that is not the usual one's neighbour is nobody's guess
	}
	e, err := kvstore.NewEvents(ctx, o)
	switch {
	case err != nil && !asked && s.Replay == nil:
		log.Warn("no events: choose addresses with --events-listen and --events-replay-listen, or off", "error", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("--events-listen: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	run := &kvstoreEvents{Events: e, end: end}
	run.done.Go(func() { e.Run(ctx) })
	return run, nil
}

// endpoint is an address of a flag as ZeroMQ writes it; off is "".
func endpoint(flag string, given *string, usual string) (string, error) {
	address := usual
	if given != nil {
		address = *given
	}
	if address == "off" {
		return "", nil
	}
	host, port, err := splitHostPort(flag, address)
	if err != nil {
		return "", err
	}
	if port == 0 {
		return fmt.Sprintf("tcp://%s:*", host), nil
	}
	return "tcp://" + address, nil
}

// close ends the telling.
func (e *kvstoreEvents) close() {
	if e == nil {
		return
	}
	e.end()
	e.done.Wait()
	e.Close() //nolint:errcheck // nobody is told any more
}

// changed is what a store tells of its changes, or nil.
func (e *kvstoreEvents) changed() func(kvstore.Change) {
	if e == nil {
		return nil
	}
	return e.Changed
}

// attach says whose values are told of.
func (e *kvstoreEvents) attach(s *kvstore.Server) {
	if e != nil {
		e.Attach(s)
	}
}

// line tells people where events are told.
func (e *kvstoreEvents) line() string {
	publish, replay := e.Addresses()
	if replay == "" {
		return "events   " + publish
	}
	return "events   " + publish + ", again " + replay
}

// collectors are its figures.
func (e *kvstoreEvents) collectors() []prometheus.Collector {
	if e == nil {
		return nil
	}
	read := func(of func(kvstore.EventsStats) float64) func() float64 {
		return func() float64 { return of(e.Stats()) }
	}
	counter := func(name, help string, of func(kvstore.EventsStats) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "dynago_kvstore_events_" + name, Help: help}, read(of))
	}
	gauge := func(name, help string, of func(kvstore.EventsStats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dynago_kvstore_events_" + name, Help: help}, read(of))
	}
	return []prometheus.Collector{
		counter("told_total", "Changes that were published.", func(s kvstore.EventsStats) float64 { return float64(s.Told) }),
		counter("lost_total", "Changes that were not told one by one, as too many waited.", func(s kvstore.EventsStats) float64 { return float64(s.Lost) }),
		counter("recounts_total", "How often all that is there was told anew, as too many changes waited.", func(s kvstore.EventsStats) float64 { return float64(s.Recounts) }),
		counter("messages_total", "Messages that told of changes.", func(s kvstore.EventsStats) float64 { return float64(s.Messages) }),
		counter("replays_total", "Requests for what was missed.", func(s kvstore.EventsStats) float64 { return float64(s.Replays) }),
		gauge("subscribers", "Listeners.", func(s kvstore.EventsStats) float64 { return float64(s.Subscribers) }),
	}
}

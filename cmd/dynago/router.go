package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/meter"
	"github.com/dynago/dynago/selection"
)

type routerCommand struct {
	File    fileSettings          `embed:"" group:"Files"`
	Service serviceSettings       `embed:"" group:"Service"`
	Router  routerSettings        `embed:"" group:"Router"`
	Observe observabilitySettings `embed:"" group:"Logs and metrics"`
}

// serviceSettings are those of the router as a service.
type serviceSettings struct {
	Host           string        `name:"host" env:"DYN_ROUTER_HOST,DYN_HOST" default:"127.0.0.1" placeholder:"ADDRESS" help:"Listen on this address; 0.0.0.0 is all. Whoever reaches it can register workers and book requests."`
	Port           int           `name:"port" env:"DYN_ROUTER_PORT,DYN_PORT" default:"8092" range:"0..65535" placeholder:"PORT" help:"Listen on this port; 0 takes a free one."`
	DrainTimeout   time.Duration `name:"drain-timeout" env:"DYN_DRAIN_TIMEOUT,DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS" default:"30s" unit:"s" placeholder:"TIME" help:"How long requests that wait for room may take after SIGTERM."`
	SelectionTTL   time.Duration `name:"selection-cache-ttl-secs" env:"DYN_SELECTION_CACHE_TTL_SECS" default:"120s" unit:"s" placeholder:"TIME" help:"How long a selection can be booked by its id."`
	MostSelections int           `name:"selection-cache-max-entries" env:"DYN_SELECTION_CACHE_MAX_ENTRIES" default:"4096" range:"1..1073741824" placeholder:"N" help:"How many selections are kept for that; the oldest go first."`
	SelectionBytes int           `name:"selection-cache-max-bytes" env:"DYN_SELECTION_CACHE_MAX_BYTES" default:"268435456" range:"1..1099511627776" placeholder:"BYTES" help:"How much memory they may take together."`
	MostReserved   int           `name:"max-reservations" env:"DYN_MAX_RESERVATIONS" default:"65536" range:"1..1073741824" placeholder:"N" help:"How many requests may be booked at once."`
	MostWorkers    int           `name:"max-workers" env:"DYN_MAX_WORKERS" default:"4096" range:"1..1048576" placeholder:"N" help:"How many workers may be registered."`
}

// serverOnly are settings of the router that mean something to a server alone.
var serverOnly = []string{
	"migration-limit", "migration-max-seq-len", "runtime-inhibited-duration-secs",
	"router-decision-log", "router-decision-log-rate", "router-peers", "router-peers-key",
}

// Run answers dispatchers until it is told to stop.
func (c *routerCommand) Run(to outlet, parsed *config.Parsed) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := logs.export(&c.Observe.Telemetry); err != nil {
		return err
	}
	defer logs.close()
	warnUnheeded(parsed, logs.target("selection"), func(s config.Setting) string {
		if slices.Contains(serverOnly, s.Name) {
			return "it is for a server that sends requests to workers itself"
		}
		return ""
	})
	if c.Service.SelectionTTL == 0 {
		return errors.New("--selection-cache-ttl-secs: 0: want more than 0")
	}
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	listener, err := listen(c.Service.Host, c.Service.Port, "--port")
	if err != nil {
		return err
	}
	defer listener.Close()
	conf, err := c.Router.config(logs.target("router"))
	if err != nil {
		return err
	}
	conf.MostBooked = c.Service.MostReserved
	policies, err := c.Router.Policy.apply(&conf, nil)
	if err != nil {
		return err
	}
	shared, err := c.Router.Shared.open(&conf, logs.target("router"))
	if err != nil {
		return err
	}
	service, err := c.build(conf, policies, logs)
	if err != nil {
		return err
	}
	defer service.Fleet.Close() //nolint:errcheck // the workers' own complaints are logged
	defer policies.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go service.Router.Run(ctx)
	go policies.run(ctx)
	go shared.run(ctx)

	waiting, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	server := &http.Server{
		BaseContext:       func(net.Listener) context.Context { return waiting },
		Handler:           service.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute, // lifted once the body is there
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logs.target("selection").Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(to.out, "dynago %s routes for dispatchers on %s\n", versionName(), baseURL(listener))
	fmt.Fprintf(to.out, "  router   %s\n", c.Router.describe())

	select {
	case err := <-failed:
		return fmt.Errorf("--port: %w", err)
	case <-signals:
		return c.drain(server, cut, signals, logs.target("selection"))
	}
}

// build makes the service, with a fleet and a router of its own.
func (c *routerCommand) build(conf router.Config, policies *policies, logs *logSet) (*selection.Service, error) {
	m := meter.New()
	conf.Observer = m
	workers := fleet.New(fleet.Config{Logger: logs.target("fleet")})
	r, err := router.New(conf, workers)
	if err != nil {
		return nil, err
	}
	m.Watch(r)
	return selection.New(selection.Config{
		Fleet: workers, Router: r, Logger: logs.target("selection"), KVEvents: c.Router.KVEvents,
		Spans: logs.tracer(), RouterMode: c.Router.Mode,
		Collectors:   append(policies.collectors(workers), m, &logs.telemetry),
		SelectionTTL: c.Service.SelectionTTL, MostSelections: c.Service.MostSelections,
		SelectionBytes: c.Service.SelectionBytes, MostWorkers: c.Service.MostWorkers,
	})
}

// cutGrace is how long requests that are cut may take to say so.
const cutGrace = 2 * time.Second

// drain ends the server: requests that wait for room may still be answered,
// unless a second signal comes. In the end they are told that they wait in vain.
func (c *routerCommand) drain(server *http.Server, cut context.CancelCauseFunc, signals <-chan os.Signal, log *slog.Logger) error {
	log.Info("draining: running requests may finish, a second signal ends at once", "timeout", c.Service.DrainTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), c.Service.DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- server.Shutdown(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			log.Warn("requests were cut")
			cut(engine.ErrShutdown)
			grace, cancel := context.WithTimeout(context.Background(), cutGrace)
			defer cancel()
			if server.Shutdown(grace) != nil {
				server.Close() //nolint:errcheck // all that matters has been said
			}
		}
		return nil
	case <-signals:
		return exit(1)
	}
}

// service lets the router of a whole system be asked by itself.
func (sys *system) service(log *slog.Logger) (*selection.Service, error) {
	return selection.New(selection.Config{Fleet: sys.fleet, Router: sys.router, Logger: log, OwnWorkers: true})
}

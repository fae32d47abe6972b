package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/config"
)

// workerCommand serves one engine to frontends in other processes.
type workerCommand struct {
	File    fileSettings          `embed:"" group:"Files"`
	Engine  workerEngineSettings  `embed:"" group:"Engine"`
	Mock    engineSettings        `embed:"" group:"Mock engine"`
	Tiny    tinySettings          `embed:"" group:"Tiny engine"`
	Listen  listenSettings        `embed:"" group:"Worker"`
	Observe observabilitySettings `embed:"" group:"Logs and metrics"`
}

type workerEngineSettings struct {
	Engine string `name:"engine" env:"DYN_ENGINE" secret:"api_key,headers" placeholder:"KIND=URL[,KEY=VALUE...]" help:"Server beside which this worker stands: vllm, sglang, trtllm, llamacpp, ollama, openai, or auto to find out which, as in vllm=http://127.0.0.1:8000; or tiny for the model in this program, mock for an engine without one, and echo for one that gives tensors back."`
	Path   string `name:"model-path" env:"DYN_MODEL_PATH" placeholder:"PATH" help:"Folder of the model's files, which frontends get from here; otherwise where the server says that it has them, and for mock and tiny those in this program. Tiny computes what lies there: a folder of safetensors, or a GGUF file."`
	Name   string `name:"model-name" aliases:"served-model-name" env:"DYN_MODEL_NAME" placeholder:"NAME" help:"Name of the model of mock, tiny and echo; otherwise that of the files, and echo."`
	Script string `name:"mock-script" env:"DYN_MOCK_SCRIPT" placeholder:"FILE" help:"Let the mock engine answer what this YAML file says."`
	Seed   uint64 `name:"mock-seed" env:"DYN_MOCK_SEED" default:"0" placeholder:"N" help:"What the mock engine's answers are made from; workers of one model share it."`
}

// listenSettings say how workers are reached.
type listenSettings struct {
	Address      string         `name:"listen" env:"DYN_WORKER_LISTEN" default:"127.0.0.1:50061" placeholder:"HOST:PORT" help:"Listen on this address, with several workers on the ports after it as well; port 0 takes a free one."`
	Insecure     bool           `name:"insecure" env:"DYN_WORKER_INSECURE" negatable:"" help:"Listen on a network without TLS and keys: whoever reaches the port may use the worker."`
	APIKeysFile  *string        `name:"api-keys-file" env:"DYN_API_KEYS_FILE" placeholder:"FILE" help:"Want one of these keys of frontends; lines of \"key [tenant]\". The file is read again when it changes."`
	Cert         string         `name:"tcp-tls-cert-path" env:"DYN_TCP_TLS_CERT_PATH" placeholder:"FILE" help:"Certificate in PEM: serve with TLS."`
	Key          string         `name:"tcp-tls-key-path" env:"DYN_TCP_TLS_KEY_PATH" placeholder:"FILE" help:"Its key."`
	CA           string         `name:"tcp-tls-ca-cert-path" env:"DYN_TCP_TLS_CA_CERT_PATH" placeholder:"FILE" help:"Want certificates of frontends that are signed with these."`
	Requests     int            `name:"engine-request-limit" env:"DYN_ENGINE_REQUEST_LIMIT" default:"0" range:"0.." placeholder:"N" help:"Requests that run at once; 0 is as many as come."`
	Queue        int            `name:"dynamo-request-queue-limit" env:"DYN_DYNAMO_REQUEST_QUEUE_LIMIT" default:"16" range:"0.." placeholder:"N" help:"Requests that wait beyond those; further ones are refused."`
	Grace        time.Duration  `name:"graceful-shutdown-grace-period-secs" env:"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS" default:"5s" unit:"s" placeholder:"TIME" help:"How long newcomers are served after SIGTERM, until frontends have heard of it."`
	DrainTimeout time.Duration  `name:"drain-timeout" env:"DYN_DRAIN_TIMEOUT" default:"30s" unit:"s" placeholder:"TIME" help:"How long running requests may take to finish after SIGTERM; then they go on elsewhere."`
	Reflection   bool           `name:"grpc-reflection" env:"DYN_GRPC_REFLECTION" default:"true" negatable:"" help:"Tell whoever asks what the service looks like."`
	Window       int32          `name:"grpc-initial-stream-window-size" env:"DYN_GRPC_INITIAL_STREAM_WINDOW_SIZE" default:"0" range:"0..2147483647" placeholder:"BYTES" help:"Flow-control window of a stream to begin with; 0 is the library's."`
	ConnWindow   int32          `name:"grpc-initial-connection-window-size" env:"DYN_GRPC_INITIAL_CONNECTION_WINDOW_SIZE" default:"0" range:"0..2147483647" placeholder:"BYTES" help:"The same of a connection."`
	System       systemSettings `embed:""`
	Pod          string         `name:"pod-name" env:"POD_NAME" placeholder:"NAME" help:"Name of the pod, by which all frontends then know the worker."`
}

// Run serves until it is told to stop.
func (c *workerCommand) Run(to outlet, parsed *config.Parsed) error {
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := logs.export(&c.Observe.Telemetry); err != nil {
		return err
	}
	defer logs.close()
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	log := logs.target("worker")
	if c.Engine.Engine == "" {
		return errors.New("--engine: want the server beside which this worker stands, as in --engine vllm=http://127.0.0.1:8000; or tiny, mock or echo, which need none")
	}
	c.unheeded(parsed, log)
	w, err := c.Listen.open(log)
	if err != nil {
		return err
	}
	engines, err := c.engines(w)
	if err != nil {
		return err
	}
	defer closeAll(engines)
	return w.serve(to, logs, engines)
}

// unheeded warns of what the engine does not heed.
func (c *workerCommand) unheeded(parsed *config.Parsed, log *slog.Logger) {
	kind := c.Engine.Engine
	warnUnheeded(parsed, log, func(s config.Setting) string {
		switch {
		case s.Group == "Tiny engine" && kind != "tiny":
			return "it is for --engine tiny"
		case s.Group == "Mock engine" && kind != "tiny" && kind != "mock":
			return "it is for --engine tiny and mock"
		case strings.HasPrefix(s.Name, "mock-") && kind != "mock":
			return "it is for --engine mock"
		}
		return ""
	})
}

// engines returns the one engine.
func (c *workerCommand) engines(w *workers) ([]behind, error) {
	log := w.log
	switch c.Engine.Engine {
	case "echo":
		return echoes(cmp.Or(c.Engine.Name, "echo"))
	case "mock":
		model := modelSettings{Path: c.Engine.Path, Name: c.Engine.Name, ToolParser: "auto", ReasoningParser: "auto", Tokenizer: "default"}
		return mocks(model, workerSettings{Count: new(1), engineSettings: c.Mock, Script: c.Engine.Script, Seed: c.Engine.Seed}, log)
	}
	if c.Engine.Engine == "tiny" {
		model := modelSettings{Path: c.Engine.Path, Name: c.Engine.Name, ToolParser: "auto", ReasoningParser: "auto", Tokenizer: "default"}
		return c.Tiny.worker(model, &c.Mock, w)
	}
	spec, err := attach.Parse(c.Engine.Engine)
	if err != nil {
		return nil, fmt.Errorf("--engine: %w", err)
	}
	if spec.Kind == attach.Remote {
		return nil, fmt.Errorf("--engine: url: %s: is a worker already, which frontends reach by themselves: want the address of a server", spec.URL)
	}
	if c.Engine.Name != "" {
		return nil, errors.New("--model-name: with a server a model has the name that the server gives it: want model=NAME in --engine to choose among several")
	}
	e, err := attach.New(spec, attach.Config{ModelPath: c.Engine.Path, Known: inside, Adapter: attach.Adapter{Log: log}})
	if err != nil {
		return nil, fmt.Errorf("--engine: %w", err)
	}
	return []behind{{engine: e, name: spec.String()}}, nil
}

// mocks makes mock engines of one model.
func mocks(m modelSettings, s workerSettings, log *slog.Logger) ([]behind, error) {
	files, err := newModelFiles(m, log)
	if err != nil {
		return nil, err
	}
	model, err := files.load()
	if err != nil {
		return nil, err
	}
	args, err := s.engineArgs()
	if err != nil {
		return nil, err
	}
	script, err := s.script()
	if err != nil {
		return nil, err
	}
	card := files.card()
	sign(card, model)
	var list []behind
	shared := mock.NewShared(args)
	for i := range value(s.Count) {
		e, err := mock.New(mock.Config{
			Shared: shared,
			Model:  files.name, Args: args, Seed: s.Seed, Script: script, Encode: encoder(model, log), EOS: model.EOS,
			VocabSize: model.VocabularySize, ContextLength: uint32(min(model.ContextLength, args.Capacity())),
			Files: card, Name: fmt.Sprintf("mock-%d-%d", os.Getpid(), i),
		})
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, behind{engine: e, name: "a mock engine of " + files.name})
	}
	return list, nil
}

func closeAll(list []behind) {
	for _, b := range list {
		if c, ok := b.engine.(io.Closer); ok {
			c.Close() //nolint:errcheck // the process ends
		}
	}
}

// behind is an engine that is to be served, and what it is to people.
type behind struct {
	engine  engine.Engine
	name    string
	reached func(address string) // is told where others reach it, or nil
}

// serve serves engines, each on a port of its own, until the process is told to stop.
func (w *workers) serve(to outlet, logs *logSet, engines []behind) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	s, log := w.settings, w.log
	defer w.close()
	failed := make(chan error, len(engines))
	for i, b := range engines {
		l, err := s.port(i)
		if err != nil {
			return err
		}
		server := remote.NewServer(w.config(b.engine, logs.engineSpans(l.Addr().String()), log.With("worker", l.Addr().String())))
		w.servers, w.engines = append(w.servers, server), append(w.engines, engineAt{fleet.ID(cmp.Or(s.Pod, w.address(l))), b.engine})
		if b.reached != nil {
			b.reached(l.Addr().String())
		}
		go func() { failed <- server.Serve(l) }()
		fmt.Fprintf(to.out, "dynago %s works for %s on %s\n", versionName(), b.name, w.address(l))
		fmt.Fprintf(to.out, "  serve    dynago serve --engine %s\n", w.address(l))
	}
	page, err := s.System.open(w.collectors(&logs.telemetry), w.ready, log)
	if err != nil {
		return err
	}
	defer page.close()
	if page != nil {
		fmt.Fprintf(to.out, "  metrics  %s/metrics\n", baseURL(page.listener))
	}
	for {
		select {
		case err := <-failed:
			return err
		case err := <-page.failure():
			return err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				w.reload()
				continue
			}
			return w.drain(signals)
		}
	}
}

// port opens the i-th port.
func (s *listenSettings) port(i int) (net.Listener, error) {
	host, port, err := splitAddress(s.Address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if port != 0 {
		port += i
	}
	return listen(host, port, "--listen")
}

// workers are those of this process.
type workers struct {
	settings *listenSettings
	log      *slog.Logger
	keys     *frontend.Keys // or nil
	identity *identity      // or nil
	servers  []*remote.Server
	engines  []engineAt
}

// engineAt is an engine, by the id that frontends know it by which dial the address that
// was printed.
type engineAt struct {
	id     uint64
	engine engine.Engine
}

// open reads keys and certificates, and refuses to listen where anybody could come.
func (s *listenSettings) open(log *slog.Logger) (*workers, error) {
	w := &workers{settings: s, log: log}
	var err error
	if s.APIKeysFile != nil {
		if w.keys, err = frontend.ReadKeys(*s.APIKeysFile); err != nil {
			return nil, fmt.Errorf("--api-keys-file: %w", err)
		}
	}
	if w.identity, err = newIdentity("--tcp-tls", s.Cert, s.Key, s.CA); err != nil {
		return nil, err
	}
	host, _, err := splitAddress(s.Address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if !thisMachine(host) && !s.Insecure && (w.identity == nil || w.keys == nil && s.CA == "") {
		return nil, fmt.Errorf("--listen: %s: others may reach this address, and use and read the worker: want --tcp-tls-cert-path and --tcp-tls-key-path, with --api-keys-file or --tcp-tls-ca-cert-path; or --insecure on a network of your own", s.Address)
	}
	return w, nil
}

// thisMachine says whether what is sent to a host goes over no network.
func thisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// splitAddress reads HOST:PORT.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = net.LookupPort("tcp", text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%q: want HOST:PORT", address)
	}
	return host, port, nil
}

func (w *workers) config(e engine.Engine, spans *engine.Spans, log *slog.Logger) remote.ServerConfig {
	s := w.settings
	c := remote.ServerConfig{
		Engine: e, Spans: spans, Requests: s.Requests, Queue: s.Queue, Reflection: s.Reflection, Window: s.Window, ConnWindow: s.ConnWindow, Log: log,
	}
	if s.Pod != "" {
		c.Worker = fleet.ID(s.Pod)
	}
	if w.keys != nil {
		c.Authorize = w.keys.Holds
	}
	if w.identity != nil {
		c.TLS = w.identity.server("h2")
	}
	return c
}

// address is how a frontend on this machine reaches a worker.
func (w *workers) address(l net.Listener) string {
	scheme := "grpc"
	if w.identity != nil {
		scheme = "grpcs"
	}
	return scheme + strings.TrimPrefix(baseURL(l), "http")
}

// reload reads keys and certificates again.
func (w *workers) reload() {
	reload(w.keys, w.log)
	w.identity.again(w.log)
}

// drain lets running requests finish, unless a second signal comes.
func (w *workers) drain(signals <-chan os.Signal) error {
	s := w.settings
	w.log.Info("draining: running requests may finish, a second signal ends at once", "grace", s.Grace, "timeout", s.DrainTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), s.DrainTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, server := range w.servers[1:] {
			go server.Drain(ctx, s.Grace) //nolint:errcheck // it says so itself
		}
		w.servers[0].Drain(ctx, s.Grace) //nolint:errcheck // it says so itself
		w.close()
	}()
	for {
		select {
		case <-done:
			return nil
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				return exit(1)
			}
		}
	}
}

func (w *workers) close() {
	for _, s := range w.servers {
		s.Close()
	}
}

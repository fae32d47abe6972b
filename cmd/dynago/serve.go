package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/openai/responses"
)

type serveCommand struct{ settings }

// Run serves until it is told to stop.
func (c *serveCommand) Run(to outlet, parsed *config.Parsed) error {
	// Whoever is impatient during the start gets the same treatment as later.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	logs, err := c.prepare(to, parsed)
	if err != nil {
		return err
	}
	if err := logs.export(&c.Observe.Telemetry); err != nil {
		return err
	}
	defer logs.close()
	log := logs.target("serve")
	if _, err := c.Attach.specs(&c.settings); err != nil {
		return err // before a port that an engine should have is taken
	}
	identity, err := newIdentity("--tls", c.HTTP.Cert, c.HTTP.Key, "")
	if err != nil {
		return err
	}
	listener, err := listen(c.HTTP.Host, c.HTTP.Port, "--http-port")
	if err != nil {
		return err
	}
	listener = identity.over(listener)
	defer listener.Close()
	// A free port is known now, and no engine can have it.
	c.HTTP.Port = listener.Addr().(*net.TCPAddr).Port
	var admin net.Listener
	if p := c.HTTP.AdminPort; p != nil {
		if admin, err = listen(c.HTTP.Host, *p, "--admin-port"); err != nil {
			return err
		}
		admin = identity.over(admin)
		defer admin.Close()
	}
	kserve, err := c.KServe.open(c.HTTP.Host, listener, identity, log)
	if err != nil {
		return err
	}
	defer kserve.close()
	raiseFDLimit(c.HTTP.FDLimit, log)
	spareCollections()

	tracing, err := c.Trace.open(parsed, &c.Observe.Telemetry, logs.target("trace"), to.err)
	if err != nil {
		return err
	}
	defer tracing.close()
	sys, err := newSystem(&c.settings, logs)
	if err != nil {
		return err
	}
	defer sys.Pipeline.Close() //nolint:errcheck // it never fails
	defer sys.close()
	defer sys.policies.close()
	if err := sys.addEcho(c.Attach.TensorEcho); err != nil {
		return err
	}
	server, keys, err := c.server(sys, tracing, kserve.take(), logs, logs.target("frontend"))
	if err != nil {
		return err
	}
	if sys.files != nil && sys.args.StartupTime == 0 {
		if err := sys.ready(context.Background()); err != nil {
			return err
		}
	}
	failed := make(chan error, 5)
	go func() { failed <- server.Serve(listener) }()
	if admin != nil {
		go func() { failed <- server.ServeAdmin(admin) }()
	}
	kserve.serve(server, failed, logs.target("frontend"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go sys.router.Run(ctx)
	go sys.policies.run(ctx)
	go sys.shared.run(ctx)
	if sys.peers != nil {
		go sys.peers.Run(ctx)
	}
	if kept := server.ResponsesStore; kept != nil {
		go kept.Run(ctx)
	}
	go sys.follow(ctx)
	go sys.delay.Run(ctx)
	if every := c.Workers.Churn; every > 0 {
		go sys.churn(ctx, every, sys.count())
	}
	c.announce(to.out, sys, listener, admin, kserve)
	// Loading the model left garbage several times its size.
	go debug.FreeOSMemory()

	for {
		select {
		case err := <-failed:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				return c.drain(server, kserve, signals, failed, log)
			}
			reload(keys, log)
			identity.again(log)
			if _, err := sys.Reload(); err != nil && !errors.Is(err, errNoFile) {
				log.Error("workers stay as they were told last", "error", err)
			}
		}
	}
}

// prepare checks what can be checked without building anything.
func (c *serveCommand) prepare(to outlet, parsed *config.Parsed) (*logSet, error) {
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return nil, err
	}
	if err := c.Ignored.check(logs.target("serve")); err != nil {
		return nil, err
	}
	c.unheeded(parsed, logs.target("serve"))
	if err := errors.Join(c.HTTP.check(), c.Paths.check(), c.Requests.Retention.check()); err != nil {
		return nil, err
	}
	return logs, c.File.dump(parsed)
}

// check finds what single values do not show.
func (s *httpSettings) check() error {
	switch {
	case s.APIKeysFile != nil && *s.APIKeysFile == "":
		// It would be a mistake to take this for a server without keys.
		return errors.New("--api-keys-file: \"\": want the name of a file")
	case s.AdminPort != nil && *s.AdminPort == s.Port && s.Port != 0:
		return fmt.Errorf("--admin-port: %d: want another port than --http-port", s.Port)
	}
	return nil
}

// check finds paths that cannot be served.
func (s *pathSettings) check() error {
	for flag, path := range map[string]string{
		"chat": s.Chat, "cmp": s.Completions, "models": s.Models, "health": s.Health, "live": s.Live, "metrics": s.Metrics,
	} {
		if path == "" {
			continue
		}
		if err := frontend.CheckPath(path); err != nil {
			return fmt.Errorf("--http-svc-%s-path: %w", flag, err)
		}
	}
	return nil
}

// dump writes the settings that hold, if that was asked for.
func (s fileSettings) dump(parsed *config.Parsed) error {
	if s.DumpConfigTo == "" {
		return nil
	}
	f, err := os.Create(s.DumpConfigTo)
	if err != nil {
		return fmt.Errorf("--dump-config-to: %w", err)
	}
	if err := errors.Join(parsed.Dump(f), f.Close()); err != nil {
		return fmt.Errorf("--dump-config-to: %w", err)
	}
	return nil
}

// check refuses what this version does not have, and says what has no effect.
func (s *ignoredSettings) check(log *slog.Logger) error {
	switch s.Discovery {
	case "mem", "file":
	case "nats", "kubernetes":
		return fmt.Errorf("--discovery-backend: %s: this version has mem, where this process is told its workers, and file, where a list in files tells them", s.Discovery)
	default:
		return fmt.Errorf("--discovery-backend: %s: want mem, file, nats or kubernetes, of which this version has mem and file", s.Discovery)
	}
	if !s.TokenizerFallback {
		log.Warn("setting has no effect", "setting", "--tokenizer-fallback", "value", "false")
	}
	if s.TrustRemoteCode {
		log.Warn("setting has no effect", "setting", "--trust-remote-code", "value", "true")
	}
	for name, v := range map[string]*string{
		"--request-plane": s.RequestPlane, "--event-plane": s.EventPlane, "--admission-control": s.AdmissionControl,
	} {
		if v != nil {
			log.Warn("setting has no effect", "setting", name, "value", *v)
		}
	}
	return nil
}

// server makes the HTTP server. grpc, if not nil, takes connections that speak gRPC.
func (c *serveCommand) server(sys *system, tracing *tracing, grpc func(net.Conn), logs *logSet, log *slog.Logger) (*frontend.Server, *frontend.Keys, error) {
	var keys *frontend.Keys
	if path := c.HTTP.APIKeysFile; path != nil {
		var err error
		if keys, err = frontend.ReadKeys(*path); err != nil {
			return nil, nil, fmt.Errorf("--api-keys-file: %w", err)
		}
	}
	buckets, err := bucketsFromEnv(os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	service, err := sys.service(log)
	if err != nil {
		return nil, nil, err
	}
	timing := frontend.DefaultTiming()
	timing.Hold, timing.KeepAlive, timing.Write = c.HTTP.Hold, c.HTTP.KeepAlive, c.HTTP.WriteTimeout
	aliases, err := c.Model.aliases()
	if err != nil {
		return nil, nil, err
	}
	box, err := envelope.New(c.Requests.EnvelopeKey)
	if err != nil {
		return nil, nil, err
	}
	kept, err := c.Stored.open(log)
	if err != nil {
		return nil, nil, err
	}
	tenants, err := c.HTTP.tenants()
	if err != nil {
		return nil, nil, err
	}
	uploads, err := c.Requests.uploads()
	if err != nil {
		return nil, nil, err
	}
	template, err := c.Requests.template()
	if err != nil {
		return nil, nil, err
	}
	var others frontend.Peers
	if sys.peers != nil {
		others = sys.peers
	}
	server, err := frontend.New(frontend.Config{
		Backend: sys, Logger: log, Version: versionName(),
		BodyLimit: c.HTTP.BodyLimitMB << 20, OverloadStatus: c.HTTP.OverloadStatus,
		Timing:        &timing,
		HeaderTimeout: c.HTTP.HeaderTimeout, ReadTimeout: c.HTTP.ReadTimeout, IdleTimeout: c.HTTP.IdleTimeout,
		Thresholds: sys.router, Selection: service, Tracing: tracing.frontend(), Spans: logs.tracer(), ProbeSpans: logs.filter.Level("frontend") <= slog.LevelDebug, Journal: sys.journal, Roster: sys, Prefetcher: sys.Pipeline, Caretaker: sys.Pipeline, Inventory: sys.Pipeline, Peers: others, KServe: c.KServe.GRPC || c.KServe.REST, Tensors: sys.Pipeline, TensorNVExt: c.KServe.TensorNVExt, HTTP2: grpc,
		Collectors: append(sys.policies.collectors(sys.fleet), sys.meter, newHandoffMetrics(sys.Pipeline), newForesightMetrics(sys.Pipeline), newEstimateMetrics(sys.Pipeline), newRetentionMetrics(sys.Pipeline), sys.moves, newFleetMetrics(sys.fleet, sys.roster), newCacheMetrics(enginesOf(sys.fleet)), newKVBMMetrics(enginesOf(sys.fleet)), newPeerMetrics(sys.peers), sys.delay, tracing, &logs.telemetry),
		Keys:       keys, Tenants: tenants, MetadataHeader: strings.TrimSpace(c.Requests.MetadataHeader), UploadPrefixes: uploads,
		SeparateAdmin: c.HTTP.AdminPort != nil, NoAdmin: c.HTTP.NoAdmin,
		OpenAI: openai.Options{
			RejectUnknown: !c.Requests.IgnoreUnknown, DisableNVExt: c.Requests.NoNVExt, StrictNVExt: c.Requests.StrictNVExt,
			ForceUsage: c.Requests.ForceUsage, NamedToolStop: c.Model.NamedToolFinish == "stop",
			ReasoningField: c.Model.ReasoningField, Annotations: openai.Framing(c.Requests.Annotations),
			ToolDispatch: c.Requests.ToolDispatch, ReasoningDispatch: c.Requests.ThoughtDispatch,
			Template: template, DefaultModel: template.DefaultModel(),
		},
		Anthropic: anthropic.Options{
			DisableNVExt: c.Requests.NoNVExt, StrictNVExt: c.Requests.StrictNVExt,
			MarkErrors: c.Requests.ToolErrorPrefix, Envelope: box,
			DefaultModel: template.DefaultModel(), DefaultMaxTokens: template.MaxTokens(),
		},
		Responses: responses.Options{
			RejectUnknown: !c.Requests.IgnoreUnknown, DisableNVExt: c.Requests.NoNVExt, StrictNVExt: c.Requests.StrictNVExt,
			Envelope: box, RawReasoning: responses.RawReasoning(c.Requests.RawReasoning), DefaultModel: template.DefaultModel(),
		},
		ResponsesStore: kept, MaxBackground: c.Stored.Background, SocketIdle: c.Stored.SocketIdle,
		NoMessages: !c.Requests.AnthropicAPI,
		Aliases:    aliases,
		OwnedBy:    c.Model.OwnedBy, ContextWindow: c.Model.ContextWindow, MaxOutputTokens: c.Model.MaxOutputTokens,
		Paths: map[string]string{
			frontend.PathChat: c.Paths.Chat, frontend.PathCompletions: c.Paths.Completions, frontend.PathModels: c.Paths.Models,
			frontend.PathHealth: c.Paths.Health, frontend.PathLive: c.Paths.Live, frontend.PathMetrics: c.Paths.Metrics,
		},
		MetricsPrefix: c.Observe.MetricsPrefix, Buckets: buckets, MigrationLimit: c.Router.MigrationLimit,
	})
	return server, keys, err
}

// uploads are the places to which workers may be told to upload.
func (s *requestSettings) uploads() ([]frontend.UploadPrefix, error) {
	var list []frontend.UploadPrefix
	for _, text := range s.UploadPrefixes {
		p, err := frontend.ParseUploadPrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--metadata-upload-prefix: %w", err)
		}
		list = append(list, p)
	}
	return list, nil
}

// portTaken is the error of a port that another program has.
type portTaken string

func (e portTaken) Error() string { return string(e) }

// listen opens a port, and says what to do if it cannot.
func listen(host string, port int, flag string) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, portTaken(fmt.Sprintf("%s is taken by another program: choose another port with %s %d, or find out who holds it with \"lsof -nP -iTCP:%d -sTCP:LISTEN\"", address, flag, port%65535+1, port))
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s may not be opened by this user: choose a port above 1023 with %s", address, flag)
	}
	return nil, fmt.Errorf("--http-host and %s: %w", flag, err)
}

// announce prints what was started and how to try it.
func (c *serveCommand) announce(out io.Writer, sys *system, listener, admin net.Listener, kserve *kserveServer) {
	url := baseURL(listener)
	path := c.Paths.Chat
	if path == "" {
		path = "/v1/chat/completions"
	}
	name := sys.name()
	fmt.Fprintf(out, "dynago %s serves %s on %s\n", versionName(), name, url)
	fmt.Fprintf(out, "  workers  %s\n", sys.describe())
	fmt.Fprintf(out, "  router   %s\n", c.Router.describe())
	if admin != nil {
		fmt.Fprintf(out, "  admin    %s\n", baseURL(admin))
	}
	kserve.announce(out)
	question := "Which rivers cross Paris?"
	if sys.tiny != nil && sys.files.uri == builtinTiny {
		question = "What is 12 plus 7?" // it has not heard of Paris
	}
	auth := ""
	if c.HTTP.APIKeysFile != nil {
		auth = " -H 'Authorization: Bearer KEY'"
	}
	fmt.Fprintf(out, "\ncurl -N %s%s -H 'Content-Type: application/json'%s -d '{\"model\":%s,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}'\n\n",
		url, path, auth, strings.ReplaceAll(strconv.Quote(name), "'", `'\''`), question)
}

// baseURL returns an address that a client on this machine can use.
func baseURL(l net.Listener) string {
	address := l.Addr().(*net.TCPAddr)
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if _, ok := l.(secure); ok {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// drain ends the server: what runs may finish, unless a second signal comes.
func (c *serveCommand) drain(server *frontend.Server, kserve *kserveServer, signals <-chan os.Signal, failed <-chan error, log *slog.Logger) error {
	log.Info("draining: running requests may finish, a second signal ends at once", "timeout", c.HTTP.DrainTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), c.HTTP.DrainTimeout)
	defer cancel()
	done := make(chan int)
	go func() {
		kserve.leave()
		cut := server.Drain(ctx)
		kserve.close()
		done <- cut
	}()
	for {
		select {
		case cut := <-done:
			if cut > 0 {
				log.Warn("requests were cut", "count", cut)
			}
			return nil
		case err := <-failed:
			if err != nil {
				return err
			}
		case s := <-signals:
			if s != syscall.SIGHUP {
				return exit(1)
			}
		}
	}
}

func reload(keys *frontend.Keys, log *slog.Logger) {
	if keys == nil {
		return
	}
	if err := keys.Reload(); err != nil {
		log.Error("API keys stay as they were", "error", err)
		return
	}
	log.Info("API keys were read again")
}

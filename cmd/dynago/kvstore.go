package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvstore"
)

// kvstoreCommand keeps KV-cache values for engines, in memory, on disk and in an
// object store that they share.
type kvstoreCommand struct {
	File    fileSettings          `embed:"" group:"Files"`
	Store   kvstoreSettings       `embed:"" group:"Store"`
	Below   tierSettings          `embed:"" group:"Disk and object store"`
	Events  kvstoreEventSettings  `embed:"" group:"Events"`
	Observe observabilitySettings `embed:"" group:"Logs and metrics"`
}

type kvstoreSettings struct {
	Listen       string        `name:"listen" env:"DYN_KVSTORE_LISTEN" default:"127.0.0.1:6379" placeholder:"HOST:PORT" help:"Answer clients of Redis here; port 0 takes a free one."`
	HTTP         *string       `name:"http-listen" env:"DYN_KVSTORE_HTTP_LISTEN" placeholder:"HOST:PORT|off" help:"Answer over HTTP here: /healthz, /readyz, /metrics and /v1/kv/...; otherwise on 127.0.0.1:6880 if it is free."`
	Memory       string        `name:"memory" env:"DYN_KVSTORE_MEMORY" default:"4GiB" placeholder:"SIZE" help:"How much main memory the values may take."`
	Unchecked    bool          `name:"no-checksums" env:"DYN_KVSTORE_NO_CHECKSUMS" help:"Do not check values against their XXH3 when they are read."`
	Namespaces   []string      `name:"namespace" sep:";" secret:"token=" env:"DYN_KVSTORE_NAMESPACE" placeholder:"NAME[,KEY=VALUE]" help:"A set of keys of its own, with quota=SIZE, full=evict (its own values, beyond the quota) or full=deny, and token=TOKEN or token-file=PATH, which AUTH opens it by. Repeatable; otherwise one for everybody."`
	MaxValue     string        `name:"max-value-size" env:"DYN_KVSTORE_MAX_VALUE_SIZE" default:"512MiB" placeholder:"SIZE" help:"Longest value, at most 512MiB."`
	MaxValues    int           `name:"max-values" env:"DYN_KVSTORE_MAX_VALUES" default:"4194304" range:"1..1000000000" placeholder:"N" help:"How many values there may be in all tiers together; each takes about a kilobyte of memory besides --memory."`
	MaxConns     int           `name:"max-connections" env:"DYN_KVSTORE_MAX_CONNECTIONS" default:"1024" range:"1..1000000" placeholder:"N" help:"How many clients may be connected."`
	MaxPending   string        `name:"max-pending-size" env:"DYN_KVSTORE_MAX_PENDING_SIZE" default:"1GiB" placeholder:"SIZE" help:"How much memory values may take while they are received; what comes beyond is refused."`
	Lease        time.Duration `name:"lease" env:"DYN_KVSTORE_LEASE" default:"10s" unit:"s" placeholder:"TIME" help:"How long what was read is not evicted if something else can be; 0 is no time."`
	Stall        time.Duration `name:"stall-timeout" env:"DYN_KVSTORE_STALL_TIMEOUT" default:"30s" unit:"s" placeholder:"TIME" help:"How long a client may take for 1 MiB of a request, or of an answer."`
	PinBudget    float64       `name:"pin-budget" env:"DYN_KVSTORE_PIN_BUDGET" default:"0.25" placeholder:"PART" help:"Part of a namespace's values that may be pinned, 0 to 1."`
	HardPins     bool          `name:"allow-hard-pins" env:"DYN_KVSTORE_ALLOW_HARD_PINS" help:"Never break pins."`
	DrainTimeout time.Duration `name:"drain-timeout" env:"DYN_DRAIN_TIMEOUT" default:"10s" unit:"s" placeholder:"TIME" help:"How long answers that have begun may take after SIGTERM."`
}

// Run serves until it is told to stop.
func (c *kvstoreCommand) Run(to outlet, parsed *config.Parsed) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	options, capacity, err := c.Store.options()
	if err != nil {
		return err
	}
	log := logs.target("kvstore")
	options.Log = log
	host, port, err := splitHostPort("--listen", c.Store.Listen)
	if err != nil {
		return err
	}
	raiseFDLimit(c.Store.MaxConns+64, log)
	driver, err := memory.New(memory.Options{Capacity: capacity, Unchecked: c.Store.Unchecked})
	if err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	defer driver.Close() //nolint:errcheck // its memory goes with the process
	options.Driver = driver
	below, err := c.Below.open(context.Background())
	defer func() { err = errors.Join(err, below.close()) }()
	if err != nil {
		return err
	}
	options.Below = below.tiers
	events, err := c.Events.open(context.Background(), log)
	if err != nil {
		return err
	}
	defer events.close()
	options.Changed = events.changed()
	server, err := kvstore.New(options)
	if err != nil {
		return err
	}
	events.attach(server)
	listener, err := listen(host, port, "--listen")
	if err != nil {
		return err
	}
	side, err := c.Store.openHTTP(server, events.collectors(), log)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(to.out, "dynago %s stores KV values on redis://%s\n", versionName(), listener.Addr())
	for _, line := range append([]string{"memory   " + c.Store.Memory}, below.lines...) {
		fmt.Fprintf(to.out, "  %s\n", line)
	}
	if side != nil {
		fmt.Fprintf(to.out, "  http     http://%s/v1/kv/stats\n", side.listener.Addr())
	}
	if events != nil {
		fmt.Fprintf(to.out, "  %s\n", events.line())
	}
	for _, n := range options.Namespaces {
		if n.Token == "" && !loopback(listener.Addr()) {
			log.Warn("whoever reaches this address can read and replace cached values: give the namespace a token", "namespace", n.Name, "address", listener.Addr())
		}
	}
	select {
	case err := <-failed:
		return err
	case err := <-side.failure():
		return err
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Store.DrainTimeout)
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer side.close(ctx)
	return server.Shutdown(ctx)
}

// options reads the settings.
func (c *kvstoreSettings) options() (o kvstore.Options, capacity int64, err error) {
	o = kvstore.Options{PinBudget: c.PinBudget, HardPins: c.HardPins, MaxValues: c.MaxValues, MaxConns: c.MaxConns, Lease: c.Lease, Stall: c.Stall}
	if c.Lease == 0 {
		o.Lease = -1
	}
	if c.Stall == 0 {
		return o, 0, errors.New("--stall-timeout: 0: want more than 0")
	}
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{
		{"--memory", c.Memory, &capacity}, {"--max-value-size", c.MaxValue, &o.MaxValue}, {"--max-pending-size", c.MaxPending, &o.MaxPending},
	} {
		if *size.to, err = readSize(size.text); err != nil {
			return o, 0, fmt.Errorf("%s: %w", size.flag, err)
		}
	}
	for _, text := range c.Namespaces {
		n, err := readNamespace(text)
		if err != nil {
			return o, 0, fmt.Errorf("--namespace: %w", err)
		}
		o.Namespaces = append(o.Namespaces, n)
	}
	if o.Namespaces == nil {
		o.Namespaces = []kvstore.Namespace{{Name: "default"}}
	}
	return o, capacity, nil
}

// readNamespace reads NAME[,KEY=VALUE]. Errors do not show tokens.
func readNamespace(text string) (n kvstore.Namespace, err error) {
	fields := strings.Split(text, ",")
	n.Name = fields[0]
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		switch {
		case key == "quota":
			if n.Quota, err = readSize(value); err != nil {
				return n, fmt.Errorf("%s: quota: %w", n.Name, err)
			}
		case key == "full" && (value == "evict" || value == "deny"):
			n.Deny = value == "deny"
		case key == "full":
			return n, fmt.Errorf("%s: full=%q: want evict or deny", n.Name, value)
		case key == "token" && value != "":
			n.Token = value
		case key == "token-file":
			b, err := os.ReadFile(value)
			if err != nil {
				return n, fmt.Errorf("%s: token-file: %w", n.Name, err)
			}
			if n.Token = strings.TrimSpace(string(b)); n.Token == "" {
				return n, fmt.Errorf("%s: token-file: %s is empty", n.Name, value)
			}
		default:
			return n, fmt.Errorf("%s: %q: want quota=SIZE, full=evict, full=deny, token=TOKEN or token-file=PATH", n.Name, key)
		}
	}
	return n, nil
}

// readSize reads bytes: a number, with KiB, MiB, GiB or TiB behind it.
func readSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTiB")
	shift, known := map[string]int{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n < 1 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q: want a size such as 1073741824 or 1GiB", text)
	}
	return n << shift, nil
}

func splitHostPort(flag, text string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s: %q: want HOST:PORT such as 127.0.0.1:6379", flag, text)
	}
	return host, port, nil
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/meter"
	"github.com/dynago/dynago/router/remote"
	"github.com/dynago/dynago/router/thompson"
)

type policySettings struct {
	Name    string        `name:"router-policy" env:"DYN_ROUTER_POLICY,DYN_ROUTER_WORKER_SELECTION_POLICY" placeholder:"NAME|URL" help:"Let this pick workers instead: thompson learns, least-busy counts requests, http://… is asked, or what the policy file has by this name."`
	Prefill string        `name:"router-prefill-policy" env:"DYN_ROUTER_PREFILL_POLICY" placeholder:"NAME|URL" help:"The same for prefill workers."`
	Decode  string        `name:"router-decode-policy" env:"DYN_ROUTER_DECODE_POLICY" placeholder:"NAME|URL" help:"The same for decode workers."`
	File    string        `name:"router-policy-config" env:"DYN_ROUTER_POLICY_CONFIG" placeholder:"FILE" help:"Classes of requests that wait, and policies with their parameters, in YAML."`
	Timeout time.Duration `name:"router-policy-timeout" env:"DYN_ROUTER_POLICY_TIMEOUT" default:"5ms" unit:"ms" placeholder:"TIME" help:"How long a policy at an address may take; after that the mode kv decides."`
	State   string        `name:"router-policy-state" env:"DYN_ROUTER_POLICY_STATE" placeholder:"FILE" help:"Keep here what a policy learns, over restarts."`
}

// policies are what picks workers instead of the router's mode, and where they
// keep what they learn.
type policies struct {
	roles router.Roles // nil: the mode picks
	files []stateFile
	log   *slog.Logger
}

// keeper is a policy that has something to keep.
type keeper interface {
	Learned() bool // whether it has by now
	Save(w io.Writer) error
	Load(r io.Reader) error
}

type stateFile struct {
	path   string
	policy keeper
}

// apply puts the policies that the settings choose into a configuration. now is
// the time that they go by; nil is the real one.
func (s *policySettings) apply(c *router.Config, now func() time.Time) (*policies, error) {
	if s.Timeout <= 0 {
		return nil, fmt.Errorf("--router-policy-timeout: got %v, want more than 0", s.Timeout)
	}
	choice := router.Choice{Policy: s.Name, Prefill: s.Prefill, Decode: s.Decode}
	if s.File != "" {
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("--router-policy-config: %w", err)
		}
		if c.PolicyFile, err = router.ParsePolicyFile(text); err != nil {
			return nil, fmt.Errorf("--router-policy-config: %s: %w", s.File, err)
		}
		choice.File = c.PolicyFile.Selection
	}
	base := router.Recipe{Mode: c.Mode, Seed: c.Seed, Now: now, Logger: c.Logger}
	if c.Tuning != nil {
		base.Temperature = c.Tuning.Temperature
	}
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	p := &policies{log: c.Logger}
	if p.roles, err = registry.Choose(choice, base); err != nil {
		return nil, fmt.Errorf("router policy: %w", err)
	}
	if p.roles != nil {
		c.Policy = p.roles
	}
	if s.State != "" {
		err = p.keep(s.State)
	}
	return p, err
}

// registry knows the policies of this program.
func (s *policySettings) registry() (*router.Registry, error) {
	g := router.NewRegistry()
	err := errors.Join(
		g.Register("thompson", thompson.Construct),
		g.Register(router.RemoteType, remote.Construct(s.Timeout)),
	)
	return g, err
}

// keep finds the policies that have something to keep, and lets them have what
// was kept. That of workers which do whole requests has the file itself, others
// one beside it.
func (p *policies) keep(path string) error {
	if err := writable(path); err != nil {
		return fmt.Errorf("--router-policy-state: %w", err)
	}
	for role, policy := range p.roles {
		for part := range parts(policy) {
			k, ok := part.(keeper)
			if !ok {
				continue
			}
			f := stateFile{path, k}
			if role != engine.Aggregated {
				f.path += "." + string(role)
			}
			f.load(p.log)
			p.files = append(p.files, f)
			break // the file has room for one
		}
	}
	if len(p.files) == 0 {
		return errors.New("--router-policy-state: no policy that learns is chosen, want one, such as --router-policy thompson")
	}
	slices.SortFunc(p.files, func(a, b stateFile) int { return strings.Compare(a.path, b.path) })
	return nil
}

// parts yields a policy, and those that stand in for it.
func parts(p router.Policy) iter.Seq[router.Policy] {
	return func(yield func(router.Policy) bool) {
		for yield(p) {
			of, ok := p.(interface{ Fallback() router.Policy })
			if !ok {
				return
			}
			p = of.Fallback()
		}
	}
}

// saveEvery is how much of what was learned a crash may cost.
const saveEvery = time.Minute

// run saves what is learned every minute, until ctx ends.
func (p *policies) run(ctx context.Context) {
	if len(p.files) == 0 {
		return
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.save()
		}
	}
}

// close saves for the last time, and ends what goes on.
func (p *policies) close() {
	p.save()
	for _, policy := range p.roles {
		for part := range parts(policy) {
			c, ok := part.(io.Closer)
			if !ok {
				continue
			}
			if err := c.Close(); err != nil {
				p.log.Warn("policy did not close", "error", err)
			}
		}
	}
}

func (p *policies) save() {
	for _, f := range p.files {
		if !f.policy.Learned() {
			continue
		}
		if err := replaceFile(f.path, f.policy.Save); err != nil {
			p.log.Error("what the policy has learned was not saved", "file", f.path, "error", err)
		}
	}
}

// load lets a policy have what was kept. What it cannot read is put aside, and it
// begins anew.
func (f *stateFile) load(log *slog.Logger) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = f.policy.Load(file)
		file.Close() //nolint:errcheck // it was only read
	}
	if err == nil {
		log.Info("the policy goes on from what it has learned", "file", f.path)
		return
	}
	aside := f.path + ".unreadable"
	log.Warn("the policy begins anew, since what it has learned cannot be read", "file", f.path, "kept", aside, "error", err)
	if err := os.Rename(f.path, aside); err != nil {
		log.Warn("the file stays where it is until it is replaced", "file", f.path, "error", err)
	}
}

// replaceFile writes a file anew: whoever reads it, whenever the machine stops,
// sees the old one or the new one, whole.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name()) //nolint:errcheck // the first error is the one to tell
		}
	}()
	w := bufio.NewWriter(f)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writable returns why a file cannot be written at path, if it cannot.
func writable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a directory, a device or the like, want a file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// collectors tell of the policies that have something to tell about the workers of
// a fleet.
func (p *policies) collectors(f *fleet.Fleet) (list []prometheus.Collector) {
	for _, role := range slices.Sorted(maps.Keys(p.roles)) {
		label := cmp.Or(string(role), "aggregated")
		told := make(map[string]bool) // the page has room for one of a kind
		for part := range parts(p.roles[role]) {
			kind := fmt.Sprintf("%T", part)
			if told[kind] {
				continue
			}
			told[kind] = true
			switch policy := part.(type) {
			case interface{ Stats() thompson.Stats }:
				list = append(list, meter.Thompson(label, policy.Stats, f.Snapshot))
			case interface{ Stats() remote.Stats }:
				list = append(list, meter.Remote(label, policy.Stats))
			}
		}
	}
	return list
}

// byCost says whether workers are picked by what a request costs there: in mode kv,
// unless a policy picks.
func (s *routerSettings) byCost(p *policies) bool {
	return p.roles == nil && (s.LoadAware || router.Mode(s.Mode) == router.KV)
}

// describe names what picks workers.
func (s *routerSettings) describe() string {
	text := s.Mode
	if s.LoadAware {
		text = string(router.KV) + ", by load alone"
	}
	for _, p := range []struct{ role, name string }{
		{"policy", s.Policy.Name}, {"prefill policy", s.Policy.Prefill}, {"decode policy", s.Policy.Decode}, {"policy file", s.Policy.File},
	} {
		if p.name != "" {
			text += fmt.Sprintf(", %s %s", p.role, redacted(p.name))
		}
	}
	return text
}

// redacted hides the password of an address.
func redacted(name string) string {
	if u, err := url.Parse(name); err == nil {
		return u.Redacted()
	}
	return name
}

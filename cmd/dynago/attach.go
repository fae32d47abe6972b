package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/prompt"
)

type attachSettings struct {
	Engines []string `name:"engine" env:"DYN_ENGINE" sep:";" secret:"api_key,headers" placeholder:"KIND=URL[,KEY=VALUE...]" help:"Attach this server instead of mock engines: vllm, sglang, trtllm, llamacpp, openai, or auto to find out which, as in vllm=http://10.0.0.1:8000. Repeatable; several stand in one variable with semicolons between."`
}

// specs reads what is said of the engines, and checks it against all else.
func (s *attachSettings) specs(all *settings) ([]*attach.Spec, error) {
	var list []*attach.Spec
	seen := map[string]bool{}
	for _, text := range s.Engines {
		spec, err := attach.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("--engine: %w", err)
		}
		if seen[spec.URL] {
			return nil, fmt.Errorf("--engine: url: %s: is given twice", spec.URL)
		}
		seen[spec.URL] = true
		list = append(list, spec)
	}
	switch {
	case len(list) == 0:
		return nil, nil
	case all.Model.Name != "":
		return nil, errors.New("--model-name: with --engine a model has the name that its server gives it: want --model-alias for another one, or model=NAME in --engine to choose among several")
	case all.Workers.Churn > 0:
		return nil, errors.New("--mock-churn: want it without --engine, which attaches real engines")
	}
	return list, all.HTTP.apart(list)
}

// apart checks that no engine has the address where this server is to listen:
// most of them, and this one, want port 8000 unless told otherwise.
func (s *httpSettings) apart(specs []*attach.Spec) error {
	ports := map[string]int{"--http-port": s.Port}
	if s.AdminPort != nil {
		ports["--admin-port"] = *s.AdminPort
	}
	for _, spec := range specs {
		for _, flag := range []string{"--http-port", "--admin-port"} {
			if port, ok := ports[flag]; ok && port > 0 && s.here(spec.URL, port) {
				return fmt.Errorf("--engine: url: %s: is where this server is to listen itself: want another port for it, such as %s %d, or the engine's real one", spec.URL, flag, port%65535+1)
			}
		}
	}
	return nil
}

// here says whether an address is that of a port of ours.
func (s *httpSettings) here(address string, port int) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	theirs := u.Port()
	if theirs == "" {
		theirs = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if theirs != strconv.Itoa(port) {
		return false
	}
	host, ip := u.Hostname(), net.ParseIP(u.Hostname())
	local := strings.EqualFold(host, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
	ours := net.ParseIP(s.Host)
	anywhere := ours != nil && (ours.IsLoopback() || ours.IsUnspecified()) || strings.EqualFold(s.Host, "localhost")
	return host == s.Host || local && anywhere
}

// attach lets the engines join instead of mock ones. None of them need be there.
func (sys *system) attach(specs []*attach.Spec) error {
	for _, spec := range specs {
		if _, err := sys.join(spec); err != nil {
			return fmt.Errorf("--engine: %s: %w", spec.URL, err)
		}
	}
	return nil
}

func (sys *system) join(spec *attach.Spec) (*fleet.Worker, error) {
	e, err := attach.New(spec, attach.Config{
		ModelPath: sys.settings.Model.Path, Check: sys.served.check,
		Adapter: attach.Adapter{Log: sys.log.With("worker", spec.URL)},
	})
	if err != nil {
		return nil, err
	}
	w, err := sys.fleet.Add(fleet.Entry{Name: spec.URL, Engine: e})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return w, nil
}

// Attach lets one more engine join while the server runs.
func (sys *system) Attach(text string) (uint64, error) {
	if sys.served == nil {
		return 0, errors.New("this server was started with mock engines: want one that was started with --engine")
	}
	spec, err := attach.Parse(text)
	if err != nil {
		return 0, err
	}
	if err := sys.settings.HTTP.apart([]*attach.Spec{spec}); err != nil {
		return 0, err
	}
	w, err := sys.join(spec)
	if err != nil {
		return 0, err
	}
	sys.log.Info("worker was added", "worker", w.Name(), "id", w.ID())
	return w.ID(), nil
}

// Drain keeps new requests from a worker.
func (sys *system) Drain(id uint64) bool {
	w := sys.fleet.Worker(id)
	if w == nil {
		return false
	}
	sys.log.Info("worker is drained", "worker", w.Name(), "id", id)
	sys.fleet.Drain(id)
	return true
}

// Detach drains a worker, and removes it when nothing runs there any more, or when
// that takes longer than a drain may.
func (sys *system) Detach(id uint64) bool {
	w := sys.fleet.Worker(id)
	if w == nil || !sys.Drain(id) {
		return false
	}
	go func() {
		sys.idle(w, sys.settings.HTTP.DrainTimeout)
		if sys.fleet.Worker(id) == w { // not one that has come back since
			sys.fleet.Remove(id)
			sys.log.Info("worker was removed", "worker", w.Name(), "id", id)
		}
	}()
	return true
}

// idle waits until no request is booked on a worker, it has left, or time is up.
func (sys *system) idle(w *fleet.Worker, atMost time.Duration) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(atMost); time.Now().Before(end) && sys.fleet.Worker(w.ID()) == w; <-tick.C {
		busy := 0
		for _, l := range sys.router.Loads() {
			if l.Target.Worker == w.ID() {
				busy += l.Requests
			}
		}
		if busy == 0 {
			return
		}
	}
}

// served are the models that engines serve: their files, each read once.
type served struct {
	settings modelSettings
	parsers  prompt.Parsers
	template string
	log      *slog.Logger

	mu     sync.Mutex
	byPath map[string]*prompt.Model
	owner  string // the model that --model-path was read for
}

func newServed(s modelSettings, log *slog.Logger) (*served, error) {
	parsers, err := s.parsers()
	if err != nil {
		return nil, err
	}
	template, err := s.template()
	if err != nil {
		return nil, err
	}
	if s.Path != "" {
		if _, err := prompt.OpenSnapshot(s.Path); err != nil {
			return nil, fmt.Errorf("--model-path: %s: %w", s.Path, err)
		}
	}
	return &served{settings: s, parsers: parsers, template: template, log: log, byPath: map[string]*prompt.Model{}}, nil
}

// check says whether the model of a card can be served from here. It reads the
// files, so that no request has to wait for that.
func (m *served) check(card *engine.Card) error {
	if !card.Accept(engine.InputTokens) {
		return nil // the server has template and tokenizer
	}
	_, err := m.forCard(card)
	return err
}

// forCard returns the model of a card, with the limits of its engine. What could
// not be read is tried anew with the next call.
func (m *served) forCard(card *engine.Card) (*prompt.Model, error) {
	if len(card.Files) == 0 {
		return nil, fmt.Errorf("the files of model %s are not on this machine, or the server does not tell where: want --model-path PATH, or model_path=PATH in its --engine", card.Model)
	}
	path := card.Files[0].URI
	m.mu.Lock()
	defer m.mu.Unlock()
	if path == m.settings.Path {
		if m.owner != "" && m.owner != card.Model {
			return nil, fmt.Errorf("--model-path: %s: was read for model %s, and this engine serves %s: want model_path=PATH in the --engine of each", path, m.owner, card.Model)
		}
		m.owner = card.Model
	}
	model := m.byPath[path]
	if model == nil {
		begin := time.Now()
		snapshot, err := prompt.OpenSnapshot(path)
		if err != nil {
			return nil, fmt.Errorf("model %s: %s: %w", card.Model, path, err)
		}
		snapshot.ChatTemplate = m.template
		if model, err = snapshot.Load(m.parsers); err != nil {
			return nil, fmt.Errorf("model %s: %s: %w", card.Model, path, err)
		}
		m.settings.equip(model)
		m.settings.tell(m.log, card.Model, model, time.Since(begin))
		m.byPath[path] = model
	}
	return limited(model, card), nil
}

// patience is how long the start waits for engines to tell what they serve, for
// the line that says how to try it.
const patience = time.Second

// name returns the name of a model that is served, or will be.
func (sys *system) name() string {
	if sys.served == nil {
		return sys.files.name
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := sys.ready(ctx); err != nil {
		for _, w := range sys.fleet.Snapshot() {
			if s := w.Status(); s.State == engine.Loading {
				sys.log.Warn("worker is not up yet; it joins when it comes", "worker", w.Name(), "reason", s.Reason)
			}
		}
	}
	for _, m := range sys.Models() {
		if m.Ready {
			return m.ID
		}
	}
	return "MODEL"
}

// engines is one line about the engines that were attached.
func engines(specs []*attach.Spec) string {
	var list []string
	for _, spec := range specs {
		list = append(list, spec.String())
	}
	return strings.Join(list, ", ")
}

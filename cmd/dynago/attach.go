package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
)

type attachSettings struct {
	Engines     []string `name:"engine" env:"DYN_ENGINE" sep:";" secret:"api_key,headers" placeholder:"KIND=URL[,KEY=VALUE...]" help:"Attach this server instead of mock engines: vllm, sglang, trtllm, llamacpp, ollama, openai, or auto to find out which, as in vllm=http://10.0.0.1:8000. Repeatable; several stand in one variable with semicolons between."`
	WorkersFile string   `name:"workers-file" env:"DYN_WORKERS_FILE,DYN_FILE_KV" placeholder:"PATH" help:"Attach the servers that this YAML file lists, or every *.yaml of this folder, and follow it: a list of what may stand behind --engine, or of the same keys and values. It is read again when it changes."`
	TensorEcho  string   `name:"tensor-echo" env:"DYN_TENSOR_ECHO" placeholder:"NAME" help:"Serve a model of tensors by this name besides, which gives back what it is sent: clients of KServe can be tried with it."`
}

// specs reads what is said of the engines, and checks it against all else.
func (s *attachSettings) specs(all *settings) ([]*attach.Spec, error) {
	list, err := s.read()
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0 && all.source() == nil:
		return nil, nil
	case all.Model.Name != "":
		return nil, errors.New("--model-name: with --engine a model has the name that its server gives it: want --model-alias for another one, or model=NAME in --engine to choose among several")
	case all.Workers.Churn > 0:
		return nil, errors.New("--mock-churn: want it without --engine, which attaches real engines")
	}
	return list, all.HTTP.apart(list)
}

// read reads what is said of the engines.
func (s *attachSettings) read() (list []*attach.Spec, err error) {
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
	return list, nil
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

// patience is how long the start waits for engines to tell what they serve, for
// the line that says how to try it.
const patience = time.Second

// name returns the name of a model that is served, or will be.
func (sys *system) name() string {
	if sys.files != nil {
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
		if m.Ready && !tensorsAlone(m.Card) {
			return m.ID
		}
	}
	return "MODEL"
}

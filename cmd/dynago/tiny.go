package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
)

// The engines that are in this program.
const (
	demoTiny = "tiny"
	demoMock = "mock"
)

// How many workers a system has if nothing is said. Each that computes may keep a core
// busy, and two are enough for a router to have a choice; an imitation costs next to
// nothing.
const (
	tinyWorkers = 2
	mockWorkers = 4
)

// count returns how many workers of this process answer.
func (sys *system) count() int {
	switch n := sys.settings.Workers.Count; {
	case n != nil:
		return *n
	case sys.tiny != nil:
		return tinyWorkers
	}
	return mockWorkers
}

// imitation refuses what only an imitation can heed.
func (s *settings) imitation() error {
	w := &s.Workers
	var flags []string
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--mock-script", w.Script != ""},
		{"--mock-seed", w.Seed != 0},
		{"--mock-churn", w.Churn != 0},
		{"--engine-type", w.EngineType != nil},
		{"--speedup-ratio", w.SpeedupRatio != nil},
		{"--decode-speedup-ratio", w.DecodeSpeedupRatio != nil},
		{"--startup-time", w.StartupTime != nil},
		{"--bw-g1-g2", w.BandwidthG1G2 != nil},
		{"--bw-g2-g1", w.BandwidthG2G1 != nil},
		{"--bw-g2-g3", w.BandwidthG2G3 != nil},
		{"--bw-g3-g2", w.BandwidthG3G2 != nil},
		{"--bw-g4", w.BandwidthG4 != nil},
	} {
		if f.given {
			flags = append(flags, f.name)
		}
	}
	if len(flags) == 0 {
		return nil
	}
	return fmt.Errorf("%s: say how an engine is imitated, and this one computes: want --demo mock with it", strings.Join(flags, ", "))
}

// args returns the arguments of engines of the model, with what settings say. What only
// an imitation can heed is refused.
func (m *tinyModel) args(s *engineSettings) (mock.Args, error) {
	a, err := s.over(tiny.DefaultArgs(m.model))
	if err != nil {
		return a, err
	}
	d := mock.DefaultArgs()
	var members []string
	for _, of := range []struct {
		name  string
		given bool
	}{
		{"startup_time", a.StartupTime != d.StartupTime},
		{"speedup_ratio", a.SpeedupRatio != d.SpeedupRatio},
		{"decode_speedup_ratio", a.DecodeSpeedupRatio != d.DecodeSpeedupRatio},
		{"timing_model", a.TimingModel != d.TimingModel},
		{"prefill_ms", a.PrefillMS != d.PrefillMS},
		{"decode_ms", a.DecodeMS != d.DecodeMS},
		{"bootstrap_port", a.BootstrapPort != d.BootstrapPort},
		{"kv_transfer_bandwidth", a.KVTransferBandwidth != d.KVTransferBandwidth},
		{"bw_g1_g2", a.BandwidthG1G2 != d.BandwidthG1G2},
		{"bw_g2_g1", a.BandwidthG2G1 != d.BandwidthG2G1},
		{"bw_g2_g3", a.BandwidthG2G3 != d.BandwidthG2G3},
		{"bw_g3_g2", a.BandwidthG3G2 != d.BandwidthG3G2},
		{"bw_g4", a.BandwidthG4 != d.BandwidthG4},
		{"lat_g1_g2_ms", a.LatencyG1G2MS != d.LatencyG1G2MS},
		{"lat_g2_g1_ms", a.LatencyG2G1MS != d.LatencyG2G1MS},
		{"lat_g2_g3_ms", a.LatencyG2G3MS != d.LatencyG2G3MS},
		{"lat_g3_g2_ms", a.LatencyG3G2MS != d.LatencyG3G2MS},
		{"lat_g4_ms", a.LatencyG4MS != d.LatencyG4MS},
	} {
		if of.given {
			members = append(members, of.name)
		}
	}
	if len(members) > 0 {
		return a, fmt.Errorf("engine arguments: %s: say how an engine is imitated, and this one computes: want an engine that imitates (--demo mock, or worker --engine mock)", strings.Join(members, ", "))
	}
	return a, nil
}

// tinies returns how engines are made that compute. They find each other by their names.
func (sys *system) tinies(s *settings) (maker, error) {
	shared, err := s.Lower.open(sys.args, sys.tiny.model, sys.log)
	if err != nil {
		return nil, err
	}
	if shared != nil {
		sys.beside = shared
	}
	var inside insiders
	failures := &pullFailures{log: sys.log}
	return func(name string, args mock.Args) (engine.Engine, error) {
		lower := tiny.Lower{Store: shared}
		if s.Lower.Dir != "" {
			lower.Dir = filepath.Join(s.Lower.Dir, name)
		}
		e, err := sys.tiny.engine(tiny.Options{
			Args: args, ID: name, Lower: lower,
			Pull: mock.Pull{Address: func() string { return name }, Dial: inside.dial, Failed: failures.tell},
		})
		if err != nil {
			return nil, err
		}
		inside.add(name, e)
		return e, nil
	}, nil
}

// insiders are the engines of this process by their names, for those that come for
// blocks.
type insiders struct{ byName sync.Map }

func (i *insiders) add(name string, e engine.Puller) { i.byName.Store(name, e) }

func (i *insiders) dial(_ context.Context, name string) (engine.Puller, func(), error) {
	e, ok := i.byName.Load(name)
	if !ok {
		return nil, nil, errors.New("no engine of this process has this name")
	}
	return e.(engine.Puller), func() {}, nil
}

// describe says what is computed.
func (m *tinyModel) describe() string {
	c := m.model.Config()
	return fmt.Sprintf("%d layers of width %d, context %d", c.Layers, c.Width, c.Context)
}

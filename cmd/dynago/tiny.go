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

// tinies returns how engines are made that compute. They find each other by their names.
func (sys *system) tinies(s *settings) (maker, error) {
	shared, err := s.Lower.open(sys.args, sys.tiny.model)
	if err != nil {
		return nil, err
	}
	if shared != nil {
		sys.beside = shared
	}
	var inside insiders
	return func(name string, args mock.Args) (engine.Engine, error) {
		lower := tiny.Lower{Store: shared}
		if s.Lower.Dir != "" {
			lower.Dir = filepath.Join(s.Lower.Dir, name)
		}
		e, err := sys.tiny.engine(tiny.Options{
			Args: args, ID: name, Lower: lower,
			Pull: mock.Pull{Address: func() string { return name }, Dial: inside.dial},
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

package sglang_test

import (
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	"github.com/dynago/dynago/internal/fake/publish"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

const eos = 7

// attached is an engine that takes its server along when it closes.
type attached struct {
	*sglang.Engine
	fake  *fake.Server
	at    httpapi.Config
	close func()
}

func (a *attached) Close() error {
	a.close()
	return nil
}

// attach serves a fake and returns an engine over it.
func attach(t *testing.T, cfg fake.Config) *attached {
	t.Helper()
	if cfg.Mock.Model == "" {
		cfg.Mock.Model = "m"
	}
	if cfg.Mock.Args == (mock.Args{}) {
		cfg.Mock.Args = mock.DefaultArgs()
		cfg.Mock.Args.SpeedupRatio = 0
		cfg.Mock.Args.MaxModelLen = 4096
	}
	s, err := fake.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(s)
	config := sglang.Config{HTTP: httpapi.Config{URL: hs.URL}, Every: 20 * time.Millisecond}
	if cfg.Events.Page > 0 { // which are told of in groups, then
		config.BlockSize = uint32(cfg.Mock.Args.BlockSize)
	}
	e := open(t, config)
	a := &attached{Engine: e, fake: s, at: httpapi.Config{URL: hs.URL}, close: sync.OnceFunc(func() {
		e.Close()
		s.Close()
		hs.Close()
	})}
	t.Cleanup(a.close)
	return a
}

func open(t *testing.T, cfg sglang.Config) *sglang.Engine {
	t.Helper()
	e, err := sglang.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// eventful is a server that publishes KV events.
func eventful(c publish.Config, change ...func(*fake.Config)) fake.Config {
	c.Endpoint, c.Replay = "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
	f := fake.Config{LoRA: true, Adapters: []string{"a"}, Events: c}
	for _, change := range change {
		change(&f)
	}
	return f
}

// The contract of engines holds over every habit of the server.
func TestConformance(t *testing.T) {
	for name, habits := range map[string]fake.Config{
		"cumulative":  {},
		"incremental": {Incremental: true, Priority: true, LoRA: true},
		"old":         {OldNames: true, TrimStop: true, Retract: true, Priority: true, LowFirst: true},
		"trimmed":     {Incremental: true, TrimStop: true, Streaming: true},
		"late":        {Late: true, Priority: true, LoRA: true, Sessions: true, Metrics: true},

		"events":          eventful(publish.Config{}),
		"events of salts": eventful(publish.Config{Metadata: true, Topic: "kv"}),
		"old events":      eventful(publish.Config{Positional: true}, func(c *fake.Config) { c.OldNames = true }),
		"small pages":     eventful(publish.Config{Page: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			habits.Mock.EOS = []uint32{eos}
			subject := enginetest.Subject{
				New: func(t *testing.T) engine.Engine { return attach(t, habits) },
				Slow: func(t *testing.T) engine.Engine {
					slow := habits
					slow.Mock.Args = mock.DefaultArgs()
					slow.Mock.Args.MaxNumSeqs = 1
					slow.Mock.Args.TimingModel = "constant"
					slow.Mock.Args.PrefillMS, slow.Mock.Args.DecodeMS = 2, 3
					return attach(t, slow)
				},
				Restart: func(e engine.Engine) { e.(*attached).fake.Restart() },
				Drain:   func(e engine.Engine) { e.(*attached).fake.Drain() },
				Skips: []string{
					"11-cached-tokens", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart",
				},
			}
			if habits.Events.Endpoint != "" {
				subject.Skips, subject.Lose = nil, func(e engine.Engine, on bool) {
					f := publish.Faults{}
					if on {
						f.Lose = 1
					}
					e.(*attached).fake.Events().SetFaults(f)
				}
			}
			enginetest.Run(t, subject)
		})
	}
}

package vllm_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	"github.com/dynago/dynago/internal/fake/publish"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// eos ends a sequence for the model of these tests.
const eos = 2

// served is an engine with the server that it is attached to.
type served struct {
	*vllm.Engine
	server *fake.Server
	http   *httptest.Server
}

func (s *served) Close() error {
	err := s.Engine.Close()
	s.http.CloseClientConnections()
	s.http.Close()
	s.server.Close()
	return err
}

// args are those of an engine that takes no time.
func args() mock.Args {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.SpeedupRatio = 16, 4096, 0
	return a
}

// slowArgs are those of one that computes one request at a time, a token every two
// milliseconds.
func slowArgs() mock.Args {
	a := args()
	a.SpeedupRatio, a.MaxNumSeqs, a.TimingModel, a.DecodeMS, a.PrefillMS = 1, 1, "constant", 2, 1
	return a
}

func serve(t *testing.T, c fake.Config, change func(*vllm.Config)) *served {
	t.Helper()
	c.Mock.Model, c.Mock.EOS, c.Mock.Source, c.Mock.ContextLength = "m", []uint32{eos}, mock.SourceRandom, 8192
	server, err := fake.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	config := vllm.Config{URL: h.URL, Every: 10 * time.Millisecond, CachedTokens: c.PromptTokensDetails, EOS: []uint32{eos}}
	if change != nil {
		change(&config)
	}
	e, err := vllm.New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{e, server, h}
	t.Cleanup(func() { s.Close() })
	return s
}

// builds are the servers that the adapter is held to.
var builds = []struct {
	name string
	fake.Config
}{
	{"generate", fake.Config{PromptTokensDetails: true, Adapters: []string{"some"}}},
	{"completions", fake.Config{Version: "0.11.0", NoGenerate: true, PromptTokensDetails: true, Adapters: []string{"some"}}},
	{"no-docs", fake.Config{Version: "0.32.0", NoDocs: true}},
	{"stock", fake.Config{Version: "0.32.0", NoGenerate: true, NoDocs: true, PromptTokensDetails: true}},
	{"tokens-only", fake.Config{Version: "0.33.0", TokensOnly: true, Priority: true, Dev: true}},
	{"events", eventful(publish.Config{})},
	{"old events", eventful(publish.Config{Positional: true, ShortReplay: true, Unranked: true})},
	{"events of digests and groups", eventful(publish.Config{Bytes: true, Groups: true, Topic: "kv@host@m"})},
}

// eventful is a server that publishes KV events, and tells where.
func eventful(c publish.Config) fake.Config {
	c.Endpoint, c.Replay = "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
	return fake.Config{Dev: true, PromptTokensDetails: true, Adapters: []string{"a", "some"}, Events: c}
}

func TestConformance(t *testing.T) {
	noEvents := []string{"11-cached-tokens", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart"}
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			fresh := func(a mock.Args) func(t *testing.T) engine.Engine {
				return func(t *testing.T) engine.Engine {
					c := b.Config
					c.Mock.Args = a
					return serve(t, c, nil)
				}
			}
			subject := enginetest.Subject{
				New:     fresh(args()),
				Slow:    fresh(slowArgs()),
				Restart: func(e engine.Engine) { e.(*served).server.Restart() },
				Drain:   func(e engine.Engine) { e.(*served).server.Sleep() },
				Skips:   noEvents,
			}
			if b.Events.Endpoint != "" {
				subject.Skips, subject.Lose = nil, func(e engine.Engine, on bool) {
					f := publish.Faults{}
					if on {
						f.Lose = 1
					}
					e.(*served).server.Events().SetFaults(f)
				}
			}
			enginetest.Run(t, subject)
		})
	}
}

// ready waits for the card of a server that takes requests.
func (s *served) ready(t *testing.T) *engine.Card {
	t.Helper()
	return s.await(t, engine.Ready).Card
}

func (s *served) await(t *testing.T, state engine.State) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st, err := range s.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if st.State == state {
			return st
		}
	}
	t.Fatalf("the engine was not %s within 10 s", state)
	return engine.Status{}
}

// run returns the whole answer to a request.
func (s *served) run(t *testing.T, r *engine.Request) (ids []uint32, last engine.Delta, err error) {
	t.Helper()
	for d, failed := range s.Generate(t.Context(), r) {
		if failed != nil {
			return ids, last, failed
		}
		ids, last = append(ids, d.TokenIDs...), d
	}
	return ids, last, nil
}

func TestCards(t *testing.T) {
	two := args()
	two.DPSize = 2
	for _, tt := range []struct {
		name   string
		server fake.Config
		config func(*vllm.Config)
		check  func(c *engine.Card) bool
	}{
		{"what is told", fake.Config{}, nil, func(c *engine.Card) bool {
			return c.Model == "m" && c.Engine == "vllm 0.31.0" && c.ContextLength == 8192 && c.BlockSize == 16 && c.TotalBlocks == 4096 && c.Ranks() == 1 && c.Adapters == nil
		}},
		{"adapters are no models", fake.Config{LoRA: true, Adapters: []string{"a", "b"}}, nil, func(c *engine.Card) bool {
			return c.Model == "m" && slices.Equal(c.Adapters, []string{"a", "b"}) && c.Features.Has(engine.FeatureLoRA) &&
				slices.Equal(c.Controls, []string{engine.ControlLoadLoRA, engine.ControlUnloadLoRA})
		}},
		{"ranks", fake.Config{Mock: mock.Config{Args: two}}, nil, func(c *engine.Card) bool {
			return c.Ranks() == 2 && c.Features.Has(engine.FeatureDPRank)
		}},
		{"development mode", fake.Config{Dev: true, Priority: true}, nil, func(c *engine.Card) bool {
			return c.Features.Has(engine.FeaturePriority) && c.MaxSeqs == 256 &&
				slices.Equal(c.Controls, []string{
					engine.ControlReset, "reset_mm", "reset_encoder", engine.ControlSleep, engine.ControlWake, engine.ControlPause, engine.ControlResume,
				})
		}},
		{"budgets for thoughts", fake.Config{Dev: true, Reasoning: true}, nil, func(c *engine.Card) bool {
			return c.Features.Has(engine.FeatureThinkingBudget)
		}},
		{"no budgets for thoughts", fake.Config{Dev: true}, nil, func(c *engine.Card) bool { return !c.Features.Has(engine.FeatureThinkingBudget) }},
		{"first come, first served", fake.Config{Dev: true}, nil, func(c *engine.Card) bool { return !c.Features.Has(engine.FeaturePriority) }},
		{"events are told of", fake.Config{Dev: true, Events: publish.Config{Endpoint: "tcp://127.0.0.1:*"}}, nil, func(c *engine.Card) bool {
			return c.Features.Has(engine.FeatureEvents) && c.BlockSize == 16
		}},
		{"events are told of by a route of their own", fake.Config{Sources: true, Events: publish.Config{Endpoint: "tcp://127.0.0.1:*"}}, nil, func(c *engine.Card) bool {
			return c.Features.Has(engine.FeatureEvents)
		}},
		{"there are no events to tell of", fake.Config{Sources: true}, nil, func(c *engine.Card) bool {
			return !c.Features.Has(engine.FeatureEvents)
		}},
		{"events nobody tells of", fake.Config{Events: publish.Config{Endpoint: "tcp://127.0.0.1:*"}}, nil, func(c *engine.Card) bool {
			return !c.Features.Has(engine.FeatureEvents)
		}},
		{"what is declared", fake.Config{}, func(c *vllm.Config) {
			c.Priority, c.ThinkingBudget, c.DPStart, c.DPSize, c.BlockSize, c.TotalBlocks = true, true, 4, 2, 32, 7
		}, func(c *engine.Card) bool {
			return c.Features.Has(engine.FeaturePriority) && c.Features.Has(engine.FeatureThinkingBudget) && c.DPStart == 4 && c.Ranks() == 2 && c.BlockSize == 32 && c.TotalBlocks == 7
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.server.Mock.Args == (mock.Args{}) {
				tt.server.Mock.Args = args()
			}
			if c := serve(t, tt.server, tt.config).ready(t); !tt.check(c) {
				t.Errorf("card %+v", c)
			}
		})
	}
}

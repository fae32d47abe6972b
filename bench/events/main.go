// Command events measures what the loss of KV events costs: how wrong a router is
// about what imitated servers have cached while events are lost, engines are started
// anew, caches are emptied and replays are too short, and how soon it is right again.
//
// The servers publish over real sockets and are attached as any would be; each
// request is routed, asked, and compared with what its server says was cached. What is
// found is printed as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/fake/publish"
	fake "github.com/dynago/dynago/internal/fake/vllm"
	"github.com/dynago/dynago/router"
)

// scenario is something that goes wrong.
type scenario struct {
	name   string
	window int            // of replays, in messages; 0: as the server has it
	faults publish.Faults // all the time
	// at happens to the first server in the middle of the run, and recovery is
	// measured from it on; nil: from when faults end.
	at func(context.Context, *place) error
}

var scenarios = []scenario{
	{name: "nothing is lost"},
	{name: "0.1% of events lost", faults: publish.Faults{Lose: 1000}},
	{name: "1% of events lost", faults: publish.Faults{Lose: 100}},
	{name: "10% of events lost", faults: publish.Faults{Lose: 10}},
	{name: "10% lost, no replay", faults: publish.Faults{Lose: 10, Mute: true}},
	{name: "10% lost, replay of 4 messages", window: 4, faults: publish.Faults{Lose: 10}},
	{name: "restart in place", at: func(_ context.Context, p *place) error {
		p.servers[0].Restart()
		return nil
	}},
	{name: "cache reset", at: func(ctx context.Context, p *place) error {
		_, err := p.engines[0].Control(ctx, engine.ControlReset, nil)
		return err
	}},
}

// result is what a scenario came to.
type result struct {
	Name     string
	Requests int
	// Error is by how many tokens predictions were off, as a share of all tokens of
	// prompts; Wrong the share of requests that were sent for blocks that were not there.
	Error, Wrong float64
	Hits         float64 // share of all tokens that were cached
	// Converged is how long after the fault predictions were right again, for as many
	// requests in a row as there are conversations; in milliseconds.
	Converged float64
	// Unheard says that what was lost could not be had again.
	Unheard bool
}

const (
	servers  = 4
	block    = 16
	blocks   = 1500 // of each server; caches overflow
	sessions = 40
	// think is what an agent takes at least until its next request, and events have to
	// arrive.
	think = 5 * time.Millisecond
)

// place is a fleet of imitated servers, and its router.
type place struct {
	servers []*fake.Server
	engines []*vllm.Engine
	hosts   []*httptest.Server
	fleet   *fleet.Fleet
	router  *router.Router
}

func open(ctx context.Context, s *scenario) (p *place, err error) {
	p = &place{fleet: fleet.New(fleet.Config{})}
	if p.router, err = router.New(router.Config{Seed: 1}, p.fleet); err != nil {
		return nil, err
	}
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.SpeedupRatio = block, blocks, 0
	for i := range servers {
		server, err := fake.New(fake.Config{
			Mock: mock.Config{Model: "m", Args: args, Name: fmt.Sprint(i), ContextLength: 16000},
			Dev:  true, PromptTokensDetails: true,
			Events: publish.Config{Endpoint: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*", Window: s.window},
		})
		if err != nil {
			return nil, err
		}
		host := httptest.NewServer(server)
		e, err := vllm.New(vllm.Config{URL: host.URL, Every: 50 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		p.servers, p.engines, p.hosts = append(p.servers, server), append(p.engines, e), append(p.hosts, host)
		if _, err := p.fleet.Add(fleet.Entry{Name: host.URL, Engine: e, ID: uint64(i + 1)}); err != nil {
			return nil, err
		}
	}
	return p, p.await(ctx, func() bool {
		for i, w := range p.fleet.Snapshot() {
			if !w.Ready() || w.EventCounts().Opened == 0 || p.servers[i].Events().Listeners(0) == 0 {
				return false
			}
		}
		return true
	})
}

// await waits for a condition.
func (p *place) await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", ctx.Err())
		}
	}
	return nil
}

func (p *place) close() {
	p.fleet.Close() //nolint:errcheck // nothing is left to be said
	for i, h := range p.hosts {
		h.CloseClientConnections()
		h.Close()
		p.servers[i].Close() //nolint:errcheck // likewise
	}
}

// ask sends one prompt where the router wants it, and returns how many of its tokens
// were taken to be cached, and how many were.
func (p *place) ask(ctx context.Context, id string, prompt []uint32) (predicted, cached int, answer []uint32, err error) {
	b, err := p.router.Route(ctx, &router.Query{ID: id, Model: "m", Tokens: prompt})
	if err != nil {
		return 0, 0, nil, err
	}
	defer b.Release()
	r := &engine.Request{ID: id, Model: "m", TokenIDs: prompt, Stop: engine.Stop{MaxTokens: 20}}
	for d, err := range b.Worker().Engine().Generate(ctx, r) {
		if err != nil {
			return 0, 0, nil, err
		}
		answer = append(answer, d.TokenIDs...)
		b.Prefilled()
		if d.Usage != nil && d.Usage.Cached != nil {
			cached = *d.Usage.Cached
			b.Cached(cached)
		}
	}
	b.Completed()
	// The last block of a prompt is computed in any case.
	return min(b.Decision().CachedTokens, (len(prompt)-1)/block*block), cached, answer, nil
}

// run lets agents talk, one request after another, each when the events of the one
// before have had time to arrive.
func run(ctx context.Context, s *scenario, requests int) (result, error) {
	p, err := open(ctx, s)
	if err != nil {
		return result{}, err
	}
	defer p.close()
	for _, server := range p.servers {
		server.Events().SetFaults(s.faults)
	}
	random := rand.New(rand.NewPCG(1, 2))
	said := make([][]uint32, sessions)
	for i := range said {
		said[i] = words(random, uint32(i), 200+random.IntN(800))
	}
	out := result{Name: s.name, Requests: requests, Unheard: s.faults.Mute || s.window > 0}
	var off, tokens, hits, wrong, right int
	var since, good time.Time
	for n := range requests {
		if n == requests/2 {
			if s.at != nil {
				if err := s.at(ctx, p); err != nil {
					return out, err
				}
			} else {
				for _, server := range p.servers {
					server.Events().SetFaults(publish.Faults{})
				}
			}
			since = time.Now()
		}
		i := random.IntN(sessions)
		prompt := append(said[i], words(random, uint32(n), 5+random.IntN(60))...)
		began := time.Now()
		predicted, cached, answer, err := p.ask(ctx, fmt.Sprintf("r%d-1", n), prompt)
		if engine.KindOf(err) == engine.Unavailable || err != nil && s.at != nil {
			continue // its server is just being started anew
		}
		if err != nil {
			return out, err
		}
		if said[i] = append(prompt, answer...); len(said[i]) > 6000 {
			said[i] = said[i][:300]
		}
		difference := predicted - cached
		off += max(difference, -difference)
		tokens, hits = tokens+len(prompt), hits+cached
		if difference > block {
			wrong++
		}
		if difference == 0 {
			if right++; right == 1 {
				good = began
			}
		} else {
			right = 0
		}
		if right == sessions && out.Converged == 0 && !since.IsZero() {
			out.Converged = float64(max(0, good.Sub(since))) / float64(time.Millisecond)
		}
		if err := p.await(ctx, func() bool {
			for _, server := range p.servers {
				if !server.Events().Settled() {
					return false
				}
			}
			return true
		}); err != nil {
			return out, err
		}
		<-time.After(think)
	}
	out.Error, out.Hits = float64(off)/float64(tokens), float64(hits)/float64(tokens)
	out.Wrong = float64(wrong) / float64(requests)
	if right < sessions && out.Converged == 0 {
		out.Converged = -1
	}
	return out, nil
}

// words are tokens that nobody else has said.
func words(random *rand.Rand, of uint32, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = (of*7919 + uint32(random.IntN(1000))) % 30000
	}
	return ids
}

func main() {
	short := flag.Bool("short", false, "fewer requests")
	only := flag.String("only", "", "run the scenarios with this in their names")
	flag.Parse()
	requests := 4000
	if *short {
		requests = 400
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	all := []result{}
	for i := range scenarios {
		if !strings.Contains(scenarios[i].name, *only) {
			continue
		}
		r, err := run(ctx, &scenarios[i], requests)
		if err != nil {
			fmt.Fprintf(os.Stderr, "events: %s: %v\n", scenarios[i].name, err)
			os.Exit(1)
		}
		all = append(all, r)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

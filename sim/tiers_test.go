package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

// agents returns the requests of a few agents.
func agents(t testing.TB, leads int) []trace.Request {
	t.Helper()
	c := agenttrace.Default()
	c.Leads, c.Rate = leads, 0.2
	c.Full, c.Compacted, c.Tools, c.System = 60_000, 20_000, 8_000, 4_000
	var w []trace.Request
	for r, err := range c.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		w = append(w, r)
	}
	return w
}

// What is said of tiers that are not there means nothing.
func TestTiersOfNoSize(t *testing.T) {
	none := mock.DefaultArgs()
	none.NumGPUBlocks = 2200
	said := none
	said.BandwidthG1G2, said.BandwidthG4, said.LatencyG2G1MS, said.LoadBias, said.PinBudgetG2, said.ReadThrough = 1, 0, 5, 3, 0.9, false
	w := recorded(t, "synthetic", 300)
	var reports []string
	for _, args := range []mock.Args{none, said} {
		r, err := sim.Run(sim.Config{Workers: 3, Engine: args}, w)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, mustJSON(t, r))
	}
	if reports[0] != reports[1] {
		t.Error("they change the report")
	}
}

// computed returns how many tokens of prompts all workers have computed.
func computed(r *sim.Report) (tokens int) {
	for _, t := range r.Targets {
		tokens += t.Uncached
	}
	return tokens
}

// With more host memory no more is computed, and with all that is ever needed only
// what nobody has computed before.
func TestMoreHostMemory(t *testing.T) {
	for name, w := range map[string][]trace.Request{
		"agents":       agents(t, 6),
		"conversation": recorded(t, "conversation", 200),
		"synthetic":    recorded(t, "synthetic", 150),
	} {
		last := 0
		var all []int
		for _, blocks := range []int{0, 4_000, 200_000} {
			args := mock.DefaultArgs()
			args.NumGPUBlocks, args.HostBlocks, args.SpeedupRatio = 3200, blocks, 4
			args.BandwidthG1G2, args.BandwidthG2G1 = 50, 50
			r, err := sim.Run(sim.Config{Engine: args}, w)
			if err != nil {
				t.Fatal(err)
			}
			n := computed(r)
			if all = append(all, n); blocks > 0 && n > last {
				t.Errorf("%s: %d tokens are computed with %d blocks, and %d with fewer", name, n, blocks, last)
			}
			last = n
			if found := r.Caches.Tiers[kv.TierHost].HitTokens; blocks == 200_000 && found == 0 {
				t.Errorf("%s: nothing was found in %d blocks", name, blocks)
			}
		}
		args := mock.DefaultArgs()
		args.NumGPUBlocks, args.SpeedupRatio = 300_000, 4
		r, err := sim.Run(sim.Config{Engine: args}, w)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v tokens computed, %d with a device for all", name, all, computed(r))
		if least := computed(r); float64(last) > 1.02*float64(least) {
			t.Errorf("%s: %d tokens are computed with host memory for all, and %d with such a device", name, last, least)
		}
	}
}

// Workers that share a store load what another has computed, also after that one
// has crashed, and all who share it tell the router of it.
func TestStore(t *testing.T) {
	args := steps()
	args.NumGPUBlocks, args.HostBlocks, args.SharedBlocks, args.PrefillMS = 100, 100, 1000, 1000
	args.BandwidthG4 = 0
	first := ask(1, 0, 1000, 2)
	second := ask(2, 5*time.Second, 1000, 2)
	second.Prompt = slices.Concat(first.Prompt.Cut(800), text(99, 200))
	for name, change := range map[string]func(*sim.Simulation) error{
		"as it is": func(*sim.Simulation) error { return nil },
		"a crash":  func(s *sim.Simulation) error { return s.RestartWorker(0) },
		"gone":     func(s *sim.Simulation) error { return s.RemoveWorker(0) },
	} {
		var rows []router.Row
		config := sim.Config{
			Workers: 2, Engine: args, Router: router.Config{Mode: router.RoundRobin},
			Changes: []sim.Change{{At: 4 * time.Second, Do: change}},
		}
		config.Changes = append(config.Changes, sim.Change{At: 4500 * ms, Do: func(s *sim.Simulation) (err error) {
			rows, err = s.Router().Explain(t.Context(), &router.Query{Model: "sim", Tokens: second.Prompt.Append(nil)})
			return err
		}})
		r, records := run(t, config, []trace.Request{first, second})
		if got := records["r2"]; got.Cached != 800 || got.From[kv.TierShared] != 800 || r.Caches.Parked != 1 {
			t.Errorf("%s: %d tokens cached, from %v, %d parked, want 800 of the store", name, got.Cached, got.From, r.Caches.Parked)
		}
		if row := rows[len(rows)-1]; row.Disk != 50 || row.Device+row.Host != 0 {
			t.Errorf("%s: the router knows of %d blocks, %d and %d above, want the 50 of the store", name, row.Disk, row.Host, row.Device)
		}
	}
}

// What a client pins outlives a flood, and what it asks of its session ends with it.
func TestDirectives(t *testing.T) {
	args := steps()
	args.NumGPUBlocks, args.PinBudgetG1 = 100, 0.5
	pinned := ask(1, 0, 640, 2)
	pinned.Session, pinned.KV.Pins = "s", []kv.Pin{{UpTo: 640, TTL: time.Minute}}
	w := []trace.Request{pinned}
	for i := range 10 {
		w = append(w, ask(10+i, time.Duration(i+1)*time.Second, 800, 2))
	}
	again := ask(2, 20*time.Second, 700, 2)
	again.Session = "s"
	again.Prompt = slices.Concat(pinned.Prompt, text(98, 60))
	for _, tt := range []struct {
		name   string
		change func(*sim.Config, []trace.Request)
		want   int
	}{
		{"pinned", func(*sim.Config, []trace.Request) {}, 640},
		{"not pinned", func(_ *sim.Config, w []trace.Request) { w[0].KV.Pins = nil }, 0},
		{"expired", func(_ *sim.Config, w []trace.Request) { w[0].KV.Pins = []kv.Pin{{UpTo: 640, TTL: time.Second}} }, 0},
		{"session ended", func(_ *sim.Config, w []trace.Request) { w[0].KV.EvictSession = true }, 0},
		{"plain engines", func(c *sim.Config, _ []trace.Request) { c.PlainEngines = true }, 0},
	} {
		config, w := sim.Config{Engine: args}, append(slices.Clone(w), again)
		tt.change(&config, w)
		r, records := run(t, config, w)
		if got := records["r2"].Cached; got != tt.want {
			t.Errorf("%s: %d tokens are there after the flood, want %d", tt.name, got, tt.want)
		}
		if got := records["r1"].Pinned; tt.name == "pinned" && (got != 640 || r.Caches.Pins.Granted != 1 || r.Caches.Tiers[0].PinnedSeconds < 40*19) {
			t.Errorf("%d tokens were pinned, want 640: %+v", got, r.Caches)
		}
	}
}

// Thinking that later prompts leave out goes before everything else.
func TestThinkingGoesFirst(t *testing.T) {
	args := steps()
	args.NumGPUBlocks = 40
	thinks := ask(1, 0, 160, 160)
	other := ask(2, 10*time.Second, 320, 2)
	third := ask(3, 20*time.Second, 170, 2)
	third.Prompt = slices.Concat(thinks.Prompt, text(97, 10))
	for thinking, want := range map[int]uint64{0: 0, 100: 1} {
		thinks.Thinking = thinking
		r, records := run(t, sim.Config{Engine: args}, []trace.Request{thinks, other, third})
		if records["r3"].Cached != 160 {
			t.Errorf("%d tokens of the prompt are there, want 160", records["r3"].Cached)
		}
		if got := r.Caches.Tiers[0].Evictions[0]; got < want || want == 0 && got > 0 {
			t.Errorf("%d tokens of thinking: %d blocks went as ephemeral ones", thinking, got)
		}
	}
}

// The report names tiers, ways and reasons, and the table says what is not usual.
func TestReportOfTiers(t *testing.T) {
	args := steps()
	args.NumGPUBlocks, args.HostBlocks = 80, 400
	args.PinBudgetG1 = 0.5
	a, b, c := ask(1, 0, 1000, 2), ask(2, 2*time.Second, 1000, 2), ask(3, 4*time.Second, 1000, 2)
	a.Session, a.KV.Pins = "s", []kv.Pin{{UpTo: 160, TTL: time.Second}}
	c.Prompt = slices.Concat(a.Prompt, text(96, 10))
	args.PrefillMS = 1000
	r, records := run(t, sim.Config{Engine: args}, []trace.Request{a, b, c})
	host := records["r3"].From[kv.TierHost]
	if host == 0 {
		t.Fatalf("nothing was loaded: %+v", r.Caches)
	}
	var got struct {
		Caches struct {
			Tiers map[string]struct {
				Blocks    int            `json:"blocks"`
				Hits      int            `json:"hit_tokens"`
				Evictions map[string]int `json:"evictions"`
				Pinned    float64        `json:"pinned_block_seconds"`
			} `json:"tiers"`
			Ways map[string]struct {
				Blocks  int            `json:"blocks"`
				Skipped map[string]int `json:"skipped"`
			} `json:"ways"`
			Parked int            `json:"parked"`
			Wait   float64        `json:"load_wait_ms"`
			Pins   map[string]int `json:"pins"`
		} `json:"caches"`
	}
	if err := json.Unmarshal([]byte(mustJSON(t, r)), &got); err != nil {
		t.Fatal(err)
	}
	g := got.Caches
	device, below := g.Tiers["device"], g.Tiers["host_pinned"]
	if device.Blocks != 80 || below.Blocks != 400 || below.Hits != host || device.Evictions["plain"] == 0 || device.Pinned < 9.9 {
		t.Errorf("tiers %+v", g.Tiers)
	}
	if g.Ways["device_host_pinned"].Blocks < 124 || g.Ways["host_pinned_device"].Blocks != host/16 {
		t.Errorf("ways %+v", g.Ways)
	}
	if g.Parked != 1 || g.Wait <= 0 || g.Pins["granted"] != 1 {
		t.Errorf("%d parked for %v ms; pins %v", g.Parked, g.Wait, g.Pins)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"of the input device", fmt.Sprintf("host_pinned %.2f%%", 100*float64(host)/3010), "Loads 1 requests parked", "device_host_pinned", "Pins 1 granted, 0 partial, 0 denied"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, &out)
		}
	}
}

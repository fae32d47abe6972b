package router_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

func TestParseMode(t *testing.T) {
	for s, want := range map[string]router.Mode{
		"": router.KV, "kv": router.KV, "k-v": router.KV, "k_v": router.KV, "kv-router": router.KV, "kv_router": router.KV,
		"round-robin": router.RoundRobin, "round_robin": router.RoundRobin, "random": router.Random,
		"power-of-two": router.PowerOfTwo, "power_of_two_choices": router.PowerOfTwo, "power-of-two-choices": router.PowerOfTwo,
		"least_loaded": router.LeastLoaded, "direct": router.Direct,
	} {
		if got, err := router.ParseMode(s); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", s, got, err, want)
		}
	}
	if _, err := router.ParseMode("KV"); err == nil || !strings.Contains(err.Error(), `"KV": want one of kv, round-robin, random`) {
		t.Errorf("got %v", err)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*router.Config, *router.Tuning){
		"":                                       func(*router.Config, *router.Tuning) {},
		"router-mode":                            func(c *router.Config, _ *router.Tuning) { c.Mode = "best" },
		"router-min-initial-workers: got -1":     func(c *router.Config, _ *router.Tuning) { c.MinInitialWorkers = -1 },
		"router-kv-overlap-score-credit: got -1": func(_ *router.Config, t *router.Tuning) { t.OverlapScoreCredit = -1 },
		"router-kv-overlap-score-credit-decay: got NaN":    func(_ *router.Config, t *router.Tuning) { t.OverlapScoreCreditDecay = math.NaN() },
		"router-prefill-load-scale: got +Inf":              func(_ *router.Config, t *router.Tuning) { t.PrefillLoadScale = math.Inf(1) },
		"router-decode-active-request-weight: got -2":      func(_ *router.Config, t *router.Tuning) { t.DecodeActiveRequestWeight = -2 },
		"router-host-cache-hit-weight: got 1.5, want a nu": func(_ *router.Config, t *router.Tuning) { t.HostCacheHitWeight = 1.5 },
		"router-disk-cache-hit-weight: got 2":              func(_ *router.Config, t *router.Tuning) { t.DiskCacheHitWeight = 2 },
		"shared-cache-multiplier: got 3":                   func(_ *router.Config, t *router.Tuning) { t.SharedCacheMultiplier = 3 },
		"router-temperature: got -0.1":                     func(_ *router.Config, t *router.Tuning) { t.Temperature = -0.1 },
		"router-track-output-blocks: needs":                func(_ *router.Config, t *router.Tuning) { t.TrackOutputBlocks, t.TrackActiveBlocks = true, false },
		"router-predicted-ttl-secs: got -1":                func(_ *router.Config, t *router.Tuning) { t.PredictedTTL = -time.Second },
		"router-ttl-secs: got 0":                           func(_ *router.Config, t *router.Tuning) { t.TTL = 0 * time.Second },
	} {
		tuning := router.DefaultTuning()
		c := router.Config{Tuning: &tuning}
		change(&c, &tuning)
		_, err := router.New(c, fleet.New(fleet.Config{}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNewNeedsAnEmptyFleet(t *testing.T) {
	f := fleet.New(fleet.Config{})
	defer f.Close()
	if _, err := f.Add(fleet.Entry{Name: "early", Engine: &fake{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := router.New(router.Config{}, f); err == nil {
		t.Error("a router took a fleet whose events it has missed")
	}
}

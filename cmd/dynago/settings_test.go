package main

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/router"
)

// Each setting of the router, given as a flag or as a variable, changes what a
// router is made with; or it is among those that others look after; or it says
// that it has no effect, and is warned of.
func TestRouterSettingsMatter(t *testing.T) {
	// What to give besides the name, and before it.
	given := map[string][]string{
		"router-queue-threshold":                            {"2"},
		"router-queue-policy":                               {"wspt"},
		"router-queue-timeout":                              {"7"},
		"router-active-request-expiry-secs":                 {"7"},
		"router-prefill-load-model":                         {"polynomial"},
		"load-aware":                                        {"true"},
		"encoder-cuda-to-cpu-ratio":                         {"3"},
		"router-mode":                                       {"random"},
		"router-kv-overlap-score-credit":                    {"0.5"},
		"router-kv-overlap-score-credit-decay":              {"0.5"},
		"router-prefill-load-scale":                         {"0.5"},
		"router-kv-overlap-score-weight":                    {"0.5"},
		"router-decode-active-request-weight":               {"0.5"},
		"router-host-cache-hit-weight":                      {"0.5"},
		"router-disk-cache-hit-weight":                      {"0.5"},
		"shared-cache-multiplier":                           {"0.75"},
		"router-temperature":                                {"0.5"},
		"router-kv-events":                                  {"false"},
		"router-ttl-secs":                                   {"7"},
		"router-predicted-ttl-secs":                         {"7"},
		"router-track-prefill-tokens":                       {"false"},
		"router-track-active-blocks":                        {"false"},
		"router-track-output-blocks":                        {"true"},
		"router-assume-kv-reuse":                            {"false"},
		"router-min-initial-workers":                        {"2"},
		"router-seed":                                       {"7"},
		"router-session-affinity-ttl-secs":                  {"7"},
		"strict-sessions":                                   {"true"},
		"router-conditional-disagg":                         {"true"},
		"router-conditional-disagg-config":                  {`{"eff_isl_threshold":7}`, "--router-conditional-disagg"},
		"router-conditional-disagg-policy":                  {"prefill_load", "--router-conditional-disagg", "--router-queue-threshold=1"},
		"router-conditional-disagg-eff-isl-threshold":       {"7", "--router-conditional-disagg"},
		"router-conditional-disagg-eff-isl-ratio-threshold": {"0.5", "--router-conditional-disagg"},
		"router-conditional-disagg-prefill-busy-threshold":  {"7", "--router-conditional-disagg"},
		"router-conditional-disagg-decode-busy-threshold":   {"0.5", "--router-conditional-disagg"},
		"active-decode-blocks-threshold":                    {"0.5"},
		"active-prefill-tokens-threshold":                   {"7"},
		"active-prefill-tokens-threshold-frac":              {"0.5"},
	}
	elsewhere := map[string]string{
		"router-policy":                   "policies.txtar",
		"router-prefill-policy":           "policies.txtar",
		"router-decode-policy":            "policies.txtar",
		"router-policy-config":            "policies.txtar, TestQueueOverHTTP",
		"router-policy-timeout":           "TestPolicyAddress",
		"router-policy-state":             "TestPolicyState",
		"router-decision-log":             "TestQueueOverHTTP",
		"router-decision-log-rate":        "TestDecisionLog",
		"router-tracking-hash":            "TestTrackingKey",
		"router-tracking-key-file":        "TestTrackingKey",
		"router-tracking-key-id":          "TestTrackingKey",
		"migration-limit":                 "TestFaultSettings",
		"migration-max-seq-len":           "TestFaultSettings",
		"runtime-inhibited-duration-secs": "TestFaultSettings",
		"durable-kv-events":               "past.txtar",
		"router-peers":                    "TestSessionsOfTwoFrontends",
		"router-peers-key":                "TestSessionsOfTwoFrontends",
		"shared-cache-type":               "TestRouterFollowsKVStore",
		"shared-cache-events":             "TestRouterFollowsKVStore",
		"shared-cache-replay":             "TestRouterFollowsKVStore",
		"shared-cache-layout":             "TestRouterFollowsKVStore",
	}
	seen := 0
	for _, s := range parseRouter(t, nil).settings {
		if s.Group != "Router" || elsewhere[s.Name] != "" {
			continue
		}
		seen++
		if strings.HasPrefix(s.Help, "No effect") {
			continue // past.txtar
		}
		args := given[s.Name]
		if args == nil {
			t.Errorf("nothing is known of --%s", s.Name)
			continue
		}
		before := parseRouter(t, args[1:]).config
		if flag := parseRouter(t, append(args[1:], "--"+s.Name+"="+args[0])).config; reflect.DeepEqual(flag, before) {
			t.Errorf("--%s=%s changes nothing", s.Name, args[0])
		}
		for _, env := range s.Envs {
			t.Run(env, func(t *testing.T) {
				t.Setenv(env, args[0])
				if c := parseRouter(t, args[1:]).config; reflect.DeepEqual(c, before) {
					t.Errorf("%s=%s changes nothing", env, args[0])
				}
			})
		}
	}
	if seen < len(given) {
		t.Errorf("%d of %d settings are there", seen, len(given))
	}
}

// A block of prefill counts what is said, by the older name above all, and
// otherwise what the help tells.
func TestPrefillScale(t *testing.T) {
	scale := func(args ...string) float64 { return parseRouter(t, args).config.Tuning.PrefillLoadScale }
	usual, bound, alone := scale(), scale("--router-session-affinity-ttl-secs=60"), scale("--load-aware")
	if usual != router.DefaultTuning().PrefillLoadScale || bound != 1 || alone != bound {
		t.Errorf("%v, %v where sessions are bound, and %v with --load-aware", usual, bound, alone)
	}
	for _, s := range parseRouter(t, nil).settings {
		if told := fmt.Sprintf("otherwise %v, and %v where sessions are bound or with --load-aware", usual, alone); s.Name == "router-prefill-load-scale" && !strings.Contains(s.Help, told) {
			t.Errorf("the help is %q, without %q", s.Help, told)
		}
	}
	for _, tt := range []struct {
		args []string
		want float64
	}{
		{[]string{"--router-prefill-load-scale=3"}, 3},
		{[]string{"--router-prefill-load-scale=3", "--load-aware", "--router-session-affinity-ttl-secs=60"}, 3},
		{[]string{"--router-kv-overlap-score-weight=2"}, 2},
		{[]string{"--router-kv-overlap-score-weight=2", "--router-prefill-load-scale=3"}, 2},
		{[]string{"--router-kv-overlap-score-weight=0"}, 0},
	} {
		if got := scale(tt.args...); got != tt.want {
			t.Errorf("%s: %v, want %v", strings.Join(tt.args, " "), got, tt.want)
		}
	}
	if c := parseRouter(t, []string{"--router-kv-overlap-score-weight=0"}).config; c.Tuning.OverlapScoreCredit != 0 {
		t.Errorf("a weight of 0 leaves a credit of %v", c.Tuning.OverlapScoreCredit)
	}
}

type parsedRouter struct {
	settings []config.Setting
	config   router.Config
}

// parseRouter reads a command line of "dynago router".
func parseRouter(t *testing.T, args []string) parsedRouter {
	t.Helper()
	var cli struct {
		Router routerCommand `cmd:""`
	}
	parser, err := config.New(&cli, kong.Name("dynago"), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(append([]string{"router"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cli.Router.Router.config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.Logger = nil
	return parsedRouter{parsed.Settings(), c}
}

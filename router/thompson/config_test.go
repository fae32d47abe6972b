package thompson_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
)

func TestValidate(t *testing.T) {
	if c := thompson.Default(); c.Validate() != nil {
		t.Fatal(c.Validate())
	}
	for says, change := range map[string]func(*thompson.Config){
		"affinity: got -1, want a number from 0 up to 1e+06":               func(c *thompson.Config) { c.Affinity = -1 },
		"switch_pace: got NaN":                                             func(c *thompson.Config) { c.SwitchPace = math.NaN() },
		"queue_weight: got +Inf":                                           func(c *thompson.Config) { c.QueueWeight = math.Inf(1) },
		"sticky_floor: got 2, want a number from 0 up to 1":                func(c *thompson.Config) { c.StickyFloor = 2 },
		"forget: got 0, want a number above 0, and up to 1":                func(c *thompson.Config) { c.Forget = 0 },
		"ridge: got 0, want a number above 0, and up to":                   func(c *thompson.Config) { c.Ridge = 0 },
		"timeout_seconds: got -1":                                          func(c *thompson.Config) { c.Timeout = -time.Second },
		"most_reuse: got 0":                                                func(c *thompson.Config) { c.MostReuse = 0 },
		"min_temperature: got 3, want at most max_temperature, which is 2": func(c *thompson.Config) { c.MinTemperature = 3 },
	} {
		c := thompson.Default()
		change(&c)
		if _, err := thompson.New(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

// A policy file sets parameters by their names; what it does not mention has its
// default.
func TestConstruct(t *testing.T) {
	g := router.NewRegistry()
	if err := g.Register("thompson", thompson.Construct); err != nil {
		t.Fatal(err)
	}
	choose := func(parameters map[string]any) error {
		_, err := g.Choose(router.Choice{Policy: "mine", File: &router.Selection{
			Instances: []router.Instance{{Name: "mine", Type: "thompson", Parameters: parameters}},
		}}, router.Recipe{})
		return err
	}
	if err := choose(map[string]any{"affinity": 0.5, "timeout_seconds": 60, "most_reuse": 4, "literal": true}); err != nil {
		t.Error(err)
	}
	for says, parameters := range map[string]map[string]any{
		"stickiness":              {"stickiness": 1},
		"policy mine":             {"affinity": "much"},
		"timeout_seconds: got -5": {"timeout_seconds": -5},
		"smoothing: got 2":        {"smoothing": 2},
	} {
		if err := choose(parameters); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: got %v, want %s", parameters, err, says)
		}
	}
}

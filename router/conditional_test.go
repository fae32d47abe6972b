package router

import (
	"math"
	"strings"
	"testing"
)

func TestConditional(t *testing.T) {
	base := prospect{tokens: 4096, cached: 4096 - 2047, decodeBlocks: 50, totalBlocks: 100, prefillTokens: 1000, perPass: 1000}
	for name, c := range map[string]struct {
		policy ConditionalPolicy
		config func(*Conditional)
		change func(*prospect)
		want   bool
	}{
		"little is left":              {ByISL, nil, nil, true},
		"as much as the threshold":    {ByISL, nil, func(p *prospect) { p.cached-- }, false},
		"little, but most of it":      {ByISL, nil, func(p *prospect) { p.tokens, p.cached = 1000, 300 }, false},
		"just below the ratio":        {ByISL, nil, func(p *prospect) { p.tokens, p.cached = 1000, 301 }, true},
		"more cached than asked for":  {ByISL, nil, func(p *prospect) { p.cached = 9999 }, true},
		"load does not count":         {ByISL, func(c *Conditional) { c.PrefillBusy = new(0.0) }, func(p *prospect) { p.cached = 0 }, false},
		"prefill is free":             {ByLoad, func(c *Conditional) { c.PrefillBusy = new(1.0) }, nil, false},
		"prefill is busy":             {ByLoad, func(c *Conditional) { c.PrefillBusy = new(1.0) }, func(p *prospect) { p.prefillTokens++ }, true},
		"nobody knows how much it is": {ByLoad, func(c *Conditional) { c.PrefillBusy = new(0.0) }, func(p *prospect) { p.perPass = 0 }, false},
		"the prompt does not count":   {ByLoad, func(c *Conditional) { c.PrefillBusy = new(2.0) }, nil, false},
		"either: little is left":      {ByISLOrLoad, func(c *Conditional) { c.PrefillBusy = new(2.0) }, nil, true},
		"either: prefill is busy":     {ByISLOrLoad, func(c *Conditional) { c.PrefillBusy = new(0.5) }, func(p *prospect) { p.cached = 0 }, true},
		"either: neither":             {ByISLOrLoad, func(c *Conditional) { c.PrefillBusy = new(1.0) }, func(p *prospect) { p.cached = 0 }, false},
		"decode at its bound":         {ByISL, func(c *Conditional) { c.DecodeBusy = new(0.5) }, nil, true},
		"decode beyond it":            {ByISL, func(c *Conditional) { c.DecodeBusy = new(0.5) }, func(p *prospect) { p.decodeBlocks++ }, false},
		"decode without bound":        {ByISL, func(c *Conditional) { c.DecodeBusy = new(9.0) }, func(p *prospect) { p.totalBlocks, p.decodeBlocks = 0, 0 }, false},
		"a guard is no reason":        {ByISL, func(c *Conditional) { c.DecodeBusy = new(1.0) }, func(p *prospect) { p.cached = 0 }, false},
	} {
		config, p := DefaultConditional(), base
		config.Policy = c.policy
		if c.config != nil {
			c.config(&config)
		}
		if c.change != nil {
			c.change(&p)
		}
		if got := config.whole(p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConditionalMerge(t *testing.T) {
	c := DefaultConditional()
	if err := c.Merge([]byte(`{"policy":"isl_or_load","eff_isl_threshold":4096,"prefill_busy_threshold":1.2}`)); err != nil || c.Policy != ByISLOrLoad || c.ISL != 4096 || c.ISLRatio != 0.7 || *c.PrefillBusy != 1.2 || c.DecodeBusy != nil {
		t.Errorf("%+v, %v", c, err)
	}
	before := c
	if err := c.Merge([]byte(`{}`)); err != nil || c != before {
		t.Errorf("%+v, %v", c, err)
	}
	for in, want := range map[string]string{
		`[]`:                                "want a JSON object",
		`{`:                                 "want a JSON object",
		`{"polices":1}`:                     `unknown member "polices"`,
		`{"policy":"never"}`:                `policy: got "never"`,
		`{"policy":3}`:                      "policy: want another type",
		`{"eff_isl_threshold":-1}`:          "eff_isl_threshold: got -1",
		`{"eff_isl_threshold":1.5}`:         "eff_isl_threshold: want another type",
		`{"eff_isl_ratio_threshold":1.01}`:  "eff_isl_ratio_threshold: got 1.01",
		`{"prefill_busy_threshold":-0.5}`:   "prefill_busy_threshold: got -0.5",
		`{"decode_busy_threshold":-0.0001}`: "decode_busy_threshold: got -0.0001",
	} {
		c := DefaultConditional()
		if err := c.Merge([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	bad := DefaultConditional()
	bad.ISLRatio = math.NaN()
	if bad.Validate() == nil {
		t.Error("NaN is a ratio")
	}
}

// A policy that goes by load needs to know what a high one is.
func TestConditionalThreshold(t *testing.T) {
	for name, c := range map[string]struct {
		policy      ConditionalPolicy
		own, queues *float64
		want        *float64
		fails       bool
	}{
		"its own":             {ByLoad, new(1.5), new(3.0), new(1.5), false},
		"the queue's":         {ByISLOrLoad, nil, new(3.0), new(3.0), false},
		"none":                {ByLoad, nil, nil, nil, true},
		"none, either":        {ByISLOrLoad, nil, nil, nil, true},
		"none, and no matter": {ByISL, nil, nil, nil, false},
	} {
		config := DefaultConditional()
		config.Policy, config.PrefillBusy = c.policy, c.own
		got, err := config.with(c.queues)
		if c.fails {
			if err == nil || !strings.Contains(err.Error(), "router-queue-threshold") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || (got.PrefillBusy == nil) != (c.want == nil) || c.want != nil && *got.PrefillBusy != *c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var none *Conditional
	if got, err := none.with(new(1.0)); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzConditionalMerge(f *testing.F) {
	f.Add([]byte(`{"policy":"isl_or_load","eff_isl_threshold":4096,"prefill_busy_threshold":1.2}`))
	f.Add([]byte(`{"eff_isl_ratio_threshold":1e999}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := DefaultConditional()
		if c.Merge(in) != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		c.whole(prospect{tokens: 10, cached: 5, totalBlocks: 1, perPass: 1})
	})
}

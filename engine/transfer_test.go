package engine_test

import (
	"testing"

	"github.com/dynago/dynago/engine"
)

func TestHasTaint(t *testing.T) {
	c := &engine.Card{
		Taints:   []string{"gpu=h100", "dynamo.topology/zone=west"},
		Topology: map[string]string{"rack": "r1", "empty": ""},
	}
	for taint, want := range map[string]bool{
		"gpu=h100":                           true,
		"gpu=a100":                           false,
		engine.TopologyTaint("zone", "west"): true,
		engine.TopologyTaint("rack", "r1"):   true,
		engine.TopologyTaint("rack", "r2"):   false,
		engine.TopologyTaint("empty", ""):    true,
		engine.TopologyTaint("row", ""):      false,
		"dynamo.topology/rack":               false,
		"rack=r1":                            false,
		"":                                   false,
	} {
		if got := c.HasTaint(taint); got != want {
			t.Errorf("%q: %v", taint, got)
		}
	}
}

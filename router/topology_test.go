package router

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
)

func TestNearby(t *testing.T) {
	rack := map[string]string{"rack": "r1"}
	preferred := &engine.Card{
		Topology: rack,
		Disagg:   engine.Transfer{Domain: "rack", Enforcement: engine.TransferPreferred, PreferredWeight: new(0.25)},
	}
	required := &engine.Card{Topology: rack, Disagg: engine.Transfer{Domain: "rack", Enforcement: engine.TransferRequired}}
	change := func(c engine.Card, f func(*engine.Card)) *engine.Card { f(&c); return &c }
	for name, c := range map[string]struct {
		card *engine.Card
		pool []*engine.Card
		want near
		err  string
	}{
		"no domain":            {card: &engine.Card{Topology: rack}, want: near{}},
		"required":             {card: required, want: near{require: "dynamo.topology/rack=r1"}},
		"preferred":            {card: preferred, want: near{prefer: "dynamo.topology/rack=r1", weight: 0.25}},
		"preferred by 0":       {card: change(*preferred, func(c *engine.Card) { c.Disagg.PreferredWeight = new(float64) }), want: near{prefer: "dynamo.topology/rack=r1"}},
		"without weight":       {card: change(*preferred, func(c *engine.Card) { c.Disagg.PreferredWeight = nil }), err: "want a preferred weight"},
		"without enforcement":  {card: change(*preferred, func(c *engine.Card) { c.Disagg.Enforcement = "" }), err: "want required or preferred"},
		"another enforcement":  {card: change(*preferred, func(c *engine.Card) { c.Disagg.Enforcement = "maybe" }), err: `"maybe"`},
		"without topology":     {card: change(*required, func(c *engine.Card) { c.Topology = nil }), err: `within its "rack"`},
		"without its value":    {card: change(*required, func(c *engine.Card) { c.Topology = map[string]string{"rack": ""} }), err: `within its "rack"`},
		"gone, nobody insists": {pool: []*engine.Card{preferred, {}}, want: near{}},
		"gone, and the last":   {want: near{}},
		"gone, one insists":    {pool: []*engine.Card{preferred, required}, err: "has left"},
	} {
		got, err := nearby(c.card, c.pool)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v", name, got, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
}

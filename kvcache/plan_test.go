package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

func at[T any](v T) *T { return &v }

// annotated returns which of the first n blocks the plan asks something for.
func annotated(p kvcache.Plan, n int) (blocks []int) {
	for k := range n {
		if _, ok := p.Retention(k, true); ok {
			blocks = append(blocks, k)
		}
	}
	return blocks
}

// A block takes what its first token is given.
func TestRangesByFirstToken(t *testing.T) {
	for _, c := range []struct {
		start, end uint32
		want       []int
	}{
		{0, 17, []int{0, 1}},
		{0, 16, []int{0}},
		{0, 15, []int{0}},
		{0, 1, []int{0}},
		{8, 40, []int{1, 2}},
		{15, 16, nil},
		{15, 17, []int{1}},
		{16, 17, []int{1}},
		{17, 32, nil},
		{17, 33, []int{2}},
	} {
		d := kv.Directives{Ranges: []kv.Range{{Start: c.start, End: &c.end, Priority: 80}}}
		if got := annotated(kvcache.NewPlan(&d, 16, 100), 7); !slices.Equal(got, c.want) {
			t.Errorf("[%d,%d): blocks %v, want %v", c.start, c.end, got, c.want)
		}
	}
}

func TestPlan(t *testing.T) {
	type r = kvcache.Retention
	d := &kv.Directives{
		Priority:       at(int32(10)),
		Ranges:         []kv.Range{{Start: 0, End: at(uint32(32)), Priority: 100}, {Start: 48, Priority: 60, TTL: 45 * time.Second}},
		DecodePriority: at(uint8(1)),
		DecodeTTL:      time.Second,
	}
	p := kvcache.NewPlan(d, 16, 70) // the prompt ends within block 4
	for n, want := range []r{
		{Priority: 100},
		{Priority: 100},
		{Priority: 45, Floor: true},
		{Priority: 60, TTL: 45 * time.Second},
		{Priority: 60, TTL: 45 * time.Second},
		{Priority: 1, TTL: time.Second},
		{Priority: 1, TTL: time.Second},
	} {
		if got, ok := p.Retention(n, false); !ok || got != want {
			t.Errorf("block %d: %+v, want %+v", n, got, want)
		}
	}
	// A block that begins right behind the prompt is a generated one.
	if got, _ := kvcache.NewPlan(d, 16, 64).Retention(4, false); got != (r{Priority: 1, TTL: time.Second}) {
		t.Errorf("the first generated block: %+v", got)
	}
	for priority, want := range map[int32]uint8{0: 35, 5: 40, 65: 100, 1 << 30: 100, -5: 30, -35: 0, -99: 0, -1 << 31: 0} {
		p := kvcache.NewPlan(&kv.Directives{Priority: &priority}, 16, 100)
		if got, ok := p.Retention(0, true); !ok || got != (r{Priority: want}) {
			t.Errorf("priority %d: %+v, %v, want %d", priority, got, ok, want)
		}
	}
	for name, d := range map[string]*kv.Directives{"nothing": {}, "background": {Priority: at(int32(-100))}} {
		if got := annotated(kvcache.NewPlan(d, 16, 100), 10); got != nil {
			t.Errorf("%s: blocks %v", name, got)
		}
	}
}

func TestPlanOfPins(t *testing.T) {
	d := &kv.Directives{Pins: []kv.Pin{{UpTo: 40, TTL: time.Minute}, {UpTo: 1 << 30, TTL: time.Hour, Hard: true}, {UpTo: 16}}}
	var blocks []int
	var pins []kvcache.Pin
	kvcache.NewPlan(d, 16, 100).Pins(func(n int, pin kvcache.Pin) bool {
		blocks, pins = append(blocks, n), append(pins, pin)
		return true
	})
	if want := []int{2, 6, 1}; !slices.Equal(blocks, want) {
		t.Errorf("pins of %v blocks, want %v", blocks, want)
	}
	if want := []kvcache.Pin{{TTL: time.Minute}, {TTL: time.Hour, Hard: true}, {}}; !slices.Equal(pins, want) {
		t.Errorf("pins %+v, want %+v", pins, want)
	}
}

// TestMerging is the table of what becomes of a block that several requests want
// something for.
func TestMerging(t *testing.T) {
	type r = kvcache.Retention
	for _, c := range []struct {
		name string
		asks []r
		want kvcache.Class
	}{
		{"a range lowers", []r{{Priority: 80}, {Priority: 10}}, kvcache.Low},
		{"a range raises", []r{{Priority: 10}, {Priority: 80}}, kvcache.High},
		{"a range makes neutral", []r{{Priority: 80}, {Priority: 35}}, kvcache.Plain},
		{"a reader does not lower", []r{{Priority: 80}, {Priority: 10, Floor: true}}, kvcache.High},
		{"a reader raises", []r{{Priority: 10}, {Priority: 80, Floor: true}}, kvcache.High},
		{"a reader does not lower what nobody asked for", []r{{Priority: 10, Floor: true}}, kvcache.Plain},
		{"too much is the most", []r{{Priority: 200}}, kvcache.High},
	} {
		p := kvcache.New(2)
		refs := store(t, p, 1)
		for _, ask := range c.asks {
			p.Retain(refs[0], ask)
		}
		if got := p.Class(refs[0]); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

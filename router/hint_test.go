package router_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// A worker that takes hints is told who holds more of the prompt than it does, on
// whatever tier, of those of its own type; of equals the smaller target.
func TestHint(t *testing.T) {
	lends := func(kind, endpoint string) func(*engine.Card) {
		return func(c *engine.Card) {
			c.Hint = &engine.HintSource{WorkerType: kind, Endpoints: map[uint32]string{0: endpoint}}
		}
	}
	h := newHouse(t, router.Config{})
	h.join(1, card(lends("gpu", "tcp://one")))
	h.join(2, card(lends("gpu", "tcp://two")))
	h.join(3, card(lends("gpu", "tcp://three")))
	h.join(4, card(lends("other", "tcp://four")))
	h.join(5, card())
	h.join(6, card(lends("gpu", "")))
	prompt := count(0, 42) // ten blocks, and a half
	seq := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed))
	wants := func(what string, at uint64, endpoint string, blocks int) {
		t.Helper()
		got := h.router.Hint(prompt, kv.Namespace{}, kv.Target{Worker: at})
		switch {
		case endpoint == "" && got == nil:
		case endpoint == "" || got == nil || got.Endpoint != endpoint || !slices.Equal(got.Blocks, seq[:blocks]):
			t.Errorf("%s: the hint is %+v, want %d blocks of %s", what, got, blocks, endpoint)
		}
	}
	wants("nobody holds anything", 1, "", 0)
	h.caches(2, 1, kv.TierDevice, prompt[:16])
	h.caches(3, 1, kv.TierHost, prompt[:16])
	h.caches(4, 1, kv.TierDevice, prompt)
	h.caches(5, 1, kv.TierDevice, prompt)
	h.caches(6, 1, kv.TierDevice, prompt)
	wants("of equals the smaller", 1, "tcp://two", 4)
	wants("who holds as much", 2, "", 0)
	wants("who takes no hints", 5, "", 0)
	wants("who is not there", 9, "", 0)
	h.caches(3, 2, kv.TierHost, prompt[:32])
	wants("the one that holds most", 1, "tcp://three", 8)
	wants("more than its own", 2, "tcp://three", 8)
	if got := h.router.Hint(prompt, kv.Namespace{Salt: "s"}, kv.Target{Worker: 1}); got != nil {
		t.Errorf("another tenant's: %+v", got)
	}
}

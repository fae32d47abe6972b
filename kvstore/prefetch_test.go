package kvstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dynago/dynago/kvstore"
)

// What is read ahead is in memory when it is asked for, and counts as wasted when
// it leaves before; what is read, or pinned, does not go for it.
func TestPrefetch(t *testing.T) {
	now := &clock{now: time.Now()}
	h := home(t, 1<<20, 16<<20, kvstore.Options{Now: now.Now, PinBudget: 0.25})
	c, tenant := dial(t, h.address), (*kvstore.Tenant)(nil)
	pair := fmt.Sprintf(chunkKey, 1)
	c.do("SET", pair+"kv_bytes", value(0, 100_000))
	c.do("SET", pair+"metadata", "28 bytes")
	for i := range 30 {
		c.do("SET", fmt.Sprint("k", i), value(i, 100_000))
	}
	c.want([2]string{"KV.RETAIN k29 PIN 60000", ":1"})
	now.pass(time.Minute / 2)
	tenant = h.Tenant("", "")
	got := tenant.Prefetch(t.Context(), []string{pair + "kv_bytes", "k0", "k29", "none"})
	if want := (kvstore.Prefetched{Requested: 4, Already: 1, Loaded: 2, Missing: 1, Bytes: 200_008}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, key := range []string{pair + "kv_bytes", "k0", "k29"} {
		if got := h.tiers(key); got != "memory disk" {
			t.Errorf("%s lies in %q", key, got)
		}
	}
	hits := h.tier("memory").Hits
	if got := c.do("GET", "k0"); got != value(0, 100_000) || h.tier("memory").Hits != hits+1 {
		t.Errorf("after it was read ahead it comes from elsewhere: %.20q", got)
	}
	// It takes half of memory at the most, and nothing of what is pinned or leased.
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprint("k", i))
	}
	got = tenant.Prefetch(t.Context(), all)
	if got.Loaded == 0 || got.Bytes > 600_000 || got.Loaded+got.Failed+got.Already != 20 {
		t.Errorf("of 2 MB into 1 MiB: %+v", got)
	}
	for _, key := range []string{"k0", "k29"} {
		if got := h.tiers(key); got != "memory disk" {
			t.Errorf("%s, which is wanted, lies in %q", key, got)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := tenant.Prefetch(gone, []string{"k20"}); got.Failed != 1 || got.Loaded != 0 {
		t.Errorf("for nobody: %+v", got)
	}
	if h.Stats().PrefetchWasted != 0 {
		t.Errorf("%d are wasted", h.Stats().PrefetchWasted)
	}
	for i := range 30 {
		c.do("SET", fmt.Sprint("new", i), value(i, 100_000))
	}
	st := h.Stats()
	if st.PrefetchWasted == 0 || st.PrefetchMissing != 1 || st.PrefetchAlready < 2 || h.tier("disk").Prefetched < 3 || h.tier("disk").PrefetchFailed < 2 {
		t.Errorf("%+v", st)
	}
	if up := h.tier("disk").Up; up.Values < 3 || up.Bytes < 300_000 || up.Time <= 0 {
		t.Errorf("reads of the disk: %+v", up)
	}
	if down := h.tier("disk").Down; down.Values != 62 {
		t.Errorf("%d writes of the disk, want 62", down.Values)
	}
}

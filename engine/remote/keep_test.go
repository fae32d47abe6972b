package remote_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/kv"
)

// What a cache is to keep and to fetch goes over the wire, and what becomes of it
// comes back.
func TestKeeping(t *testing.T) {
	a := args()
	a.HostBlocks = 200
	e := serve(t, a, remote.ServerConfig{})
	var status engine.Status
	for st, err := range e.Card(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if status = st; st.Card != nil && st.State == engine.Ready {
			break
		}
	}
	for _, f := range []engine.Feature{engine.FeaturePins, engine.FeatureRetention, engine.FeaturePrefetch, engine.FeatureSessions} {
		if !status.Card.Features.Has(f) {
			t.Errorf("the card does not promise %s", f)
		}
	}
	size := int(status.Card.BlockSize)
	r := request(1)
	r.TokenIDs = make([]uint32, 4*size+1)
	for i := range r.TokenIDs {
		r.TokenIDs[i] = uint32(100 + i)
	}
	r.KV.Pins = []kv.Pin{{UpTo: uint32(2 * size), TTL: time.Hour}}
	var last engine.Delta
	for d, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		last = d
	}
	if p := last.Pinned; p == nil || p.Requested != 2 || p.Pinned != 2 || time.Until(p.Deadline) < 50*time.Minute {
		t.Errorf("the answer says %+v of its pins", p)
	}
	p, err := e.Pin(t.Context(), engine.PinRequest{TokenIDs: r.TokenIDs, TTL: time.Hour, Session: kv.SessionKey{ID: "s"}})
	if err != nil || p.Requested != 4 || p.Outcome() != "full" || p.Deadline.IsZero() {
		t.Errorf("pinned %+v, %v", p, err)
	}
	hashes := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, r.TokenIDs, size, kv.Namespace{}.Seed()))
	if n, err := e.Retain(t.Context(), engine.RetentionUpdate{Hashes: hashes, Priority: 80, TTL: time.Minute}); err != nil || n != 4 {
		t.Errorf("%d blocks retained, %v; want 4", n, err)
	}
	for _, q := range []engine.PrefetchRequest{
		{TokenIDs: r.TokenIDs, Target: kv.TierDevice, In: time.Hour},
		{Hashes: hashes, Target: kv.TierHost},
	} {
		s, err := e.Prefetch(t.Context(), q)
		if err != nil || s.ID == "" || s.Requested != 4 || s.Already != 4 {
			t.Errorf("prefetch %+v, %v", s, err)
		}
		if err := e.CancelPrefetch(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
		again, err := e.PrefetchState(t.Context(), s.ID)
		if err != nil || again.ID != s.ID || again.State != "cancelled" && again.State != "done" {
			t.Errorf("its state is %+v, %v", again, err)
		}
	}
	if _, err := e.PrefetchState(t.Context(), "pf_1_0_1"); engine.KindOf(err) != engine.NotFound {
		t.Errorf("a prefetch that is none: %v", err)
	}
	if _, err := e.Prefetch(t.Context(), engine.PrefetchRequest{Hashes: hashes, Target: kv.TierDisk}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("a prefetch to the disk: %v", err)
	}
}

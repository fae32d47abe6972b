package remote_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// What a cache is to keep and to fetch goes over the wire, and what becomes of it
// comes back.
func TestKeeping(t *testing.T) {
	a := args()
	a.HostBlocks = 200
	e := serve(t, a, remote.ServerConfig{})
	var now engine.Status
	for st, err := range e.Card(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if now = st; st.Card != nil && st.State == engine.Ready {
			break
		}
	}
	for _, f := range []engine.Feature{engine.FeaturePins, engine.FeatureRetention, engine.FeaturePrefetch, engine.FeatureSessions} {
		if !now.Card.Features.Has(f) {
			t.Errorf("the card does not promise %s", f)
		}
	}
	size := int(now.Card.BlockSize)
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

// What a client does not say is not read as the least of it: neither the priority of
// blocks nor the shortest of times.
func TestKeepingSaysNothingElse(t *testing.T) {
	m, err := mock.New(mock.Config{Model: "m", Args: args(), Source: mock.SourceRandom})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, address := listen(t, remote.ServerConfig{Engine: m})
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = workerpb.NewWorkerClient(conn).Control(t.Context(), &workerpb.ControlRequest{What: &workerpb.ControlRequest_Retain{
		Retain: &workerpb.Retain{SeqHashes: []uint64{1}, PinDeadlineUnixMs: 1 << 50},
	}})
	if status.Code(err) == codes.OK {
		t.Error("blocks were given a priority that nobody named")
	}
	e := &asked{Engine: m}
	_, address = listen(t, remote.ServerConfig{Engine: e})
	if _, err := dial(t, remote.Config{URL: address}).Pin(t.Context(), engine.PinRequest{TokenIDs: []uint32{1}, TTL: time.Microsecond}); err != nil || e.pin.TTL != time.Millisecond {
		t.Errorf("a pin of a microsecond arrived as one of %v, %v", e.pin.TTL, err)
	}
}

// asked notes what was to be pinned.
type asked struct {
	*mock.Engine
	pin engine.PinRequest
}

func (a *asked) Pin(_ context.Context, q engine.PinRequest) (engine.PinResult, error) {
	a.pin = q
	return engine.PinResult{}, nil
}

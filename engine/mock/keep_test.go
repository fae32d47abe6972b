package mock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// deep gives an engine tiers below its device.
func deep(device, host int) func(*mock.Args) {
	return func(a *mock.Args) {
		a.NumGPUBlocks, a.HostBlocks, a.LoadBias = device, host, 1e6
	}
}

func TestContractOnTiers(t *testing.T) {
	cfg := mock.Config{Encode: encodeBytes, EOS: []uint32{eos}, VocabSize: 1000, Seed: 7}
	few := deep(512, 64)
	enginetest.Run(t, enginetest.Subject{
		New: func(t *testing.T) engine.Engine {
			return open(t, cfg, deep(1024, 2048)) // no disk: what lies there outlives a restart
		},
		Slow:    func(t *testing.T) engine.Engine { return open(t, cfg, few, slow) },
		Restart: func(e engine.Engine) { e.(*mock.Engine).Restart() },
		Drain:   func(e engine.Engine) { e.(*mock.Engine).Drain() },
		Legs: func(t *testing.T) (prefill, decode engine.Engine) {
			role := func(r string) func(*mock.Args) { return func(a *mock.Args) { a.WorkerType = r } }
			return open(t, cfg, few, role("prefill")), open(t, cfg, few, role("decode"))
		},
		Skips:   []string{"26-loss"},
		Virtual: true,
	})
}

// last runs a request and returns its last delta.
func last(t testing.TB, e *mock.Engine, r *engine.Request) (delta engine.Delta) {
	t.Helper()
	for d, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		delta = d
	}
	return delta
}

func asking(from uint32, prompt int, change ...func(*kv.Directives)) *engine.Request {
	r := &engine.Request{TokenIDs: ids(from, prompt), Stop: engine.Stop{MaxTokens: 1}}
	for _, f := range change {
		f(&r.KV)
	}
	return r
}

// What lay on the disk is there after a restart, and is told again.
func TestDiskOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{Source: mock.SourceRandom}, deep(40, 0), func(a *mock.Args) { a.DiskBlocks = 400 })
		last(t, e, asking(0, 160))
		time.Sleep(time.Second)
		e.Restart()
		stored := 0
		for b, err := range e.Events(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range b.Events {
				if ev.Tier != kv.TierDisk {
					t.Errorf("%s on %s", ev.Kind, ev.Tier)
				}
				stored += len(ev.Blocks)
			}
			if b.Snapshot == kv.SnapshotEnd || b.Last > 0 {
				break
			}
		}
		if stored != 10 {
			t.Errorf("%d blocks are told after the restart, want 10", stored)
		}
		if d := last(t, e, asking(0, 161)); *d.Usage.Cached != 160 {
			t.Errorf("%d tokens cached, want 160", *d.Usage.Cached)
		}
		if !e.Forget() {
			t.Error("an idle engine keeps its cache")
		}
		if d := last(t, e, asking(0, 161)); *d.Usage.Cached != 0 {
			t.Errorf("%d tokens cached after all was forgotten", *d.Usage.Cached)
		}
	})
}

// What is prefetched is on the device when the request comes, and a prefetch is
// known by its name as long as the engine lives.
func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{Source: mock.SourceRandom}, deep(40, 400), func(a *mock.Args) { a.SpeedupRatio = 1 })
		last(t, e, asking(0, 48))
		last(t, e, asking(1000, 630))
		p, err := e.Prefetch(t.Context(), engine.PrefetchRequest{TokenIDs: ids(0, 48), In: time.Minute})
		if err != nil || p.Requested != 3 || p.Already+p.Scheduled != 3 || p.Scheduled == 0 || p.State != "running" {
			t.Fatalf("%+v, %v", p, err)
		}
		time.Sleep(time.Minute)
		if p, err = e.PrefetchState(t.Context(), p.ID); err != nil || p.State != "done" || p.Loaded < 1 {
			t.Errorf("after its deadline %+v, %v", p, err)
		}
		before := e.CacheStats()[0].Parked
		if d := last(t, e, asking(0, 49)); *d.Usage.Cached != 48 {
			t.Errorf("%d tokens cached, want 48", *d.Usage.Cached)
		}
		if after := e.CacheStats()[0].Parked; after != before {
			t.Error("the request had to load what was prefetched")
		}
		q, err := e.Prefetch(t.Context(), engine.PrefetchRequest{TokenIDs: ids(1000, 600), In: time.Hour})
		if err != nil || q.State != "running" {
			t.Fatalf("%+v, %v", q, err)
		}
		if err := e.CancelPrefetch(t.Context(), q.ID); err != nil {
			t.Error(err)
		}
		if q, err = e.PrefetchState(t.Context(), q.ID); err != nil || q.State != "cancelled" {
			t.Errorf("cancelled: %+v, %v", q, err)
		}
		e.Restart()
		for _, id := range []string{q.ID, "pf_", "", "pf_1_9_1"} {
			if _, err := e.PrefetchState(t.Context(), id); engine.KindOf(err) != engine.NotFound {
				t.Errorf("state of %q: %v, want not found", id, err)
			}
		}
		if _, err := e.Prefetch(t.Context(), engine.PrefetchRequest{Target: kv.TierDisk}); engine.KindOf(err) != engine.InvalidArgument {
			t.Errorf("prefetch to the disk: %v", err)
		}
	})
}

// A session may be closed on an engine that takes no requests any more.
func TestControlsWhileDraining(t *testing.T) {
	e := open(t, mock.Config{Source: mock.SourceRandom})
	key := kv.SessionKey{ID: "s"}
	last(t, e, asking(0, 48, func(d *kv.Directives) { d.Session.ID = "s" }))
	e.Drain()
	if known, err := e.CloseSession(t.Context(), key); err != nil || !known {
		t.Errorf("known %v, %v", known, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CloseSession(t.Context(), key); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("on a closed engine: %v", err)
	}
}

// What an engine is told to forget is not cached any more, and its events say so before
// they tell of anything that it has cached since.
func TestReset(t *testing.T) {
	e := open(t, mock.Config{Source: mock.SourceRandom}, slow)
	reset := func() error {
		_, err := e.Control(t.Context(), engine.ControlReset, nil)
		return err
	}
	long := asking(1000, 10)
	long.Stop.MaxTokens = 100
	for _, err := range e.Generate(t.Context(), long) {
		if err != nil {
			t.Fatal(err)
		}
		if err := reset(); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("while a request runs: %v", err)
		}
		break
	}
	first, again := last(t, e, asking(0, 48)), last(t, e, asking(0, 48))
	if *first.Usage.Cached != 0 || *again.Usage.Cached != 32 {
		t.Fatalf("%d, %d tokens were cached", *first.Usage.Cached, *again.Usage.Cached)
	}
	if err := reset(); err != nil {
		t.Fatal(err)
	}
	if after := last(t, e, asking(0, 48)); *after.Usage.Cached != 0 {
		t.Errorf("%d tokens are cached after a reset", *after.Usage.Cached)
	}
	stored, _ := e.Cache(0)
	now := cacheView{}
	if err := now.apply(stored); err != nil || len(now) != 3 {
		t.Errorf("%d blocks are there now, %v", len(now), err)
	}
	if _, err := e.Control(t.Context(), "dance", nil); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("an unknown control: %v", err)
	}
	e.Drain()
	if err := reset(); err != nil {
		t.Errorf("while draining: %v", err)
	}
	e.Close()
	if err := reset(); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("of a closed engine: %v", err)
	}
}

// What is asked of an engine without a request goes on by itself, and is told.
func TestControlsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{Source: mock.SourceRandom}, deep(40, 400), func(a *mock.Args) {
			a.SpeedupRatio, a.WritePolicy = 1, "none"
		})
		last(t, e, asking(0, 48))
		ctx, cancel := context.WithCancel(t.Context())
		var written atomic.Int64
		var reading sync.WaitGroup
		reading.Go(func() {
			for b, err := range e.Events(ctx, nil) {
				if err != nil {
					t.Error(err)
				}
				for _, ev := range b.Events {
					if ev.Tier == kv.TierHost {
						written.Add(int64(len(ev.Blocks)))
					}
				}
			}
		})
		time.Sleep(time.Second)
		if n := written.Load(); n != 0 {
			t.Errorf("%d blocks were written that nobody wanted written", n)
		}
		if p, err := e.Pin(ctx, engine.PinRequest{TokenIDs: ids(0, 48), TTL: time.Hour}); err != nil || p.Outcome() != "full" {
			t.Errorf("%+v, %v", p, err)
		}
		time.Sleep(time.Second)
		if n := written.Load(); n != 3 {
			t.Errorf("%d blocks of what was pinned are on the host, want 3", n)
		}
		cancel()
		reading.Wait()
	})
}

// A session that says when it will be back finds its blocks on the device then.
func TestNextIn(t *testing.T) {
	for _, says := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := open(t, mock.Config{Source: mock.SourceRandom}, deep(40, 400), func(a *mock.Args) { a.SpeedupRatio = 1 })
			last(t, e, asking(0, 49, func(d *kv.Directives) {
				if says {
					d.NextIn = time.Minute
				}
			}))
			last(t, e, asking(1000, 630))
			time.Sleep(time.Minute)
			before := e.CacheStats()[0]
			d := last(t, e, asking(0, 49))
			if *d.Usage.Cached != 48 {
				t.Errorf("%d tokens cached, want 48", *d.Usage.Cached)
			}
			if after := e.CacheStats()[0]; (after.Parked == before.Parked) != says {
				t.Errorf("said so: %v, and %d requests were parked", says, after.Parked-before.Parked)
			}
		})
	}
}

// A pinned prefix is still there after ten times the cache, one that is not is gone;
// and it is let go by a TTL of 0 and by the end of its session.
func TestPinsLast(t *testing.T) {
	key := kv.SessionKey{Model: "demo", ID: "s"}
	pin := func(d *kv.Directives) { d.Pins = []kv.Pin{{UpTo: 64, TTL: time.Hour}} }
	ofSession := func(d *kv.Directives) { pin(d); d.Session.ID = "s" }
	for _, tt := range []struct {
		name   string
		first  func(*kv.Directives)
		before func(context.Context, *mock.Engine) error // the flood
		stays  bool
	}{
		{"not pinned", func(*kv.Directives) {}, nil, false},
		{"pinned", pin, nil, true},
		{"pinned by itself", func(*kv.Directives) {}, func(ctx context.Context, e *mock.Engine) error {
			p, err := e.Pin(ctx, engine.PinRequest{TokenIDs: ids(0, 64), TTL: time.Hour})
			if err == nil && (p.Outcome() != "full" || p.Deadline.IsZero()) {
				t.Errorf("pinned as %+v", p)
			}
			return err
		}, true},
		{"let go", pin, func(ctx context.Context, e *mock.Engine) error {
			_, err := e.Pin(ctx, engine.PinRequest{TokenIDs: ids(0, 64)})
			return err
		}, false},
		{"of a session", ofSession, nil, true},
		{"of one that was closed", ofSession, func(ctx context.Context, e *mock.Engine) error {
			known, err := e.CloseSession(ctx, key)
			if !known {
				t.Error("the session is not known")
			}
			return err
		}, false},
		{"of one whose last request has come", ofSession, func(ctx context.Context, e *mock.Engine) (err error) {
			for _, fault := range e.Generate(ctx, asking(50_000, 8, func(d *kv.Directives) { d.Session.ID, d.EvictSession = "s", true })) {
				err = errors.Join(err, fault)
			}
			return err
		}, false},
		{"expired", pin, func(context.Context, *mock.Engine) error { time.Sleep(2 * time.Hour); return nil }, false},
		{"worth more", func(*kv.Directives) {}, func(ctx context.Context, e *mock.Engine) error {
			hashes := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, ids(0, 64), 16, kv.Namespace{}.Seed()))
			n, err := e.Retain(ctx, engine.RetentionUpdate{Hashes: hashes, Priority: 90})
			if n != 4 {
				t.Errorf("%d blocks retained, want 4", n)
			}
			return err
		}, true},
		{"a range", func(d *kv.Directives) { d.Ranges = []kv.Range{{Priority: 100}} }, nil, true},
		{"a range that has expired", func(d *kv.Directives) { d.Ranges = []kv.Range{{Priority: 100, TTL: time.Minute}} }, func(context.Context, *mock.Engine) error {
			time.Sleep(time.Hour)
			return nil
		}, false},
		{"worth less", func(d *kv.Directives) { d.Ranges = []kv.Range{{Priority: 1}} }, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, mock.Config{Source: mock.SourceRandom}, deep(40, 80), func(a *mock.Args) { a.SpeedupRatio = 1 })
				d := last(t, e, asking(0, 65, tt.first))
				if asked := asking(0, 65, tt.first).KV.Pins; (d.Pinned != nil) != (asked != nil) || asked != nil && d.Pinned.Outcome() != "full" {
					t.Errorf("the answer says %+v of its pins", d.Pinned)
				}
				time.Sleep(time.Second) // it is written down
				if tt.before != nil {
					if err := tt.before(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				for i := range uint32(20) {
					last(t, e, asking(10_000*(i+1), 600))
					time.Sleep(time.Second)
				}
				d = last(t, e, asking(0, 65))
				if stays := *d.Usage.Cached == 64; stays != tt.stays || !stays && *d.Usage.Cached != 0 {
					t.Errorf("%d tokens are left, want them to stay: %v", *d.Usage.Cached, tt.stays)
				}
			})
		})
	}
}

// Engines that share a store load from each other, and tell their readers what
// others have put there.
func TestEnginesShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mock.DefaultArgs()
		a.BlockSize, a.NumGPUBlocks, a.HostBlocks, a.SharedBlocks, a.LoadBias = 16, 64, 64, 256, 1e6
		shared := mock.NewShared(a)
		one, two := open(t, mock.Config{Args: a, Source: mock.SourceRandom, Shared: shared}), open(t, mock.Config{Args: a, Source: mock.SourceRandom, Shared: shared})
		ctx, cancel := context.WithCancel(t.Context())
		var told sync.Map
		var reading sync.WaitGroup
		reading.Go(func() {
			for b, err := range two.Events(ctx, nil) {
				if err != nil {
					t.Error(err)
				}
				for _, e := range b.Events {
					for _, block := range e.Blocks {
						told.Store([2]uint64{uint64(e.Tier), uint64(block.Engine)}, e.Kind == kv.Stored)
					}
				}
			}
		})
		last(t, one, asking(0, 160))
		time.Sleep(time.Second)
		synctest.Wait()
		for _, h := range kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, ids(0, 160), 16, kv.Namespace{}.Seed())) {
			if there, _ := told.Load([2]uint64{uint64(kv.TierShared), uint64(h)}); there != true {
				t.Errorf("the second engine did not tell of block %x", h)
			}
		}
		if d := last(t, two, asking(0, 161)); *d.Usage.Cached != 160 {
			t.Errorf("the second engine found %d tokens, want 160", *d.Usage.Cached)
		}
		if hits := two.CacheStats()[0].Tiers[kv.TierShared].HitTokens; hits != 160 {
			t.Errorf("%d of them were in the store", hits)
		}
		one.Restart()
		if d := last(t, one, asking(0, 161)); *d.Usage.Cached != 160 {
			t.Errorf("after a restart the first engine found %d tokens, want 160", *d.Usage.Cached)
		}
		if err := two.Close(); err != nil {
			t.Error(err)
		}
		if used := one.CacheStats()[0].Tiers[kv.TierShared].Used; used != 0 {
			t.Errorf("%d blocks of the store are held for an engine that was closed", used)
		}
		cancel()
		reading.Wait()
	})
}

// Many engines that share a store, restarted and asked at random: answers are what
// they are without any cache.
func TestSharedStoreUnderLoad(t *testing.T) {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.HostBlocks, a.SharedBlocks, a.SpeedupRatio = 4, 64, 40, 80, 0
	plain := a
	plain.HostBlocks, plain.SharedBlocks = 0, 0
	shared := mock.NewShared(a)
	reference := open(t, mock.Config{Args: plain, Source: mock.SourceRandom, Seed: 5})
	var engines []*mock.Engine
	for range 3 {
		engines = append(engines, open(t, mock.Config{Args: a, Source: mock.SourceRandom, Seed: 5, Shared: shared}))
	}
	request := func(i int) *engine.Request {
		r := asking(uint32(i%5)*1000, 20+i%40, func(d *kv.Directives) {
			d.Session.ID = []string{"", "a", "b"}[i%3]
			d.Session.Ephemeral = i%7 == 0
			d.EvictSession = i%11 == 0
			if i%4 == 0 {
				d.Pins = []kv.Pin{{UpTo: 16, TTL: time.Millisecond}}
				d.NextIn = time.Millisecond
			}
		})
		r.Stop.MaxTokens = 1 + i%9
		return r
	}
	answer := func(e *mock.Engine, i int) (all []uint32, err error) {
		for d, err := range e.Generate(t.Context(), request(i)) {
			if err != nil {
				return nil, err
			}
			all = append(all, d.TokenIDs...)
		}
		return all, nil
	}
	var work sync.WaitGroup
	for n, e := range engines {
		for k := range 4 {
			work.Go(func() {
				for i := range 60 {
					i = i*7 + k*13 + n
					got, err := answer(e, i)
					if engine.KindOf(err) == engine.EngineShutdown {
						continue
					}
					want, fault := answer(reference, i)
					if err != nil || fault != nil || !slices.Equal(got, want) {
						t.Errorf("request %d: %v, %v; want %v, %v", i, got, err, want, fault)
					}
				}
			})
		}
	}
	work.Go(func() {
		for i := range 20 {
			engines[i%3].Restart()
			if _, err := engines[(i+1)%3].Prefetch(t.Context(), engine.PrefetchRequest{TokenIDs: ids(uint32(i%5)*1000, 40)}); err != nil {
				t.Error(err)
			}
			engines[(i+2)%3].Forget()
		}
	})
	work.Wait()
}

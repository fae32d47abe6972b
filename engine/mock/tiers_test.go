package mock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// cores are several in virtual time, each of which works as soon as it can.
type cores struct {
	t     testing.TB
	now   time.Duration
	cores []*mock.Core
	done  map[mock.ID]mock.Output // by the first core
	from  map[any][4]int          // tokens found, by the owner of the request and tier
	took  map[any]time.Duration   // until the first token
	folds []tierView
	// failed are the errors of requests that could not go on.
	failed  []error
	mayFail bool
}

// tierView is what events say lies on each tier.
type tierView [4]map[kv.EngineHash]bool

func (v *tierView) apply(t interface{ Fatalf(string, ...any) }, events []kv.Event) {
	for _, e := range events {
		if v[e.Tier] == nil {
			v[e.Tier] = map[kv.EngineHash]bool{}
		}
		for _, b := range e.Blocks {
			switch {
			case e.Kind == kv.Stored && v[e.Tier][b.Engine]:
				t.Fatalf("block %x stored twice on %s", b.Engine, e.Tier)
			case e.Kind == kv.Removed && !v[e.Tier][b.Engine]:
				t.Fatalf("block %x removed from %s and not there", b.Engine, e.Tier)
			case e.Kind == kv.Stored:
				v[e.Tier][b.Engine] = true
			default:
				delete(v[e.Tier], b.Engine)
			}
		}
	}
}

// tiered returns arguments of a small engine with a constant pace: a block is 16
// bytes, and takes 16 ms from or to the host, 32 ms from or to what lies below.
func tiered(device, host, disk int) mock.Args {
	a := mock.DefaultArgs()
	a.NumGPUBlocks, a.HostBlocks, a.DiskBlocks, a.BlockSize, a.KVBytesPerToken = device, host, disk, 4, 4
	a.TimingModel, a.PrefillMS, a.DecodeMS = "constant", 100, 10
	a.BandwidthG1G2, a.BandwidthG2G1, a.BandwidthG2G3, a.BandwidthG3G2, a.BandwidthG4 = 1e-6, 1e-6, 5e-7, 5e-7, 5e-7
	return a
}

func newCores(t testing.TB, args ...mock.Args) *cores {
	w := &cores{t: t, done: map[mock.ID]mock.Output{}, from: map[any][4]int{}, took: map[any]time.Duration{}, folds: make([]tierView, len(args))}
	shared := mock.NewShared(args[0])
	for _, a := range args {
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		w.cores = append(w.cores, shared.NewCore(a))
	}
	return w
}

// submit gives a request to core n.
func (w *cores) submit(n int, name string, prompt []uint32, most int, change ...func(*mock.Request)) {
	r := mock.Request{Prompt: prompt, MaxTokens: most, Generator: &counter{90000}, Owner: name}
	for _, f := range change {
		f(&r)
	}
	if _, err := w.cores[n].Submit(w.now, r); err != nil {
		w.t.Fatal(err)
	}
}

// run lets all cores work until nothing is left to do, or for some time.
func (w *cores) run(within time.Duration) {
	end := w.now + within
	busy := make([]time.Duration, len(w.cores))
	for {
		for i, c := range w.cores {
			if busy[i] > w.now {
				continue
			}
			res := c.Step(w.now)
			w.folds[i].apply(w.t, res.Events)
			if res.Idle {
				busy[i] = -1
				if at, ok := c.NextWake(); ok {
					busy[i] = max(at, w.now+1)
				}
				continue
			}
			for _, a := range res.Admitted {
				w.from[a.Owner] = a.From
				sum := 0
				for _, n := range a.From {
					sum += n
				}
				if sum != a.Cached {
					w.t.Fatalf("%v: %d tokens cached, %v by tier", a.Owner, a.Cached, a.From)
				}
			}
			for _, o := range res.Outputs {
				if _, ok := w.took[o.Owner]; !ok {
					w.took[o.Owner] = res.End
				}
				if o.Err != nil {
					w.failed = append(w.failed, o.Err)
				}
			}
			busy[i] = max(res.End, w.now+1)
		}
		next := time.Duration(-1)
		for _, at := range busy {
			if at > w.now && (next < 0 || at < next) {
				next = at
			}
		}
		if next < 0 || next > end {
			if within < long {
				w.now = end
			}
			break
		}
		w.now = next
	}
	if len(w.failed) > 0 && !w.mayFail {
		w.t.Fatal(w.failed)
	}
	for i, c := range w.cores {
		w.folds[i].apply(w.t, c.News())
		if err := c.Check(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *cores) wants(name string, from [4]int) {
	w.t.Helper()
	if got := w.from[name]; got != from {
		w.t.Errorf("%s found %v tokens, want %v", name, got, from)
	}
}

func (w *cores) stats(n int) mock.CacheStats { return w.cores[n].CacheStats() }

const long = time.Hour

// A prompt that was evicted from the device comes back from the host, and from the
// disk where that has only it; what is loaded counts as cached.
func TestLoadsWhatWasEvicted(t *testing.T) {
	w := newCores(t, tiered(8, 6, 64))
	w.submit(0, "first", ids(0, 20), 1) // five blocks
	w.run(long)
	w.submit(0, "flood", ids(1000, 20), 1)
	w.run(long)
	// The host has room for six of ten blocks: four of the flood pushed its oldest out.
	w.submit(0, "again", ids(0, 21), 1)
	w.run(long)
	if got := w.from["again"]; got[kv.TierHost]+got[kv.TierDisk]+got[kv.TierDevice] != 20 || got[kv.TierDisk] == 0 {
		t.Errorf("again found %v, want 20 tokens of which some are on the disk", got)
	}
	if s := w.stats(0); s.Parked != 1 || s.LoadWait <= 0 || s.Loads.Truncated != 0 {
		t.Errorf("%d parked for %v, %+v", s.Parked, s.LoadWait, s.Loads)
	}
}

// A request that loads is parked, and others are computed meanwhile.
func TestLoadsOverlapWithComputing(t *testing.T) {
	a := tiered(16, 64, 0)
	a.LoadBias = 10
	w := newCores(t, a)
	w.submit(0, "first", ids(0, 40), 1)
	w.run(long)
	w.submit(0, "flood", ids(1000, 60), 1)
	w.run(long)
	w.now += time.Second
	began := w.now
	w.submit(0, "again", ids(0, 41), 1) // at most ten blocks, 16 ms each
	w.submit(0, "other", ids(2000, 8), 1)
	w.run(long)
	w.wants("other", [4]int{})
	if n := w.from["again"][kv.TierHost]; n == 0 {
		t.Fatalf("nothing was loaded: %v", w.from["again"])
	}
	if got := w.took["other"] - began; got != 100*time.Millisecond {
		t.Errorf("the other took %v, want 100ms as if it were alone", got)
	}
	if w.took["again"] <= w.took["other"] {
		t.Errorf("again was there at %v, before the other at %v", w.took["again"]-began, w.took["other"]-began)
	}
}

// Where computing is faster than loading, it is computed.
func TestLoadsOnlyWhatIsWorthIt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*mock.Args)
		loads  bool
	}{
		{"fast enough", func(*mock.Args) {}, true},
		{"too slow", func(a *mock.Args) { a.BandwidthG2G1 = 1e-7 }, false},
		{"slow and wanted", func(a *mock.Args) { a.BandwidthG2G1, a.LoadBias = 1e-7, 100 }, true},
		{"too few", func(a *mock.Args) { a.LoadBackThreshold = 6 }, false},
		{"never", func(a *mock.Args) { a.LoadBias = 0 }, false},
		{"no time", func(a *mock.Args) { a.SpeedupRatio = 0 }, true},
		{"no time, and never", func(a *mock.Args) { a.SpeedupRatio, a.LoadBias = 0, 0 }, false},
		{"not written", func(a *mock.Args) { a.WritePolicy = "none" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tiered(8, 64, 0)
			tt.change(&a)
			w := newCores(t, a)
			w.submit(0, "first", ids(0, 20), 1)
			w.run(long)
			w.submit(0, "flood", ids(1000, 28), 1)
			w.run(long)
			w.submit(0, "again", ids(0, 21), 1)
			w.run(long)
			if loaded := w.from["again"][kv.TierHost] > 0; loaded != tt.loads {
				t.Errorf("found %v, want loaded: %v", w.from["again"], tt.loads)
			}
		})
	}
}

// Four agents with one prefix: with a store that they share, one computes it and
// three load it; without, each computes it.
func TestSubAgentsShareAPrefix(t *testing.T) {
	prefix := ids(0, 64)
	play := func(change func(*mock.Args)) *cores {
		var args []mock.Args
		for range 4 {
			a := tiered(64, 64, 0)
			change(&a)
			args = append(args, a)
		}
		w := newCores(t, args...)
		for i, name := range []string{"a", "b", "c", "d"} {
			w.submit(i, name, append(prefix[:64:64], ids(uint32(1000*(i+1)), 8)...), 4)
			w.run(long)
		}
		return w
	}
	w := play(func(a *mock.Args) { a.SharedBlocks, a.LoadBias = 256, 1e6 })
	w.wants("a", [4]int{})
	for _, name := range []string{"b", "c", "d"} {
		w.wants(name, [4]int{kv.TierShared: 64})
	}
	alone := play(func(*mock.Args) {})
	for _, name := range []string{"a", "b", "c", "d"} {
		alone.wants(name, [4]int{})
	}
}

// on says which of a sequence's blocks lie on a tier.
func (w *cores) on(n int, tier kv.Tier, tokens []uint32) (there []int) {
	for i, h := range w.cores[n].Hashes(tokens, kv.Namespace{}) {
		if w.folds[n][tier][kv.EngineHash(h)] {
			there = append(there, i)
		}
	}
	return there
}

// span returns the numbers from one to before another.
func span(from, to int) (n []int) {
	for i := from; i < to; i++ {
		n = append(n, i)
	}
	return n
}

// written gives tokens that a test has written down.
type written struct{ tokens []uint32 }

func (g *written) Next() uint32 {
	id := g.tokens[0]
	g.tokens = g.tokens[1:]
	return id
}

// Of 100 tokens of prompt, 40 of thought and 20 of answer, in blocks of 16, blocks 0
// to 5 end before the thought. The others go first and are not written, unless the
// next prompt keeps the thought.
func TestThinkingIsNotWritten(t *testing.T) {
	const begins, ends = 7, 8
	prompt := ids(1000, 100)
	answer := slices.Concat([]uint32{begins}, ids(2000, 38), []uint32{ends}, ids(3000, 20))
	for _, tt := range []struct {
		name    string
		prompt  []uint32
		answer  []uint32
		session kvcache.SessionID
		drops   bool
		off     bool
		header  []uint32
		written []int
	}{
		{"dropped", prompt, answer, 0, true, false, nil, span(0, 6)},
		{"dropped in a session", prompt, answer, 9, true, false, nil, span(0, 6)},
		{"kept", prompt, answer, 9, false, false, nil, span(0, 10)},
		{"off", prompt, answer, 9, true, true, nil, span(0, 10)},
		{"no thought", prompt, ids(2000, 60), 9, true, false, nil, span(0, 10)},
		{"thought that the prompt begins", append(prompt[:95:95], begins), append(ids(2000, 39), answer[39:]...), 9, true, false, nil, span(0, 6)},
		{"begun by a header", prompt, answer, 9, true, false, []uint32{2000, 2001}, span(0, 6)},
		{"begun alike", prompt, answer, 9, true, false, []uint32{2000, 2002}, span(0, 10)},
		{"begun alike, and then by a header", prompt, slices.Concat([]uint32{begins}, ids(3000, 31), answer[:28]), 9, true, false, []uint32{2000, 2001}, span(0, 8)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tiered(64, 64, 64)
			a.BlockSize = 16
			if tt.off {
				a.ThinkEphemeral = "off"
			}
			w := newCores(t, a)
			w.submit(0, "r", tt.prompt, len(tt.answer), func(r *mock.Request) {
				r.Generator, r.Session, r.Directives = &written{tt.answer}, tt.session, &kv.Directives{}
				if tt.drops {
					r.Directives.Thinking = &kv.Thinking{Start: []uint32{begins}, End: []uint32{ends}, Header: tt.header}
				}
			})
			w.run(long)
			whole := append(slices.Clone(tt.prompt), tt.answer...)
			if got := w.on(0, kv.TierDevice, whole); len(got) != len(whole)/16 {
				t.Errorf("blocks %v are on the device", got)
			}
			for _, tier := range []kv.Tier{kv.TierHost, kv.TierDisk} {
				if got := w.on(0, tier, whole); !slices.Equal(got, tt.written) {
					t.Errorf("blocks %v are on %s, want %v", got, tier, tt.written)
				}
			}
		})
	}
}

// A sub-agent shares its parent's prefix. Its own blocks are nowhere but on the
// device, and, once its session is closed, exactly they go first.
func TestSubAgentLeavesNothing(t *testing.T) {
	a := tiered(400, 4000, 4000)
	a.SubagentEphemeral, a.MaxNumBatchedTokens = true, 200 // so that the first blocks are sealed long before the end
	w := newCores(t, a)
	of := func(session kvcache.SessionID, id, parent string) func(*mock.Request) {
		return func(r *mock.Request) {
			r.Session, r.Directives = session, &kv.Directives{Session: kv.Session{ID: id, Parent: parent}}
		}
	}
	prefix := ids(1000, 400) // 100 blocks
	own := append(slices.Clone(prefix), ids(5000, 800)...)
	w.submit(0, "parent", append(prefix[:400:400], 1), 1, of(1, "p", ""))
	w.run(long)
	w.submit(0, "child", append(own[:1200:1200], 2), 1, of(2, "c", "p"))
	w.run(long)
	w.wants("child", [4]int{400})
	if got := w.on(0, kv.TierHost, own); !slices.Equal(got, span(0, 100)) {
		t.Errorf("%d blocks are on the host, want the 100 of the parent: %v", len(got), got)
	}
	w.cores[0].CloseSession(w.now, 2)
	w.submit(0, "flood", ids(100_000, 1199), 1)
	w.run(long)
	if got := w.stats(0).Tiers[kv.TierDevice].Evictions; got[kvcache.Ephemeral] != 200 || got[kvcache.Plain] != 0 {
		t.Errorf("evicted %v, want the 200 ephemeral ones and no other", got)
	}
	w.submit(0, "second", append(prefix[:400:400], 3), 1, of(3, "d", "p"))
	w.run(long)
	w.wants("second", [4]int{400})
}

// A harness replaces its history by a summary: what the old history had beyond the
// common beginning goes first, with the second prompt of the new one.
func TestCompaction(t *testing.T) {
	for _, told := range []bool{false, true} {
		a := tiered(300, 0, 3000)
		w := newCores(t, a)
		ask := func(name string, prompt []uint32, compacted bool) {
			w.submit(0, name, prompt, 1, func(r *mock.Request) {
				r.Session, r.Directives = 1, &kv.Directives{Session: kv.Session{ID: "s"}, Compacted: compacted}
			})
			w.run(long)
		}
		common := ids(1000, 80)
		ask("old", slices.Concat(common, ids(2000, 520), []uint32{1}), false) // 150 blocks
		summary := slices.Concat(common, ids(3000, 80))
		ask("new", append(summary[:160:160], 2), told)
		if !told {
			ask("rollback", slices.Concat(common, ids(2000, 520), []uint32{1}), false)
			w.wants("rollback", [4]int{600})
			ask("again", append(summary[:160:160], 3), false)
			ask("new turn", append(summary[:160:160], ids(4000, 8)...), false)
		}
		w.submit(0, "flood", ids(100_000, 1100), 1) // 275 blocks
		w.run(long)
		if got := w.stats(0).Tiers[kv.TierDevice].Evictions; got[kvcache.Ephemeral] != 130 {
			t.Errorf("told %v: evicted %v, want the 130 blocks of the old history first", told, got)
		}
	}
}

// What is asked for a block goes with it: pinned or worth more on one worker, it
// outlives others on the worker that loads it.
func TestRetentionTravels(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asks  kv.Directives
		stays bool
	}{
		{"nothing", kv.Directives{}, false},
		{"a range", kv.Directives{Ranges: []kv.Range{{Priority: 90}}}, true},
		{"a range with a time", kv.Directives{Ranges: []kv.Range{{Priority: 90, TTL: time.Hour}}}, true},
		{"one that is over", kv.Directives{Ranges: []kv.Range{{Priority: 90, TTL: time.Millisecond}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tiered(32, 64, 0)
			a.SharedBlocks, a.LoadBias = 256, 1e6
			w := newCores(t, a, a)
			w.submit(0, "first", ids(0, 40), 1, func(r *mock.Request) { r.Directives = &tt.asks })
			w.run(long)
			w.now += time.Minute
			w.submit(1, "second", ids(0, 41), 1)
			w.run(long)
			w.wants("second", [4]int{kv.TierShared: 40})
			for i := range uint32(3) {
				w.submit(1, "flood", ids(10_000*(i+1), 80), 1)
				w.run(long)
			}
			if got := w.on(1, kv.TierDevice, ids(0, 40)); (len(got) == 10) != tt.stays || !tt.stays && len(got) > 0 {
				t.Errorf("blocks %v are left on the device, want them to stay: %v", got, tt.stays)
			}
		})
	}
}

// A request that runs out of blocks takes those of requests that wait for theirs,
// before it sends anyone back.
func TestRunningGoesBeforeLoading(t *testing.T) {
	a := tiered(12, 64, 0)
	a.LoadBias, a.BandwidthG2G1 = 1e6, 1e-7
	w := newCores(t, a)
	w.submit(0, "first", ids(0, 32), 1)
	w.run(long)
	w.submit(0, "flood", ids(1000, 44), 1)
	w.run(long)
	w.submit(0, "runs", ids(2000, 16), 24) // in the end ten blocks
	w.run(150 * time.Millisecond)
	w.submit(0, "again", ids(0, 25), 1) // six blocks, some of which are to be loaded
	w.run(long)
	s := w.stats(0)
	if s.Loads.Cancelled == 0 || s.Recomputed > 0 {
		t.Errorf("%d loads cancelled and %d tokens recomputed: want the load to give way", s.Loads.Cancelled, s.Recomputed)
	}
	if w.took["again"] <= w.took["runs"] {
		t.Error("again was first")
	}
}

// Hard pins hold against everything, also against a request that finds no room
// because of them: it fails, and the next one is served.
func TestHardPins(t *testing.T) {
	for name, tt := range map[string]struct{ host, batch int }{
		"device alone": {0, 64}, "with a host": {64, 64}, "device alone, in small parts": {0, 3}, "with a host, in small parts": {64, 3},
	} {
		t.Run(name, func(t *testing.T) {
			a := tiered(8, tt.host, 0)
			a.PinBudgetG1, a.AllowHardPins, a.WritePolicy, a.MaxNumBatchedTokens = 1, true, "none", tt.batch
			w := newCores(t, a)
			w.mayFail = true
			w.submit(0, "pinned", ids(0, 21), 1, func(r *mock.Request) {
				r.Directives = &kv.Directives{Pins: []kv.Pin{{UpTo: 20, TTL: time.Hour, Hard: true}}}
			})
			w.run(long)
			for i := range uint32(3) {
				w.submit(0, "flood", ids(1000*(i+1), 9), 1)
				w.run(long)
			}
			if len(w.failed) > 0 {
				t.Fatalf("what fits beside the pins fails: %v", w.failed)
			}
			w.submit(0, "too long", ids(3000, 14), 1) // four blocks, of three, and two of them are there
			w.submit(0, "grows", ids(8000, 11), 6)
			w.run(time.Minute)
			if len(w.failed) != 2 || engine.KindOf(w.failed[0]) != engine.WorkerOverloaded {
				t.Errorf("those that find no room end with %v", w.failed)
			}
			w.run(long)
			w.submit(0, "again", ids(0, 21), 1)
			w.run(long)
			w.wants("again", [4]int{20})
			w.now += 2 * time.Hour
			w.submit(0, "later", ids(9000, 14), 1)
			w.run(long)
			if len(w.failed) != 2 {
				t.Errorf("when the pins are over there is still no room: %v", w.failed)
			}
		})
	}
}

// What a prefetch will do some day, and what is written from one lower tier to another,
// makes no room for who finds none today.
func TestNoRoomIsToldAtOnce(t *testing.T) {
	pinned := func(t *testing.T, a mock.Args) *cores {
		a.PinBudgetG1, a.AllowHardPins = 1, true
		w := newCores(t, a)
		w.mayFail = true
		w.submit(0, "pinned", ids(0, 21), 1, func(r *mock.Request) {
			r.Directives = &kv.Directives{Pins: []kv.Pin{{UpTo: 20, TTL: 24 * time.Hour, Hard: true}}}
		})
		w.run(time.Minute)
		return w
	}
	tooLong := func(t *testing.T, w *cores) {
		w.submit(0, "too long", ids(9000, 14), 1)
		w.run(time.Minute)
		if len(w.failed) != 1 {
			t.Errorf("after a minute those have failed: %v; want one", w.failed)
		}
	}
	t.Run("prefetch", func(t *testing.T) {
		a := tiered(8, 64, 0)
		a.WritePolicy = "none"
		w := pinned(t, a)
		c := w.cores[0]
		p := c.Prefetch(w.now, kvcache.PrefetchRequest{Hashes: c.Hashes(ids(0, 20), kv.Namespace{}), Deadline: w.now + 20*time.Hour})
		if p.State != kvcache.PrefetchRunning {
			t.Fatalf("the prefetch is %s", p.State)
		}
		tooLong(t, w)
	})
	t.Run("writes to the disk", func(t *testing.T) {
		a := tiered(8, 64, 64)
		a.BandwidthG2G3 = 1e-11 // more than half an hour for a block
		w := pinned(t, a)
		if n := w.stats(0).Tiers[kv.TierHost].Stored; n != 5 {
			t.Fatalf("%d blocks have come to the host, want all 5", n)
		}
		tooLong(t, w)
		if n := w.stats(0).Tiers[kv.TierDisk].Stored; n != 0 {
			t.Errorf("%d blocks have come to the disk by then", n)
		}
	})
}

// A core that ends in the middle of writing to what is shared lets go of it, and the
// next life goes on with what had arrived.
func TestRestartLetsGo(t *testing.T) {
	a := tiered(32, 64, 0)
	a.SharedBlocks, a.LoadBias = 64, 1e6
	w := newCores(t, a, a)
	w.submit(0, "first", ids(0, 40), 1)
	w.run(300 * time.Millisecond) // 100 to compute it, 160 to the host, 320 to the store
	if used := w.stats(1).Tiers[kv.TierShared].Used; used == 0 {
		t.Fatal("nothing is on its way to the store")
	}
	w.cores[0] = w.cores[0].Restart(w.now)
	w.folds[0] = tierView{}
	if s := w.stats(1).Tiers[kv.TierShared]; s.Used != 0 {
		t.Errorf("%d slots of the store are held for a core that has ended", s.Used)
	}
	w.submit(1, "second", ids(0, 40), 1)
	w.run(long)
	w.submit(0, "third", ids(0, 41), 1)
	w.run(long)
	w.wants("third", [4]int{kv.TierShared: 40})
}

// Who finds blocks may ask for them, too: on each tier they are worth that then.
func TestFindersAsk(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asks  kv.Directives
		stays bool
	}{
		{"nothing", kv.Directives{}, false},
		{"a range", kv.Directives{Ranges: []kv.Range{{Priority: 90}}}, true},
		{"a priority", kv.Directives{Priority: new(int32(40))}, true},
		{"a low priority, which demotes nobody", kv.Directives{Priority: new(int32(-30))}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newCores(t, tiered(16, 16, 0))
			w.submit(0, "first", ids(0, 20), 1)
			w.run(long)
			w.submit(0, "finder", ids(0, 21), 1, func(r *mock.Request) { r.Directives = &tt.asks })
			w.run(long)
			w.wants("finder", [4]int{20})
			for i := range uint32(4) {
				w.submit(0, "flood", ids(10_000*(i+1), 40), 1)
				w.run(long)
			}
			for _, tier := range []kv.Tier{kv.TierDevice, kv.TierHost} {
				if got := w.on(0, tier, ids(0, 20)); (len(got) == 5) != tt.stays || !tt.stays && len(got) > 0 {
					t.Errorf("blocks %v are left on %s, want them to stay: %v", got, tier, tt.stays)
				}
			}
		})
	}
}

// Blocks can leave the device when the pass is over that computes them, and no sooner.
func TestWritesBeginWhenThePassIsOver(t *testing.T) {
	w := newCores(t, tiered(16, 16, 16))
	w.submit(0, "first", ids(0, 4), 1) // 100 ms; then 16 to the host, and 32 to the disk
	for _, tt := range []struct {
		until time.Duration
		on    [4]int
	}{
		{115 * time.Millisecond, [4]int{1, 0, 0}},
		{117 * time.Millisecond, [4]int{1, 1, 0}},
		{147 * time.Millisecond, [4]int{1, 1, 0}},
		{149 * time.Millisecond, [4]int{1, 1, 1}},
	} {
		w.run(tt.until - w.now)
		for k, want := range tt.on {
			if got := len(w.on(0, kv.Tier(k), ids(0, 4))); got != want {
				t.Errorf("after %v: %d blocks on %s, want %d", tt.until, got, kv.Tier(k), want)
			}
		}
	}
}

// With a session end its pins, and those too that were to hold below once blocks
// arrive there.
func TestClosedSessionsPinNothing(t *testing.T) {
	a := tiered(16, 32, 0)
	a.PinBudgetG2 = 1
	w := newCores(t, a)
	w.submit(0, "pins", ids(0, 21), 1, func(r *mock.Request) {
		r.Session = 7
		r.Directives = &kv.Directives{Pins: []kv.Pin{{UpTo: 20, TTL: 24 * time.Hour}}}
	})
	w.run(long)
	pinned := func() int64 {
		w.cores[0].OpenSession(w.now, 99, kvcache.SessionOptions{}) // takes a look
		return w.stats(0).Tiers[kv.TierHost].Pinned
	}
	if n := pinned(); n != 5 {
		t.Fatalf("%d blocks are pinned, want 5", n)
	}
	w.cores[0].CloseSession(w.now, 7)
	for i := range uint32(5) {
		w.submit(0, "flood", ids(10_000*(i+1), 40), 1)
		w.run(long)
	}
	w.submit(0, "again", ids(0, 21), 1)
	w.run(long)
	if got := w.on(0, kv.TierHost, ids(0, 20)); len(got) != 5 {
		t.Fatalf("blocks %v are on the host again, want all 5", got)
	}
	if n := pinned(); n != 0 {
		t.Errorf("%d blocks are pinned for a session that was closed", n)
	}
}

// Sessions that clients make up cost nothing once they are idle, also if they ask for
// long pins.
func TestIdleSessionsAreForgotten(t *testing.T) {
	a := tiered(16, 32, 32)
	a.PinBudgetG1, a.PinBudgetG2, a.PinBudgetG3 = 0, 0, 0
	w := newCores(t, a)
	for i := range kvcache.SessionID(200) {
		w.submit(0, "turn", ids(uint32(i)*100, 9), 1, func(r *mock.Request) {
			r.Session = 1 + i
			r.Directives = &kv.Directives{Pins: []kv.Pin{{UpTo: 8, TTL: 24 * time.Hour}}}
		})
		w.run(time.Second)
	}
	w.now += kvcache.DefaultSessionTimeout
	w.run(long)
	if w.cores[0].OpenSession(w.now, 999, kvcache.SessionOptions{}); w.cores[0].Sessions() != 1 {
		t.Errorf("%d sessions are known, want one", w.cores[0].Sessions())
	}
}

// Without a bias nothing is loaded, however fast it would come, and no time that is
// asked for is so late that it is early.
func TestNeverMeansNever(t *testing.T) {
	a := tiered(8, 64, 0)
	a.LoadBias, a.SpeedupRatio = 0, 0
	w := newCores(t, a)
	w.submit(0, "first", ids(0, 20), 1, func(r *mock.Request) {
		r.Directives = &kv.Directives{NextIn: 1<<63 - 1}
	})
	w.run(time.Second)
	w.submit(0, "flood", ids(1000, 24), 1)
	w.run(time.Second)
	if got := w.on(0, kv.TierDevice, ids(0, 20)); len(got) > 2 {
		t.Errorf("blocks %v have come back for a request that is due when all is over", got)
	}
	w.submit(0, "again", ids(0, 21), 1)
	w.run(time.Second)
	if got := w.from["again"]; got[kv.TierHost] > 0 {
		t.Errorf("found %v", got)
	}
}

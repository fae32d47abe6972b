package mock_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"pgregory.net/rapid"
)

// stack is cores with tiers, of which some are shared, and what a test knows of them.
type stack struct {
	t     *rapid.T
	args  mock.Args
	cores []*rankOf
	now   time.Duration
	live  int
	// wanted are the blocks of which some request that is not ephemeral had use: no
	// other may be on a lower tier.
	wanted map[kv.EngineHash]bool
}

// rankOf is one core.
type rankOf struct {
	*mock.Core
	fold tierView
	busy time.Duration
	jobs map[mock.ID]*wanting
	kept []mock.ID // that have ended, for another engine to come
}

// wanting is one request.
type wanting struct {
	prompt []uint32
	most   int
	given  int
	quiet  bool // leaves nothing behind
	keep   bool
}

func (s *stack) hashes(tokens []uint32) []kv.SeqHash {
	return s.cores[0].Hashes(tokens, kv.Namespace{})
}

func (s *stack) core() *rankOf { return s.cores[rapid.IntRange(0, len(s.cores)-1).Draw(s.t, "core")] }

func (s *stack) prompt() []uint32 {
	return ids(uint32(rapid.IntRange(0, 2).Draw(s.t, "start"))*1000, rapid.IntRange(1, 40).Draw(s.t, "prompt"))
}

var names = []kvcache.SessionID{0, 0, 1, 2, 3}

func (s *stack) submit() {
	t, c := s.t, s.core()
	a := &wanting{prompt: s.prompt(), most: rapid.IntRange(1, 12).Draw(t, "max")}
	d := &kv.Directives{}
	session := rapid.SampledFrom(names).Draw(t, "session")
	switch rapid.IntRange(0, 6).Draw(t, "asks") {
	case 0:
		d.Ranges = []kv.Range{{Start: 0, Priority: uint8(rapid.IntRange(0, 100).Draw(t, "priority")), TTL: time.Duration(rapid.IntRange(0, 5).Draw(t, "ttl")) * time.Second}}
	case 1:
		d.Class, a.quiet = kv.ClassEphemeral, true
		session = 0
	case 2:
		d.Pins = []kv.Pin{{UpTo: uint32(rapid.IntRange(0, 40).Draw(t, "upto")), TTL: 5 * time.Second, Hard: rapid.Bool().Draw(t, "hard")}}
	case 3:
		d.NextIn = time.Duration(rapid.IntRange(1, 3000).Draw(t, "next")) * time.Millisecond
	case 4:
		d.Thinking = &kv.Thinking{Start: []uint32{90002}}
		p := uint8(1)
		d.DecodePriority = &p
	case 5:
		d.EvictSession, d.Compacted = true, rapid.Bool().Draw(t, "compacted")
	}
	q := mock.Request{
		Prompt: a.prompt, MaxTokens: a.most, Generator: &counter{90000}, Owner: a, Session: session, Directives: d,
		Priority: int32(rapid.IntRange(0, 2).Draw(t, "rank")) / 2,
	}
	switch rapid.IntRange(0, 9).Draw(t, "leg") {
	case 0:
		a.most, a.keep = 1, true
		q.MaxTokens, q.Keep = 1, true
	case 1:
		q.Received = len(a.prompt)
	}
	id, err := c.Submit(s.now, q)
	if fits := len(a.prompt)+a.most <= room(s.args); (err == nil) != fits {
		t.Fatalf("submit of %d+%d tokens with room for %d: %v", len(a.prompt), a.most, room(s.args), err)
	}
	if err != nil {
		return
	}
	if !a.quiet {
		whole := append(slices.Clone(a.prompt), ids(90000, a.most)...)
		s.want(s.hashes(whole))
	}
	c.jobs[id] = a
	s.live++
}

func (s *stack) want(hashes []kv.SeqHash) {
	for _, h := range hashes {
		s.wanted[kv.EngineHash(h)] = true
	}
}

func (s *stack) cancel() {
	c := s.core()
	if len(c.kept) > 0 && rapid.Bool().Draw(s.t, "fetched") {
		s.fetch(c)
		return
	}
	all := slices.Sorted(maps.Keys(c.jobs))
	if len(all) == 0 {
		return
	}
	id := rapid.SampledFrom(all).Draw(s.t, "which")
	c.Cancel(id)
	delete(c.jobs, id)
	s.live--
}

// fetch lets go of a request that was kept.
func (s *stack) fetch(c *rankOf) {
	c.Cancel(c.kept[0])
	c.kept = c.kept[1:]
}

// control asks something of a cache besides requests.
func (s *stack) control() {
	t, c := s.t, s.core()
	seq := s.hashes(s.prompt())
	switch id := rapid.SampledFrom(names).Draw(t, "session"); rapid.IntRange(0, 6).Draw(t, "what") {
	case 0: // which is a use of it
		s.want(seq)
		c.Pin(s.now, seq, kvcache.Pin{Owner: id, TTL: time.Duration(rapid.IntRange(0, 9).Draw(t, "ttl")) * time.Second})
	case 1:
		if got := c.Retain(s.now, seq, kvcache.Retention{Priority: uint8(rapid.IntRange(0, 100).Draw(t, "priority"))}); got > len(seq) {
			t.Fatalf("%d of %d blocks retained", got, len(seq))
		}
	case 2:
		c.OpenSession(s.now, id, kvcache.SessionOptions{})
	case 3:
		c.CloseSession(s.now, id)
	case 4:
		p := c.Prefetch(s.now, kvcache.PrefetchRequest{Hashes: seq, Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "tier")), Deadline: s.now + time.Second})
		if p.Already+p.Scheduled+p.Missing != p.Requested {
			t.Fatalf("%+v", p)
		}
		if rapid.Bool().Draw(t, "cancelled") {
			c.CancelPrefetch(s.now, p.ID)
		}
	case 5:
		if busy := len(c.jobs)+len(c.kept) > 0; !busy && !c.Forget(s.now) {
			t.Fatal("an idle core does not forget")
		} else if !busy {
			c.fold = tierView{} // what follows Cleared
		}
	case 6:
		c.Core = c.Restart(s.now)
		c.fold, c.busy = tierView{}, 0
		s.live -= len(c.jobs)
		clear(c.jobs)
		c.kept = nil
	}
}

// step lets time pass by one thing that happens, or by a second.
func (s *stack) step() {
	next := s.now + time.Second
	for _, c := range s.cores {
		at := c.busy
		if wake, ok := c.NextWake(); ok && at <= s.now {
			at = wake
		}
		if at > s.now {
			next = min(next, at)
		}
	}
	for _, c := range s.cores {
		if c.busy > s.now {
			continue
		}
		s.pass(c)
	}
	s.now = next
}

func (s *stack) pass(c *rankOf) {
	t := s.t
	before := c.fold
	for k := range before {
		before[k] = maps.Clone(before[k])
	}
	res := c.Step(s.now)
	c.fold.apply(panicking{t}, res.Events)
	if res.Idle {
		if c.busy = 0; len(c.jobs) > 0 {
			switch _, ok := c.NextWake(); {
			case ok:
			case len(c.kept) > 0: // whose room they wait for
				s.fetch(c)
			default:
				t.Fatalf("idle with %d requests left, and nothing to come: %s", len(c.jobs), c)
			}
		}
		return
	}
	if c.busy = res.End; res.End < s.now {
		t.Fatalf("a pass of %v ends at %v", s.now, res.End)
	}
	for _, a := range res.Admitted {
		s.admitted(c, a, before)
	}
	for _, o := range res.Outputs {
		a := o.Owner.(*wanting)
		if c.jobs[o.ID] != a {
			t.Fatalf("output for request %d, which is not there", o.ID)
		}
		if o.Err != nil {
			if !s.args.AllowHardPins {
				t.Fatalf("request %d: %v", o.ID, o.Err)
			}
			delete(c.jobs, o.ID)
			s.live--
			continue
		}
		for _, id := range o.Tokens {
			if want := 90000 + uint32(a.given); id != want {
				t.Fatalf("token %d is %d, want %d", a.given, id, want)
			}
			a.given++
		}
		if done := a.given == a.most; done != (o.Finish == engine.FinishLength) || o.Cached >= len(a.prompt) {
			t.Fatalf("%d of %d tokens given, %d of %d cached, finish %q", a.given, a.most, o.Cached, len(a.prompt), o.Finish)
		}
		if o.Finish != engine.Running {
			delete(c.jobs, o.ID)
			s.live--
			if a.keep {
				c.kept = append(c.kept, o.ID)
			}
		}
	}
}

// admitted checks that what a request found was somewhere.
func (s *stack) admitted(c *rankOf, a mock.Admission, before tierView) {
	sum := 0
	for _, n := range a.From {
		sum += n
	}
	if sum != a.Cached {
		s.t.Fatalf("%d tokens cached, %v by tier", a.Cached, a.From)
	}
	q := a.Owner.(*wanting)
	whole := append(slices.Clone(q.prompt), ids(90000, q.given)...)
	for _, h := range s.hashes(whole)[:a.Cached/s.args.BlockSize] {
		was := false
		for k := range before {
			was = was || before[k][kv.EngineHash(h)] || c.fold[k][kv.EngineHash(h)]
		}
		if !was {
			s.t.Fatalf("block %x was found and is nowhere", h)
		}
	}
}

// check compares what was told with what there is, after everything.
func (s *stack) check() {
	t := s.t
	for _, c := range s.cores {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		c.fold.apply(panicking{t}, c.News())
		var now tierView
		now.apply(panicking{t}, c.Stored())
		stats := c.CacheStats()
		for k := range now {
			if !maps.Equal(now[k], c.fold[k]) {
				t.Fatalf("on %s events fold to %v, the snapshot has %v", kv.Tier(k), c.fold[k], now[k])
			}
			if got := stats.Tiers[k].Stored; got != len(now[k]) {
				t.Fatalf("%d blocks on %s, %d told", got, kv.Tier(k), len(now[k]))
			}
			for h := range now[k] {
				if kv.Tier(k) > kv.TierDevice && !s.wanted[h] {
					t.Fatalf("block %x is on %s, and nobody but ephemeral requests had it", h, kv.Tier(k))
				}
			}
		}
		if got := int(c.Load().Running + c.Load().Waiting); got != len(c.jobs) {
			t.Fatalf("%d running and waiting of %d", got, len(c.jobs))
		}
	}
}

// panicking lets helpers of tests end a property.
type panicking struct{ *rapid.T }

// TestTieredProperties runs random programs over cores on four tiers, some of them
// shared, and checks after each step: slots and references, what was told against
// what lies on each tier, outputs without loss or repetition, that what was found
// had been somewhere, that ephemeral blocks stay on the device; and at the end that
// everything ends and nothing is held any more.
func TestTieredProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArgs(t)
		a.EnablePrefixCaching = true
		a.NumGPUBlocks = rapid.IntRange(6, 20).Draw(t, "device")
		a.HostBlocks = rapid.SampledFrom([]int{0, 1, 3, 8, 40}).Draw(t, "host")
		a.DiskBlocks = rapid.SampledFrom([]int{0, 1, 5, 40}).Draw(t, "disk")
		if a.HostBlocks+a.DiskBlocks == 0 {
			a.HostBlocks = 4
		}
		a.SharedBlocks = rapid.SampledFrom([]int{0, 0, 1, 6, 60}).Draw(t, "store")
		a.DiskShared = a.DiskBlocks > 0 && rapid.Bool().Draw(t, "shared")
		a.DiskFilter = rapid.Bool().Draw(t, "filter")
		a.ReadThrough = rapid.Bool().Draw(t, "read_through")
		a.LoadBias = rapid.SampledFrom([]float64{0.1, 1, 1e6}).Draw(t, "bias")
		a.KVBytesPerToken = rapid.SampledFrom([]int{0, 100_000_000}).Draw(t, "bytes")
		a.PinBudgetG1 = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "pins")
		a.AllowHardPins = rapid.Bool().Draw(t, "hard")
		a.SubagentEphemeral = true
		a.PreemptOnPriority = rapid.Bool().Draw(t, "preempt_on_priority")
		a.Watermark = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "watermark")
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		s := &stack{t: t, args: a, wanted: map[kv.EngineHash]bool{}}
		shared := mock.NewShared(a)
		for range rapid.IntRange(1, 2).Draw(t, "cores") {
			s.cores = append(s.cores, &rankOf{Core: shared.NewCore(a), jobs: map[mock.ID]*wanting{}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit":  func(*rapid.T) { s.submit() },
			"submit3": func(*rapid.T) { s.submit(); s.submit(); s.submit() },
			"cancel":  func(*rapid.T) { s.cancel() },
			"control": func(*rapid.T) { s.control() },
			"step":    func(*rapid.T) { s.step() },
			"step5": func(*rapid.T) {
				for range 5 {
					s.step()
					s.check()
				}
			},
			"": func(*rapid.T) { s.check() },
		})
		for range 10_000 {
			if s.live == 0 {
				break
			}
			s.step()
			s.check()
		}
		if s.live > 0 {
			t.Fatalf("%d requests never end", s.live)
		}
		for _, c := range s.cores {
			for len(c.kept) > 0 {
				s.fetch(c)
			}
		}
		s.now += time.Hour
		for range 3 {
			s.step()
			s.now += time.Hour
		}
		for i, c := range s.cores {
			for k, tier := range c.CacheStats().Tiers {
				if tier.Used > 0 {
					t.Fatalf("core %d: %d blocks of %s are held by nobody", i, tier.Used, kv.Tier(k))
				}
			}
		}
	})
}

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// drawWorkload draws requests that share beginnings, wait for each other, and
// come in bursts.
func drawWorkload(t *rapid.T) []trace.Request {
	var w []trace.Request
	for i := range rapid.IntRange(1, 30).Draw(t, "requests") {
		r := trace.Request{
			ID: fmt.Sprintf("r%d", i),
			At: time.Duration(rapid.IntRange(0, 20).Draw(t, "at")) * 5 * ms,
			Prompt: trace.Text{
				{Stream: rapid.Uint64Range(0, 2).Draw(t, "beginning"), Len: uint32(rapid.IntRange(0, 80).Draw(t, "shared"))},
				{Stream: 100 + uint64(i), Len: uint32(rapid.IntRange(1, 60).Draw(t, "own"))},
			},
			Answer:         text(1000+uint64(i), rapid.IntRange(1, 12).Draw(t, "answer")),
			Session:        rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "session"),
			Priority:       float64(rapid.IntRange(-1, 2).Draw(t, "priority")),
			StrictPriority: uint32(rapid.IntRange(0, 1).Draw(t, "strict")),
			KV:             drawDirectives(t),
		}
		if i > 0 && rapid.Bool().Draw(t, "waits") {
			for range rapid.IntRange(1, 2).Draw(t, "for") {
				r.After = append(r.After, fmt.Sprintf("r%d", rapid.IntRange(0, i-1).Draw(t, "after")))
			}
			r.Delay = time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * 7 * ms
		}
		w = append(w, r)
	}
	return w
}

// drawDirectives draws what a request asks of caches, which is nothing for half of
// them.
func drawDirectives(t *rapid.T) (d kv.Directives) {
	if rapid.Bool().Draw(t, "asks nothing") {
		return d
	}
	ttl := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 40).Draw(t, name)) * 5 * ms
	}
	if rapid.IntRange(0, 2).Draw(t, "pins") == 0 {
		d.Pins = []kv.Pin{{UpTo: uint32(rapid.IntRange(0, 140).Draw(t, "up to")), TTL: ttl("of the pin"), Hard: rapid.Bool().Draw(t, "hard")}}
	}
	if rapid.IntRange(0, 2).Draw(t, "retention") == 0 {
		d.Ranges = []kv.Range{{Start: uint32(rapid.IntRange(0, 60).Draw(t, "start")), Priority: rapid.SampledFrom([]uint8{0, 35, 90}).Draw(t, "of range"), TTL: ttl("of range")}}
		d.DecodePriority, d.DecodeTTL = new(uint8(rapid.IntRange(0, 100).Draw(t, "of the answer"))), ttl("of the answer")
	}
	d.Session.Ephemeral = rapid.IntRange(0, 3).Draw(t, "ephemeral") == 0
	d.EvictSession = rapid.IntRange(0, 3).Draw(t, "close") == 0
	d.SkipWrite = rapid.IntRange(0, 3).Draw(t, "skip") == 0
	d.Compacted = rapid.IntRange(0, 5).Draw(t, "compacted") == 0
	d.NextIn = ttl("next")
	return d
}

// drawTiers puts lower tiers below a device, for half of all engines.
func drawTiers(t *rapid.T, a *mock.Args) {
	a.Evictor = rapid.SampledFrom([]string{"retention", "lru", "fifo", "multi-lru", "priorities"}).Draw(t, "evictor")
	a.PinBudgetG1 = rapid.SampledFrom([]float64{0, 0.25, 0.5}).Draw(t, "for pins")
	a.AllowHardPins = rapid.Bool().Draw(t, "hard pins")
	if !a.EnablePrefixCaching || rapid.Bool().Draw(t, "device alone") {
		return
	}
	a.KVBytesPerToken = 1000
	a.HostBlocks = rapid.SampledFrom([]int{0, 20, 200}).Draw(t, "host")
	a.DiskBlocks = rapid.SampledFrom([]int{0, 40, 400}).Draw(t, "disk")
	if a.HostBlocks+a.DiskBlocks > 0 {
		a.SharedBlocks = rapid.SampledFrom([]int{0, 60, 600}).Draw(t, "store")
	}
	a.DiskShared = a.DiskBlocks > 0 && rapid.Bool().Draw(t, "one disk")
	a.DiskFilter = rapid.Bool().Draw(t, "filter")
	for _, way := range []*float64{&a.BandwidthG1G2, &a.BandwidthG2G1, &a.BandwidthG2G3, &a.BandwidthG3G2, &a.BandwidthG4} {
		*way = rapid.SampledFrom([]float64{0, 1e-3, 1e-2}).Draw(t, "bandwidth") // GB/s: a block takes 8 ms, or 0.8
	}
}

func drawConfig(t *rapid.T) sim.Config {
	a := steps()
	a.BlockSize = 8
	a.NumGPUBlocks = rapid.IntRange(25, 80).Draw(t, "blocks")
	a.MaxNumSeqs = rapid.IntRange(1, 6).Draw(t, "seqs")
	a.MaxNumBatchedTokens = rapid.IntRange(16, 300).Draw(t, "batch")
	a.DPSize = rapid.IntRange(1, 2).Draw(t, "ranks")
	a.PreemptionMode = rapid.SampledFrom([]string{"lifo", "fifo"}).Draw(t, "preemption")
	a.EnablePrefixCaching = rapid.IntRange(0, 5).Draw(t, "caching") > 0
	a.SpeedupRatio = rapid.SampledFrom([]float64{1, 0.3, 0}).Draw(t, "speedup")
	drawTiers(t, &a)
	c := sim.Config{
		Workers: rapid.IntRange(1, 3).Draw(t, "workers"), Engine: a, Migrations: 100,
		Concurrency: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "concurrency"),
		Forecast:    rapid.Bool().Draw(t, "forecast"),
		Router: router.Config{
			Mode: rapid.SampledFrom([]router.Mode{router.KV, router.RoundRobin, router.Random, router.PowerOfTwo, router.LeastLoaded}).Draw(t, "mode"),
		},
	}
	if rapid.IntRange(0, 2).Draw(t, "legs") == 0 {
		c.Prefills = rapid.IntRange(1, 2).Draw(t, "prefills")
		c.Transfer = sim.Transfer{BytesPerToken: 1000, Bandwidth: rapid.SampledFrom([]float64{0, 1e6, 1e8}).Draw(t, "bandwidth")}
	}
	tuning := router.DefaultTuning()
	tuning.TrackOutputBlocks = rapid.Bool().Draw(t, "output blocks")
	c.Router.Tuning = &tuning
	if rapid.Bool().Draw(t, "queue") {
		threshold := rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "threshold")
		c.Router.QueueThreshold = &threshold
		c.Router.QueueOrder = rapid.SampledFrom([]router.QueueOrder{router.FCFS, router.LCFS, router.WSPT}).Draw(t, "order")
	}
	if rapid.Bool().Draw(t, "sessions") {
		c.Router.SessionTTL = time.Minute
	}
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		c.Changes = append(c.Changes, drawChange(t, a, c.Prefills))
	}
	return c
}

// drawChange draws something that happens to the workers. The first that prefills
// stays, and so does the first that decodes, whose number is given.
func drawChange(t *rapid.T, args mock.Args, decodes int) sim.Change {
	n := rapid.IntRange(0, 4).Draw(t, "worker")
	speed := rapid.SampledFrom([]float64{0.25, 1, 4}).Draw(t, "factor")
	kind := rapid.IntRange(0, 3).Draw(t, "change")
	return sim.Change{At: time.Duration(rapid.IntRange(0, 200).Draw(t, "when")) * ms, Do: func(s *sim.Simulation) error {
		switch {
		case kind == 0:
			_, err := s.AddWorker(args)
			return err
		case n >= s.Workers() || s.Gone(n):
			return nil
		case kind == 1:
			return s.SetSpeed(n, speed)
		case kind == 2:
			return s.RestartWorker(n)
		case n != 0 && n != decodes:
			return s.RemoveWorker(n)
		}
		return nil
	}}
}

// Whatever is asked of whatever fleet: every request ends once and has all of its
// answer, unless its workers were lost too often; nothing is left in the books;
// the index knows what the caches hold; and all of it comes out the same again.
func TestAnyWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, w := drawConfig(t), drawWorkload(t)
		ended := make(map[string]*sim.Record)
		c.Record = func(r *sim.Record) {
			if ended[r.ID] != nil {
				t.Fatalf("%s has ended twice", r.ID)
			}
			ended[r.ID] = r
		}
		s, err := sim.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		report, err := s.Run(w)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range w {
			e := ended[r.ID]
			switch {
			case e == nil:
				t.Fatalf("%s has not ended", r.ID)
			case e.Err == nil && e.Output != r.Answer.Len():
				t.Fatalf("%s has %d of %d tokens", r.ID, e.Output, r.Answer.Len())
			case e.Err != nil && e.Migrations == 0:
				t.Fatalf("%s has failed: %v", r.ID, e.Err)
			case e.Arrived > e.Placed || e.Err == nil && (e.Placed > e.Admitted || e.Admitted > e.First || e.First > e.Last || e.Last > e.Ended || e.Reused > e.Input || e.Cached >= e.Input || e.Cached > e.Reused):
				t.Fatalf("times or tokens make no sense: %+v", *e)
			}
			for _, id := range r.After {
				if e.Arrived < ended[id].Ended+r.Delay {
					t.Fatalf("%s comes at %v, %v after %s, want %v", r.ID, e.Arrived, e.Arrived-ended[id].Ended, id, r.Delay)
				}
			}
		}
		found := 0
		for _, tier := range report.Caches.Tiers {
			found += tier.HitTokens
		}
		if found != report.Cached {
			t.Fatalf("%d tokens were found on all tiers, and %d were cached", found, report.Cached)
		}
		checkBooks(t, s)
		if c.Engine.EnablePrefixCaching { // else workers tell nothing, and the router guesses
			sameInIndex(t, s, w, c.Engine.BlockSize)
			if n := s.Router().IndexStats().ParentNotFound; n > 0 && c.Engine.HostBlocks+c.Engine.DiskBlocks == 0 {
				t.Fatalf("%d blocks of devices had no parent", n)
			}
		}
		again := c
		again.Record = nil
		second, err := sim.Run(again, w)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := mustJSON(t, report), mustJSON(t, second); a != b {
			t.Fatalf("the second time is another one:\n%s\n%s", a, b)
		}
	})
}

func mustJSON(t rapid.TB, r *sim.Report) string {
	t.Helper()
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

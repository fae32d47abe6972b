package mock_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// Who waits for room begins when there is some, also where nothing else happens
// that would wake the engine.
func TestRoomWakesWhoWaits(t *testing.T) {
	waits := func(t *testing.T, e *mock.Engine, r *engine.Request, makeRoom func()) {
		t.Helper()
		var answered atomic.Bool
		go func() {
			answered.Store(generate(t.Context(), e, r).err == nil)
		}()
		time.Sleep(time.Second)
		if synctest.Wait(); answered.Load() {
			t.Fatal("there was room before")
		}
		makeRoom()
		time.Sleep(time.Second)
		if synctest.Wait(); !answered.Load() {
			t.Error("who waited is not answered")
		}
	}
	t.Run("a held stream is left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := scripted(t, "rules: [{when: {user: hold}, emit: abcdef, cut: {after: 2, as: stall}}]\ndefault: {emit: x}", func(a *mock.Args) { a.NumGPUBlocks, a.BlockSize = 4, 16 })
			held, leave := context.WithCancel(t.Context())
			r := ask(turn(chat.RoleUser, said("hold")))
			r.TokenIDs, r.Stop.MaxTokens = ids(0, 50), 10
			go generate(held, e, r)
			other := ask(turn(chat.RoleUser, said("x")))
			other.TokenIDs, other.Stop.MaxTokens = ids(1000, 50), 10
			time.Sleep(time.Second)
			waits(t, e, other, leave)
		})
	})
	for name, makeRoom := range map[string]func(e *mock.Engine, handoff string){
		"a kept prompt is released": func(e *mock.Engine, handoff string) { e.Release(context.Background(), handoff) }, //nolint:errcheck // it has none
		"nobody fetches it":         func(*mock.Engine, string) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := ofRole("prefill")
				cfg.Args.NumGPUBlocks, cfg.Args.BlockSize, cfg.Args.HandoffTimeoutMS = 2, 16, 60_000
				e := open(t, cfg)
				first := prepare(t, e)
				if o := generate(t.Context(), e, legOf(engine.PhasePrefill, first.Prefill)); o.err != nil {
					t.Fatal(o.err)
				}
				r := legOf(engine.PhasePrefill, prepare(t, e).Prefill)
				r.TokenIDs = ids(1000, 21)
				waits(t, e, r, func() { makeRoom(e, first.ID) })
			})
		})
	}
}

// Who waits for the room of a prompt that nobody comes for waits no longer than that is
// kept, however late its reader learns that it has been computed.
func TestRoomOfAPromptThatIsKeptLate(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the rank rests before the reader runs
	synctest.Test(t, func(t *testing.T) {
		cfg := ofRole("prefill")
		cfg.Args.NumGPUBlocks, cfg.Args.BlockSize, cfg.Args.HandoffTimeoutMS = 2, 16, 60_000
		cfg.Args.SpeedupRatio, cfg.Args.TimingModel, cfg.Args.PrefillMS = 1, "constant", 100
		e := open(t, cfg)
		legs := make(chan error, 2)
		for i := range uint32(2) {
			r := legOf(engine.PhasePrefill, prepare(t, e).Prefill)
			r.TokenIDs = ids(1000*i, 21)
			go func() { legs <- generate(t.Context(), e, r).err }()
			time.Sleep(10 * time.Millisecond)
		}
		begun := time.Now()
		for range 2 {
			if err := <-legs; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took < time.Minute || took > 61*time.Second {
			t.Errorf("the second one is answered after %v, want as soon as the first one is given up", took)
		}
	})
}

// Who waits for what is pinned, beside a prompt that is kept, begins when the pins end.
func TestPinsEndBesideAKeptPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := ofRole("prefill")
		cfg.Args.NumGPUBlocks, cfg.Args.BlockSize, cfg.Args.HandoffTimeoutMS = 4, 16, 60_000
		cfg.Args.PinBudgetG1, cfg.Args.AllowHardPins = 1, true
		e := open(t, cfg)
		leg := func(prompt []uint32, pins ...kv.Pin) engine.Handoff {
			h := prepare(t, e)
			r := legOf(engine.PhasePrefill, h.Prefill)
			r.TokenIDs, r.KV.Pins = prompt, pins
			if o := generate(t.Context(), e, r); o.err != nil {
				t.Fatal(o.err)
			}
			return h
		}
		pinned := leg(ids(0, 33), kv.Pin{UpTo: 32, TTL: 10 * time.Second, Hard: true})
		if err := e.Release(t.Context(), pinned.ID); err != nil {
			t.Fatal(err)
		}
		leg(ids(1000, 17)) // and is kept
		begun := time.Now()
		leg(ids(2000, 17))
		if took := time.Since(begun); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("it is answered after %v, want as soon as the pins end", took)
		}
	})
}

// What is kept in the new life of an engine whose other ranks are still in the old one
// is let go of like any other prompt.
func TestKeptDuringARestart(t *testing.T) {
	cfg := ofRole("prefill")
	cfg.Args.DPSize, cfg.Args.NumGPUBlocks = 2, 6
	e := open(t, cfg)
	leg := func() engine.Handoff {
		h := prepare(t, e)
		r := legOf(engine.PhasePrefill, h.Prefill)
		r.DPRank = new(uint32)
		if o := generate(t.Context(), e, r); o.err != nil {
			t.Error(o.err)
		}
		return h
	}
	var second engine.Handoff
	restarts := false
	e.Hear(func(p mock.Report) {
		if restarts && p.Rank == 1 {
			second = leg()
		}
	})
	first := leg()
	restarts = true
	e.Restart()
	restarts = false
	if n, blocks := e.Kept(), used(e); n != 1 || blocks != 6 {
		t.Errorf("%d prompts are kept in %d blocks, want one in 6", n, blocks)
	}
	for _, h := range []engine.Handoff{first, second} {
		if err := e.Release(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n, blocks := e.Kept(), used(e); n != 0 || blocks != 0 {
		t.Errorf("%d prompts are kept in %d blocks after the release", n, blocks)
	}
}

// A prompt that is computed twice under one name is kept once.
func TestKeptUnderOneName(t *testing.T) {
	e := open(t, ofRole("prefill"))
	h := prepare(t, e)
	for range 2 {
		if o := generate(t.Context(), e, legOf(engine.PhasePrefill, h.Prefill)); o.err != nil {
			t.Fatal(o.err)
		}
		if n, blocks := e.Kept(), used(e); n != 1 || blocks != 6 {
			t.Errorf("%d prompts are kept in %d blocks, want one in 6", n, blocks)
		}
	}
	if err := e.Release(t.Context(), h.ID); err != nil || used(e) != 0 {
		t.Errorf("after the release %d blocks are in use: %v", used(e), err)
	}
}

// A request that finds room for its beginning only, beside a prompt that is kept for
// another engine, waits with what it has instead of computing it over and over.
func TestAloneBesideAKeptPrompt(t *testing.T) {
	a := mock.DefaultArgs()
	a.NumGPUBlocks, a.BlockSize, a.MaxNumBatchedTokens, a.SpeedupRatio = 8, 4, 4, 0
	c := mock.NewCore(a)
	submit := func(from uint32, keep bool) mock.ID {
		id, err := c.Submit(0, mock.Request{Prompt: ids(from, 20), MaxTokens: 1, Keep: keep, Generator: &counter{9000}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	steps := func() (outputs int) {
		for range 100 {
			res := c.Step(0)
			if res.Idle {
				return outputs
			}
			outputs += len(res.Outputs)
		}
		t.Fatal("it never rests")
		return 0
	}
	kept := submit(0, true)
	if steps() != 1 {
		t.Fatal("the first one gives no token")
	}
	submit(1000, false)
	if n := steps(); n != 0 || c.Load().Preemptions != 0 {
		t.Errorf("%d tokens, %d preemptions, want it to wait", n, c.Load().Preemptions)
	}
	c.Cancel(kept)
	if steps() != 1 {
		t.Error("with all the room there is it gives no token")
	}
}

// Slots that a kept prompt holds are not about to be given back: who runs beside it
// makes room for another as ever.
func TestPreemptsBesideAKeptPrompt(t *testing.T) {
	w := newCores(t, tiered(12, 64, 0))
	w.submit(0, "kept", ids(0, 9), 1, func(r *mock.Request) { r.Keep = true }) // three blocks, one of them not full
	w.run(time.Second)
	w.submit(0, "a", ids(1000, 16), 16) // four blocks that become eight
	w.submit(0, "b", ids(2000, 16), 16)
	w.run(10 * time.Second)
	if load := w.cores[0].Load(); load.Running+load.Waiting != 0 || load.Preemptions == 0 {
		t.Errorf("%d running and %d waiting after %d preemptions", load.Running, load.Waiting, load.Preemptions)
	}
}

package mock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// Who waits for room begins when there is some, also where nothing else happens
// that would wake the engine.
func TestRoomWakesWhoWaits(t *testing.T) {
	waits := func(t *testing.T, e *mock.Engine, r *engine.Request, makeRoom func()) {
		t.Helper()
		answered := false
		go func() {
			answered = generate(t.Context(), e, r).err == nil
		}()
		time.Sleep(time.Second)
		if synctest.Wait(); answered {
			t.Fatal("there was room before")
		}
		makeRoom()
		time.Sleep(time.Second)
		if synctest.Wait(); !answered {
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

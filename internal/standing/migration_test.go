package standing_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/google/go-cmp/cmp"
)

// A request that moves to another worker is none the wiser: the constant timing
// leaves time to take its worker away.
func TestMigrationIsInvisible(t *testing.T) {
	for name, script := range map[string]string{"prose": "", "script": scripted("")} {
		t.Run(name, func(t *testing.T) {
			body := say("agent", object{"tools": weather, "temperature": 0, "max_tokens": 150, "ignore_eos": script == ""})
			whole := build(t, plan{script: script})
			want := comparable(whole.unary(t, chatRoute, body))
			moving := build(t, plan{script: script, workers: 4, migration: 3, tokenMS: 5})
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				waitFor(t, "the request has begun", func() bool { return moving.serving() != 0 })
				moving.fleet.Remove(moving.serving())
			}()
			got := moving.unary(t, chatRoute, body)
			<-moved
			if n := moving.pipeline.Counters().MigratedOngoing; n != 1 {
				t.Errorf("the request moved %d times", n)
			}
			if diff := cmp.Diff(want, comparable(got)); diff != "" {
				t.Errorf("undisturbed against moved: %s", diff)
			}
			moving.idle(t)
		})
	}
}

// Workers crash and come back under many streams at once: every answer is that
// of a quiet day, and nothing stays booked. Three of five workers go, so that
// three moves are enough for a request that meets them all.
func TestRestartsUnderLoad(t *testing.T) {
	const streams, crashes = 24, 3
	body := func(i int) object {
		return say(fmt.Sprint("question ", i), object{"max_tokens": 150, "ignore_eos": true, "seed": i})
	}
	quiet := build(t, plan{})
	h := build(t, plan{workers: 5, migration: crashes, tokenMS: 3})
	var work sync.WaitGroup
	for i := range streams {
		want := content(quiet.unary(t, chatRoute, body(i)))
		work.Go(func() {
			status, raw := h.post(t, chatRoute, body(i))
			var got object
			if err := json.Unmarshal(raw, &got); err != nil || status != http.StatusOK {
				t.Errorf("stream %d: status %d, %v: %s", i, status, err, raw)
			} else if content(got) != want {
				t.Errorf("stream %d: %q, want %q", i, content(got), want)
			}
		})
	}
	for i := range crashes {
		id := fleet.ID(fmt.Sprint("mock-", i))
		waitFor(t, "a worker generates", func() bool {
			return slices.ContainsFunc(h.router.Loads(), func(l router.TargetLoad) bool {
				return l.Target.Worker == id && l.Requests > 0 && l.PrefillTokens == 0
			})
		})
		h.engines[i].Restart()
	}
	work.Wait()
	if n := h.pipeline.Counters().MigratedOngoing; n == 0 {
		t.Error("no stream met a crash")
	}
	h.idle(t)
}

// serving returns the worker that generates, or 0.
func (h *house) serving() uint64 {
	for _, l := range h.router.Loads() {
		if l.Requests > 0 && l.PrefillTokens == 0 {
			return l.Target.Worker
		}
	}
	return 0
}

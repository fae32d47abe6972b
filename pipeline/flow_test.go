package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// heard is what a gauge was told.
type heard struct {
	mu         sync.Mutex
	dispatched []time.Duration
	tokens     int
	spelling   bool // took some time
}

func (h *heard) Dispatched(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dispatched = append(h.dispatched, took)
}

func (h *heard) Detokenized(tokens int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens += tokens
	h.spelling = h.spelling || took > 0
}

// stages returns the stages in which requests are, and how many are with workers.
func stages(f *pipeline.Flow) string {
	var all []string
	f.Stages(func(stage, phase string, requests int) {
		if requests != 0 {
			all = append(all, strings.TrimSpace(fmt.Sprint(stage, " ", phase))+fmt.Sprint(" ", requests))
		}
	})
	return strings.Join(append(all, fmt.Sprint("inflight ", f.Inflight())), ", ")
}

// A request is in dispatch until the first item comes, with its worker until the last,
// and nowhere when it has ended, however it has.
func TestFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		var told heard
		h.Flow().Observe(&told)
		slow(f, h.ids(sentence)[:5])
		synctest.Wait()
		done := make(chan []chat.Event)
		go func() { done <- gather(t, h.Run(t.Context(), request("Hello"))) }()
		at := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := stages(h.Flow()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		at(0, "dispatch aggregated 1, inflight 1")
		at(299*time.Millisecond, "dispatch aggregated 1, inflight 1")
		at(2*time.Millisecond, "inflight 1")
		<-done
		at(0, "inflight 0")
		if len(told.dispatched) != 1 || told.dispatched[0] != 300*time.Millisecond || told.tokens != 5 {
			t.Errorf("told %+v", &told)
		}

		// One that leaves before it is answered, and one whose worker fails.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		f.generate = func(ctx context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			<-ctx.Done()
			yield(engine.Delta{}, ctx.Err())
		}
		for range h.Run(ctx, request("Hello")) {
		}
		f.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "broken"))
		}
		for range h.Run(t.Context(), request("Hello")) {
		}
		at(0, "inflight 0")
		if len(told.dispatched) != 1 {
			t.Errorf("those without an answer are told of: %v", told.dispatched)
		}
	})
}

// The time of spelling is that of all tokens, whoever looks at the clock.
func TestFlowOfSpelling(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	var told heard
	h.Flow().Observe(&told)
	f.generate = h.say(sentence, 1, engine.FinishEOS)
	for range 50 {
		gather(t, h.Run(t.Context(), request("Hello")))
	}
	if told.tokens != 50*len(h.ids(sentence)) || !told.spelling {
		t.Errorf("told %+v", &told)
	}
}

package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// learner is a policy that takes workers by turns, and writes down how requests
// ended.
type learner struct {
	mu   sync.Mutex
	turn int
	told []router.Outcome
}

func (l *learner) Pick(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	return (l.turn - 1) % len(c), nil
}

func (l *learner) Learn(o router.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, o)
}

// The router hears how each attempt ended: by the worker's fault, well, or
// because nobody wanted the rest.
func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		generate func(yield func(engine.Delta, error) bool)
		leave    bool // after the first token
		want     []router.End
		tokens   int
	}{
		"complete": {func(yield func(engine.Delta, error) bool) {
			if yield(engine.Delta{TokenIDs: []uint32{65}}, nil) {
				yield(engine.Delta{TokenIDs: []uint32{66}, Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: 1, Output: 2}}, nil)
			}
		}, false, []router.End{router.Completed}, 2},
		"the worker fails": {func(yield func(engine.Delta, error) bool) {
			yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
		}, false, []router.End{router.Failed, router.Failed}, 0},
		"the request is wrong": {func(yield func(engine.Delta, error) bool) {
			yield(engine.Delta{}, engine.Errorf(engine.InvalidArgument, "no"))
		}, false, []router.End{router.Abandoned}, 0},
		"the client leaves": {func(yield func(engine.Delta, error) bool) {
			for yield(engine.Delta{TokenIDs: []uint32{65}}, nil) {
			}
		}, true, []router.End{router.Abandoned}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &learner{}
			fakes := [2]*fake{}
			for i := range fakes {
				fakes[i] = &fake{generate: func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) { tc.generate(yield) }}
			}
			h := newHouseOf(t, pipeline.Config{MigrationLimit: 1}, router.Config{Policy: l}, fakes[0], fakes[1])
			for e, err := range h.Run(t.Context(), request("Hello")) {
				if tc.leave && e.Kind == chat.TextDelta || err != nil {
					break
				}
			}
			var ends []router.End
			for _, o := range l.told {
				ends = append(ends, o.End)
				if o.OutputTokens != tc.tokens || o.PromptTokens == 0 || (o.First > 0) != (tc.tokens > 0) {
					t.Errorf("%+v", o)
				}
			}
			if !slices.Equal(ends, tc.want) {
				t.Errorf("heard %v, want %v", ends, tc.want)
			}
			h.released(t)
		})
	}
}

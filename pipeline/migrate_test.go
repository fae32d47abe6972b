package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// breaks yields k tokens of what the engine would say, then the fault.
func (h *house) breaks(k int, fault *engine.Error) func(context.Context, *engine.Request, func(engine.Delta, error) bool) {
	say := h.say(sentence, 1, engine.FinishEOS)
	return func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		left := k
		say(ctx, r, func(d engine.Delta, err error) bool {
			if left--; left < 0 {
				yield(engine.Delta{}, fault)
				return false
			}
			return yield(d, err)
		})
	}
}

func TestMigration(t *testing.T) {
	fault := func(k engine.ErrorKind) *engine.Error { return engine.Errorf(k, "injected") }
	length := func(h *house) int { return len(h.ids(sentence)) }
	for name, tc := range map[string]struct {
		limit, maxTokens int
		// workers says after how many tokens each one fails with which kind; a
		// kind of "" is a worker that does not fail.
		workers  []failure
		once     bool // they fail their first request alone
		change   func(*pipeline.Request)
		features engine.Features

		attempts int
		want     engine.ErrorKind // "" = the whole sentence
		message  string
		counters pipeline.Counters
	}{
		"at the start":                      {limit: 3, workers: fails(0, engine.CannotConnect, 0, ""), attempts: 2, counters: pipeline.Counters{MigratedNew: 1}},
		"in the middle":                     {limit: 3, workers: fails(5, engine.Disconnected, 0, ""), attempts: 2, counters: pipeline.Counters{MigratedOngoing: 1}},
		"twice":                             {limit: 3, workers: fails(5, engine.Disconnected, 2, engine.EngineShutdown, 0, ""), attempts: 3, counters: pipeline.Counters{MigratedOngoing: 2}},
		"without a finish":                  {limit: 3, workers: fails(4, engine.StreamIncomplete, 0, ""), attempts: 2, counters: pipeline.Counters{MigratedOngoing: 1}},
		"not beyond the limit":              {limit: 1, workers: fails(2, engine.Disconnected, 2, engine.EngineShutdown, 0, ""), attempts: 2, want: engine.EngineShutdown, counters: pipeline.Counters{MigratedOngoing: 1}},
		"switched off":                      {limit: 0, workers: fails(0, engine.CannotConnect, 0, ""), attempts: 1, want: engine.CannotConnect},
		"no worker left":                    {limit: 3, workers: fails(1, engine.Disconnected, 1, engine.Disconnected), attempts: 2, want: engine.Unavailable, message: "no untried eligible worker remains after migration", counters: pipeline.Counters{MigratedOngoing: 2}},
		"all overloaded":                    {limit: 3, workers: fails(0, engine.WorkerOverloaded, 0, engine.WorkerOverloaded), attempts: 2, want: engine.ResourceExhausted, counters: pipeline.Counters{MigratedNew: 2}},
		"a refusal is final":                {limit: 3, workers: fails(0, engine.InvalidArgument, 0, ""), attempts: 1, want: engine.InvalidArgument},
		"denied elsewhere before an item":   {limit: 3, workers: fails(0, engine.Denied, 0, ""), attempts: 2, counters: pipeline.Counters{MigratedNew: 1}},
		"denied everywhere":                 {limit: 3, workers: fails(0, engine.Denied, 0, engine.Denied), attempts: 2, want: engine.Denied, counters: pipeline.Counters{MigratedNew: 2}},
		"and not after it":                  {limit: 3, workers: fails(1, engine.Denied, 0, ""), attempts: 1, want: engine.Denied},
		"refused on the way":                {limit: 3, workers: fails(2, engine.Disconnected, 0, engine.CannotConnect, 0, ""), attempts: 3, counters: pipeline.Counters{MigratedOngoing: 2}},
		"stale on the way":                  {limit: 3, workers: fails(2, engine.Disconnected, 0, engine.Stale, 0, ""), attempts: 3, counters: pipeline.Counters{MigratedOngoing: 2}},
		"denied behind a token of its own":  {limit: 3, workers: fails(2, engine.Disconnected, 1, engine.Denied, 0, ""), attempts: 2, want: engine.Denied, counters: pipeline.Counters{MigratedOngoing: 1}},
		"pinned stays":                      {limit: 3, workers: fails(0, engine.CannotConnect, 0, ""), change: pin(1), attempts: 1, want: engine.CannotConnect},
		"grown too long":                    {limit: 3, maxTokens: 10, workers: fails(2, engine.Disconnected, 0, ""), attempts: 1, want: engine.Disconnected, counters: pipeline.Counters{MigrationTooLong: 1}},
		"a new life costs no attempt":       {limit: 0, workers: fails(0, engine.Stale), once: true, attempts: 2, counters: pipeline.Counters{MigratedNew: 1}},
		"the second does":                   {limit: 0, workers: fails(0, engine.Stale), attempts: 2, want: engine.Stale, counters: pipeline.Counters{MigratedNew: 1}},
		"guided moves before the first":     {limit: 3, workers: fails(0, engine.Disconnected, 0, ""), change: guide, features: engine.Features{engine.FeatureGuidedObject}, attempts: 2, counters: pipeline.Counters{MigratedNew: 1}},
		"guided moves to who goes on":       {limit: 3, workers: fails(3, engine.Disconnected, 0, ""), change: guide, features: engine.Features{engine.FeatureGuidedObject, engine.FeatureContinues}, attempts: 2, counters: pipeline.Counters{MigratedOngoing: 1}},
		"guided stays where nobody is left": {limit: 3, workers: fails(3, engine.Disconnected), change: guide, features: engine.Features{engine.FeatureGuidedObject, engine.FeatureContinues}, attempts: 1, want: engine.Disconnected},
		"guided stays after the first item": {limit: 3, workers: fails(1, engine.Disconnected, 0, ""), change: guide, features: engine.Features{engine.FeatureGuidedObject}, attempts: 1, want: engine.Disconnected},
	} {
		t.Run(name, func(t *testing.T) {
			var fakes []*fake
			var engines []engine.Engine
			for range tc.workers {
				f := &fake{features: tc.features}
				fakes, engines = append(fakes, f), append(engines, f)
			}
			var moves []pipeline.Move
			h := newHouse(t, pipeline.Config{
				MigrationLimit: tc.limit, MigrationMaxTokens: tc.maxTokens, Moved: func(m pipeline.Move) { moves = append(moves, m) },
			}, engines...)
			say := h.say(sentence, 1, engine.FinishEOS)
			for i, w := range tc.workers {
				fakes[i].generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
					left := w.after
					fails := w.kind != "" && (!tc.once || len(fakes[i].sent()) == 1)
					say(ctx, r, func(d engine.Delta, err error) bool {
						if fails && left == 0 {
							yield(engine.Delta{}, fault(w.kind))
							return false
						}
						left--
						return yield(d, err)
					})
				}
			}
			r := request("Hello")
			if tc.change != nil {
				tc.change(r)
			}
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if tc.want != "" {
				if engine.KindOf(err) != tc.want {
					t.Errorf("error %v, want kind %s", err, tc.want)
				}
				if tc.message != "" && (err == nil || !contains(err, tc.message)) {
					t.Errorf("error %v, want %q", err, tc.message)
				}
			} else if err != nil {
				t.Error(err)
			} else {
				a := answers[0]
				if got := texts(answers)[0]; got != sentence || !slices.Equal(a.IDs, h.ids(sentence)) {
					t.Errorf("text %q", got)
				}
				if a.Usage.Prompt != r.Notes.PromptTokens || a.Usage.Output != length(h) {
					t.Errorf("usage %+v, want %d + %d", a.Usage, r.Notes.PromptTokens, length(h))
				}
			}
			var sent []*engine.Request
			for _, f := range fakes {
				sent = append(sent, f.sent()...)
			}
			if len(sent) != tc.attempts {
				t.Errorf("%d attempts, want %d", len(sent), tc.attempts)
			}
			var ends []pipeline.MoveEnd
			for _, m := range moves {
				ends = append(ends, m.End)
				if m.Model != "test/model" || m.Ongoing == (tc.workers[0].after == 0) {
					t.Errorf("told of %+v", m)
				}
			}
			if !slices.Equal(ends, movesOf[name]) {
				t.Errorf("told of moves %v, want %v", ends, movesOf[name])
			}
			if got := h.Counters(); got != tc.counters {
				t.Errorf("counters %+v, want %+v", got, tc.counters)
			}
			h.released(t)
		})
	}
}

// movesOf are the ends of the moves that are told of, by case.
var movesOf = map[string][]pipeline.MoveEnd{
	"at the start":                     {pipeline.MoveSuccess},
	"in the middle":                    {pipeline.MoveSuccess},
	"twice":                            {pipeline.MoveSuccess, pipeline.MoveSuccess},
	"without a finish":                 {pipeline.MoveSuccess},
	"not beyond the limit":             {pipeline.MoveSuccess},
	"no worker left":                   {pipeline.MoveSuccess, pipeline.MoveFailure},
	"all overloaded":                   {pipeline.MoveFailure},
	"denied everywhere":                {pipeline.MoveFailure},
	"denied elsewhere before an item":  {pipeline.MoveSuccess},
	"refused on the way":               {pipeline.MoveSuccess},
	"stale on the way":                 {pipeline.MoveSuccess},
	"denied behind a token of its own": {pipeline.MoveSuccess},
	"grown too long":                   {pipeline.MoveRefused},
	"a new life costs no attempt":      {pipeline.MoveSuccess},
	"the second does":                  {pipeline.MoveFailure},
	"guided moves before the first":    {pipeline.MoveSuccess},
	"guided moves to who goes on":      {pipeline.MoveSuccess},
}

// One choice among several moves before its first token, and not behind it.
func TestMigrationOfChoices(t *testing.T) {
	for after, want := range map[int]engine.ErrorKind{0: "", 1: engine.Disconnected} {
		a, b := &fake{}, &fake{}
		h := newHouse(t, pipeline.Config{MigrationLimit: 3}, a, b)
		a.generate = h.breaks(after, engine.Errorf(engine.Disconnected, "injected"))
		b.generate = h.say(sentence, 1, engine.FinishEOS)
		r := request("Hello")
		r.Chat.Sampling.N = 3
		var end error
		finished := 0
		for e, err := range h.Run(t.Context(), r) {
			if end != nil {
				t.Errorf("broken after %d: %+v, %v behind the error", after, e, err)
			}
			if end = err; e.Kind == chat.Finished {
				finished++
			}
		}
		if want == "" && (end != nil || finished != 3) || want != "" && engine.KindOf(end) != want {
			t.Errorf("broken after %d: %d answers, %v; want kind %q", after, finished, end, want)
		}
		if c := h.Counters(); c.MigratedOngoing != 0 || (c.MigratedNew == 3) != (want == "") {
			t.Errorf("broken after %d: %+v", after, c)
		}
		h.released(t)
	}
}

type failure = struct {
	after int
	kind  engine.ErrorKind
}

// fails pairs up numbers of tokens and kinds of faults.
func fails(pairs ...any) (list []failure) {
	for i := 0; i < len(pairs); i += 2 {
		kind, ok := pairs[i+1].(engine.ErrorKind)
		if !ok {
			kind = engine.ErrorKind(pairs[i+1].(string))
		}
		list = append(list, failure{pairs[i].(int), kind})
	}
	return list
}

func pin(worker uint64) func(*pipeline.Request) {
	return func(r *pipeline.Request) {
		id := nvext.WorkerID(worker)
		r.Ext = &nvext.Ext{Placement: nvext.Placement{BackendInstanceID: &id}}
	}
}

func guide(r *pipeline.Request) { r.Chat.Output.Kind = chat.FormatJSONObject }

// Numbers that count tokens shrink by what was delivered, and an answer that
// was complete but for its end needs no other worker.
func TestMigrationCountsTokens(t *testing.T) {
	a, b := &fake{}, &fake{}
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, a, b)
	a.generate = h.breaks(4, engine.Errorf(engine.Disconnected, "injected"))
	b.generate = a.generate
	limit := 4
	r := request("Hello")
	r.Chat.Sampling.MaxTokens, r.Chat.Sampling.MinTokens = &limit, 3
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || answers[0].Finish.Reason != chat.FinishLength || answers[0].Usage.Output != 4 {
		t.Fatalf("%+v, error %v", answers, err)
	}
	if len(b.sent())+len(a.sent()) != 1 {
		t.Error("another worker was asked for an answer that was complete")
	}

	a, b = &fake{}, &fake{}
	h = newHouse(t, pipeline.Config{MigrationLimit: 3}, a, b)
	limit = 6
	a.generate = h.breaks(2, engine.Errorf(engine.Disconnected, "injected"))
	b.generate = a.generate
	if _, err = chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("error %v", err)
	}
	var second *engine.Request
	for _, s := range append(a.sent(), b.sent()...) {
		if s.ID == r.ID+"-2" {
			second = s
		}
	}
	if second == nil || second.Stop.MaxTokens != 4 || second.Stop.MinTokens != 1 || second.Answered != 2 {
		t.Fatalf("second attempt %+v", second)
	}
	if n := len(second.TokenIDs); !slices.Equal(second.TokenIDs[n-2:], h.ids(sentence)[:2]) {
		t.Error("the second attempt does not carry what was delivered")
	}
}

// A worker that is taken away under a stream is like one that fails.
func TestWorkerLost(t *testing.T) {
	a, b := &fake{}, &fake{}
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, a, b)
	say := h.say(sentence, 1, engine.FinishEOS)
	for _, f := range []*fake{a, b} {
		f.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			first := len(a.sent())+len(b.sent()) == 1
			n := 0
			say(ctx, r, func(d engine.Delta, err error) bool {
				if n++; first && n == 3 {
					<-ctx.Done()
					yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
					return false
				}
				return yield(d, err)
			})
		}
	}
	text, seen := "", 0
	for e, err := range h.Run(t.Context(), request("Hello")) {
		if err != nil {
			t.Fatal(err)
		}
		text += e.Text
		if e.Kind == chat.TextDelta {
			if seen++; seen == 2 {
				serving := uint64(1)
				if len(b.sent()) > 0 {
					serving = 2
				}
				go h.fleet.Remove(serving)
			}
		}
	}
	if text != sentence {
		t.Errorf("text %q", text)
	}
	h.released(t)
}

// A session stays with the worker that its request has moved to.
func TestSessionFollowsItsRequest(t *testing.T) {
	a, b := &fake{}, &fake{}
	h := newHouseOf(t, pipeline.Config{MigrationLimit: 3}, router.Config{Mode: router.RoundRobin, SessionTTL: time.Minute}, a, b)
	say := h.say(sentence, 1, engine.FinishEOS)
	failed := uint64(0)
	for i, f := range []*fake{a, b} {
		f.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			if failed == 0 {
				failed = uint64(i + 1)
				yield(engine.Delta{}, engine.Errorf(engine.WorkerOverloaded, "injected")) // which inhibits nobody
				return
			}
			say(ctx, r, yield)
		}
	}
	for n := range 4 {
		r := request("Hello")
		r.Identity.Key = "session"
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		if r.Notes.Target.Worker != 3-failed {
			t.Errorf("request %d went to %d, and %d had failed", n, r.Notes.Target.Worker, failed)
		}
	}
	h.released(t)
}

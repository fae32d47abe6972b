package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/guided/mask"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// An answer in the middle of its form goes only to who reads what it has so far.
func TestFormsGoOn(t *testing.T) {
	goesOn := engine.Features{engine.FeatureGuidedObject, engine.FeatureContinues}
	var engines []engine.Engine
	var fakes []*fake
	for _, features := range []engine.Features{goesOn, {engine.FeatureGuidedObject}, {engine.FeatureContinues}, goesOn} {
		f := &fake{features: features}
		fakes, engines = append(fakes, f), append(engines, f)
	}
	h := newHouseOf(t, pipeline.Config{MigrationLimit: 3}, router.Config{Mode: router.RoundRobin}, engines...)
	say := h.say(sentence, 1, engine.FinishEOS)
	for _, f := range fakes {
		f.generate = say
	}
	first := -1
	for _, i := range []int{0, 3} {
		fakes[i].generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			left := -1
			if first < 0 {
				first, left = i, 5
			}
			say(ctx, r, func(d engine.Delta, err error) bool {
				if left == 0 {
					yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "injected"))
					return false
				}
				left--
				return yield(d, err)
			})
		}
	}
	for first < 0 {
		r := request("Hello")
		guide(r)
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil || texts(answers)[0] != sentence {
			t.Fatalf("%q, %v", texts(answers), err)
		}
	}
	sent := fakes[3-first].sent()
	if len(sent) == 0 {
		t.Fatal("the other one was sent nothing")
	}
	if last := sent[len(sent)-1]; last.Answered != 5 || last.Format == nil {
		t.Errorf("the other one was sent %+v", last)
	}
	h.released(t)
}

// talking is a model of the vocabulary that these tests speak.
var talking = sync.OnceValues(func() (*llama.Model, error) {
	model, err := demoModel()
	if err != nil {
		return nil, err
	}
	return llama.Random(llama.Config{
		Vocab: model.Tokenizer.Size(), Width: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadSize: 8, Hidden: 24,
		Context: 1024, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1), nil
})

var spelled = sync.OnceValues(func() (*mask.Vocabulary, error) {
	model, err := demoModel()
	if err != nil {
		return nil, err
	}
	return tiny.Vocabulary(model.Tokenizer, model.Tokenizer.Size(), model.EOS)
})

// newTalkers makes engines with a model in them, of these roles.
func newTalkers(t testing.TB, roles ...string) (list []*shaky) {
	t.Helper()
	demo, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	model, err := talking()
	if err != nil {
		t.Fatal(err)
	}
	v, err := spelled()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*tiny.Engine{}
	for i, role := range roles {
		o := tiny.Options{Name: "test/model", Model: model, Args: tiny.DefaultArgs(model), EOS: demo.EOS, ID: fmt.Sprint(role, i), Vocabulary: v}
		o.Args.WorkerType, o.Args.NumGPUBlocks = role, 200
		o.Pull = mock.Pull{Address: func() string { return o.ID }, Dial: func(_ context.Context, name string) (engine.Puller, func(), error) {
			return byName[name], func() {}, nil
		}}
		e, err := tiny.New(o)
		if err != nil {
			t.Fatal(err)
		}
		byName[o.ID] = e
		list = append(list, &shaky{Engine: e.Engine})
	}
	return list
}

// A request that is moved at any token, as often as may be, and in one leg or in two, is
// answered with what one worker answers, however its tokens are chosen and whatever their
// form: token for token, and each as likely.
func TestMovesChangeNothing(t *testing.T) {
	moved := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		ask := anySampling(rt)
		whole := newHouse(check{t, rt}, pipeline.Config{}, newTalkers(check{t, rt}, "aggregated")[0])
		want, err := chat.Fold(whole.Run(t.Context(), ask()))
		if err != nil {
			rt.Fatal(err)
		}
		roles := []string{"aggregated", "aggregated", "aggregated"}
		if rapid.Bool().Draw(rt, "two legs") {
			roles = []string{"prefill", "prefill", "decode", "decode", "decode"}
		}
		list := newTalkers(check{t, rt}, roles...)
		var engines []engine.Engine
		for _, e := range list {
			engines = append(engines, e)
		}
		h := newHouse(check{t, rt}, pipeline.Config{MigrationLimit: 2}, engines...)
		// The first requests that may fail do so.
		faults := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 2).Draw(rt, "moves after")
		var mu sync.Mutex
		for _, e := range list {
			e.failing = func(_ int, r *engine.Request) *failing {
				mu.Lock()
				defer mu.Unlock()
				if r.Disagg.Phase == engine.PhasePrefill || len(faults) == 0 {
					return nil
				}
				f := &failing{after: faults[0], kind: engine.EngineShutdown}
				faults = faults[1:]
				return f
			}
		}
		got, err := chat.Fold(h.Run(t.Context(), ask()))
		if err != nil {
			rt.Fatal(err)
		}
		moved += h.Counters().MigratedOngoing
		a, b := &got[0], &want[0]
		if !slices.Equal(a.IDs, b.IDs) || a.Finish.Reason != b.Finish.Reason || a.Usage.Output != b.Usage.Output {
			rt.Fatalf("%v, %s, %+v; want %v, %s, %+v", a.IDs, a.Finish.Reason, a.Usage, b.IDs, b.Finish.Reason, b.Usage)
		}
		if d := cmp.Diff(b.Logprobs, a.Logprobs); d != "" {
			rt.Fatalf("log probabilities: -want +got\n%s", d)
		}
	})
	t.Logf("%d moves", moved)
}

// anySampling draws a request, which is made anew at each call.
func anySampling(t *rapid.T) func() *pipeline.Request {
	text := strings.Repeat("word ", rapid.IntRange(1, 30).Draw(t, "words"))
	s := chat.Sampling{
		Temperature:      new(rapid.SampledFrom([]float64{0, 1}).Draw(t, "temperature")),
		FrequencyPenalty: new(rapid.SampledFrom([]float64{-1, 0, 2}).Draw(t, "frequency")),
		PresencePenalty:  new(rapid.SampledFrom([]float64{0, 1}).Draw(t, "presence")),
		Seed:             new(rapid.Int64().Draw(t, "seed")),
		MaxTokens:        new(rapid.IntRange(1, 40).Draw(t, "tokens")),
		Logprobs:         new(3),
	}
	s.MinTokens = rapid.IntRange(0, *s.MaxTokens).Draw(t, "at least")
	output := rapid.SampledFrom([]chat.OutputFormat{
		{Kind: chat.FormatText}, {Kind: chat.FormatJSONObject}, {Kind: chat.FormatRegex, Pattern: "(ab|cd){2,8}[0-9]+"},
	}).Draw(t, "form")
	return func() *pipeline.Request {
		r := request(text)
		r.Chat.Sampling, r.Chat.Output = s, output
		return r
	}
}

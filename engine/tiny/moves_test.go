package tiny_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/guided/mask"
)

// TestMovesChangeNothing holds what [engine.Request.Answered] is for: an answer that goes
// on elsewhere, at whatever token and however often, in one leg or in two, is the one that
// a single worker gives, with the likelihoods of its tokens and with its end, or the error
// that it comes to. That is so for draws, penalties, bad words, ends that are held back,
// and forms. One of the workers is behind a socket.
//
// It has been seen to fail for each of these changes to the code, one at a time:
//
//	what was answered is not told, or does not go over the wire
//	the sampler takes it for prompt, or does not hear of it
//	a form begins anew, or forgets that it has come to its end
func TestMovesChangeNothing(t *testing.T) {
	whole, one, two := talker(t, "alone"), talker(t, "one"), serve(t, talker(t, "two"))
	prefill := talker(t, "prefill", func(o *tiny.Options) { o.Pull.Address = func() string { return "here" } })
	decode := talker(t, "decode", func(o *tiny.Options) {
		o.Pull.Dial = func(context.Context, string) (engine.Puller, func(), error) { return prefill, func() {}, nil }
	})
	moves, ends := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		for choice := range rapid.IntRange(1, 3).Draw(t, "choices") {
			r := r
			name := fmt.Sprintf("u.%d", choice)
			if r.Sampling.Seed != nil {
				r.Sampling.Seed = new(*r.Sampling.Seed + int64(choice))
			}
			r.ID = name + "-1"
			want := said{}
			want.by(whole, &r, r.Stop.MaxTokens)
			ends[want.kind()]++
			got := said{}
			for attempt := 1; !got.over(&r); attempt++ {
				rest := r
				rest.ID = fmt.Sprintf("%s-%d", name, attempt)
				rest.TokenIDs, rest.Answered = slices.Concat(r.TokenIDs, ids(got.steps)), len(got.steps)
				rest.Stop.MaxTokens -= len(got.steps)
				rest.Stop.MinTokens = max(0, rest.Stop.MinTokens-len(got.steps))
				until := rest.Stop.MaxTokens
				if rapid.Bool().Draw(t, "moves") {
					until = rapid.IntRange(0, until-1).Draw(t, "after")
					moves++
				}
				switch rapid.IntRange(0, 2).Draw(t, "to") {
				case 0:
					got.by(one, &rest, until)
				case 1:
					got.by(two, &rest, until)
				case 2:
					got.byLegs(t, prefill, decode, &rest, until)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("choice %d: moved it is\n%+v, want\n%+v", choice, got, want)
			}
		}
	})
	t.Logf("%d moves, ends %v", moves, ends)
}

// said is what came of a request so far.
type said struct {
	steps   []step
	finish  engine.Finish
	matched []uint32
	err     string
}

func (s *said) kind() string {
	if s.err != "" {
		return "error"
	}
	return string(s.finish)
}

func (s *said) fail(err error) {
	s.err = err.Error()
	if e, ok := errors.AsType[*engine.Error](err); ok {
		s.err = fmt.Sprintf("%s of %q: %s", e.Kind, e.Param, e.Message)
	}
}

// over says whether nothing more will come, and ends what has all its tokens.
func (s *said) over(r *engine.Request) bool {
	if s.kind() == "" && len(s.steps) >= r.Stop.MaxTokens {
		s.finish = engine.FinishLength
	}
	return s.kind() != ""
}

// by lets an engine say so many tokens more.
func (s *said) by(e engine.Engine, r *engine.Request, most int) {
	if most == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	given := 0
	for d, err := range e.Generate(ctx, r) {
		if err != nil {
			s.fail(err)
			return
		}
		n := min(len(d.TokenIDs), most-given)
		if s.steps = append(s.steps, d.Logprobs[:n]...); n < len(d.TokenIDs) {
			return
		}
		if given += n; d.Finish != engine.Running {
			s.finish, s.matched = d.Finish, d.MatchedIDs
			return
		}
		if given == most && most < r.Stop.MaxTokens {
			return
		}
	}
}

// byLegs is by for two engines, as the pipeline has them do it.
func (s *said) byLegs(t *rapid.T, prefill, decode *tiny.Engine, r *engine.Request, most int) {
	if r.Stop.MaxTokens == 1 {
		s.by(prefill, r, most)
		return
	}
	h, err := prefill.Prepare(context.Background(), engine.HandoffQuery{Request: r.ID})
	if err != nil {
		t.Fatal(err)
	}
	defer prefill.Release(context.Background(), h.ID) //nolint:errcheck // never fails
	first := *r
	first.Stop.MaxTokens, first.Stop.MinTokens = 1, min(r.Stop.MinTokens, 1)
	first.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	second := *r
	second.Disagg.Phase = engine.PhaseDecode
	for d, err := range prefill.Generate(context.Background(), &first) {
		if err != nil {
			s.fail(err)
			return
		}
		if second.Disagg.Handoff = d.Handoff; d.Finish != engine.Running && d.Finish != engine.FinishLength && most > 0 {
			s.steps, s.finish, s.matched = append(s.steps, d.Logprobs...), d.Finish, d.MatchedIDs
			return
		}
	}
	s.by(decode, &second, most)
}

const finis = 1

// talker is an engine whose model has few tokens, of which JSON can be made.
// Its end is finis.
func talker(t *testing.T, name string, change ...func(*tiny.Options)) *tiny.Engine {
	t.Helper()
	v, err := mask.NewVocabulary(pieces())
	if err != nil {
		t.Fatal(err)
	}
	o := tiny.Options{Name: "tiny", Model: talking(), Args: tiny.DefaultArgs(talking()), EOS: []uint32{finis}, ID: name, Vocabulary: v}
	o.Args.BlockSize, o.Args.NumGPUBlocks = 4, 200
	switch name {
	case "prefill", "decode":
		o.Args.WorkerType = name
	}
	for _, c := range change {
		c(&o)
	}
	e, err := tiny.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

var pieces = sync.OnceValue(func() mask.Tokens {
	v := mask.Tokens{Ends: []uint32{finis}, Bytes: make([][]byte, finis+1)}
	for _, b := range []byte(`{}[]",: -0123456789abcdegilnorstuz`) {
		v.Bytes = append(v.Bytes, []byte{b})
	}
	for _, piece := range []string{`{"`, `":`, `",`, "red", "green", "colour", "sizes", "12"} {
		v.Bytes = append(v.Bytes, []byte(piece))
	}
	return v
})

var talking = sync.OnceValue(func() *llama.Model {
	return llama.Random(llama.Config{
		Vocab: len(pieces().Bytes), Width: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadSize: 8, Hidden: 24,
		Context: 128, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1)
})

// anyRequest draws a request, whatever it asks of its answer.
func anyRequest(t *rapid.T) engine.Request {
	id := rapid.Uint32Range(0, uint32(len(pieces().Bytes)-1))
	number := func(name string, values ...float64) *float64 {
		if rapid.IntRange(0, 2).Draw(t, "with "+name) == 0 {
			return nil
		}
		return new(rapid.SampledFrom(values).Draw(t, name))
	}
	r := engine.Request{
		TokenIDs: rapid.SliceOfN(id, 1, 20).Draw(t, "prompt"), Logprobs: new(20),
		Sampling: engine.Sampling{
			Temperature: new(rapid.SampledFrom([]float64{0, 0.6, 1, 3}).Draw(t, "temperature")),
			TopP:        number("top_p", 0.5, 0.95), MinP: number("min_p", 0.02, 0.2),
			FrequencyPenalty: number("frequency", -1, 0.3, 2), PresencePenalty: number("presence", -1, 0.5, 2),
			RepetitionPenalty: number("repetition", 0.7, 1.3),
		},
	}
	if k := rapid.IntRange(-1, 10).Draw(t, "top_k"); k > 0 {
		r.Sampling.TopK = &k
	}
	if rapid.Bool().Draw(t, "with a seed") {
		r.Sampling.Seed = new(rapid.Int64().Draw(t, "seed"))
	}
	if rapid.IntRange(0, 3).Draw(t, "bad words") == 0 {
		r.Sampling.BadWords = rapid.SliceOfN(rapid.SliceOfN(id, 1, 3), 1, 4).Draw(t, "words")
	}
	if rapid.IntRange(0, 3).Draw(t, "biases") == 0 {
		r.Sampling.LogitBias = rapid.MapOfN(id, rapid.Float64Range(-5, 5), 1, 4).Draw(t, "bias")
	}
	if rapid.IntRange(0, 7).Draw(t, "a list") == 0 {
		r.Sampling.AllowedIDs = rapid.SliceOfN(id, 1, 10).Draw(t, "allowed")
	}
	r.Stop.MaxTokens = rapid.IntRange(1, 40).Draw(t, "tokens")
	r.Stop.MinTokens = rapid.IntRange(0, r.Stop.MaxTokens).Draw(t, "at least")
	if rapid.Bool().Draw(t, "ends") {
		r.Stop.Hidden = []uint32{finis}
	}
	r.Stop.IDs = rapid.SliceOfN(id, 0, 2).Draw(t, "stops")
	switch rapid.IntRange(0, 5).Draw(t, "form") {
	case 1:
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(schema)}
	case 2:
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject}
	case 3:
		r.Format = &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `[a-e]{3,9}-(red|green)+`}
	case 4:
		r.Format = &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"red", "green", "redder"}}
	}
	return r
}

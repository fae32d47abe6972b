package mock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// An answer is the same however it is cut into attempts: whoever sends prompt
// and delivered tokens gets the rest, and its end where it was. An echo, and what has a
// form, must be told which are which.
func TestAnswersGoOn(t *testing.T) {
	for _, source := range []mock.Source{mock.SourceText, mock.SourceRandom, mock.SourceEcho} {
		t.Run(string(source), func(t *testing.T) {
			e := open(t, mock.Config{Source: source, Encode: encodeBytes, EOS: []uint32{eos}, Seed: 3})
			rapid.Check(t, func(t *rapid.T) {
				seed := rapid.Int64Range(0, 3).Draw(t, "seed")
				r := &engine.Request{
					// Few different ids, so that prompts often end like the
					// beginning of an answer.
					TokenIDs: rapid.SliceOfN(rapid.SampledFrom(encodeBytes(nil, "TIAO nthe")), 1, 12).Draw(t, "prompt"),
					ID:       rapid.SampledFrom([]string{"u-1", "v.3-1"}).Draw(t, "id"),
					Stop: engine.Stop{
						MaxTokens: rapid.IntRange(2, 300).Draw(t, "max"),
						MinTokens: rapid.IntRange(0, 250).Draw(t, "min"),
					},
				}
				if rapid.Bool().Draw(t, "seeded") {
					r.Sampling.Seed = &seed
				}
				if rapid.Bool().Draw(t, "ends") {
					r.Stop.Hidden = []uint32{eos}
				}
				told := source == mock.SourceEcho || rapid.Bool().Draw(t, "told")
				if told && rapid.Bool().Draw(t, "formed") {
					r.Format = forms[rapid.SampledFrom([]engine.Feature{engine.FeatureGuidedObject, engine.FeatureGuidedJSON, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice}).Draw(t, "form")]
				}
				whole := run(t, e, r)
				for k := 0; k+1 < len(whole); k += rapid.IntRange(1, 60).Draw(t, "tokens") {
					rest := *r
					rest.ID = strings.TrimSuffix(r.ID, "1") + "2"
					rest.TokenIDs = append(slices.Clone(r.TokenIDs), whole[:k]...)
					if told {
						rest.Answered = k
					}
					rest.Stop.MaxTokens -= k
					rest.Stop.MinTokens = max(0, r.Stop.MinTokens-k)
					if got := run(t, e, &rest); !slices.Equal(got, whole[k:]) {
						t.Fatalf("after %d tokens: %q, want %q", k, decodeBytes(got), decodeBytes(whole[k:]))
					}
				}
			})
		})
	}
}

// What is sampled differs from choice to choice, unless a seed or greed says
// otherwise; the attempts at one choice never differ.
func TestSampling(t *testing.T) {
	for _, source := range []mock.Source{mock.SourceText, mock.SourceRandom} {
		e := open(t, mock.Config{Source: source, Encode: encodeBytes})
		answer := func(id string, temperature *float64, seed *int64) string {
			r := &engine.Request{ID: id, TokenIDs: ids(1, 9), Stop: engine.Stop{MaxTokens: 60}, Sampling: engine.Sampling{Temperature: temperature, Seed: seed}}
			var all []uint32
			for d, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, d.TokenIDs...)
			}
			return fmt.Sprint(all)
		}
		zero, hot, seven, eight := 0.0, 1.5, int64(7), int64(8)
		for _, tc := range []struct {
			name string
			a, b string
			same bool
		}{
			{"choices", answer("u-1", nil, nil), answer("u.1-1", nil, nil), false},
			{"choices at a temperature", answer("u-1", &hot, nil), answer("u.1-1", &hot, nil), false},
			{"requests", answer("u-1", nil, nil), answer("v-1", nil, nil), false},
			{"attempts", answer("u.1-1", nil, nil), answer("u.1-2", nil, nil), true},
			{"seeds", answer("u-1", nil, &seven), answer("u-1", nil, &eight), false},
			{"one seed", answer("u-1", nil, &seven), answer("v.1-1", &hot, &seven), true},
			{"greedy", answer("u-1", &zero, nil), answer("v.1-1", &zero, nil), true},
			{"greedy, seeds", answer("u-1", &zero, &seven), answer("u-1", &zero, &eight), true},
		} {
			if (tc.a == tc.b) != tc.same {
				t.Errorf("%s, %s: %s and %s, want the same: %v", source, tc.name, tc.a, tc.b, tc.same)
			}
		}
	}
}

func run(t *rapid.T, e *mock.Engine, r *engine.Request) (ids []uint32) {
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.TokenIDs...)
	}
	return ids
}

func TestTextEndsByItself(t *testing.T) {
	e := open(t, mock.Config{Encode: encodeWords(), EOS: []uint32{eos}})
	for i := range uint32(50) {
		r := ask()
		r.TokenIDs = []uint32{i, 2}
		n := 0
		for d, err := range e.Generate(context.Background(), r) {
			if err != nil {
				t.Fatal(err)
			}
			n += len(d.TokenIDs)
			if d.Finish == engine.FinishLength {
				t.Errorf("prompt %d: no end within %d tokens", i, n)
			}
		}
		if n < 30 || n > 120 {
			t.Errorf("prompt %d: an answer of %d tokens, want 30 to 120", i, n)
		}
	}
}

// A tokenizer that has nothing for plain words is no fault: other ids stand there.
func TestNoWords(t *testing.T) {
	e := open(t, mock.Config{Encode: func(dst []uint32, _ string) []uint32 { return dst }, EOS: []uint32{eos}, Source: mock.SourceText})
	r, k := ask(), 2
	r.Logprobs, r.Stop = &k, engine.Stop{MaxTokens: 9}
	var ids []uint32
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatal(err)
		}
		for _, lp := range d.Logprobs {
			if len(lp.Top) != k {
				t.Errorf("%d alternatives, want %d", len(lp.Top), k)
			}
		}
		ids = append(ids, d.TokenIDs...)
	}
	if len(ids) != 9 {
		t.Errorf("got %v, want 9 ids", ids)
	}
}

// encodeWords gives one id to each word, which is about what real tokenizers
// make of this text.
func encodeWords() func([]uint32, string) []uint32 {
	known := map[string]uint32{}
	return func(dst []uint32, text string) []uint32 {
		for _, w := range strings.Fields(text) {
			if _, ok := known[w]; !ok {
				known[w] = uint32(1000 + len(known))
			}
			dst = append(dst, known[w])
		}
		return dst
	}
}

func TestEcho(t *testing.T) {
	e := open(t, mock.Config{Source: mock.SourceEcho, EOS: []uint32{eos}})
	r := ask()
	r.TokenIDs = encodeBytes(nil, "hello")
	if got, finish := reply(t, e, r); got != "hello" || finish != engine.FinishEOS {
		t.Errorf("got %q, %s", got, finish)
	}
}

// A stream that nobody reads is merged, not dropped, and has at most 64 deltas.
func TestSlowConsumerGetsFewDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{})
		n, deltas := 0, 0
		for d, err := range e.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 5000}}) {
			if err != nil {
				t.Fatal(err)
			}
			if deltas == 0 {
				time.Sleep(10 * time.Second) // in the bubble: until all is generated
			}
			n += len(d.TokenIDs)
			deltas++
		}
		// What came before the pause was taken already.
		if most := 64 + 2*mock.Burst; n != 5000 || deltas > most {
			t.Errorf("%d tokens in %d deltas, want 5000 in at most %d", n, deltas, most)
		}
	})
}

func TestTimeIsTheModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{}, func(a *mock.Args) {
			a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS = 2, "constant", 100, 10
		})
		time.Sleep(time.Hour)
		begin := time.Now()
		var at []time.Duration
		for range e.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 4}}) {
			at = append(at, time.Since(begin))
		}
		const ms = time.Millisecond
		if want := []time.Duration{50 * ms, 55 * ms, 60 * ms, 65 * ms}; !slices.Equal(at, want) {
			t.Errorf("tokens at %v, want %v", at, want)
		}
	})
}

// A restart ends the pass that is waited for, and lifts a drain.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{}, func(a *mock.Args) {
			a.SpeedupRatio, a.TimingModel, a.PrefillMS = 1, "constant", 10_000
		})
		r := &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}}
		begin := time.Now()
		go func() {
			if _, _, err := listen(e, r); engine.KindOf(err) != engine.EngineShutdown || time.Since(begin) != time.Second {
				t.Errorf("the stream ended after %v with %v, want engine_shutdown after 1 s", time.Since(begin), err)
			}
		}()
		time.Sleep(time.Second)
		e.Drain()
		if _, _, err := listen(e, r); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("draining: %v, want unavailable", err)
		}
		e.Restart()
		if _, _, err := listen(e, r); err != nil || time.Since(begin) != 11*time.Second {
			t.Errorf("after the restart: %v at %v, want an answer at 11 s", err, time.Since(begin))
		}
	})
}

// However many restarts come at once, and whoever dies of them, all ranks are in
// the life that the card tells.
func TestRestartsAtOnce(t *testing.T) {
	e := scripted(t, "default: {emit: abcdef, cut: {after: 2, as: death}}", func(a *mock.Args) { a.DPSize = 3 })
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 100 {
				e.Restart()
				listen(e, ask(turn(chat.RoleUser, said("x"))))
			}
		})
	}
	work.Wait()
	e.Restart() // waits for one that is under way
	for rank := range uint32(3) {
		r := ask(turn(chat.RoleUser, said("x")))
		r.DPRank, r.Epoch, r.Stop.MaxTokens = &rank, e.Epoch(), 1
		if _, _, err := listen(e, r); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Streams that a script kills in one pass die of one death.
func TestOneDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := scripted(t, "default: {emit: abcdef, pace: {itl: 1s}, cut: {after: 2, as: death}}", func(a *mock.Args) { a.DPSize = 2 })
		var streams sync.WaitGroup
		for range 4 {
			streams.Go(func() { listen(e, ask(turn(chat.RoleUser, said("x")))) })
		}
		streams.Wait()
		synctest.Wait()
		// A second one at the same moment would have got the next number.
		if now := uint64(time.Now().UnixNano()); e.Epoch() != now {
			t.Errorf("epoch %d, want that of the one death, %d", e.Epoch(), now)
		}
	})
}

func TestStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{}, func(a *mock.Args) { a.StartupTime = 3 })
		r := &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}}
		if _, _, err := listen(e, r); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("while starting: %v, want unavailable", err)
		}
		begin := time.Now()
		var seen []engine.State
		for st := range e.Card(t.Context()) {
			if seen = append(seen, st.State); st.State == engine.Ready {
				break
			}
		}
		if want := []engine.State{engine.Loading, engine.Ready}; !slices.Equal(seen, want) || time.Since(begin) != 3*time.Second {
			t.Errorf("states %v over %v", seen, time.Since(begin))
		}
		if _, _, err := listen(e, r); err != nil {
			t.Error(err)
		}
	})
}

func TestRanksTakeTurns(t *testing.T) {
	e := open(t, mock.Config{}, func(a *mock.Args) { a.DPSize = 3 })
	r := &engine.Request{TokenIDs: ids(1, 17), Stop: engine.Stop{MaxTokens: 1}}
	for range 4 {
		listen(e, r)
	}
	two := uint32(2)
	r.DPRank = &two
	r.TokenIDs = ids(100, 33)
	listen(e, r)
	var blocks []int
	for i := range uint32(3) {
		n := 0
		stored, _ := e.Cache(i)
		for _, ev := range stored {
			n += len(ev.Blocks)
		}
		blocks = append(blocks, n)
	}
	if want := []int{1, 1, 3}; !slices.Equal(blocks, want) {
		t.Errorf("blocks by rank: %v, want %v", blocks, want)
	}
	three := uint32(3)
	r.DPRank = &three
	if _, _, err := listen(e, r); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("rank 3 of 3: %v", err)
	}
}

// fill makes the cache of e change n times: each prompt stores one block.
func fill(t *testing.T, e *mock.Engine, from, n int) {
	t.Helper()
	for i := range n {
		r := &engine.Request{TokenIDs: ids(uint32(100*(from+i)), 17), Stop: engine.Stop{MaxTokens: 1}}
		if _, _, err := listen(e, r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEventsBeyondTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{}, func(a *mock.Args) { a.NumGPUBlocks = 64 })
		type told struct {
			gap    kv.GapReason
			part   kv.Snapshot
			last   uint64
			events int
		}
		var got []told
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for b := range e.Events(ctx, nil) {
				got = append(got, told{b.Gap, b.Snapshot, b.Last, len(b.Events)})
				if b.Last == 1 {
					time.Sleep(time.Minute) // too slow
				}
			}
		}()
		synctest.Wait()
		fill(t, e, 0, 1)
		synctest.Wait()
		fill(t, e, 1, 3000)
		time.Sleep(time.Minute + 6*time.Second)
		synctest.Wait()
		cancel()
		<-done
		stored, last := e.Cache(0)
		want := []told{
			{part: kv.SnapshotEnd}, // the fresh reader's, which is empty
			{last: 1, events: 1},
			{gap: kv.GapOverflow},
			{part: kv.SnapshotPart, events: len(stored)},
			{part: kv.SnapshotEnd, last: last},
			{last: last}, // nothing new for 5 s
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %v\nwant %v", got, want)
		}
		for b := range e.Events(t.Context(), []kv.Cursor{{Epoch: e.Epoch(), Sequence: 1}}) {
			if b.Gap != kv.GapTooOld {
				t.Errorf("from 1 on, after %d events: %+v, want a gap", last, b)
			}
			break
		}
	})
}

// What restarts, preemption, eviction and cancellation leave is what events say.
func TestEventsFoldUnderChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, mock.Config{}, func(a *mock.Args) { a.NumGPUBlocks, a.BlockSize = 24, 4 })
		cache := make(cacheView)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for b := range e.Events(ctx, nil) {
				if b.Gap != "" {
					clear(cache)
				}
				if err := cache.apply(b.Events); err != nil {
					t.Error(err)
				}
			}
		}()
		var work sync.WaitGroup
		for w := range 4 {
			work.Go(func() {
				for i := range 190 {
					r := &engine.Request{TokenIDs: ids(uint32(1000*(i%7)), 5+(i*w)%40), Stop: engine.Stop{MaxTokens: 1 + i%30}}
					for range e.Generate(ctx, r) {
						if i%5 == 0 {
							break
						}
					}
					if w == 0 && i%50 == 49 {
						e.Restart()
					}
				}
			})
		}
		work.Wait()
		fill(t, e, 900, 1)
		synctest.Wait()
		cancel()
		<-done
		stored, _ := e.Cache(0)
		truth := make(cacheView)
		if err := truth.apply(stored); err != nil {
			t.Fatal(err)
		}
		if len(truth) == 0 || !reflect.DeepEqual(cache, truth) {
			t.Errorf("events fold to %d blocks, %d are there", len(cache), len(truth))
		}
	})
}

func TestRefusals(t *testing.T) {
	e := open(t, mock.Config{VocabSize: 2000}, func(a *mock.Args) { a.NumGPUBlocks = 10 })
	good := engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}}
	k := 21
	for name, tc := range map[string]struct {
		change func(*engine.Request)
		kind   engine.ErrorKind
		code   string // or the field at fault
	}{
		"empty prompt":     {func(r *engine.Request) { r.TokenIDs = nil }, engine.InvalidArgument, ""},
		"no output":        {func(r *engine.Request) { r.Stop.MaxTokens = 0 }, engine.InvalidArgument, ""},
		"too long":         {func(r *engine.Request) { r.Stop.MaxTokens = 160 }, engine.InvalidArgument, "context_length_exceeded"},
		"unknown id":       {func(r *engine.Request) { r.TokenIDs = []uint32{2000} }, engine.InvalidArgument, ""},
		"too many choices": {func(r *engine.Request) { r.Logprobs = &k }, engine.InvalidArgument, "logprobs"},
		"in the prompt":    {func(r *engine.Request) { r.PromptLogprobs = &k }, engine.InvalidArgument, "prompt_logprobs"},
		"guided":           {func(r *engine.Request) { r.Format = &chat.OutputFormat{Kind: chat.FormatGrammar} }, engine.Unsupported, ""},
	} {
		r := good
		tc.change(&r)
		_, _, err := listen(e, &r)
		var code string
		if fault, ok := err.(*engine.Error); ok {
			code = cmp.Or(fault.Code, fault.Param)
		}
		if engine.KindOf(err) != tc.kind || code != tc.code {
			t.Errorf("%s: %v (code %q), want %s %s", name, err, code, tc.kind, tc.code)
		}
	}
	if _, _, err := listen(e, &good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	small := mock.DefaultArgs()
	small.NumGPUBlocks = 4
	for _, tc := range []struct {
		cfg  mock.Config
		want string
	}{
		{mock.Config{}, "model has no name"},
		{mock.Config{Model: "m", Args: mock.Args{BlockSize: 16}}, "num_gpu_blocks"},
		{mock.Config{Model: "m", Args: small, ContextLength: 4096}, "context length 4096"},
		{mock.Config{Model: "m", Source: "markov"}, "markov"},
		{mock.Config{Model: "m", Source: mock.SourceText}, "tokenizer"},
		{mock.Config{Model: "m", Source: mock.SourceScript, Encode: encodeBytes}, "script"},
		{mock.Config{Model: "m", Script: &mock.Script{}}, "tokenizer"},
		{mock.Config{Model: "m", VocabSize: 1, EOS: []uint32{0}}, "vocabulary"},
	} {
		if _, err := mock.New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want something with %q", tc.cfg, err, tc.want)
		}
	}
}

// An engine of four workers' size answers a prompt twice; the second time the
// prompt is cached.
func Example() {
	args := mock.DefaultArgs()
	args.BlockSize, args.SpeedupRatio = 16, 0
	e, err := mock.New(mock.Config{Model: "demo", Args: args})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	r := &engine.Request{TokenIDs: make([]uint32, 100), Stop: engine.Stop{MaxTokens: 8}}
	for range 2 {
		for d, err := range e.Generate(context.Background(), r) {
			if err != nil {
				fmt.Println(err)
			}
			if d.Finish != engine.Running {
				fmt.Println(d.Finish, d.Usage.Output, "tokens, cached", *d.Usage.Cached)
			}
		}
	}
	// Output:
	// length 8 tokens, cached 0
	// length 8 tokens, cached 96
}

// What the model was not made for is refused at once, whatever there is room for.
func TestContextLength(t *testing.T) {
	for limit, refused := range map[uint32]bool{0: false, 99: true, 100: false} {
		e, err := mock.New(mock.Config{Model: "m", Source: mock.SourceRandom, ContextLength: limit})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for _, err := range e.Generate(t.Context(), &engine.Request{ID: "a-1", TokenIDs: make([]uint32, 90), Stop: engine.Stop{MaxTokens: 10}}) {
			if !refused && err == nil {
				break
			}
			if wrong, ok := errors.AsType[*engine.Error](err); !refused || !ok || wrong.Kind != engine.InvalidArgument || wrong.Code != "context_length_exceeded" {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
	}
}

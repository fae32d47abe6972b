package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
	"github.com/google/go-cmp/cmp"
)

const sentence = "The post office of Lyon sends letters, and the river runs to the sea."

func TestRun(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 3, engine.FinishEOS)
	r := request("Hello")
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(answers); len(got) != 1 || got[0] != sentence {
		t.Errorf("answers %q", got)
	}
	a := answers[0]
	n := len(h.ids(sentence))
	if a.Usage.Output != n || a.Usage.Prompt != r.Notes.PromptTokens || a.Usage.Cached == nil || a.Finish.Reason != chat.FinishStop || len(a.IDs) != n {
		t.Errorf("usage %+v, finish %+v, %d ids; want %d tokens", a.Usage, a.Finish, len(a.IDs), n)
	}
	sent := f.sent()[0]
	if sent.Stop.MaxTokens != h.model.ContextLength-len(sent.TokenIDs) || sent.ID != r.ID+"-1" || len(sent.Stop.Hidden) == 0 {
		t.Errorf("sent %+v", sent)
	}
	if r.Notes.Model != "test/model" || r.Notes.Target.Worker != 1 || r.Notes.Attempts != 1 {
		t.Errorf("notes %+v", r.Notes)
	}
	h.released(t)
}

// What a request leaves open of sampling is the model's, on every attempt.
func TestSamplingDefaults(t *testing.T) {
	first, second := &fake{}, &fake{}
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	cool := *model
	cool.Sampling = engine.Sampling{Temperature: new(0.6), TopK: new(20)}
	h := newHouseWith(t, &cool, pipeline.Config{MigrationLimit: 1}, router.Config{Mode: router.RoundRobin}, first, second)
	first.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
	}
	second.generate = h.say(sentence, 3, engine.FinishEOS)
	r := request("Hello")
	r.Chat.Sampling.TopK, r.Chat.Sampling.MinP = new(3), new(0.1)
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	sent := append(first.sent(), second.sent()...)
	if len(sent) != 2 {
		t.Fatalf("%d attempts", len(sent))
	}
	want := engine.Sampling{Temperature: new(0.6), TopK: new(3), MinP: new(0.1)}
	for _, q := range sent {
		if d := cmp.Diff(want, q.Sampling); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	}
	if r.Chat.Sampling.Temperature != nil {
		t.Error("the client's request has changed")
	}
}

// Thoughts and calls become blocks, whatever the cut; the state at the start
// comes from the prompt.
func TestBlocks(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	const raw = "<think>\nA tool helps.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>"
	for _, n := range []int{1, 2, 5, 1000} {
		f.generate = h.say(raw, n, engine.FinishEOS)
		r := request("Weather?")
		r.Chat.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "weather", Wire: []byte(`{"type":"function","function":{"name":"weather"}}`)}}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range answers[0].Blocks {
			s := string(b.Kind) + ":" + b.Text
			if b.Use != nil {
				s += b.Use.Name + b.Use.Args
			}
			got = append(got, s)
		}
		want := []string{"thinking:A tool helps.", "text:One moment.\n", `tool_use:weather{"city": "Köln"}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deltas of %d: %s", n, diff)
		}
		if answers[0].Finish.Reason != chat.FinishToolUse || answers[0].Usage.Reasoning == nil {
			t.Errorf("deltas of %d: finish %+v, usage %+v", n, answers[0].Finish, answers[0].Usage)
		}
		if answers[0].Usage.Output != len(answers[0].IDs) {
			t.Errorf("deltas of %d: %d ids for %d tokens", n, len(answers[0].IDs), answers[0].Usage.Output)
		}
	}
	// With thinking switched off the prompt closes an empty thought itself.
	f.generate = h.say("Plain.</think>", 2, engine.FinishEOS)
	r := request("Hi")
	off := false
	r.Chat.Thinking.Enabled = &off
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || len(answers[0].Blocks) != 1 || answers[0].Blocks[0].Kind != chat.Text {
		t.Errorf("blocks %+v, error %v", answers, err)
	}
}

// An answer that waited for a slow client comes in one delta, however long it
// is, and costs in proportion to its length.
func TestLongDelta(t *testing.T) {
	const sentences, perToken = 1500, 4 << 10 // bytes allocated
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	want := strings.Repeat(sentence, sentences)
	ids := h.ids(want)
	f.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{TokenIDs: ids, Finish: engine.FinishEOS, Usage: &engine.Usage{Output: len(ids)}}, nil)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var got strings.Builder
	var n, events int
	for e, err := range h.Run(t.Context(), request("Hello")) {
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(e.Text)
		n += len(e.IDs)
		events++
	}
	runtime.ReadMemStats(&after)
	if got.String() != want || n != len(ids) || events > len(ids)/100 {
		t.Errorf("%d bytes and %d ids in %d events, want %d and %d in a few", got.Len(), n, events, len(want), len(ids))
	}
	if per := (after.TotalAlloc - before.TotalAlloc) / uint64(len(ids)); per > perToken {
		t.Errorf("%d bytes allocated for a token of %d, want at most %d", per, len(ids), perToken)
	} else {
		t.Logf("%d bytes allocated for a token of %d", per, len(ids))
	}
}

func TestChoicesAndPrompts(t *testing.T) {
	f := &fake{features: engine.Features{engine.FeatureSeed}}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 1, engine.FinishEOS)
	seed := int64(7)
	var rs []*pipeline.Request
	for _, text := range []string{"One", "Two longer"} {
		r := request("")
		r.Chat.API, r.Chat.Turns = chat.APICompletions, nil
		r.Chat.Prompt = &chat.Prompt{Text: text}
		r.Chat.Sampling.N, r.Chat.Sampling.Seed = 3, &seed
		rs = append(rs, r)
	}
	answers, err := chat.Fold(h.Run(t.Context(), rs...))
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 6 {
		t.Fatalf("%d answers, want 6", len(answers))
	}
	for i, a := range answers {
		if counted := a.Usage.Prompt > 0; counted != (i%3 == 0) {
			t.Errorf("choice %d: usage %+v; the first choice of a prompt counts it, and no other", i, a.Usage)
		}
	}
	seeds := map[int64]int{}
	for _, s := range f.sent() {
		seeds[*s.Sampling.Seed]++
	}
	if seeds[7] != 2 || seeds[8] != 2 || seeds[9] != 2 {
		t.Errorf("seeds %v", seeds)
	}
	h.released(t)
}

func TestEcho(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(" world", 1, engine.FinishLength)
	r := request("")
	r.Chat.Turns, r.Chat.Prompt = nil, &chat.Prompt{Text: "hello", Echo: true}
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || texts(answers)[0] != "hello world" || answers[0].Finish.Reason != chat.FinishLength {
		t.Errorf("%+v, %v", answers, err)
	}
}

// Log probabilities of the prompt belong to an answer that repeats the prompt,
// and to every choice of it.
func TestPromptLogprobs(t *testing.T) {
	one := 1
	for name, c := range map[string]struct {
		prompt *chat.Prompt
		want   int // entries in each choice
	}{
		"chat": {nil, 1}, "completion": {&chat.Prompt{Text: "hello"}, 1}, "echo": {&chat.Prompt{Text: "hello", Echo: true}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			h := newHouse(t, pipeline.Config{}, f)
			id := h.ids("!")[0]
			f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
				d := engine.Delta{TokenIDs: []uint32{id}, Logprobs: []engine.Logprob{{ID: id}}, Finish: engine.FinishLength}
				if r.PromptLogprobs != nil {
					d.PromptLogprobs = []engine.Logprob{{ID: id}, {ID: id}}
				}
				yield(d, nil)
			}
			r := request("hello")
			if c.prompt != nil {
				r.Chat.API, r.Chat.Turns, r.Chat.Prompt = chat.APICompletions, nil, c.prompt
			}
			r.Chat.Sampling.N, r.Chat.Sampling.Logprobs, r.Chat.Sampling.PromptLogprobs = 2, &one, &one
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if err != nil || len(answers) != 2 {
				t.Fatalf("%+v, %v", answers, err)
			}
			for i, a := range answers {
				if len(a.Logprobs) != c.want {
					t.Errorf("choice %d: %d log probabilities, want %d", i, len(a.Logprobs), c.want)
				}
			}
		})
	}
}

// Faults of the request are found before a worker is asked.
func TestRefusals(t *testing.T) {
	f := &fake{generate: func(context.Context, *engine.Request, func(engine.Delta, error) bool) {
		t.Error("the engine was asked")
	}}
	h := newHouse(t, pipeline.Config{}, f)
	for name, tc := range map[string]struct {
		change func(*pipeline.Request)
		kind   engine.ErrorKind
		param  string
		code   string
	}{
		"unknown model":    {func(r *pipeline.Request) { r.Chat.Model = "nope" }, engine.NotFound, "model", "model_not_found"},
		"too long":         {func(r *pipeline.Request) { r.Chat.Turns[0].Blocks[0].Text = strings.Repeat("many words ", 40000) }, engine.InvalidArgument, "messages", "context_length_exceeded"},
		"empty prompt":     {func(r *pipeline.Request) { r.Chat.Prompt = &chat.Prompt{} }, engine.InvalidArgument, "prompt", ""},
		"unknown id":       {func(r *pipeline.Request) { r.Chat.Prompt = &chat.Prompt{IDs: []uint32{1 << 30}} }, engine.InvalidArgument, "prompt", ""},
		"empty token data": {func(r *pipeline.Request) { r.Ext = &nvext.Ext{TokenData: []uint32{}} }, engine.InvalidArgument, "nvext.token_data", ""},
		"guided choice":    {func(r *pipeline.Request) { r.Chat.Output.Kind = chat.FormatChoice }, engine.InvalidArgument, "guided_choice", "unsupported_parameter"},
		"no schema":        {func(r *pipeline.Request) { r.Chat.Output.Kind = chat.FormatJSONSchema }, engine.InvalidArgument, "guided_json", ""},
		"adapter":          {func(r *pipeline.Request) { r.KV.Namespace.LoRA = "x" }, engine.Unsupported, "model", ""},
		"salt":             {func(r *pipeline.Request) { r.KV.Namespace.Salt = "x" }, engine.Unsupported, "cache_salt", ""},
		"unknown worker":   {func(r *pipeline.Request) { id := nvext.WorkerID(99); r.Ext = &nvext.Ext{}; r.Ext.DecodeWorkerID = &id }, engine.Unavailable, "", "pinned_worker_filtered"},
		"raw prompt, turns": {func(r *pipeline.Request) {
			yes := true
			r.Ext = &nvext.Ext{UseRawPrompt: &yes}
			r.Chat.Turns = append(r.Chat.Turns, r.Chat.Turns...)
		}, engine.InvalidArgument, "nvext.use_raw_prompt", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := request("Hello")
			tc.change(r)
			_, err := chat.Fold(h.Run(t.Context(), r))
			if engine.KindOf(err) != tc.kind {
				t.Fatalf("error %v, want kind %s", err, tc.kind)
			}
			var e *engine.Error
			if errors.As(err, &e); e.Param != tc.param || e.Code != tc.code {
				t.Errorf("param %q, code %q; want %q, %q", e.Param, e.Code, tc.param, tc.code)
			}
			h.released(t)
		})
	}
}

// Of several prompts the one at fault is named.
func TestRefusedPrompt(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, &fake{})
	good, bad := request(""), request("")
	good.Chat.Prompt, bad.Chat.Prompt = &chat.Prompt{Text: "fine"}, &chat.Prompt{IDs: []uint32{1 << 30}}
	_, err := chat.Fold(h.Run(t.Context(), good, bad))
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Param != "prompt[1]" {
		t.Errorf("%+v", err)
	}
	h.released(t)
}

// However a request ends, the engine's loop ends and nothing stays booked.
func TestGoneIsGone(t *testing.T) {
	for name, leave := range map[string]func(cancel context.CancelCauseFunc, seq iter.Seq2[chat.Event, error]) error{
		"before the first item": func(cancel context.CancelCauseFunc, seq iter.Seq2[chat.Event, error]) error {
			cancel(engine.ErrClientGone)
			_, err := chat.Fold(seq)
			return err
		},
		"between items": func(cancel context.CancelCauseFunc, seq iter.Seq2[chat.Event, error]) (last error) {
			for e, err := range seq {
				if last = err; e.Kind == chat.TextDelta {
					cancel(engine.ErrClientGone)
				}
			}
			return last
		},
		"by leaving the loop": func(_ context.CancelCauseFunc, seq iter.Seq2[chat.Event, error]) error {
			for e, err := range seq {
				if err != nil {
					return err
				}
				if e.Kind == chat.TextDelta {
					break
				}
			}
			return engine.ErrClientGone
		},
	} {
		for _, n := range []int{1, 4} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fake{}
					h := newHouse(t, pipeline.Config{MigrationLimit: 3}, f, &fake{generate: func(ctx context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
						<-ctx.Done()
						yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
					}})
					f.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
						for _, id := range h.ids("some text") {
							if ctx.Err() == nil && !yield(engine.Delta{TokenIDs: []uint32{id}}, nil) {
								return
							}
						}
						<-ctx.Done()
						yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					r := request("Hello")
					r.Chat.Sampling.N = n
					err := leave(cancel, h.Run(ctx, r))
					if k := engine.KindOf(err); k != engine.Cancelled {
						t.Errorf("error %v, want kind cancelled", err)
					}
					// Nothing goes on once the loop has ended.
					if n := f.active(); n != 0 {
						t.Errorf("%d generations still run", n)
					}
					h.released(t)
				})
			})
		}
	}
}

// The client's own deadline ends all choices, wherever they are.
func TestDeadline(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{generate: gaps([]time.Duration{2 * time.Second, time.Hour})}
			h := newHouse(t, pipeline.Config{MigrationLimit: 3}, f, f)
			r := request("Hello")
			r.Chat.Sampling.N = n
			r.Deadline = time.Now().Add(3 * time.Second)
			began := time.Now()
			_, err := chat.Fold(h.Run(t.Context(), r))
			if engine.KindOf(err) != engine.DeadlineExceeded || !errors.Is(err, engine.ErrDeadline) || time.Since(began) != 3*time.Second {
				t.Errorf("%d choices: %v after %v, want deadline_exceeded after 3 s", n, err, time.Since(began))
			}
			if c := h.Counters(); c != (pipeline.Counters{}) {
				t.Errorf("%d choices: %+v, want no move", n, c)
			}
			h.released(t)
		})
	}
}

// An engine that forgets its finish behind a complete call has answered.
func TestEndWithoutFinish(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, f)
	for raw, want := range map[string]engine.ErrorKind{
		"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>": "",
		"<tool_call>\n{\"name\": \"f\", \"argum":                          engine.Unavailable, // no worker is left to carry on
		"Text.":                                                           engine.Unavailable,
	} {
		f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: h.ids(raw)}, nil)
		}
		r := request("Hello")
		r.Chat.Tools = []chat.Tool{{Name: "f", Wire: []byte(`{"type":"function","function":{"name":"f"}}`)}}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if want == "" {
			if err != nil || answers[0].Finish.Reason != chat.FinishToolUse || answers[0].Usage.Output != len(h.ids(raw)) {
				t.Errorf("%q: %+v, error %v", raw, answers, err)
			}
		} else if engine.KindOf(err) != want {
			t.Errorf("%q: error %v, want kind %s", raw, err, want)
		}
		for _, w := range h.fleet.Snapshot() { // forgive the worker
			h.fleet.Remove(w.ID())
		}
		h = newHouse(t, pipeline.Config{MigrationLimit: 3}, f)
	}
}

// A client that wants one call at a time gets one, and the engine stops.
func TestOneCall(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	const call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
	left := false
	f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		for _, id := range h.ids(call + call + call) {
			if left = !yield(engine.Delta{TokenIDs: []uint32{id}}, nil); left {
				return
			}
		}
		yield(engine.Delta{Finish: engine.FinishEOS, Usage: &engine.Usage{}}, nil)
	}
	r := request("Hello")
	no := false
	r.Chat.ToolChoice.Parallel = &no
	r.Chat.Tools = []chat.Tool{{Name: "f", Wire: []byte(`{"type":"function","function":{"name":"f"}}`)}}
	answers, err := chat.Fold(h.Run(t.Context(), r))
	if err != nil || len(answers[0].Blocks) != 1 || answers[0].Finish.Reason != chat.FinishToolUse || !left {
		t.Errorf("%+v, error %v, engine stopped: %v", answers, err, left)
	}
}

// A panic of one choice is an error of the call, and nothing else ends.
func TestPanicInAChoice(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = func(context.Context, *engine.Request, func(engine.Delta, error) bool) { panic("oops") }
	r := request("Hello")
	r.Chat.Sampling.N = 3
	if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Internal {
		t.Errorf("error %v", err)
	}
	h.released(t)
}

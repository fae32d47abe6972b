package frontend_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/trace"
)

// rows keeps what a server tells.
type rows struct {
	mu   sync.Mutex
	list []*trace.Record
}

func (r *rows) publish(row *trace.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, row)
}

func (r *rows) all() []*trace.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// only returns the one row.
func (r *rows) only(t *testing.T) *trace.Record {
	t.Helper()
	eventually(t, func() bool { return len(r.all()) > 0 }, func() string { return "there is no row" })
	if all := r.all(); len(all) != 1 {
		t.Fatalf("%d rows", len(all))
	}
	return r.all()[0]
}

// served fills in what the pipeline tells of a request that was served.
func served(requests []*pipeline.Request, change func(*pipeline.Traced, *pipeline.Notes)) {
	for _, r := range requests {
		r.Notes.Target, r.Notes.Blocks, r.Notes.Overlap = kv.Target{Worker: 42, Rank: 1}, 4, 3
		at := r.Arrived.Add(5 * time.Millisecond)
		r.Traced.Prompt, r.Traced.BlockSize = []uint32{1, 2, 3, 4, 5, 6, 7}, 4
		r.Traced.Courses = make([]pipeline.Course, r.Chat.Sampling.Choices())
		for i := range r.Traced.Courses {
			r.Traced.Courses[i] = pipeline.Course{
				Sent: at, First: at.Add(10 * time.Millisecond), Last: at.Add(30 * time.Millisecond), Tokens: 2,
				Placed: true, Prefill: kv.Target{Worker: 41}, Decode: kv.Target{Worker: 42, Rank: 1}, Finish: engine.FinishEOS,
			}
		}
		change(r.Traced, r.Notes)
	}
}

func TestRows(t *testing.T) {
	worker := func(prefill uint64, prefillRank uint32) *trace.Worker {
		return &trace.Worker{PrefillWorkerID: &prefill, PrefillRank: &prefillRank, DecodeWorkerID: new(uint64(42)), DecodeRank: new(uint32(1))}
	}
	replay := trace.NewReplay([]uint32{1, 2, 3, 4, 5, 6, 7}, 4)
	ends := &trace.Finish{Reason: "stop", BackendReason: "eos", Choices: []trace.Choice{{Reason: "stop", BackendReason: "eos"}}}
	for _, tc := range []struct {
		name, path, body string
		course           func(*pipeline.Traced, *pipeline.Notes)
		run              func(ctx context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error]
		want             trace.Request // those members that are not the same in each row
		none             bool
	}{
		{name: "whole", want: trace.Request{CachedTokens: new(uint64(4)), OutputTokens: new(uint64(2)), Worker: worker(41, 0), Replay: replay, Finish: ends}},
		{name: "block size unknown", course: func(t *pipeline.Traced, _ *pipeline.Notes) { t.BlockSize = 0 }, want: trace.Request{CachedTokens: new(uint64(4)), OutputTokens: new(uint64(2)), Worker: worker(41, 0), Finish: ends}},
		{
			name: "nothing has come yet", course: func(t *pipeline.Traced, n *pipeline.Notes) {
				t.Courses[0].Placed, t.Courses[0].First, t.Courses[0].Last, t.Courses[0].Tokens, t.Courses[0].Finish = false, time.Time{}, time.Time{}, 0, engine.Running
				n.Prefill = &kv.Target{Worker: 40, Rank: 3}
			},
			run: func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				return failing(&engine.Error{Kind: engine.Disconnected, Message: "gone"})
			},
			want: trace.Request{OutputTokens: new(uint64(0)), Worker: worker(40, 3), Replay: replay, Finish: &trace.Finish{BackendReason: "error: disconnected: gone"}},
		},
		{
			name: "the engine says the prompt again", course: func(t *pipeline.Traced, _ *pipeline.Notes) {
				t.Courses[0].Placed, t.Courses[0].First, t.Courses[0].Last, t.Courses[0].Tokens, t.Courses[0].Finish = false, time.Time{}, time.Time{}, 0, engine.Running
			},
			run: func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				return failing(&engine.Error{Kind: engine.Disconnected, Message: strings.Repeat("é", 200) + "\nUser: what nobody else may read"})
			},
			want: trace.Request{OutputTokens: new(uint64(0)), Worker: worker(42, 1), Replay: replay, Finish: &trace.Finish{BackendReason: "error: disconnected: " + strings.Repeat("é", 73) + "…"}},
		},
		{name: "no worker was asked", course: func(t *pipeline.Traced, _ *pipeline.Notes) { t.Courses[0].Sent = time.Time{} }, none: true},
		{name: "no course", course: func(t *pipeline.Traced, _ *pipeline.Notes) { t.Courses = nil }, none: true},
		{
			name: "more is cached than asked", course: func(*pipeline.Traced, *pipeline.Notes) {},
			run: func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				events := helloEvents()
				events[5].Usage.Cached = new(99)
				events[5].Finish = chat.Finish{Reason: chat.FinishStopSequence, StopID: new(uint32(17))}
				return then(events, func(func(chat.Event, error) bool) {})
			},
			want: trace.Request{CachedTokens: new(uint64(7)), OutputTokens: new(uint64(2)), Worker: worker(41, 0), Replay: replay, Finish: &trace.Finish{
				Reason: "stop", BackendReason: "eos", StopReason: []byte("17"), Choices: []trace.Choice{{Reason: "stop", BackendReason: "eos", StopReason: []byte("17")}},
			}},
		},
		{
			name: "we have ended it", course: func(t *pipeline.Traced, _ *pipeline.Notes) { t.Courses[0].Finish = engine.Running },
			run: func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				events := helloEvents()
				events[5].Finish = chat.Finish{Reason: chat.FinishContext}
				return then(events, func(func(chat.Event, error) bool) {})
			},
			want: trace.Request{CachedTokens: new(uint64(4)), OutputTokens: new(uint64(2)), Worker: worker(41, 0), Replay: replay, Finish: &trace.Finish{
				Reason: "length", BackendReason: "length", Choices: []trace.Choice{{Reason: "length", BackendReason: "length"}},
			}},
		},
		{
			name: "two prompts", path: "/v1/completions", body: `{"model":"demo","prompt":["a","b"]}`,
			want: trace.Request{CachedTokens: new(uint64(8)), OutputTokens: new(uint64(4)), Worker: worker(41, 0), Finish: &trace.Finish{
				Reason: "stop", BackendReason: "eos", Choices: []trace.Choice{{Reason: "stop", BackendReason: "eos"}, {Index: 1, Reason: "stop", BackendReason: "eos"}},
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backend, told := newFake(), &rows{}
			backend.run = func(ctx context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
				change := tc.course
				if change == nil {
					change = func(*pipeline.Traced, *pipeline.Notes) {}
				}
				served(requests, change)
				if tc.run != nil {
					return tc.run(ctx, requests)
				}
				return hello(len(requests))
			}
			s := start(t, backend, func(c *frontend.Config) {
				c.Tracing = &frontend.Tracing{Publish: told.publish, RequestEnds: true}
			})
			path, body := "/v1/chat/completions", ask
			if tc.path != "" {
				path, body = tc.path, tc.body
			}
			s.do("POST", path, body)
			if tc.none {
				s.do("POST", path, body)
				if all := told.all(); len(all) > 0 {
					t.Errorf("%d rows", len(all))
				}
				return
			}
			row := told.only(t)
			got := trace.Request{
				CachedTokens: row.Request.CachedTokens, OutputTokens: row.Request.OutputTokens, Worker: row.Request.Worker, Replay: row.Request.Replay, Finish: row.Request.Finish,
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if r := row.Request; *r.KVHitRate != 0.75 || *r.PrefillWaitTime != 5 || *r.Dynago.OverlapBlocks != 3 || *r.Dynago.InputBlocks != 4 {
				t.Errorf("%+v, %+v", r, r.Dynago)
			}
		})
	}
}

// However a call comes, the row has it once: by its place among those of its choice, without
// arguments, and without an id or a name that nobody has given.
func TestRowsOfCalls(t *testing.T) {
	begin := func(choice int, id, name string) chat.Event {
		return chat.Event{Kind: chat.BlockStart, Choice: choice, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: id, Name: name, Kind: chat.ToolFunction}}
	}
	args := func(choice int, text string) chat.Event {
		return chat.Event{Kind: chat.ArgsDelta, Choice: choice, Text: text}
	}
	stop := func(choice int) chat.Event { return chat.Event{Kind: chat.BlockStop, Choice: choice} }
	for _, tc := range []struct {
		name    string
		choices int
		events  []chat.Event
		want    string
	}{
		{"none", 1, nil, `"finish_reason":"tool_calls","backend_finish_reason":"eos"`},
		{
			"arguments in pieces", 1,
			[]chat.Event{begin(0, "c1", "f"), args(0, `{"a"`), args(0, `:1}`), stop(0)},
			`"finish_reason":"tool_calls","backend_finish_reason":"eos","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"c1","name":"f"}]`,
		},
		{
			"the same id twice", 1,
			[]chat.Event{begin(0, "c1", "f"), stop(0), begin(0, "c1", "g"), stop(0)},
			`"finish_reason":"tool_calls","backend_finish_reason":"eos","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"c1","name":"f"},{"choice_index":0,"tool_call_index":1,"id":"c1","name":"g"}]`,
		},
		{
			"no id, and no name", 1,
			[]chat.Event{begin(0, "", "f"), stop(0), begin(0, "c2", ""), stop(0), begin(0, "", ""), stop(0)},
			`"finish_reason":"tool_calls","backend_finish_reason":"eos","tool_calls":[{"choice_index":0,"tool_call_index":0,"name":"f"},{"choice_index":0,"tool_call_index":1,"id":"c2"},{"choice_index":0,"tool_call_index":2}]`,
		},
		{
			"two choices at once", 2,
			[]chat.Event{begin(0, "c1", "f"), begin(1, "c1", "g"), args(1, "{}"), args(0, "{}"), stop(0), stop(1), begin(1, "c2", "f"), stop(1)},
			`"finish_reason":"tool_calls","backend_finish_reason":"eos","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"c1","name":"f"},{"choice_index":1,"tool_call_index":0,"id":"c1","name":"g"},{"choice_index":1,"tool_call_index":1,"id":"c2","name":"f"}]`,
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", tc.name, stream), func(t *testing.T) {
				backend, told := newFake(), &rows{}
				backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
					served(requests, func(*pipeline.Traced, *pipeline.Notes) {})
					var events []chat.Event
					for i := range tc.choices {
						events = append(events, chat.Event{Kind: chat.Start, Choice: i})
					}
					blocks := map[int]int{}
					for _, e := range tc.events {
						e.Index = blocks[e.Choice]
						if events = append(events, e); e.Kind == chat.BlockStop {
							blocks[e.Choice]++
						}
					}
					for i := range tc.choices {
						events = append(events, chat.Event{Kind: chat.Finished, Choice: i, Finish: chat.Finish{Reason: chat.FinishToolUse}})
					}
					return then(events, func(func(chat.Event, error) bool) {})
				}
				s := start(t, backend, func(c *frontend.Config) {
					c.Tracing = &frontend.Tracing{Publish: told.publish, RequestEnds: true}
				})
				body := fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":"Hello"}],"n":%d,"stream":%v}`, tc.choices, stream)
				if got := s.do("POST", "/v1/chat/completions", body); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				finish := *told.only(t).Request.Finish
				finish.Choices = nil
				line, err := (&trace.Record{Schema: trace.Schema, Request: &trace.Request{Finish: &finish}}).Append(nil)
				if want := `"finish_reason_metadata":{` + tc.want + `}`; err != nil || !strings.Contains(string(line), want) {
					t.Errorf("%s, %v, want %s", line, err, want)
				}
			})
		}
	}
}

// lines is a sink that keeps what rows say, while others are made.
type lines struct {
	keeping
	told [][]byte
}

func (l *lines) Write(_ context.Context, records []*trace.Record) error {
	for _, r := range records {
		line, err := r.Append(nil)
		if err != nil {
			return err
		}
		l.told = append(l.told, line)
		runtime.Gosched()
	}
	return nil
}

// Rows are made where others were: each tells of its own request all the same, to each
// sink.
func TestRowsOneAfterTheOther(t *testing.T) {
	backend := newFake()
	backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		served(requests, func(t *pipeline.Traced, _ *pipeline.Notes) {
			t.Prompt = slices.Repeat([]uint32{uint32(*requests[0].Chat.Sampling.MaxTokens)}, *requests[0].Chat.Sampling.MaxTokens)
		})
		return hello(len(requests))
	}
	sinks := [2]lines{}
	bus := trace.NewBus(1000, slog.New(slog.DiscardHandler), &sinks[0], &sinks[1])
	s := start(t, backend, func(c *frontend.Config) {
		c.Tracing = &frontend.Tracing{Publish: bus.Publish, RequestEnds: true}
	})
	const most = 300
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for n := 1 + client; n <= most; n += 4 {
				s.do("POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"demo","max_tokens":%d,"messages":[{"role":"user","content":"Hello"}]}`, n), "X-Request-Id", strconv.Itoa(n))
			}
		})
	}
	clients.Wait()
	eventually(t, func() bool { return bus.Status()[0].Published == most }, func() string { return fmt.Sprint(bus.Status()) })
	if err := bus.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range sinks {
		seen := map[string]bool{}
		for _, line := range sinks[i].told {
			r, ok, err := trace.Decode(line)
			if !ok || err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			seen[r.Request.XRequestID] = true
			n := r.Request.Replay.InputLength
			if diff := cmp.Diff(trace.NewReplay(slices.Repeat([]uint32{uint32(n)}, n), 4), r.Request.Replay); diff != "" || r.Request.XRequestID != strconv.Itoa(n) {
				t.Fatalf("row of request %s (-want +got)\n%s", r.Request.XRequestID, diff)
			}
		}
		if len(seen) != most || len(sinks[i].told) != most {
			t.Errorf("%d rows of %d requests, want %d", len(sinks[i].told), len(seen), most)
		}
	}
}

// However many results a client says that it brings, and by whatever names, its row names
// no more than agents have.
func TestRowOfManyResults(t *testing.T) {
	backend, told := newFake(), &rows{}
	backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		served(requests, func(*pipeline.Traced, *pipeline.Notes) {})
		return hello(len(requests))
	}
	s := start(t, backend, func(c *frontend.Config) {
		c.Tracing = &frontend.Tracing{Publish: told.publish, RequestEnds: true}
	})
	var calls, results strings.Builder
	for i := range 2000 {
		id := fmt.Sprintf("call-%d", i)
		if i == 1 {
			id = strings.Repeat("x", 257)
		}
		fmt.Fprintf(&calls, `,{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}}`, id)
		fmt.Fprintf(&results, `,{"role":"tool","tool_call_id":%q,"content":"ok"}`, id)
	}
	body := `{"model":"demo","messages":[{"role":"user","content":"Hello"},{"role":"assistant","tool_calls":[` + calls.String()[1:] + `]}` + results.String() + `]}`
	if got := s.do("POST", "/v1/chat/completions", body, "X-Dynamo-Session-Id", "s"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	ids := told.only(t).Request.Dynago.ToolResults
	if len(ids) != 1000 || ids[0] != "call-0" || ids[1] != "call-2" || ids[999] != "call-1000" {
		t.Errorf("%d results, %.100q", len(ids), ids)
	}
}

// Where nothing is recorded, nobody is asked to tell.
func TestNoRows(t *testing.T) {
	backend, told := newFake(), &rows{}
	for _, tracing := range []*frontend.Tracing{nil, {Publish: told.publish}} {
		s := start(t, backend, func(c *frontend.Config) { c.Tracing = tracing })
		s.do("POST", "/v1/chat/completions", ask)
	}
	for _, r := range backend.requests() {
		if r.Traced != nil {
			t.Error("the pipeline was asked to tell")
		}
	}
	if len(told.all()) > 0 {
		t.Error("there are rows")
	}
}

// What was said is told only of answers that have come to their end.
func TestRowsOfWhatWasSaid(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		run        func(ctx context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error]
		response   bool
	}{
		{"whole", ask, nil, true},
		{"stream", askStream, nil, true},
		{"failure", ask, func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
			return failing(&engine.Error{Kind: engine.Disconnected, Message: "gone"})
		}, false},
		{"failure in a stream", askStream, func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
			return then(beginning(), func(yield func(chat.Event, error) bool) {
				yield(chat.Event{}, &engine.Error{Kind: engine.Disconnected, Message: "gone"})
			})
		}, false},
		{"empty stream", askStream, func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
			return func(func(chat.Event, error) bool) {}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backend, told := newFake(), &rows{}
			backend.run = tc.run
			s := start(t, backend, func(c *frontend.Config) {
				c.Tracing = &frontend.Tracing{Publish: told.publish, Payloads: true, Headers: []string{"x-tenant", "x-none"}}
			})
			s.do("POST", "/v1/chat/completions", `{"model":"demo"`) // is never answered, and tells nothing
			s.do("POST", "/v1/chat/completions", tc.body, "X-Tenant", "acme")
			row := told.only(t)
			bus := trace.NewBus(1, s.Logger, keeping{})
			bus.Publish(row)
			if err := bus.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			p := row.Payload
			if string(p.Request) != tc.body || (p.Response != nil) != tc.response || !p.Complete || p.Model != "acme/demo" {
				t.Errorf("%+v", p)
			}
			if diff := cmp.Diff(map[string]string{"x-tenant": "acme"}, p.Headers); diff != "" {
				t.Errorf("headers (-want +got)\n%s", diff)
			}
		})
	}
}

// keeping is a sink that keeps nothing.
type keeping struct{}

func (keeping) Name() string                                 { return "none" }
func (keeping) Write(context.Context, []*trace.Record) error { return nil }
func (keeping) Close(context.Context) error                  { return nil }

package sglang_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/kv"
)

// A server that describes itself gets the names that it has. The late one refuses
// all others.
func TestFieldsByBuild(t *testing.T) {
	server := described(`{"enable_session_radix_cache":true,"enable_strict_thinking":true}`)
	var got map[string]json.RawMessage
	server["/open_session"] = func(http.ResponseWriter, *http.Request) {}
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = nil
		if err := json.Unmarshal(text, &got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusBadRequest)
	}
	describe := func(names ...string) string {
		return `{"components":{"schemas":{"GenerateReqInput":{"properties":{"` + strings.Join(names, `":{},"`) + `":{}}}}}}`
	}
	for name, tc := range map[string]struct {
		document string // "": there is none
		has      map[string]string
		hasNot   []string
		thinking bool
	}{
		"late": {
			describe("routed_dp_rank", "data_parallel_rank", "cache_salt", "extra_key", "session_id", "session_params", "max_thinking_tokens"),
			map[string]string{"routed_dp_rank": "1", "cache_salt": `"dynamo-cache-salt:t"`, "session_id": `"dynamo-cache-salt:1:t:s"`, "max_thinking_tokens": "50"},
			[]string{"extra_key", "data_parallel_rank", "session_params"},
			true,
		},
		"old": {
			describe("data_parallel_rank", "extra_key", "session_params"),
			map[string]string{"data_parallel_rank": "1", "extra_key": `"dynamo-cache-salt:t"`, "session_params": `{"id":"dynamo-cache-salt:1:t:s"}`},
			[]string{"cache_salt", "routed_dp_rank", "session_id", "max_thinking_tokens"},
			false,
		},
		"untold": {
			"",
			map[string]string{"routed_dp_rank": "1", "extra_key": `"dynamo-cache-salt:t"`, "session_id": `"dynamo-cache-salt:1:t:s"`},
			[]string{"cache_salt", "data_parallel_rank", "session_params", "max_thinking_tokens"},
			false,
		},
	} {
		delete(server, "/openapi.json")
		if tc.document != "" {
			server["/openapi.json"] = say(tc.document)
		}
		e := server.serve(t, sglang.Config{})
		c := status(t, e, engine.Ready).Card
		if c.Features.Has(engine.FeatureThinkingBudget) != tc.thinking {
			t.Errorf("%s: features %v", name, c.Features)
		}
		opened(t, e, kv.SessionKey{Model: "m", Salt: "t", ID: "s"})
		r := ask()
		r.DPRank, r.ThinkingBudget = ptr(uint32(1)), ptr(50)
		r.KV = kv.Directives{Namespace: kv.Namespace{Salt: "t"}, Session: kv.Session{ID: "s"}}
		collect(t.Context(), e, r)
		for member, want := range tc.has {
			if string(got[member]) != want {
				t.Errorf("%s: %s is %s, want %s", name, member, got[member], want)
			}
		}
		for _, member := range tc.hasNot {
			if got[member] != nil {
				t.Errorf("%s: sent %s: %s", name, member, got[member])
			}
		}
	}
}

// Where requests have no place for a rank or a salt, the card says so, and a salt
// that cannot be kept apart is refused.
func TestFieldsThatAreNotThere(t *testing.T) {
	server := described(`{}`)
	server["/openapi.json"] = say(`{"components":{"schemas":{"GenerateReqInput":{"properties":{"input_ids":{}}}}}}`)
	server["/generate"] = func(http.ResponseWriter, *http.Request) { t.Error("asked") }
	e := server.serve(t, sglang.Config{PriorityEnabled: ptr(true)})
	c := status(t, e, engine.Ready).Card
	for _, f := range []engine.Feature{engine.FeatureCacheSalt, engine.FeatureDPRank, engine.FeaturePriority} {
		if c.Features.Has(f) {
			t.Errorf("the card has %s", f)
		}
	}
	r := ask()
	r.KV.Namespace.Salt = "t"
	if _, _, err := collect(t.Context(), e, r); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("%v", err)
	}
}

// What an operator adds goes along with every request, behind what the request adds
// and in front of what is set here.
func TestExtraBody(t *testing.T) {
	server := described(`{}`)
	var got string
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = string(text)
		w.WriteHeader(http.StatusBadRequest)
	}
	e := server.serve(t, sglang.Config{ExtraBody: json.RawMessage(`{"routing_key": "k", "no_logs": true}`)})
	status(t, e, engine.Ready)
	r := ask()
	r.Extra = json.RawMessage(`{"routing_key":"mine"}`)
	collect(t.Context(), e, r)
	var members map[string]any
	if err := json.Unmarshal([]byte(got), &members); err != nil || members["routing_key"] != "mine" || members["no_logs"] != true || members["rid"] != "r-1" {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{`[1]`, `{"rid":"x"}`, `{"sampling_params":{}}`} {
		if _, err := sglang.New(sglang.Config{HTTP: httpapi.Config{URL: "http://h:1"}, ExtraBody: json.RawMessage(bad)}); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

// awaitEpoch waits for another epoch than this.
func awaitEpoch(t *testing.T, e engine.Engine, before uint64) (now engine.Status) {
	t.Helper()
	await(t, "another epoch", func() bool {
		now = status(t, e, engine.Ready)
		return now.Epoch != before
	})
	return now
}

// Whatever empties a cache ends its epoch: other weights, a reset, a sleep, and a
// start that draws no new seed and takes its time.
func TestEpochs(t *testing.T) {
	e := attach(t, fake.Config{GivenSeed: true})
	epoch := status(t, e, engine.Ready).Epoch
	e.fake.SetWeights("v2")
	epoch = awaitEpoch(t, e, epoch).Epoch
	if _, err := e.Control(t.Context(), engine.ControlReset, nil); err != nil {
		t.Fatal(err)
	}
	epoch = awaitEpoch(t, e, epoch).Epoch
	for _, control := range []string{engine.ControlSleep, engine.ControlSleep, engine.ControlWake, engine.ControlWake} {
		if _, err := e.Control(t.Context(), control, nil); err != nil {
			t.Fatalf("%s: %v", control, err)
		}
	}
	epoch = awaitEpoch(t, e, epoch).Epoch
	for range 3 {
		if now := status(t, e, engine.Ready).Epoch; now != epoch {
			t.Errorf("epoch %d after %d for no reason", now, epoch)
		}
	}
	defer sglang.SetLostAfter(0)()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	seen := map[uint64]bool{}
	for s := range e.Card(ctx) {
		if seen[s.Epoch] = true; len(seen) == 3 {
			return
		}
	}
	t.Errorf("%d epochs of a server that is always long away", len(seen))
}

// A server that sleeps or is paused gets no requests: it would keep them.
func TestQuirk37SleepingServersGetNothing(t *testing.T) {
	for control, back := range map[string]string{engine.ControlSleep: engine.ControlWake, engine.ControlPause: engine.ControlResume} {
		e := attach(t, fake.Config{})
		status(t, e, engine.Ready)
		if _, err := e.Control(t.Context(), control, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := collect(t.Context(), e, ask()); engine.KindOf(err) != engine.Unavailable || !strings.Contains(err.Error(), control) {
			t.Errorf("%s: %v", control, err)
		}
		status(t, e, engine.Draining)
		if _, err := e.Control(t.Context(), back, nil); err != nil {
			t.Fatal(err)
		}
		status(t, e, engine.Ready)
		if _, _, err := collect(t.Context(), e, ask()); err != nil {
			t.Errorf("%s: %v", back, err)
		}
	}
}

// A control that fails changes nothing.
func TestControlsThatFail(t *testing.T) {
	server := described(`{}`)
	server["/pause_generation"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	if _, err := e.Control(t.Context(), engine.ControlPause, nil); err == nil {
		t.Error("no error")
	}
	status(t, e, engine.Ready)
	for _, missing := range []string{engine.ControlLoadLoRA, sglang.ControlStore} {
		if _, err := e.Control(t.Context(), missing, nil); engine.KindOf(err) != engine.Unsupported {
			t.Errorf("%s: %v", missing, err)
		}
	}
}

// Adapters come and go while the server runs, as the card tells; one that is not
// there may be elsewhere.
func TestAdapters(t *testing.T) {
	e := attach(t, fake.Config{LoRA: true, Adapters: []string{"a"}})
	if c := status(t, e, engine.Ready).Card; !slices.Equal(c.Adapters, []string{"a"}) || !slices.Contains(c.Controls, engine.ControlLoadLoRA) {
		t.Fatalf("%+v", c)
	}
	r := ask()
	r.KV.Namespace.LoRA = "b"
	if _, _, err := collect(t.Context(), e, r); engine.KindOf(err) != engine.NotFound {
		t.Errorf("an adapter that is not loaded: %v", err)
	}
	if _, err := e.Control(t.Context(), engine.ControlLoadLoRA, json.RawMessage(`{"lora_name":"b","lora_path":"/b"}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := collect(t.Context(), e, r); err != nil {
		t.Errorf("an adapter that is loaded: %v", err)
	}
	await(t, "the card names b", func() bool { return slices.Equal(status(t, e, engine.Ready).Card.Adapters, []string{"a", "b"}) })
	if _, err := e.Control(t.Context(), engine.ControlUnloadLoRA, json.RawMessage(`{"lora_name":"a"}`)); err != nil {
		t.Fatal(err)
	}
	await(t, "the card names b alone", func() bool { return slices.Equal(status(t, e, engine.Ready).Card.Adapters, []string{"b"}) })
}

// The store below the cache is attached and detached while the server runs.
func TestStore(t *testing.T) {
	e := attach(t, fake.Config{Hierarchical: true})
	status(t, e, engine.Ready)
	for _, step := range []struct{ control, args, want string }{
		{sglang.ControlStore, ``, `{"hicache_storage_backend":""}`},
		{sglang.ControlAttachStore, `{"hicache_storage_backend":"file"}`, `{"hicache_storage_backend":"file"}`},
		{sglang.ControlStore, ``, `{"hicache_storage_backend":"file"}`},
		{sglang.ControlDetachStore, ``, `{"hicache_storage_backend":""}`},
		{sglang.ControlDetachStore, ``, `{"hicache_storage_backend":""}`},
	} {
		if got, err := e.Control(t.Context(), step.control, json.RawMessage(step.args)); err != nil || string(got) != step.want {
			t.Errorf("%s: %s, %v; want %s", step.control, got, err, step.want)
		}
	}
}

// Beyond its own limit the server says so before anything else, and takes requests
// again afterwards.
func TestFull(t *testing.T) {
	args := mock.DefaultArgs()
	args.TimingModel, args.PrefillMS, args.DecodeMS = "constant", 5, 5
	e := attach(t, fake.Config{MostRunning: 1, Mock: mock.Config{Args: args}})
	status(t, e, engine.Ready)
	for _, err := range e.Generate(t.Context(), ask()) {
		if err != nil {
			t.Fatal(err)
		}
		r := ask()
		r.ID = "r-2"
		if _, _, err := collect(t.Context(), e, r); engine.KindOf(err) != engine.WorkerOverloaded {
			t.Errorf("%v, want overloaded", err)
		}
		break
	}
	await(t, "free", func() bool { return e.fake.Running() == 0 })
	if _, _, err := collect(t.Context(), e, ask()); err != nil {
		t.Error(err)
	}
}

// Where priorities protect what was cached, work in the background has the number
// of what it works for, or nobody's.
func TestPriorityThatEvicts(t *testing.T) {
	for _, tc := range []struct {
		policy string
		origin *int32
		given  int32
		want   string
	}{
		{"lru", ptr(int32(7)), -100, "-100"},
		{"priority", ptr(int32(7)), -100, "7"},
		{"priority", nil, -100, "0"},
		{"priority", ptr(int32(-5)), -5, "-5"},
		{"priority", ptr(int32(3)), 3, "3"},
	} {
		server := described(`{"enable_priority_scheduling":true,"radix_eviction_policy":"` + tc.policy + `"}`)
		var got map[string]json.RawMessage
		server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusBadRequest)
		}
		e := server.serve(t, sglang.Config{})
		status(t, e, engine.Ready)
		r := ask()
		r.Priority, r.KV.Priority = &tc.given, tc.origin
		collect(t.Context(), e, r)
		if string(got["priority"]) != tc.want {
			t.Errorf("%+v: sent %s", tc, got["priority"])
		}
	}
}

// The size of blocks is that of the server's events: its page times the ranks that
// share a context, or what it says itself. Small ones are worth a word.
func TestQuirk05BlockSize(t *testing.T) {
	for info, tc := range map[string]struct {
		size   uint32
		advice bool
	}{
		`{"page_size":16}`:                                     {16, false},
		`{"page_size":1}`:                                      {1, true},
		`{"page_size":16,"dcp_size":4}`:                        {64, false},
		`{"page_size":1,"kv_events":{"block_size":64}}`:        {64, false},
		`{"page_size":16,"dcp_size":2,"kv_events":{"x":true}}`: {32, false},
	} {
		var log strings.Builder
		e := described(info).serve(t, sglang.Config{Log: textLog(&log)})
		if c := status(t, e, engine.Ready).Card; c.BlockSize != tc.size {
			t.Errorf("%s: blocks of %d, want %d", info, c.BlockSize, tc.size)
		}
		e.Close()
		if strings.Contains(log.String(), "--page-size") != tc.advice {
			t.Errorf("%s: told an operator %q", info, log.String())
		}
	}
}

func TestEmbeddingServer(t *testing.T) {
	if s := status(t, described(`{"is_embedding":true}`).serve(t, sglang.Config{}), engine.Failed); !strings.Contains(s.Reason, "generates nothing") {
		t.Errorf("%+v", s)
	}
}

// Streams that are not as the server's flags say are answered all the same; an
// operator hears of it once.
func TestOtherStreamsThanSaid(t *testing.T) {
	for _, said := range []string{"incremental_streaming_output", "stream_output"} {
		server := described(`{"` + said + `":true}`)
		server["/generate"] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: "+chunk([]uint32{7}, 1, "")+"\n\ndata: "+chunk([]uint32{7, 8}, 2, length)+"\n\n")
		}
		var log strings.Builder
		e := server.serve(t, sglang.Config{Log: textLog(&log)})
		status(t, e, engine.Ready)
		for range 2 {
			if ids, _, err := collect(t.Context(), e, ask()); err != nil || !slices.Equal(ids, []uint32{7, 8}) {
				t.Errorf("%v, %v", ids, err)
			}
		}
		e.Close()
		if strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%s: told an operator %q", said, log.String())
		}
	}
}

// Tokens that the server takes back and computes again come once.
func TestQuirk16Retraction(t *testing.T) {
	taken, whole := attach(t, fake.Config{Retract: true}), attach(t, fake.Config{})
	r := &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2}, Logprobs: ptr(2), Stop: engine.Stop{MaxTokens: 40}}
	status(t, taken, engine.Ready)
	status(t, whole, engine.Ready)
	got, _, err := collect(t.Context(), taken, r)
	want, _, other := collect(t.Context(), whole, r)
	if err != nil || other != nil || !slices.Equal(got, want) || len(got) != 40 {
		t.Errorf("%v, %v; want %v, %v", got, err, want, other)
	}
}

// Cached tokens are as the server tells, with the tiers that they came from, and
// unknown where it does not: never 0.
func TestQuirk07CachedTokensUnknown(t *testing.T) {
	e := streams(t, chunk([]uint32{7}, 1, `,"cached_tokens":2,"cached_tokens_details":{"device":1,"host":1}`+length))
	_, last, err := collect(t.Context(), e, ask())
	if err != nil || last.Usage.Cached == nil || *last.Usage.Cached != 2 || string(last.EngineData) != `{"cached_tokens_details":{"device":1,"host":1}}` {
		t.Errorf("%+v, %s, %v", last.Usage, last.EngineData, err)
	}
	_, last, err = collect(t.Context(), streams(t, chunk([]uint32{7}, 1, length)), ask())
	if err != nil || last.Usage.Cached != nil || last.EngineData != nil {
		t.Errorf("%+v, %s, %v", last.Usage, last.EngineData, err)
	}
	_, last, err = collect(t.Context(), streams(t, chunk([]uint32{7}, 1, `,"cached_tokens_details":null,"finish_reason":{"type":"bored"}`)), ask())
	if err != nil || last.Finish != engine.FinishStop || string(last.EngineData) != `{"finish_reason":"bored"}` {
		t.Errorf("%+v, %s, %v", last, last.EngineData, err)
	}
}

// The share of tokens in use stands in for their number, and of workers that share
// a rank the first counts.
func TestLoadByShare(t *testing.T) {
	for page, used := range map[string]int64{
		"sglang:token_usage 0.25\nsglang:max_total_num_tokens 1600\nsglang:num_running_reqs{pp_rank=\"1\"} 9\n": 25,
		"sglang:token_usage 0.25\nsglang:max_total_num_tokens 1600\nsglang:kv_used_tokens 160\n":                10,
		"sglang:token_usage 25\nsglang:max_total_num_tokens 1600\n":                                             engine.Unknown,
	} {
		server := described(`{"page_size":16}`)
		server["/metrics"] = say(page)
		e := server.serve(t, sglang.Config{Every: 10 * time.Millisecond})
		status(t, e, engine.Ready)
		if l := reading(t, e); l.UsedBlocks != used || l.TotalBlocks != 100 || l.Running != engine.Unknown {
			t.Errorf("%s: %+v", page, l)
		}
	}
}

// A page of metrics has the load of each rank.
func TestLoadOfRanks(t *testing.T) {
	args := mock.DefaultArgs()
	args.DPSize, args.SpeedupRatio = 2, 0
	e := attach(t, fake.Config{Metrics: true, OldNames: true, Mock: mock.Config{Args: args}})
	status(t, e, engine.Ready)
	for l := range e.Load(t.Context()) {
		if len(l.Ranks) != 2 || l.Ranks[1].Rank != 1 || l.Ranks[1].Running != 0 || l.Ranks[1].TotalBlocks != int64(args.NumGPUBlocks) {
			t.Errorf("%+v", l)
		}
		break
	}
}

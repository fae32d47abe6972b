package sim_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

var update = flag.Bool("update", false, "write the golden reports anew")

// A workload of which every figure can be worked out by hand: four requests one
// after the other, with answers of 1 to 4 tokens, the second half of them the
// same as the first.
func TestReport(t *testing.T) {
	args := steps()
	args.MaxNumSeqs = 1
	w := []trace.Request{ask(1, 0, 100, 1), ask(2, 0, 100, 2), ask(3, 0, 100, 3), ask(4, 0, 100, 4)}
	w[2].Prompt, w[3].Prompt = w[0].Prompt, w[1].Prompt
	r, _ := run(t, sim.Config{Engine: args, GPUs: 2, Goodput: sim.Goodput{TTFT: 30 * ms, ITL: 5 * ms}}, w)
	// Tokens come at 10; 20, 25; 35, 40, 45; 55, 60, 65, 70 ms.
	want := sim.Report{
		Requests: 4, Completed: 4, InputTokens: 400, OutputTokens: 10, Duration: 70 * ms,
		// (100-1)/16 = 6 blocks of each of the later two.
		Reused: 192.0 / 400, FirstReused: 192.0 / 400, Cached: 192,
		// They were placed before the first two had been computed.
		Predicted: 0, PredictionError: 192.0 / 400,
		TTFT: sim.Distribution{Mean: 30, Min: 10, Max: 55, Median: 35, P75: 35, P90: 55, P95: 55, P99: 55, Std: math.Sqrt((400 + 100 + 25 + 625) / 4.0)},
		E2E:  sim.Distribution{Mean: 37.5, Min: 10, Max: 70, Median: 45, P75: 45, P90: 70, P95: 70, P99: 70, Std: math.Sqrt((27.5*27.5 + 12.5*12.5 + 7.5*7.5 + 32.5*32.5) / 4)},
		TTST: all(5), TPOT: all(5), ITL: all(5), PerUser: all(200),
		Goodput: sim.Goodput{TTFT: 30 * ms, ITL: 5 * ms}, Good: 2, GoodOutput: 3,
		DecodeSeconds: 0.07, DecodeGPUs: 2, PrefillGPUs: 1,
		Targets:   []sim.TargetReport{{Worker: "worker-0", Requests: 4, Uncached: 208, Busy: 70 * ms}},
		Imbalance: sim.Imbalance{Requests: 1, Uncached: 1, Busy: 1},
	}
	want.Failed, want.Router = r.Failed, r.Router
	want.Classes = []sim.ClassReport{{Requests: 4, TTFT: want.TTFT}}
	// 6 blocks of each of the first two, in a cache that is large enough.
	want.Caches.Tiers[kv.TierDevice] = sim.TierReport{Blocks: args.NumGPUBlocks, Stored: 12, HitTokens: 192}
	if len(r.Failed) > 0 || r.Router.Decisions != 4 {
		t.Errorf("failed %v, %d decisions", r.Failed, r.Router.Decisions)
	}
	if diff := cmp.Diff(&want, r); diff != "" {
		t.Error(diff)
	}
}

// all is the distribution of values that are all the same.
func all(x float64) sim.Distribution {
	return sim.Distribution{Mean: x, Min: x, Max: x, Median: x, P75: x, P90: x, P95: x, P99: x}
}

// The names of a report are those that tools for replays read.
func TestReportKeys(t *testing.T) {
	r, _ := run(t, sim.Config{Goodput: sim.Goodput{E2E: time.Second}}, []trace.Request{ask(1, 0, 100, 3), ask(2, 0, 100, 3)})
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]jsontext.Value
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`num_requests completed_requests total_input_tokens total_output_tokens duration_ms wall_time_ms
		request_throughput_rps input_throughput_tok_s output_throughput_tok_s total_throughput_tok_s prefix_cache_reused_ratio
		first_admission_prefix_cache_reused_ratio goodput_completed_requests goodput_output_throughput_tok_s
		prefill_worker_seconds decode_worker_seconds prefill_gpus_per_worker decode_gpus_per_worker gpu_hours`)
	for _, d := range []string{"ttft_ms", "ttst_ms", "tpot_ms", "itl_ms", "e2e_latency_ms", "output_token_throughput_per_user"} {
		for _, s := range []string{"mean", "min", "max", "median", "p75", "p90", "p95", "p99", "std"} {
			want = append(want, s+"_"+d)
		}
	}
	for _, name := range want {
		var number float64
		if err := json.Unmarshal(got[name], &number); err != nil {
			t.Errorf("%s is %s, want a number", name, got[name])
		}
	}
	ours := strings.Fields("failed_requests prediction imbalance targets classes caches router")
	for name := range got {
		if !slices.Contains(want, name) && !slices.Contains(ours, name) {
			t.Errorf("%s is in the report, and no tool knows it", name)
		}
	}
}

// The first thousand requests of the recorded traces, to the last digit. A change
// here is a change of the router or of the engines.
func TestGolden(t *testing.T) {
	small := mock.DefaultArgs()
	small.NumGPUBlocks = 2200 // some are sent back from the batch
	for _, tt := range []struct {
		name   string
		trace  string
		rows   int
		config sim.Config
	}{
		{"conversation", "conversation", 1000, sim.Config{Workers: 4}},
		{"conversation_crowded", "conversation", 300, sim.Config{Workers: 4, Engine: small, Concurrency: 64}},
		{"synthetic", "synthetic", 1000, sim.Config{Workers: 4}},
	} {
		w := recorded(t, tt.trace, tt.rows)
		r, err := sim.Run(tt.config, w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + tt.name + ".json"
		if *update {
			if err := os.WriteFile(file, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s (go test ./sim -run TestGolden -update writes it anew):\n%s", file, diff)
		}
	}
}

// Requests that failed, several classes and good requests have lines of their
// own in the table.
func TestTable(t *testing.T) {
	args := steps()
	args.NumGPUBlocks = 10
	a, b := ask(1, 0, 100, 2), ask(3, 0, 100, 2)
	a.Class, b.Class = "chat", "batch"
	r, _ := run(t, sim.Config{Engine: args, Goodput: sim.Goodput{TTFT: ms}}, []trace.Request{a, ask(2, 0, 500, 2), b})
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Time to first token (ms) 17.50 10.00 25.00", "Requests 3, of which 2 completed", "Failed 1 with invalid_argument",
		"Good requests 0,", "Queue of batch 0 of 1", "Queue of chat 0 of 1", "Fleet 1 worker, 0.000 GPU hours",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the table has no %q:\n%s", want, &out)
		}
	}
	two := steps()
	two.DPSize = 2
	for want, c := range map[string]sim.Config{
		"3 workers,":                      {Workers: 3, Engine: two},
		"2 prefill and 1 decode workers,": {Workers: 1, Prefills: 2, Engine: steps()},
	} {
		r, _ := run(t, c, []trace.Request{ask(1, 0, 100, 2)})
		out.Reset()
		if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q, %v:\n%s", want, err, &out)
		}
	}
}

// A record has the names that tools for replays read, and nothing that never
// happened.
func TestRecord(t *testing.T) {
	for _, tt := range []struct {
		record sim.Record
		want   string
	}{
		{
			sim.Record{
				ID: "a", Session: "s", Class: "c", Input: 100, Output: 3, Predicted: 64, Cached: 48, Reused: 64,
				Arrived: 5 * ms, Parked: 10 * ms, Placed: 15 * ms, Admitted: 20 * ms, First: 30 * ms, Second: 35 * ms, Last: 41 * ms, Ended: 41 * ms,
				Worker: "worker-1", Rank: 2, Decoder: "worker-3", Migrations: 1,
			},
			`{"request_id":"a","session_id":"s","policy_class":"c","arrival_time_ms":5,"input_length":100,"output_length":3,` +
				`"logical_worker_id":"worker-1","dp_rank":2,"first_admit_ms":20,"predicted_cached_tokens":64,"cached_tokens":48,"reused_input_tokens":64,` +
				`"decode_worker_id":"worker-3","first_token_ms":30,"last_token_ms":41,"ttft_ms":25,"e2e_latency_ms":36,"ttst_ms":5,"tpot_ms":5.5,` +
				`"outcome":"queued","queue_entered_at_ms":5,"released_at_ms":15,"queue_wait_ms":10,"migrations":1}`,
		},
		{
			sim.Record{ID: "b", Input: 9, Arrived: ms, Ended: ms, Err: errors.New("too long")},
			`{"request_id":"b","arrival_time_ms":1,"input_length":9,"output_length":0,"error":"too long"}`,
		},
	} {
		got, err := json.Marshal(&tt.record)
		if err != nil || string(got) != tt.want {
			t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
		}
	}
}

func ExampleRun() {
	// Two turns of a conversation; the second comes a second after the answer to
	// the first, begins with it, and goes where that is cached.
	first := trace.Request{ID: "first", Prompt: trace.Text{{Stream: 1, Len: 2000}}, Answer: trace.Text{{Stream: 2, Len: 100}}}
	second := trace.Request{
		ID: "second", After: []string{"first"}, Delay: time.Second,
		Prompt: slices.Concat(first.Prompt, first.Answer, trace.Text{{Stream: 3, Len: 50}}), Answer: trace.Text{{Stream: 4, Len: 100}},
	}
	report, err := sim.Run(sim.Config{
		Workers: 4,
		Record: func(r *sim.Record) {
			fmt.Printf("%s: %d of %d tokens cached, first token after %v\n", r.ID, r.Cached, r.Input, (r.First - r.Arrived).Round(time.Millisecond))
		},
	}, []trace.Request{first, second})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d requests in %.1f s\n", report.Completed, report.Duration.Seconds())
	// Output:
	// first: 0 of 2000 tokens cached, first token after 66ms
	// second: 2048 of 2150 tokens cached, first token after 9ms
	// 2 requests in 2.3 s
}

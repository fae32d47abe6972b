package meter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/meter"
	"github.com/dynago/dynago/router/remote"
	"github.com/dynago/dynago/router/thompson"
)

// page returns what a scrape of collectors shows, without the lines of help, and
// with the random id of the router taken out.
func page(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "router_id" && !strings.HasPrefix(f.GetName(), "dynamo_component_router_") {
					t.Errorf("%s carries the router's id", f.GetName())
				}
			}
		}
	}
	return text.String()
}

// value returns that of the line which begins with name and has all the labels.
func value(t *testing.T, page, name string, labels ...string) string {
	t.Helper()
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			_, v, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if v == "" {
				_, v, _ = strings.Cut(strings.TrimSpace(line), " ")
			}
			return v
		}
	}
	t.Errorf("no %s with %q on the page", name, labels)
	return ""
}

// bounds returns the buckets of a histogram.
func bounds(page, name string) (all []string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"_bucket{") {
			_, rest, _ := strings.Cut(line, `le="`)
			bound, _, _ := strings.Cut(rest, `"`)
			all = append(all, bound)
		}
	}
	return all
}

// Boards that were made for the reference find its names, labels and buckets.
func TestNames(t *testing.T) {
	m := meter.New()
	m.Routed(&router.Decision{Blocks: 4, Overlap: 1}, &router.Work{PromptTokens: 60, LostBlocks: 2, SharedAsked: true})
	m.Ended(&router.Outcome{First: time.Second, Total: 2 * time.Second, OutputTokens: 2, End: router.Completed})
	text := page(t, m)
	for _, tc := range []struct {
		name        string
		n           int // buckets, that of everything included
		first, last string
	}{
		{"time_to_first_token_seconds", 14, "0.001", "2"},
		{"inter_token_latency_seconds", 14, "0.001", "2"},
		{"kv_transfer_estimated_latency_seconds", 16, "0.001", "10"},
		{"input_sequence_tokens", 13, "50", "128000"},
		{"output_sequence_tokens", 11, "50", "32000"},
		{"kv_hit_rate", 22, "0", "1"},
		{"shared_cache_hit_rate", 22, "0", "1"},
		{"shared_cache_beyond_blocks", 14, "1", "4096"},
		{"overlap_blocks_lost", 14, "1", "4096"},
	} {
		name := "dynamo_component_router_" + tc.name
		if all := bounds(text, name); len(all) != tc.n || all[0] != tc.first || all[tc.n-2] != tc.last || all[tc.n-1] != "+Inf" {
			t.Errorf("%s has the buckets %q", name, all)
		}
		for _, l := range []string{`dynamo_namespace="dynamo"`, `dynamo_component="backend"`, `dynamo_endpoint="generate"`, `router_id="`} {
			value(t, text, name+"_count", l)
		}
	}
	for _, tc := range []struct {
		name        string
		n           int
		first, last string
	}{
		{"block_hashing", 16, "0.001", "16.384"},
		{"indexer_find_matches", 16, "0.001", "16.384"},
		{"scheduling", 18, "0.01", "430467.21"},
		{"total", 18, "0.01", "430467.21"},
		{"shared_cache_query", 18, "0.01", "430467.21"},
	} {
		name := "dynamo_router_overhead_" + tc.name + "_ms"
		all := bounds(text, name)
		if len(all) != tc.n || all[0] != tc.first {
			t.Errorf("%s has the buckets %q", name, all)
		}
		value(t, text, name+"_count")
	}
}

// What is observed adds up.
func TestObserved(t *testing.T) {
	m := meter.New()
	m.Routed(&router.Decision{Blocks: 10, Overlap: 7, Routing: 3 * time.Millisecond}, &router.Work{
		PromptTokens: 160, LostBlocks: 1.5, Role: engine.Prefill,
		Hashing: time.Millisecond, Matching: time.Microsecond, Scheduling: 2 * time.Millisecond,
	})
	m.Routed(&router.Decision{}, &router.Work{}) // an empty prompt divides by nothing
	m.Ended(&router.Outcome{Queue: time.Second, First: time.Second, Transfer: 250 * time.Millisecond, Total: 5 * time.Second, OutputTokens: 5, End: router.Completed})
	m.Ended(&router.Outcome{})                                                                          // never came to a token
	m.Ended(&router.Outcome{First: time.Second, Total: time.Hour, OutputTokens: 5, End: router.Failed}) // its gaps are nobody's
	text := page(t, m)
	for name, want := range map[string]string{
		"dynamo_component_router_kv_hit_rate_sum":                                        "0.7",
		"dynamo_component_router_kv_hit_rate_count":                                      "1",
		"dynamo_component_router_input_sequence_tokens_sum":                              "160",
		"dynamo_component_router_overlap_blocks_lost_sum":                                "1.5",
		`dynamo_component_router_non_max_overlap_selections_total worker_type="prefill"`: "1",
		"dynamo_component_router_time_to_first_token_seconds_sum":                        "3",
		"dynamo_component_router_inter_token_latency_seconds_sum":                        "1",
		"dynamo_component_router_inter_token_latency_seconds_count":                      "1",
		"dynamo_component_router_kv_transfer_estimated_latency_seconds_sum":              "0.25",
		"dynamo_component_router_kv_transfer_estimated_latency_seconds_count":            "1",
		"dynamo_component_router_output_sequence_tokens_sum":                             "10",
		"dynamo_component_router_requests_total":                                         "3",
		"dynamo_component_router_shared_cache_hit_rate_count":                            "0",
		"dynamo_router_overhead_block_hashing_ms_sum":                                    "1",
		"dynamo_router_overhead_indexer_find_matches_ms_sum":                             "0.001",
		"dynamo_router_overhead_scheduling_ms_sum":                                       "2",
		"dynamo_router_overhead_total_ms_sum":                                            "3",
	} {
		name, label, _ := strings.Cut(name, " ")
		if got := value(t, text, name, label); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// What a router knows is read from it, and goes with what it was about.
func TestWatch(t *testing.T) {
	workers := fleet.New(fleet.Config{})
	m := meter.New()
	threshold := 0.0
	r, err := router.New(router.Config{QueueThreshold: &threshold, Observer: m, SessionTTL: time.Minute}, workers)
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(r)
	tell, err := workers.Report(fleet.Entry{Name: "one", ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	tell.Status(engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: &engine.Card{
		Model: "m", ContextLength: 1024, BlockSize: 16, DPSize: 2, DPStart: 3, MaxBatchedTokens: 100,
	}})
	ctx, leave := context.WithCancel(context.Background())
	placed, refused := make(chan *router.Booking, 5), make(chan error, 5)
	for i := range 5 {
		prompt := slices.Repeat([]uint32{uint32(i)}, 160) // nobody has any of it cached
		q := &router.Query{ID: fmt.Sprint(i), Model: "m", Tokens: prompt, Session: router.Session{ID: fmt.Sprint("s", i%4)}}
		r.Submit(ctx, q, func(b *router.Booking, err error) {
			if b != nil {
				placed <- b
			} else {
				refused <- err
			}
		})
	}
	if len(placed) != 2 {
		t.Fatalf("%d of 5 requests were placed on two idle ranks", len(placed))
	}
	text := page(t, m)
	queue := []string{`model="m"`, `worker_type="decode"`, `policy_class="default"`}
	for _, tc := range []struct {
		name, want string
		labels     []string
	}{
		{"dynamo_component_router_requests_started_total", "5", nil},
		{"dynamo_component_router_worker_registered", "1", []string{`router_worker_id="1"`, `dp_rank="4"`, `worker_type="decode"`}},
		{"dynamo_frontend_router_queue_pending_requests", "3", queue},
		{"dynamo_frontend_router_queue_pending_isl_tokens", "480", queue},
		{"dynamo_frontend_router_queue_pending_cached_tokens", "0", queue},
		{"dynamo_frontend_router_queue_backpressure_total", "0", append(queue, `reason="request_limit"`)},
		{"dynamo_component_router_kv_event_source_mismatch_workers", "1", []string{`router_id="`}},
		{"dynago_router_parked_total", "3", nil},
		{"dynago_router_session_bindings", "4", nil},
		{"dynago_router_session_events_total", "2", []string{`event="bound"`}},
	} {
		if got := value(t, text, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%q is %s, want %s", tc.name, tc.labels, got, tc.want)
		}
	}
	leave()
	for range 3 {
		if err := <-refused; err == nil {
			t.Error("who left was not told why")
		}
	}
	for range 2 {
		(<-placed).Release()
	}
	workers.Remove(1)
	text = page(t, m)
	if got := value(t, text, "dynamo_frontend_router_queue_pending_requests", queue...); got != "0" {
		t.Errorf("%s requests wait whose clients have left", got)
	}
	if strings.Contains(text, "worker_registered") {
		t.Error("a worker that has left is still shown")
	}
	if got := value(t, text, "dynamo_component_router_kv_event_source_mismatch_workers"); got != "0" {
		t.Errorf("%s workers that have left tell nothing", got)
	}
}

func TestPolicies(t *testing.T) {
	workers := fleet.New(fleet.Config{})
	defer workers.Close()
	if _, err := workers.Report(fleet.Entry{Name: "one", ID: 11}); err != nil {
		t.Fatal(err)
	}
	learned := thompson.Stats{
		Arms: []thompson.Arm{
			{Worker: "gone", Decisions: 100, Alpha: 9, Beta: 9},
			{Worker: "one", Rank: 2, Decisions: 7, Alpha: 3.5, Beta: 1.25},
		},
		Pending: 4, Sessions: 5, Timeouts: 6, Sticky: 8, Switches: 9,
		Reward: thompson.Histogram{Bounds: []float64{0.5, 1}, Counts: []uint64{1, 2, 0}, Sum: 2.25},
	}
	answered := remote.Stats{Answers: 3, Timeouts: 2, Open: true, Lost: 1}
	text := page(t,
		meter.Thompson("aggregated", func() thompson.Stats { return learned }, workers.Snapshot),
		meter.Thompson("prefill", func() thompson.Stats { return thompson.Stats{} }, workers.Snapshot),
		meter.Remote("aggregated", func() remote.Stats { return answered }),
	)
	for _, tc := range []struct {
		name, want string
		labels     []string
	}{
		{"thompson_router_decisions_total", "7", []string{`worker_id="11"`, `dp_rank="2"`, `worker_type="aggregated"`}},
		{"thompson_router_beta_alpha", "3.5", nil},
		{"thompson_router_beta_beta", "1.25", nil},
		{"thompson_router_pending_decisions", "0", []string{`worker_type="prefill"`}},
		{"thompson_router_prefix_state_size", "5", []string{`aggregated`}},
		{"thompson_router_timeout_penalties_total", "6", []string{`aggregated`}},
		{"thompson_router_sticky_decisions_total", "8", []string{`aggregated`}},
		{"thompson_router_switch_decisions_total", "9", []string{`aggregated`}},
		{"thompson_router_reward_bucket", "1", []string{`aggregated`, `le="0.5"`}},
		{"thompson_router_reward_bucket", "3", []string{`aggregated`, `le="1"`}},
		{"thompson_router_reward_sum", "2.25", []string{`aggregated`}},
		{"dynago_remote_policy_requests_total", "3", []string{`result="answered"`}},
		{"dynago_remote_policy_requests_total", "2", []string{`result="timeout"`}},
		{"dynago_remote_policy_outcomes_total", "1", []string{`result="lost"`}},
		{"dynago_remote_policy_skipped", "1", nil},
	} {
		if got := value(t, text, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%q is %s, want %s", tc.name, tc.labels, got, tc.want)
		}
	}
	if n := strings.Count(text, "\nthompson_router_beta_alpha{"); n != 1 {
		t.Errorf("%d beliefs are shown, want that in the worker that is there", n)
	}
}

package frontend_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
)

// families reads the page: the labels of each family, sorted.
func families(t *testing.T, page string) map[string][]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	out := map[string][]string{}
	for name, f := range parsed {
		labels := []string{}
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		out[name+" "+strings.ToLower(f.GetType().String())] = labels
	}
	return out
}

func TestMetricNames(t *testing.T) {
	backend := newFake()
	backend.models[0].Cache, backend.models[0].Turns = &prompt.CacheStats{}, &prompt.TurnStats{}
	s := start(t, backend)
	s.do("POST", "/v1/chat/completions", askStream)
	s.metric(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="acme/demo",request_type="stream",status="success"} 1`)
	got := families(t, s.do("GET", "/metrics", "").body)
	for family, labels := range map[string]string{
		"dynamo_frontend_requests_total counter":                        "endpoint error_type model request_type status",
		"dynamo_frontend_requests_started_total counter":                "endpoint model request_type",
		"dynamo_frontend_active_requests gauge":                         "model",
		"dynamo_frontend_inflight_requests gauge":                       "model",
		"dynamo_frontend_queued_requests gauge":                         "model",
		"dynamo_frontend_disconnected_clients gauge":                    "",
		"dynamo_frontend_request_duration_seconds histogram":            "model",
		"dynamo_frontend_time_to_first_token_seconds histogram":         "model",
		"dynamo_frontend_inter_token_latency_seconds histogram":         "model",
		"dynamo_frontend_input_sequence_tokens histogram":               "model",
		"dynamo_frontend_output_sequence_tokens histogram":              "model",
		"dynamo_frontend_cached_tokens histogram":                       "model",
		"dynamo_frontend_output_tokens_total counter":                   "model",
		"dynamo_frontend_tokenizer_latency_ms histogram":                "operation",
		"dynamo_frontend_model_cancellation_total counter":              "endpoint model request_type",
		"dynamo_frontend_model_rejection_total counter":                 "endpoint model",
		"dynamo_frontend_model_migration_total counter":                 "migration_type model",
		"dynamo_frontend_model_total_kv_blocks gauge":                   "model",
		"dynamo_frontend_model_max_num_seqs gauge":                      "model",
		"dynamo_frontend_model_max_num_batched_tokens gauge":            "model",
		"dynamo_frontend_model_context_length gauge":                    "model",
		"dynamo_frontend_model_kv_cache_block_size gauge":               "model",
		"dynamo_frontend_model_migration_limit gauge":                   "model",
		"dynamo_frontend_worker_active_decode_blocks gauge":             "dp_rank worker_id worker_type",
		"dynamo_frontend_worker_active_prefill_tokens gauge":            "dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_time_to_first_token_seconds gauge": "dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_input_sequence_tokens gauge":       "dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_inter_token_latency_seconds gauge": "dp_rank worker_id worker_type",
		"dynamo_frontend_stage_duration_seconds histogram":              "stage",
		"dynamo_frontend_tokenize_seconds histogram":                    "",
		"dynamo_frontend_template_seconds histogram":                    "",
		"dynamo_frontend_tokenizer_cache_hits_total counter":            "",
		"dynamo_frontend_tokenizer_cache_misses_total counter":          "",
		"dynamo_frontend_tokenizer_cache_cached_tokens_total counter":   "model",
		"dynamo_frontend_tokenizer_cache_uncached_tokens_total counter": "model",
		"dynamo_component_kv_cache_events_applied counter":              "event_type status",
		"dynago_agent_invalid_inputs_total counter":                     "",
		"dynago_parser_dropped_total counter":                           "family reason",
		"dynago_index_conflicts_total counter":                          "",
		"dynamo_component_kv_cache_event_warnings counter":              "warning_kind",
		"dynamo_frontend_stage_requests gauge":                          "phase stage",
		"dynamo_frontend_detokenize_total_us counter":                   "",
		"dynamo_frontend_detokenize_token_count counter":                "",
		"dynamo_request_plane_roundtrip_ttft_seconds histogram":         "",
		"dynamo_request_plane_inflight_requests gauge":                  "",
		"dynago_index_targets gauge":                                    "",
		"dynago_index_prefixes gauge":                                   "",
		"dynago_index_blocks gauge":                                     "",
		"dynago_index_refused_batches_total counter":                    "reason",
		"dynago_worker_kv_event_batches_total counter":                  "status worker_id",
		"dynago_worker_kv_event_streams_total counter":                  "worker_id",
		"dynamo_router_shared_cache_errors_total counter":               "",
		"dynago_cache_prediction_answers_total counter":                 "dp_rank worker_id",
		"dynago_cache_prediction_predicted_tokens_total counter":        "dp_rank worker_id",
		"dynago_cache_prediction_reported_tokens_total counter":         "dp_rank worker_id",
		"dynago_cache_prediction_witnesses_total counter":               "dp_rank worker_id",
		"dynago_cache_prediction_wrong_blocks_total counter":            "dp_rank kind worker_id",
		"dynago_cache_prediction_drift gauge":                           "dp_rank worker_id",
		"dynago_cache_prediction_doubted gauge":                         "dp_rank worker_id",
		"dynago_cache_prediction_doubts_total counter":                  "dp_rank worker_id",
		"dynago_cache_prediction_resyncs_total counter":                 "dp_rank worker_id",
		"dynago_worker_kv_events_silent gauge":                          "dp_rank worker_id",
		"dynago_tokenizer_cache_evictions_total counter":                "model",
		"dynago_tokenizer_cache_bytes gauge":                            "model",
		"dynago_tokenizer_cache_texts gauge":                            "model",
		"dynago_turn_cache_hits_total counter":                          "model",
		"dynago_turn_cache_misses_total counter":                        "model",
		"dynago_turn_cache_tokens_total counter":                        "model",
		"dynago_turn_cache_evictions_total counter":                     "model",
		"dynago_turn_cache_bytes gauge":                                 "model",
		"dynago_turn_cache_turns gauge":                                 "model",
		"go_goroutines gauge":                                           "",
		"process_resident_memory_bytes gauge":                           "",
	} {
		if l, ok := got[family]; !ok || strings.Join(l, " ") != labels {
			t.Errorf("%s: labels %v, want %s", family, l, labels)
		}
	}
}

func TestMetricValues(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	for range 3 {
		s.do("POST", "/v1/chat/completions", ask)
	}
	for _, line := range []string{
		`dynamo_frontend_requests_started_total{endpoint="chat_completions",model="acme/demo",request_type="unary"} 3`,
		`dynamo_frontend_output_tokens_total{model="acme/demo"} 6`,
		`dynamo_frontend_output_sequence_tokens_sum{model="acme/demo"} 6`,
		`dynamo_frontend_input_sequence_tokens_sum{model="acme/demo"} 21`,
		`dynamo_frontend_cached_tokens_sum{model="acme/demo"} 12`,
		`dynamo_frontend_time_to_first_token_seconds_count{model="acme/demo"} 3`,
		`dynamo_frontend_inter_token_latency_seconds_count{model="acme/demo"} 3`,
		`dynamo_frontend_inter_token_latency_seconds_bucket{model="acme/demo",le="+Inf"} 3`,
		`dynamo_frontend_request_duration_seconds_count{model="acme/demo"} 3`,
		`dynamo_frontend_request_duration_seconds_bucket{model="acme/demo",le="510"} 3`,
		`dynamo_frontend_queued_requests{model="acme/demo"} 0`,
		`dynamo_frontend_model_context_length{model="acme/demo"} 4096`,
		`dynamo_frontend_worker_active_decode_blocks{dp_rank="0",worker_id="42",worker_type="decode"} 5`,
		`dynamo_frontend_worker_active_prefill_tokens{dp_rank="0",worker_id="43",worker_type="prefill"} 7`,
		`dynamo_frontend_template_seconds_count 3`,
		`dynamo_frontend_stage_duration_seconds_count{stage="preprocess"} 3`,
		`dynamo_frontend_stage_duration_seconds_count{stage="route"} 3`,
	} {
		s.metric(line)
	}
}

// What is remembered of prompts, answers and tools is told for each model that has a
// cache, and what the reference counts over all of them, once.
func TestPromptMetrics(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	if page := s.do("GET", "/metrics", "").body; strings.Contains(page, "tokenizer_cache") || strings.Contains(page, "turn_cache") || strings.Contains(page, "tool_cache") {
		t.Error("metrics of caches that are off")
	}
	backend.mu.Lock()
	backend.models[0].Cache = &prompt.CacheStats{Hits: 3, Misses: 1, CachedTokens: 500, UncachedTokens: 70, Evictions: 9, Bytes: 4000, Texts: 8}
	backend.models[1].Cache = &prompt.CacheStats{Hits: 4, Misses: 5}
	backend.models[0].Turns = &prompt.TurnStats{Hits: 11, Misses: 12, Tokens: 130, Evictions: 14, Bytes: 1500, Turns: 16}
	backend.models[0].Tools = &chattemplate.ToolCache{Hits: 21, Misses: 22, Resets: 23, Bytes: 2400, Tools: 25}
	backend.mu.Unlock()
	for _, line := range []string{
		`dynago_tool_cache_hits_total{model="acme/demo"} 21`,
		`dynago_tool_cache_misses_total{model="acme/demo"} 22`,
		`dynago_tool_cache_resets_total{model="acme/demo"} 23`,
		`dynago_tool_cache_bytes{model="acme/demo"} 2400`,
		`dynago_tool_cache_tools{model="acme/demo"} 25`,
		`dynamo_frontend_tokenizer_cache_hits_total 7`,
		`dynamo_frontend_tokenizer_cache_misses_total 6`,
		`dynamo_frontend_tokenizer_cache_cached_tokens_total{model="acme/demo"} 500`,
		`dynamo_frontend_tokenizer_cache_uncached_tokens_total{model="acme/demo"} 70`,
		`dynago_tokenizer_cache_evictions_total{model="acme/demo"} 9`,
		`dynago_tokenizer_cache_bytes{model="acme/demo"} 4000`,
		`dynago_tokenizer_cache_texts{model="acme/demo"} 8`,
		`dynago_turn_cache_hits_total{model="acme/demo"} 11`,
		`dynago_turn_cache_misses_total{model="acme/demo"} 12`,
		`dynago_turn_cache_tokens_total{model="acme/demo"} 130`,
		`dynago_turn_cache_evictions_total{model="acme/demo"} 14`,
		`dynago_turn_cache_bytes{model="acme/demo"} 1500`,
		`dynago_turn_cache_turns{model="acme/demo"} 16`,
	} {
		s.metric(line)
	}
}

func TestCacheMetrics(t *testing.T) {
	s := start(t, newFake())
	for _, line := range []string{
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"} 91`,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="parent_block_not_found"} 4`,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="invalid_block"} 3`,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="capacity_exhausted"} 2`,
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="ok"} 25`,
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="block_not_found"} 5`,
		`dynamo_component_kv_cache_events_applied{event_type="cleared",status="ok"} 1`,
		`dynamo_component_kv_cache_events_applied{event_type="unknown",status="unsupported"} 6`,
		`dynago_index_conflicts_total 7`,
		`dynamo_component_kv_cache_event_warnings{warning_kind="duplicate_store"} 8`,
		`dynago_index_targets 2`,
		`dynago_index_prefixes 50`,
		`dynago_index_blocks 70`,
		`dynago_index_refused_batches_total{reason="unknown_worker"} 11`,
		`dynago_index_refused_batches_total{reason="not_listened_to"} 12`,
		`dynago_index_refused_batches_total{reason="too_many_blocks"} 13`,
		`dynago_index_refused_batches_total{reason="muted"} 14`,
		`dynago_worker_kv_event_batches_total{status="applied",worker_id="42"} 21`,
		`dynago_worker_kv_event_batches_total{status="voided",worker_id="42"} 22`,
		`dynago_worker_kv_event_batches_total{status="ignored",worker_id="42"} 23`,
		`dynago_worker_kv_event_batches_total{status="torn",worker_id="42"} 24`,
		`dynago_worker_kv_event_batches_total{status="foreign_rank",worker_id="42"} 25`,
		`dynago_worker_kv_event_streams_total{worker_id="42"} 26`,
		`dynamo_router_shared_cache_errors_total 9`,
		`dynago_cache_prediction_answers_total{dp_rank="1",worker_id="42"} 10`,
		`dynago_cache_prediction_predicted_tokens_total{dp_rank="1",worker_id="42"} 1000`,
		`dynago_cache_prediction_reported_tokens_total{dp_rank="1",worker_id="42"} 900`,
		`dynago_cache_prediction_witnesses_total{dp_rank="1",worker_id="42"} 8`,
		`dynago_cache_prediction_wrong_blocks_total{dp_rank="1",kind="missing",worker_id="42"} 3`,
		`dynago_cache_prediction_wrong_blocks_total{dp_rank="1",kind="surprising",worker_id="42"} 2`,
		`dynago_cache_prediction_drift{dp_rank="1",worker_id="42"} 0.5`,
		`dynago_cache_prediction_doubted{dp_rank="1",worker_id="42"} 1`,
		`dynago_cache_prediction_doubts_total{dp_rank="1",worker_id="42"} 1`,
		`dynago_cache_prediction_resyncs_total{dp_rank="1",worker_id="42"} 4`,
		`dynago_worker_kv_events_silent{dp_rank="1",worker_id="42"} 1`,
	} {
		s.metric(line)
	}
}

// A request that moved counts where it was when it moved.
func TestMigrationMetrics(t *testing.T) {
	backend := newFake()
	backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		requests[0].Notes.Attempts = 2
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			requests[0].Notes.Attempts = 5
			for _, e := range helloEvents()[3:] {
				yield(e, nil)
			}
		})
	}
	s := start(t, backend)
	s.do("POST", "/v1/chat/completions", ask)
	s.metric(`dynamo_frontend_model_migration_total{migration_type="new_request",model="acme/demo"} 1`)
	s.metric(`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="acme/demo"} 3`)
}

// The line about a request, its count and its row say the same of how it has ended.
func TestLineAndMetricsAgree(t *testing.T) {
	kinds := map[engine.ErrorKind]string{
		"": "", engine.InvalidArgument: "validation", engine.NotFound: "not_found", engine.WorkerOverloaded: "overload",
		engine.ResourceExhausted: "overload", engine.Unavailable: "unavailable", engine.Cancelled: "cancelled", engine.ResponseTimeout: "response_timeout",
		engine.Internal: "internal", engine.EngineShutdown: "unavailable", engine.StreamIncomplete: "unavailable", engine.Unsupported: "not_implemented", engine.DeadlineExceeded: "response_timeout",
	}
	for kind, want := range kinds {
		for _, begun := range []bool{false, true} {
			backend := newFake()
			backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				return func(yield func(chat.Event, error) bool) {
					for _, e := range helloEvents() {
						if kind != "" && (!begun || e.Kind == chat.Finished) {
							yield(chat.Event{}, engine.Errorf(kind, "a fault"))
							return
						}
						if !yield(e, nil) {
							return
						}
					}
				}
			}
			s := start(t, backend)
			s.do("POST", "/v1/chat/completions", askStream)
			status := "error"
			if kind == "" {
				status = "success"
			}
			s.metric(fmt.Sprintf(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type=%q,model="acme/demo",request_type="stream",status=%q} 1`, want, status))
			log := s.log.String()
			if !strings.Contains(log, `"status":"`+status+`"`) || want != "" && !strings.Contains(log, `"error_type":"`+want+`"`) || strings.Count(log, "request completed") != 1 {
				t.Errorf("%s, begun %v: want %s %s in the line: %s", kind, begun, status, want, log)
			}
		}
	}
}

// An answer of the wrong form is counted and told of in the log, and what was to
// be seen to is counted by who saw to it.
func TestFormMetrics(t *testing.T) {
	backend := newFake()
	backend.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		n := requests[0].Notes
		n.FormBy, n.BudgetBy = pipeline.ByUs, pipeline.ByEngine
		events := helloEvents()
		if requests[0].Chat.Sampling.Seed != nil {
			events[len(events)-1].Reason = "it is no JSON"
		}
		return then(events, func(func(chat.Event, error) bool) {})
	}
	s := start(t, backend)
	s.do("POST", "/v1/chat/completions", ask)
	s.do("POST", "/v1/chat/completions", strings.Replace(ask, "{", `{"seed":1,`, 1))
	s.metric(`dynago_structured_output_total{by="dynago",model="acme/demo",result="kept"} 1`)
	s.metric(`dynago_structured_output_total{by="dynago",model="acme/demo",result="broken"} 1`)
	s.metric(`dynago_thinking_budget_total{by="engine",model="acme/demo"} 2`)
	if log := s.log.String(); !strings.Contains(log, "it is no JSON") {
		t.Errorf("the log says nothing of it: %s", log)
	}
}

// Clients cannot make labels: what they call a model is one label if there is
// none.
func TestUnknownModelsShareALabel(t *testing.T) {
	s := start(t, newFake())
	for i := range 10 {
		s.do("POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"invented-%d","messages":[{"role":"user","content":"x"}]}`, i))
	}
	s.do("POST", "/v1/chat/completions", `{`)
	s.metric(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="not_found",model="unknown_model",request_type="unary",status="error"} 10`)
	s.metric(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="validation",model="unknown_model",request_type="unary",status="error"} 1`)
	if page := s.do("GET", "/metrics", "").body; strings.Contains(page, "invented") {
		t.Error("an invented name is on the page")
	}
}

// A model that appears later is counted under its name from then on.
func TestNewModelIsNoticed(t *testing.T) {
	backend := newFake()
	models := backend.models
	backend.models = nil
	s := start(t, backend)
	s.do("POST", "/v1/chat/completions", ask)
	backend.mu.Lock()
	backend.models = models
	backend.mu.Unlock()
	s.do("POST", "/v1/chat/completions", ask)
	s.metric(`dynamo_frontend_requests_started_total{endpoint="chat_completions",model="acme/demo",request_type="unary"} 1`)
	s.metric(`dynamo_frontend_requests_started_total{endpoint="chat_completions",model="unknown_model",request_type="unary"} 1`)
}

func TestMetricSettings(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) {
		c.MetricsPrefix = "my-front"
		c.Buckets = map[string]frontend.Buckets{frontend.BucketDuration: {Min: 1, Max: 100, Count: 3}}
	})
	s.do("POST", "/v1/chat/completions", ask)
	s.metric(`my_front_request_duration_seconds_bucket{model="acme/demo",le="10"} 1`)
	s.metric(`dynamo_frontend_stage_duration_seconds_count{stage="preprocess"} 1`)
	if _, err := frontend.New(frontend.Config{Backend: newFake(), Buckets: map[string]frontend.Buckets{frontend.BucketTTFT: {Min: 2, Max: 1, Count: 3}}}); err == nil {
		t.Error("bad buckets are accepted")
	}
}

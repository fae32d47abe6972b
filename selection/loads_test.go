package selection_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

func TestLoads(t *testing.T) {
	h := newHouse(t)
	h.register(1, `"model_name":"b"`)
	h.register(2, `"model_name":"a"`)
	h.register(3, `"model_name":"a"`, `"routing_group":"g"`)
	_, text := count(0, 10)
	h.object(200, "POST", "/select_and_reserve", `{"selection_id":"x","model_name":"a","token_ids":`+text+`}`)
	row := func(id, prefill, decode, requests int) []map[string]any {
		return []map[string]any{{
			"worker_id": id, "dp_rank": 0, "potential_prefill_tokens": prefill,
			"potential_decode_blocks": decode, "active_requests": requests,
		}}
	}
	model := func(name, group string, loads []map[string]any) map[string]any {
		return map[string]any{"model_name": name, "routing_group": group, "loads": loads, "pending_count": 0, "pending_isl_tokens": 0}
	}
	same(t, h.list("GET", "/loads", ""), []any{
		model("a", "default", row(2, 10, 2, 1)), model("a", "g", row(3, 0, 0, 0)), model("b", "default", row(1, 0, 0, 0)),
	})
	same(t, h.list("GET", "/loads?model_name=a&routing_group=g", ""), []any{model("a", "g", row(3, 0, 0, 0))})
	same(t, h.list("POST", "/potential_loads", `{"model_name":"a","token_ids":`+text+`}`), row(2, 12, 2, 1)) // what is booked counts as cached soon
}

// Every rank has its row, with what each part of its cost would be.
func TestOverlapScores(t *testing.T) {
	h := newHouse(t)
	h.engines(1)
	warm := h.engines(2)
	h.engines(3, func(c *engine.Card) { c.Taints = nil; c.ContextLength = 8 })
	prompt, text := count(0, 16)
	caches(t, warm, 0, 1, kv.TierDevice, prompt[:8])
	caches(t, warm, 0, 2, kv.TierHost, prompt[:12])
	out := h.object(200, "POST", "/overlap_scores", `{"token_ids":`+text+`}`)
	cost := func(credit, prefill, total, probability float64) map[string]any {
		return map[string]any{
			"active_prefill_tokens": 0, "active_blocks": 0, "potential_decode_blocks": 4, "active_requests": 0, "raw_prefill_blocks": 4,
			"credit_decay": 1, "credit_blocks": credit, "prefill_load_scale": 4, "prefill": prefill, "decode": 4, "requests": 0,
			"preference": 1, "total": total, "probability": probability,
		}
	}
	same(t, out, map[string]any{
		"block_size": 4, "num_blocks": 4,
		"workers": []any{
			map[string]any{
				"worker_id": 1, "dp_rank": 0, "block_size": 4, "device_blocks": 0, "host_pinned_blocks": 0, "disk_blocks": 0,
				"host_pinned_extension_blocks": 0, "disk_extension_blocks": 0, "shared_beyond_device_blocks": nil,
				"router_credit_blocks": 0, "cost": cost(0, 4*4, 20, 0),
			},
			map[string]any{
				"worker_id": 2, "dp_rank": 0, "block_size": 4, "device_blocks": 2, "host_pinned_blocks": 3, "disk_blocks": 3,
				"host_pinned_extension_blocks": 1, "disk_extension_blocks": 0, "shared_beyond_device_blocks": nil,
				"router_credit_blocks": 2.75, "cost": cost(2.75, 4*1.25, 9, 1),
			},
		},
		"shared_cache": map[string]any{"enabled": false, "total_hit_blocks": 0, "ranges": []any{}, "error": nil},
		"not_eligible": []any{map[string]any{"worker_id": 3, "code": "context_length", "reason": "has too short a context"}},
	})
}

// A dump makes another index hold the same.
func TestDump(t *testing.T) {
	h := newHouse(t)
	w := h.engines(7, func(c *engine.Card) { c.Model, c.DPSize = "m", 2 })
	h.engines(8)
	prompt, _ := count(0, 20)
	caches(t, w, 0, 1, kv.TierDevice, prompt)
	caches(t, w, 1, 1, kv.TierDevice, prompt[:8])
	caches(t, w, 1, 2, kv.TierDisk, prompt[:12])

	_, text := h.do("GET", "/dump", "")
	type event struct {
		Worker uint64 `json:"worker_id"`
		Tier   string `json:"storage_tier"`
		Event  struct {
			ID   uint64 `json:"event_id"`
			Rank uint32 `json:"dp_rank"`
			Data struct {
				Stored struct {
					Parent *uint64 `json:"parent_hash"`
					Blocks []struct {
						Engine uint64 `json:"block_hash"`
						Local  uint64 `json:"tokens_hash"`
					}
				}
			}
		}
	}
	var dump map[string]struct {
		BlockSize int `json:"block_size"`
		Events    []event
	}
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(dump) != 2 || dump["m:default"].BlockSize != 4 || len(dump["default:default"].Events) != 0 {
		t.Fatalf("dump %s", text)
	}
	x := kvindex.New()
	for _, e := range dump["m:default"].Events {
		stored := kv.Event{Tier: map[string]kv.Tier{"device": kv.TierDevice, "disk": kv.TierDisk}[e.Tier]}
		if p := e.Event.Data.Stored.Parent; p != nil {
			stored.Parent, stored.HasParent = kv.EngineHash(*p), true
		}
		for _, b := range e.Event.Data.Stored.Blocks {
			stored.Blocks = append(stored.Blocks, kv.Block{Engine: kv.EngineHash(b.Engine), Local: kv.LocalHash(b.Local)})
		}
		if err := x.Apply(kv.Target{Worker: e.Worker, Rank: e.Event.Rank}, stored); err != nil {
			t.Fatal(err)
		}
	}
	var found kvindex.Matches
	x.Match(kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed), &found)
	if got := fmt.Sprint(found.Found); got != "[{7/0 [5 0 0 0]} {7/1 [2 0 1 0]}]" {
		t.Errorf("another index finds %s", got)
	}
	if _, text := h.do("GET", "/dump?model_name=default", ""); strings.Contains(text, "m:default") {
		t.Errorf("a filtered dump: %s", text)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	h := newHouse(t)
	same(t, h.object(200, "GET", "/health", ""), map[string]any{"status": "ok"})
	same(t, h.object(503, "GET", "/ready", ""), map[string]any{"ready": false, "schedulable_workers": 0, "workers": []any{}})
	h.register(0)
	h.object(200, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":[1,2,3,4]}`)
	h.do("POST", "/select", `{`)
	_, page := h.do("GET", "/metrics", "")
	for _, line := range []string{
		`dynago_selection_requests_total{method="POST",route="/select_and_reserve",status="200"} 1`,
		`dynago_selection_requests_total{method="POST",route="/select",status="400"} 1`,
		`dynago_selection_workers{lifecycle="schedulable"} 1`,
		`dynago_selection_workers{lifecycle="draining"} 0`,
		`dynamo_frontend_worker_active_prefill_tokens{dp_rank="0",worker_id="0",worker_type="decode"} 4`,
		`dynago_worker_requests{dp_rank="0",worker_id="0"} 1`,
		`dynago_router_decisions_total 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

package selection_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// FuzzOperations sends bodies to every route. Whatever they hold, the answer is
// JSON, an error says so, nothing panics, and what was booked can be ended.
func FuzzOperations(f *testing.F) {
	for _, body := range []string{
		`{"worker_id":1,"endpoint":"http://w1","block_size":4}`,
		`{"worker_id":"0","model_name":"m","routing_group":"g","endpoint":"e","block_size":1,"data_parallel_size":3,"taints":["a"],"topology_domains":{"z":"a"}}`,
		`{"worker_id":2,"kv_events_endpoints":{"0":"tcp://127.0.0.1:1"},"replay_endpoint":"ipc://x","kv_transfer_enforcement":"preferred"}`,
		`{"token_ids":[1,2,3,4,5],"selection_id":"a","priority_jump":1e308,"strict_priority":3,"expected_output_tokens":7}`,
		`{"token_ids":[1,2,3,4],"block_mm_infos":[{"mm_objects":[{"mm_hash":1}]}],"lora_name":"l","cache_salt":"s","is_eagle":true}`,
		`{"block_hashes":[1,-2],"sequence_hashes":[3,18446744073709551615],"isl_tokens":9,"pinned_worker":{"worker_id":9,"dp_rank":0}}`,
		`{"selection_id":"a","worker_id":9,"dp_rank":0,"token_ids":[1],"router_config_override":{"router_temperature":0.5,"overlap_score_weight":0}}`,
		`{"selection_id":"a","allowed_worker_ids":["9"],"routing_constraints":{"required_taints":["t"],"preferred_taints":{"u":-3}},"session_context":{"session_id":"s","input_trigger":"tool_result"}}`,
		`{"decay_fraction":0.5,"cached_tokens":-4}`,
		`{}`, `[]`, `null`, `"`, ``,
	} {
		for path := range 9 {
			f.Add(uint8(path), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		h := newHouse(t, func(c *selection.Config, rc *router.Config) { c.MostSelections = 4 })
		own := h.engines(9)
		prompt, _ := count(1, 8)
		caches(t, own, 0, 1, kv.TierDevice, prompt)
		h.engines(10, func(c *engine.Card) { c.DPSize, c.Taints = 2, []string{"t", "u"} })
		h.register(11)
		h.object(200, "POST", "/select_and_reserve", `{"selection_id":"booked","token_ids":[1]}`)
		routes := []struct{ method, path string }{
			{"POST", "/workers"},
			{"PATCH", "/workers/11"},
			{"POST", "/select"},
			{"POST", "/select_and_reserve"},
			{"POST", "/reservations"},
			{"POST", "/reservations/booked/prefill_complete"},
			{"POST", "/reservations/booked/output_block"},
			{"POST", "/potential_loads"},
			{"POST", "/overlap_scores"},
		}
		r := routes[int(which)%len(routes)]
		status, text := h.do(r.method, r.path, string(body))
		var out any
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%s: status %d: %v in %q", r.path, status, err, text)
		}
		members, _ := out.(map[string]any)
		if said, _ := members["error"].(string); (status >= 400) != (said != "") {
			t.Errorf("%s: status %d with %q", r.path, status, text)
		}
		if status >= 500 && status != 503 {
			t.Errorf("%s: status %d: %s", r.path, status, text)
		}
		if id, ok := members["selection_id"].(string); ok && status < 300 && r.path != "/select" {
			if b, err := h.router.Booked(id); err != nil {
				t.Errorf("%q was booked: %v", id, err)
			} else {
				b.Release()
			}
		}
		h.object(200, "DELETE", "/reservations/booked", "")
		for _, l := range h.router.Loads() {
			if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
				t.Errorf("something is left on %v: %+v", l.Target, l)
			}
		}
	})
}

func containsLine(page, line string) bool {
	return strings.Contains("\n"+page, "\n"+line+"\n")
}

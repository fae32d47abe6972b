package selection_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// The worker that has the prompt cached is chosen, and the answer says what rests
// on what.
func TestSelect(t *testing.T) {
	h := newHouse(t)
	cold, warm := h.engines(1), h.engines(2)
	prompt, text := count(100, 18) // four blocks and a half
	caches(t, warm, 0, 1, kv.TierDevice, prompt[:8])
	caches(t, warm, 0, 2, kv.TierHost, prompt[:12])
	caches(t, cold, 0, 1, kv.TierDevice, prompt[:4])

	out := h.object(200, "POST", "/select", `{"token_ids":`+text+`}`)
	want := map[string]any{
		"isl_tokens": 18.0, "model_name": "default", "routing_group": "default",
		"worker_id": 2.0, "dp_rank": 0.0, "endpoint": "own-2", "block_size": 4.0,
		"overlap":                  map[string]any{"longest_matched": 12.0, "gpu": 8.0, "dp": map[string]any{"0": 8.0}, "cpu": 12.0, "disk": 12.0},
		"effective_prefill_tokens": 7.0, // 2.75 of 4 tokens each are cached
		"potential_decode_blocks":  4.0,
	}
	same(t, out, want)
	if l := h.router.Loads(); l[0].Requests+l[1].Requests != 0 {
		t.Error("a selection was booked")
	}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

// What the other ranks of the worker have is told too.
func TestSelectRanks(t *testing.T) {
	h := newHouse(t)
	w := h.engines(1, func(c *engine.Card) { c.DPSize = 3 })
	prompt, text := count(0, 16)
	caches(t, w, 1, 1, kv.TierDevice, prompt)
	caches(t, w, 2, 1, kv.TierDevice, prompt[:4])
	out := h.object(200, "POST", "/select", `{"token_ids":`+text+`}`)
	same(t, out["overlap"], map[string]any{
		"longest_matched": 16, "gpu": 16, "dp": map[string]any{"0": 0, "1": 16, "2": 4}, "cpu": 16, "disk": 16,
	})
	if out["dp_rank"] != 1.0 {
		t.Errorf("rank %v", out["dp_rank"])
	}
}

// A prompt may be told by hashes alone, with sign or without, and with media.
func TestPrompts(t *testing.T) {
	h := newHouse(t)
	h.engines(1)
	warm := h.engines(2)
	prompt, text := count(7, 12)
	local := kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed)
	local[1] = kv.HashMediaBlock(prompt[4:8], []uint64{42}, kv.HashSeed)
	seq := kv.AppendSeqHashes(nil, local)
	e := kv.Event{}
	for i := range local {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq[i]), Local: local[i]})
	}
	if err := warm.Events(kv.Batch{Epoch: 1, First: 1, Last: 1, Events: []kv.Event{e}}); err != nil {
		t.Fatal(err)
	}
	signed, unsigned, sequence := []string{}, []string{}, []string{}
	for i := range local {
		signed = append(signed, fmt.Sprint(int64(local[i])))
		unsigned = append(unsigned, fmt.Sprint(uint64(local[i])))
		sequence = append(sequence, fmt.Sprint(int64(seq[i])))
	}
	list := func(s []string) string { return "[" + strings.Join(s, ",") + "]" }
	media := `[null,{"mm_objects":[{"mm_hash":42,"offsets":[[0,2]]}]}]`
	for name, members := range map[string]string{
		"signed":   `"isl_tokens":12,"sequence_hashes":` + list(sequence) + `,"block_hashes":` + list(signed),
		"unsigned": `"isl_tokens":12,"sequence_hashes":` + list(sequence) + `,"block_hashes":` + list(unsigned),
		"media":    `"token_ids":` + text + `,"block_mm_infos":` + media,
		"routing":  `"token_ids":[1],"mm_routing_info":{"routing_token_ids":` + text + `,"block_mm_infos":` + media + `}`,
	} {
		out := h.object(200, "POST", "/select", "{"+members+"}")
		if got := out["overlap"].(map[string]any)["gpu"]; out["worker_id"] != 2.0 || got != 12.0 || out["isl_tokens"] != 12.0 {
			t.Errorf("%s: %v", name, out)
		}
	}
	out := h.object(200, "POST", "/select", `{"token_ids":`+text+`,"cache_salt":"tenant"}`)
	if got := out["overlap"].(map[string]any)["gpu"]; got != 0.0 {
		t.Errorf("another tenant finds %v tokens", got)
	}
}

// Options reach the router.
func TestOptions(t *testing.T) {
	h := newHouse(t)
	h.engines(1, func(c *engine.Card) { c.Taints = []string{"slow"} })
	warm := h.engines(2)
	prompt, text := count(0, 16)
	caches(t, warm, 0, 1, kv.TierDevice, prompt)
	for name, tt := range map[string]struct {
		members string
		want    float64
	}{
		"cache":     {`"priority_jump":1.5`, 2},
		"pinned":    {`"pinned_worker":{"worker_id":"1","dp_rank":0}`, 1},
		"allowed":   {`"allowed_worker_ids":[1,3]`, 1},
		"required":  {`"routing_constraints":{"required_taints":["slow"]}`, 1},
		"preferred": {`"router_config_override":{"overlap_score_credit":0},"routing_constraints":{"preferred_taints":{"slow":1}}`, 1},
		"disliked":  {`"router_config_override":{"overlap_score_credit":0},"routing_constraints":{"preferred_taints":{"slow":-1}}`, 2},
		"unknown":   {`"something_new":{}`, 2},
	} {
		if out := h.object(200, "POST", "/select", `{"token_ids":`+text+`,`+tt.members+`}`); out["worker_id"] != tt.want {
			t.Errorf("%s: worker %v, want %v", name, out["worker_id"], tt.want)
		}
	}
}

func TestBadPrompts(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	for body, says := range map[string]string{
		`{}`:                      "block_hashes is required",
		`{"token_ids":[]}`:        "token_ids",
		`{"token_ids":[-1]}`:      "token_ids",
		`{"token_ids":[1.5]}`:     "token_ids",
		`{"token_ids":"text"}`:    "token_ids",
		`[]`:                      "body",
		``:                        "body",
		`{"block_hashes":[1]}`:    "sequence_hashes is required",
		`{"sequence_hashes":[1]}`: "block_hashes is required",
		`{"block_hashes":[1],"sequence_hashes":[1]}`:                                     "isl_tokens is required",
		`{"block_hashes":[1],"sequence_hashes":[],"isl_tokens":4}`:                       "must match",
		`{"block_hashes":[1],"sequence_hashes":[1],"isl_tokens":0}`:                      "isl_tokens",
		`{"block_hashes":[1,2],"sequence_hashes":[1,2],"isl_tokens":7}`:                  "1 complete blocks of 4",
		`{"block_hashes":[1],"sequence_hashes":[1],"isl_tokens":4,"token_ids":[1]}`:      "not by both",
		`{"block_hashes":["x"],"sequence_hashes":[1],"isl_tokens":4}`:                    "hash",
		`{"token_ids":[1],"router_config_override":{"overlap_score_credit":-1}}`:         "overlap_score_credit",
		`{"token_ids":[1],"pinned_worker":{"worker_id":"x"}}`:                            "worker id",
		`{"token_ids":[1],"session_context":{"session_id":"s","input_trigger":"shout"}}`: "input_trigger",
		`{"token_ids":[1],"selection_id":"` + strings.Repeat("x", 300) + `"}`:            "selection_id",
		`{"token_ids":[1,2,3,4],"block_mm_infos":[null,null,null]}`:                      "block_mm_infos",
		`{"token_ids":[1],"pinned_worker":{"worker_id":1,"dp_rank":3}}`:                  "ranks",
	} {
		status, text := h.do("POST", "/select", body)
		var p struct{ Error string }
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != 400 || !strings.Contains(p.Error, says) {
			t.Errorf("%s\nstatus %d, want 400 and %q: %s", body, status, says, text)
		}
	}
	small := newHouse(t, func(c *selection.Config, _ *router.Config) { c.BodyLimit = 100 })
	_, prompt := count(0, 100)
	if status, _ := small.do("POST", "/select", `{"token_ids":`+prompt+`}`); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too long: status %d", status)
	}
}

// A selection is booked by its id, once, and only for a while.
func TestReplay(t *testing.T) {
	at := newClock()
	h := newHouse(t, func(c *selection.Config, _ *router.Config) { c.Now, c.MostSelections = at.now, 2 })
	h.register(1)
	h.register(2)
	_, text := count(0, 16)
	out := h.object(200, "POST", "/select", `{"selection_id":"a","token_ids":`+text+`}`)
	if out["selection_id"] != "a" {
		t.Errorf("selection %v", out)
	}
	booked := h.object(201, "POST", "/reservations", `{"selection_id":"a"}`)
	if booked["worker_id"] != out["worker_id"] || booked["endpoint"] != out["endpoint"] || booked["selection_id"] != "a" {
		t.Errorf("selected %v, booked %v", out, booked)
	}
	total := func() (requests, prefill int) {
		for _, l := range h.router.Loads() {
			requests += l.Requests
			prefill += l.PrefillTokens
		}
		return requests, prefill
	}
	if n, p := total(); n != 1 || p != 16 {
		t.Errorf("%d requests and %d tokens are booked", n, p)
	}
	h.object(404, "POST", "/reservations", `{"selection_id":"a"}`)
	h.object(404, "POST", "/reservations", `{"selection_id":"never"}`)
	h.object(400, "POST", "/reservations", `{}`)

	// Under the same id nothing else can be booked until it is free.
	h.object(409, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":[1]}`)
	h.object(200, "POST", "/reservations/a/prefill_complete", "")
	if n, p := total(); n != 1 || p != 0 {
		t.Errorf("after the prefill %d requests and %d tokens", n, p)
	}
	h.object(200, "DELETE", "/reservations/a", "")
	if n, _ := total(); n != 0 {
		t.Errorf("%d requests are left", n)
	}
	h.object(404, "DELETE", "/reservations/a", "")
	h.object(404, "POST", "/reservations/a/prefill_complete", "")
	h.object(404, "POST", "/reservations/a/output_block", "")

	for _, id := range []string{"b", "c", "d"} { // there is room for two
		h.object(200, "POST", "/select", `{"selection_id":"`+id+`","token_ids":[1]}`)
	}
	h.object(404, "POST", "/reservations", `{"selection_id":"b"}`)
	h.object(201, "POST", "/reservations", `{"selection_id":"c"}`)
	at.at = at.at.Add(2 * time.Minute)
	h.object(404, "POST", "/reservations", `{"selection_id":"d"}`)

	// What they hold is bounded too.
	tight := newHouse(t, func(c *selection.Config, _ *router.Config) { c.SelectionBytes = 1300 })
	tight.register(1)
	_, long := count(0, 1000)
	for _, id := range []string{"x", "y", "z"} {
		tight.object(200, "POST", "/select", `{"selection_id":"`+id+`","token_ids":[1]}`)
	}
	tight.object(404, "POST", "/reservations", `{"selection_id":"x"}`)
	tight.object(201, "POST", "/reservations", `{"selection_id":"y"}`)
	tight.object(200, "POST", "/select", `{"selection_id":"large","token_ids":`+long+`}`)
	tight.object(404, "POST", "/reservations", `{"selection_id":"large"}`)
	tight.object(201, "POST", "/reservations", `{"selection_id":"z"}`)

	// The worker may have left.
	h.object(200, "POST", "/select", `{"selection_id":"e","token_ids":[1],"pinned_worker":{"worker_id":2}}`)
	h.object(200, "DELETE", "/workers/2", "")
	h.object(404, "POST", "/reservations", `{"selection_id":"e"}`)
}

// What the dispatcher has decided itself is booked where it says.
func TestExplicitReservation(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	h.register(2, `"data_parallel_size":2`, `"data_parallel_start_rank":4`)
	_, text := count(0, 16)
	out := h.object(201, "POST", "/reservations", `{"selection_id":"a","worker_id":2,"dp_rank":5,"token_ids":`+text+`}`)
	same(t, out, map[string]any{
		"selection_id": "a", "model_name": "default", "routing_group": "default",
		"worker_id": 2, "dp_rank": 5, "endpoint": "http://w2",
	})
	h.object(201, "POST", "/reservations", `{"selection_id":"b","worker_id":2,"token_ids":`+text+`,"track_prefill_tokens":false}`)
	var loads []string
	for _, l := range h.router.Loads() {
		loads = append(loads, fmt.Sprint(l.Target, l.Requests, l.PrefillTokens))
	}
	same(t, loads, []string{"1/0 0 0", "2/4 1 0", "2/5 1 16"})
	// A dispatcher that keeps the tokens to itself knows what is left to compute.
	h.object(201, "POST", "/reservations", `{"selection_id":"c","worker_id":1,"sequence_hashes":[-5,6],"isl_tokens":11,"effective_prefill_tokens":3}`)
	if l := h.router.Loads()[0]; l.PrefillTokens != 3 || l.ActiveBlocks != 2 {
		t.Errorf("booked %+v", l)
	}
	h.object(201, "POST", "/reservations", `{"selection_id":"d","worker_id":1,"sequence_hashes":[-5,7],"isl_tokens":8}`)
	if l := h.router.Loads()[0]; l.PrefillTokens != 11 || l.ActiveBlocks != 3 {
		t.Errorf("booked %+v", l)
	}
	h.object(400, "POST", "/reservations", `{"selection_id":"e","worker_id":1,"sequence_hashes":[1],"isl_tokens":4,"effective_prefill_tokens":5}`)
	h.object(409, "POST", "/reservations", `{"selection_id":"a","worker_id":1,"token_ids":[1]}`)
	h.object(404, "POST", "/reservations", `{"selection_id":"x","worker_id":9,"token_ids":[1]}`)
	h.object(404, "POST", "/reservations", `{"selection_id":"x","worker_id":2,"dp_rank":6,"token_ids":[1]}`)
	h.object(404, "POST", "/reservations", `{"selection_id":"x","worker_id":1,"model_name":"other","token_ids":[1]}`)
	h.object(400, "POST", "/reservations", `{"selection_id":"x","worker_id":1}`)
}

// Blocks of an answer count when they are told of, whole or in part.
func TestOutputBlocks(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	_, text := count(0, 16)
	h.object(200, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":`+text+`}`)
	active := func() int { return h.router.Loads()[0].ActiveBlocks }
	if active() != 4 {
		t.Fatalf("%d blocks of the prompt", active())
	}
	h.object(200, "POST", "/reservations/a/output_block", "")
	h.object(200, "POST", "/reservations/a/output_block", "{}")
	if active() != 6 {
		t.Errorf("%d blocks after two of the answer, want 6", active())
	}
	h.object(200, "POST", "/reservations/a/output_block", `{"decay_fraction":0.5}`)
	if active() != 4 { // all seven are half as heavy
		t.Errorf("%d blocks when half of the answer is there, want 4", active())
	}
	for _, bad := range []string{`{"decay_fraction":2}`, `{"decay_fraction":-1}`, `{"decay_fraction":"x"}`} {
		h.object(400, "POST", "/reservations/a/output_block", bad)
	}
	h.object(400, "DELETE", "/reservations/a?outcome=fine", "")
	h.object(200, "DELETE", "/reservations/a?outcome=failed", "")
	if active() != 0 {
		t.Errorf("%d blocks are left", active())
	}
}

// An id is made where none was given, and ends the booking.
func TestReserveWithoutID(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	out := h.object(200, "POST", "/select_and_reserve", `{"token_ids":[1]}`)
	id, _ := out["selection_id"].(string)
	if id == "" {
		t.Fatalf("no id in %v", out)
	}
	h.object(200, "DELETE", "/reservations/"+id, "")
}

// Bookings that nobody ends are forgotten, and output keeps one alive.
func TestExpiry(t *testing.T) {
	at := newClock()
	h := newHouse(t, func(c *selection.Config, rc *router.Config) { c.Now, rc.Now = at.now, at.now })
	h.register(1)
	for _, id := range []string{"silent", "talking"} {
		h.object(200, "POST", "/select_and_reserve", `{"selection_id":"`+id+`","token_ids":[1]}`)
	}
	for range 10 {
		at.at = at.at.Add(time.Minute)
		h.object(200, "POST", "/reservations/talking/output_block", "")
		h.router.Tick(at.now())
	}
	h.object(404, "DELETE", "/reservations/silent", "")
	h.object(200, "DELETE", "/reservations/talking", "")
}

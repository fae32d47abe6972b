package nvext_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
)

func p[T any](v T) *T { return &v }

func ExampleDecode() {
	ext, unknown, err := nvext.Decode([]byte(`{"agent_hints":{"priority":7,"mood":"calm"}}`), false)
	fmt.Println(*ext.AgentHints.Priority, unknown, err)

	_, _, err = nvext.Decode([]byte(`{"agent_hints":{"osl":-3}}`), false)
	fmt.Println(err)
	// Output:
	// 7 [nvext.agent_hints.mood] <nil>
	// nvext.agent_hints.osl: expected an unsigned 32-bit integer
}

func TestDecode(t *testing.T) {
	for in, want := range map[string]*nvext.Ext{
		`null`: nil,
		`{}`:   {},
		`{"greed_sampling":null,"agent_hints":null,"token_data":null}`: {},
		`{"greed_sampling":true,"use_raw_prompt":false,"annotations":["a"],"token_data":[1,4294967295],"max_thinking_tokens":3,"extra_fields":["x"],"cache_salt":"s","request_timestamp_ms":1.5}`: {
			GreedSampling: p(true), UseRawPrompt: p(false), Annotations: []string{"a"}, TokenData: []uint32{1, 4294967295},
			MaxThinkingTokens: p(uint32(3)), ExtraFields: []string{"x"}, CacheSalt: "s", RequestTimestampMS: p(1.5),
		},
		`{"backend_instance_id":"9007199254740991","prefill_worker_id":1,"decode_worker_id":2,"dp_rank":4294967295,"prefill_dp_rank":0}`: {Placement: nvext.Placement{
			BackendInstanceID: p(nvext.WorkerID(9007199254740991)), PrefillWorkerID: p(nvext.WorkerID(1)), DecodeWorkerID: p(nvext.WorkerID(2)),
			DPRank: p(uint32(4294967295)), PrefillDPRank: p(uint32(0)),
		}},
		`{"agent_hints":{"priority":-7,"strict_priority":1,"osl":300,"speculative_prefill":true,"next_request_in":"8s","latency_sensitivity":0.5}}`: {AgentHints: &nvext.Hints{
			Priority: p(int32(-7)), StrictPriority: p(uint32(1)), OSL: p(uint32(300)), SpeculativePrefill: p(true), NextRequestIn: "8s", LatencySensitivity: p(0.5),
		}},
		`{"agent_context":{"session_type_id":"t","session_id":" s ","trajectory_id":"` + strings.Repeat("x", 256) + `","trajectory_final":true}}`: {AgentContext: &nvext.AgentContext{
			SessionTypeID: "t", SessionID: "s", TrajectoryID: strings.Repeat("x", 256), TrajectoryFinal: p(true),
		}},
		`{"session_control":{"session_id":"s","action":"bind","timeout":120,"ephemeral":true}}`: {SessionControl: &nvext.SessionControl{SessionID: "s", Action: "bind", Timeout: p(uint32(120)), Ephemeral: p(true)}},
		`{"cache_control":{"ttl":"5m"}}`:                    {CacheControl: &nvext.CacheControl{TTL: "5m"}},
		`{"cache_control":{"type":"ephemeral","ttl":3600}}`: {CacheControl: &nvext.CacheControl{Type: "ephemeral", TTL: 3600.0}},
		`{"retention":{"ranges":[{"start":0,"end":10,"priority":100},{"start":10,"priority":60,"duration_ms":5}],"decode":{"priority":1}}}`: {Retention: &nvext.Retention{
			Ranges: []nvext.RetentionRange{{End: p(uint32(10)), Priority: p(uint8(100))}, {Start: 10, Priority: p(uint8(60)), DurationMS: p(uint64(5))}}, Decode: &nvext.RetentionRange{Priority: p(uint8(1))},
		}},
		`{"metadata_upload":{"url":" http://h "}}`: {MetadataUpload: &nvext.MetadataUpload{URL: "http://h"}},
		`{"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":1.5}},"router":{"ttft_target":400,"itl_target":25.0}}`: {
			RoutingConstraints: &nvext.Constraints{RequiredTaints: []string{"a"}, PreferredTaints: map[string]float64{"b": 1.5}},
			Router:             &nvext.Targets{TTFT: p(400.0), ITL: p(25.0)},
		},
	} {
		got, unknown, err := nvext.Decode([]byte(in), true)
		if err != nil || len(unknown) > 0 {
			t.Errorf("%s: %v, unknown %v", in, err, unknown)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", in, d)
		}
	}
}

// A body of some kilobytes, once it is unpacked, may hold ranges by the million.
func TestDecodeReadsNoMoreRangesThanThereMayBe(t *testing.T) {
	raw := []byte(`{"retention":{"ranges":[` + strings.Repeat(`{},`, 1<<20) + `{}]}}`)
	took := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, _, err := nvext.Decode(raw, false); err == nil {
				b.Fatal("they are taken")
			}
		}
	}).AllocedBytesPerOp()
	if took > 1<<20 {
		t.Errorf("%d ranges of %d bytes take %d bytes", 1<<20, len(raw), took)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`7`:                                           "nvext: expected an object",
		`[]`:                                          "nvext: expected an object",
		`{"greed_sampling":1}`:                        "nvext.greed_sampling: expected a boolean",
		`{"annotations":"a"}`:                         "nvext.annotations: expected an array",
		`{"annotations":["a",1]}`:                     "nvext.annotations[1]: expected a string",
		`{"token_data":[]}`:                           "nvext.token_data: must not be empty",
		`{"token_data":[1,4294967296]}`:               "nvext.token_data[1]: expected an unsigned 32-bit integer",
		`{"token_data":[1.5]}`:                        "nvext.token_data[0]: expected an unsigned 32-bit integer",
		`{"decode_worker_id":-1}`:                     "nvext.decode_worker_id: expected a worker id: a decimal number or string",
		`{"decode_worker_id":"x"}`:                    "nvext.decode_worker_id: expected a worker id: a decimal number or string",
		`{"agent_hints":[]}`:                          "nvext.agent_hints: expected an object",
		`{"agent_hints":{"osl":-3}}`:                  "nvext.agent_hints.osl: expected an unsigned 32-bit integer",
		`{"agent_hints":{"priority":2147483648}}`:     "nvext.agent_hints.priority: expected a signed 32-bit integer",
		`{"agent_hints":{"latency_sensitivity":"x"}}`: "nvext.agent_hints.latency_sensitivity: expected a number",
		`{"agent_context":{"session_id":"a","trajectory_id":"b"}}`:                       "nvext.agent_context.session_type_id: is required and must not be blank",
		`{"agent_context":{"session_type_id":"a","trajectory_id":"b"}}`:                  "nvext.agent_context.session_id: is required and must not be blank",
		`{"agent_context":{"session_type_id":"a","session_id":"b","trajectory_id":" "}}`: "nvext.agent_context.trajectory_id: is required and must not be blank",
		`{"cache_salt":"` + strings.Repeat("x", 1025) + `"}`:                             "nvext.cache_salt: must have at most 1024 bytes, got 1025",
		`{"session_control":{}}`: "nvext.session_control.session_id: is required and must not be blank",
		`{"session_control":{"session_id":"` + strings.Repeat("x", 257) + `"}}`:                  "nvext.session_control.session_id: must have at most 256 bytes, got 257",
		`{"session_control":{"session_id":"s","action":"kill"}}`:                                 `nvext.session_control.action: must be open, bind or close, got "kill"`,
		`{"session_control":{"session_id":"s","timeout":0}}`:                                     "nvext.session_control.timeout: session timeout must be greater than zero",
		`{"cache_control":{"type":"forever"}}`:                                                   `nvext.cache_control.type: must be ephemeral, got "forever"`,
		`{"cache_control":{"ttl":[]}}`:                                                           `nvext.cache_control.ttl: expected a string such as "5m", or a number of seconds`,
		`{"retention":{"ranges":[{"start":0,"end":10}]}}`:                                        "nvext.retention.ranges[0].priority: is required, from 0 to 100",
		`{"retention":{"decode":{"priority":null}}}`:                                             "nvext.retention.decode.priority: is required, from 0 to 100",
		`{"retention":{"ranges":[{"start":0,"end":10,"priority":101}]}}`:                         "nvext.retention.ranges[0].priority: must be from 0 to 100, got 101",
		`{"retention":{"ranges":[{"start":0,"priority":1},{"start":5,"priority":1}]}}`:           "nvext.retention.ranges[0].end: may be left out in the last range only",
		`{"retention":{"ranges":[{"start":5,"end":5,"priority":1}]}}`:                            "nvext.retention.ranges[0].end: must be greater than start, got 5 after 5",
		`{"retention":{"ranges":[{"start":0,"end":10,"priority":1},{"start":9,"priority":1}]}}`:  "nvext.retention.ranges[1].start: must not lie before the end of the range before, got 9 before 10",
		`{"retention":{"ranges":{}}}`:                                                            "nvext.retention.ranges: expected an array",
		`{"retention":{"ranges":[{"priority":1,"end":2},{"start":"x"}]}}`:                        "nvext.retention.ranges[1].start: expected an unsigned 32-bit integer",
		`{"retention":{"ranges":[` + strings.Repeat(`{"priority":1},`, 64) + `{"priority":1}]}}`: "nvext.retention.ranges: must hold at most 64 ranges, got more",
		`{"retention":{"decode":{"priority":200}}}`:                                              "nvext.retention.decode.priority: must be from 0 to 100, got 200",
		`{"metadata_upload":{"url":" "}}`:                                                        "nvext.metadata_upload.url: is required and must not be blank",
	} {
		_, _, err := nvext.Decode([]byte(in), false)
		var e *nvext.Error
		if !errors.As(err, &e) || e.Error() != want {
			t.Errorf("%.80s: got %v, want %s", in, err, want)
		} else if path, _, _ := strings.Cut(want, ": "); e.Path != path {
			t.Errorf("%.80s: path %s", in, e.Path)
		}
	}
}

func TestUnknownMembers(t *testing.T) {
	const in = `{"x":1,"agent_hints":{"mood":{"osl":1}},"retention":{"ranges":[{"end":3,"priority":1,"zeal":2}]},"routing_constraints":{"preferred_taints":{"any":1}},"y":[{"x":1}]}`
	want := []string{"nvext.x", "nvext.agent_hints.mood", "nvext.retention.ranges[0].zeal", "nvext.y"}
	if _, got, err := nvext.Decode([]byte(in), false); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, _, err := nvext.Decode([]byte(in), true); err == nil || err.Error() != "nvext.x: unknown field" {
		t.Errorf("strict: got %v", err)
	}
}

// The list goes into a log line, and a client decides how long it would be.
func TestUnknownMembersAreBounded(t *testing.T) {
	in := `{"x":0` + strings.Repeat(`,"x":0`, 99) + `}`
	if _, got, err := nvext.Decode([]byte(in), false); err != nil || len(got) != 32 {
		t.Errorf("listed %d members, %v", len(got), err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"agent_hints":{"osl":3},"token_data":[1],"x":{}}`))
	f.Add([]byte(`{"retention":{"ranges":[{"end":3,"priority":1}]},"cache_control":{"ttl":1e400}}`))
	f.Add([]byte(`{"decode_worker_id":"7","session_control":{"session_id":"s"},"\ud800":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ext, unknown, err := nvext.Decode(raw, false)
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("%q", err)
			}
			return
		}
		_, _, err = nvext.Decode(raw, true)
		if (err != nil) != (len(unknown) > 0) {
			t.Fatalf("unknown %v, strict %v", unknown, err)
		}
		if ext == nil {
			return
		}
		// What was taken in is what the interface says, so that it can be said
		// again.
		again, err := json.Marshal(ext)
		if err != nil {
			t.Fatal(err)
		}
		same, unknown, err := nvext.Decode(again, true)
		if err != nil || len(unknown) > 0 {
			t.Fatalf("%s: %v, unknown %v", again, err, unknown)
		}
		if d := cmp.Diff(ext, same); d != "" {
			t.Fatalf("%s: -first +again\n%s", again, d)
		}
	})
}

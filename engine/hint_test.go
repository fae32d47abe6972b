package engine_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// What workers say of hints is read in either form, and nothing that is broken is
// taken for a wish to have some.
func TestParseHintSource(t *testing.T) {
	for _, tt := range []struct {
		data string
		kind string
		at   map[uint32]string // nil: no hints
	}{
		{`{"router_hint":true,"router_hint_worker_type":"gpu","router_hint_source_control_endpoints":["tcp://a","tcp://b"]}`, "gpu", map[uint32]string{0: "tcp://a", 1: "tcp://b"}},
		{`{"router_hint":true,"router_hint_source_control_endpoints":{"4":"tcp://a","x":"tcp://b"},"other":1}`, "", map[uint32]string{4: "tcp://a"}},
		{`{"router_hint":true,"router_hint_source_control_endpoints":7}`, "", map[uint32]string{}},
		{`{"router_hint":true}`, "", map[uint32]string{}},
		{`{"router_hint":false,"router_hint_source_control_endpoints":["tcp://a"]}`, "", nil},
		{`{"router_hint":"yes"}`, "", nil},
		{`{}`, "", nil},
		{`[`, "", nil},
		{``, "", nil},
		{`{"router_hint":true,"x":"` + strings.Repeat("x", 64<<10) + `"}`, "", nil},
	} {
		s := engine.ParseHintSource([]byte(tt.data))
		if (s == nil) != (tt.at == nil) || s != nil && (s.WorkerType != tt.kind || !maps.Equal(s.Endpoints, tt.at)) {
			t.Errorf("%.80s is %+v, want %s at %v", tt.data, s, tt.kind, tt.at)
		}
	}
}

// A hint is told in the words of those who read it.
func TestHintParams(t *testing.T) {
	h := &engine.Hint{Endpoint: "tcp://a", Blocks: []kv.SeqHash{1, 1<<64 - 1}}
	got, err := json.Marshal(h.Params())
	if want := `{"kv_transfer_params":{"router_hint":{"source_control_endpoint":"tcp://a","block_hashes":[1,18446744073709551615]}}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// Whatever a worker says, what is read of it can be said again.
func FuzzHintSource(f *testing.F) {
	for _, seed := range []string{`{"router_hint":true,"router_hint_source_control_endpoints":["a"]}`, `{"router_hint":true,"router_hint_source_control_endpoints":{"4294967295":"a"}}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := engine.ParseHintSource(data)
		if s == nil {
			return
		}
		again := engine.ParseHintSource(s.UserData())
		if len(s.UserData()) < 60_000 && (again == nil || again.WorkerType != s.WorkerType || !maps.Equal(again.Endpoints, s.Endpoints)) {
			t.Errorf("%q is %+v, and then %+v", data, s, again)
		}
	})
}

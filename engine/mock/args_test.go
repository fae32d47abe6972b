package mock_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/mock"
)

func TestArgs(t *testing.T) {
	a, err := mock.ParseArgs([]byte(`{"block_size": 16, "speedup_ratio": 0, "preemption_mode": "fifo"}`))
	want := mock.DefaultArgs()
	want.BlockSize, want.SpeedupRatio, want.PreemptionMode = 16, 0, "fifo"
	if err != nil || a != want {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	for _, tc := range []struct{ text, want string }{
		{`{"blok_size": 16}`, `"blok_size"`},
		{`{"block_size": "16"}`, "block_size: want a whole number"},
		{`{"enable_prefix_caching": 1}`, "enable_prefix_caching: want true or false"},
		{`{"block_size": 1}`, "block_size is 1"},
		{`{"num_gpu_blocks": 0}`, "num_gpu_blocks is 0"},
		{`{"speedup_ratio": -1}`, "speedup_ratio is -1"},
		{`{"decode_speedup_ratio": -0.5}`, "decode_speedup_ratio is -0.5"},
		{`{"engine_type": "sglang"}`, "engine_type"},
		{`{"preemption_mode": "random"}`, "lifo or fifo"},
		{`{"decode_ms": 3}`, "timing_model"},
		{`{"max_num_seqs": 0}`, "max_num_seqs"},
		{`{"watermark": 1.01}`, "watermark"},
		{`{"block_size": 16, "block_size": 32}`, "block_size"},
		{`[]`, "want an object"},
		{`{`, "engine arguments"},
	} {
		if _, err := mock.ParseArgs([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want something with %q", tc.text, err, tc.want)
		}
	}
}

func FuzzArgs(f *testing.F) {
	f.Add([]byte(`{"block_size": 16, "timing_model": "constant", "decode_ms": 1e3}`))
	f.Add([]byte(`{"num_gpu_blocks": 1e99}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := mock.ParseArgs(data)
		if err != nil {
			return
		}
		if err := a.Validate(); err != nil {
			t.Errorf("parsed and not valid: %v", err)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := mock.ParseArgs(text); err != nil || a != b {
			t.Errorf("%s came back as %+v, %v", text, b, err)
		}
	})
}

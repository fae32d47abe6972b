package nvext_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/nvext"
)

func TestNextIn(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "8s": 8 * time.Second, "250ms": 250 * time.Millisecond, "1m30s": 90 * time.Second, "8": 8 * time.Second, "0.5": 500 * time.Millisecond, "0s": 0,
		"soon": -1, "-1s": -1, "-1": -1, "NaN": -1, "Inf": -1, "8 s": -1,
	} {
		got, ok := (&nvext.Hints{NextRequestIn: text}).NextIn()
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %v, %t, want %v", text, got, ok, want)
		}
		_, _, err := nvext.Decode([]byte(`{"agent_hints":{"next_request_in":"`+text+`"}}`), false)
		if (err == nil) != (want >= 0) {
			t.Errorf("%q: decoding says %v", text, err)
		}
	}
	if got, ok := (*nvext.Hints)(nil).NextIn(); got != 0 || !ok {
		t.Errorf("no hints: %v, %t", got, ok)
	}
}

package trtllm_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

// A server that sleeps takes nothing, where it would let it hang; its cache is
// another one from then on. Either may be told twice.
func TestQuirk37Sleep(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	if c := a.ready(t); !slices.Equal(c.Controls, []string{engine.ControlSleep, engine.ControlWake}) {
		t.Fatalf("controls %q", c.Controls)
	}
	status := func() engine.Status {
		for s := range a.Card(t.Context()) {
			return s
		}
		return engine.Status{}
	}
	tell := func(name string) {
		t.Helper()
		for range 2 {
			if _, err := a.Control(t.Context(), name, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	r := &engine.Request{TokenIDs: []uint32{1, 2}, Stop: engine.Stop{MaxTokens: 3}}
	before := status()
	tell(engine.ControlSleep)
	if s := status(); s.State == engine.Ready || s.Reason == "" || s.Epoch == before.Epoch {
		t.Errorf("asleep: %+v, before %+v", s, before)
	}
	if _, _, err := collect(t.Context(), a, r); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("asleep: %v, want unavailable", err)
	}
	tell(engine.ControlWake)
	if s := status(); s.State != engine.Ready {
		t.Errorf("awake: %+v", s)
	}
	if ids, _, err := collect(t.Context(), a, r); err != nil || len(ids) != 3 {
		t.Errorf("awake: %v, %v", ids, err)
	}
	if _, err := a.Control(t.Context(), engine.ControlReset, nil); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("reset: %v, want unsupported", err)
	}
}

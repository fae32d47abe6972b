package router

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
)

// Operators see every binding, with where it is in its life, and in one order.
func TestSessionList(t *testing.T) {
	s := newSessions(10, false)
	a := &affinity{table: s, now: func() time.Time { return at(12) }}
	r := &Router{affinity: a}
	begin := func(id, tenant string, action SessionAction) *binding {
		w := control(id, action, time.Minute)
		w.tenant = tenant
		b, _, _, err := s.enter(w, new(sessionWaiter), at(10))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := place{target: kv.Target{Worker: 3, Rank: 1}}
	idle, busy := begin("idle", "blue", BindSession), begin("busy", "", OpenSession)
	s.bind(idle, p, false)
	s.release(idle, leased{served: true}, at(11))
	if opens, _ := s.bind(busy, p, false); !opens {
		t.Fatal("it is not to be opened")
	}
	s.opened(busy, nil)
	begin("new", "blue", BindSession)
	want := []SessionInfo{
		{Model: "m", ID: "busy", State: SessionActive, Target: p.target, Running: 1, Kept: true, Timeout: time.Minute},
		{Model: "m", Tenant: "blue", ID: "idle", State: SessionIdle, Target: p.target, Timeout: time.Minute, ExpiresIn: 59 * time.Second},
		{Model: "m", Tenant: "blue", ID: "new", State: SessionChoosing, Timeout: time.Minute},
	}
	if got := r.SessionList(""); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.SessionList("another"); got == nil || len(got) != 0 {
		t.Errorf("of another model %+v", got)
	}
}

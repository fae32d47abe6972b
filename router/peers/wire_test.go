package peers

import (
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func event(id string) router.BindingEvent {
	return router.BindingEvent{
		BindingKey: router.BindingKey{Model: "m", Salt: "salt", ID: id, Role: engine.Prefill},
		Router:     "r", Number: 1 << 60, Tenant: "t", Target: kv.Target{Worker: 1<<53 - 1, Rank: 2},
		SessionTerms: router.SessionTerms{Timeout: 90 * time.Second, Ephemeral: true}, Explicit: true, TTL: 1500 * time.Millisecond,
	}
}

// What is said is understood, and what cannot be said is left out.
func TestWords(t *testing.T) {
	p := &Peers{config: Config{Name: `r"1`, Fleet: fleet.New(fleet.Config{}), Known: func(*fleet.Worker) (uint64, bool) { return 0, false }}}
	end := event("over")
	end.TTL = 0
	mangled := event("\xff")
	mangled.TTL = 0
	m := p.encode([]router.BindingEvent{event("of a worker that is not there"), end, mangled})
	if m.done != 3 || m.said != 1 || m.unsaid != 1 {
		t.Errorf("%+v", m)
	}
	heard, err := decode(m.body)
	if err != nil || heard.Router != `r"1` || len(heard.Bindings) != 1 {
		t.Fatalf("%+v, %v in %s", heard, err, m.body)
	}
	if e, ok := heard.Bindings[0].event(); !ok || e != end {
		t.Errorf("%+v, want %+v", e, end)
	}
	live := event("s")
	b := words(&live)
	if e, ok := b.event(); !ok || e != live {
		t.Errorf("%+v, want %+v", e, live)
	}
}

// A message has a bounded size, however long names are.
func TestLongMessages(t *testing.T) {
	p := &Peers{config: Config{Name: "r", Fleet: fleet.New(fleet.Config{})}}
	for length, want := range map[int]int{1: 600, 20_000: 600, 1 << 20: 0} {
		var events []router.BindingEvent
		for range 600 / max(1, length>>15) {
			e := event(strings.Repeat("\x01", length))
			e.TTL = 0
			events = append(events, e)
		}
		said := 0
		for len(events) > 0 {
			m := p.encode(events)
			if len(m.body) > MaxMessage || m.said > mostEvents || m.done == 0 {
				t.Fatalf("%d bytes, %d events of %d", len(m.body), m.said, m.done)
			}
			if _, err := decode(m.body); err != nil {
				t.Fatal(err)
			}
			said += m.said
			events = events[m.done:]
		}
		if said != want {
			t.Errorf("%d events with ids of %d bytes were said, want %d", said, length, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for body, want := range map[string]string{
		``:                 "the message is none",
		`{"bindings":[]}`:  "router_id: is missing",
		`{"router_id":1}`:  "the message is none",
		`{"router_id":"x"`: "the message is none",
		`{"router_id":"x","bindings":[` + strings.Repeat("{},", 256) + `{}]}`: "want at most 256",
		strings.Repeat(" ", MaxMessage+1):                                     "want at most 1048576",
	} {
		if _, err := decode([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", body, err, want)
		}
	}
	if m, err := decode([]byte(`{"router_id":"x","newer":1,"bindings":[{"session_id":"s","newer":[]}]}`)); err != nil || len(m.Bindings) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, b := range map[string]binding{
		"role": {Role: "decode", TTL: 1, Timeout: 1}, "before": {TTL: -1}, "for ever": {TTL: 1e300}, "timeout": {Timeout: -1},
	} {
		if _, ok := b.event(); ok {
			t.Errorf("%s: it makes sense", name)
		}
	}
}

package selection_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent/zmtp"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// publisher is an engine's PUB socket on a port of its own.
type publisher struct {
	t        testing.TB
	pub      *zmtp.Pub
	endpoint string
	sequence uint64
}

func newPublisher(t testing.TB) *publisher {
	t.Helper()
	p := &publisher{t: t, pub: zmtp.NewPub(zmtp.Options{})}
	t.Cleanup(func() { p.pub.Close() })
	var err error
	if p.endpoint, err = p.pub.Bind(t.Context(), "tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return p
}

// stores tells that the blocks of a prompt were stored, in msgpack as engines do.
func (p *publisher) stores(prompt []uint32) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); p.pub.Subscribers([]byte("")) == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("nobody listens")
		}
	}
	blocks := len(prompt) / 4
	b := []byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91} // [time, [event], rank]
	b = append(b, 0x95)                                   // the event, an array of five
	b = append(append(b, 0xab), "BlockStored"...)
	b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(blocks))
	for i := range blocks {
		b = binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(prompt[0])<<32|uint64(i+1))
	}
	b = append(b, 0xc0) // no parent
	b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(4*blocks))
	for _, t := range prompt[:4*blocks] {
		b = binary.BigEndian.AppendUint32(append(b, 0xce), t)
	}
	b = append(b, 4, 0) // the block size, and the rank
	if err := p.pub.Send([]byte(""), binary.BigEndian.AppendUint64(nil, p.sequence), b); err != nil {
		p.t.Fatal(err)
	}
	p.sequence++
}

// A worker's events are heard where it says it publishes them, also when that
// changes.
func TestEvents(t *testing.T) {
	h := newHouse(t, func(c *selection.Config, _ *router.Config) { c.KVEvents = true })
	first, other := newPublisher(t), newPublisher(t)
	h.register(1, `"kv_events_endpoint":"tcp://127.0.0.1:1"`) // nobody is there
	h.register(2, `"kv_events_endpoint":"`+first.endpoint+`"`)
	prompt, text := count(50, 32)
	longest := func(text string) (worker, tokens any) {
		out := h.object(200, "POST", "/select", `{"token_ids":`+text+`}`)
		return out["worker_id"], out["overlap"].(map[string]any)["longest_matched"]
	}
	held := func(blocks int) {
		t.Helper()
		eventually(t, func() (string, bool) {
			got := h.router.Loads()[1].CachedBlocks
			return fmt.Sprintf("%d blocks are known, want %d", got, blocks), got == blocks
		})
	}
	first.stores(prompt)
	held(8)
	if w, n := longest(text); w != 2.0 || n != 32.0 {
		t.Errorf("worker %v with %v tokens, want 2 with 32", w, n)
	}

	// Counters follow what they count.
	heardOne := func(when string) {
		t.Helper()
		eventually(t, func() (string, bool) {
			stream := h.list("GET", "/workers", "")[1]["kv_event_streams"].([]any)[0].(map[string]any)
			return fmt.Sprintf("%s: the stream is %v, want one message", when, stream), stream["connected"] == true && stream["messages"] == 1.0
		})
	}
	heardOne("at first")

	// Another name for the worker changes nothing of that.
	h.object(200, "PATCH", "/workers/2", `{"endpoint":"http://elsewhere"}`)
	if got := h.router.Loads()[1].CachedBlocks; got != 8 {
		t.Errorf("%d blocks are known after a new endpoint, want 8", got)
	}
	heardOne("after a new endpoint, which begins no stream anew")

	// At another socket there is another cache.
	h.object(200, "PATCH", "/workers/2", `{"kv_events_endpoint":"`+other.endpoint+`"}`)
	another, anotherText := count(900, 16)
	other.stores(another)
	held(4)
	if _, n := longest(text); n != 0.0 {
		t.Errorf("%v tokens of the old socket are believed", n)
	}
	if w, n := longest(anotherText); w != 2.0 || n != 16.0 {
		t.Errorf("worker %v with %v tokens, want 2 with 16", w, n)
	}
	for _, line := range []string{`dynago_selection_kv_event_streams{connected="true"} 1`, `dynago_selection_kv_event_streams{connected="false"} 1`} {
		eventually(t, func() (string, bool) {
			_, page := h.do("GET", "/metrics", "")
			return "the page lacks " + line, containsLine(page, line)
		})
	}
}

// eventually waits for what follows something that has already shown elsewhere.
func eventually(t *testing.T, holds func() (otherwise string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		otherwise, ok := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// Where several ranks replay, each has a port of its own.
func TestReplayPorts(t *testing.T) {
	h := newHouse(t, func(c *selection.Config, _ *router.Config) { c.KVEvents = true })
	pubs := []*publisher{newPublisher(t), newPublisher(t)}
	h.register(3, `"data_parallel_size":2`, `"data_parallel_start_rank":6`, `"replay_endpoint":"tcp://127.0.0.1:2"`,
		fmt.Sprintf(`"kv_events_endpoints":{"6":%q,"7":%q}`, pubs[0].endpoint, pubs[1].endpoint))
	loads := h.router.Loads()
	if len(loads) != 2 || loads[0].Target != (kv.Target{Worker: 3, Rank: 6}) || loads[1].Target != (kv.Target{Worker: 3, Rank: 7}) {
		t.Errorf("ranks %v", loads)
	}
}

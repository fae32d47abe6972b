package kvevent_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

func TestObjectBatch(t *testing.T) {
	long := string(make([]byte, 64<<10))
	events := []kvevent.ObjectEvent{
		{ID: 1, Kind: kv.Stored, Key: "a", Medium: "cpu"},
		{ID: 2, Kind: kv.Removed, Key: "0xff", Medium: "disk", Tenant: "t", Seq: []kv.SeqHash{255}},
		{ID: 3, Kind: kv.Cleared},
		{ID: 1 << 40, Kind: kv.Stored, Key: long, Group: "g"},
	}
	got, err := kvevent.DecodeObjectBatch(kvevent.AppendObjectBatch(nil, time.UnixMilli(1700000000000), "store", events))
	if err != nil || !cmp.Equal(got, events) {
		t.Errorf("%v\n%s", err, cmp.Diff(events, got))
	}
	for _, wrong := range []string{"", "\x90", "\x92\x01\x05", "\x92\x01\x91\x81\xa8event_id\xa1x", "\x92\x01\x91\x81"} {
		if got, err := kvevent.DecodeObjectBatch([]byte(wrong)); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
	// What is newer than we are is left out.
	if got, err := kvevent.DecodeObjectBatch([]byte("\x92\x01\x91\x82\xaaevent_type\xa5moved\xa1x\x93\x01\x02\x03")); err != nil || len(got) > 0 {
		t.Errorf("an unknown kind: %v, %v", got, err)
	}
}

func TestSeqOfKey(t *testing.T) {
	for key, want := range map[string]kv.SeqHash{"0": 0, "18446744073709551615": 1<<64 - 1, "0xfF": 255, "0x8000000000000000": 1 << 63} {
		if got, ok := kvevent.SeqOfKey(key); !ok || got != want {
			t.Errorf("%s: %d, %v", key, got, ok)
		}
	}
	for _, key := range []string{"", "0x", "ff", "-1", "+1", "18446744073709551616", "0x10000000000000000", "1_000", "0x0x1", " 1"} {
		if got, ok := kvevent.SeqOfKey(key); ok {
			t.Errorf("%q: %d", key, got)
		}
	}
}

// FuzzObjectBatch reads any bytes: what can be read can be written and read again.
func FuzzObjectBatch(f *testing.F) {
	f.Add(kvevent.AppendObjectBatch(nil, time.UnixMilli(5), "b", []kvevent.ObjectEvent{
		{ID: 1, Kind: kv.Stored, Key: "a", Medium: "cpu", Seq: []kv.SeqHash{1, 2}}, {Kind: kv.Cleared}, {Kind: kv.Removed, Tenant: "t", Key: "b"},
	}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		events, err := kvevent.DecodeObjectBatch(payload)
		if err != nil {
			return
		}
		again, err := kvevent.DecodeObjectBatch(kvevent.AppendObjectBatch(nil, time.UnixMilli(5), "b", events))
		if err != nil || !cmp.Equal(events, again) && len(events)+len(again) > 0 {
			t.Errorf("%v\n%s", err, cmp.Diff(events, again))
		}
	})
}

// place is an object on a medium.
type place struct{ tenant, key, medium string }

// fold makes events true of a state.
func fold(state map[place]bool, events []kvevent.ObjectEvent) {
	for _, e := range events {
		switch at := (place{e.Tenant, e.Key, e.Medium}); e.Kind {
		case kv.Stored:
			state[at] = true
		case kv.Removed:
			delete(state, at)
		case kv.Cleared:
			clear(state)
		}
	}
}

// Whoever has heard up to some message, and asks for the rest, ends with what the
// store holds; and so does who has heard nothing.
func TestObjectReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMilli(1)
		p := kvevent.NewObjectPublisher("store", 0)
		truth := map[place]bool{}
		states := []map[place]bool{{}} // by number
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 30).Draw(t, "lose") == 0 {
				p.Lose()
				states = append(states, nil)
				continue
			}
			var events []kvevent.ObjectEvent
			for range rapid.IntRange(1, 100).Draw(t, "events") {
				events = append(events, kvevent.ObjectEvent{
					Kind: rapid.SampledFrom([]kv.EventKind{kv.Stored, kv.Stored, kv.Removed}).Draw(t, "kind"),
					Key:  fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "key")), Tenant: rapid.SampledFrom([]string{"", "t"}).Draw(t, "tenant"),
					Medium: rapid.SampledFrom([]string{"cpu", "disk", "external"}).Draw(t, "medium"),
				})
			}
			for _, m := range p.Publish(now, events) {
				told, err := kvevent.DecodeObjectBatch(m.Payload)
				if err != nil {
					t.Fatal(err)
				}
				fold(truth, told)
				if m.Seq != uint64(len(states)) {
					t.Fatalf("message %d, want %d", m.Seq, len(states))
				}
				states = append(states, maps.Clone(truth))
			}
		}
		newest := uint64(len(states) - 1)
		lost := slices.ContainsFunc(states, func(s map[place]bool) bool { return s == nil })
		from := rapid.Uint64Range(0, newest+1).Draw(t, "from")
		state := map[place]bool{}
		if from > 0 {
			if states[from-1] == nil {
				return
			}
			state = maps.Clone(states[from-1])
		}
		next, any := from, false
		for m := range p.Replay(now, from) {
			told, err := kvevent.DecodeObjectBatch(m.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if len(told) > 0 && told[0].Kind == kv.Cleared {
				next = m.Seq
			} else if any && m.Seq != next && m.Seq != next+1 || !any && m.Seq != from {
				t.Fatalf("message %d behind %d", m.Seq, next)
			}
			next, any = m.Seq, true
			fold(state, told)
		}
		switch {
		case any && next != newest:
			t.Fatalf("the last message is %d of %d", next, newest)
		case (any || from == newest+1) && !maps.Equal(state, truth):
			t.Fatalf("told %v, holds %v", state, truth)
		case !any && from <= newest && !lost:
			t.Fatalf("nothing is told from %d of %d on", from, newest)
		}
	})
}

// A publisher that holds more than it may remember tells newcomers nothing, until
// everything has gone.
func TestObjectsBeyondMemory(t *testing.T) {
	p := kvevent.NewObjectPublisher("store", 2)
	event := func(kind kv.EventKind, key string) {
		p.Publish(time.UnixMilli(1), []kvevent.ObjectEvent{{Kind: kind, Key: key, Medium: "cpu"}})
	}
	replays := func() (n int) {
		for range p.Replay(time.UnixMilli(1), 0) {
			n++
		}
		return n
	}
	event(kv.Stored, "a")
	event(kv.Stored, "b")
	if replays() != 1 {
		t.Error("nothing is told of two objects")
	}
	event(kv.Stored, "c")
	if replays() != 0 {
		t.Error("something is told of three objects, of which two are known")
	}
	event(kv.Removed, "a")
	event(kv.Removed, "b")
	if replays() != 0 {
		t.Error("it is told that nothing is there, and c is")
	}
	event(kv.Cleared, "")
	if replays() != 1 {
		t.Error("it is not told that nothing is there")
	}
}

package kvevent_test

import (
	"errors"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawRouterEvent draws an event that a reader takes as it is.
func drawRouterEvent(t *rapid.T) kvevent.RouterEvent {
	e := kvevent.RouterEvent{
		Worker:    rapid.Uint64().Draw(t, "worker"),
		Rank:      rapid.Uint32().Draw(t, "rank"),
		ID:        rapid.Uint64().Draw(t, "id"),
		Residency: rapid.SampledFrom([]kvevent.Residency{kvevent.ResidencyUntold, kvevent.ResidencyWorker}).Draw(t, "residency"),
		Event: kv.Event{
			Kind: kv.EventKind(rapid.IntRange(0, 2).Draw(t, "kind")),
			Tier: kv.Tier(rapid.IntRange(0, 3).Draw(t, "tier")),
		},
	}
	if e.Event.Kind == kv.Cleared {
		return e
	}
	keys := rapid.SliceOfNDistinct(rapid.Uint64(), 0, 40, rapid.ID).Draw(t, "keys")
	if e.Event.Kind == kv.Stored && len(keys) > 0 && rapid.Bool().Draw(t, "parent") {
		e.Event.HasParent, e.Event.Parent = true, kv.EngineHash(keys[0])
		keys = keys[1:]
	}
	for _, k := range keys {
		b := kv.Block{Engine: kv.EngineHash(k)}
		if e.Event.Kind == kv.Stored {
			b.Local = kv.LocalHash(rapid.Uint64().Draw(t, "local"))
		}
		e.Event.Blocks = append(e.Event.Blocks, b)
	}
	return e
}

func TestRouterEventsRoundTrip(t *testing.T) {
	var d kvevent.RouterDecoder
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(drawRouterEvent), 0, 20).Draw(t, "events")
		form := rapid.SampledFrom([]kvevent.Form{kvevent.Maps, kvevent.Arrays}).Draw(t, "form")
		got, err := d.Decode(kvevent.AppendRouterEvents(nil, form, want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
	})
	if len(d.Rejected) > 0 {
		t.Errorf("rejected %v", d.Rejected)
	}
}

// What other writers leave out, put in or write in other words.
func TestRouterEventDialects(t *testing.T) {
	store := kv.Event{
		Kind: kv.Stored, Tier: kv.TierHost, Parent: 9001, HasParent: true,
		Blocks: []kv.Block{{Engine: 9002, Local: 16777012769546811212}},
	}
	want := kvevent.RouterEvent{Worker: 7012, Rank: 1, ID: 42, Event: store}
	device := want
	device.Event.Tier = kv.TierDevice
	block := obj{{"block_hash", 9002}, {"tokens_hash", uint64(16777012769546811212)}, {"mm_extra_info", nil}}
	data := obj{{"stored", obj{{"parent_hash", 9001}, {"start_position", nil}, {"blocks", list{block}}}}}
	event := obj{{"event_id", 42}, {"dp_rank", 1}, {"data", data}}
	nothing := kvevent.RouterEvent{Worker: 7012, Rank: 1, ID: 42, Event: kv.Event{Kind: kv.Removed}}
	for _, tt := range []struct {
		name     string
		message  any
		want     kvevent.RouterEvent
		rejected kvevent.Rejection
	}{
		{"as documented", obj{{"worker_id", 7012}, {"storage_tier", "host_pinned"}, {"event", event}}, want, ""},
		{"tier left out", obj{{"worker_id", 7012}, {"event", event}}, device, ""},
		{"unknown fields", obj{{"new", list{1, obj{}}}, {"worker_id", 7012}, {"event", event}, {"state_source", "s"}}, device, ""},
		{"another order", obj{{"event", event}, {"storage_tier", "host_pinned"}, {"worker_id", 7012}}, want, ""},
		{"array of two", list{7012, event}, device, ""},
		{"array of three", list{7012, "host_pinned", event}, want, ""},
		{"array with state source", list{7012, "host_pinned", event, "owner-1"}, want, ""},
		{"arrays all the way", list{7012, "host_pinned", list{42, obj{{"stored", list{9001, list{list{9002, uint64(16777012769546811212)}}}}}, 1}}, want, ""},
		{"media", list{7012, "host_pinned", list{42, obj{{"stored", list{9001, nil, list{list{9002, uint64(16777012769546811212), obj{{"mm_objects", list{}}}}}}}}, 1}}, want, ""},
		{"rank left out", list{7012, list{42, "cleared"}}, kvevent.RouterEvent{Worker: 7012, ID: 42, Event: kv.Event{Kind: kv.Cleared}}, ""},
		{
			"removal in an array",
			list{7012, list{42, obj{{"removed", list{list{1, -1}}}}, 1}},
			kvevent.RouterEvent{Worker: 7012, Rank: 1, ID: 42, Event: removed(1, 1<<64-1)},
			"",
		},
		{
			"worker's domain",
			list{7012, "host_pinned", "worker", event},
			kvevent.RouterEvent{Worker: 7012, Rank: 1, ID: 42, Event: store, Residency: kvevent.ResidencyWorker},
			"",
		},
		{"unknown domain", obj{{"worker_id", 7012}, {"residency_domain", "moon"}, {"event", event}}, nothing, kvevent.RejectedResidency},
		{"no domain, said so", obj{{"worker_id", 7012}, {"residency_domain", nil}, {"event", event}}, nothing, kvevent.RejectedResidency},
		{
			"a clear of an unknown domain",
			list{7012, "device", nil, list{42, "cleared", 1}},
			nothing, kvevent.RejectedResidency,
		},
		{
			"device store of another owner",
			obj{{"worker_id", 7012}, {"residency_domain", "cache_owner"}, {"event", event}},
			kvevent.RouterEvent{Worker: 7012, Rank: 1, ID: 42, Event: kv.Event{Kind: kv.Removed}, Residency: kvevent.ResidencyCacheOwner},
			kvevent.RejectedTier,
		},
		{
			"its own parent",
			list{7012, list{42, obj{{"stored", list{9002, list{list{9002, 1}}}}}, 1}},
			nothing, kvevent.RejectedRepeat,
		},
		{
			"a block twice",
			list{7012, list{42, obj{{"stored", list{nil, list{list{9002, 1}, list{9002, 2}}}}}, 1}},
			nothing, kvevent.RejectedRepeat,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d kvevent.RouterDecoder
			got, err := d.Decode(pack(list{tt.message}))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]kvevent.RouterEvent{tt.want}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if rejected := len(d.Rejected) > 0; rejected != (tt.rejected != "") || rejected && d.Rejected[tt.rejected] != 1 {
				t.Errorf("rejected %v, want %q", d.Rejected, tt.rejected)
			}
		})
	}
}

func TestMalformedRouterEvents(t *testing.T) {
	var d kvevent.RouterDecoder
	whole := kvevent.AppendRouterEvents(nil, kvevent.Maps, []kvevent.RouterEvent{
		{Worker: 1, ID: 1, Event: stored(7, kv.Block{Engine: 8, Local: 9})}, {Worker: 1, ID: 2, Event: removed(8)},
	})
	for n := range whole {
		if _, err := d.Decode(whole[:n]); !errors.Is(err, kvevent.ErrMalformed) {
			t.Fatalf("cut at %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for name, message := range map[string]any{
		"a map":            obj{},
		"a number":         list{1},
		"no data":          list{obj{{"worker_id", 1}}},
		"unknown kind":     list{list{1, list{1, obj{{"moved", list{}}}, 0}}},
		"unknown word":     list{list{1, list{1, "gone", 0}}},
		"unknown tier":     list{list{1, "moon", list{1, "cleared", 0}}},
		"negative worker":  list{list{-1, list{1, "cleared", 0}}},
		"a rank too large": list{list{1, list{1, "cleared", 1 << 32}}},
		"half a block":     list{list{1, list{1, obj{{"stored", list{nil, list{list{1}}}}}, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := d.Decode(pack(message)); !errors.Is(err, kvevent.ErrMalformed) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// What a message may name is bounded as a whole: a few bytes of it are a block.
func TestTooManyRouterBlocks(t *testing.T) {
	half := make([]kv.Block, 1<<19)
	for i := range half {
		half[i].Engine = kv.EngineHash(i % 100)
	}
	gone := kvevent.RouterEvent{Event: kv.Event{Kind: kv.Removed, Blocks: half}}
	one := kvevent.RouterEvent{Event: removed(1)}
	var d kvevent.RouterDecoder
	for _, tt := range []struct {
		events []kvevent.RouterEvent
		good   bool
	}{
		{[]kvevent.RouterEvent{gone, gone}, true},
		{[]kvevent.RouterEvent{gone, gone, one}, false},
		{[]kvevent.RouterEvent{one}, true},
	} {
		if _, err := d.Decode(kvevent.AppendRouterEvents(nil, kvevent.Arrays, tt.events)); (err == nil) != tt.good {
			t.Errorf("%d events: %v", len(tt.events), err)
		}
	}
}

func FuzzRouterDecoder(f *testing.F) {
	events := []kvevent.RouterEvent{
		{Worker: 1, ID: 1, Event: stored(7, kv.Block{Engine: 8, Local: 9})},
		{Worker: 1, ID: 2, Event: removed(8)},
		{Worker: 1, ID: 3, Event: kv.Event{Kind: kv.Cleared}, Residency: kvevent.ResidencyWorker},
	}
	f.Add(kvevent.AppendRouterEvents(nil, kvevent.Maps, events))
	f.Add(kvevent.AppendRouterEvents(nil, kvevent.Arrays, events))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d kvevent.RouterDecoder
		got, err := d.Decode(payload)
		if err != nil {
			return
		}
		// What has been read is written and read again as it is.
		again, err := new(kvevent.RouterDecoder).Decode(kvevent.AppendRouterEvents(nil, kvevent.Arrays, got))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("second reading (-first +second):\n%s", diff)
		}
	})
}

func BenchmarkRouterEvents(b *testing.B) {
	const blocks = 64
	e := kvevent.RouterEvent{Worker: 7012, ID: 42, Event: kv.Event{Kind: kv.Stored, HasParent: true, Parent: 1 << 60}}
	for i := range blocks {
		h := uint64(i+1) * 0x9e3779b97f4a7c15
		e.Event.Blocks = append(e.Event.Blocks, kv.Block{Engine: kv.EngineHash(h), Local: kv.LocalHash(^h)})
	}
	for _, form := range []struct {
		name string
		kvevent.Form
	}{{"maps", kvevent.Maps}, {"arrays", kvevent.Arrays}} {
		payload := kvevent.AppendRouterEvents(nil, form.Form, []kvevent.RouterEvent{e})
		b.Run(form.name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				payload = kvevent.AppendRouterEvents(payload[:0], form.Form, []kvevent.RouterEvent{e})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		})
		b.Run(form.name+"/decode", func(b *testing.B) {
			var d kvevent.RouterDecoder
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		})
	}
}

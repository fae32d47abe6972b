package kvevent_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What is left out, why, and what comes all the same.
func TestFilters(t *testing.T) {
	two := []uint32{1, 2}
	block := kv.Block{Engine: 7, Local: local(plain, 1, 2)}
	drop := func(typ kvevent.EventType, why kvevent.Reason) []kvevent.Drop {
		return []kvevent.Drop{{Type: typ, Reason: why, Events: 1}}
	}
	s, r, c, u := kvevent.TypeStored, kvevent.TypeRemoved, kvevent.TypeCleared, kvevent.TypeUnknown
	for _, tt := range []struct {
		name   string
		events list
		want   []kv.Event
		drops  []kvevent.Drop
	}{
		{"unknown type, map", list{obj{{"type", "BlockDreamt"}, {"block_hashes", "what"}}}, nil, drop(u, kvevent.IgnoredEvent)},
		{"unknown type behind its fields", list{obj{{"block_hashes", list{7}}, {"type", "BlockDreamt"}, {"medium", 1}}}, nil, drop(u, kvevent.IgnoredEvent)},
		{"unknown type, list", list{list{"BlockDreamt", list{7}}}, nil, drop(u, kvevent.IgnoredEvent)},
		{"no event at all", list{nil}, nil, drop(u, kvevent.MalformedEvent)},
		{"an empty list", list{list{}}, nil, drop(u, kvevent.MalformedEvent)},
		{"no type", list{obj{{"block_hashes", list{7}}}}, nil, drop(u, kvevent.MalformedEvent)},
		{"no keys", list{list{"BlockRemoved"}}, nil, drop(r, kvevent.MalformedEvent)},
		{"no tokens", list{list{"BlockStored", list{7}, nil}}, nil, drop(s, kvevent.MalformedEvent)},
		{"tokens out of range", list{store(7, nil, nil), list{"BlockStored", list{7}, nil, list{1, -2}, 2}, list{"BlockStored", list{7}, nil, list{1, 1 << 32}, 2}}, nil, []kvevent.Drop{
			{Type: s, Reason: kvevent.MalformedEvent, Events: 2}, {Type: s, Reason: kvevent.WrongBlockSize, Events: 1},
		}},
		{"a key that is none", list{list{"BlockRemoved", list{1.5}}}, nil, drop(r, kvevent.MalformedEvent)},
		{"a medium that is none", list{list{"BlockRemoved", list{7}, 5}}, nil, drop(r, kvevent.MalformedEvent)},
		{"what is broken spoils only itself", list{list{"BlockStored", list{7}, nil, "tokens"}, store(7, nil, two)}, []kv.Event{stored(0, block)}, drop(s, kvevent.MalformedEvent)},
		{"elsewhere", list{store(7, nil, two, field{"locality", "REMOTE"})}, nil, drop(s, kvevent.NonLocalLocality)},
		{"who knows where", list{removal(7, field{"locality", "moon"})}, nil, drop(r, kvevent.NonLocalLocality)},
		{"unknown medium", list{list{"BlockStored", list{7}, nil, two, 2, nil, "moon"}}, nil, drop(s, kvevent.UnknownMedium)},
		{"overlong medium", list{list{"BlockRemoved", list{7}, strings.Repeat("GPU", 9)}}, nil, drop(r, kvevent.UnknownMedium)},
		{"a cache of its own", list{store(7, nil, two, field{"ownership", "kvcr"})}, nil, drop(s, kvevent.UnsupportedOwnership)},
		{"an unknown owner", list{removal(7, field{"ownership", "me"})}, nil, drop(r, kvevent.UnknownOwnership)},
		{"the clear of a cache of its own", list{list{"AllBlocksCleared", "kvcr"}}, nil, drop(c, kvevent.UnsupportedOwnership)},
		{"the clear of an unknown owner", list{obj{{"type", "AllBlocksCleared"}, {"ownership", "me"}}}, nil, drop(c, kvevent.UnknownOwnership)},
		{"the owner in the tail", list{list{"BlockRemoved", list{7}, "GPU", 0, "full_attention", nil, nil, "kvcr"}}, nil, drop(r, kvevent.UnsupportedOwnership)},
		{"a window's blocks", list{store(7, nil, two, field{"kv_cache_spec_kind", "sliding_window"})}, nil, drop(s, kvevent.NonMainAttentionKind)},
		{"blocks of a new kind", list{store(7, nil, two, field{"kv_cache_spec_kind", "moonlight"})}, nil, drop(s, kvevent.UnknownKind)},
		{"group 1, of which nothing is known", list{store(7, nil, two, field{"group_idx", 1})}, nil, drop(s, kvevent.UnlearnedGroup)},
		{"group 0, of which nothing is known", list{store(7, nil, two, field{"group_idx", 0})}, []kv.Event{stored(0, block)}, nil},
		{"group 1 is the main one", list{store(7, nil, two, field{"group_idx", 1}, field{"kv_cache_spec_kind", "full_attention"}), removal(7, field{"group_idx", 1})}, []kv.Event{stored(0, block), removed(7)}, nil},
		{"group 0 is a window", list{store(7, nil, two, field{"group_idx", 0}, field{"kv_cache_spec_kind", "sliding_window"}), removal(7, field{"group_idx", 0})}, nil, []kvevent.Drop{
			{Type: s, Reason: kvevent.NonMainAttentionKind, Events: 1}, {Type: r, Reason: kvevent.NonMainAttentionGroup, Events: 1},
		}},
		{"groups outlive a clear", list{store(7, nil, two, field{"group_idx", 1}, field{"kv_cache_spec_kind", "mla_attention"}), cleared, store(7, nil, two, field{"group_idx", 1})}, []kv.Event{stored(0, block), {Kind: kv.Cleared}, stored(0, block)}, nil},
		{"nothing stored", list{list{"BlockStored", list{}, nil, list{}, 2}}, nil, drop(s, kvevent.EmptyStore)},
		{"a key twice", list{list{"BlockStored", list{7, 7}, nil, []uint32{1, 2, 3, 4}, 2}}, nil, drop(s, kvevent.RepeatedHash)},
		{"its own parent", list{store(7, 7, two)}, nil, drop(s, kvevent.RepeatedHash)},
		{"a key twice among many", list{list{"BlockStored", list{1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, nil, make([]uint32, 20), 2}}, nil, drop(s, kvevent.RepeatedHash)},
		{"its own parent among many", list{list{"BlockStored", list{1, 2, 3, 4, 5, 6, 7, 8, 9}, 9, make([]uint32, 18), 2}}, nil, drop(s, kvevent.RepeatedHash)},
		{"nobody's child", list{store(7, 6, two)}, nil, drop(s, kvevent.UnknownParent)},
		{"another size", list{store(7, nil, []uint32{1, 2, 3})}, nil, drop(s, kvevent.WrongBlockSize)},
		{"no size", list{list{"BlockStored", list{7}, nil, two, 0}}, nil, drop(s, kvevent.WrongBlockSize)},
		{"a size beyond reason", list{list{"BlockStored", list{7}, nil, two, uint64(1) << 63}}, nil, drop(s, kvevent.WrongBlockSize)},
		{"a negative size", list{list{"BlockStored", list{7}, nil, two, -2}}, nil, drop(s, kvevent.MalformedEvent)},
		{"too few tokens for the last block", list{list{"BlockStored", list{7, 8}, nil, []uint32{1, 2, 3}, 2}}, []kv.Event{stored(0, block)}, drop(s, kvevent.ShortTokens)},
		{"too few tokens for any block", list{list{"BlockStored", list{7}, nil, list{1}, 2}}, nil, drop(s, kvevent.ShortTokens)},
		{"an adapter without a name", list{list{"BlockStored", list{7}, nil, two, 2, 4, "GPU"}}, nil, drop(s, kvevent.UnknownAdapter)},
		{"an adapter with a name", list{list{"BlockStored", list{7}, nil, two, 2, 4, "GPU", "sql"}}, []kv.Event{stored(0, kv.Block{Engine: 7, Local: local(kv.Namespace{LoRA: "sql"}.Seed(), 1, 2)})}, nil},
		{"prompt embeddings", list{store(7, nil, two, field{"extra_keys", list{list{[]byte{1}}}})}, nil, drop(s, kvevent.ForeignNamespace)},
		{"salt of another client", list{store(7, nil, two, field{"extra_keys", list{list{"tenant-a"}}})}, nil, drop(s, kvevent.ForeignNamespace)},
		{"media without a hash", list{store(7, nil, two, field{"extra_keys", list{list{list{"my picture", 0}}}})}, nil, drop(s, kvevent.UnknownMedia)},
		{"extra keys that are none", list{store(7, nil, two, field{"extra_keys", 5})}, nil, drop(s, kvevent.MalformedEvent)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2})
			if diff := cmp.Diff(tt.want, decodeAll(t, d, message(tt.events...)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.drops, drops(d.Counts()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("drops (-want +got):\n%s", diff)
			}
		})
	}
}

// The media of engines, in whatever case.
func TestTiers(t *testing.T) {
	for medium, tier := range map[any]kv.Tier{
		nil: kv.TierDevice, "": kv.TierDevice, "GPU": kv.TierDevice, "gpu": kv.TierDevice, "Device": kv.TierDevice,
		"CPU": kv.TierHost, "cpu_pinned": kv.TierHost, "CPU_TIER1": kv.TierHost,
		"CPU_TIER2": kv.TierDisk, "Disk": kv.TierDisk, "NVME": kv.TierDisk, "STORAGE": kv.TierDisk, "FS": kv.TierDisk,
		"EXTERNAL": kv.TierShared, "NETWORK": kv.TierShared, "remote": kv.TierShared, "SHARED": kv.TierShared, "OBJ": kv.TierShared,
	} {
		d := kvevent.NewDecoder(kvevent.Config{})
		got := decodeAll(t, d, message(list{"BlockRemoved", list{7}, medium}))
		if diff := cmp.Diff([]kv.Event{on(tier, removed(7))}, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", medium, diff)
		}
	}
}

// Reasons and types are labels of metrics: all different, none forgotten.
func TestLabels(t *testing.T) {
	seen := map[string]bool{}
	for r := kvevent.None; r <= kvevent.PartialBlock; r++ {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[r.String()] = true
	}
	for _, name := range []string{
		"ignored_event", "non_local_locality", "unknown_medium", "unknown_ownership", "unsupported_ownership", "non_main_attention_kind",
		"unknown_kind", "non_main_attention_group", "unlearned_group_idx", "ambiguous_cache_namespace", "empty_store_blocks",
	} {
		if !seen[name] {
			t.Errorf("no reason is called %q", name)
		}
	}
}

// A wrong block size is told of three times, and counted always.
func TestWarnings(t *testing.T) {
	var log bytes.Buffer
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 4, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 5 {
		decodeAll(t, d, message(store(7, nil, []uint32{1, 2, 3})))
	}
	if n := strings.Count(log.String(), "block_size=3 want=4"); n != 3 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if n := d.Counts().Dropped[kvevent.TypeStored][kvevent.WrongBlockSize]; n != 5 {
		t.Errorf("counted %d, want 5", n)
	}
}

// The first store with a whole block tells the size, as long as nobody else has.
func TestBlockSizeIsLearned(t *testing.T) {
	d := kvevent.NewDecoder(kvevent.Config{})
	decodeAll(t, d, message(list{"BlockStored", list{7}, nil, list{1}, 2}))
	if n := d.BlockSize(); n != 0 {
		t.Errorf("learned %d from a block that is not there", n)
	}
	decodeAll(t, d, message(store(7, nil, []uint32{1, 2}), store(8, nil, []uint32{1, 2, 3, 4})))
	if n := d.BlockSize(); n != 2 {
		t.Errorf("learned %d, want 2", n)
	}
	want := []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.WrongBlockSize, Events: 1}, {Type: kvevent.TypeStored, Reason: kvevent.ShortTokens, Events: 1}}
	if diff := cmp.Diff(want, drops(d.Counts())); diff != "" {
		t.Errorf("drops (-want +got):\n%s", diff)
	}
}

// What is remembered has a bound, which holds for all ranks together.
func TestTooManyBlocks(t *testing.T) {
	d := kvevent.NewDecoder(kvevent.Config{MaxBlocks: 3})
	got := decodeAll(t, d, message(list{"BlockStored", list{1, 2, 3, 4}, nil, []uint32{1, 2, 3, 4}, 1}, store(5, nil, []uint32{5}), removal(1), store(5, nil, []uint32{5})))
	want := []kv.Event{
		stored(0, kv.Block{Engine: 1, Local: local(plain, 1)}, kv.Block{Engine: 2, Local: local(plain, 2)}, kv.Block{Engine: 3, Local: local(plain, 3)}),
		removed(1),
		stored(0, kv.Block{Engine: 5, Local: local(plain, 5)}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := d.Counts().Dropped[kvevent.TypeStored][kvevent.TooManyBlocks]; n != 2 || d.Held(0) != 3 {
		t.Errorf("counted %d, holds %d", n, d.Held(0))
	}
	other := pack(list{0, list{store(5, nil, []uint32{5})}, 1})
	if _, events, err := d.Decode(other); err != nil || len(events) > 0 || d.Held(1) != 0 {
		t.Errorf("%v of another rank, %v", events, err)
	}
	d.Forget(0)
	if _, events, err := d.Decode(other); err != nil || len(events) != 1 || d.Held(1) != 1 {
		t.Errorf("%v of another rank, now that there is room, %v", events, err)
	}
}

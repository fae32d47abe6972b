package kvevent_test

import (
	"fmt"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// message is a batch of events at some time, of rank 0.
func message(events ...any) []byte { return pack(list{1.5, list(events), 0}) }

// store is a tagged map as vLLM writes it, with more fields behind the usual.
func store(key uint64, parent any, tokens []uint32, more ...field) obj {
	return append(obj{
		{"type", "BlockStored"},
		{"block_hashes", list{key}},
		{"parent_block_hash", parent},
		{"token_ids", tokens},
		{"block_size", len(tokens)},
		{"lora_id", nil},
		{"medium", "GPU"},
	}, more...)
}

// removal is a tagged map as vLLM writes it.
func removal(key uint64, more ...field) obj {
	return append(obj{{"type", "BlockRemoved"}, {"block_hashes", list{key}}, {"medium", "GPU"}}, more...)
}

var cleared = obj{{"type", "AllBlocksCleared"}}

// decodeAll decodes messages one after the other and returns copies of all
// events.
func decodeAll(t rapid.TB, d *kvevent.Decoder, messages ...[]byte) (all []kv.Event) {
	t.Helper()
	for _, m := range messages {
		_, events, err := d.Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			e.Blocks = append([]kv.Block(nil), e.Blocks...)
			all = append(all, e)
		}
	}
	return all
}

// Every way in which builds have written one and the same store.
func TestDialects(t *testing.T) {
	tokens := []uint32{1, 300, 70_000, 4}
	want := stored(0, kv.Block{Engine: 7, Local: local(plain, tokens...)})
	slots := func(more ...any) list {
		return append(list{"BlockStored", list{7}, nil, tokens, 4}, more...)
	}
	for _, tt := range []struct {
		name  string
		event any
		want  kv.Event
	}{
		{"map", store(7, nil, tokens), want},
		{"map without what may be taken for granted", obj{{"type", "BlockStored"}, {"block_hashes", list{7}}, {"token_ids", tokens}, {"block_size", 4}}, want},
		{"map in another order, type last", obj{{"block_size", 4}, {"token_ids", tokens}, {"block_hashes", list{7}}, {"type", "BlockStored"}}, want},
		{"map with unknown fields", store(7, nil, tokens, field{"new", obj{{"a", list{1, "b", nil}}}}, field{"component_types", list{"full"}}), want},
		{"map with everything", store(7, nil, tokens, field{"lora_name", nil}, field{"extra_keys", list{nil}}, field{"group_idx", 0}, field{"kv_cache_spec_kind", "mla_attention"}, field{"kv_cache_spec_sliding_window", nil}, field{"locality", "LOCAL"}, field{"ownership", nil}), want},
		{"root called 0", store(7, 0, tokens), want},
		{"5 slots", slots(), want},
		{"6 slots", slots(nil), want},
		{"7 slots", slots(nil, "GPU"), want},
		{"7 slots, another tier", slots(nil, "cpu_tier2"), on(kv.TierDisk, want)},
		{"8 slots", slots(nil, "GPU", nil), want},
		{"8 slots, metadata", slots(nil, "GPU", obj{{"session_id", "s"}}), want},
		{"9 slots", slots(nil, "GPU", nil, list{nil}), want},
		{"10 slots", slots(nil, "GPU", nil, nil, 0), want},
		{"11 slots", slots(nil, "GPU", nil, nil, 0, "full_attention"), want},
		{"11 slots, group untold", slots(nil, "GPU", nil, nil, nil, "full_attention"), want},
		{"12 slots", slots(nil, "GPU", nil, nil, 1, "full_attention", nil), want},
		{"12 slots, group untold", slots(nil, "GPU", nil, nil, nil, "full_attention", 128), want},
		{"14 slots", slots(nil, "GPU", nil, nil, 0, "full_attention", nil, "LOCAL", nil), want},
		{"16 slots", slots(nil, "GPU", nil, nil, 0, "full_attention", nil, "LOCAL", nil, "new", list{}), want},
		{"locality without a window", slots(nil, "GPU", nil, nil, 0, "local"), want},
		{"media of an old build", slots(nil, "GPU", nil, nil, list{list{list{list{9, list{}}}}}), stored(0, kv.Block{Engine: 7, Local: kv.HashMediaBlock(tokens, []uint64{9}, plain)})},
		{"an array that is no media", slots(nil, "GPU", nil, nil, list{1, 2}), want},
		{"key in bytes", obj{{"type", "BlockStored"}, {"block_hashes", list{[]byte{9, 9, 0, 0, 0, 0, 0, 0, 0, 7}}}, {"token_ids", tokens}, {"block_size", 4}}, want},
		{"key in few bytes", obj{{"type", "BlockStored"}, {"block_hashes", list{[]byte{7}}}, {"token_ids", tokens}, {"block_size", 4}}, want},
		{"key in text", obj{{"type", "BlockStored"}, {"block_hashes", list{"\x00\x00\x00\x00\x00\x00\x00\x07"}}, {"token_ids", tokens}, {"block_size", 4}}, want},
		{"pairs", obj{{"type", "BlockStored"}, {"block_hashes", list{7}}, {"token_ids", list{list{1, 300}, list{300, 70_000}, list{70_000, 4}, list{4, 5}}}, {"block_size", 4}}, want},
		{"more tokens than blocks", obj{{"type", "BlockStored"}, {"block_hashes", list{7}}, {"token_ids", []uint32{1, 300, 70_000, 4, 9, 9}}, {"block_size", 4}}, want},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range []struct {
				form string
				pack []byte
			}{
				{"list", pack(list{1.5, list{tt.event}, 3})},
				{"list with more", pack(list{1.5, list{tt.event}, 3, "new", obj{}})},
				{"list, time a whole number", pack(list{7, list{tt.event}, 3})},
				{"list without rank", pack(list{1.5, list{tt.event}})},
				{"list, rank nil", pack(list{1.5, list{tt.event}, nil})},
				{"map", pack(obj{{"ts", 1.5}, {"events", list{tt.event}}, {"data_parallel_rank", 3}})},
				{"map, an engine's other name", pack(obj{{"attn_dp_rank", 3}, {"events", list{tt.event}}})},
				{"map, other name", pack(obj{{"dp_rank", 3}, {"new", nil}, {"events", list{tt.event}}})},
				{"map without rank", pack(obj{{"ts", 1.5}, {"events", list{tt.event}}})},
			} {
				d := kvevent.NewDecoder(kvevent.Config{Rank: 3})
				rank, events, err := d.Decode(m.pack)
				if err != nil {
					t.Fatalf("%s: %v", m.form, err)
				}
				if rank != 3 {
					t.Errorf("%s: rank %d", m.form, rank)
				}
				if diff := cmp.Diff([]kv.Event{tt.want}, events); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", m.form, diff)
				}
				if c := d.Counts(); c.Messages != 1 || c.Received[kvevent.TypeStored] != 1 || c.Accepted[kvevent.TypeStored] != 1 || len(drops(c)) > 0 {
					t.Errorf("%s: counts %+v", m.form, c)
				}
			}
		})
	}
}

func TestRemovalDialects(t *testing.T) {
	for _, event := range []any{
		obj{{"type", "BlockRemoved"}, {"block_hashes", list{7, -1}}, {"medium", "GPU"}},
		obj{{"type", "BlockRemoved"}, {"block_hashes", list{7, -1}}},
		obj{{"medium", nil}, {"block_hashes", list{7, -1}}, {"type", "BlockRemoved"}, {"group_idx", 0}},
		list{"BlockRemoved", list{7, -1}},
		list{"BlockRemoved", list{7, -1}, nil},
		list{"BlockRemoved", list{7, -1}, "device", 0},
		list{"BlockRemoved", list{7, -1}, "GPU", nil, "LOCAL"},
		list{"BlockRemoved", list{7, -1}, "GPU", 0, "LOCAL", nil},
		list{"BlockRemoved", list{7, -1}, "GPU", 0, "full_attention", nil, "LOCAL", nil},
	} {
		t.Run(fmt.Sprint(event), func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{})
			if diff := cmp.Diff([]kv.Event{removed(7, 1<<64-1)}, decodeAll(t, d, message(event))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClearDialects(t *testing.T) {
	for _, event := range []any{
		cleared,
		list{"AllBlocksCleared"},
		list{"AllBlocksCleared", nil},
		list{"AllBlocksCleared", "GPU"},
		list{"AllBlocksCleared", nil, 1},
		obj{{"type", "AllBlocksCleared"}, {"medium", "CPU"}},
	} {
		t.Run(fmt.Sprint(event), func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{})
			decodeAll(t, d, message(store(7, nil, []uint32{1, 2})))
			if diff := cmp.Diff([]kv.Event{{Kind: kv.Cleared}}, decodeAll(t, d, message(event))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n := d.Held(0); n != 0 {
				t.Errorf("%d blocks held after a clear", n)
			}
		})
	}
}

// Whatever the dialects, and even if they change from event to event, the same
// history comes out.
func TestDialectsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "block size")
		want := kvevent.NewDecoder(kvevent.Config{BlockSize: size})
		got := kvevent.NewDecoder(kvevent.Config{BlockSize: size})
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			var plainly, variously list
			for range rapid.IntRange(0, 6).Draw(t, "events") {
				e := drawEvent(t, size)
				plainly = append(plainly, e.tagged(t, false))
				variously = append(variously, e.draw(t))
			}
			a, b := pack(list{1.5, plainly, 0}), pack(list{1.5, variously, 0})
			if diff := cmp.Diff(decodeAll(t, want, a), decodeAll(t, got, b), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("dialects disagree (-tagged +various):\n%s", diff)
			}
		}
		if diff := cmp.Diff(want.Counts(), got.Counts()); diff != "" {
			t.Fatalf("counts disagree (-tagged +various):\n%s", diff)
		}
	})
}

// drawnEvent is an event before it is written.
type drawnEvent struct {
	kind          string
	keys          []uint64
	parent        any
	tokens        []uint32
	size          int
	medium, lora  any
	extra         any
	group, window any
	attention     any
	locality      any
}

func drawEvent(t *rapid.T, size int) drawnEvent {
	e := drawnEvent{
		kind:   rapid.SampledFrom([]string{"BlockStored", "BlockStored", "BlockStored", "BlockRemoved", "BlockRemoved", "AllBlocksCleared"}).Draw(t, "kind"),
		medium: rapid.SampledFrom([]any{nil, "GPU", "CPU", "disk", "EXTERNAL", "moon"}).Draw(t, "medium"),
		size:   size,
	}
	if rapid.IntRange(0, 9).Draw(t, "clear rarely") > 0 && e.kind == "AllBlocksCleared" {
		e.kind = "BlockRemoved"
	}
	key := rapid.Uint64Range(0, 12)
	e.keys = rapid.SliceOfN(key, 0, 4).Draw(t, "keys")
	for i := range e.keys {
		e.keys[i] *= 0x9e3779b97f4a7c15
	}
	if rapid.Bool().Draw(t, "has parent") {
		e.parent = key.Draw(t, "parent") * 0x9e3779b97f4a7c15
	}
	n := len(e.keys)*size + rapid.SampledFrom([]int{0, 0, 0, -1, 1, size}).Draw(t, "surplus")
	e.tokens = rapid.SliceOfN(rapid.Uint32(), max(n, 0), max(n, 0)).Draw(t, "tokens")
	e.lora = rapid.SampledFrom([]any{nil, nil, "sql"}).Draw(t, "lora")
	if rapid.Bool().Draw(t, "has extra") {
		extra := make(list, len(e.keys))
		for i := range extra {
			extra[i] = rapid.SampledFrom([]any{nil, list{}, list{"dynamo-cache-salt:a"}, list{"other"}, list{hexOf(3)}, list{list{hexOf(4), -2}}}).Draw(t, "key")
		}
		e.extra = extra
	}
	if rapid.Bool().Draw(t, "has group") {
		e.group = rapid.IntRange(0, 2).Draw(t, "group")
		e.attention = rapid.SampledFrom([]any{nil, "full_attention", "sliding_window", "moon"}).Draw(t, "attention")
		e.window = rapid.SampledFrom([]any{nil, 128}).Draw(t, "window")
	}
	e.locality = rapid.SampledFrom([]any{nil, nil, "LOCAL", "REMOTE"}).Draw(t, "locality")
	return e
}

func hexOf(n int) string { return fmt.Sprintf("%016x%048d", n, 0) }

// tagged writes the event as a map, in any order if shuffled.
func (e drawnEvent) tagged(t *rapid.T, shuffled bool) obj {
	o := obj{{"type", e.kind}}
	if e.kind != "AllBlocksCleared" {
		o = append(o, field{"block_hashes", e.keyList(t, shuffled)}, field{"medium", e.medium}, field{"group_idx", e.group}, field{"locality", e.locality}, field{"kv_cache_spec_kind", e.attention})
	}
	if e.kind == "BlockStored" {
		o = append(o, field{"parent_block_hash", e.parent}, field{"token_ids", e.tokens}, field{"block_size", e.size}, field{"lora_name", e.lora}, field{"extra_keys", e.extra})
	}
	if shuffled {
		o = rapid.Permutation(o).Draw(t, "order")
		var kept obj
		for _, f := range o {
			if f.value != nil {
				kept = append(kept, f)
			}
		}
		o = kept
	}
	return o
}

// draw writes the event in a dialect that can say it.
func (e drawnEvent) draw(t *rapid.T) any {
	if rapid.Bool().Draw(t, "map") {
		return e.tagged(t, true)
	}
	tail := list{e.group, e.attention, e.window, e.locality, nil}
	switch e.kind {
	case "BlockStored":
		return append(list{e.kind, e.keyList(t, true), e.parent, e.tokens, e.size, nil, e.medium, e.lora, e.extra}, tail...)
	case "BlockRemoved":
		return append(list{e.kind, e.keyList(t, true), e.medium}, tail...)
	}
	return list{e.kind, nil}
}

// keyList writes the keys, as numbers of either sign or bytes if various.
func (e drawnEvent) keyList(t *rapid.T, various bool) list {
	l := make(list, len(e.keys))
	for i, k := range e.keys {
		l[i] = k
		if !various {
			continue
		}
		switch rapid.IntRange(0, 2).Draw(t, "form of a key") {
		case 1:
			l[i] = int64(k)
		case 2:
			l[i] = fmt.Appendf(nil, "0123%s", string([]byte{byte(k >> 56), byte(k >> 48), byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}))
		}
	}
	return l
}

// It makes no difference whether events come in one message or each in its own,
// though a reader of one message reads what repeats by comparing bytes.
func TestOneMessageOrMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 3).Draw(t, "block size")
		var all list
		many, one := kvevent.NewDecoder(kvevent.Config{BlockSize: size}), kvevent.NewDecoder(kvevent.Config{BlockSize: size})
		var want []kv.Event
		next := uint64(1) << 60
		parent := any(nil)
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			var e any
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				e = drawEvent(t, size).draw(t)
			case 1, 2:
				key := next - rapid.Uint64Range(0, 5).Draw(t, "key")
				e = removal(key, rapid.SampledFrom([]obj{nil, {{"group_idx", 0}}, {{"locality", "REMOTE"}}}).Draw(t, "more")...)
				if rapid.Bool().Draw(t, "list") {
					e = list{"BlockRemoved", list{int64(key)}, "GPU"}
				}
			default:
				o := store(next, parent, rapid.SliceOfN(rapid.Uint32(), size, size).Draw(t, "tokens"),
					rapid.SampledFrom([]obj{nil, {{"group_idx", 0}}, {{"group_idx", 1}}, {{"lora_name", "sql"}}, {{"cache_salt", "a"}}, {{"extra_keys", list{list{hexOf(1)}}}}}).Draw(t, "more")...)
				if rapid.IntRange(0, 4).Draw(t, "shuffle") == 0 {
					o = rapid.Permutation(o).Draw(t, "order")
				}
				e, parent = o, next
				next++
			}
			all = append(all, e)
			want = append(want, decodeAll(t, many, message(e))...)
		}
		got := decodeAll(t, one, message(all...))
		if diff := cmp.Diff(flatten(want), flatten(got), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("events (-many messages +one):\n%s", diff)
		}
		a, b := many.Counts(), one.Counts()
		if a.Messages = 1; a != b {
			t.Fatalf("counts: many messages %+v, one %+v", a, b)
		}
	})
}

// flatten makes one event of each block.
func flatten(events []kv.Event) (flat []kv.Event) {
	for _, e := range events {
		if e.Kind == kv.Cleared {
			flat = append(flat, e)
		}
		for _, b := range e.Blocks {
			one := e
			one.Blocks = []kv.Block{b}
			flat = append(flat, one)
			if e.Kind == kv.Stored {
				e.Parent, e.HasParent = b.Engine, true
			}
		}
	}
	return flat
}

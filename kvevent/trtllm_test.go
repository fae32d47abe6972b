package kvevent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// element is one element of an answer, blockElement a block of a store.
func element(id, window int, data string) string {
	return fmt.Sprintf(`{"event_id":%d,"attention_dp_rank":0,"window_size":%d,"data":%s}`, id, window, data)
}

func storeElement(parent string, blocks ...string) string {
	return fmt.Sprintf(`{"type":"stored","parent_hash":%s,"blocks":[%s]}`, parent, strings.Join(blocks, ","))
}

func blockElement(key string, level int, tokens ...uint32) string {
	return blockElementWith(key, level, `"mm_keys":[],"cache_salt":null`, tokens...)
}

func blockElementWith(key string, level int, more string, tokens ...uint32) string {
	var text []string
	for _, t := range tokens {
		text = append(text, fmt.Sprintf(`{"type":"unique_token","token_id":%d,"token_extra_id":0}`, t))
	}
	return fmt.Sprintf(`{"type":"stored_block","block_hash":%s,"cache_level":%d,"priority":35,%s,"tokens":[%s]}`, key, level, more, strings.Join(text, ","))
}

func removalElement(keys ...string) string {
	return fmt.Sprintf(`{"type":"removed","block_hashes":[%s]}`, strings.Join(keys, ","))
}

func moved(key string, from, to int) string {
	return fmt.Sprintf(`{"type":"updated","block_hash":%s,"cache_level":{"type":"event_diff","old_value":%d,"new_value":%d},"priority":null}`, key, from, to)
}

func on(tier kv.Tier, e kv.Event) kv.Event {
	e.Tier = tier
	return e
}

func TestTRTLLM(t *testing.T) {
	const created = `{"type":"created","num_blocks_per_cache_level":[1000,0]}`
	b := func(key kv.EngineHash, tokens ...uint32) kv.Block {
		return kv.Block{Engine: key, Local: local(plain, tokens...)}
	}
	salted := kv.Namespace{Salt: "tenant-a"}.Seed()
	image := strings.Repeat("0123456789abcdef", 4)
	type step struct {
		answer []string
		want   []kvevent.Polled
	}
	for _, tt := range []struct {
		name  string
		steps []step
		drops []kvevent.Drop
	}{
		{"store, extend, remove", []step{
			{[]string{element(0, 64, created)}, []kvevent.Polled{{First: 0, Last: 0}}},
			{
				[]string{element(1, 64, storeElement("null", blockElement("18446744073709551615", 0, 1, 2), blockElement("7", 0, 3, 4)))},
				[]kvevent.Polled{{First: 1, Last: 1, Events: []kv.Event{stored(0, b(1<<64-1, 1, 2), b(7, 3, 4))}}},
			},
			{nil, nil},
			{
				[]string{element(2, 64, storeElement("7", blockElement("-8", 0, 5, 6))), element(3, 64, removalElement("-8", "7"))},
				[]kvevent.Polled{{First: 2, Last: 3, Events: []kv.Event{stored(7, b(1<<64-8, 5, 6)), removed(1<<64-8, 7)}}},
			},
		}, nil},
		{"root called 0, keys in hexadecimal", []step{{
			[]string{element(0, 64, storeElement("0", blockElement(`"aa00000000000000ff"`, 0, 1, 2)))},
			[]kvevent.Polled{{Events: []kv.Event{stored(0, b(0xff, 1, 2))}}},
		}}, nil},
		{"keys of more than 64 bits", []step{{
			[]string{element(0, 64, storeElement("null", blockElement("18446744073709551617", 0, 1, 2)))},
			[]kvevent.Polled{{Events: []kv.Event{stored(0, b(1, 1, 2))}}},
		}}, nil},
		{"the short end of a prompt", []step{
			{
				[]string{element(0, 64, storeElement("null", blockElement("1", 0, 1, 2), blockElement("2", 0, 3)))},
				[]kvevent.Polled{{Events: []kv.Event{stored(0, b(1, 1, 2))}}},
			},
			{
				[]string{element(1, 64, moved("2", 0, 1)), element(2, 64, removalElement("2", "1")), element(3, 64, removalElement("2"))},
				[]kvevent.Polled{{First: 1, Last: 3, Events: []kv.Event{removed(1, 2)}}},
			},
		}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.PartialBlock, Events: 1}, {Type: kvevent.TypeUpdated, Reason: kvevent.PartialBlock, Events: 1}}},
		{"other windows", []step{{
			[]string{
				element(0, 32, created), element(1, 64, created),
				element(2, 32, storeElement("null", blockElement("1", 0, 1, 2))),
				element(3, 64, storeElement("null", blockElement("1", 0, 1, 2))),
				element(4, 32, removalElement("1")),
			},
			[]kvevent.Polled{{Last: 4, Events: []kv.Event{stored(0, b(1, 1, 2))}}},
		}}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.OtherWindow, Events: 1}, {Type: kvevent.TypeRemoved, Reason: kvevent.OtherWindow, Events: 1}}},
		{"a larger window turns up late", []step{{
			[]string{
				element(5, 32, storeElement("null", blockElement("1", 0, 1, 2))),
				element(6, 64, storeElement("null", blockElement("1", 0, 1, 2))),
			},
			[]kvevent.Polled{
				{First: 5, Last: 5, Events: []kv.Event{stored(0, b(1, 1, 2))}},
				{First: 6, Last: 6, Lost: true, Events: []kv.Event{stored(0, b(1, 1, 2))}},
			},
		}}, nil},
		{"tiers", []step{
			{
				[]string{element(0, 64, storeElement("null", blockElement("1", 0, 1, 2), blockElement("2", 1, 3, 4)))},
				[]kvevent.Polled{{Events: []kv.Event{stored(0, b(1, 1, 2)), on(kv.TierHost, stored(1, b(2, 3, 4)))}}},
			},
			{
				[]string{element(1, 64, moved("1", 0, 1)), element(2, 64, moved("2", 1, 1)), element(3, 64, moved("9", 0, 1))},
				[]kvevent.Polled{{First: 1, Last: 3, Events: []kv.Event{on(kv.TierHost, stored(0, b(1, 1, 2))), removed(1)}}},
			},
			{
				[]string{element(4, 64, removalElement("1", "2"))},
				[]kvevent.Polled{{First: 4, Last: 4, Events: []kv.Event{on(kv.TierHost, removed(1, 2))}}},
			},
		}, []kvevent.Drop{{Type: kvevent.TypeUpdated, Reason: kvevent.UnknownBlock, Events: 1}}},
		{"a hole, then a restart", []step{
			{
				[]string{element(0, 64, storeElement("null", blockElement("1", 0, 1, 2)))},
				[]kvevent.Polled{{Events: []kv.Event{stored(0, b(1, 1, 2))}}},
			},
			{
				[]string{element(2, 64, storeElement("1", blockElement("2", 0, 3, 4)))},
				[]kvevent.Polled{{First: 2, Last: 2, Lost: true}},
			},
			{
				[]string{element(0, 64, created), element(1, 64, storeElement("null", blockElement("1", 0, 1, 2)))},
				[]kvevent.Polled{{First: 0, Last: 1, Lost: true, Events: []kv.Event{stored(0, b(1, 1, 2))}}},
			},
		}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.UnknownParent, Events: 1}}},
		{"ranks count for themselves", []step{{
			[]string{
				element(0, 64, storeElement("null", blockElement("1", 0, 1, 2))),
				`{"event_id":0,"attention_dp_rank":3,"window_size":64,"data":` + storeElement("null", blockElement("1", 0, 1, 2)) + `}`,
				element(1, 64, removalElement("1")),
				`{"event_id":2,"attention_dp_rank":3,"window_size":64,"data":` + removalElement("1") + `}`,
			},
			[]kvevent.Polled{
				{Events: []kv.Event{stored(0, b(1, 1, 2))}},
				{Rank: 3, Events: []kv.Event{stored(0, b(1, 1, 2))}},
				{First: 1, Last: 1, Events: []kv.Event{removed(1)}},
				{Rank: 3, First: 2, Last: 2, Lost: true, Events: []kv.Event{removed(1)}},
			},
		}}, nil},
		{"salts of ours, inherited", []step{{
			[]string{
				element(0, 64, storeElement("null", blockElementWith("1", 0, `"cache_salt":"dynamo-cache-salt:tenant-a"`, 1, 2))),
				element(1, 64, storeElement("1", blockElement("2", 0, 3, 4))),
			},
			[]kvevent.Polled{{Last: 1, Events: []kv.Event{
				stored(0, kv.Block{Engine: 1, Local: local(salted, 1, 2)}, kv.Block{Engine: 2, Local: local(salted, 3, 4)}),
			}}},
		}}, nil},
		{"salts that differ within a store", []step{{
			[]string{element(0, 64, storeElement("null",
				blockElementWith("1", 0, `"cache_salt":"dynamo-cache-salt:tenant-a"`, 1, 2),
				blockElementWith("2", 0, `"cache_salt":"dynamo-cache-salt:tenant-a"`, 3, 4),
				blockElementWith("3", 0, `"cache_salt":"dynamo-cache-salt:tenant-b"`, 5, 6)))},
			[]kvevent.Polled{{Events: []kv.Event{
				stored(0, kv.Block{Engine: 1, Local: local(salted, 1, 2)}, kv.Block{Engine: 2, Local: local(salted, 3, 4)}),
			}}},
		}}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.ForeignNamespace, Events: 1}}},
		{"salts of others", []step{{
			[]string{element(0, 64, storeElement("null", blockElementWith("1", 0, `"cache_salt":"tenant-a"`, 1, 2)))},
			[]kvevent.Polled{{}},
		}}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.ForeignNamespace, Events: 1}}},
		{"media", []step{{
			[]string{element(0, 64, storeElement("null",
				blockElementWith("1", 0, `"mm_keys":[{"type":"mm_key","hash":"`+image+`","start_offset":0}]`, 1, 2),
				blockElementWith("2", 0, `"mm_keys":[{"type":"mm_key","hash":"my picture","start_offset":0}]`, 1, 2)))},
			[]kvevent.Polled{{Events: []kv.Event{
				stored(0, kv.Block{Engine: 1, Local: kv.HashMediaBlock([]uint32{1, 2}, []uint64{0x0123456789abcdef}, plain)}),
			}}},
		}}, []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.UnknownMedia, Events: 1}}},
		{"what cannot be read", []step{{
			[]string{
				element(0, 64, `{"type":"stored","parent_hash":null,"blocks":[{"block_hash":1.5,"tokens":[]}]}`),
				element(1, 64, `{"type":"stored","parent_hash":null,"blocks":[{"block_hash":1,"tokens":[{"token_id":-1}]}]}`),
				element(2, 64, `{"type":"removed","block_hashes":[true]}`),
				element(3, 64, `{"type":"dreamt"}`),
				element(4, 64, storeElement("null")),
				element(5, 64, storeElement("null", blockElement("1", 0, 1, 2), blockElement("1", 0, 1, 2))),
			},
			[]kvevent.Polled{{Last: 5}},
		}}, []kvevent.Drop{
			{Type: kvevent.TypeUnknown, Reason: kvevent.IgnoredEvent, Events: 1},
			{Type: kvevent.TypeUnknown, Reason: kvevent.MalformedEvent, Events: 1},
			{Type: kvevent.TypeStored, Reason: kvevent.MalformedEvent, Events: 1},
			{Type: kvevent.TypeStored, Reason: kvevent.EmptyStore, Events: 1},
			{Type: kvevent.TypeStored, Reason: kvevent.RepeatedHash, Events: 1},
			{Type: kvevent.TypeRemoved, Reason: kvevent.MalformedEvent, Events: 1},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := kvevent.NewTRTLLMDecoder(kvevent.Config{BlockSize: 2})
			for i, s := range tt.steps {
				got, err := d.Decode([]byte("[" + strings.Join(s.answer, ",") + "]"))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(s.want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("answer %d (-want +got):\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(tt.drops, drops(d.Counts()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("drops (-want +got):\n%s", diff)
			}
		})
	}
}

func drops(c kvevent.Counts) (all []kvevent.Drop) {
	for d := range c.Drops() {
		all = append(all, d)
	}
	return all
}

// Without a block size given, only a block that another one follows tells it.
func TestTRTLLMLearnsTheBlockSize(t *testing.T) {
	d := kvevent.NewTRTLLMDecoder(kvevent.Config{})
	decode := func(id int, data string) int {
		t.Helper()
		runs, err := d.Decode([]byte("[" + element(id, 64, data) + "]"))
		if err != nil || len(runs) != 1 {
			t.Fatalf("%d runs, %v", len(runs), err)
		}
		return len(runs[0].Events)
	}
	if n := decode(0, storeElement("null", blockElement("1", 0, 1, 2))); n != 0 || d.BlockSize() != 0 {
		t.Errorf("%d events and a block size of %d from a block that may be short", n, d.BlockSize())
	}
	if n := decode(1, storeElement("null", blockElement("3", 0), blockElement("4", 0, 1, 2))); n != 0 || d.BlockSize() != 0 {
		t.Errorf("%d events and a block size of %d from a block of nothing", n, d.BlockSize())
	}
	if n := decode(2, storeElement("null", blockElement("5", 0, 1, 2), blockElement("6", 0, 3, 4))); n != 1 || d.BlockSize() != 2 {
		t.Errorf("%d events and a block size of %d", n, d.BlockSize())
	}
}

// Where the id of an image's tokens is known, its pad takes their place.
func TestTRTLLMPads(t *testing.T) {
	const hash = 0x0123456789abcdef
	image := uint32(9)
	d := kvevent.NewTRTLLMDecoder(kvevent.Config{BlockSize: 2, ImageToken: &image})
	media := fmt.Sprintf(`"mm_keys":[{"type":"mm_key","hash":"%016x%048x","start_offset":0}]`, hash, 5)
	runs, err := d.Decode([]byte("[" + element(0, 64, storeElement("null", blockElementWith("1", 0, media, 7, image))) + "]"))
	want := []kvevent.Polled{{Events: []kv.Event{stored(0, kv.Block{Engine: 1, Local: local(plain, 7, 1_000_000+hash&(1<<30-1))})}}}
	if diff := cmp.Diff(want, runs); err != nil || diff != "" {
		t.Errorf("%v, runs (-want +got):\n%s", err, diff)
	}
}

// What is remembered has a bound, which holds for all ranks together.
func TestTooManyTRTLLMBlocks(t *testing.T) {
	d := kvevent.NewTRTLLMDecoder(kvevent.Config{BlockSize: 2, MaxBlocks: 2})
	decode := func(rank, id int, key string) int {
		t.Helper()
		runs, err := d.Decode(fmt.Appendf(nil, `[{"event_id":%d,"attention_dp_rank":%d,"window_size":64,"data":%s}]`, id, rank, storeElement("null", blockElement(key, 0, 1, 2))))
		if err != nil || len(runs) != 1 {
			t.Fatalf("%d runs, %v", len(runs), err)
		}
		return len(runs[0].Events)
	}
	for i, want := range []int{1, 1, 0} {
		if n := decode(0, i, fmt.Sprint(i)); n != want {
			t.Errorf("%d events of store %d, want %d", n, i, want)
		}
	}
	if n := decode(1, 0, "7"); n != 0 {
		t.Errorf("%d events of another rank", n)
	}
	d.Forget(0)
	if n := decode(1, 1, "7"); n != 1 {
		t.Errorf("%d events of another rank, now that there is room", n)
	}
}

func TestMalformedTRTLLM(t *testing.T) {
	d := kvevent.NewTRTLLMDecoder(kvevent.Config{BlockSize: 2})
	for _, body := range []string{``, `{}`, `[`, `[1]`, `[{"event_id":"x"}]`, `[{"event_id":-1}]`, `[{"event_id":0,"attention_dp_rank":-1}]`} {
		if _, err := d.Decode([]byte(body)); !errors.Is(err, kvevent.ErrMalformed) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if n := d.Counts().Malformed; n != 7 {
		t.Errorf("%d malformed, want 7", n)
	}
}

func FuzzTRTLLM(f *testing.F) {
	f.Add([]byte("[" + element(0, 64, storeElement("null", blockElement("1", 0, 1, 2), blockElement("2", 1, 3))) + "," + element(1, 64, moved("1", 0, 1)) + "," + element(2, 64, removalElement("1")) + "]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := kvevent.NewTRTLLMDecoder(kvevent.Config{BlockSize: 2})
		runs, err := d.Decode(body)
		if err == nil && !json.Valid(body) {
			t.Fatalf("%q is no JSON, and was read", body)
		}
		for _, r := range runs {
			checkEvents(t, r.Events)
		}
	})
}

// checkEvents demands what every event keeps.
func checkEvents(t rapid.TB, events []kv.Event) {
	t.Helper()
	for _, e := range events {
		switch {
		case e.Kind > kv.Cleared || e.Tier > kv.TierShared:
			t.Fatalf("kind %v on tier %v", e.Kind, e.Tier)
		case e.Kind == kv.Cleared != (len(e.Blocks) == 0):
			t.Fatalf("%v of %d blocks", e.Kind, len(e.Blocks))
		case e.Kind != kv.Stored && (e.HasParent || e.Parent != 0):
			t.Fatalf("%v with a parent", e.Kind)
		}
		for i, b := range e.Blocks {
			if e.Kind == kv.Removed && b.Local != 0 {
				t.Fatal("a removal that tells what was removed")
			}
			if e.Kind == kv.Stored && (e.HasParent && b.Engine == e.Parent || i > 0 && b.Engine == e.Blocks[i-1].Engine) {
				t.Fatal("a block that follows itself")
			}
		}
	}
}

package kvevent_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// held is one block on one tier.
type held struct {
	tier kv.Tier
	key  kv.EngineHash
}

// view is what a receiver of events knows: it believes every word.
type view map[held]kv.Event // with the one block, and its parent

func (v view) apply(t rapid.TB, events []kv.Event) {
	t.Helper()
	checkEvents(t, events)
	for _, e := range events {
		switch e.Kind {
		case kv.Cleared:
			clear(v)
		case kv.Removed:
			for _, b := range e.Blocks {
				delete(v, held{e.Tier, b.Engine})
			}
		case kv.Stored:
			one := e
			for _, b := range e.Blocks {
				one.Blocks = []kv.Block{b}
				v[held{e.Tier, b.Engine}] = one
				one.Parent, one.HasParent = b.Engine, true
			}
		}
	}
}

// A block is there as long as one copy is, on each tier for itself.
func TestCopies(t *testing.T) {
	mediums := []any{"GPU", "CPU", "DISK", "EXTERNAL"}
	rapid.Check(t, func(t *rapid.T) {
		d := kvevent.NewDecoder(kvevent.Config{BlockSize: 1})
		copies, got := map[held]int{}, view{}
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			var events list
			for range rapid.IntRange(1, 4).Draw(t, "events") {
				key := rapid.Uint64Range(1, 40).Draw(t, "key")
				tier := rapid.IntRange(0, 3).Draw(t, "tier")
				at := held{kv.Tier(tier), kv.EngineHash(key)}
				switch rapid.IntRange(0, 40).Draw(t, "what") {
				case 0:
					events = append(events, cleared)
					clear(copies)
				case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18:
					events = append(events, list{"BlockRemoved", list{key}, mediums[tier]})
					if copies[at]--; copies[at] <= 0 {
						delete(copies, at)
					}
				default:
					events = append(events, list{"BlockStored", list{key}, nil, list{key}, 1, nil, mediums[tier]})
					copies[at]++
				}
			}
			got.apply(t, decodeAll(t, d, message(events...)))
		}
		blocks := map[kv.EngineHash]bool{}
		for at := range copies {
			blocks[at.key] = true
			if _, ok := got[at]; !ok {
				t.Fatalf("%v is gone, with %d copies left", at, copies[at])
			}
		}
		for at := range got {
			if copies[at] == 0 {
				t.Fatalf("%v is there without a copy", at)
			}
		}
		if n := d.Held(0); n != len(blocks) {
			t.Fatalf("%d blocks remembered, %d there", n, len(blocks))
		}
	})
}

// Much coming and going, of blocks in several namespaces, leaves nothing behind
// and loses nothing. Every event is checked for itself.
func TestTurnover(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 1})
	copies := map[uint64]int{}
	one := func(what string, event any, want ...kv.Event) {
		t.Helper()
		if diff := cmp.Diff(want, decodeAll(t, d, message(event)), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	salts := []string{"", "a", "b"}
	for range 4_000 {
		key := rng.Uint64N(200) + 1
		salt := salts[key%3]
		seed := kv.Namespace{Salt: salt}.Seed()
		if rng.IntN(2) == 0 {
			var want []kv.Event
			if copies[key]--; copies[key] <= 0 {
				delete(copies, key)
				want = append(want, removed(kv.EngineHash(key)))
			}
			one("removal", removal(key), want...)
			continue
		}
		if copies[key] == 3 {
			continue
		}
		copies[key]++
		one("store", store(key, nil, []uint32{uint32(key)}, field{"cache_salt", salt}), stored(0, kv.Block{Engine: kv.EngineHash(key), Local: local(seed, uint32(key))}))
		const child = 1 << 40
		one("store of a child", store(child, key, []uint32{7}), stored(kv.EngineHash(key), kv.Block{Engine: child, Local: local(seed, 7)}))
		one("removal of a child", removal(child), removed(child))
		if n := d.Held(0); n != len(copies) {
			t.Fatalf("%d blocks remembered, %d there", n, len(copies))
		}
	}
}

// A count that is full stands still: the block goes too early rather than never.
func TestVeryManyCopies(t *testing.T) {
	d := kvevent.NewDecoder(kvevent.Config{})
	events := make(list, 1<<16+10)
	for i := range events {
		events[i] = store(7, nil, []uint32{1})
	}
	decodeAll(t, d, message(events...))
	for i := range events {
		events[i] = removal(7)
	}
	decodeAll(t, d, message(events...))
	if n := d.Held(0); n != 0 {
		t.Errorf("%d blocks held", n)
	}
}

func TestRanksAreApart(t *testing.T) {
	d := kvevent.NewDecoder(kvevent.Config{Rank: 2})
	send := func(rank any, event any) []kv.Event {
		t.Helper()
		_, events, err := d.Decode(pack(list{0, list{event}, rank}))
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	send(0, store(7, nil, []uint32{1}))
	if got := send(1, store(8, 7, []uint32{2})); len(got) != 0 {
		t.Errorf("rank 1 continues a block of rank 0: %v", got)
	}
	send(nil, store(7, nil, []uint32{1}))
	send(0, cleared)
	if d.Held(0) != 0 || d.Held(1) != 0 || d.Held(2) != 1 {
		t.Errorf("held %d, %d and %d", d.Held(0), d.Held(1), d.Held(2))
	}
	d.Forget(2)
	if got := send(2, store(8, 7, []uint32{2})); len(got) != 0 || d.Held(2) != 0 {
		t.Errorf("a forgotten block has a child: %v", got)
	}
	if _, _, err := d.Decode(pack(list{0, list{}, -1})); err == nil {
		t.Error("rank -1 was accepted")
	}
	for rank := range uint32(5000) {
		if _, _, err := d.Decode(pack(list{0, list{}, rank})); err != nil {
			if rank < 4000 {
				t.Errorf("rank %d: %v", rank, err)
			}
			return
		}
	}
	t.Error("a worker of 5000 ranks was believed")
}

// A message that cannot be read has changed nothing.
func TestMalformedChangesNothing(t *testing.T) {
	whole := message(store(1, nil, []uint32{1, 2}), removal(9), store(2, 1, []uint32{3, 4}, field{"extra_keys", list{list{hexOf(1)}}}), cleared, list{"BlockStored", list{3}, nil, []uint32{300, 70_000}, 2, nil, "GPU", nil, nil, 0, "full_attention"})
	for n := range whole {
		d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2})
		decodeAll(t, d, message(store(9, nil, []uint32{1, 2})))
		if _, events, err := d.Decode(whole[:n]); err == nil || events != nil {
			t.Fatalf("cut at %d of %d bytes: events %v, error %v", n, len(whole), events, err)
		}
		if got := decodeAll(t, d, message(store(10, 9, []uint32{3, 4}))); len(got) != 1 || d.Held(0) != 2 {
			t.Fatalf("cut at %d: %v and %d blocks held", n, got, d.Held(0))
		}
		if c := d.Counts(); c.Malformed != 1 || c.Messages != 3 {
			t.Fatalf("counts %+v", c)
		}
	}
	deep := any(list{})
	for range 20 {
		deep = list{deep}
	}
	for name, payload := range map[string][]byte{
		"a number":          pack(7),
		"a word":            pack("events"),
		"a list of one":     pack(list{1.5}),
		"no list":           pack(list{1.5, obj{}, 0}),
		"a map without":     pack(obj{{"ts", 1.5}}),
		"a map of numbers":  {0x81, 1, 2},
		"two lists":         pack(obj{{"events", list{}}, {"events", list{}}}),
		"too deep":          message(deep),
		"claims 4G events":  {0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"claims 4G pairs":   {0xdf, 0xff, 0xff, 0xff, 0xff},
		"claims 4G bytes":   {0x92, 0xc6, 0xff, 0xff, 0xff, 0xff, 0x90},
		"claims 4G of text": {0x92, 0xdb, 0xff, 0xff, 0xff, 0xff, 0x90},
		"an unused byte":    {0x92, 0xc1, 0x90},
	} {
		t.Run(name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{})
			if _, events, err := d.Decode(payload); err == nil {
				t.Errorf("decoded to %v", events)
			}
		})
	}
}

// A chain has the namespace of its first block.
func TestNamespaces(t *testing.T) {
	two := func(n uint32) []uint32 { return []uint32{n, n} }
	seed := func(lora, salt string) uint64 { return kv.Namespace{LoRA: lora, Salt: salt}.Seed() }
	block := func(key kv.EngineHash, seed uint64, n uint32) kv.Block {
		return kv.Block{Engine: key, Local: local(seed, n, n)}
	}
	keys := func(items ...any) field { return field{"extra_keys", list{list(items)}} }
	ambiguous := []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.AmbiguousNamespace, Events: 1}}
	a := seed("", "a")
	for _, tt := range []struct {
		name   string
		events list
		want   []kv.Event
		drops  []kvevent.Drop
	}{
		{
			"salt in the extra keys, inherited on another tier",
			list{store(1, nil, two(1), keys("dynamo-cache-salt:a")), store(2, 1, two(2)), list{"BlockStored", list{1}, nil, two(1), 2, nil, "GPU", nil, list{list{"dynamo-cache-salt:a"}}}, list{"BlockStored", list{2}, 1, two(2), 2, nil, "CPU"}},
			[]kv.Event{stored(0, block(1, a, 1)), stored(1, block(2, a, 2)), stored(0, block(1, a, 1)), on(kv.TierHost, stored(1, block(2, a, 2)))},
			nil,
		},
		{
			"adapter and salt, the adapter named first",
			list{store(1, nil, two(1), field{"lora_name", "sql"}, keys("sql", "dynamo-cache-salt:a"))},
			[]kv.Event{stored(0, block(1, seed("sql", "a"), 1))},
			nil,
		},
		{
			"the adapter's name where a salt stands",
			list{store(1, nil, two(1), field{"lora_name", "sql"}, keys("dynamo-cache-salt:a", "sql"))},
			nil,
			[]kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.ForeignNamespace, Events: 1}},
		},
		{
			"salt in a field, with and without the prefix, or in the metadata",
			list{store(1, nil, two(1), field{"cache_salt", "a"}), store(2, nil, two(2), field{"cache_salt", "dynamo-cache-salt:a"}), store(3, nil, two(3), field{"metadata", obj{{"session_id", nil}, {"cache_salt", "a"}}}), list{"BlockStored", list{4}, nil, two(4), 2, nil, "GPU", obj{{"cache_salt", "a"}}}},
			[]kv.Event{stored(0, block(1, a, 1)), stored(0, block(2, a, 2)), stored(0, block(3, a, 3)), stored(0, block(4, a, 4))},
			nil,
		},
		{
			"an empty salt is none",
			list{store(1, nil, two(1), field{"cache_salt", ""}, field{"lora_name", ""}, field{"metadata", obj{{"cache_salt", nil}}})},
			[]kv.Event{stored(0, block(1, plain, 1))},
			nil,
		},
		{
			"the salt is told again",
			list{store(1, nil, two(1), field{"cache_salt", "a"}), store(2, 1, two(2), field{"cache_salt", "a"})},
			[]kv.Event{stored(0, block(1, a, 1)), stored(1, block(2, a, 2))},
			nil,
		},
		{
			"a child of another salt",
			list{store(1, nil, two(1), field{"cache_salt", "a"}), store(2, 1, two(2), field{"cache_salt", "b"})},
			[]kv.Event{stored(0, block(1, a, 1))},
			ambiguous,
		},
		{
			"one key, two salts, and what follows",
			list{store(1, nil, two(1), field{"cache_salt", "a"}), store(1, nil, two(1), field{"cache_salt", "b"}), store(2, 1, two(2)), removal(1), removal(1), removal(1), store(1, nil, two(1), field{"cache_salt", "b"})},
			[]kv.Event{stored(0, block(1, a, 1)), removed(1, 1), stored(0, block(1, seed("", "b"), 1))},
			[]kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.AmbiguousNamespace, Events: 2}},
		},
		{
			"one key, two salts, two tiers, in the middle of a store",
			list{store(2, nil, two(2), field{"cache_salt", "a"}), list{"BlockStored", list{2}, nil, two(2), 2, nil, "CPU", obj{{"cache_salt", "a"}}}, list{"BlockStored", list{1, 2, 3}, nil, []uint32{1, 1, 2, 2, 3, 3}, 2}},
			[]kv.Event{stored(0, block(2, a, 2)), on(kv.TierHost, stored(0, block(2, a, 2))), stored(0, block(1, plain, 1)), removed(2), on(kv.TierHost, removed(2))},
			ambiguous,
		},
		{
			"a salt behind the first block",
			list{list{"BlockStored", list{1, 2}, nil, []uint32{1, 1, 2, 2}, 2, nil, "GPU", nil, list{nil, list{"dynamo-cache-salt:a"}}}},
			[]kv.Event{stored(0, block(1, plain, 1))},
			[]kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.ForeignNamespace, Events: 1}},
		},
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

// prompts are those in flight, by the prefixes they have.
type prompts map[kv.SeqHash]kv.Namespace

func (p prompts) Namespace(rank uint32, prefix kv.SeqHash) (kv.Namespace, bool) {
	ns, ok := p[prefix]
	return ns, ok && rank == 0
}

func promptOf(ns kv.Namespace, blockSize int, tokens ...uint32) prompts {
	p := prompts{}
	for _, h := range kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, tokens, blockSize, plain)) {
		p[h] = ns
	}
	return p
}

// An engine that does not tell salts is helped by who sent the prompt.
func TestInFlight(t *testing.T) {
	ns := kv.Namespace{LoRA: "sql", Salt: "a"}
	flying := promptOf(ns, 2, 1, 1, 2, 2)
	mine := func(key kv.EngineHash, n uint32) kv.Block {
		return kv.Block{Engine: key, Local: local(ns.Seed(), n, n)}
	}
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2, InFlight: flying})
	got := decodeAll(t, d, message(
		list{"BlockStored", list{1, 2}, nil, []uint32{1, 1, 2, 2}, 2},
		// The answer goes on behind the prompt.
		list{"BlockStored", list{3}, 2, []uint32{3, 3}, 2},
		// Nobody has asked for these.
		list{"BlockStored", list{11, 12}, nil, []uint32{2, 2, 1, 1}, 2},
		// This says itself whose it is.
		store(21, nil, []uint32{1, 1}, field{"cache_salt", "b"}),
	))
	want := []kv.Event{
		stored(0, mine(1, 1), mine(2, 2)),
		stored(2, mine(3, 3)),
		stored(0, kv.Block{Engine: 11, Local: local(plain, 2, 2)}, kv.Block{Engine: 12, Local: local(plain, 1, 1)}),
		stored(0, kv.Block{Engine: 21, Local: local(kv.Namespace{Salt: "b"}.Seed(), 1, 1)}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// Another tenant's copy of the same blocks comes with the same keys.
	maps.DeleteFunc(flying, func(kv.SeqHash, kv.Namespace) bool { return true })
	got = decodeAll(t, d, message(list{"BlockStored", list{1, 2}, nil, []uint32{1, 1, 2, 2}, 2}))
	if diff := cmp.Diff([]kv.Event{removed(1)}, got); diff != "" {
		t.Errorf("the other tenant's store (-want +got):\n%s", diff)
	}
}

// An engine that tells salts, and no adapters, is helped as well: blocks of a salt
// are those of an adapter if a prompt in flight with that salt is.
func TestInFlightAdapter(t *testing.T) {
	ns := kv.Namespace{LoRA: "sql", Salt: "a"}
	salt := func(s string) field { return field{"metadata", obj{{"cache_salt", s}}} }
	for name, size := range map[string]int{"blocks": 2, "pages": 1} {
		t.Run(name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2, InFlight: promptOf(ns, 2, 1, 1, 2, 2)})
			page := func(key int, parent any, salted string, tokens ...uint32) obj {
				keys := list{}
				for i := range len(tokens) / size {
					keys = append(keys, key+i)
				}
				return obj{{"type", "BlockStored"}, {"block_hashes", keys}, {"parent_block_hash", parent}, {"token_ids", tokens}, {"block_size", size}, salt(salted)}
			}
			got := decodeAll(t, d, message(
				page(10, nil, "dynamo-cache-salt:a", 1, 1),
				page(20, 9+2/size, "dynamo-cache-salt:a", 2, 2),
				page(30, nil, "dynamo-cache-salt:b", 1, 1),      // another tenant's
				page(40, 9+2/size, "dynamo-cache-salt:b", 3, 3), // cannot be
			))
			var locals []kv.LocalHash
			for _, e := range got {
				for _, b := range e.Blocks {
					locals = append(locals, b.Local)
				}
			}
			want := []kv.LocalHash{local(ns.Seed(), 1, 1), local(ns.Seed(), 2, 2), local(kv.Namespace{Salt: "b"}.Seed(), 1, 1)}
			if diff := cmp.Diff(want, locals); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMedia(t *testing.T) {
	const image = 151655
	hash := func(n uint64, tokens ...uint32) kv.LocalHash {
		return kv.HashMediaBlock(tokens, []uint64{n}, plain)
	}
	place := func(n int) list { return list{hexOf(n), -3} }
	infos := func(hashes ...any) list {
		var objects list
		for _, h := range hashes {
			objects = append(objects, obj{{"offsets", list{list{0, 2}}}, {"mm_hash", h}})
		}
		return list{obj{{"mm_objects", objects}}, nil}
	}
	pad := kv.MediaToken
	for _, tt := range []struct {
		name  string
		image bool
		extra field
		want  [2]kv.LocalHash
	}{
		{"by suffix", false, field{"extra_keys", list{list{hexOf(5)}, nil}}, [2]kv.LocalHash{hash(5, 1, image, image, 2), local(plain, image, 3, image, 4)}},
		{"with a place", false, field{"extra_keys", list{nil, list{place(5)}}}, [2]kv.LocalHash{local(plain, 1, image, image, 2), hash(5, image, 3, image, 4)}},
		{"in capitals", false, field{"extra_keys", list{list{strings.ToUpper(fmt.Sprintf("%064x", 5))}, nil}}, [2]kv.LocalHash{hash(0, 1, image, image, 2), local(plain, image, 3, image, 4)}},
		{"several, sorted", false, field{"extra_keys", list{list{hexOf(9), place(5)}, nil}}, [2]kv.LocalHash{kv.HashMediaBlock([]uint32{1, image, image, 2}, []uint64{5, 9}, plain), local(plain, image, 3, image, 4)}},
		{"told for fewer blocks", false, field{"extra_keys", list{list{place(5)}}}, [2]kv.LocalHash{hash(5, 1, image, image, 2), local(plain, image, 3, image, 4)}},
		{"as media infos", false, field{"block_mm_infos", infos(5)}, [2]kv.LocalHash{hash(5, 1, image, image, 2), local(plain, image, 3, image, 4)}},
		{"by pads", true, field{"extra_keys", list{list{hexOf(5)}, list{hexOf(5), hexOf(6)}}}, [2]kv.LocalHash{local(plain, 1, pad(5), pad(5), 2), local(plain, pad(5), 3, pad(6), 4)}},
		{"by pads, fewer media than runs", true, field{"extra_keys", list{nil, list{place(5)}}}, [2]kv.LocalHash{local(plain, 1, image, image, 2), local(plain, pad(5), 3, pad(5), 4)}},
		{"by pads, from infos", true, field{"block_mm_infos", infos(uint64(9533257059414191570))}, [2]kv.LocalHash{local(plain, 1, 49115154, 49115154, 2), local(plain, image, 3, image, 4)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := kvevent.Config{}
			if tt.image {
				id := uint32(image)
				c.ImageToken = &id
			}
			d := kvevent.NewDecoder(c)
			got := decodeAll(t, d, message(obj{{"type", "BlockStored"}, {"block_hashes", list{1, 2}}, {"token_ids", []uint32{1, image, image, 2, image, 3, image, 4}}, {"block_size", 4}, tt.extra}))
			want := []kv.Event{stored(0, kv.Block{Engine: 1, Local: tt.want[0]}, kv.Block{Engine: 2, Local: tt.want[1]})}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// The blocks of Eagle engines cover the first token of the next one.
func TestEagle(t *testing.T) {
	pairs := list{}
	for i := range uint32(8) {
		pairs = append(pairs, list{i + 1, i + 2})
	}
	for _, tt := range []struct {
		name   string
		tokens any
		want   []kv.Block
		drops  int
	}{
		{"pairs", pairs, []kv.Block{{Engine: 1, Local: 1914873892905420881}, {Engine: 2, Local: 1929047464662796003}}, 0},
		{"tokens, the last block unfinished", seq(1, 8), []kv.Block{{Engine: 1, Local: 1914873892905420881}}, 1},
		{"tokens and one more", seq(1, 9), []kv.Block{{Engine: 1, Local: 1914873892905420881}, {Engine: 2, Local: 1929047464662796003}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{BlockSize: 4, Eagle: true})
			got := decodeAll(t, d, message(list{"BlockStored", list{1, 2}, nil, tt.tokens, 4}))
			if diff := cmp.Diff([]kv.Event{stored(0, tt.want...)}, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n := len(drops(d.Counts())); n != tt.drops {
				t.Errorf("drops %v", drops(d.Counts()))
			}
		})
	}
}

func seq(from, to uint32) (s []uint32) {
	for ; from <= to; from++ {
		s = append(s, from)
	}
	return s
}

func FuzzDecode(f *testing.F) {
	for _, v := range []string{vectorA, vectorB, vectorC, vectorD, vectorE, vectorF} {
		f.Add(unhex(f, v), unhex(f, vectorA), byte(0))
	}
	f.Add(message(store(1, nil, []uint32{1, 2}, field{"extra_keys", list{list{hexOf(1)}}}, field{"block_mm_infos", list{list{list{list{9}}}}})), message(store(2, 1, seq(1, 8)), removal(1)), byte(1))
	f.Fuzz(func(t *testing.T, first, second []byte, how byte) {
		c := kvevent.Config{BlockSize: int(how & 3 * 2), Eagle: how&4 != 0, MaxBlocks: 8}
		if how&8 != 0 {
			c.ImageToken = new(uint32)
		}
		if how&16 != 0 {
			c.InFlight = promptOf(kv.Namespace{Salt: "a"}, 2, 1, 2, 3, 4)
		}
		d := kvevent.NewDecoder(c)
		got := map[uint32]view{}
		for _, payload := range [][]byte{first, second, first} {
			rank, events, err := d.Decode(payload)
			if err != nil {
				continue
			}
			if got[rank] == nil {
				got[rank] = view{}
			}
			got[rank].apply(t, events)
			blocks := map[kv.EngineHash]bool{}
			for at := range got[rank] {
				blocks[at.key] = true
			}
			if held := d.Held(rank); held > 8 || len(blocks) > held {
				t.Fatalf("%d blocks passed on, %d remembered", len(blocks), held)
			}
		}
	})
}

// A message costs its reader memory in proportion to its length, whatever it
// claims.
func TestClaimsCostNothing(t *testing.T) {
	claim := binary.BigEndian.AppendUint32([]byte{0x92, 0x00, 0xdd}, 1<<20)
	claim = append(claim, make([]byte, 1<<20-1)...)
	d := kvevent.NewDecoder(kvevent.Config{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := d.Decode(claim); err == nil {
		t.Fatal("decoded")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<16 {
		t.Errorf("%d bytes allocated", n)
	}
}

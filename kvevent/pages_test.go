package kvevent_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// pageStore stores a run of pages of one token each behind a parent.
func pageStore(parent any, keys []uint64, tokens ...uint32) list {
	l := make(list, len(keys))
	for i, k := range keys {
		l[i] = k
	}
	return list{"BlockStored", l, parent, tokens, len(tokens) / max(1, len(keys)), nil, "GPU"}
}

func TestPagesAreGrouped(t *testing.T) {
	b := func(key kv.EngineHash, tokens ...uint32) kv.Block {
		return kv.Block{Engine: key, Local: local(plain, tokens...)}
	}
	for _, tt := range []struct {
		name   string
		events list
		want   []kv.Event
	}{
		{"two groups and a rest", list{pageStore(nil, []uint64{1, 2, 3, 4, 5}, 1, 2, 3, 4, 5)}, []kv.Event{stored(0, b(2, 1, 2), b(4, 3, 4))}},
		{"the rest comes later", list{pageStore(nil, []uint64{1, 2, 3}, 1, 2, 3), pageStore(3, []uint64{4}, 4)}, []kv.Event{stored(0, b(2, 1, 2), b(4, 3, 4))}},
		{"a fork inside a group", list{pageStore(nil, []uint64{1, 2}, 1, 2), pageStore(1, []uint64{12, 13, 14}, 9, 3, 4)}, []kv.Event{stored(0, b(2, 1, 2)), stored(0, b(12, 1, 9), b(14, 3, 4))}},
		{"the last page goes", list{pageStore(nil, []uint64{1, 2}, 1, 2), removal(2), pageStore(1, []uint64{2}, 2)}, []kv.Event{stored(0, b(2, 1, 2)), removed(2), stored(0, b(2, 1, 2))}},
		{
			"the first page goes, and with it all groups it is part of",
			list{pageStore(nil, []uint64{1, 2}, 1, 2), pageStore(1, []uint64{12}, 9), removal(1), pageStore(nil, []uint64{1}, 1)},
			[]kv.Event{stored(0, b(2, 1, 2)), stored(0, b(12, 1, 9)), removed(12, 2), stored(0, b(12, 1, 9)), stored(0, b(2, 1, 2))},
		},
		{"two copies", list{pageStore(nil, []uint64{1, 2}, 1, 2), pageStore(nil, []uint64{1, 2}, 1, 2), removal(1), removal(2), removal(2)}, []kv.Event{stored(0, b(2, 1, 2)), removed(2)}},
		{"all gone, and its child with it", list{pageStore(nil, []uint64{1, 2}, 1, 2), removal(1), removal(2), pageStore(2, []uint64{3}, 3)}, []kv.Event{stored(0, b(2, 1, 2)), removed(2)}},
		{"whole blocks are not this engine's", list{pageStore(nil, []uint64{1, 2}, 1, 2), pageStore(2, []uint64{4}, 3, 4), pageStore(nil, []uint64{2}, 1, 2), removal(2)}, []kv.Event{stored(0, b(2, 1, 2)), removed(2)}},
		{"pages are not this engine's", list{pageStore(nil, []uint64{2}, 1, 2), pageStore(2, []uint64{3, 4}, 3, 4), pageStore(nil, []uint64{1, 2}, 1, 2), removal(2)}, []kv.Event{stored(0, b(2, 1, 2)), removed(2)}},
		{"another size after all was cleared", list{pageStore(nil, []uint64{1, 2}, 1, 2), cleared, pageStore(nil, []uint64{2}, 1, 2)}, []kv.Event{stored(0, b(2, 1, 2)), {Kind: kv.Cleared}, stored(0, b(2, 1, 2))}},
		{"unknown pages pass", list{removal(5)}, []kv.Event{removed(5)}},
		{"cleared", list{pageStore(nil, []uint64{1}, 1), cleared, pageStore(1, []uint64{2}, 2)}, []kv.Event{{Kind: kv.Cleared}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2})
			got := decodeAll(t, d, message(tt.events...))
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEaglePages(t *testing.T) {
	pairs := list{}
	for i := range uint32(8) {
		pairs = append(pairs, list{i + 1, i + 2})
	}
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 4, Eagle: true})
	got := decodeAll(t, d, message(list{"BlockStored", list{1, 2, 3, 4}, nil, pairs, 2}))
	want := []kv.Event{stored(0, kv.Block{Engine: 2, Local: 1914873892905420881}, kv.Block{Engine: 4, Local: 1929047464662796003})}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The salt of pages is settled as soon as a group tells which prompt they are.
func TestInFlightPages(t *testing.T) {
	ns := kv.Namespace{Salt: "a"}
	mine := func(key kv.EngineHash, tokens ...uint32) kv.Block {
		return kv.Block{Engine: key, Local: local(ns.Seed(), tokens...)}
	}
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 2, InFlight: promptOf(ns, 2, 1, 2, 3, 4)})
	got := decodeAll(t, d, message(
		pageStore(nil, []uint64{1}, 1), pageStore(1, []uint64{2, 3}, 2, 3), pageStore(3, []uint64{4, 5, 6}, 4, 5, 6),
		pageStore(nil, []uint64{11, 12}, 7, 8),
		pageStore(nil, []uint64{1, 2}, 1, 2),
	))
	want := []kv.Event{
		stored(0, mine(2, 1, 2), mine(4, 3, 4), mine(6, 5, 6)),
		stored(0, kv.Block{Engine: 12, Local: local(plain, 7, 8)}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// The same pages under another salt: nobody is told of them any more.
	got = decodeAll(t, d, message(append(pageStore(nil, []uint64{1, 2, 3}, 1, 2, 3), obj{{"cache_salt", "b"}}), pageStore(4, []uint64{5}, 5)))
	if diff := cmp.Diff([]kv.Event{removed(2)}, got); diff != "" {
		t.Errorf("another salt (-want +got):\n%s", diff)
	}
	want2 := []kvevent.Drop{{Type: kvevent.TypeStored, Reason: kvevent.AmbiguousNamespace, Events: 1}}
	if diff := cmp.Diff(want2, drops(d.Counts())); diff != "" {
		t.Errorf("drops (-want +got):\n%s", diff)
	}
}

// modelPage is a page as the model knows it: the tokens of its whole chain, and
// its copies per tier.
type modelPage struct {
	chain  []uint32
	keys   []uint64 // of the chain, itself included
	copies [4]int
}

// A block is there if and only if all of its pages are, on each tier for itself,
// whatever the order in which they come and go.
func TestPagesAgainstModel(t *testing.T) {
	mediums := []any{"GPU", "CPU", "DISK", "EXTERNAL"}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 2).Draw(t, "page size")
		per := rapid.IntRange(2, 4).Draw(t, "pages of a block")
		d := kvevent.NewDecoder(kvevent.Config{BlockSize: size * per})
		model, got, next := map[uint64]*modelPage{}, view{}, uint64(1)
		// Pages once known are remembered here even when they are gone.
		var ever []uint64
		known := func(key uint64) bool {
			p := model[key]
			if p == nil {
				return false
			}
			if p.copies != [4]int{} {
				return true
			}
			// It is still needed by a page of its own group behind it.
			for _, o := range model {
				n := len(p.keys)
				if len(o.keys) > n && o.keys[n-1] == key && (len(o.keys)-1)/per == (n-1)/per && o.copies != [4]int{} {
					return true
				}
			}
			return false
		}
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			tier := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "tier")
			switch {
			case len(ever) == 0 || rapid.IntRange(0, 2).Draw(t, "what") == 0: // a new run
				var parent any
				var chain []uint32
				var chained []uint64
				if len(ever) > 0 && rapid.IntRange(0, 4).Draw(t, "root") > 0 {
					key := rapid.SampledFrom(ever).Draw(t, "parent")
					if !known(key) {
						continue
					}
					parent, chain, chained = key, model[key].chain, model[key].keys
				}
				n := rapid.IntRange(1, 6).Draw(t, "pages")
				tokens := rapid.SliceOfN(rapid.Uint32Range(0, 1), n*size, n*size).Draw(t, "tokens")
				var keys []uint64
				for i := range n {
					keys = append(keys, next)
					model[next] = &modelPage{chain: slices.Concat(chain, tokens[:(i+1)*size]), keys: slices.Concat(chained, keys)}
					model[next].copies[tier]++
					ever = append(ever, next)
					next++
				}
				e := pageStore(parent, keys, tokens...)
				e[6] = mediums[tier]
				got.apply(t, decodeAll(t, d, message(e)))
			default: // one page comes again, or goes
				key := rapid.SampledFrom(ever).Draw(t, "page")
				p := model[key]
				if rapid.Bool().Draw(t, "goes") {
					got.apply(t, decodeAll(t, d, message(list{"BlockRemoved", list{key}, mediums[tier]})))
					p.copies[tier] = max(0, p.copies[tier]-1)
					continue
				}
				var parent any
				if n := len(p.keys); n > 1 {
					if !known(p.keys[n-2]) {
						continue
					}
					parent = p.keys[n-2]
				}
				e := pageStore(parent, []uint64{key}, p.chain[len(p.chain)-size:]...)
				e[6] = mediums[tier]
				got.apply(t, decodeAll(t, d, message(e)))
				p.copies[tier]++
			}
		}
		want := view{}
		for key, p := range model {
			if len(p.keys)%per != 0 {
				continue
			}
			for tier := range 4 {
				group := p.keys[len(p.keys)-per:]
				if slices.ContainsFunc(group, func(k uint64) bool { return model[k].copies[tier] == 0 }) {
					continue
				}
				e := kv.Event{Kind: kv.Stored, Tier: kv.Tier(tier), Blocks: []kv.Block{{Engine: kv.EngineHash(key), Local: local(plain, p.chain[len(p.chain)-size*per:]...)}}}
				if n := len(p.keys) - per; n > 0 {
					e.Parent, e.HasParent = kv.EngineHash(p.keys[n-1]), true
				}
				want[held{e.Tier, kv.EngineHash(key)}] = e
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("blocks there (-want +got):\n%s", diff)
		}
	})
}

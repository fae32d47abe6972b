package kvevent_test

import (
	"encoding/hex"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
)

// plain is the namespace seed of blocks that have none.
const plain = kv.HashSeed

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func local(seed uint64, tokens ...uint32) kv.LocalHash { return kv.HashBlock(tokens, seed) }

func stored(parent kv.EngineHash, blocks ...kv.Block) kv.Event {
	return kv.Event{Kind: kv.Stored, Parent: parent, HasParent: parent != 0, Blocks: blocks}
}

func removed(keys ...kv.EngineHash) kv.Event {
	e := kv.Event{Kind: kv.Removed}
	for _, k := range keys {
		e.Blocks = append(e.Blocks, kv.Block{Engine: k})
	}
	return e
}

const (
	vectorA = "93cb4029000000000000918ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf800000000000000102b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980b0c0d0e0f101112aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797392c0c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e00"
	vectorB = "93cb40290000000000009199ab426c6f636b53746f72656492cf800000000000000102c0980b0c0d0e0f10111204c0a3475055c092c0c000"
	vectorC = "93cb40290000000000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739102a66d656469756da3475055a967726f75705f6964780000"
	vectorD = "93cb40290000000000009191b0416c6c426c6f636b73436c6561726564c0"
	vectorE = "93cb40290000000000009187a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391d38000000000000001b1706172656e745f626c6f636b5f68617368fba9746f6b656e5f696473921516aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da347505501"
	vectorF = "93cb40290000000000009196ab426c6f636b53746f72656491c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fc0920b0c02c000"
)

// parentOfE stores the block that vector E continues, in the same words.
const parentOfE = "93cb40290000000000009187a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391fbb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da347505501"

func TestGoldenVectors(t *testing.T) {
	a := stored(0, kv.Block{Engine: 1<<63 + 1, Local: local(plain, 11, 12, 13, 14)}, kv.Block{Engine: 2, Local: local(plain, 15, 16, 17, 18)})
	for _, tt := range []struct {
		name   string
		before string
		hex    string
		rank   uint32
		want   []kv.Event
	}{
		{"A", "", vectorA, 0, []kv.Event{a}},
		{"B", "", vectorB, 0, []kv.Event{a}},
		{"C", "", vectorC, 0, []kv.Event{removed(2)}},
		{"D", "", vectorD, 7, []kv.Event{{Kind: kv.Cleared}}},
		{"E", parentOfE, vectorE, 1, []kv.Event{stored(0xFFFFFFFFFFFFFFFB, kv.Block{Engine: 0x8000000000000001, Local: local(plain, 21, 22)})}},
		{"F", "", vectorF, 0, []kv.Event{stored(0, kv.Block{Engine: 0x18191a1b1c1d1e1f, Local: local(plain, 11, 12)})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := kvevent.NewDecoder(kvevent.Config{Rank: 7})
			if tt.before != "" {
				if _, _, err := d.Decode(unhex(t, tt.before)); err != nil {
					t.Fatal(err)
				}
			}
			rank, events, err := d.Decode(unhex(t, tt.hex))
			if err != nil {
				t.Fatal(err)
			}
			if rank != tt.rank {
				t.Errorf("rank %d, want %d", rank, tt.rank)
			}
			if diff := cmp.Diff(tt.want, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

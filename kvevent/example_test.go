package kvevent_test

import (
	"fmt"
	"log"

	"github.com/dynago/dynago/kvevent"
)

// What vLLM publishes when it has stored a block and evicted another, read for
// an index.
func ExampleDecoder() {
	d := kvevent.NewDecoder(kvevent.Config{BlockSize: 4})
	message := pack(list{1764460800.25, list{
		obj{
			{"type", "BlockStored"},
			{"block_hashes", list{11}},
			{"parent_block_hash", nil},
			{"token_ids", list{1, 2, 3, 4}},
			{"block_size", 4},
			{"medium", "GPU"},
		},
		obj{{"type", "BlockStored"}, {"block_hashes", list{12}}, {"parent_block_hash", 99}, {"token_ids", list{1, 2, 3, 4}}, {"block_size", 4}},
		obj{{"type", "BlockRemoved"}, {"block_hashes", list{11}}, {"medium", "GPU"}},
	}, 0})
	rank, events, err := d.Decode(message)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range events {
		fmt.Println("rank", rank, e.Kind, e.Tier, e.Blocks)
	}
	counts := d.Counts()
	for drop := range counts.Drops() {
		fmt.Println("left out:", drop.Events, drop.Type, drop.Reason)
	}
	// Output:
	// rank 0 stored device [{11 14643705804678351452}]
	// rank 0 removed device [{11 0}]
	// left out: 1 stored unknown_parent
}

package kvindex_test

import (
	"fmt"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// Worker 7 tells that it has cached two blocks. A later prompt that begins with
// the same tokens is found there.
func Example() {
	const blockSize = 4
	seed := kv.Namespace{}.Seed()
	hash := func(tokens ...uint32) []kv.LocalHash { return kv.AppendLocalHashes(nil, tokens, blockSize, seed) }

	first := hash(1, 2, 3, 4, 5, 6, 7, 8)
	x := kvindex.New()
	err := x.Apply(kv.Target{Worker: 7}, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{
		{Engine: 100, Local: first[0]},
		{Engine: 101, Local: first[1]},
	}})
	if err != nil {
		fmt.Println(err)
	}

	var m kvindex.Matches
	x.Match(hash(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), &m)
	for _, f := range m.Found {
		fmt.Println(f.Target, f.Blocks[kv.TierDevice])
	}
	// Output: 7/0 2
}

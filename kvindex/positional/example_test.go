package positional_test

import (
	"fmt"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex/positional"
)

func Example() {
	x := positional.New(positional.DefaultStride)
	a, b := kv.Target{Worker: 1}, kv.Target{Worker: 2}
	prompt := []kv.LocalHash{11, 12, 13}
	stored := kv.Event{Blocks: []kv.Block{{Engine: 1, Local: 11}, {Engine: 2, Local: 12}, {Engine: 3, Local: 13}}}
	_ = x.Apply(a, stored)
	_ = x.Apply(b, stored)
	_ = x.Apply(b, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{Engine: 2}}})

	var m positional.Matches
	x.Match(prompt, &m)
	for _, f := range m.Found {
		fmt.Println(f.Target, f.Blocks[kv.TierDevice])
	}
	// Output:
	// 1/0 3
	// 2/0 1
}

package thompson_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
)

// Two workers that look the same; but the second one takes four times as long.
func Example() {
	c := thompson.Default()
	c.Seed = 1
	policy, err := thompson.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := []router.Candidate{
		{Target: kv.Target{Worker: 1}, BlockSize: 16},
		{Target: kv.Target{Worker: 2}, BlockSize: 16},
	}
	picks := make([]int, len(workers))
	for n := range 200 {
		id := fmt.Sprint(n)
		i, err := policy.Pick(context.Background(), &router.Query{ID: id, Tokens: make([]uint32, 500)}, workers)
		if err != nil {
			fmt.Println(err)
			return
		}
		took := time.Second
		if i == 1 {
			took *= 4
		}
		policy.Learn(router.Outcome{ID: id, Target: workers[i].Target, OutputTokens: 100, Total: took, End: router.Completed})
		if n >= 100 {
			picks[i]++
		}
	}
	fmt.Println("the slow one has less than a third:", picks[1] < 33)
	// Output: the slow one has less than a third: true
}

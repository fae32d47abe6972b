package router_test

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/router"
)

// warmLoops keeps an agent's loop where it is warm: a turn that brings the result
// of a tool goes where most of its prompt is cached, unless that worker has many
// more requests than others; any other turn goes where least is going on.
type warmLoops struct{ patience int }

func (p warmLoops) Pick(_ context.Context, q *router.Query, c []router.Candidate) (int, error) {
	idlest, warmest := 0, 0
	for i := range c {
		if c[i].Requests < c[idlest].Requests {
			idlest = i
		}
		if c[i].Device*c[i].BlockSize > c[warmest].Device*c[warmest].BlockSize {
			warmest = i
		}
	}
	crowd := c[warmest].Requests - c[idlest].Requests
	if q.Session.Input == router.ToolInput && crowd <= p.patience {
		return warmest, nil
	}
	return idlest, nil
}

// A policy of one's own is one method.
func ExamplePolicy() {
	candidates := []router.Candidate{
		{BlockSize: 16, Device: 120, Requests: 3},
		{BlockSize: 16, Device: 0, Requests: 0},
	}
	policy := warmLoops{patience: 4} // router.New(router.Config{Policy: policy}, …)
	for _, input := range []router.Input{router.ToolInput, router.UserInput} {
		q := &router.Query{Session: router.Session{ID: "s", Input: input}}
		i, err := policy.Pick(context.Background(), q, candidates)
		fmt.Println(i, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}

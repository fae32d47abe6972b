package router_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// Two workers; the second has the beginning of the prompt in its cache.
func Example() {
	h := newHouse(new(testing.T), router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	prompt := count(0, 42)
	h.caches(2, 1, kv.TierDevice, prompt[:32])

	booking, err := h.router.Route(context.Background(), &router.Query{Model: "alias", Tokens: prompt})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer booking.Release()
	d := booking.Decision()
	fmt.Printf("%s on %v: %d of %d blocks cached\n", d.Model, d.Target, d.Overlap, d.Blocks)
	// Output: m on 2/0: 8 of 11 blocks cached
}

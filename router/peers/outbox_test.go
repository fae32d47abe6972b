package peers

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// An outbox is a list in which what is newer of a binding takes the place of what is
// older, and which takes nothing more when it is full.
func TestOutbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := outbox{limit: rapid.IntRange(1, 4).Draw(t, "limit")}
		var want []router.BindingEvent
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				e := router.BindingEvent{
					BindingKey: router.BindingKey{ID: strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "id"))}, Number: rapid.Uint64Range(0, 1).Draw(t, "number"),
					Target: kv.Target{Worker: rapid.Uint64().Draw(t, "worker")},
				}
				i := slices.IndexFunc(want, func(o router.BindingEvent) bool { return nameOf(&o) == nameOf(&e) })
				fits := i >= 0 || len(want) < o.limit
				switch {
				case i >= 0:
					want[i] = e
				case fits:
					want = append(want, e)
				}
				if o.put(e) != fits {
					t.Fatalf("of %d events: want %v", len(want), fits)
				}
			},
			"take": func(t *rapid.T) {
				n := min(rapid.IntRange(1, 3).Draw(t, "most"), len(want))
				if got := o.take(n); !slices.Equal(got, want[:n]) {
					t.Fatalf("got %v, want %v", got, want[:n])
				}
				want = want[n:]
			},
			"empty": func(*rapid.T) {
				o.empty()
				want = nil
			},
			"": func(t *rapid.T) {
				if o.order.Len() != len(want) || len(o.of) != len(want) {
					t.Fatalf("%d in order, %d by name, want %d", o.order.Len(), len(o.of), len(want))
				}
			},
		})
	})
}

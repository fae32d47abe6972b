package trace_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/dynago/dynago/trace"
)

// patient is a sink for which more is kept.
type patient struct{ *sink }

func (patient) Backlog() int { return 4 }

// A sink for which more is kept loses less.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := patient{&sink{name: "slow", gate: make(chan struct{})}}
		bus := trace.NewBus(2, discard, slow)
		for i := range 6 {
			bus.Publish(row(strconv.Itoa(i)))
			synctest.Wait()
		}
		close(slow.gate)
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "slow", slow.ids(), "0", "2", "3", "4", "5")
		if got, want := fmt.Sprint(bus.Status()), "[{slow 6 1 0}]"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	})
}

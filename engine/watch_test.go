package engine_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
)

// Changes are told, and nothing else is; what a look does not find stays.
func TestWatch(t *testing.T) {
	card := func(slots uint32) *engine.Card { return &engine.Card{Model: "m", MaxSeqs: slots} }
	looks := []engine.Status{
		{Epoch: 1, Reason: "asleep"},
		{Epoch: 1, Reason: "asleep"},
		{Epoch: 1, State: engine.Ready, Card: card(1)},
		{Epoch: 1, State: engine.Ready, Card: card(1)},
		{Epoch: 1, Reason: "away"},
		{Epoch: 2, State: engine.Ready, Card: card(1)},
		{Epoch: 2, State: engine.Ready, Card: card(2)},
		{Epoch: 2, State: engine.Failed, Reason: "closed"},
		{Epoch: 3, State: engine.Ready},
	}
	want := []engine.Status{
		{Epoch: 1, Reason: "asleep"},
		{Epoch: 1, Revision: 1, State: engine.Ready, Card: card(1)},
		{Epoch: 1, Revision: 1, Reason: "away", Card: card(1)},
		{Epoch: 2, Revision: 1, State: engine.Ready, Card: card(1)},
		{Epoch: 2, Revision: 2, State: engine.Ready, Card: card(2)},
		{Epoch: 2, Revision: 2, State: engine.Failed, Reason: "closed", Card: card(2)},
	}
	synctest.Test(t, func(t *testing.T) {
		var got []engine.Status
		n := 0
		for st, err := range engine.Watch(t.Context(), time.Second, func(context.Context) engine.Status {
			n++
			return looks[n-1]
		}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, st)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range engine.Watch(ctx, time.Second, func(context.Context) engine.Status { return looks[0] }) {
			cancel() // or the loop would not end
		}
	})
}

package kvevent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// Behind a hole that nobody fills everything is forgotten; what was heard before is
// told once, whatever is sent twice; and an object is there while it is anywhere. With
// more objects than are remembered everything is forgotten as well.
func TestObjectsBehindAHole(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pub := zmtp.NewPub(zmtp.Options{})
	defer pub.Close()
	endpoint, err := pub.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		t.Fatal(err)
	}
	source, err := kvevent.NewObjectSource(kvevent.ObjectSourceConfig{Events: endpoint, MostObjects: 2})
	if err != nil {
		t.Fatal(err)
	}
	send := func(number uint64, kind kv.EventKind, key, medium string) {
		payload := kvevent.AppendObjectBatch(nil, time.UnixMilli(1), "b", []kvevent.ObjectEvent{{Kind: kind, Key: key, Medium: medium}})
		if err := pub.Send(kvevent.ObjectFrames(kvevent.Message{Seq: number, Payload: payload})...); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"0 anew", "1 stored a", "2", "3", "4 removed a", "9 anew stored b",
		"10 stored c", "11", "12 anew", "13 stored a",
	}
	for b, err := range source.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(b.Number)
		if b.Restart {
			got += " anew"
		}
		for _, e := range b.Events {
			got += fmt.Sprintf(" %v %s", e.Kind, e.Key)
		}
		if got != want[0] {
			t.Fatalf("got %q, want %q", got, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
		if b.Number == 0 {
			send(1, kv.Stored, "a", "cpu")
			send(1, kv.Stored, "z", "cpu")
			send(2, kv.Stored, "a", "disk")
			send(3, kv.Removed, "a", "cpu")
			send(4, kv.Removed, "a", "disk")
			send(9, kv.Stored, "b", "cpu")
			send(10, kv.Stored, "c", "cpu")
			send(11, kv.Stored, "c", "disk")
			send(12, kv.Stored, "d", "cpu")
			send(13, kv.Stored, "a", "cpu")
		}
	}
}

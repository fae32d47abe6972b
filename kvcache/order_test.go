package kvcache_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// takeBytes removes victims until their sizes sum up to n.
func takeBytes(o *kvcache.Order, sizes map[kvcache.Ref]int64, n int64) (gone []kvcache.Ref) {
	for n > 0 {
		r, ok := o.Victim()
		if !ok {
			break
		}
		o.Remove(r)
		n -= sizes[r]
		gone = append(gone, r)
	}
	return gone
}

func TestOrderOfSizes(t *testing.T) {
	o := kvcache.NewOrder(kvcache.PoolConfig{PinBudget: 1000})
	sizes := map[kvcache.Ref]int64{0: 400, 1: 10, 2: 300, 3: 900, 4: 5}
	for r := range kvcache.Ref(5) {
		o.Insert(r, kvcache.Root, sizes[r])
	}
	if got := o.Pin([]kvcache.Ref{0, 2, 3}, kvcache.Pin{TTL: time.Minute}); got.Pinned != 2 {
		t.Errorf("pinned %+v, want 700 of 1000 bytes, and not 900 more", got)
	}
	o.Hit(0, 1)
	o.Retain(4, kvcache.Retention{Priority: 90})
	o.Hold(1)
	if got, want := takeBytes(o, sizes, 901), []kvcache.Ref{3, 4}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if r, ok := o.Spare(); ok {
		t.Errorf("entry %d could go without breaking a pin", r)
	}
	o.Release(1)
	if r, ok := o.Spare(); !ok || r != 1 {
		t.Errorf("entry %d goes next, %v", r, ok)
	}
	if got, want := takeBytes(o, sizes, 1<<40), []kvcache.Ref{1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if used, _ := o.PinBudget(); used != 0 || o.Len() != 0 {
		t.Errorf("%d bytes pinned, %d entries", used, o.Len())
	}
	o.Insert(3, kvcache.Root, 1)
	if r, ok := o.Victim(); !ok || r != 3 || o.Class(3) != kvcache.Plain {
		t.Errorf("a number that was free is not new: %d, %v, %s", r, ok, o.Class(3))
	}
}

// A pair of entries goes together: the child first.
func TestOrderOfPairs(t *testing.T) {
	o := kvcache.NewOrder(kvcache.PoolConfig{})
	o.Insert(0, kvcache.Root, 1)
	o.Insert(1, 0, 1)
	o.Insert(2, kvcache.Root, 1)
	o.Retain(1, kvcache.Retention{Priority: 40})
	var got []kvcache.Ref
	for range 3 {
		r, _ := o.Victim()
		o.Remove(r)
		got = append(got, r)
	}
	if want := []kvcache.Ref{2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
}

func TestOrderOfSessions(t *testing.T) {
	o := kvcache.NewOrder(kvcache.PoolConfig{})
	o.OpenSession(1, kvcache.SessionOptions{Ephemeral: true})
	o.OpenSession(2, kvcache.SessionOptions{})
	for r := range kvcache.Ref(4) {
		o.Insert(r, kvcache.Root, 1)
	}
	o.Tag(1, []kvcache.Ref{2, 3})
	o.Hit(2, 3)
	o.CloseSession(1)
	if r, ok := o.Victim(); !ok || r != 2 || o.Class(3) != kvcache.Plain {
		t.Errorf("entry %d goes first, %v; 3 is %s", r, ok, o.Class(3))
	}
}

func TestOrderMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(*kvcache.Order){
		"insert twice":      func(o *kvcache.Order) { o.Insert(0, kvcache.Root, 1) },
		"remove what is in": func(o *kvcache.Order) { o.Hold(0); o.Remove(0) },
		"remove a parent":   func(o *kvcache.Order) { o.Insert(1, 0, 1); o.Remove(0) },
		"no such entry":     func(o *kvcache.Order) { o.Retain(9, kvcache.Retention{Priority: 1}) },
		"release too often": func(o *kvcache.Order) { o.Release(0) },
	} {
		t.Run(name, func(t *testing.T) {
			o := kvcache.NewOrder(kvcache.PoolConfig{})
			o.Insert(0, kvcache.Root, 1)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(o)
		})
	}
}

func ExampleOrder() {
	o := kvcache.NewOrder(kvcache.PoolConfig{})
	names := []string{"system prompt", "a file", "another file"}
	for i := range names {
		o.Insert(kvcache.Ref(i), kvcache.Root, 1<<20)
	}
	o.Retain(0, kvcache.Retention{Priority: 80})
	o.Hit(0, 1) // somebody has read the file again
	for range names {
		r, _ := o.Victim()
		o.Remove(r)
		fmt.Println(names[r])
	}
	// Output:
	// another file
	// a file
	// system prompt
}

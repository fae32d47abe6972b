package memory_test

import (
	"errors"
	"testing"

	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

// What is moved is found under its new key alone, with its new tag, as it was; and
// what was there before stays with whoever reads it.
func TestMove(t *testing.T) {
	s, ctx := open(t), t.Context()
	for _, size := range []int{10, 100_000} {
		want := storetest.Bytes(1, size)
		for key, value := range map[string][]byte{"from": want, "to": storetest.Bytes(2, 50_000)} {
			if err := s.Put(ctx, key, value, []byte("old")); err != nil {
				t.Fatal(err)
			}
		}
		before, err := s.Get(ctx, "to")
		if err != nil {
			t.Fatal(err)
		}
		moved, err := s.Move(ctx, "from", "to", []byte("new"))
		if err != nil || moved.Key != "to" || string(moved.Bytes) != string(want) {
			t.Fatalf("moved %s: %v", moved.Key, err)
		}
		if _, err := s.Get(ctx, "from"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("under the old key: %v", err)
		}
		if string(before.Bytes) != string(storetest.Bytes(2, 50_000)) {
			t.Error("what was read has changed")
		}
		before.Release()
		moved.Release()
		got, err := s.Get(ctx, "to")
		if err != nil || string(got.Bytes) != string(want) || string(got.Tag) != "new" {
			t.Fatalf("under the new key: %v", err)
		}
		if u := s.Usage(); u.Entries != 1 || u.Used > int64(size)+8192 {
			t.Errorf("%+v after the move of %d bytes", u, size)
		}
		if _, err := s.Move(ctx, "from", "to", nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("what is not there: %v", err)
		}
		if v, err := s.Move(ctx, "to", "to", nil); err != nil || string(v.Bytes) != string(want) {
			t.Errorf("onto itself: %v", err)
		} else {
			v.Release()
		}
		got.Release()
		if err := s.Delete(ctx, "to"); err != nil {
			t.Fatal(err)
		}
		if u := s.Usage(); u.Used != 0 {
			t.Errorf("%d bytes used of nothing", u.Used)
		}
	}
}

package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/openai/responses/store"
)

// kindsOf are the stores that are measured.
func kindsOf(b *testing.B, f func(b *testing.B, s *store.Store)) {
	b.Run("memory", func(b *testing.B) { f(b, open(b, store.Options{})) })
	b.Run("directory", func(b *testing.B) { f(b, open(b, store.Options{Dir: b.TempDir()})) })
}

// chain puts a conversation of so many turns of 4 KB each.
func chain(b *testing.B, s *store.Store, turns int) string {
	b.Helper()
	previous := ""
	for i := range turns {
		id := fmt.Sprint("resp_chain_", i)
		if !s.Put(record(b, "", id, previous, strings.Repeat("w", 4<<10)), nil) {
			b.Fatal("not kept")
		}
		previous = id
	}
	return previous
}

// BenchmarkPut puts one more turn of 4 KB behind a conversation of 500.
func BenchmarkPut(b *testing.B) {
	kindsOf(b, func(b *testing.B, s *store.Store) {
		last := chain(b, s, 500)
		i := 0
		for b.Loop() {
			b.StopTimer()
			r := record(b, "", fmt.Sprint("resp_", i), last, strings.Repeat("w", 4<<10))
			i++
			b.StartTimer()
			s.Put(r, nil)
		}
	})
}

// BenchmarkPutWhole puts the same with the conversation as its input, 2 MB.
func BenchmarkPutWhole(b *testing.B) {
	kindsOf(b, func(b *testing.B, s *store.Store) {
		last, before, _ := s.Conversation("", chain(b, s, 500))
		before = append(before, last.Output...)
		i := 0
		for b.Loop() {
			b.StopTimer()
			r := record(b, "", fmt.Sprint("resp_", i), "", strings.Repeat("w", 4<<10))
			r.Input = append(before[:len(before):len(before)], r.Input...)
			i++
			b.StartTimer()
			s.Put(r, nil)
		}
	})
}

// BenchmarkConversation reads a conversation of 500 turns, 2 MB.
func BenchmarkConversation(b *testing.B) {
	kindsOf(b, func(b *testing.B, s *store.Store) {
		last := chain(b, s, 500)
		for b.Loop() {
			if _, before, ok := s.Conversation("", last); !ok || len(before) != 999 {
				b.Fatal("it is not whole")
			}
		}
	})
}

// BenchmarkItem finds an item.
func BenchmarkItem(b *testing.B) {
	kindsOf(b, func(b *testing.B, s *store.Store) {
		chain(b, s, 500)
		for b.Loop() {
			if _, ok := s.Item("", "msg_resp_chain_250"); !ok {
				b.Fatal("not found")
			}
		}
	})
}

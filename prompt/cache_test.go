package prompt_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
	"pgregory.net/rapid"
)

func said(role chat.Role, s string) chat.Turn {
	return chat.Turn{Role: role, Blocks: []chat.Block{{Kind: chat.Text, Text: s}}}
}

// Whatever happens to a conversation between two looks at it, and however small
// the cache: its ids are those of a model that remembers nothing.
func TestCacheIsExact(t *testing.T) {
	for name, m := range variants(t) {
		t.Run(name, func(t *testing.T) {
			scratch := *m
			scratch.Cache = nil
			rapid.Check(t, func(t *rapid.T) {
				limit := rapid.SampledFrom([]int{0, 600, 2000, 1 << 20}).Draw(t, "limit")
				m := *m
				m.Cache = prompt.NewCache(limit)
				m.AllowSpecialInContent = rapid.Bool().Draw(t, "allow")
				word := func() string {
					return strings.Repeat(planted().Draw(t, "text"), rapid.IntRange(1, 8).Draw(t, "times"))
				}
				r := &chat.Request{}
				for range 8 {
					r.Turns = append(r.Turns, said(rapid.SampledFrom([]chat.Role{chat.RoleUser, chat.RoleAssistant}).Draw(t, "role"), word()))
				}
				for range 12 {
					i := rapid.IntRange(0, len(r.Turns)-1).Draw(t, "where")
					switch rapid.IntRange(0, 4).Draw(t, "edit") {
					case 0:
						r.Turns = append(r.Turns, said(chat.RoleAssistant, word()), said(chat.RoleUser, word()))
					case 1:
						r.Turns[i] = said(r.Turns[i].Role, word())
					case 2:
						r.Turns[i] = said(r.Turns[i].Role, r.Turns[i].Blocks[0].Text+word())
					case 3:
						r.Turns = slices.Insert(r.Turns, i, said(chat.RoleUser, word()))
					case 4:
						m.AllowSpecialInContent = !m.AllowSpecialInContent
					}
					scratch.AllowSpecialInContent = m.AllowSpecialInContent
					got, err := m.Tokens(r, true)
					if err != nil {
						t.Fatal(err)
					}
					want, err := scratch.Tokens(r, true)
					if err != nil || !slices.Equal(got, want) {
						t.Fatalf("%v, want %v; %v", got, want, err)
					}
					if s := m.Cache.Stats(); s.Bytes > limit || s.Bytes < 0 || (s.Bytes == 0) != (s.Texts == 0) {
						t.Fatalf("%+v in a cache of %d bytes", s, limit)
					}
				}
			})
		})
	}
}

// The next turn is made of what is new.
func TestCacheCounts(t *testing.T) {
	m := demoModel(t)
	m.Cache = prompt.NewCache(1 << 20)
	r := &chat.Request{Turns: []chat.Turn{said(chat.RoleSystem, strings.Repeat("Mind the gap. ", 50)), said(chat.RoleUser, strings.Repeat("one two three ", 50))}}
	first, err := m.Tokens(r, true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Cache.Stats(), (prompt.CacheStats{Misses: 1, UncachedTokens: uint64(len(first)), Texts: 2}); got.Bytes == 0 || !equalBut(got, want) {
		t.Errorf("at first %+v, want %+v", got, want)
	}
	r.Turns = append(r.Turns, said(chat.RoleAssistant, "four"), said(chat.RoleUser, "five"))
	second, err := m.Tokens(r, true)
	if err != nil {
		t.Fatal(err)
	}
	got := m.Cache.Stats()
	if got.Hits != 1 || got.CachedTokens+got.UncachedTokens != uint64(len(first)+len(second)) {
		t.Errorf("then %+v of %d and %d tokens", got, len(first), len(second))
	}
	if fresh := got.UncachedTokens - uint64(len(first)); fresh > uint64(len(second)-len(first)+10) {
		t.Errorf("%d tokens were made for %d new ones", fresh, len(second)-len(first))
	}
}

func equalBut(a, b prompt.CacheStats) bool {
	a.Bytes, b.Bytes = 0, 0
	return a == b
}

// What was used last stays.
func TestCacheForgetsTheOldest(t *testing.T) {
	m := demoModel(t)
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("text %d. ", i), 20) }
	hits := func(i int) bool {
		t.Helper()
		before := m.Cache.Stats().Hits
		if _, err := m.Tokens(ask(text(i)), true); err != nil {
			t.Fatal(err)
		}
		return m.Cache.Stats().Hits > before
	}
	m.Cache = prompt.NewCache(1 << 20)
	hits(0)
	m.Cache = prompt.NewCache(m.Cache.Stats().Bytes * 7 / 2)
	for _, step := range []struct {
		text int
		hit  bool
	}{{0, false}, {1, false}, {2, false}, {0, true}, {3, false}, {0, true}, {1, false}, {3, true}, {2, false}} {
		if got := hits(step.text); got != step.hit {
			t.Errorf("text %d: hit %v, want %v; %+v", step.text, got, step.hit, m.Cache.Stats())
		}
	}
	if s := m.Cache.Stats(); s.Texts != 3 || s.Evictions != 3 {
		t.Errorf("%+v, want 3 texts and 3 evictions", s)
	}
}

func TestCacheConcurrently(t *testing.T) {
	m := demoModel(t)
	scratch := m
	scratch.Cache, m.Cache = nil, prompt.NewCache(4000)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				r := ask(strings.Repeat(fmt.Sprintf("text %d. ", (g+i)%20), 20))
				got, err := m.Tokens(r, true)
				if err != nil {
					t.Error(err)
					return
				}
				if want, _ := scratch.Tokens(r, true); !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
					return
				}
			}
		})
	}
	all.Wait()
	if s := m.Cache.Stats(); s.Hits+s.Misses != 1600 || s.Bytes > 4000 {
		t.Errorf("%+v", s)
	}
}

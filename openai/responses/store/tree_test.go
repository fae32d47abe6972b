package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is the tree as a list of everything that was ever added.
type naive struct {
	limit   int64
	records []*naiveRecord // in the order of use
	items   []naiveItem    // in the order of arrival
}

type naiveRecord struct {
	key          name
	parent       *naiveRecord
	bytes, extra int64
	expires      time.Time
	live         bool
}

type naiveItem struct {
	key    name
	record *naiveRecord
	index  int
}

// needed are the records that can be asked for, and those they stand on.
func (m *naive) needed() map[*naiveRecord]bool {
	needed := map[*naiveRecord]bool{}
	for _, r := range m.records {
		if r.live {
			for at := r; at != nil; at = at.parent {
				needed[at] = true
			}
		}
	}
	return needed
}

func (m *naive) bytes() (sum int64) {
	for r := range m.needed() {
		sum += r.bytes
		if !r.live {
			sum -= r.extra
		}
	}
	return sum
}

func (m *naive) expire(now time.Time) {
	for _, r := range m.records {
		if !r.expires.After(now) {
			r.live = false
		}
	}
}

func (m *naive) find(key name) *naiveRecord {
	for _, r := range m.records {
		if r.key == key && r.live {
			return r
		}
	}
	return nil
}

// known also finds a record that only others need.
func (m *naive) known(key name) *naiveRecord {
	for r := range m.needed() {
		if r.key == key {
			return r
		}
	}
	return nil
}

func (m *naive) get(key name) *naiveRecord {
	r := m.find(key)
	if r != nil {
		i := slices.Index(m.records, r)
		m.records = append(slices.Delete(m.records, i, i+1), r)
	}
	return r
}

func (m *naive) add(r *naiveRecord, items []string) bool {
	own := r.bytes
	for at := r.parent; at != nil; at = at.parent {
		own += at.bytes - at.extra
	}
	if m.known(r.key) != nil || own > m.limit {
		return false
	}
	r.live = true
	m.records = append(m.records, r)
	for i, id := range items {
		m.items = append(m.items, naiveItem{name{r.key.tenant, id}, r, i})
	}
	for m.bytes() > m.limit {
		for _, oldest := range m.records {
			if oldest.live {
				oldest.live = false
				break
			}
		}
	}
	return true
}

func (m *naive) item(key name) (*naiveRecord, int) {
	needed := m.needed()
	for _, at := range slices.Backward(m.items) {
		if at.key == key && needed[at.record] {
			return at.record, at.index
		}
	}
	return nil, 0
}

// TestTreeAgainstNaiveModel does the same to the tree and to a model of it that
// works everything out anew each time.
func TestTreeAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		tree := newTree(rapid.Int64Range(1000, 8000).Draw(t, "limit"))
		model := &naive{limit: tree.limit}
		byKey := map[*node]*naiveRecord{}
		key := rapid.Custom(func(t *rapid.T) name {
			return name{rapid.SampledFrom([]string{"", "a"}).Draw(t, "tenant"), fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "id"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key.Draw(t, "key")
				items := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3).Draw(t, "items")
				extra := rapid.Int64Range(0, 900).Draw(t, "extra")
				bytes := extra + rapid.Int64Range(0, 900).Draw(t, "bytes")
				n := newNode(k, bytes, extra, items, now, now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "ttl"))*time.Second))
				tree.expire(now)
				model.expire(now)
				parentKey := name{k.tenant, fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "parent"))}
				parent := tree.nodes[parentKey]
				r := &naiveRecord{key: k, bytes: n.bytes, extra: extra, expires: n.expires, parent: model.known(parentKey)}
				if (parent == nil) != (r.parent == nil) {
					t.Fatalf("parent %v: tree %v, model %v", parentKey, parent, r.parent)
				}
				got, want := tree.add(now, n, parent), model.add(r, items)
				if got != want {
					t.Fatalf("add %v: %v, want %v", k, got, want)
				}
				byKey[n] = r
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				model.expire(now)
				n, r := tree.get(now, k), model.get(k)
				if (n == nil) != (r == nil) || n != nil && byKey[n] != r {
					t.Fatalf("get %v: %v, want %v", k, n, r)
				}
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				model.expire(now)
				r := model.find(k)
				if got := tree.remove(now, k); got != (r != nil) {
					t.Fatalf("remove %v: %v", k, got)
				}
				if r != nil {
					r.live = false
				}
			},
			"item": func(t *rapid.T) {
				k := name{rapid.SampledFrom([]string{"", "a"}).Draw(t, "tenant"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "item")}
				model.expire(now)
				p := tree.item(now, k)
				r, index := model.item(k)
				if (p == nil) != (r == nil) || p != nil && (byKey[p.node] != r || p.index != index) {
					t.Fatalf("item %v: %v, want %v %d", k, p, r, index)
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				tree.expire(now)
				model.expire(now)
				live := 0
				for _, r := range model.records {
					if r.live {
						live++
					}
				}
				if tree.bytes != model.bytes() || tree.live != live || len(tree.nodes) != len(model.needed()) {
					t.Fatalf("tree: %d bytes, %d live, %d nodes; model: %d, %d, %d",
						tree.bytes, tree.live, len(tree.nodes), model.bytes(), live, len(model.needed()))
				}
				if tree.bytes > tree.limit {
					t.Fatalf("%d bytes exceed %d", tree.bytes, tree.limit)
				}
				if len(tree.expiries) != live {
					t.Fatalf("%d expiries for %d records", len(tree.expiries), live)
				}
				if live == 0 && len(tree.places) != 0 {
					t.Fatalf("%d ids are left of nothing", len(tree.places))
				}
			},
		})
	})
}

func TestLineageIsOldestFirst(t *testing.T) {
	a, b, c := &node{}, &node{}, &node{}
	b.parent, c.parent = a, b
	if got := lineage(c); !slices.Equal(got, []*node{a, b, c}) {
		t.Fatal("the line is not a, b, c")
	}
}

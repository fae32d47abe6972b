package kvcache_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"pgregory.net/rapid"
)

// victims allocates one block after the other and returns what was evicted for it.
func victims(p *kvcache.Pool, n int) (order []kv.SeqHash) {
	for range n {
		_, evicted, ok := p.Allocate(nil, 1)
		if !ok {
			break
		}
		order = append(order, evicted...)
	}
	return order
}

// TestVictims is the table of what goes first: blocks A to D fall idle in this
// order, and then room is needed.
func TestVictims(t *testing.T) {
	retain := func(priority uint8, ttl time.Duration) func(*kvcache.Pool, kvcache.Ref) {
		return func(p *kvcache.Pool, r kvcache.Ref) {
			p.Retain(r, kvcache.Retention{Priority: priority, TTL: ttl})
		}
	}
	pin := func(ttl time.Duration, hard bool) func(*kvcache.Pool, kvcache.Ref) {
		return func(p *kvcache.Pool, r kvcache.Ref) {
			p.Pin([]kv.SeqHash{p.Hash(r)}, kvcache.Pin{TTL: ttl, Hard: hard})
		}
	}
	ephemeral := (*kvcache.Pool).SetEphemeral
	type wishes = map[rune]func(*kvcache.Pool, kvcache.Ref)
	for _, c := range []struct {
		name  string
		asked wishes
		later time.Duration
		want  string
		full  bool // then no block is left that may go
	}{
		{"nothing asked", nil, 0, "ABCD", false},
		{"priorities", wishes{'A': retain(100, 0), 'C': retain(1, 0)}, 0, "CBDA", false},
		{"an expired priority", wishes{'A': retain(80, time.Second), 'C': retain(50, 0)}, 2 * time.Second, "BDAC", false},
		{"a priority not yet expired", wishes{'A': retain(80, 3*time.Second), 'C': retain(50, 0)}, 2 * time.Second, "BDCA", false},
		{"a low priority that expires", wishes{'D': retain(1, time.Second)}, time.Second, "ABCD", false},
		{"classes", wishes{'A': ephemeral, 'B': retain(0, 0), 'D': pin(10*time.Second, false)}, 0, "ABCD", false},
		{"classes, reversed", wishes{'D': ephemeral, 'C': retain(0, 0), 'A': pin(10*time.Second, false)}, 0, "DCBA", false},
		{"exactly neutral", wishes{'A': retain(35, 0), 'C': retain(35, time.Second)}, 2 * time.Second, "ABCD", false},
		{"hard pins", wishes{'A': pin(time.Hour, true), 'C': pin(time.Hour, true), 'D': pin(time.Hour, true)}, 0, "B", true},
		{"soft pins by expiry", wishes{'A': pin(3*time.Hour, false), 'B': pin(time.Hour, false), 'C': pin(2*time.Hour, false), 'D': retain(100, 0)}, 0, "DBCA", false},
		{"an expired pin", wishes{'A': pin(time.Second, false), 'B': pin(time.Hour, false)}, time.Second, "CDAB", false},
		{"an expired hard pin", wishes{'A': pin(time.Second, true)}, time.Second, "BCDA", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4, HardPins: true})
			for _, name := range "ABCD" {
				refs := store(t, p, kv.SeqHash(name))
				if ask := c.asked[name]; ask != nil {
					ask(p, refs[0])
				}
				p.Release(refs)
			}
			p.Advance(c.later)
			var got string
			for _, h := range victims(p, 4) {
				got += string(rune(h))
			}
			if got != c.want {
				t.Errorf("evicted %s, want %s", got, c.want)
			}
			before := p.Stats()
			if _, _, ok := p.Allocate(nil, 1); ok || p.Stats() != before {
				t.Errorf("allocated one more: %v, %+v, want %+v", ok, p.Stats(), before)
			}
			if c.full != (before.Inactive > 0) {
				t.Errorf("left %+v", before)
			}
		})
	}
}

// A block of a higher class keeps the whole path above it, and when it has gone
// each block of the path goes in its own turn.
func TestWhatIsAboveStaysAsLong(t *testing.T) {
	p := kvcache.New(6)
	a := store(t, p, 1, 2, 3)
	p.Retain(a[2], kvcache.Retention{Priority: 80})
	p.Release(a)
	p.Release(store(t, p, 11, 12, 13))
	if got, want := victims(p, 6), []kv.SeqHash{13, 12, 11, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
	// A parent whose turn has passed goes right after its child.
	p = kvcache.New(6)
	a = store(t, p, 1, 2)
	p.Retain(a[0], kvcache.Retention{Priority: 10})
	p.Retain(a[1], kvcache.Retention{Priority: 80, TTL: time.Second})
	p.Release(a)
	p.Release(store(t, p, 11, 12, 13))
	got := victims(p, 2)
	p.Advance(time.Second)
	p.Release(store(t, p, 21, 22)) // in the place of 12 and 11
	if got, want := append(got, victims(p, 5)...), []kv.SeqHash{13, 2, 1, 22, 21}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

// queues is TensorRT-LLM's order: a queue for each priority, and a heap of
// deadlines that is looked at before a block is taken.
type queues struct {
	queue [101][]int
	block []struct {
		priority int
		ttl      time.Duration
		deadline time.Duration
		since    int
	}
	now   time.Duration
	count int
}

func (q *queues) claim(i int) {
	b := &q.block[i]
	q.queue[b.priority] = slices.DeleteFunc(q.queue[b.priority], func(j int) bool { return j == i })
	b.deadline = 0
}

func (q *queues) release(i int) {
	b := &q.block[i]
	q.queue[b.priority] = append(q.queue[b.priority], i)
	if b.ttl > 0 && b.priority != 35 {
		q.count++
		b.deadline, b.since = q.now+b.ttl, q.count
	}
}

func (q *queues) refresh() {
	for {
		due := -1
		for i, b := range q.block {
			if b.deadline == 0 || b.deadline > q.now {
				continue
			}
			if d := q.block[max(due, 0)]; due < 0 || b.deadline < d.deadline || b.deadline == d.deadline && b.since < d.since {
				due = i
			}
		}
		if due < 0 {
			return
		}
		q.claim(due)
		q.block[due].priority, q.block[due].ttl = 35, 0
		q.release(due)
	}
}

func (q *queues) take() int {
	for _, list := range q.queue {
		if len(list) > 0 {
			i := list[0]
			q.claim(i)
			return i
		}
	}
	return -1
}

// TestOrderOfTensorRT holds both orders that know priorities to 101 queues.
func TestOrderOfTensorRT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 8
		order := rapid.SampledFrom([]kvcache.Eviction{kvcache.EvictRetention, kvcache.EvictPriorities}).Draw(t, "order")
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Eviction: order})
		q := &queues{}
		q.block = make([]struct {
			priority int
			ttl      time.Duration
			deadline time.Duration
			since    int
		}, n)
		next := kv.SeqHash(0)
		fill := func(r kvcache.Ref) {
			next++
			p.Register(r, next, kvcache.Root)
			b := &q.block[r]
			b.priority, b.ttl = 35, 0
			if rapid.Bool().Draw(t, "asked") {
				b.priority = rapid.SampledFrom([]int{0, 1, 34, 35, 36, 99, 100}).Draw(t, "priority")
				b.ttl = time.Duration(rapid.IntRange(0, 5).Draw(t, "ttl")) * time.Second
				p.Retain(r, kvcache.Retention{Priority: uint8(b.priority), TTL: b.ttl})
			}
			p.Release([]kvcache.Ref{r})
			q.release(int(r))
		}
		refs, _, _ := p.Allocate(nil, n)
		for _, r := range refs {
			fill(r)
		}
		for range 60 {
			q.now += time.Duration(rapid.IntRange(0, 2).Draw(t, "time")) * time.Second
			p.Advance(q.now)
			q.refresh()
			if rapid.Bool().Draw(t, "claim") {
				i := rapid.IntRange(0, n-1).Draw(t, "block")
				refs := p.Match(nil, []kv.SeqHash{p.Hash(kvcache.Ref(i))})
				q.claim(i)
				p.Release(refs)
				q.release(i)
				continue
			}
			want := q.take()
			refs, _, ok := p.Allocate(nil, 1)
			if !ok || int(refs[0]) != want {
				t.Fatalf("took block %v, want %d", refs, want)
			}
			fill(refs[0])
		}
	})
}

// TestNothingAskedIsLRU: what was never asked anything, what was asked and no
// longer is, and the order that does not listen evict alike.
func TestNothingAskedIsLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain := kvcache.New(12)
		pools := map[string]*kvcache.Pool{
			"retention": kvcache.New(12),
			"lru":       kvcache.NewPool(kvcache.PoolConfig{Blocks: 12, Eviction: kvcache.EvictLRU}),
		}
		for name, p := range pools {
			refs, _, _ := p.Allocate(nil, 1)
			p.Register(refs[0], 1000, kvcache.Root)
			p.SetOnce(refs[0])
			if p.Release(refs); p.Plain() {
				t.Fatalf("%s has not been asked", name)
			}
		}
		for range 40 {
			seq := path(t)
			_, want := request(plain, seq, nil)
			for name, p := range pools {
				priority := uint8(rapid.IntRange(0, 100).Draw(t, "priority"))
				_, got := request(p, seq, func(refs []kvcache.Ref) {
					if name == "lru" {
						p.Retain(refs[len(refs)-1], kvcache.Retention{Priority: priority})
						p.SetEphemeral(refs[0])
					}
				})
				if !slices.Equal(got, want) {
					t.Fatalf("%s evicted %v, want %v", name, got, want)
				}
			}
		}
	})
}

// An order that does not listen lets no wish move what lies idle, neither when it is
// made nor when it is over.
func TestDeafOrders(t *testing.T) {
	for _, order := range []kvcache.Eviction{kvcache.EvictLRU, kvcache.EvictFIFO, kvcache.EvictMultiLRU} {
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, Eviction: order})
		for h := range kv.SeqHash(4) {
			request(p, []kv.SeqHash{1 + h}, nil)
		}
		ref := func(h kv.SeqHash) kvcache.Ref { r, _ := p.Find(h); return r }
		p.SetRetention([]kv.SeqHash{1, 2}, kvcache.Retention{Priority: 80, TTL: time.Second})
		p.SetEphemeral(ref(3))
		p.SetOnce(ref(2))
		p.Advance(time.Second)
		p.Inherit(ref(1), kvcache.Record{Epoch: 1, Priority: 20}, time.Unix(0, 0))
		p.Update([]kv.SeqHash{3}, kvcache.Record{Epoch: 1, Priority: kvcache.Neutral}, time.Unix(0, 0))
		if got, want := victims(p, 4), []kv.SeqHash{1, 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("%v: evicted %v, want %v", order, got, want)
		}
	}
}

// request matches what is there of a sequence, stores the rest and releases all.
// It returns how many blocks it found, and what was evicted.
func request(p *kvcache.Pool, seq []kv.SeqHash, during func([]kvcache.Ref)) (found int, evicted []kv.SeqHash) {
	refs := p.Match(nil, seq)
	found = len(refs)
	refs, gone, ok := p.Allocate(refs, len(seq)-found)
	if !ok {
		p.Release(refs)
		return found, nil
	}
	evicted = slices.Clone(gone)
	for k := found; k < len(refs); k++ {
		parent := kvcache.Root
		if k > 0 {
			parent = refs[k-1]
		}
		p.Register(refs[k], seq[k], parent)
	}
	if during != nil {
		during(refs)
	}
	p.Release(refs)
	return found, evicted
}

func TestFIFOIgnoresUse(t *testing.T) {
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, Eviction: kvcache.EvictFIFO})
	for h := range kv.SeqHash(3) {
		p.Release(store(t, p, h+1))
	}
	p.Release(p.Match(nil, []kv.SeqHash{1}))
	p.Release(store(t, p, 4))
	if got, want := victims(p, 4), []kv.SeqHash{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

func TestMultiLRUKeepsWhatIsHot(t *testing.T) {
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, Eviction: kvcache.EvictMultiLRU})
	hits := map[kv.SeqHash]int{1: 14, 2: 7, 3: 2, 4: 0} // and one for being stored
	for h := range kv.SeqHash(4) {
		p.Release(store(t, p, h+1))
		for range hits[h+1] {
			p.Release(p.Match(nil, []kv.SeqHash{h + 1}))
		}
	}
	if got, want := victims(p, 4), []kv.SeqHash{4, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

func TestEvictionNames(t *testing.T) {
	for e := kvcache.EvictRetention; e <= kvcache.EvictPriorities; e++ {
		if got, err := kvcache.ParseEviction(e.String()); got != e || err != nil {
			t.Errorf("%s: %v, %v", e, got, err)
		}
	}
	if _, err := kvcache.ParseEviction("mru"); err == nil {
		t.Error("mru is no order and no error")
	}
}

func TestEvictionsAreCountedByClass(t *testing.T) {
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 6, PinBudget: 1})
	refs := make([]kvcache.Ref, 0, 5)
	for h := range kv.SeqHash(5) {
		refs = append(refs, store(t, p, h+1)...)
	}
	p.SetEphemeral(refs[0])
	p.Retain(refs[1], kvcache.Retention{Priority: 34})
	p.Retain(refs[2], kvcache.Retention{Priority: 36})
	p.Pin([]kv.SeqHash{4}, kvcache.Pin{TTL: time.Second})
	p.Release(refs)
	victims(p, 6)
	if got, want := fmt.Sprint(p.Evictions()), "[1 1 1 1 1 0]"; got != want {
		t.Errorf("evictions %s, want %s", got, want)
	}
}

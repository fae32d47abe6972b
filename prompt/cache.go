package prompt

import (
	"strings"
	"sync"
)

// DefaultCacheBytes is the size of the cache that a loaded model has.
const DefaultCacheBytes = 64 << 20

// Cache remembers the ids of texts between control tokens, which are the
// messages of a conversation. The next turn brings all of them again and is
// tokenized at the price of what is new. Since it knows messages, not prompts,
// conversations share what they have in common, and an edit in the middle costs
// the message that was edited.
//
// A cache belongs to one model. It is safe for concurrent use.
type Cache struct {
	limit int

	mu     sync.Mutex
	byHash map[uint64]*cached
	used   cached // a ring: next is the latest in use, prev the first to go
	stats  CacheStats
}

// CacheStats counts since the cache was made.
type CacheStats struct {
	// Hits are the prompts of which the cache had a part, Misses the others.
	Hits, Misses uint64
	// CachedTokens came out of the cache, UncachedTokens had to be made.
	CachedTokens, UncachedTokens uint64
	Evictions                    uint64 // of texts
	Bytes, Texts                 int    // held now
}

// cached is one text. All but the links is fixed once it is made.
type cached struct {
	prev, next *cached

	hash  uint64
	text  string
	read  reading
	ids   []uint32
	chain chain // of ids
}

// reading is what the ids of a text depend on beside it.
type reading struct {
	first   bool // it begins the prompt
	literal bool // no control token in it has its effect
}

const (
	// minCached is from what length in bytes a text is worth the look-up.
	minCached = 32
	// cachedOverhead is about what a text takes beside its bytes and ids.
	cachedOverhead = 160
)

func (e *cached) bytes() int { return len(e.text) + 4*len(e.ids) + cachedOverhead }

// NewCache returns a cache that holds at most so many bytes.
func NewCache(bytes int) *Cache {
	c := &Cache{limit: bytes, byHash: map[uint64]*cached{}}
	c.used.prev, c.used.next = &c.used, &c.used
	return c
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// count counts one prompt.
func (c *Cache) count(cachedTokens, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cachedTokens > 0 {
		c.stats.Hits++
	} else {
		c.stats.Misses++
	}
	c.stats.CachedTokens += uint64(cachedTokens)
	c.stats.UncachedTokens += uint64(tokens - cachedTokens)
}

// get returns what is known of a text, or nil. Two texts of one hash keep each
// other out, and nothing worse.
func (c *Cache) get(hash uint64, text string, read reading) *cached {
	c.mu.Lock()
	e := c.byHash[hash]
	if e != nil {
		e.unlink()
		c.link(e)
	}
	c.mu.Unlock()
	if e == nil || e.read != read || e.text != text {
		return nil
	}
	return e
}

// put remembers the ids of a text. It keeps neither.
func (c *Cache) put(hash uint64, text string, read reading, ids []uint32, chain chain) {
	e := &cached{hash: hash, read: read, ids: ids, chain: chain}
	if e.bytes()+len(text) > c.limit {
		return
	}
	e.text, e.ids = strings.Clone(text), append(make([]uint32, 0, len(ids)), ids...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byHash[hash]; old != nil {
		c.drop(old)
	}
	c.byHash[hash] = e
	c.link(e)
	c.stats.Bytes += e.bytes()
	c.stats.Texts++
	for c.stats.Bytes > c.limit {
		c.drop(c.used.prev)
		c.stats.Evictions++
	}
}

func (c *Cache) link(e *cached) {
	e.prev, e.next = &c.used, c.used.next
	e.prev.next, e.next.prev = e, e
}

func (e *cached) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

func (c *Cache) drop(e *cached) {
	e.unlink()
	delete(c.byHash, e.hash)
	c.stats.Bytes -= e.bytes()
	c.stats.Texts--
}

package tokenizer

import "sync/atomic"

// wordCache remembers the ids of words that are several tokens. Each word has
// one slot, where the latest wins, so that readers need no lock and the cache
// no eviction. Full it takes cacheSlots times 8 bytes and a cachedWord, which is
// 2 MiB, however long the text; it grows only as words come.
type wordCache struct {
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

const (
	cacheSlots = 1 << 14
	cachedLen  = 38 // bytes of the longest word
	cachedIDs  = 18 // most ids of a word
)

type cachedWord struct {
	word [cachedLen]byte
	ids  [cachedIDs]uint32
	// How much of them is used.
	wordLen, idsLen uint8
}

// get returns the ids of word, which must not be changed.
func (c *wordCache) get(hash uint64, word string) ([]uint32, bool) {
	w := c.slots[hash%cacheSlots].Load()
	if w == nil || string(w.word[:w.wordLen]) != word {
		return nil, false
	}
	return w.ids[:w.idsLen], true
}

func (c *wordCache) put(hash uint64, word string, ids []uint32) {
	if len(word) > cachedLen || len(ids) > cachedIDs {
		return
	}
	w := &cachedWord{wordLen: uint8(len(word)), idsLen: uint8(len(ids))}
	copy(w.word[:], word)
	copy(w.ids[:], ids)
	c.slots[hash%cacheSlots].Store(w)
}

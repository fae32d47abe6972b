package kvcache

import "fmt"

// Eviction is the order in which blocks without pins go.
type Eviction uint8

// Orders. In all of them leaves go first, and pins hold.
const (
	// EvictRetention drops ephemeral blocks first, then by priority, then the least
	// recently used. Without any wish it is LRU.
	EvictRetention Eviction = iota
	// EvictLRU knows neither priorities nor ephemeral blocks.
	EvictLRU
	// EvictFIFO drops what was published first, however often it was used.
	EvictFIFO
	// EvictMultiLRU keeps four lists by how often a block was hit, the coldest first.
	EvictMultiLRU
	// EvictPriorities is TensorRT-LLM's order: 101 queues by priority, nothing else.
	EvictPriorities
)

// String returns the order's name in configuration.
func (e Eviction) String() string {
	return [...]string{"retention", "lru", "fifo", "multi-lru", "priorities"}[min(e, EvictPriorities)]
}

// byPriority and byClass say what an order listens to.
func (e Eviction) byPriority() bool { return e == EvictRetention || e == EvictPriorities }
func (e Eviction) byClass() bool    { return e == EvictRetention }

// ParseEviction returns the order with that name.
func ParseEviction(name string) (Eviction, error) {
	for e := EvictRetention; e <= EvictPriorities; e++ {
		if e.String() == name {
			return e, nil
		}
	}
	return 0, fmt.Errorf("eviction order %q, want retention, lru, fifo, multi-lru or priorities", name)
}

// Class is how readily a block goes: the lower, the sooner.
type Class uint8

// Classes of eviction.
const (
	Ephemeral  Class = iota // closed sessions, thinking, compacted history
	Low                     // priority below neutral
	Plain                   // no wish, or one that is neutral
	High                    // priority above neutral
	SoftPinned              // only when nothing below is left, by expiry of the pin
	HardPinned              // never
	classes
)

// String returns the class's name in metrics.
func (c Class) String() string {
	return [...]string{"ephemeral", "low", "plain", "high", "soft_pinned", "hard_pinned"}[min(c, HardPinned)]
}

// Priorities of retention.
const (
	Neutral     = 35 // of blocks without a wish
	MaxPriority = 100
)

// Class returns the eviction class of a block as of now.
func (k *keeper) Class(r Ref) Class {
	i := k.original(r)
	switch until, hard := k.pinOf(i); {
	case hard:
		return HardPinned
	case until > 0:
		return SoftPinned
	case k.blocks[i].flags&(ephemeral|once) != 0:
		return Ephemeral
	}
	return classOfPriority(k.priority(i))
}

// classOf is Class for a block that is idle, by where it lies.
func (k *keeper) classOf(i int32) Class {
	b := &k.blocks[i]
	switch {
	case k.plain:
		return Plain
	case b.place == inPins:
		return SoftPinned
	case b.queue == neutralQueue:
		return Plain
	case b.queue == ephemeralQueue:
		return Ephemeral
	case k.kind == EvictMultiLRU:
		return Plain
	}
	return classOfPriority(b.queue - firstQueue)
}

// nextClass returns the class of the block that the next allocation would evict,
// the lowest one if a slot is free.
func (p *Pool) nextClass() (Class, bool) {
	if p.free.head != none {
		return Ephemeral, true
	}
	i := p.victim()
	if i == none {
		return 0, false
	}
	return p.classOf(i), true
}

func classOfPriority(priority uint8) Class {
	switch {
	case priority < Neutral:
		return Low
	case priority == Neutral:
		return Plain
	}
	return High
}

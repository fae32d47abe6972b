package kvcache

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// FrequencyFilter passes a block from its second sighting on, so that a disk is
// not worn out by what is seen only once. Each sighting doubles a block's count,
// and every ten minutes all counts lose one, so that what is seen often passes
// for long after. The format of the counts is that of KVBM's disk filter.
type FrequencyFilter struct {
	count map[kv.SeqHash]uint32
	most  int
	decay time.Duration // when the counts next lose one
}

const (
	filterEntries = 1_000_000
	filterDecay   = 600 * time.Second
	// filterCap bounds a count; it takes a week of decay to forget it.
	filterCap = 1024
)

// NewFrequencyFilter returns a filter that remembers at most so many blocks, or
// a million if entries is not positive.
func NewFrequencyFilter(entries int) *FrequencyFilter {
	if entries <= 0 {
		entries = filterEntries
	}
	return &FrequencyFilter{count: map[kv.SeqHash]uint32{}, most: entries, decay: filterDecay}
}

// Pass counts a sighting of h and says whether there was one before it.
func (f *FrequencyFilter) Pass(now time.Duration, h kv.SeqHash) bool {
	if now >= f.decay {
		periods := (now-f.decay)/filterDecay + 1
		f.decay += periods * filterDecay
		f.lower(uint32(min(periods, filterCap)))
	}
	n := f.count[h]
	n = min(max(1, 2*n), filterCap)
	f.count[h] = n
	for len(f.count) > f.most {
		f.lower(1)
	}
	return n >= 2
}

// Len returns how many blocks the filter remembers.
func (f *FrequencyFilter) Len() int { return len(f.count) }

// lower takes so much from each count and forgets those of which nothing is left.
func (f *FrequencyFilter) lower(by uint32) {
	for h, n := range f.count {
		if n <= by {
			delete(f.count, h)
		} else {
			f.count[h] = n - by
		}
	}
}

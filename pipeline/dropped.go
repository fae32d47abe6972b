package pipeline

import (
	"cmp"
	"slices"
	"sync"
)

// Drop is a kind of generated text that belonged to no block: how the family is
// called, and why it was dropped, in the words of package parser.
type Drop struct{ Family, Reason string }

// DropCount tells how often that happened since the start.
type DropCount struct {
	Drop
	Count int64
}

// drops counts. There are few families and few reasons, and nothing a client
// sends adds to them.
type drops struct {
	mu     sync.Mutex
	counts map[Drop]int64
}

func (d *drops) add(family, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[Drop]int64{}
	}
	d.counts[Drop{family, reason}]++
}

// Dropped tells what parsers had to drop, in the order of families and reasons.
func (p *Pipeline) Dropped() []DropCount {
	p.drops.mu.Lock()
	defer p.drops.mu.Unlock()
	list := make([]DropCount, 0, len(p.drops.counts))
	for d, n := range p.drops.counts {
		list = append(list, DropCount{d, n})
	}
	slices.SortFunc(list, func(a, b DropCount) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
